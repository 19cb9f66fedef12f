//! Files of a subvolume by their numbers, as a walk finds them.

use std::{fs::File, path::PathBuf, sync::Arc};

use indef_fs::{Filesystem, InodePlace, Mapper, SubvolumeFiles, TargetId, TreeChunk};
use rustix::fs::{AtFlags, statx};

use super::{
    directory::RootedPath,
    entry::Facts,
    seen::{CollectOptions, FoundFile},
    walker::LOOKED_AT,
};

/// So many files are looked at between two questions whether the tree knows all.
const BATCH: u32 = 256;

/// Looks at files by their numbers. One for each thread.
pub struct ByNumber<'a> {
    files: &'a SubvolumeFiles,
    fs: &'a Arc<Filesystem>,
    options: &'a CollectOptions,
    chunk: TreeChunk,
    mapper: Mapper,
    looked: u32,
    settled: bool,
}

impl<'a> ByNumber<'a> {
    /// For files of this subvolume, which are looked at as a walk with these options does.
    #[must_use]
    pub fn new(
        files: &'a SubvolumeFiles,
        fs: &'a Arc<Filesystem>,
        options: &'a CollectOptions,
    ) -> Self {
        Self {
            files,
            fs,
            options,
            chunk: TreeChunk::default(),
            mapper: Mapper::default(),
            looked: 0,
            settled: false,
        }
    }

    /// Look at a regular file, which `path` leads to; `None` if it is gone.
    pub fn look(&mut self, inode: u64, path: PathBuf) -> Option<FoundFile> {
        if self.looked.is_multiple_of(BATCH) {
            self.chunk.clear();
            self.settled = self.files.is_settled();
        }
        self.looked = self.looked.wrapping_add(1);
        let place = RootedPath { path, root_len: 0 };
        if self.settled
            && let Some(known) = self.files.file(inode, &mut self.chunk)
            && let InodePlace::Known(layout) = known.place
            && self.files.reaches_all(inode, &mut self.chunk) == Some(true)
        {
            let facts = Facts {
                id: TargetId {
                    dev: self.fs.dev,
                    inode,
                },
                born: None,
                size: known.size,
                allocated: known.allocated,
            };
            return Some(facts.found(place, self.fs, true, Some(Vec::new()), Ok(layout)));
        }
        let file = File::from(self.files.open_file(inode)?);
        let status = statx(&file, "", AtFlags::EMPTY_PATH, LOOKED_AT).ok()?;
        let is_there = status.stx_nlink > 0;
        let mapper = &mut self.mapper;
        is_there.then(|| Facts::of(&status).look_into(&file, place, self.fs, self.options, mapper))
    }
}
