//! Tools for XFS that are newer than Debian 12's, for file systems with the `exchange` feature.

use std::path::PathBuf;

use crate::skip;

/// The folder in which `scripts/xfsprogs` puts them, if it has.
#[must_use]
pub fn xfsprogs() -> Option<PathBuf> {
    let folder = source_tree::root().join("target/xfsprogs");
    folder.join("mkfs.xfs").exists().then_some(folder)
}

/// The folder, or a reported skip: return.
#[must_use]
pub fn require_xfsprogs() -> Option<PathBuf> {
    let found = xfsprogs();
    if found.is_none() {
        skip("no mkfs.xfs with the exchange feature; run scripts/xfsprogs");
    }
    found
}
