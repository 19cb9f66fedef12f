//! Files without a name.

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

/// A file without a name, on the same file system as `path`.
pub(crate) fn nameless(path: &Path) -> io::Result<File> {
    let directory = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(rustix::fs::OFlags::TMPFILE.bits() as i32)
        .open(directory.unwrap_or(Path::new(".")))
}
