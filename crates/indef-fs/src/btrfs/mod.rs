//! Btrfs: [`share`] moves ranges of files that anybody shares, together with their snapshots and reflinks; for all
//! others the kernel rewrites ranges of a file (`BTRFS_IOC_DEFRAG_RANGE`; fs/btrfs/defrag.c, v6.1 and v6.18).
//!
//! The ioctl takes the inode lock for 256 KiB at a time, reads these into the page cache and marks
//! them dirty; writeback then gives them new blocks and, once the data is on the device, puts these
//! into the tree, in the transaction that frees the old ones. So contents are safe at every moment,
//! and a write of an application in between wins, as with any cached page.
//!
//! The engine `btrfs-defrag-range` adds:
//!
//! - **Exactly the range.** The kernel leaves out extents that it thinks not worth it: those of
//!   256 KiB and more by default, and the last one before a hole. A threshold of 4 GiB, and from
//!   6.17 on the flag for no compression, which implies every extent, take care of that.
//! - **Asynchronous.** The ioctl reads data that is not cached and waits. Ranges are read ahead of
//!   it, many requests at a time, and written back after it, many ranges in one go: neighbours then
//!   get neighbouring blocks.
//! - **Sharing is kept.** Rewriting gives it up, so shared extents are left out, as the map says
//!   right before (a reflink made in the half second between is the one case that it misses; then
//!   space is lost, not data). Files without copy-on-write keep it even where it may be given up:
//!   an extent that nobody else refers to any more is written in place, also if that is not
//!   committed yet. After a power cut the moved file would be back on its old extents, with the
//!   data that was written there through the other one (seen on 6.18; it is so without us, too,
//!   when a clone is punched or removed). So such a file is looked at right before each call.
//! - **Compression is kept**: see [`compression`].
//! - **Commits in between.** What a move gives up costs a commit more than the move: see [`commits`].
//! - **Never worse.** A file system without room in one piece could give more fragments than there
//!   were; see [`space`], and the result of each batch is compared.
//!
//! A part of an extent that is rewritten does not free that part's old blocks: Btrfs frees an
//! extent when nothing refers to any of it. Ranges that cut an extent cost that space until the
//! rest is rewritten, too.
//!
//! The same is of use to give space back ([`EngineOptions::reclaim`]): all that a file still reaches
//! of an extent is rewritten, and the rest of it comes free. Fragments then decide nothing, but that a
//! batch of which they become many more is the last one. Shared extents stay, even where sharing may
//! be given up: others would hold them all the same. Before 6.17 the kernel leaves an extent alone
//! that has no neighbour in the file, or only longer ones.

mod again;
mod batch;
mod call;
mod chunks;
mod commits;
mod compression;
mod held;
mod inodes;
mod known;
mod pieces;
mod reader;
mod relocation;
mod rows;
mod settled;
mod share;
mod sharing;
mod space;
mod whole;

use indef_core::SkipReason;

use crate::{
    CountedRange, EngineOptions, Filesystem, FsError, RangeCopier, Refusal, Relocation, Relocator,
    Target,
};
pub(crate) use chunks::{Chunks, space_map};
use commits::Commits;
pub(crate) use held::partly_reached;
pub(crate) use inodes::{Chunk, TreeInodes};
use relocation::BtrfsRelocation;
pub(crate) use rows::NewChunks;
pub(crate) use share::BtrfsShareRange;
pub use whole::{Change, Folders, Numbered, SubvolumeFiles, TreeChunk};

/// Whether the kernel rewrites each part of a file that it is asked for. Before 6.17 it leaves out the last extent before
/// a hole and the last of all (`defrag_collect_targets`, fs/btrfs/defrag.c): the other parts of an extent would be
/// written, and nothing would come free.
#[must_use]
pub fn can_reclaim(fs: &Filesystem) -> bool {
    fs.kernel_at_least(6, 17)
}

/// The engine `btrfs-defrag-range`.
#[derive(Debug)]
pub(crate) struct BtrfsDefragRange {
    fs: Filesystem,
    allow_unshare: bool,
    reclaim: bool,
    commits: Commits,
}

impl BtrfsDefragRange {
    pub(crate) fn new(fs: &Filesystem, options: &EngineOptions) -> Self {
        Self {
            fs: fs.clone(),
            allow_unshare: options.allow_unshare && !options.reclaim,
            reclaim: options.reclaim,
            commits: Commits::of(fs),
        }
    }
}

impl Relocator for BtrfsDefragRange {
    fn name(&self) -> &'static str {
        crate::EngineKind::BtrfsDefragRange.name()
    }

    fn admit(&self, target: &Target) -> Result<(), Refusal> {
        if target.size.is_zero() {
            return Err(SkipReason::Empty.into());
        }
        if self.reclaim && !can_reclaim(&self.fs) {
            return Err(SkipReason::NoEngine.into());
        }
        Ok(())
    }

    fn begin<'a>(
        &'a self,
        target: &'a Target,
        ranges: &[CountedRange],
        _copier: &'a dyn RangeCopier,
    ) -> Result<Box<dyn Relocation + 'a>, Refusal> {
        self.admit(target)?;
        Ok(Box::new(BtrfsRelocation::begin(
            (&self.fs, &self.commits),
            self.allow_unshare,
            self.reclaim,
            target,
            ranges,
        )?))
    }

    fn settle(&self) -> Vec<FsError> {
        self.commits.wait();
        Vec::new()
    }
}
