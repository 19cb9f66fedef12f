//! `xfs-dedupe-range`: copy ranges into a donor, and let the kernel compare the two and give the
//! file the donor's blocks (`FIDEDUPERANGE`).
//!
//! ```text
//! allocate ─▶ ( read ahead ─▶ copy ─▶ write back ─▶ map ─▶ compare and share ─▶ release )* ─▶ Done
//! ```
//!
//! The kernel takes the locks of both files, waits for direct I/O, write-protects mapped pages and
//! compares all bytes before it changes anything (`generic_remap_file_range_prep`,
//! fs/remap_range.c; `xfs_reflink_remap_prep`, fs/xfs/xfs_reflink.c, v6.18). So a file may be in use
//! in any way: a part that was written after it was copied differs, and is copied again. None of the
//! measures of [`freshness`](super::freshness) is needed.
//!
//! The kernel gives the file one extent of the donor after the other, and frees the old ones, under
//! the locks: a call gets a bounded number of extents. Other operations on the file wait for a call.
//! Reading ahead and writing back go on in the device meanwhile, which hides them: the time of a
//! heavily fragmented file is that of the calls.
//!
//! Only written data is compared; unwritten ranges and holes stay where they are. A unit, the range of
//! a call, begins and ends where an extent of the file does, so that the file has no more fragments
//! after any call than before it. When a call is done, the donor gives up its share of the blocks at
//! once: a write to shared blocks would go to another place.
//!
//! Blocks that somebody else shares stay where they are; see (5) in the [module](super).

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use indef_core::{
    SkipReason,
    layout::{ExtentFlags, Layout, Row},
};
use linux_abi::{
    cache::{start_writeback, wait_writeback},
    share::{Compared, dedupe_range},
    xfs::{Features, XfsGeometry},
};
use rustix::fs::OFlags;
use units::{Bytes, FileOffset, FileRange};

use super::{
    cached::Cached,
    donor::{Donor, is_shared, runs},
    file::{admit, map_file, refuse, refuse_data, timed, whole},
    freshness::Sample,
    select::{choose, gain, replaced},
    turn::Turns,
};
use crate::{
    CountedRange, EngineKind, Moved, RangeCopier, Refusal, Relocation, Relocator, Step, StepLimit,
    Target,
    aim::{Aim, Kept, LANDINGS},
    cache::{drop_clean, read_ahead},
    cut::cut,
    hold::{Hold, Holds, NAPS},
};

/// Blocks that are allocated ahead of copying, so that they are in one piece.
const AHEAD: u64 = 1 << 30;

/// Extents of the file in a unit: each takes 30 to 80 microseconds under the file's locks.
const MOST_EXTENTS: usize = 256;

/// The longest unit: its bytes are compared under the locks, from the page cache. Two extents that are
/// longer are left alone, since hardly any read meets both.
const LONGEST: Bytes = Bytes::mib(128);

/// Bytes that are being read ahead, and bytes that are copied and being written back. Both stay in
/// the page cache for the comparison.
const READ_AHEAD: Bytes = Bytes::mib(16);
const COPIED_AHEAD: Bytes = Bytes::mib(8);
/// No longer than this is spent on copying ahead, where a rate is kept: what is copied when a run is stopped was written in
/// vain.
const COPIED_FOR: Duration = Duration::from_millis(200);

/// How often a unit is copied before it is left alone.
const TRIES: u32 = 3;

/// The engine.
#[derive(Debug)]
pub(super) struct DedupeRange {
    pub(super) allow_unshare: bool,
    pub(super) strict: bool,
    pub(super) holds: Holds,
    /// Rows of the device that data is placed in.
    pub(super) row: Option<Row>,
    pub(super) turns: Turns,
    pub(super) aim: Aim,
    /// Where a region is vacated, donors that turned out to lie there.
    pub(super) kept: Kept,
}

impl Relocator for DedupeRange {
    fn name(&self) -> &'static str {
        EngineKind::XfsDedupeRange.name()
    }

    fn admit(&self, target: &Target) -> Result<(), Refusal> {
        look(target).map(drop)
    }

    fn splits(&self) -> bool {
        // The calls of one file wait for each other.
        false
    }

    fn begin<'a>(
        &'a self,
        target: &'a Target,
        ranges: &[CountedRange],
        copier: &'a dyn RangeCopier,
    ) -> Result<Box<dyn Relocation + 'a>, Refusal> {
        let geometry = look(target)?;
        let sample = Sample::take(target)?;
        sample.settle();
        let file = whole(sample.size, target.block_size);
        // Used to choose, to allocate and to cut; each unit is mapped again before its call.
        let layout = map_file(target, file, false)?;
        let ranges: Vec<_> = ranges.iter().map(|counted| counted.range).collect();
        let chosen = choose(&layout, &ranges, file, target.block_size, false, self.aim).map_err(
            |reason| match reason {
                SkipReason::Shared if self.allow_unshare => SkipReason::KeepsSharing,
                reason => reason,
            },
        )?;
        let chosen: VecDeque<_> = chosen
            .into_iter()
            .flat_map(|range| runs(&layout, range, true))
            .filter(|run| layout.fragments_in(*run) >= self.aim.least_fragments())
            .collect();
        let donor = new_donor(target, sample.size)?;
        let mut dedupe = Dedupe {
            engine: self,
            target,
            copier,
            geometry,
            sample,
            layout,
            donor,
            new: Layout::default(),
            chosen,
            allocated: VecDeque::new(),
            reading: Units::default(),
            copied: Units::default(),
            contested: false,
            moved: false,
            reason: self.aim.no_donor(),
        };
        dedupe.allocate_ahead()?;
        if dedupe.allocated.is_empty() {
            return Err(self.aim.no_donor().into());
        }
        Ok(Box::new(dedupe))
    }
}

/// A donor of this size.
fn new_donor(target: &Target, size: Bytes) -> Result<Donor<'_>, Refusal> {
    let donor = Donor::new(target, OFlags::empty())?;
    donor.set_size(size)?;
    Ok(donor)
}

fn look(target: &Target) -> Result<XfsGeometry, Refusal> {
    let geometry = admit(target)?;
    if geometry.features.contains(Features::REFLINK) {
        Ok(geometry)
    } else {
        Err(SkipReason::NoEngine.into())
    }
}

/// The range of one call.
#[derive(Debug)]
struct Unit {
    range: FileRange,
    /// The part of it that was in the page cache.
    cached: Cached,
}

impl Unit {
    /// Leave the page cache as it was found. The call has dropped the pages of a range that has new
    /// blocks, but not of one that stays.
    fn restore(&self, target: &Target) {
        drop_clean(&target.file, self.range);
        self.cached.restore(target);
    }
}

/// Units in the order of the file.
#[derive(Debug, Default)]
struct Units {
    units: VecDeque<Unit>,
    bytes: Bytes,
}

impl Units {
    fn push(&mut self, unit: Unit) {
        self.bytes += unit.range.len;
        self.units.push_back(unit);
    }

    fn pop(&mut self) -> Option<Unit> {
        let unit = self.units.pop_front()?;
        self.bytes = self.bytes.saturating_sub(unit.range.len);
        Some(unit)
    }
}

/// The outcome of a look at a unit right before its call.
enum Look {
    Good,
    Stays(SkipReason),
}

/// A file on its way.
struct Dedupe<'a> {
    engine: &'a DedupeRange,
    target: &'a Target,
    copier: &'a dyn RangeCopier,
    geometry: XfsGeometry,
    /// The file when we began.
    sample: Sample,
    /// Of the whole file, then.
    layout: Layout,
    donor: Donor<'a>,
    /// Of the donor, once it is allocated.
    new: Layout,
    /// Written runs to be moved that have no blocks in the donor yet.
    chosen: VecDeque<FileRange>,
    /// Written runs to be moved that have blocks in the donor.
    allocated: VecDeque<FileRange>,
    /// Units that are being read ahead.
    reading: Units,
    /// Units that are copied and being written back.
    copied: Units,
    /// Somebody else had the file open the last time.
    contested: bool,
    /// Something was moved.
    moved: bool,
    /// The reason to report where nothing was.
    reason: SkipReason,
}

impl Relocation for Dedupe<'_> {
    fn step(&mut self, limit: StepLimit) -> Result<Step, Refusal> {
        self.advance(limit)
            .map_err(|refusal| self.sample.explain(self.target, refusal))
    }
}

impl Drop for Dedupe<'_> {
    fn drop(&mut self) {
        while let Some(unit) = self.copied.pop().or_else(|| self.reading.pop()) {
            unit.restore(self.target);
        }
    }
}

impl<'a> Dedupe<'a> {
    fn advance(&mut self, limit: StepLimit) -> Result<Step, Refusal> {
        let mut moved = Moved::default();
        let began = Instant::now();
        self.read_ahead(limit.bytes)?;
        while self.copied.bytes < COPIED_AHEAD
            && (self.copied.units.is_empty() || began.elapsed() < COPIED_FOR)
            && let Some(unit) = self.reading.pop()
        {
            let range = unit.range;
            self.copied.push(unit);
            self.copy(range, &mut moved)?;
            self.read_ahead(limit.bytes)?;
        }
        if let Some(unit) = self.copied.pop() {
            let done = self.take_over(&unit, &mut moved);
            unit.restore(self.target);
            done?;
        }
        if self.copied.units.is_empty() && self.reading.units.is_empty() {
            if self.allocated.is_empty() {
                self.allocate_ahead()?;
            }
            if self.allocated.is_empty() {
                return if self.moved {
                    Ok(Step::Done(moved))
                } else {
                    Err(self.reason.into())
                };
            }
        }
        Ok(Step::Working(moved))
    }

    /// Give the donor blocks for the next runs; it has none when this is called.
    fn allocate_ahead(&mut self) -> Result<(), Refusal> {
        while self.allocated.is_empty() && !self.chosen.is_empty() {
            let mut room = AHEAD;
            let mut runs = Vec::new();
            while room > 0
                && let Some(run) = self.chosen.pop_front()
            {
                let (unit, rest) = cut(&self.layout, run, Bytes(room), usize::MAX);
                push_front(&mut self.chosen, rest);
                room = room.saturating_sub(unit.len.get());
                runs.push(unit);
            }
            self.allocate(&runs)?;
            let (aim, kept) = (self.engine.aim, &self.engine.kept);
            for _ in 0..LANDINGS {
                if !self.donor.keep_landed(&runs, &self.new, aim, kept)? {
                    break;
                }
                self.donor = new_donor(self.target, self.sample.size)?;
                self.allocate(&runs)?;
            }
            for run in runs {
                let aim = self.engine.aim;
                let is_better = gain(&self.layout, &self.new, run) >= aim.least_gain();
                if is_better && aim.allows(self.new.clipped(run)) {
                    self.allocated.push_back(run);
                } else {
                    self.donor.release(run)?;
                }
            }
        }
        Ok(())
    }

    /// Give the donor blocks for `runs`.
    fn allocate(&mut self, runs: &[FileRange]) -> Result<(), Refusal> {
        for run in runs {
            self.donor.allocate_in_row(*run, self.engine.row)?;
        }
        self.new = self
            .donor
            .layout(whole(self.sample.size, self.target.block_size))?;
        Ok(())
    }

    /// Begin to read the next units.
    fn read_ahead(&mut self, limit: Bytes) -> Result<(), Refusal> {
        while self.reading.bytes < READ_AHEAD
            && let Some(run) = self.allocated.pop_front()
        {
            let (range, rest) = cut(&self.layout, run, limit, MOST_EXTENTS);
            push_front(&mut self.allocated, rest);
            if range.len > LONGEST {
                self.donor.release(range)?;
                continue;
            }
            let cached = Cached::of(self.target, &self.layout, range);
            read_ahead(&self.target.file, range);
            self.reading.push(Unit { range, cached });
        }
        Ok(())
    }

    /// The part of a range before the end of the file.
    fn inside(&self, range: FileRange) -> FileRange {
        range.intersect(FileRange::new(0, self.sample.size.get()))
    }

    fn copy(&self, range: FileRange, moved: &mut Moved) -> Result<(), Refusal> {
        let inside = self.inside(range);
        self.copier
            .copy(&self.target.file, &self.donor.file, &[inside])
            .and_then(|()| start_writeback(&self.donor.file, inside.start.get(), inside.len.get()))
            .map_err(|error| refuse_data(self.target, &[range], error))?;
        moved.host_read += range.len;
        moved.host_written += range.len;
        Ok(())
    }

    /// Let the file have the donor's blocks for a unit, if that is good, and give up the donor's
    /// share of them.
    fn take_over(&mut self, unit: &Unit, moved: &mut Moved) -> Result<(), Refusal> {
        let turns = &self.engine.turns;
        let turn = turns.wait(&self.geometry, &self.layout, unit.range);
        let mut hold = None;
        let done = self.share(unit.range, &mut hold, moved);
        let released = self.donor.release(unit.range);
        // Whoever waits for the file finds nothing shared, which cannot be swapped to, and is not written in place.
        drop(hold);
        drop(turn);
        match done? {
            None => self.moved = true,
            Some(reason) => self.reason = reason,
        }
        released
    }

    /// Why the unit stays where it is, or none if it has new blocks: the donor's, who has them, too. The file is held until
    /// the donor has not.
    fn share(
        &mut self,
        range: FileRange,
        hold: &mut Option<Hold<'a>>,
        moved: &mut Moved,
    ) -> Result<Option<SkipReason>, Refusal> {
        let (engine, target) = (self.engine, self.target);
        for _ in 0..TRIES {
            // The call would wait for it under the locks.
            wait_writeback(&self.donor.file, range.start.get(), range.len.get())
                .map_err(|error| refuse_data(target, &[range], error))?;
            // Nobody who has not opened the file can clone it; see (5) in the module.
            let naps = match (engine.strict, self.contested) {
                (true, _) => NAPS,
                (false, true) => &[],
                (false, false) => &NAPS[..2],
            };
            let held = hold.insert(engine.holds.take(target, naps));
            self.contested = !held.is_leased();
            if engine.strict && self.contested {
                return Err(SkipReason::InUse.into());
            }
            if let Look::Stays(reason) = self.look(range)? {
                return Ok(Some(reason));
            }
            let inside = self.inside(range);
            let (compared, time) = timed(|| {
                let start = inside.start.get();
                let (donor, file) = (&self.donor.file, &self.target.file);
                dedupe_range(donor, start, file, start, inside.len.get())
            });
            moved.note_lock(time, range.len);
            match compared {
                Ok(Compared::Shared) => {
                    moved.relocated += range.len;
                    return Ok(None);
                }
                Ok(Compared::Different) => {
                    *hold = None;
                    self.copy(range, moved)?;
                }
                Err(error) => {
                    let operation = "share the donor's blocks";
                    return Err(refuse(self.target, operation, Some(range.start), error));
                }
            }
        }
        Ok(Some(SkipReason::Changed))
    }

    /// Look at a unit right before its call: whether it is still written as a whole, shared with
    /// nobody, and the file has no more fragments afterwards.
    fn look(&self, range: FileRange) -> Result<Look, Refusal> {
        let block = self.target.block_size;
        let around = FileRange::between(
            FileOffset(range.start.get().saturating_sub(block.get())),
            range.end() + block,
        );
        let layout = map_file(self.target, around, false)?;
        let unplaced = layout
            .clipped(range)
            .any(|extent| extent.flags.contains(ExtentFlags::UNPLACED));
        // A file that grew has another last block.
        let cut_by_end = self.inside(range) != range;
        if unplaced
            || runs(&layout, range, true) != [range]
            || cut_by_end && Sample::take(self.target)?.size != self.sample.size
        {
            return Ok(Look::Stays(SkipReason::Changed));
        }
        if is_shared(&layout, range) {
            return Ok(Look::Stays(if self.engine.allow_unshare {
                SkipReason::KeepsSharing
            } else {
                SkipReason::Shared
            }));
        }
        let after = replaced(&layout, &self.new, &[range], around).fragments();
        if after > layout.fragments_in(around) {
            // The file is not as it was when the unit was cut.
            return Ok(Look::Stays(SkipReason::NoGain));
        }
        Ok(Look::Good)
    }
}

fn push_front(ranges: &mut VecDeque<FileRange>, rest: Option<FileRange>) {
    if let Some(rest) = rest {
        ranges.push_front(rest);
    }
}
