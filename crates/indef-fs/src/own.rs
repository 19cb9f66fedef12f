//! Files without a name that hold space for a while, and that nobody else is to pay for.

use std::{fs::File, io};

use linux_abi::fsxattr::{Attributes, Flags};
use rustix::fs::{Gid, Uid, fchown, fstat};

/// Make a file root's own, with what it holds: root's quotas, and that of project 0, have no limits. A new file has the
/// project of its directory, and often the group.
///
/// # Errors
///
/// `EPERM` for users; `EINVAL` where a container has no projects.
pub(crate) fn make_own(file: &File) -> io::Result<()> {
    let status = fstat(file)?;
    if (status.st_uid, status.st_gid) != (0, 0) {
        fchown(file, Some(Uid::ROOT), Some(Gid::ROOT))?;
    }
    let is = Attributes::get(file)?;
    match is.project() {
        0 => Ok(()),
        _ => is.with_project(0).set(file),
    }
}

/// Take away what a file of XFS has inherited from its directory and what is in the way: data in the realtime part, hints
/// for the size of extents. Other defragmenters leave the file alone then: they find files by their numbers.
pub(crate) fn make_plain(file: &File) -> io::Result<()> {
    let is = Attributes::get(file)?;
    is.with_flags((is.flags() - Flags::REALTIME) | Flags::NODEFRAG)
        .without_hints()
        .set(file)
}
