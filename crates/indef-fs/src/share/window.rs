//! A window: runs of the target that are copied together, and get the blocks of the copy a unit at a time.

use std::{collections::VecDeque, fs::File};

use indef_core::{SkipReason, layout::Layout};
use linux_abi::{
    cache::{start_writeback, wait_writeback},
    fiemap::Mapper,
};
use rustix::fs::{FallocateFlags, fallocate};
use units::{Bytes, FileRange};

use super::{
    claims::Claim,
    holder::{Holder, HolderId},
    lying::{equally_shared, is_plain, places},
    old::{flush, go_back, keep_old},
    place::{HolderFinder, Place},
    select::{FileParts, Part, Segment, UNIT, change, clipped, placed},
    take::{Reading, Taker, refuse, take},
};
use crate::{Beyond, CacheRecord, Moved, Refusal, Target, cut::cut, map};

/// Bytes that all holders together compare in a step, if a unit is not the least one.
const STEP: Bytes = Bytes::mib(64);
/// Shorter ones are only made where a step has to be shorter.
pub(crate) const LEAST_UNIT: Bytes = Bytes::kib(256);
/// See the module.
#[derive(Debug)]
pub(crate) struct Window {
    /// The target, and its parts of extents.
    own: HolderId,
    parts: Vec<Part>,
    runs: Vec<FileRange>,
    most_extents: usize,
    /// The units that are left, once they are copied.
    units: VecDeque<FileRange>,
    /// Ordered.
    holders: Vec<Holder>,
    /// For each holder, the segments that it gets from the copy.
    segments: Vec<Vec<Segment>>,
    /// Of the target, and of the copy once it is on the device.
    layout: Layout,
    copied: Layout,
    cached: Vec<CacheRecord>,
    /// No other worker moves its extents, nor those of the copy.
    claim: Claim,
}

/// The outcome of a unit.
#[derive(Debug, Default)]
pub(crate) struct Done {
    pub(crate) moved: Moved,
    /// Why it stays where it was.
    pub(crate) reason: Option<SkipReason>,
}

impl Window {
    pub(crate) fn new(
        own: HolderId,
        runs: Vec<FileRange>,
        target: FileParts,
        mut holders: Vec<Holder>,
        segments: Vec<Vec<Segment>>,
        claim: Claim,
    ) -> Self {
        // They were needed to select the runs.
        for holder in &mut holders {
            holder.has.parts = Vec::new();
        }
        Self {
            own,
            parts: target.parts,
            runs,
            most_extents: usize::MAX,
            units: VecDeque::new(),
            holders,
            segments,
            layout: target.layout,
            copied: Layout::default(),
            cached: Vec::new(),
            claim,
        }
    }

    pub(crate) fn len(&self) -> Bytes {
        self.runs.iter().map(|run| run.len).sum()
    }

    /// The holders, each with the items that it has of the window once it moved in units of `limit`.
    pub(crate) fn items(&self, limit: Bytes) -> impl Iterator<Item = (HolderId, u64)> + '_ {
        let parts = equally_shared(&self.units_of(limit), &self.segments);
        let holders = self.holders.iter().zip(&self.segments);
        let sharing = holders.filter(|(_, segments)| !segments.is_empty());
        sharing.map(move |(holder, segments)| {
            let items = segments.iter().map(|segment| {
                let first = parts.partition_point(|part| part.end() <= segment.copy);
                let end = segment.copy + segment.len;
                let met = parts[first..].iter().take_while(|part| part.start < end);
                met.count() as u64
            });
            (holder.id, items.sum())
        })
    }

    /// A unit has no more extents than this: where each of them takes time under the locks.
    pub(crate) fn with_most_extents(mut self, most: usize) -> Self {
        self.most_extents = most;
        self
    }

    /// The runs, cut into units of at most `limit` if that can be.
    fn units_of(&self, limit: Bytes) -> Vec<FileRange> {
        let each = Bytes(STEP.get() / (self.holders.len() as u64 + 1));
        let limit = limit.min(UNIT).min(each.max(LEAST_UNIT));
        let mut units = Vec::new();
        for range in &self.runs {
            let mut rest = Some(*range);
            while let Some(range) = rest {
                let (unit, next) = cut(&self.layout, range, limit, self.most_extents);
                units.push(unit);
                rest = next;
            }
        }
        units
    }

    pub(crate) fn runs(&self) -> &[FileRange] {
        &self.runs
    }

    /// Other files that get something of it.
    pub(crate) fn holders(&self) -> u64 {
        let takers = { self.segments.iter() }.filter(|segments| !segments.is_empty());
        takers.count() as u64
    }

    /// Fragments of the target in the runs.
    pub(crate) fn fragments(&self) -> u64 {
        let fragments = self.runs.iter().map(|run| self.layout.fragments_in(*run));
        fragments.sum()
    }

    /// Average length of the fragments.
    pub(crate) fn average(&self) -> Bytes {
        Bytes(self.len().get() / self.fragments().max(1))
    }

    /// Copy the runs, and begin to write the copy back. Each unit, of at most `limit` bytes if that can be, gets
    /// extents of its own, so that none is left in part where we are stopped.
    pub(crate) fn copy(&mut self, place: Place<'_>, limit: Bytes) -> Result<Moved, Refusal> {
        let Place {
            target, copy, run, ..
        } = place;
        self.units = self.units_of(limit).into();
        let records = self.runs.iter().map(|run| CacheRecord::of(target, *run));
        self.cached = records.collect();
        let file = FileRange::new(0, target.size.get());
        let mut bytes = Bytes::ZERO;
        for part in equally_shared(self.units.make_contiguous(), &self.segments) {
            let part = part.intersect(file);
            run.copy(&target.file, copy, &[part])
                .and_then(|()| start_writeback(copy, part.start.get(), part.len.get()))
                .map_err(|error| refuse(target, "copy", error))?;
            bytes += part.len;
        }
        Ok(Moved {
            host_read: bytes,
            host_written: bytes,
            ..Moved::default()
        })
    }

    /// Wait until the copy is on the device, and see where it lies. Returns whether some of it is out of date.
    pub(crate) fn settle(
        &mut self,
        place: Place<'_>,
        finder: &mut impl HolderFinder,
        mapper: &mut Mapper,
    ) -> Result<bool, Refusal> {
        let Place { target, copy, .. } = place;
        for run in &self.runs {
            wait_writeback(copy, run.start.get(), run.len.get())
                .map_err(|error| target.unwritten("write the copy back", Some(run.start), error))?;
        }
        // The tree has written data a moment later; to wait for that means to wait for the next window, too.
        for sync in [false, true] {
            let mut extents = Vec::new();
            for run in &self.runs {
                let layout = map(copy, &target.path, *run, sync, mapper)?;
                extents.extend_from_slice(layout.extents());
            }
            let plain = extents.iter().filter(|extent| is_plain(extent));
            let placed: Bytes = plain.map(|extent| extent.len).sum();
            if placed == self.len() {
                self.copied = Layout::new(extents);
                for run in &self.runs {
                    let new = finder.extents_of_copy(target, copy, *run)?;
                    self.claim.add_copy(new.into_iter());
                }
                return self.leave_out_changed(place, mapper);
            }
        }
        Err(SkipReason::Unsupported.into())
    }

    /// Let the next unit, in the target and in all holders, have the blocks of the copy. `None` if there is none.
    pub(crate) fn step(
        &mut self,
        place: Place<'_>,
        finder: &mut impl HolderFinder,
        mapper: &mut Mapper,
    ) -> Option<Done> {
        let unit = self.units.pop_front()?;
        Some(self.unit(place, unit, finder, mapper))
    }

    /// Why the extents of a unit stay, if they have other holders by now than when they were looked at: a snapshot, or
    /// a reflink, that was made meanwhile.
    fn strangers(
        &self,
        place: Place<'_>,
        unit: FileRange,
        finder: &mut impl HolderFinder,
    ) -> Option<SkipReason> {
        let meets = |part: &&Part| FileRange::new(part.offset, part.len).overlaps(unit);
        let parts: Vec<Part> = self.parts.iter().filter(meets).copied().collect();
        let known = |id: HolderId, offset: u64| {
            let at = FileRange::new(offset, 1);
            if id == self.own {
                return self.runs.iter().any(|run| run.overlaps(at));
            }
            let found = self.holders.binary_search_by_key(&id, |holder| holder.id);
            found.is_ok_and(|index| {
                let mut segments = self.segments[index].iter();
                segments.any(|segment| segment.range().overlaps(at))
            })
        };
        let run = place.run;
        finder.strangers(place.target, &parts, &known, &|| run.is_stopping())
    }

    fn unit<F: HolderFinder>(
        &mut self,
        place: Place<'_>,
        unit: FileRange,
        finder: &mut F,
        mapper: &mut Mapper,
    ) -> Done {
        let own = [Segment::of_target(unit)];
        let segments: Vec<Vec<Segment>> = (self.segments.iter())
            .map(|all| clipped(all, unit).collect())
            .collect();
        let is_better = self.copied.fragments_in(unit) < self.layout.fragments_in(unit)
            && change(&self.layout, &own, &self.copied) <= 0;
        let is_harmed = |(holder, segments): (&Holder, &Vec<Segment>)| {
            change(&holder.has.layout, segments, &self.copied) > 0
        };
        let mut done = Done::default();
        if !is_better {
            done.reason = Some(SkipReason::NoGain);
        } else if self.holders.iter().zip(&segments).any(is_harmed) {
            done.reason = Some(SkipReason::HoldersDiffer);
        } else {
            done.reason = keep_old(place, unit, &self.layout, mapper, &mut done.moved)
                .or_else(|| self.strangers(place, unit, finder));
        }
        if done.reason.is_some() {
            return done;
        }
        // Each holder is read to be compared.
        let segments_of_all = segments.iter().flatten();
        let read = segments_of_all.map(|segment| segment.len).sum();
        let beyond = Beyond {
            read,
            ..Beyond::default()
        };
        if let Err(reason) = place.run.allow(beyond) {
            done.reason = Some(reason);
            return done;
        }
        done.moved.host_read = read;
        // The target comes last: where a holder cannot follow, the others go back to its blocks.
        let (mut followed, mut along) = (Vec::new(), Vec::new());
        let mut failed = None;
        let mut next = self.open(place.target, 0, &segments);
        for index in 0..self.holders.len() {
            let opened = next;
            next = self.open(place.target, index + 1, &segments);
            let taken = opened.and_then(|file| {
                let layout = &self.holders[index].has.layout;
                let Some(reading) = file else {
                    return Ok(None);
                };
                let size = self.holders[index].has.size;
                let file = Taker {
                    file: &reading.file,
                    size,
                    layout,
                };
                let (giver, segments) = (place.giver, &segments[index]);
                take::<F>(giver, place, &file, segments, mapper, &mut done.moved)?;
                Ok(Some(reading.id))
            });
            match taken {
                Ok(Some(id)) => {
                    followed.push(index);
                    along.push(id);
                }
                // It has nothing of the unit, or does not exist any more.
                Ok(None) => {}
                Err(reason) => {
                    followed.push(index);
                    failed = Some(reason);
                    break;
                }
            }
        }
        let target = Taker {
            file: &place.target.file,
            size: place.target.size,
            layout: &self.layout,
        };
        let has_begun = failed.is_none();
        if has_begun {
            let giver = place.giver;
            failed = take::<F>(giver, place, &target, &own, mapper, &mut done.moved).err();
        }
        if failed.is_none()
            && let Some(old) = place.old
        {
            failed = finder.left_behind(place.target, old, unit);
        }
        if let Some(reason) = failed {
            let back = has_begun && place.old.is_some();
            let target = back.then_some(&target);
            self.all_back::<F>(place, unit, (&followed, target), mapper, &mut done.moved);
            done.reason = Some(reason);
            return done;
        }
        place.run.moved_along(&along);
        done.moved.holders = followed.len() as u64;
        done.moved.relocated = unit.len;
        let everything = FileRange::new(0, u64::MAX);
        self.layout = placed(&self.layout, &own, &self.copied, everything);
        for index in followed {
            let layout = &mut self.holders[index].has.layout;
            *layout = placed(layout, &segments[index], &self.copied, everything);
        }
        done
    }

    /// Leave out units of which the target has other blocks than were found, or data that is not written back: the copy
    /// may have what no holder has, and none of them could follow. Returns whether there were any.
    fn leave_out_changed(
        &mut self,
        place: Place<'_>,
        mapper: &mut Mapper,
    ) -> Result<bool, Refusal> {
        let Place { target, .. } = place;
        let mut now = Vec::new();
        for run in &self.runs {
            let layout = map(&target.file, &target.path, *run, true, mapper)?;
            now.extend(layout.clipped(*run));
        }
        let (now, all) = (Layout::new(now), self.units.len());
        let is_same = |unit: &FileRange| places(&now, *unit) == places(&self.layout, *unit);
        self.units.retain(is_same);
        Ok(self.units.len() < all)
    }

    /// Open a holder that has something of a unit, and begin to read that.
    fn open(
        &self,
        target: &Target,
        index: usize,
        segments: &[Vec<Segment>],
    ) -> Result<Option<Reading>, SkipReason> {
        let Some(holder) = self.holders.get(index) else {
            return Ok(None);
        };
        let opened = match segments[index].is_empty() {
            true => None,
            false => holder.open(target)?,
        };
        Ok(opened.map(|(file, id)| Reading::new(file, id, &segments[index])))
    }

    /// Let holders, and the target if it is given, have the old blocks of a unit again. That has to be done, whatever the
    /// limits of the run.
    fn all_back<F: HolderFinder>(
        &self,
        place: Place<'_>,
        unit: FileRange,
        (holders, target): (&[usize], Option<&Taker<'_>>),
        mapper: &mut Mapper,
        moved: &mut Moved,
    ) {
        let mut compared = Bytes::ZERO;
        for index in holders {
            let holder = &self.holders[*index];
            if let Ok(Some((file, _))) = holder.open(place.target) {
                let segments: Vec<_> = clipped(&self.segments[*index], unit).collect();
                let taker = Taker {
                    file: &file,
                    size: holder.has.size,
                    layout: &holder.has.layout,
                };
                let kept = go_back::<F>(place, &taker, &segments, &self.copied, mapper, moved);
                moved.unshared += kept;
                compared += segments.iter().map(|segment| segment.len).sum();
            }
        }
        if let Some(target) = target {
            let own = [Segment::of_target(unit)];
            let kept = go_back::<F>(place, target, &own, &self.copied, mapper, moved);
            moved.unshared += kept;
            compared += unit.len;
        }
        if !compared.is_zero() {
            // With the old blocks, which are read once.
            let read = compared + unit.len;
            moved.host_read += read;
            place.run.spent(Beyond {
                read,
                ..Beyond::default()
            });
        }
    }

    /// Leave the page cache as it was found, and let the copy go.
    pub(crate) fn close(&self, place: Place<'_>) {
        for cached in &self.cached {
            cached.restore(&place.target.file);
        }
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let let_go = |file: &File| {
            for run in &self.runs {
                // It goes with the file if not now.
                let _ = fallocate(file, punch, run.start.get(), run.len.get());
            }
        };
        // Before the copy is let go, too: whoever went back may have its blocks after a power cut.
        match place.old.map(|old| (old, flush(old))) {
            None => {}
            Some((old, Ok(()))) => let_go(old),
            Some((_, Err(error))) => {
                tracing::debug!(%error, "the old blocks are kept for a while");
            }
        }
        let_go(place.copy);
    }
}
