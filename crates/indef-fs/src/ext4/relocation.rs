//! A relocation: ranges are cut into pieces that each get a donor, one piece after the other.

use std::{collections::VecDeque, fs::File, sync::Arc};

use indef_core::SkipReason;
use linux_abi::fiemap::Mapper;
use rustix::fs::{Advice, fadvise};
use units::{Bytes, FileOffset, FileRange};

use super::{Ext4MoveExtent, donor::Donor, piece::Piece};
use crate::{
    CacheRecord, Moved, Refusal, Relocation, Step, StepLimit, Target,
    cache::{page, settle},
    survey::Survey,
};

/// No donor is larger: an extent of ext4 has 128 MiB at most, so there is nothing to gain, and what
/// a donor holds is missing elsewhere until the piece is done.
const MAX_PIECE: Bytes = Bytes::gib(1);
/// No piece is halved below this when space is short or in too many pieces.
const MIN_PIECE: Bytes = Bytes::kib(256);
/// After so many pieces in a row without a better place there is none.
const MAX_MISSES: u32 = 16;
/// Windows that wait for their writeback before the next one is moved.
const SETTLING: usize = 2;

/// Ranges of one file under way.
pub(super) struct Ext4Relocation<'a> {
    engine: &'a Ext4MoveExtent,
    target: &'a Target,
    /// The same open file once more, which may live longer than this, until everything has settled.
    file: Arc<File>,
    /// What is left to be surveyed.
    ranges: VecDeque<FileRange>,
    piece: Option<Piece<'a>>,
    /// Length of the next piece.
    piece_len: Bytes,
    misses: u32,
    /// Moved, being written back.
    settling: VecDeque<CacheRecord>,
    mapper: Mapper,
    /// Something was moved.
    moved: bool,
    /// Why some piece is not moved: the reason for the whole, if nothing is.
    reason: SkipReason,
    /// What ended a step that had moved something, for the next one to report.
    ended: Option<Refusal>,
}

impl<'a> Ext4Relocation<'a> {
    pub(super) fn begin(
        engine: &'a Ext4MoveExtent,
        target: &'a Target,
        ranges: &[FileRange],
    ) -> Result<Self, Refusal> {
        let fail = |error| target.error("look at the file", None, error);
        let size = target.file.metadata().map_err(fail)?.len();
        // Blocks behind the end of the file cannot be moved.
        let end = FileOffset(size).align_up(target.block_size);
        let inside = FileRange::between(FileOffset(0), end);
        let ranges: VecDeque<_> = ranges
            .iter()
            .map(|range| range.align_outward(target.block_size).intersect(inside))
            .filter(|range| !range.is_empty())
            .collect();
        if ranges.is_empty() {
            return Err(SkipReason::OutOfRange.into());
        }
        // What has to be read nevertheless, while waiting, comes as single pages, too.
        let _ = fadvise(&target.file, 0, None, Advice::Random);
        let mut relocation = Self {
            engine,
            target,
            file: Arc::new(target.file.try_clone().map_err(fail)?),
            ranges,
            piece: None,
            piece_len: MAX_PIECE,
            misses: 0,
            settling: VecDeque::new(),
            mapper: Mapper::default(),
            moved: false,
            reason: SkipReason::Empty,
            ended: None,
        };
        if !relocation.next_piece()? {
            return Err(relocation.reason.into());
        }
        Ok(relocation)
    }

    /// Find the next piece that can be given a better place. `false` where there is none left.
    fn next_piece(&mut self) -> Result<bool, Refusal> {
        self.piece = None;
        while let Some(range) = self.ranges.front().copied() {
            let len = self.piece_len.max(MIN_PIECE).max(page());
            let end = (range.start + len).align_down(page()).min(range.end());
            let candidate = FileRange::between(range.start, end);
            let survey = Survey::of(self.target, candidate, &mut self.mapper)?;
            if survey.is_contiguous() {
                if survey.stretches > 0 && self.reason == SkipReason::Empty {
                    self.reason = SkipReason::Contiguous;
                }
                self.pass(end);
                continue;
            }
            match self.donor_for(&survey) {
                Ok(donor) => {
                    self.pass(end);
                    self.misses = 0;
                    self.piece_len = MAX_PIECE.min(self.piece_len * 2);
                    self.piece = Some(Piece::new(
                        self.engine,
                        self.target,
                        candidate,
                        survey,
                        donor,
                    ));
                    return Ok(true);
                }
                Err(Refusal::Skip(reason)) => {
                    self.reason = reason;
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

    /// Leave everything up to `end` behind.
    fn pass(&mut self, end: FileOffset) {
        if let Some(range) = self.ranges.front_mut() {
            *range = FileRange::between(end, range.end());
            if range.is_empty() {
                self.ranges.pop_front();
            }
        }
    }

    fn donor_for(&mut self, survey: &Survey) -> Result<Donor, Refusal> {
        let donor = Donor::allocate(
            self.target,
            &self.engine.fallbacks,
            survey.donor_len,
            &mut self.mapper,
        )?;
        if survey.is_improved_by(donor.fragments) {
            Ok(donor)
        } else {
            Err(SkipReason::NoGain.into())
        }
    }

    /// Move up to `left` bytes. `true` where nothing is left.
    fn advance(&mut self, mut left: Bytes, moved: &mut Moved) -> Result<bool, Refusal> {
        loop {
            let Some(piece) = &mut self.piece else {
                return Ok(true);
            };
            if piece.is_done(&mut self.mapper)? {
                let records = piece.take_settling();
                self.settling.extend(records);
                if !self.next_piece()? {
                    return Ok(true);
                }
                continue;
            }
            if left.is_zero() {
                return Ok(false);
            }
            let before = moved.relocated;
            piece.advance(left, moved, &mut self.mapper)?;
            // A call that moved nothing has taken the locks, too.
            left = left.saturating_sub((moved.relocated - before).max(page()));
            self.settling.extend(piece.take_settling());
            self.settle_oldest()?;
        }
    }

    fn settle_oldest(&mut self) -> Result<(), Refusal> {
        while self.settling.len() > SETTLING {
            let Some(record) = self.settling.pop_front() else {
                break;
            };
            settle(&self.file, &record).map_err(|error| {
                let offset = Some(record.range().start);
                self.target.error("write back moved data", offset, error)
            })?;
        }
        Ok(())
    }
}

impl Relocation for Ext4Relocation<'_> {
    fn step(&mut self, limit: StepLimit) -> Result<Step, Refusal> {
        if let Some(refusal) = self.ended.take() {
            return Err(refusal);
        }
        let mut moved = Moved::default();
        let limit = limit.bytes.max(page()).max(self.target.block_size);
        let done = self.advance(limit, &mut moved);
        self.moved |= !moved.relocated.is_zero();
        match done {
            Ok(false) => Ok(Step::Working(moved)),
            Ok(true) if self.moved => Ok(Step::Done(moved)),
            Ok(true) => Err(self.reason.into()),
            Err(refusal) if moved.relocated.is_zero() => Err(refusal),
            Err(refusal) => {
                self.ended = Some(refusal);
                Ok(Step::Working(moved))
            }
        }
    }
}

impl Drop for Ext4Relocation<'_> {
    /// What is moved is on its way to the device; the engine waits for it, and restores the cache.
    fn drop(&mut self) {
        if let Some(mut piece) = self.piece.take() {
            piece.abandon();
            self.settling.extend(piece.take_settling());
        }
        for record in self.settling.drain(..) {
            let path = self.target.path.clone();
            self.engine.settler.push(&self.file, path, record);
        }
    }
}
