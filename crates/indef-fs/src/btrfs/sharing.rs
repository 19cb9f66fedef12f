//! Extents that nobody else has, without asking for each: by their references and the subvolume's snapshots.
//!
//! An extent is shared if it has two references, or if the leaf that has its only one is in two trees. A leaf gets
//! into another tree only by a snapshot, and whatever changes in it afterwards is in a copy of it. So an extent is
//! not shared if it has one reference, which was made after the last snapshot (the kernel's own reasoning:
//! fs/btrfs/backref.c, `btrfs_is_data_extent_shared`, v6.18). Of all others the kernel knows more, and is asked.

use std::{
    fmt,
    os::fd::{AsFd, OwnedFd},
};

use linux_abi::{
    btrfs::{ExtentRefs, FileExtent, last_snapshot},
    handle::{self, FileHandle},
};

use crate::inodes::Window;

/// The most items that are read in one go.
const MOST: usize = 512;

/// The subvolume of which files are looked at.
#[derive(Debug)]
pub(super) struct Subvolume(u64);

impl Subvolume {
    /// That of an open file or directory.
    pub(super) fn of(file: impl AsFd) -> Option<Self> {
        match handle::of(file).ok()? {
            FileHandle::Btrfs { subvolume, .. } => Some(Self(subvolume)),
            _ => None,
        }
    }

    /// The number of its tree.
    pub(super) const fn number(&self) -> u64 {
        self.0
    }

    /// The transaction of its last snapshot.
    pub(super) fn last_snapshot(&self, within: &OwnedFd) -> Option<u64> {
        last_snapshot(within, self.0).ok()?
    }
}

/// The references of extents that were read last.
#[derive(Default)]
pub(super) struct References {
    buffer: ExtentRefs,
    /// Address and number, of extents in `from..end`.
    read: Vec<(u64, u64)>,
    from: u64,
    end: u64,
    window: Window,
}

impl fmt::Debug for References {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("References")
            .field("from", &self.from)
            .field("end", &self.end)
            .finish_non_exhaustive()
    }
}

impl References {
    pub(super) fn clear(&mut self) {
        (self.from, self.end) = (0, 0);
    }

    /// Whether nobody else has the extent, as far as that is certain. `within` is on the file system.
    pub(super) fn is_alone(
        &mut self,
        extent: &FileExtent,
        last_snapshot: u64,
        within: &OwnedFd,
    ) -> bool {
        let alone = |backing| self.of(backing, within) == Some(1);
        let address = extent.backing.map(|backing| backing.address);
        extent.generation > last_snapshot && address.is_some_and(alone)
    }

    /// The references of the extent with this address.
    fn of(&mut self, address: u64, within: &OwnedFd) -> Option<u64> {
        if !(self.from..self.end).contains(&address) {
            let extents = match self.end {
                0 => self.window.again(),
                _ => self.window.next(4, MOST),
            };
            self.read.clear();
            let read = &mut self.read;
            let add = |address, refs| read.push((address, refs));
            let last = self
                .buffer
                .read(within, address, extents as u32, add)
                .ok()
                .flatten();
            (self.from, self.end) = (address, last.map_or(address, |last| last + 1));
        }
        let found = self.read.binary_search_by_key(&address, |read| read.0);
        self.window.ask();
        Some(self.read.get(found.ok()?)?.1)
    }
}
