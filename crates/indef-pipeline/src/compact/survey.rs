//! Who has which space: the free runs, and the fragments of the files below a path.

use std::{collections::HashMap, io, path::PathBuf, slice, sync::Mutex};

use indef_core::{
    SkipReason,
    layout::{Extent, ExtentFlags},
    plan::BirthTime,
};
use indef_engine::{
    Cancel,
    collect::{CollectOptions, Excluded, FoundFile, Seen, Select, collect_beneath},
};
use indef_fs::{Filesystem, FsKind, Refusal, Roots, SpaceMap, TargetId, space_map};
use units::{Bytes, FileRange, PhysRange};

use super::result::InTheWay;
use crate::{
    note::{Note, Notes},
    sync::{into_inner, lock},
};

/// A file with data on the device.
#[derive(Debug)]
pub(super) struct Owner {
    pub(super) path: PathBuf,
    pub(super) root_len: usize,
    pub(super) id: TargetId,
    pub(super) born: Option<BirthTime>,
    pub(super) size: Bytes,
    pub(super) block_size: Bytes,
    pub(super) fragments: u64,
}

/// A fragment that can move, as far as is known: it is one before and after.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fragment {
    pub(super) place: PhysRange,
    pub(super) range: FileRange,
    /// Its file, by index.
    pub(super) owner: usize,
}

/// The space of a file system. Some 100 B for each file and 40 B for each fragment.
#[derive(Debug, Default)]
pub(super) struct Survey {
    pub(super) space: SpaceMap,
    pub(super) owners: Vec<Owner>,
    /// In the order of the device.
    pub(super) fragments: Vec<Fragment>,
    pub(super) in_the_way: InTheWay,
    pub(super) excluded: Excluded,
    /// Bytes of which the owner is known.
    known: Bytes,
}

impl Survey {
    /// Walk the path, and ask the file system.
    pub(super) fn take(
        fs: &Filesystem,
        path: &std::path::Path,
        select: &Select,
        roots: &Roots,
        jobs: usize,
        cancel: &Cancel,
        notes: &dyn Notes,
    ) -> io::Result<Self> {
        let survey = Mutex::new(Self::default());
        let visit = |seen: Seen| match seen {
            Seen::Problem(problem) => notes.note(Note::Refused {
                path: &problem.path,
                refusal: &problem.refusal,
            }),
            Seen::File(found) => {
                notes.note(Note::File);
                lock(&survey).add(fs.kind, found);
            }
        };
        let options = CollectOptions {
            jobs,
            blocks: true,
            most: true,
            select: select.clone(),
            ..CollectOptions::default()
        };
        let path = path.to_owned();
        let walked = collect_beneath(roots, slice::from_ref(&path), &options, cancel, &visit);
        let mut survey = into_inner(survey);
        survey.excluded = walked.excluded;
        // The walk meets files in any order.
        survey
            .fragments
            .sort_unstable_by_key(|fragment| fragment.place.start);
        survey.space = space_map(fs)?;
        survey.in_the_way.metadata = survey.space.metadata;
        survey.in_the_way.unknown = survey.space.used.saturating_sub(survey.known);
        Ok(survey)
    }

    fn add(&mut self, kind: FsKind, found: FoundFile) {
        let layout = match found.result {
            Ok(layout) => layout,
            Err(Refusal::Skip(reason)) => return self.stays(reason, found.allocated),
            Err(Refusal::Failed(_)) => return self.stays(SkipReason::Changed, found.allocated),
        };
        let owner = self.owners.len();
        let extents = layout.extents();
        for extents in extents.chunk_by(Extent::touches) {
            let (Some(first), Some(last)) = (extents.first(), extents.last()) else {
                continue;
            };
            let place = PhysRange::between(first.phys, last.phys + last.len);
            if let Some(reason) = extents.iter().find_map(|extent| fixed(kind, extent.flags)) {
                self.stays(reason, place.len);
                continue;
            }
            self.known += place.len;
            self.fragments.push(Fragment {
                place,
                range: FileRange::between(first.file, last.file_end()),
                owner,
            });
        }
        self.owners.push(Owner {
            path: found.path,
            root_len: found.root_len,
            id: found.id,
            born: found.born,
            size: found.size,
            block_size: found.block_size,
            fragments: layout.fragments(),
        });
    }

    fn stays(&mut self, reason: SkipReason, bytes: Bytes) {
        self.known += bytes;
        self.note(reason, bytes);
    }

    fn note(&mut self, reason: SkipReason, bytes: Bytes) {
        let staying = self.in_the_way.files.entry(reason).or_default();
        staying.pieces += 1;
        staying.bytes += bytes;
    }

    /// Leave files where they are, for these reasons.
    pub(super) fn leave(&mut self, files: impl IntoIterator<Item = (u64, SkipReason)>) {
        let mut left: HashMap<u64, (SkipReason, Bytes)> = HashMap::new();
        for (inode, reason) in files {
            left.entry(inode).or_insert((reason, Bytes::ZERO));
        }
        let owners = &self.owners;
        self.fragments.retain(|fragment| {
            let of = left.get_mut(&owners[fragment.owner].id.inode);
            of.map(|(_, bytes)| *bytes += fragment.place.len).is_none()
        });
        for (reason, bytes) in left.into_values() {
            if !bytes.is_zero() {
                self.note(reason, bytes);
            }
        }
    }
}

/// The reason for which no engine of this kind of file system moves such an extent.
fn fixed(kind: FsKind, flags: ExtentFlags) -> Option<SkipReason> {
    if flags.intersects(ExtentFlags::UNPLACED) {
        Some(SkipReason::Changed)
    } else if flags.contains(ExtentFlags::INLINE) {
        Some(SkipReason::Inline)
    } else if flags.contains(ExtentFlags::SHARED) {
        Some(SkipReason::Shared)
    } else if flags.contains(ExtentFlags::ENCODED) {
        Some(SkipReason::Compressed)
    } else if flags.contains(ExtentFlags::UNWRITTEN) && kind == FsKind::Xfs {
        Some(SkipReason::Unwritten)
    } else {
        None
    }
}
