//! Tools for XFS that are newer than Debian 12's, for file systems with the `exchange` feature.

use std::{path::PathBuf, process::Command};

use crate::skip;

/// The folder in which `scripts/xfsprogs` puts them, if it has.
#[must_use]
pub fn xfsprogs() -> Option<PathBuf> {
    let folder = source_tree::root().join("target/xfsprogs");
    folder.join("mkfs.xfs").exists().then_some(folder)
}

/// The folder with such tools, those that were fetched or the system's own, or a reported skip:
/// return.
#[must_use]
pub fn require_xfsprogs() -> Option<PathBuf> {
    let found = xfsprogs().or_else(system);
    if found.is_none() {
        skip("no mkfs.xfs with the exchange feature; run scripts/xfsprogs");
    }
    found
}

/// The system's folder with `mkfs.xfs`, if that one is new enough.
fn system() -> Option<PathBuf> {
    let folder = PathBuf::from("/usr/sbin");
    // Without a device it prints its usage.
    let usage = Command::new(folder.join("mkfs.xfs")).output().ok()?;
    String::from_utf8_lossy(&usage.stderr)
        .contains("exchange=")
        .then_some(folder)
}
