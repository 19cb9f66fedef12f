//! Finds the files that hold the blocks of a window, by the file system's reverse mapping, or among those that were
//! [named](super::named).
//!
//! A reference is a file, a place in it, and blocks. The blocks of the target are cut where any reference begins or ends:
//! each piece is then held as a whole by everybody who holds any of it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io,
    sync::MutexGuard,
    thread::sleep,
    time::Duration,
};

use indef_core::{
    SkipReason,
    layout::{ExtentFlags, Layout},
};
use linux_abi::{
    fiemap::Mapper,
    fsmap::{Reference, References},
    fsxattr::{Attributes, Flags},
    handle::FileHandle,
    xfs::generation,
};
use rustix::{
    fs::{AtFlags, StatxFlags, fstatfs, statx},
    io::Errno,
};
use units::{Bytes, FileOffset, FileRange};

use super::{
    calls::call_apart,
    named::{Named, Stretch},
    unshared::is_shared,
};
use crate::{
    Refusal, Target, map,
    map::next_batch,
    share::{
        claims::{Arrivals, Claim},
        holder::{
            Found, Holder, HolderId, LONGEST_HULL, MOST_HOLDERS, MOST_PARTS, MOST_PARTS_OF_ALL,
            go_on, open,
        },
        place::HolderFinder,
        select::{FileParts, LONG, Part, PartState},
    },
};

/// How often it is looked again whether somebody has old blocks, and how long after each other.
const GONE_AFTER: u32 = 6;
const TURN: Duration = Duration::from_millis(20);

/// Finds holders; buffers that are used again.
pub(super) struct Finder {
    tells: Tells,
    mapper: Mapper,
    /// The files without a name by which the target moves.
    ours: [u64; 2],
}

/// Who tells of holders.
enum Tells {
    /// The file system.
    Rmap(References),
    /// Whoever named them with the target; they are looked at with the first window.
    Names(Option<Named>),
}

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
    pub(super) fn new(needs_names: bool) -> Self {
        Self {
            tells: match needs_names {
                true => Tells::Names(None),
                false => Tells::Rmap(References::new()),
            },
            mapper: Mapper::default(),
            ours: [0; 2],
        }
    }

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
        (claim, arrivals): (&Claim, &Arrivals),
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
        if let Tells::Names(named @ None) = &mut self.tells {
            *named = Some(Named::look(target, &mut self.mapper, is_stopping)?);
        }
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
            if let Some(reason) = unclaimed(part, block, claim, arrivals) {
                found.staying.insert(part.extent, reason);
                found.target.parts.push(*part);
                continue;
            }
            let references = self.of(target, part, left)?;
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
                let range = FileRange::new(piece.offset, piece.len);
                let mut is_told = !is_shared(&found.target.layout, range);
                for share in owners.shares.iter().filter(|share| meet(share.of, stretch)) {
                    is_told = true;
                    left = left.saturating_sub(1);
                    theirs.entry(share.inode).or_default().push(Part {
                        offset: share.offset + (piece.extent - share.of.0),
                        ..piece
                    });
                }
                if !is_told && matches!(self.tells, Tells::Names(_)) {
                    let reason = SkipReason::HoldersUnknown;
                    found.staying.entry(piece.extent).or_insert(reason);
                }
                found.target.parts.push(piece);
            }
        }
        if theirs.len() > MOST_HOLDERS {
            found.stay(SkipReason::ManyHolders);
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

    /// The references to a part of the target, as far as they are told; none if they are more than `most`.
    fn of(
        &mut self,
        target: &Target,
        part: &Part,
        most: usize,
    ) -> Result<Option<Vec<Reference>>, Refusal> {
        let references = match &mut self.tells {
            Tells::Rmap(references) => references,
            Tells::Names(named) => {
                let named = named.as_ref();
                return Ok(named.and_then(|named| named.of(target.id.inode, part, most)));
            }
        };
        let (mut all, stretch) = (Vec::new(), (part.extent, part.len));
        let asked = references.to(&target.file, target.id.dev, stretch, |reference| {
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
        // It may have other blocks by now than were told.
        parts.retain(|part| lies_there(&layout, part));
        if parts.is_empty() {
            return Ok(None);
        }
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
        if matches!(self.tells, Tells::Names(_)) {
            // Nobody tells of them before; see below.
            return None;
        }
        for part in parts {
            if let Err(stopped) = go_on(is_stopping) {
                return Some(stopped);
            }
            let Ok(Some(references)) = self.of(target, part, MOST_PARTS_OF_ALL) else {
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

    fn left_behind(&mut self, target: &Target, old: &File, unit: FileRange) -> Option<SkipReason> {
        if matches!(self.tells, Tells::Rmap(_)) {
            return None;
        }
        for turn in 0..=GONE_AFTER {
            if turn > 0 {
                // A file that was deleted has its blocks until XFS gets to it in the background, upon which it is hurried
                // here (`xfs_fs_statfs`).
                let _ = fstatfs(old);
                sleep(TURN);
            }
            match map(old, &target.path, unit, false, &mut self.mapper) {
                Ok(kept) if !is_shared(&kept, unit) => return None,
                Ok(_) => {}
                // There may be somebody.
                Err(_) => break,
            }
        }
        Some(SkipReason::HoldersUnknown)
    }
}

/// Whether a file has a part where it is told to have it.
fn lies_there(layout: &Layout, part: &Part) -> bool {
    let mut len = 0;
    let mut extents = layout.clipped(FileRange::new(part.offset, part.len));
    let all_lie = extents.all(|extent| {
        len += extent.len.get();
        let (into_file, into_part) = (
            extent.file.get() - part.offset,
            extent.phys.get().checked_sub(part.extent),
        );
        !extent.flags.contains(ExtentFlags::UNPLACED) && into_part == Some(into_file)
    });
    all_lie && len == part.len
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

/// Why a part stays of which not all blocks could be claimed: other workers that move any of them come first.
fn unclaimed(part: &Part, block: Bytes, claim: &Claim, arrivals: &Arrivals) -> Option<SkipReason> {
    let unclaimed = blocks(part, block).filter(|block| !claim.has(*block));
    let reasons = unclaimed.map(|block| arrivals.reason(block));
    reasons.max_by_key(|reason| *reason == SkipReason::MovedAlong)
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
    use crate::test_layout::{NONE, layout, reference};

    const PART: Part = Part {
        offset: 1000,
        len: 100,
        extent: 5000,
        into: 0,
        state: PartState::Written,
    };

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
    fn a_holder_has_what_it_is_told_to_have_or_is_none() {
        let lies = |extents: &[_]| lies_there(&layout(extents), &PART);
        assert!(lies(&[(1000, 5000, 40, NONE), (1040, 5040, 90, NONE)]));
        assert!(lies(&[(900, 4900, 200, ExtentFlags::SHARED)]));
        assert!(!lies(&[(1000, 5000, 99, NONE)]));
        assert!(!lies(&[(1000, 5000, 40, NONE), (1040, 6040, 60, NONE)]));
        assert!(!lies(&[(1000, 4000, 100, NONE)]));
        assert!(!lies(&[(1000, 5000, 100, ExtentFlags::UNPLACED)]));
        assert!(!lies(&[]));
    }

    #[test]
    fn a_file_knows_its_blocks() {
        let all: Vec<_> = blocks(&PART, Bytes(50)).collect();
        assert_eq!(all, [5000, 5050]);
        assert!(meet((0, 10), (9, 5)) && !meet((0, 10), (10, 5)));
    }
}
