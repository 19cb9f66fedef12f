//! Move one piece of a file, step by step, within all limits.

use std::{
    fs::File,
    io,
    os::unix::fs::MetadataExt,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use indef_core::SkipReason;
use indef_fs::{Beyond, Moved, RangeCopier, Refusal, Step, Target, TargetId};
use units::{Bytes, FileRange};

use super::{
    FileError, Reason, RunEvent,
    file::{OpenFile, Piece, Sharing},
    result,
    shared::Run,
    step_size::StepSize,
};
use crate::sync::lock;

/// A copy checks this often (in bytes) whether it is to stop.
const SLICE: u64 = 64 << 20;
/// Steps in a row that may do nothing: more would be an engine that never ends.
const IDLE_STEPS: u32 = 100_000;

/// How a piece ended.
pub(super) struct PieceEnd {
    pub(super) moved: Moved,
    pub(super) reason: Option<Reason>,
    /// Bytes that were reserved in the budget: its cost, and those for what was copied again.
    pub(super) reserved: Bytes,
    /// Bytes that were written, or may have been.
    pub(super) spent: Bytes,
}

impl Run<'_> {
    /// Move a piece as far as it goes.
    pub(super) fn relocate(&self, piece: &Piece) -> PieceEnd {
        let mut end = PieceEnd {
            moved: Moved::default(),
            reason: None,
            reserved: piece.cost,
            spent: Bytes::ZERO,
        };
        let file = &piece.file;
        let ticket = match self.is_stopping(file) {
            true => Err(Reason::Skip(SkipReason::Stopped)),
            false => {
                let (room, stop) = (&file.volume.room, &self.stop);
                room.take(self.backend, &file.target, piece.allocated, stop)
            }
        };
        let _ticket = match ticket {
            Ok(ticket) => ticket,
            Err(reason) => {
                end.reason = Some(reason);
                return end;
            }
        };
        self.observer.on(RunEvent::Reserved {
            id: file.target.id,
            bytes: piece.cost,
        });
        // Also where the observer asked for that just now.
        if self.is_stopping(file) {
            end.reason = Some(Reason::Skip(SkipReason::Stopped));
            return end;
        }
        let meter = Meter {
            run: self,
            file,
            target: &file.target,
            copier: self.copier,
            written: AtomicU64::new(0),
            reserved: AtomicU64::new(piece.cost.get()),
            refused: OnceLock::new(),
        };
        end.reason = self.steps(piece, &meter, &mut end.moved);
        if let Some(Reason::Failed(error)) = &end.reason
            && error.is_device_full()
            && self.has_room_for(piece)
            && file.volume.room.device_is_full()
        {
            let mount = file.volume.fs.mount.as_ref();
            self.observer.on(RunEvent::DeviceFull {
                place: mount.map(|mount| &*mount.point),
            });
        }
        let known = meter.written.load(Ordering::Relaxed);
        end.reserved = Bytes(meter.reserved.load(Ordering::Relaxed));
        end.spent = match end.reason {
            // A step that failed may have done a part of its work without reporting it.
            Some(Reason::Failed(_)) => piece.cost.max(Bytes(known)),
            _ => Bytes(known),
        };
        if end.spent > end.reserved {
            tracing::warn!(
                path = %file.target.path.display(),
                said = %end.reserved,
                written = %end.spent,
                "an engine wrote more than it said"
            );
        }
        end
    }

    /// Whether the file system itself has space, beyond what a piece has given back: else that of its trees may have been what there
    /// was not (Btrfs then tells users that nothing is free), and other files may need none.
    fn has_room_for(&self, piece: &Piece) -> bool {
        let space = self.backend.space(&piece.file.target);
        let moves: Bytes = piece.ranges.iter().map(|counted| counted.range.len).sum();
        space.is_ok_and(|space| space.free > moves)
    }

    /// Whether nothing more of a file is to be moved.
    fn is_stopping(&self, file: &OpenFile) -> bool {
        self.stop.cause().is_some() || file.volume.room.is_device_full()
    }

    fn steps(&self, piece: &Piece, meter: &Meter<'_, '_>, moved: &mut Moved) -> Option<Reason> {
        let file = &piece.file;
        let sharing = Sharing::of(file);
        let size = self.step_size(piece);
        let mut idle = 0;
        let mut relocation = match file.relocator().begin(&file.target, &piece.ranges, meter) {
            Ok(relocation) => relocation,
            Err(refusal) => return Some(meter.reason_of(refusal)),
        };
        loop {
            let has_begun = self.options.vacate.is_some() && !moved.relocated.is_zero();
            let stops = self.stop.cause().is_some() && !has_begun;
            if stops || file.volume.room.is_device_full() {
                let end = relocation.end();
                return Some(self.ended(SkipReason::Stopped, end, meter, moved));
            }
            if let Some(reason) = self.gives_way(&file.target) {
                let end = relocation.end();
                return Some(self.ended(reason, end, meter, moved));
            }
            let limit = lock(&size).limit();
            self.pace.wait(limit.bytes, &self.stop);
            let step = match relocation.step(limit) {
                Ok(step) => step,
                Err(refusal) => return Some(meter.reason_of(refusal)),
            };
            let (Step::Working(done) | Step::Done(done)) = step;
            *moved += done;
            meter.step(limit.bytes, moved);
            self.note(&done);
            lock(&size).learn(&done, sharing.count());
            if matches!(step, Step::Done(_)) {
                return None;
            }
            idle = if done == Moved::default() {
                idle + 1
            } else {
                0
            };
            if idle > IDLE_STEPS {
                let error = FileError::NoProgress {
                    path: file.target.path.clone(),
                    engine: file.relocator().name(),
                };
                return Some(error.into());
            }
        }
    }

    /// Why a move ends that keeps space from others.
    fn gives_way(&self, target: &Target) -> Option<SkipReason> {
        // It was deleted, and its space comes free when it is closed.
        if target
            .file
            .metadata()
            .is_ok_and(|status| status.nlink() == 0)
        {
            return Some(SkipReason::Gone);
        }
        // Others have used half of what is to stay free: they get what was allocated ahead. A region that is vacated is let
        // go as a whole; and where space is given back, it comes free later than it is taken.
        let options = self.options;
        if options.vacate.is_some() || options.reclaim_ratio.is_some() {
            return None;
        }
        let space = self.backend.space(target).ok()?;
        let is_short = !space.allows(Bytes::ZERO, options.min_free_pct / 2.0);
        is_short.then_some(SkipReason::NoSpace)
    }

    /// The reason of a piece that was ended before its end, with the work that its end has told of.
    fn ended(
        &self,
        reason: SkipReason,
        end: Result<Moved, Refusal>,
        meter: &Meter<'_, '_>,
        moved: &mut Moved,
    ) -> Reason {
        match end {
            Ok(done) => {
                *moved += done;
                meter.step(Bytes::ZERO, moved);
                self.note(&done);
                Reason::Skip(reason)
            }
            Err(Refusal::Skip(_)) => Reason::Skip(reason),
            Err(failed) => meter.reason_of(failed),
        }
    }

    /// Note the effects of a step on others.
    fn note(&self, done: &Moved) {
        self.longest_lock
            .fetch_max(done.locked.get(), Ordering::Relaxed);
        self.longest_uncommitted
            .fetch_max(done.uncommitted.get(), Ordering::Relaxed);
        let longest = u64::from(done.locked > self.options.max_stall.into());
        self.stalls_over_limit
            .fetch_add(longest + done.further_stalls, Ordering::Relaxed);
    }

    /// The size of a piece's steps: its own, or one for all files that are moved together.
    fn step_size(&self, piece: &Piece) -> Arc<Mutex<StepSize>> {
        let block_size = piece.file.target.block_size;
        let new = || {
            // With a slow rate large steps would come in bursts.
            let largest = self.pace.bytes_in(Duration::from_millis(200));
            let size = StepSize::new(self.options.max_stall, block_size, largest);
            Arc::new(Mutex::new(size))
        };
        match piece.file.relocator().gathers() {
            0 => new(),
            _ => Arc::clone(piece.file.volume.step_size.get_or_init(new)),
        }
    }
}

/// Measures the written bytes, keeps the pace and the limits inside long copies.
struct Meter<'r, 'o> {
    run: &'r Run<'o>,
    file: &'r OpenFile,
    target: &'r Target,
    copier: &'r dyn RangeCopier,
    /// Bytes that are known to be written, by copying or as reported.
    written: AtomicU64,
    /// Bytes that may be written.
    reserved: AtomicU64,
    /// Why a copy was refused.
    refused: OnceLock<SkipReason>,
}

/// A copy was refused: the run is to stop, or there are no more bytes for it.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("a limit of the run: {0}")]
struct Refused(SkipReason);

impl Meter<'_, '_> {
    /// A failure that comes from our own limits is no error; any other one is, whenever it comes.
    fn reason_of(&self, refusal: Refusal) -> Reason {
        let Refusal::Failed(failed) = &refusal else {
            return refusal.into();
        };
        let is_stopped = failed.source.kind() == io::ErrorKind::Interrupted && self.is_stopping();
        let by_us = is_stopped.then_some(SkipReason::Stopped);
        match self.refused.get().copied().or(by_us) {
            Some(reason) => Reason::Skip(reason),
            None => refusal.into(),
        }
    }

    fn refuse(&self, reason: SkipReason) -> io::Error {
        io::Error::other(Refused(*self.refused.get_or_init(|| reason)))
    }

    /// Whether so many bytes more may be written: of a file that others write meanwhile, an engine copies parts once more,
    /// and what that writes beyond the cost is reserved first.
    fn may_write(&self, bytes: Bytes) -> Result<(), SkipReason> {
        let written = Bytes(self.written.load(Ordering::Relaxed));
        let reserved = Bytes(self.reserved.load(Ordering::Relaxed));
        let more = written.saturating_add(bytes).saturating_sub(reserved);
        if !more.is_zero() && !self.is_stopping() {
            if !self.run.budget.reserve(more) {
                return Err(self.run.too_much);
            }
            self.reserved.fetch_add(more.get(), Ordering::Relaxed);
            self.run.observer.on(RunEvent::Reserved {
                id: self.target.id,
                bytes: more,
            });
        }
        // Also where the observer asked for that just now.
        match self.is_stopping() {
            true => Err(SkipReason::Stopped),
            false => Ok(()),
        }
    }

    /// Account for a step that was to write `planned` bytes, by the engine's sum so far. Bytes that
    /// it copied through us are known, and paid for, already.
    fn step(&self, planned: Bytes, sum: &Moved) {
        let reported = result::written(sum).get();
        let known = self.written.fetch_max(reported, Ordering::Relaxed);
        self.wrote(planned, Bytes(reported.saturating_sub(known)));
    }

    fn wrote(&self, planned: Bytes, bytes: Bytes) {
        self.run.pace.settle(planned, bytes);
        if !bytes.is_zero() {
            self.run.observer.on(RunEvent::Progress { bytes });
        }
    }

    /// Tell the observer of work beyond what ranges cost.
    fn tell(&self, more: Beyond) {
        let observer = self.run.observer;
        if !more.written.is_zero() {
            observer.on(RunEvent::Progress {
                bytes: more.written,
            });
        }
        if self.run.surplus.is_limited() {
            // A resumed run has so much less left.
            observer.on(RunEvent::Settled {
                id: self.target.id,
                reserved: Bytes::ZERO,
                spent: more.read.saturating_add(more.written),
            });
        }
    }

    fn copy_slice(&self, from: &File, to: &File, slice: &mut Vec<FileRange>) -> io::Result<()> {
        let bytes: Bytes = slice.iter().map(|range| range.len).sum();
        if bytes.is_zero() {
            return Ok(());
        }
        self.run.pace.wait(bytes, &self.run.stop);
        self.may_write(bytes)
            .map_err(|reason| self.refuse(reason))?;
        // Counted before: a copy that fails may have written.
        self.written.fetch_add(bytes.get(), Ordering::Relaxed);
        let copied = self.copier.copy(from, to, slice);
        self.wrote(bytes, bytes);
        slice.clear();
        copied
    }
}

impl RangeCopier for Meter<'_, '_> {
    fn is_stopping(&self) -> bool {
        self.run.is_stopping(self.file)
    }

    fn allow(&self, more: Beyond) -> Result<(), SkipReason> {
        let run = self.run;
        let bytes = more.read.saturating_add(more.written);
        if bytes.is_zero() {
            return Ok(());
        }
        let min_free = run.options.min_free_pct;
        let has_room = || {
            let space = run.backend.space(self.target);
            space.is_ok_and(|space| space.allows(more.written, min_free))
        };
        if !more.written.is_zero() && !has_room() {
            return Err(SkipReason::NoSpace);
        }
        // Plans know what is written, as an upper bound: there is no more, whatever was requested.
        if !run.budget.reserve(more.written) {
            return Err(run.too_much);
        }
        if !run.surplus.reserve(more.read, &run.budget) {
            run.budget.settle(more.written, Bytes::ZERO);
            return Err(SkipReason::OverBudget);
        }
        self.tell(more);
        run.pace.wait(bytes, &run.stop);
        match self.is_stopping() {
            true => Err(SkipReason::Stopped),
            false => Ok(()),
        }
    }

    fn spent(&self, more: Beyond) {
        let run = self.run;
        run.budget.settle(Bytes::ZERO, more.written);
        run.surplus.take(more.read, &run.budget);
        self.tell(more);
        run.pace
            .settle(Bytes::ZERO, more.read.saturating_add(more.written));
    }

    fn moved_along(&self, files: &[TargetId]) {
        self.run.along.add(files);
        self.run.observer.on(RunEvent::MovedAlong(files));
    }

    fn copy(&self, from: &File, to: &File, ranges: &[FileRange]) -> io::Result<()> {
        let paced = self.run.pace.bytes_in(Duration::from_millis(100));
        // Whole direct I/O blocks, whatever the rate.
        let size = paced.map_or(SLICE, |bytes| (bytes & !0xFFFF).clamp(0x1_0000, SLICE));
        let mut slice = Vec::new();
        let mut left = size;
        for range in ranges {
            let mut rest = *range;
            while !rest.is_empty() {
                let part = FileRange {
                    len: Bytes(rest.len.get().min(left)),
                    ..rest
                };
                rest = FileRange::between(part.end(), rest.end());
                left -= part.len.get();
                slice.push(part);
                if left == 0 {
                    self.copy_slice(from, to, &mut slice)?;
                    left = size;
                }
            }
        }
        self.copy_slice(from, to, &mut slice)
    }
}
