//! The inodes of an XFS in bulk, with the number of their extents: which files are in one piece.
//!
//! A file that the kernel has in memory is told as it is there, so that the answer is of the moment of the
//! call. Extents without a place are not among those that are counted, but their blocks are among the
//! file's (fs/xfs/xfs_itable.c, `xfs_bulkstat_one_int`, v6.18). So a file is in one piece if it has
//! one extent and as many blocks as its size takes: a second piece without a place would have to fill a hole
//! exactly, before it is written back.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
};

use indef_core::layout::{Extent, ExtentFlags, Layout};
use linux_abi::{
    handle::{self, FileHandle},
    xfs::{InodeFlags, InodeRecord, InodeRecords, geometry},
};
use rustix::fs::FileType;
use units::{Bytes, FileOffset, PhysOffset};

use crate::{
    Filesystem,
    inodes::{Expected, InodeFacts, InodePlace, Window, hides_files},
};

/// Inodes that are read at once for a walk: of more it asks for too few.
const MOST: usize = 256;

/// The inodes of a mounted XFS.
#[derive(Debug)]
pub(crate) struct BulkInodes {
    /// A file or directory on it.
    on: OwnedFd,
    block_size: u64,
    groups: u32,
    /// Whether every directory entry is of the file that has its number.
    tell_all: bool,
}

/// The inodes that were read last.
#[derive(Debug, Default)]
pub(crate) struct Chunk {
    buffer: InodeRecords,
    /// The first number that was looked for.
    from: u64,
    /// Those that are in use from there on.
    records: Vec<InodeRecord>,
    window: Window,
}

impl Chunk {
    pub(crate) fn clear(&mut self) {
        self.records.clear();
    }
}

impl BulkInodes {
    pub(crate) fn open(fs: &Filesystem, file: impl AsFd) -> Option<Self> {
        let geometry = geometry(&file).ok()?;
        // Whether we may.
        InodeRecords::new().read(&file, 1, 1).ok()?;
        Some(Self {
            on: file.as_fd().try_clone_to_owned().ok()?,
            block_size: geometry.block_size.into(),
            groups: geometry.group_count,
            tell_all: !hides_files(fs),
        })
    }

    pub(crate) fn tell_all(&self) -> bool {
        self.tell_all
    }

    pub(crate) fn file(&self, inode: u64, chunk: &mut Chunk) -> Option<InodeFacts> {
        let record = self.record(inode, chunk)?;
        (is_regular(record) && record.links > 0).then(|| InodeFacts {
            size: Bytes(record.size),
            allocated: self.allocated(record),
            links: record.links,
            place: match self.one_piece(record) {
                Some(layout) => InodePlace::Known(layout),
                None => InodePlace::InFile(record.generation),
            },
        })
    }

    /// To read a file without finding its path: with `statx` and FIEMAP that is four calls, and the same with
    /// its path are seven.
    pub(crate) fn open_file(&self, inode: u64, generation: u32) -> Option<OwnedFd> {
        let handle = FileHandle::Xfs64 { inode, generation };
        handle::open_to_read(&self.on, handle).ok()
    }

    pub(crate) fn layout(&self, expected: &Expected, chunk: &mut Chunk) -> Option<Layout> {
        let record = self.record(expected.inode, chunk)?;
        let unchanged = record.size == expected.size.get()
            && self.allocated(record) == expected.allocated
            && record.ctime() == expected.ctime;
        unchanged.then(|| self.one_piece(record)).flatten()
    }

    /// Allocation groups.
    pub(super) const fn groups(&self) -> u32 {
        self.groups
    }

    /// The inodes in use of an allocation group, from a number on or from its beginning; none where there are no more.
    pub(super) fn read_group<'a>(
        &self,
        records: &'a mut InodeRecords,
        group: u32,
        from: u64,
    ) -> io::Result<&'a [InodeRecord]> {
        records.read_group(&self.on, group, from, InodeRecords::MOST)
    }

    pub(super) fn allocated(&self, record: &InodeRecord) -> Bytes {
        Bytes(record.blocks.saturating_mul(self.block_size))
    }

    /// Whether it is a regular file that has no data, or one extent from its beginning to its end.
    pub(super) fn is_plain(&self, record: &InodeRecord) -> bool {
        let is_usual = is_regular(record)
            && record.links > 0
            && record.attribute_extents == 0
            && !record.flags().contains(InodeFlags::REALTIME);
        let whole = record.size.div_ceil(self.block_size);
        is_usual
            && match record.extents {
                0 => record.blocks == 0,
                1 => record.blocks == whole,
                _ => false,
            }
    }

    /// The layout of such a file.
    fn one_piece(&self, record: &InodeRecord) -> Option<Layout> {
        self.is_plain(record).then(|| match record.extents {
            0 => Layout::default(),
            _ => Layout::new(vec![Extent {
                file: FileOffset(0),
                phys: PhysOffset(0),
                len: self.allocated(record),
                flags: ExtentFlags::UNPLACED,
            }]),
        })
    }

    fn record<'a>(&self, inode: u64, chunk: &'a mut Chunk) -> Option<&'a InodeRecord> {
        let last = chunk.records.last().map(|record| record.inode);
        if last.is_none_or(|last| inode < chunk.from || inode > last) {
            let wanted = match last {
                Some(_) => chunk.window.next(1, MOST),
                None => chunk.window.again(),
            };
            let read = chunk.buffer.read(&self.on, inode, wanted);
            chunk.records.clear();
            chunk.from = inode;
            chunk.records.extend_from_slice(read.ok()?);
        }
        let found = chunk
            .records
            .binary_search_by_key(&inode, |record| record.inode);
        let record = chunk.records.get(found.ok()?);
        chunk.window.ask();
        record
    }
}

fn is_regular(record: &InodeRecord) -> bool {
    FileType::from_raw_mode(record.mode.into()) == FileType::RegularFile
}
