//! The files that the programs have met, by the short names that ranges carry.

use std::collections::BTreeMap;

use super::{
    contract::{self, FILES, FileEntry},
    error::TraceError,
    programs::Programs,
};
use crate::{
    mounts::stat_device,
    resolve::Resolver,
    tally::{FileKey, FsId, TracedFile},
};

#[derive(Default)]
pub(super) struct Files {
    known: BTreeMap<u32, FileKey>,
    /// The last file when the kernel's map of files was emptied.
    forgotten: u32,
    /// How many of the kernel's files were read from its map because the ring was full.
    untold: u64,
    resolver: Resolver,
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
        self.known.get(&id).copied()
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
        if self.known.insert(entry.id, file).is_some() {
            return;
        }
        let fs = FsId {
            uuid: entry.uuid,
            magic: entry.magic,
        };
        let path = self.resolver.locate(&file, &fs, entry.sb_dev, entry.pid);
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
        for (key, entry) in programs.files() {
            if entry.wanted != 0 {
                self.learn(&key, &entry, new);
            }
        }
    }

    /// Empty the kernel's map of files before it is full: files that are accessed again get a new
    /// short name. Names of long ago, which no counter carries any more, are forgotten here, too.
    pub(super) fn forget(
        &mut self,
        programs: &Programs,
        new: &mut Vec<TracedFile>,
    ) -> Result<(), TraceError> {
        let next = programs.variables.state().next_file;
        if next.wrapping_sub(self.forgotten) < FILES / 4 * 3 {
            return Ok(());
        }
        self.learn_untold(programs, new);
        programs.forget_files()?;
        self.known = self.known.split_off(&self.forgotten);
        self.forgotten = next;
        Ok(())
    }
}
