//! Files without a name that stay for a while, and that nobody else is to pay for.

use std::{fs::File, io};

use linux_abi::fsxattr::{Attributes, Flags};
use rustix::fs::{Gid, Uid, fchown};

/// Make a file of XFS root's own, with what it holds: root's quotas, and that of project 0, have no limits. Other
/// defragmenters leave it alone: they find files by their numbers. What it inherited from its directory goes, too.
pub(crate) fn make_own(file: &File) -> io::Result<()> {
    fchown(file, Some(Uid::ROOT), Some(Gid::ROOT))?;
    let is = Attributes::get(file)?;
    is.with_flags((is.flags() - Flags::REALTIME) | Flags::NODEFRAG)
        .without_hints()
        .with_project(0)
        .set(file)
}
