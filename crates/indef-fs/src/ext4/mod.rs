//! ext4: `EXT4_IOC_MOVE_EXT` with an unlinked donor.
//!
//! The kernel swaps the places of two files' blocks, a page at a time, and keeps the data with its
//! file: under both inodes' locks and the page's lock it makes sure that the page is in memory,
//! swaps the mappings in a journal transaction, and marks the page dirty; the transaction is not
//! committed before the data is on the device (fs/ext4/move_extent.c, v6.1 and v6.18). So contents
//! are safe against everybody at every moment, as long as there is a journal, but for one thing:
//! data that an application writes to moved blocks before the move is committed is not durable,
//! whatever `fdatasync` says ([`relocation`]). So every step ends with a commit, and nobody can
//! open the file before. It is left to this engine to choose a better place, to bound the time
//! under the locks, and to have the data in memory, in the right form, when the kernel looks for
//! it.
//!
//! The kernel commits a move also where the device did not take the data. So each step waits for its data before the
//! commit, and moves what was refused back to its old blocks, which the donor has, and which nobody has written to. The
//! kernel writes its pages there; until they are on the device in their new place, they are [pinned](pins) ([`unsure`]), as a page that
//! could not be written counts as clean. Whoever writes to the file writes to these pages, and what is written stays.
//!
//! ```text
//! survey(range) ─▶ donor: one piece if there is one ─▶ better? ─▶ window by window:
//!     remember what is cached, drop it, read ahead │ wait │ move │ write back │ wait, restore
//! each step:  take a lease │ some of that │ commit │ give the lease back
//! ```
//!
//! Where others have the file open there is no lease; then steps are small, so that the time until
//! the commit is short, and with [`EngineOptions::strict`] the file is left alone.
//!
//! Ignored: blocks past the end of the file (the kernel refuses them), and delayed allocations that
//! appear while the file is moved.

mod donor;
mod extent_tree;
mod folios;
mod inode_table;
mod piece;
mod pins;
mod queue;
mod relocation;
mod shared;
mod unsure;
mod volume;

use indef_core::SkipReason;
use linux_abi::ext4::disk::InodeFlags;
use rustix::fs::ioctl_getflags;

pub(crate) use self::inode_table::{Chunk, InodeTables};
use self::{relocation::Ext4Relocation, shared::Shared};
use crate::{
    Attributes, CountedRange, EngineKind, EngineOptions, Filesystem, FsError, RangeCopier, Refusal,
    Relocation, Relocator, Target,
};

/// The engine for one mounted ext4 file system.
pub(crate) struct Ext4MoveExtent(Shared);

impl Ext4MoveExtent {
    /// # Errors
    ///
    /// The file system has no journal, or journals data.
    pub(crate) fn new(fs: &Filesystem, options: &EngineOptions) -> Result<Self, Refusal> {
        volume::admit(fs)?;
        Ok(Self(Shared::new(fs, options)))
    }
}

impl Relocator for Ext4MoveExtent {
    fn name(&self) -> &'static str {
        EngineKind::Ext4MoveExtent.name()
    }

    fn admit(&self, target: &Target) -> Result<(), Refusal> {
        for (attribute, reason) in [
            (Attributes::ENCRYPTED, SkipReason::Encrypted),
            (Attributes::VERITY, SkipReason::Unsupported),
            (Attributes::DAX, SkipReason::Dax),
        ] {
            if target.attributes.contains(attribute) {
                return Err(reason.into());
            }
        }
        if target.size.is_zero() {
            return Err(SkipReason::Empty.into());
        }
        let flags = ioctl_getflags(&target.file).map_or(InodeFlags::EXTENTS, |flags| {
            InodeFlags::from_bits_retain(flags.bits())
        });
        if flags.contains(InodeFlags::INLINE_DATA) {
            Err(SkipReason::Inline.into())
        } else if flags.contains(InodeFlags::JOURNAL_DATA) || !flags.contains(InodeFlags::EXTENTS) {
            Err(SkipReason::Unsupported.into())
        } else {
            Ok(())
        }
    }

    fn begin<'a>(
        &'a self,
        target: &'a Target,
        ranges: &[CountedRange],
        _copier: &'a dyn RangeCopier,
    ) -> Result<Box<dyn Relocation + 'a>, Refusal> {
        Ok(Box::new(Ext4Relocation::begin(&self.0, target, ranges)?))
    }

    fn settle(&self) -> Vec<FsError> {
        self.0.settler.finish()
    }
}
