//! Tools for XFS that are newer than Debian 12's, for file systems with the `exchange` feature.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::Command,
};

use crate::skip;

/// The folder in which `scripts/xfsprogs` puts them, if it has.
#[must_use]
pub fn xfsprogs() -> Option<PathBuf> {
    let folder = source_tree::root().join("target/xfsprogs");
    folder.join("mkfs.xfs").exists().then_some(folder)
}

/// Copy what was fetched to `xfsprogs` in the folder that a guest shares: it has its own C library. `false` where nothing was
/// fetched.
///
/// # Errors
///
/// It cannot be read, or not be written there.
pub fn share_xfsprogs(folder: &Path) -> io::Result<bool> {
    match xfsprogs() {
        Some(tools) => copy_folder(&tools, &folder.join("xfsprogs")).map(|()| true),
        None => Ok(false),
    }
}

fn copy_folder(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_folder(&entry.path(), &to)?;
        } else {
            fs::copy(entry.path(), to)?;
        }
    }
    Ok(())
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
    knows_exchange(&folder.join("mkfs.xfs")).then_some(folder)
}

/// Whether this `mkfs.xfs` can make a file system with the `exchange` feature. One without a folder is looked for where
/// the system's programs are.
#[must_use]
pub fn knows_exchange(mkfs: &Path) -> bool {
    let path = std::env::var("PATH").unwrap_or_default();
    // Without a device it prints its usage.
    let usage = Command::new(mkfs)
        .env("PATH", format!("{path}:/usr/sbin:/sbin"))
        .output();
    usage.is_ok_and(|usage| String::from_utf8_lossy(&usage.stderr).contains("exchange="))
}
