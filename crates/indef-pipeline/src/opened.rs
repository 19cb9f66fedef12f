//! A known file, opened to be mapped.

use std::{fs::File, path::Path, sync::Arc};

use indef_core::{layout::Layout, plan::BirthTime};
use indef_fs::{Mapper, Mounts, Root, TargetId, map};
use rustix::fs::fstatfs;
use units::{Bytes, FileOffset, FileRange};

/// A file that is open for mapping.
pub(crate) struct Opened {
    pub(crate) file: File,
    pub(crate) path: Arc<Path>,
    pub(crate) id: TargetId,
    pub(crate) born: Option<BirthTime>,
    pub(crate) size: Bytes,
    pub(crate) block_size: Bytes,
}

impl Opened {
    /// Open a file by its name, if it is still this file. No symbolic link on the path is followed,
    /// and the file is examined before it is opened: opening a device can have effects.
    pub(crate) fn open(path: &Path, id: TargetId) -> Option<Self> {
        let (root, below) = match path.strip_prefix("/") {
            Ok(below) => ("/", below),
            Err(_) => ("", path),
        };
        let root = Root::open(root.as_ref(), Mounts::Cross).ok()?;
        let entry = root.find(below).ok().filter(|entry| entry.id() == id)?;
        let file = File::from(entry.open_to_map().ok()?);
        let block_size = u64::try_from(fstatfs(&file).ok()?.f_bsize).unwrap_or(1);
        Some(Self {
            path: path.into(),
            id,
            born: entry.born(),
            size: Bytes(file.metadata().ok()?.len()),
            block_size: Bytes(block_size.max(1)),
            file,
        })
    }

    /// The extents of a range. Data that was not written back has no place yet, unless `sync` is
    /// set.
    pub(crate) fn map(&self, range: FileRange, sync: bool, mapper: &mut Mapper) -> Option<Layout> {
        map(&self.file, &self.path, range, sync, mapper).ok()
    }

    /// The whole file, in whole blocks.
    pub(crate) fn whole(&self) -> FileRange {
        FileRange::new(0, self.size.get()).align_outward(self.block_size)
    }

    /// The range, with a block on either side: the effect of a repair depends on whether a fragment
    /// reaches across an end of the range.
    pub(crate) fn around(&self, range: FileRange) -> FileRange {
        let start = range.start.get().saturating_sub(self.block_size.get());
        let end = range.end().get().saturating_add(self.block_size.get());
        FileRange::between(FileOffset(start), FileOffset(end))
    }
}
