//! A profile, and the files that it is about.

use std::{
    collections::HashMap,
    fs::{self, File},
    io::BufReader,
    os::unix::fs::MetadataExt,
    path::Path,
};

use anyhow::{Result, anyhow};
use indef_core::{
    access::{AccessOptions, AccessRange, FileAccesses, join},
    profile::Profile,
};
use indef_fs::TargetId;
use units::Bytes;

use crate::{
    output::{Console, Name},
    refusal::{advice, plain},
};

/// What a profile says, file by file.
#[derive(Debug)]
pub(crate) struct Accesses {
    ranges: FileAccesses,
    files: HashMap<TargetId, u32>,
}

impl Accesses {
    /// Read a profile and find its files. A file that was replaced or is gone since is noted and
    /// left out: its ranges would be those of other contents.
    pub(crate) fn load(path: &Path, readahead: Bytes, console: &Console) -> Result<Self> {
        let file = File::open(path)
            .map_err(|error| anyhow!("{}: {}: {}", Name(path), plain(&error), advice(&error)))?;
        let profile = Profile::read(BufReader::new(file))
            .map_err(|error| anyhow!("{}: {error}", Name(path)))?;
        let mut files = HashMap::new();
        let mut canonical = Vec::with_capacity(profile.files.len());
        for (index, file) in profile.files.iter().enumerate() {
            let index = index as u32;
            let now = fs::metadata(&file.path).ok().map(|status| TargetId {
                dev: status.dev(),
                inode: status.ino(),
            });
            let then = file
                .dev
                .zip(file.inode)
                .map(|(dev, inode)| TargetId { dev, inode });
            let id = match (then, now) {
                (Some(then), Some(now)) if then != now => {
                    console.note(format_args!(
                        "{}: replaced since it was profiled, its accesses are left out; profile again",
                        Name(&file.path)
                    ));
                    None
                }
                (None, None) => {
                    console.note(format_args!(
                        "{}: in the profile, but no longer there; its accesses are left out",
                        Name(&file.path)
                    ));
                    None
                }
                (then, now) => now.or(then),
            };
            // A file may stand in a profile under several names.
            canonical.push(id.map_or(index, |id| *files.entry(id).or_insert(index)));
        }
        let (mut records, mut counted) = (profile.records, profile.ranges);
        let of_records = records.iter_mut().map(|record| &mut record.file);
        for file in of_records.chain(counted.iter_mut().map(|(file, _)| file)) {
            if let Some(index) = canonical.get(*file as usize) {
                *file = *index;
            }
        }
        let options = AccessOptions {
            readahead,
            ..AccessOptions::default()
        };
        Ok(Self {
            ranges: join(records, counted, &options),
            files,
        })
    }

    /// The ranges of a file, if the profile knows it.
    pub(crate) fn of(&self, id: &TargetId) -> Option<&[AccessRange]> {
        self.files.get(id).map(|index| self.ranges.of(*index))
    }
}
