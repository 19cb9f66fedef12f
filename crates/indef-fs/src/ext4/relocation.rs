//! A relocation: ranges are cut into pieces that each get a donor, one piece after the other.
//!
//! Where the device's rows are known, the donor begins with a row, and ranges lie in its rows as they
//! do in those of the file ([`Cursor::in_rows`]): then an aligned read of the file is an aligned read of
//! the device. If there is no such place, they go anywhere.
//!
//! A move changes where a file's blocks are in the running journal transaction, but `fdatasync` of
//! an application does not commit it: `ext4_swap_extents` does not advance `i_datasync_tid`
//! (fs/ext4/extents.c, v6.18). Data that the application was told is durable then lies in the new
//! place, and a power cut brings the old one back. So a step takes a lease on the file, commits,
//! and gives the lease back: nobody can have written in between. (`kernel/ext4` holds a fix for the
//! kernel. Whether the running kernel has it cannot be told reliably from here, so steps do this on
//! every kernel.)

use std::{collections::VecDeque, fs::File, sync::Arc, time::Instant};

use indef_core::{SkipReason, layout::Row};
use linux_abi::fiemap::Mapper;
use rustix::{
    fs::{Advice, fadvise},
    io::Errno,
};
use units::{Bytes, FileOffset, FileRange, Nanos};

use super::{donor::Donor, piece::DonorPiece, shared::Shared};
use crate::{
    CacheRecord, CountedRange, Moved, Refusal, Relocation, Step, StepLimit, Target,
    aim::Aim,
    cache::page,
    hold::{Hold, NAPS},
    survey::{Cursor, Survey},
};

/// No donor is larger: an extent of ext4 has 128 MiB at most, so there is nothing to gain, and the
/// space that a donor holds is missing elsewhere until the piece is done.
const MAX_PIECE: Bytes = Bytes::gib(1);
/// No piece is halved below this when space is short or in too many pieces.
const MIN_PIECE: Bytes = Bytes::kib(256);
/// After so many pieces in a row without a better place there is none.
const MAX_MISSES: u32 = 16;
/// Small ranges share a donor up to this size, so that reads and writes of one overlap with those of
/// the next.
const GROUP: Bytes = Bytes::mib(8);
/// And up to this number.
const MAX_GROUP: usize = 64;
/// If more moved bytes than this wait for their writeback, the oldest are waited for before more is
/// moved.
const SETTLING: Bytes = Bytes::mib(16);

/// A step moves no more where others have the file open: until it is committed, data that they are
/// told is durable is not.
const CONTESTED_STEP: Bytes = Bytes::mib(1);

/// Ranges of one file under way.
pub(super) struct Ext4Relocation<'a> {
    shared: &'a Shared,
    target: &'a Target,
    /// Another descriptor of the same open file, which may live longer than this, until everything
    /// has settled.
    file: Arc<File>,
    /// Ranges that are left to be surveyed.
    ranges: VecDeque<FileRange>,
    piece: Option<DonorPiece<'a>>,
    /// Length of the next piece.
    piece_len: Bytes,
    misses: u32,
    /// Rows in which ranges are placed as in the file; `None` once there was no donor for that.
    row: Option<Row>,
    /// A donor that could not be put on a row, for the next piece.
    spare: Option<Donor>,
    /// Whether ranges share donors; `false` once there was no donor for a group.
    grouping: bool,
    /// Moved ranges that are being written back.
    settling: VecDeque<CacheRecord>,
    mapper: Mapper,
    /// Something was moved.
    moved: bool,
    /// Why some piece is not moved; if none is, the reason for the whole relocation.
    reason: SkipReason,
    /// The refusal that ended a step that had moved something; the next step reports it.
    ended: Option<Refusal>,
}

impl<'a> Ext4Relocation<'a> {
    pub(super) fn begin(
        shared: &'a Shared,
        target: &'a Target,
        ranges: &[CountedRange],
    ) -> Result<Self, Refusal> {
        let fail = |error| target.error("look at the file", None, error);
        let size = target.file.metadata().map_err(fail)?.len();
        // Blocks past the end of the file cannot be moved.
        let end = FileOffset(size).align_up(target.block_size);
        let inside = FileRange::between(FileOffset(0), end);
        let ranges: VecDeque<_> = ranges
            .iter()
            .map(|counted| counted.range.align_outward(target.block_size))
            .map(|range| range.intersect(inside))
            .filter(|range| !range.is_empty())
            .collect();
        if ranges.is_empty() {
            return Err(SkipReason::OutOfRange.into());
        }
        if shared.is_unwritten(target) {
            return Err(target
                .error("write back moved data", None, Errno::IO)
                .into());
        }
        // Data that has to be read nevertheless, while waiting, is cached as single pages, too.
        let _ = fadvise(&target.file, 0, None, Advice::Random);
        let mut relocation = Self {
            shared,
            target,
            file: Arc::new(target.file.try_clone().map_err(fail)?),
            ranges,
            piece: None,
            piece_len: MAX_PIECE,
            misses: 0,
            row: shared.row,
            spare: None,
            // A group wants a longer free run than each of its ranges.
            grouping: !shared.aim.vacates(),
            settling: VecDeque::new(),
            mapper: Mapper::default(),
            moved: false,
            reason: SkipReason::Empty,
            ended: None,
        };
        if !relocation.next_piece()? {
            return Err(relocation.reason.into());
        }
        shared.marker(target)?;
        Ok(relocation)
    }

    /// Find the next piece that can be given a better place. `false` where there is none left.
    fn next_piece(&mut self) -> Result<bool, Refusal> {
        self.piece = None;
        while let Some(range) = self.ranges.front().copied() {
            let len = self.piece_len.max(MIN_PIECE).max(page());
            let end = (range.start + len).align_down(page()).min(range.end());
            let candidate = FileRange::between(range.start, end);
            let survey = self.survey(candidate, Bytes::ZERO)?;
            if !self.shared.aim.is_worth_moving(survey.count) {
                if survey.count.pieces > 0 && self.reason == SkipReason::Empty {
                    self.reason = SkipReason::Contiguous;
                }
                self.pass(end);
                continue;
            }
            let group = self.group(candidate, survey)?;
            let more = group.len() > 1;
            let Some(donor) = self.donor_for(&group).transpose() else {
                continue;
            };
            match donor {
                Ok(donor) => {
                    for (range, _) in &group {
                        self.pass_whole(*range);
                    }
                    // Told if nothing of it can be moved: it is cut off meanwhile, say, or its pages are in use.
                    self.reason = SkipReason::Changed;
                    self.misses = 0;
                    self.piece_len = MAX_PIECE.min(self.piece_len * 2);
                    self.piece = Some(DonorPiece::new(self.shared, self.target, group, donor));
                    return Ok(true);
                }
                Err(Refusal::Skip(_)) if more => self.grouping = false,
                Err(Refusal::Skip(reason)) => {
                    self.reason = reason;
                    // A part of a fragment would leave the file with one more.
                    if self.shared.aim.vacates() {
                        self.pass(range.end());
                        continue;
                    }
                    let may_fit = matches!(reason, SkipReason::NoSpace | SkipReason::NoGain);
                    if may_fit && candidate.len.get() >= 2 * MIN_PIECE.get() {
                        self.piece_len = Bytes(candidate.len.get() / 2);
                    } else if reason == SkipReason::NoGain && self.misses < MAX_MISSES {
                        self.misses += 1;
                        self.pass(end);
                    } else {
                        return Ok(false);
                    }
                }
                Err(failed) => return Err(failed),
            }
        }
        Ok(false)
    }

    /// Look at a range, to be placed after `donor_len` bytes of the donor.
    fn survey(&mut self, range: FileRange, donor_len: Bytes) -> Result<Survey, Refusal> {
        let place = match self.row {
            Some(row) => Cursor::in_rows(donor_len, range, row.bytes),
            None => Cursor::behind(donor_len),
        };
        // Without writeback: later surveys would wait for that of data that was moved before.
        Survey::of(self.target, range, place, &mut self.mapper)
    }

    /// The range, and the following ones that go into the same donor.
    fn group(
        &mut self,
        range: FileRange,
        survey: Survey,
    ) -> Result<Vec<(FileRange, Survey)>, Refusal> {
        let mut donor_len = survey.donor_len;
        let mut group = vec![(range, survey)];
        let is_whole = self.ranges.front() == Some(&range);
        let mut next = 1;
        while self.grouping && is_whole && donor_len < GROUP && group.len() < MAX_GROUP {
            let Some(range) = self.ranges.get(next).copied() else {
                break;
            };
            if range.len > GROUP {
                break;
            }
            next += 1;
            let survey = self.survey(range, donor_len)?;
            if self.shared.aim.is_worth_moving(survey.count) {
                donor_len = survey.donor_len;
                group.push((range, survey));
            }
        }
        Ok(group)
    }

    /// Remove `range` from the front, and all ranges before it, which were found contiguous.
    fn pass_whole(&mut self, range: FileRange) {
        while self
            .ranges
            .front()
            .is_some_and(|front| front.end() <= range.start)
        {
            self.ranges.pop_front();
        }
        self.pass(range.end());
    }

    /// Remove everything up to `end` from the first range.
    fn pass(&mut self, end: FileOffset) {
        if let Some(range) = self.ranges.front_mut() {
            *range = FileRange::between(end, range.end());
            if range.is_empty() {
                self.ranges.pop_front();
            }
        }
    }

    /// A donor that is a better place for each range of the group. `None` where there is none on the
    /// device's rows; ranges are surveyed again then, since they lie otherwise in one off the rows.
    fn donor_for(&mut self, group: &[(FileRange, Survey)]) -> Result<Option<Donor>, Refusal> {
        let mut donor = match self.allocate(donor_len(group), most_fragments(group)) {
            Err(Refusal::Skip(_)) if self.row.take().is_some() => return Ok(None),
            allocated => allocated?,
        };
        let is_better = is_better_in(self.shared.aim, &donor, group);
        if let Some(row) = self.row {
            let is_one = is_better && donor.fragments() == 1;
            let fallbacks = &self.shared.fallbacks;
            if is_one && donor.shift_to(row, self.target, fallbacks, &mut self.mapper)? {
                return Ok(Some(donor));
            }
            self.row = None;
            self.spare = Some(donor);
            return Ok(None);
        }
        if is_better {
            Ok(Some(donor))
        } else {
            Err(self.shared.aim.no_donor().into())
        }
    }

    /// A donor of `len` bytes: the spare one, if it is long enough. Outside of a region, in `most` fragments.
    fn allocate(&mut self, len: Bytes, most: u64) -> Result<Donor, Refusal> {
        let target = self.target;
        // Held until there is another: blocks that are freed cannot be had before the next commit,
        // and what is allocated meanwhile would lie around them.
        match self.spare.take() {
            Some(mut donor) if donor.len(target)? >= len => {
                donor.shorten(target, len, &mut self.mapper)?;
                Ok(donor)
            }
            short => {
                let fallbacks = &self.shared.fallbacks;
                let donor = match self.shared.aim.vacates() {
                    true => {
                        let kept = (self.shared.aim, &self.shared.kept);
                        Donor::allocate_outside(
                            target,
                            fallbacks,
                            kept,
                            (len, most),
                            &mut self.mapper,
                        )
                    }
                    false => Donor::allocate(target, fallbacks, len, &mut self.mapper),
                };
                drop(short);
                donor
            }
        }
    }

    /// Move up to `left` bytes of the piece, and stop early where somebody waits for the file.
    fn advance(
        &mut self,
        mut left: Bytes,
        hold: &Hold<'_>,
        moved: &mut Moved,
    ) -> Result<(), Refusal> {
        loop {
            let Some(piece) = &mut self.piece else {
                return Ok(());
            };
            let over = left.is_zero() || (!moved.relocated.is_zero() && hold.is_wanted());
            if over || piece.is_done(&mut self.mapper)? {
                return Ok(());
            }
            let before = moved.relocated;
            piece.advance(left, moved, &mut self.mapper)?;
            // A call that moved nothing has taken the locks, too.
            left = left.saturating_sub((moved.relocated - before).max(page()));
            self.settling.extend(piece.take_settling());
            self.settle_oldest();
            if self.piece.as_ref().is_some_and(DonorPiece::has_failed) {
                return Ok(());
            }
        }
    }

    fn settle_oldest(&mut self) {
        let sum = |records: &VecDeque<CacheRecord>| -> Bytes {
            records.iter().map(|record| record.range().len).sum()
        };
        while self.settling.len() > 1 && sum(&self.settling) > SETTLING {
            let (Some(record), Some(piece)) = (self.settling.pop_front(), &mut self.piece) else {
                break;
            };
            if !piece.is_written(record.range()) {
                break;
            }
            piece.unsure.forget_in(record.range());
            record.restore(&self.file);
        }
    }
}

/// The bytes that a group needs.
fn donor_len(group: &[(FileRange, Survey)]) -> Bytes {
    group.last().map_or(Bytes::ZERO, |(_, last)| last.donor_len)
}

/// The most fragments of a donor with which the file has no more than before.
fn most_fragments(group: &[(FileRange, Survey)]) -> u64 {
    let most = |survey: &Survey| {
        let count = survey.count;
        (count.fragments + 1).saturating_sub(count.pieces + count.cuts())
    };
    let all = group.iter().map(|(_, survey)| most(survey));
    all.min().unwrap_or(0).max(1)
}

/// Whether the donor is a better place for each range of the group.
fn is_better_in(aim: Aim, donor: &Donor, group: &[(FileRange, Survey)]) -> bool {
    let mut surveys = group.iter().map(|(_, survey)| survey);
    let fragments = donor.fragments();
    surveys.all(|survey| aim.is_better_in(survey.count, fragments))
}

impl Ext4Relocation<'_> {
    /// Make sure that there is a piece to move. Finding one can take long, so it is done without a
    /// lease, and nobody is kept waiting meanwhile. `false` where there is none left.
    fn prepare(&mut self) -> Result<bool, Refusal> {
        let settled = match &mut self.piece {
            Some(piece) => piece.is_done(&mut self.mapper)?,
            None => return Ok(false),
        };
        if settled {
            let records = self.piece.as_mut().map(DonorPiece::take_settling);
            self.settling.extend(records.into_iter().flatten());
            return self.next_piece();
        }
        Ok(true)
    }

    /// End a step that `began` then: commit the data that it moved.
    fn commit(
        &mut self,
        moved: &mut Moved,
        hold: &Hold<'_>,
        began: Instant,
    ) -> Result<(), Refusal> {
        let is_alone = || hold.is_leased() && !hold.is_lost(began);
        // The commit waits for moved data. After waiting for that here, the rest does not depend on
        // how much was moved.
        let mut written = self
            .piece
            .as_mut()
            .map_or(Ok(()), |piece| piece.finish_writing(moved, &is_alone));
        let committing = Instant::now();
        let mut result = self.shared.commit(self.target);
        let concluded = self
            .piece
            .as_mut()
            .map_or(Ok(()), |piece| piece.conclude(moved, &is_alone));
        if concluded.is_err() {
            result = result.and(self.shared.commit(self.target));
            written = written.and(concluded);
        }
        let (step, commit) = (
            Nanos::from(began.elapsed()),
            Nanos::from(committing.elapsed()),
        );
        if hold.is_leased() {
            // Whoever opens the file waits for all of it.
            moved.note_lock_and(step, moved.relocated, commit);
            if hold.is_lost(began) {
                moved.uncommitted = step;
            }
        } else {
            // A write may wait for a call, and then for the commit.
            let call = moved.locked;
            moved.note_lock_and(call + commit, moved.locked_bytes, commit);
            moved.uncommitted = step;
        }
        result.and(written)
    }
}

impl Relocation for Ext4Relocation<'_> {
    fn step(&mut self, limit: StepLimit) -> Result<Step, Refusal> {
        if let Some(refusal) = self.ended.take() {
            return Err(refusal);
        }
        if !self.prepare()? {
            return if self.moved {
                Ok(Step::Done(Moved::default()))
            } else {
                Err(self.reason.into())
            };
        }
        let (shared, target) = (self.shared, self.target);
        let naps = if shared.strict { NAPS } else { &NAPS[..2] };
        let hold = shared.holds.take(target, naps);
        let mut limit = limit.bytes;
        if !hold.is_leased() {
            if shared.strict {
                return Err(SkipReason::InUse.into());
            }
            limit = limit.min(CONTESTED_STEP);
        }
        let limit = limit.max(page()).max(target.block_size);
        let mut moved = Moved::default();
        let began = Instant::now();
        let mut done = self.advance(limit, &hold, &mut moved);
        // A call that moved nothing has held the locks, and what it waited for may have failed.
        if !moved.relocated.is_zero() || moved.locked > Nanos(0) {
            done = self.commit(&mut moved, &hold, began).and(done);
        }
        drop(hold);
        self.moved |= !moved.relocated.is_zero();
        match done {
            Ok(()) => Ok(Step::Working(moved)),
            Err(refusal) if moved.relocated.is_zero() => Err(refusal),
            Err(refusal) => {
                self.ended = Some(refusal);
                Ok(Step::Working(moved))
            }
        }
    }
}

impl Drop for Ext4Relocation<'_> {
    /// Moved data is on its way to the device; the engine waits for it, and restores the cache.
    fn drop(&mut self) {
        if let Some(mut piece) = self.piece.take() {
            piece.abandon();
            self.settling.extend(piece.take_settling());
        }
        for record in self.settling.drain(..) {
            let path = self.target.path.clone();
            self.shared.settler.push(&self.file, path, record);
        }
    }
}

#[cfg(test)]
mod tests;
