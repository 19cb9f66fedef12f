//! A file that holds extents of the target, opened by its handle.
//!
//! A handle has the generation of its inode: none is mistaken for another one, and none has to have a name that is
//! known. The mount is that of the target, which is writable.

use std::{collections::BTreeMap, fs::File};

use indef_core::SkipReason;
use linux_abi::handle::{self, FileHandle};
use rustix::{
    fs::{OFlags, Statx, StatxAttributes, StatxFlags},
    io::Errno,
};

use super::select::FileParts;
use crate::{
    Target, TargetId,
    root::{id, is_regular, look_at, reopen},
};

/// Holders of a window beside the target: the layout of each is kept.
pub(crate) const MOST_HOLDERS: usize = 256;
/// A holder is read between its first and its last reference to a window. Longer ranges are not looked at.
pub(crate) const LONGEST_HULL: u64 = 1 << 30;
/// Nor such with more parts, and all holders together have at most so many: some 70 MiB of memory.
pub(crate) const MOST_PARTS: usize = 64 << 10;
pub(crate) const MOST_PARTS_OF_ALL: usize = 1 << 20;

/// A file that holds extents of the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct HolderId {
    /// 0 where there are none.
    pub(crate) subvolume: u64,
    pub(crate) inode: u64,
}

/// A holder that was found.
#[derive(Debug)]
pub(crate) struct Holder {
    pub(crate) id: HolderId,
    pub(crate) handle: FileHandle,
    pub(crate) has: FileParts,
}

/// The target and its holders.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) target: FileParts,
    pub(crate) holders: Vec<Holder>,
    /// Extents of the target that have to stay.
    pub(crate) staying: BTreeMap<u64, SkipReason>,
}

impl Found {
    /// Let all extents stay that have no other reason to.
    pub(crate) fn stay(&mut self, reason: SkipReason) {
        for part in &self.target.parts {
            self.staying.entry(part.extent).or_insert(reason);
        }
    }
}

impl Holder {
    /// Open it, and tell which file that is; `None` if it is gone.
    pub(crate) fn open(&self, target: &Target) -> Result<Option<(File, TargetId)>, SkipReason> {
        Ok(open(target, self.handle)?.map(|(file, status)| (file, id(&status))))
    }
}

/// Open a file for reading, in order to compare: this changes nothing about it. `None` if it is gone.
pub(crate) fn open(
    target: &Target,
    handle: FileHandle,
) -> Result<Option<(File, Statx)>, SkipReason> {
    const FIXED: StatxAttributes = StatxAttributes::IMMUTABLE.union(StatxAttributes::APPEND);
    match open_any(target, handle)? {
        Some((_, status)) if status.stx_attributes.intersects(FIXED) => {
            Err(SkipReason::HoldersUnreachable)
        }
        opened => Ok(opened),
    }
}

/// The same, also where the file cannot be changed.
pub(crate) fn open_any(
    target: &Target,
    handle: FileHandle,
) -> Result<Option<(File, Statx)>, SkipReason> {
    let named = match handle::open(&target.file, handle) {
        Ok(named) => named,
        Err(error) => {
            return match Errno::from_io_error(&error) {
                Some(Errno::STALE | Errno::NOENT) => Ok(None),
                _ => Err(SkipReason::HoldersUnreachable),
            };
        }
    };
    let unreachable = |_| SkipReason::HoldersUnreachable;
    let status = look_at(&named, StatxFlags::BASIC_STATS).map_err(unreachable)?;
    if !is_regular(&status) {
        return Err(SkipReason::HoldersUnreachable);
    }
    let file = reopen(&named, OFlags::RDONLY | OFlags::NOATIME).map_err(unreachable)?;
    Ok(Some((file.into(), status)))
}

/// Whether a look at holders, which may be very many, is to go on.
pub(crate) fn go_on(is_stopping: &dyn Fn() -> bool) -> Result<(), SkipReason> {
    match is_stopping() {
        true => Err(SkipReason::Stopped),
        false => Ok(()),
    }
}
