//! Finds the files that hold the blocks of a window, by the file system's reverse mapping.
//!
//! A reference is a file, a place in it, and blocks. The blocks of the target are cut where any reference begins or ends:
//! each piece is then held as a whole by everybody who holds any of it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io,
    sync::MutexGuard,
};

use indef_core::{SkipReason, layout::ExtentFlags};
use linux_abi::{
    fiemap::Mapper,
    fsmap::{Reference, References},
    fsxattr::{Attributes, Flags},
    handle::FileHandle,
    xfs::generation,
};
use rustix::{
    fs::{AtFlags, StatxFlags, statx},
    io::Errno,
};
use units::{Bytes, FileOffset, FileRange};

use super::calls::call_apart;
use crate::{
    Refusal, Target, map,
    map::next_batch,
    share::{
        claims::Claim,
        holder::{
            Holder, HolderId, LONGEST_HULL, MOST_HOLDERS, MOST_PARTS, MOST_PARTS_OF_ALL, go_on,
            open,
        },
        select::{FileParts, LONG, Part, PartState},
        window::HolderFinder,
    },
};

/// The target and its holders.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) target: FileParts,
    pub(super) holders: Vec<Holder>,
    /// Pieces that have to stay.
    pub(super) staying: BTreeMap<u64, SkipReason>,
}

/// Finds holders; buffers that are used again.
#[derive(Default)]
pub(super) struct Finder {
    references: References,
    mapper: Mapper,
    /// The files without a name by which the target moves.
    ours: [u64; 2],
}

/// Some of the device: where it begins, and its bytes.
type Stretch = (u64, u64);

/// A holder of a part of the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Share {
    /// Within the part.
    of: Stretch,
    inode: u64,
    /// Where the stretch is in that file.
    offset: u64,
}

/// What is known of the owners of a part of the target.
#[derive(Debug, Default, PartialEq, Eq)]
struct Owners {
    shares: Vec<Share>,
    /// Stretches that have to stay.
    staying: Vec<(Stretch, SkipReason)>,
}

impl Finder {
    /// Remember our own files.
    pub(super) fn know(&mut self, copy: &File, old: &File) -> Result<(), Refusal> {
        let number = |file: &File| {
            let status = statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::INO);
            status.map(|status| status.stx_ino)
        };
        // Without their numbers they are strangers, and nothing moves.
        if let (Ok(copy), Ok(old)) = (number(copy), number(old)) {
            self.ours = [copy, old];
        }
        Ok(())
    }

    /// The parts of the target in `range`, up to `most` bytes of them and the one that exceeds these.
    pub(super) fn parts_of(
        &mut self,
        target: &Target,
        range: FileRange,
        most: Bytes,
    ) -> Result<Vec<Part>, Refusal> {
        let (mut parts, mut bytes) = (Vec::new(), Bytes::ZERO);
        let (mut rest, mut batch) = (range, Vec::new());
        loop {
            let (file, path) = (&target.file, &target.path);
            let more = next_batch(file, path, rest, false, &mut self.mapper, &mut batch)?;
            for extent in &batch {
                if bytes >= most {
                    return Ok(parts);
                }
                if extent.flags.contains(ExtentFlags::UNPLACED) {
                    continue;
                }
                bytes += extent.len;
                parts.push(Part {
                    offset: extent.file.get(),
                    len: extent.len.get(),
                    extent: extent.phys.get(),
                    into: 0,
                    state: match extent.flags.contains(ExtentFlags::UNWRITTEN) {
                        true => PartState::Unwritten,
                        false => PartState::Written,
                    },
                });
            }
            match more {
                Some(next) => rest = FileRange::between(next, range.end()),
                None => return Ok(parts),
            }
        }
    }

    /// Find everybody who holds a part of the target. Parts of which not all blocks are `claim`ed stay.
    pub(super) fn find(
        &mut self,
        target: &Target,
        parts: &[Part],
        hull: FileRange,
        claim: &Claim,
        is_stopping: &dyn Fn() -> bool,
    ) -> Result<Found, Refusal> {
        let block = target.block_size;
        let around = FileRange::between(
            FileOffset(hull.start.get().saturating_sub(block.get())),
            FileOffset(hull.end().get().saturating_add(block.get())),
        );
        let mut found = Found::default();
        found.target.layout = map(&target.file, &target.path, around, false, &mut self.mapper)?;
        found.target.size = target.size;
        let mut theirs: BTreeMap<u64, Vec<Part>> = BTreeMap::new();
        let mut left = MOST_PARTS_OF_ALL;
        for part in parts {
            go_on(is_stopping)?;
            // What stays anyway has no holders that matter.
            let is_candidate = part.state == PartState::Written && part.len <= LONG;
            if !is_candidate {
                found.target.parts.push(*part);
                continue;
            }
            if !blocks(part, block).all(|block| claim.has(block)) {
                found.staying.insert(part.extent, SkipReason::Changed);
                found.target.parts.push(*part);
                continue;
            }
            let references = self.of(target, (part.extent, part.len), left)?;
            let Some(references) = references else {
                found.staying.insert(part.extent, SkipReason::ManyHolders);
                found.target.parts.push(*part);
                continue;
            };
            let owners = owners(part, target.id.inode, &references);
            for piece in cut(part, &owners) {
                let stretch = (piece.extent, piece.len);
                for (_, reason) in { owners.staying.iter() }.filter(|(at, _)| meet(*at, stretch)) {
                    found.staying.entry(piece.extent).or_insert(*reason);
                }
                for share in owners.shares.iter().filter(|share| meet(share.of, stretch)) {
                    left = left.saturating_sub(1);
                    theirs.entry(share.inode).or_default().push(Part {
                        offset: share.offset + (piece.extent - share.of.0),
                        ..piece
                    });
                }
                found.target.parts.push(piece);
            }
        }
        if theirs.len() > MOST_HOLDERS {
            stay(&mut found, SkipReason::ManyHolders);
            return Ok(found);
        }
        for (inode, parts) in theirs {
            go_on(is_stopping)?;
            let held: Vec<u64> = parts.iter().map(|part| part.extent).collect();
            match self.holder(target, inode, parts) {
                Ok(Some(holder)) => found.holders.push(holder),
                // It is being deleted: its blocks go with it, but not before.
                Ok(None) => {}
                Err(Refusal::Skip(reason)) => {
                    for extent in held {
                        found.staying.entry(extent).or_insert(reason);
                    }
                }
                Err(failed) => return Err(failed),
            }
        }
        Ok(found)
    }

    /// The references to a stretch; none if they are more than `most`.
    fn of(
        &mut self,
        target: &Target,
        stretch: Stretch,
        most: usize,
    ) -> Result<Option<Vec<Reference>>, Refusal> {
        let mut all = Vec::new();
        let asked = (self.references).to(&target.file, target.id.dev, stretch, |reference| {
            all.push(reference);
            all.len() <= most
        });
        asked.map_err(|error| refuse(target, error))?;
        Ok((all.len() <= most).then_some(all))
    }

    /// Look at a holder; `None` if it is gone.
    fn holder(
        &mut self,
        target: &Target,
        inode: u64,
        mut parts: Vec<Part>,
    ) -> Result<Option<Holder>, Refusal> {
        let generation = match generation(&target.file, inode) {
            Ok(generation) => generation,
            error if is(&error, Errno::NOENT) => return Ok(None),
            Err(_) => return Err(SkipReason::HoldersUnreachable.into()),
        };
        let handle = FileHandle::Xfs64 { inode, generation };
        let Some((file, status)) = open(target, handle)? else {
            return Ok(None);
        };
        // `nodefrag` is an owner's wish, and how the files of another mover are told.
        let fixed = Flags::REALTIME | Flags::NODEFRAG;
        if !Attributes::get(&file).is_ok_and(|found| !found.flags().intersects(fixed)) {
            return Err(SkipReason::HoldersUnreachable.into());
        }
        parts.sort_unstable_by_key(|part| part.offset);
        let (Some(first), Some(last)) = (parts.first(), parts.last()) else {
            return Ok(None);
        };
        let block = target.block_size.get();
        let hull = FileRange::between(
            FileOffset(first.offset.saturating_sub(block)),
            FileOffset(last.offset + last.len + block),
        );
        if hull.len.get() > LONGEST_HULL || parts.len() > MOST_PARTS {
            return Err(SkipReason::HoldersDiffer.into());
        }
        let layout = map(&file, &target.path, hull, false, &mut self.mapper)?;
        Ok(Some(Holder {
            id: HolderId {
                subvolume: 0,
                inode,
            },
            handle,
            has: FileParts {
                parts,
                layout,
                size: Bytes(status.stx_size),
            },
        }))
    }
}

impl HolderFinder for Finder {
    type Apart = MutexGuard<'static, ()>;

    fn apart() -> Self::Apart {
        call_apart()
    }

    fn extents_of_copy(
        &mut self,
        target: &Target,
        copy: &File,
        range: FileRange,
    ) -> Result<BTreeSet<u64>, Refusal> {
        let layout = map(copy, &target.path, range, false, &mut self.mapper)?;
        let block = target.block_size.get() as usize;
        let blocks = layout.extents().iter().flat_map(|extent| {
            let start = extent.phys.get();
            (start..start + extent.len.get()).step_by(block)
        });
        Ok(blocks.collect())
    }

    fn strangers(
        &mut self,
        target: &Target,
        parts: &[Part],
        known: &dyn Fn(HolderId, u64) -> bool,
        is_stopping: &dyn Fn() -> bool,
    ) -> Option<SkipReason> {
        for part in parts {
            if let Err(stopped) = go_on(is_stopping) {
                return Some(stopped);
            }
            let stretch = (part.extent, part.len);
            let Ok(Some(references)) = self.of(target, stretch, MOST_PARTS_OF_ALL) else {
                return Some(SkipReason::HoldersUnreachable);
            };
            let is_known = |reference: &Reference| {
                let Some((inode, offset)) = reference.data else {
                    return false;
                };
                let into = part.extent.saturating_sub(reference.start);
                let id = HolderId {
                    subvolume: 0,
                    inode,
                };
                self.ours.contains(&inode) || known(id, offset + into)
            };
            if !references.iter().all(is_known) {
                return Some(SkipReason::Changed);
            }
        }
        None
    }
}

/// The owners of a part of the file `own`, by the references to its blocks.
fn owners(part: &Part, own: u64, references: &[Reference]) -> Owners {
    let mut found = Owners::default();
    let mut ours = 0;
    for reference in references {
        let first = reference.start.max(part.extent);
        let end = (reference.start + reference.len).min(part.extent + part.len);
        let of = (first, end.saturating_sub(first));
        match reference.data {
            Some((inode, offset)) if reference.is_written => {
                let offset = offset + (first - reference.start);
                if inode != own {
                    found.shares.push(Share { of, inode, offset });
                } else if offset == part.offset + (first - part.extent) {
                    ours += of.1;
                } else {
                    // The target has the same bytes at two places.
                    found.staying.push((of, SkipReason::HoldersDiffer));
                }
            }
            _ => found.staying.push((of, SkipReason::HoldersUnreachable)),
        }
    }
    if ours != part.len {
        // It has other blocks by now, and these may be anybody's.
        return Owners {
            shares: Vec::new(),
            staying: vec![((part.extent, part.len), SkipReason::Changed)],
        };
    }
    found
}

/// A part, cut where an owner begins or ends.
fn cut(part: &Part, owners: &Owners) -> Vec<Part> {
    let (start, end) = (part.extent, part.extent + part.len);
    let stretches = owners.shares.iter().map(|share| share.of);
    let staying = owners.staying.iter().map(|(of, _)| *of);
    let mut places: BTreeSet<u64> = (stretches.chain(staying))
        .flat_map(|(start, len)| [start, start + len])
        .collect();
    places.extend([start, end]);
    let places: Vec<u64> = places.into_iter().collect();
    let piece = |pair: &[u64]| Part {
        offset: part.offset + (pair[0] - start),
        len: pair[1] - pair[0],
        extent: pair[0],
        ..*part
    };
    places.windows(2).map(piece).collect()
}

const fn meet(one: Stretch, other: Stretch) -> bool {
    one.0 < other.0 + other.1 && other.0 < one.0 + one.1
}

/// The addresses of the blocks of a part.
pub(super) fn blocks(part: &Part, block: Bytes) -> impl Iterator<Item = u64> + use<> {
    (part.extent..part.extent + part.len).step_by(block.get() as usize)
}

/// Let all pieces stay.
fn stay(found: &mut Found, reason: SkipReason) {
    for part in &found.target.parts {
        found.staying.entry(part.extent).or_insert(reason);
    }
}

fn is<T>(result: &io::Result<T>, errno: Errno) -> bool {
    let error = result.as_ref().err();
    error.and_then(Errno::from_io_error) == Some(errno)
}

fn refuse(target: &Target, error: io::Error) -> Refusal {
    match Errno::from_io_error(&error) {
        Some(Errno::PERM) => SkipReason::NotPermitted.into(),
        Some(Errno::NOTTY | Errno::OPNOTSUPP) => SkipReason::HoldersUnknown.into(),
        _ => target.error("look for the holders", None, error).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PART: Part = Part {
        offset: 1000,
        len: 100,
        extent: 5000,
        into: 0,
        state: PartState::Written,
    };

    fn reference(start: u64, len: u64, inode: u64, offset: u64) -> Reference {
        Reference {
            start,
            len,
            data: Some((inode, offset)),
            is_written: true,
        }
    }

    #[test]
    fn a_part_is_cut_where_its_owners_differ() {
        // The target's own reference begins before the part; others have only some of it.
        let all = [
            reference(4900, 300, 7, 900),
            reference(4950, 70, 8, 0),
            reference(5060, 500, 9, 40),
        ];
        let found = owners(&PART, 7, &all);
        assert_eq!(found.staying, []);
        let share = |start, len, inode, offset| Share {
            of: (start, len),
            inode,
            offset,
        };
        assert_eq!(
            found.shares,
            [share(5000, 20, 8, 50), share(5060, 40, 9, 40)]
        );
        let pieces: Vec<_> = cut(&PART, &found)
            .iter()
            .map(|piece| (piece.offset, piece.extent, piece.len))
            .collect();
        let expected = [(1000, 5000, 20), (1020, 5020, 40), (1060, 5060, 40)];
        assert_eq!(pieces, expected);
    }

    #[test]
    fn what_the_target_has_twice_or_no_more_stays() {
        let twice = [reference(5000, 100, 7, 1000), reference(5040, 10, 7, 3000)];
        let found = owners(&PART, 7, &twice);
        assert_eq!(found.staying, [((5040, 10), SkipReason::HoldersDiffer)]);
        assert_eq!(cut(&PART, &found).len(), 3);
        let gone = [reference(5000, 90, 7, 1000), reference(5000, 100, 8, 0)];
        let found = owners(&PART, 7, &gone);
        assert_eq!(found.staying, [((5000, 100), SkipReason::Changed)]);
        let special = Reference {
            data: None,
            ..reference(5000, 100, 7, 1000)
        };
        let found = owners(&PART, 7, &[special, twice[0]]);
        assert_eq!(
            found.staying,
            [((5000, 100), SkipReason::HoldersUnreachable)]
        );
    }

    #[test]
    fn a_file_knows_its_blocks() {
        let all: Vec<_> = blocks(&PART, Bytes(50)).collect();
        assert_eq!(all, [5000, 5050]);
        assert!(meet((0, 10), (9, 5)) && !meet((0, 10), (10, 5)));
    }
}
