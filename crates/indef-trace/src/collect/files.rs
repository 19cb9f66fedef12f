//! The files that the programs have met, by the short names that ranges carry.

use std::collections::BTreeMap;

use units::Bytes;

use super::{
    contract::{self, FILES, FileEntry},
    error::TraceError,
    options::Layer,
    programs::Programs,
};
use crate::{
    mounts::stat_device,
    readahead::ReadAhead,
    resolve::{Resolver, Sighting},
    tally::{FileKey, FsId, TracedFile},
};

/// New files after which names of long ago are forgotten.
const MANY: u32 = FILES / 4 * 3;

#[derive(Default)]
pub(super) struct Files {
    known: BTreeMap<u32, Known>,
    /// The last file when the kernel's map of files was emptied.
    forgotten: u32,
    /// How many of the kernel's files were read from its map because the ring was full.
    untold: u64,
    resolver: Resolver,
    readahead: ReadAhead,
}

#[derive(Clone, Copy)]
struct Known {
    key: FileKey,
    readahead: Bytes,
}

impl Files {
    pub(super) fn new() -> Self {
        Self {
            resolver: Resolver::new(),
            ..Self::default()
        }
    }

    /// The file with this short name.
    pub(super) fn get(&self, id: u32) -> Option<FileKey> {
        self.known.get(&id).map(|file| file.key)
    }

    /// How far the kernel reads ahead in this file.
    pub(super) fn readahead(&self, id: u32) -> Bytes {
        self.known
            .get(&id)
            .map_or(Bytes::ZERO, |file| file.readahead)
    }

    /// Learn a file, and add it to `new` if it was not known.
    pub(super) fn learn(
        &mut self,
        key: &contract::FileKey,
        entry: &FileEntry,
        new: &mut Vec<TracedFile>,
    ) {
        let file = FileKey {
            dev: stat_device(key.dev),
            inode: key.inode,
            generation: key.generation,
            subvolume: key.subvolume,
        };
        let fs = FsId {
            uuid: entry.uuid,
            magic: entry.magic,
        };
        let known = Known {
            key: file,
            readahead: self.readahead.of(entry.sb_dev, &fs),
        };
        if self.known.insert(entry.id, known).is_some() {
            return;
        }
        let parent = (entry.parent_inode != 0).then_some(FileKey {
            inode: entry.parent_inode,
            generation: entry.parent_generation,
            ..file
        });
        let seen = Sighting {
            sb_dev: entry.sb_dev,
            pid: entry.pid,
            parent,
        };
        let path = self.resolver.locate(&file, &fs, &seen);
        new.push(TracedFile {
            key: file,
            fs,
            path,
        });
    }

    /// Learn the files that the ring had no room for, if there are any.
    pub(super) fn learn_untold(&mut self, programs: &Programs, new: &mut Vec<TracedFile>) {
        if programs.variables.state().untold_files != self.untold {
            self.learn_all(programs, new);
        }
    }

    /// Learn all files of the kernel's map.
    pub(super) fn learn_all(&mut self, programs: &Programs, new: &mut Vec<TracedFile>) {
        self.untold = programs.variables.state().untold_files;
        self.learn_each(&programs.files(), new);
    }

    fn learn_each(&mut self, files: &[(contract::FileKey, FileEntry)], new: &mut Vec<TracedFile>) {
        for (key, entry) in files.iter().filter(|(_, entry)| entry.wanted != 0) {
            self.learn(key, entry, new);
        }
    }

    /// Whether so many files have got a short name that some should be forgotten.
    pub(super) fn are_many(&self, programs: &Programs) -> bool {
        let next = programs.variables.state().next_file;
        next.wrapping_sub(self.forgotten) >= MANY
    }

    /// Forget names of long ago, so that memory does not grow with the number of files. The kernel's
    /// map is emptied: files that are accessed again get a new name. A name that was given before the
    /// last time is then carried by no counter, as these were taken, and by tasks only where the
    /// programs keep it for them.
    pub(super) fn forget(
        &mut self,
        programs: &Programs,
        layer: Layer,
        new: &mut Vec<TracedFile>,
    ) -> Result<(), TraceError> {
        let state = programs.variables.state();
        let taken = programs.take_files()?;
        // With a map that could not be emptied, the names in it stay.
        if taken.is_empty() {
            return Ok(());
        }
        self.untold = state.untold_files;
        self.learn_each(&taken, new);
        let mut kept = self.known.split_off(&self.forgotten);
        for name in programs.carried_files(layer)? {
            if let Some(file) = self.known.remove(&name) {
                kept.insert(name, file);
            }
        }
        self.known = kept;
        self.forgotten = state.next_file;
        Ok(())
    }
}
