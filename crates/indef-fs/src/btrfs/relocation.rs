//! The steps: read ahead, rewrite, write back, look at the result.
//!
//! ```text
//! window ──▶ batch k+1: being read ahead   │ batch k: ioctl, ioctl, … ──▶ writeback
//!                                          │ batch k−1: writeback over? compare, restore cache
//!                                          │ after some of these: begin a commit
//! ```
//!
//! A window of up to 32 MiB of ranges is mapped at a time, so that memory does not grow with the
//! file and the map is fresh; the parts of it that can be moved and pay for themselves are its
//! pieces.
//!
//! A batch is 16 MiB of ranges (more only where fragments are of several MiB) that are written back
//! together, so that the allocator sees them as a whole; its size also bounds how much is dirty
//! because of us.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use indef_core::{SkipReason, layout::Layout};
use linux_abi::{
    btrfs::defrag_range,
    cache::{start_writeback, wait_writeback, write_and_wait},
    fiemap::Mapper,
};
use rustix::fs::{IFlags, ioctl_getflags};
use units::{Bytes, FileOffset, FileRange};

use super::{
    again::rewrite_again,
    batch::{Batch, CalledRange, Defragmented, moved_bytes},
    call::{CALL, Recent, interrupted, locked, piece_of, refuse},
    commits::Commits,
    compression::{CompressionWay, Rules},
    known::make_known,
    pieces::{CLUSTER, RewritePiece, movable, reclaimable, still_movable},
    reader::Prefetch,
    space::{LEAST_RESERVE, RESERVE, Room, amount, room},
};
use crate::{
    CacheRecord, CountedRange, Filesystem, Moved, Refusal, Relocation, Step, StepLimit, Target,
    cache::{cached_pages, page},
    kind::BTRFS_BATCH,
    map,
};

/// The most that is written back together: the longest extent that Btrfs makes.
const LARGEST_BATCH: Bytes = Bytes::mib(128);
/// The first batch where it is not known whether there is room in one piece.
const CAUTIOUS: Bytes = Bytes::mib(1);
/// New places shall be this many times as long as the old ones, at least.
const FACTOR: u64 = 4;
/// The bytes of ranges that are mapped at a time.
const WINDOW: Bytes = Bytes::mib(32);
/// A map as old as this is looked at again before data is moved.
const FRESH: Duration = Duration::from_millis(500);
/// Read ahead of the ioctl by this much.
const AHEAD: Bytes = Bytes::mib(8);
/// One advice to read ahead.
const READ: Bytes = Bytes::mib(1);
/// Every extent shorter than this is rewritten: all of them.
const THRESHOLD: u32 = u32::MAX;
/// How often what the kernel left out is asked for again, to give space back.
const AGAIN: u32 = 3;
/// A signal makes the ioctl give up; it is tried again, but not for ever.
const INTERRUPTS: u32 = 1000;

/// See [`crate::Relocator::begin`].
pub(super) struct BtrfsRelocation<'a> {
    target: &'a Target,
    commits: &'a Commits,
    mapper: Mapper,
    reader: Prefetch,
    rules: Rules,
    /// The options allow sharing to be given up.
    allow_unshare: bool,
    /// Shared extents may be moved.
    may_unshare: bool,
    /// Maps as old as this are looked at again.
    fresh: Duration,
    /// Extents shall come free, however few fragments the ranges have.
    reclaim: bool,
    /// Where the last window cut a range.
    cut_at: Option<FileOffset>,
    /// Ranges that no window has taken yet.
    ranges: VecDeque<FileRange>,
    /// Pieces that no batch has taken yet, each with its map.
    pieces: VecDeque<(RewritePiece, Layout)>,
    /// When the pieces were mapped.
    mapped: Instant,
    room: Room,
    recent: Recent,
    /// Mapped, being read ahead; the first is being rewritten.
    open: VecDeque<Batch>,
    /// Part and offset of the next ioctl in the first open batch.
    at: (usize, Bytes),
    /// Rewritten bytes of the open batches; read-ahead bytes of them.
    rewritten: Bytes,
    read: Bytes,
    /// Under writeback.
    writing: Option<Batch>,
    /// Why parts were left out.
    left_out: Option<SkipReason>,
    /// Why nothing more is begun, though there was more.
    ended: Option<SkipReason>,
    moved_any: bool,
    interrupts: u32,
}

/// See "Sharing is kept" in the module above.
fn is_written_in_place(target: &Target) -> bool {
    ioctl_getflags(&target.file).is_ok_and(|flags| flags.contains(IFlags::NOCOW))
}

/// The map of a range and one block on either side.
fn map_around(
    target: &Target,
    range: FileRange,
    sync: bool,
    mapper: &mut Mapper,
) -> Result<Layout, Refusal> {
    let block = target.block_size;
    let start = FileOffset(range.start.get().saturating_sub(block.get()));
    let around = FileRange::between(start, range.end() + block);
    map(&target.file, &target.path, around, sync, mapper)
}

impl<'a> BtrfsRelocation<'a> {
    /// Map until there is something to move; or say why there is nothing.
    pub(super) fn begin(
        (fs, commits): (&Filesystem, &'a Commits),
        allow_unshare: bool,
        reclaim: bool,
        target: &'a Target,
        ranges: &[CountedRange],
    ) -> Result<Self, Refusal> {
        let file = FileRange::new(0, target.size.get()).align_outward(target.block_size);
        let inside = |range: FileRange| range.align_outward(target.block_size).intersect(file);
        let ranges = ranges.iter().map(|counted| counted.range);
        let total: Bytes = ranges.clone().map(|range| range.len).sum();
        let in_place = is_written_in_place(target);
        let mut new = Self {
            reader: Prefetch::new(&target.file, total > AHEAD),
            target,
            commits,
            mapper: Mapper::default(),
            rules: Rules::of(fs, target),
            allow_unshare,
            may_unshare: allow_unshare && !in_place,
            fresh: if in_place { Duration::ZERO } else { FRESH },
            reclaim,
            ranges: ranges.map(inside).filter(|r| !r.is_empty()).collect(),
            cut_at: None,
            pieces: VecDeque::new(),
            mapped: Instant::now(),
            room: Room::Short,
            recent: Recent::new(),
            open: VecDeque::new(),
            at: (0, Bytes::ZERO),
            rewritten: Bytes::ZERO,
            read: Bytes::ZERO,
            writing: None,
            left_out: None,
            ended: None,
            moved_any: false,
            interrupts: 0,
        };
        if new.ranges.is_empty() {
            return Err(SkipReason::OutOfRange.into());
        }
        while new.pieces.is_empty() && !new.ranges.is_empty() {
            new.next_window()?;
        }
        if new.pieces.is_empty() {
            return Err(new.left_out.unwrap_or(SkipReason::Empty).into());
        }
        Ok(new)
    }

    /// Map the next ranges, and take the parts of them that can be moved and are worth it.
    fn next_window(&mut self) -> Result<(), Refusal> {
        self.mapped = Instant::now();
        let mut rest = WINDOW;
        while !rest.is_zero()
            && let Some(range) = self.ranges.pop_front()
        {
            // What is let go of is planned in parts of one extent each: none is cut, as the end of a compressed
            // one may be too short to compress.
            let part = FileRange {
                start: range.start,
                len: if self.reclaim {
                    range.len
                } else {
                    range.len.min(rest)
                },
            };
            let later = FileRange::between(part.end(), range.end());
            let cut = !later.is_empty() || self.cut_at == Some(part.start);
            if !later.is_empty() {
                self.ranges.push_front(later);
                self.cut_at = Some(later.start);
            }
            rest = rest.saturating_sub(part.len);
            let layout = map_around(self.target, part, false, &mut self.mapper)?;
            self.select(&layout, part, cut);
            if layout.clipped(part).next().is_none() {
                self.skip_hole()?;
            }
        }
        let wanted: Bytes = self.pieces.iter().map(|(piece, _)| piece.range.len).sum();
        let fragments: u64 = self.pieces.iter().map(|(piece, _)| piece.fragments).sum();
        if let Some(average) = wanted.get().checked_div(fragments) {
            let average = Bytes(average);
            let (length, reserve) = match self.reclaim {
                true => (average, LEAST_RESERVE),
                false => (average * FACTOR, RESERVE),
            };
            let wanted = self.recent.bytes() + wanted;
            self.room = room(self.target, wanted, length, reserve);
            if self.room == Room::Short {
                self.leave_out_rest(SkipReason::NoSpace);
            }
        }
        Ok(())
    }

    /// Begin the next window where data is, since this one held none: a hole of many TiB is not
    /// walked through.
    fn skip_hole(&mut self) -> Result<(), Refusal> {
        while let Some(range) = self.ranges.front_mut() {
            let at = rustix::fs::SeekFrom::Data(range.start.get());
            let data = match rustix::fs::seek(&self.target.file, at) {
                Ok(data) => data,
                // No data follows.
                Err(rustix::io::Errno::NXIO) => u64::MAX,
                Err(errno) => return Err(self.target.error("look for data", None, errno).into()),
            };
            let data = FileOffset(data).align_down(self.target.block_size);
            *range = FileRange::between(data.max(range.start), range.end());
            if !range.is_empty() {
                break;
            }
            self.ranges.pop_front();
        }
        Ok(())
    }

    fn select(&mut self, layout: &Layout, part: FileRange, cut: bool) {
        let found = match self.reclaim {
            true => reclaimable(layout, part),
            false => movable(layout, part, self.may_unshare, cut),
        };
        for reason in found.reasons {
            let reason = self.told(reason);
            self.note(reason);
        }
        for mut piece in found.pieces {
            match self.rules.way(self.target, piece.range, piece.encoded) {
                Ok(way) => {
                    piece.way = way;
                    let before = Layout::new(layout.clipped(piece.range).collect());
                    self.pieces.push_back((piece, before));
                }
                Err(reason) => self.note(reason),
            }
        }
    }

    /// A reason in the words of what is to be done.
    fn told(&self, reason: SkipReason) -> SkipReason {
        match reason {
            // Nothing is gained by giving the sharing up.
            SkipReason::Shared if self.reclaim => SkipReason::HeldByOthers,
            SkipReason::Shared if self.allow_unshare => SkipReason::KeepsSharing,
            reason => reason,
        }
    }

    /// Remember why something was left out: `Contiguous` is the least particular reason.
    fn note(&mut self, reason: SkipReason) {
        if self
            .left_out
            .is_none_or(|old| old == SkipReason::Contiguous)
        {
            self.left_out = Some(reason);
        }
    }

    /// How large the next batch is: several fragments, so that even if each batch gets a place of
    /// its own there are fewer than before.
    fn batch_size(&self) -> Result<Bytes, Refusal> {
        let several = self
            .pieces
            .front()
            .map_or(Bytes::ZERO, |(piece, _)| piece.average() * 4);
        let size = match self.room {
            Room::Perhaps if !self.moved_any => CAUTIOUS,
            _ => several.clamp(BTRFS_BATCH, LARGEST_BATCH),
        };
        let wanted: Bytes = self.pieces.iter().map(|(piece, _)| piece.range.len).sum();
        let size = size.min(wanted);
        let reserve = match self.reclaim {
            true => LEAST_RESERVE,
            false => RESERVE,
        };
        if amount(self.target, size, reserve) {
            Ok(size)
        } else {
            Err(SkipReason::NoSpace.into())
        }
    }

    /// Take the next pieces, up to the size of a batch.
    fn open_batch(&mut self) -> Result<(), Refusal> {
        if self.pieces.is_empty() {
            self.next_window()?;
        }
        let mut batch = Batch::default();
        let mut rest = self.batch_size()?;
        while !rest.is_zero()
            && let Some((piece, layout)) = self.pieces.front_mut()
        {
            // A cut end of a compressed part may be too short to compress.
            let is_whole = self.reclaim && piece.encoded;
            let part = FileRange {
                start: piece.range.start,
                len: if is_whole {
                    piece.range.len
                } else {
                    piece.range.len.min(rest)
                },
            };
            rest = rest.saturating_sub(part.len);
            batch.parts.push(CalledRange {
                range: part,
                way: piece.way,
                encoded: piece.encoded,
                before: Layout::new(layout.clipped(part).collect()),
                mapped: self.mapped,
                cached: CacheRecord::of(self.target, part),
            });
            piece.range = FileRange::between(part.end(), piece.range.end());
            if piece.range.is_empty() {
                self.pieces.pop_front();
            }
        }
        if !batch.parts.is_empty() {
            self.open.push_back(batch);
        }
        Ok(())
    }

    /// Keep [`AHEAD`] bytes on their way into the cache.
    fn read_on(&mut self) -> Result<Bytes, Refusal> {
        let mut host_read = Bytes::ZERO;
        loop {
            let opened: Bytes = self.open.iter().map(Batch::len).sum();
            if self.read >= self.rewritten + AHEAD {
                return Ok(host_read);
            }
            if self.read < opened {
                let range = self.next_read();
                let cached = cached_pages(&self.target.file, range).unwrap_or(0);
                host_read += range.len.saturating_sub(page() * cached);
                self.reader.ask(&self.target.file, range);
                self.read += range.len;
            } else if self.pieces.is_empty() && self.ranges.is_empty() {
                return Ok(host_read);
            } else {
                match self.open_batch() {
                    Err(Refusal::Skip(reason)) => self.leave_out_rest(reason),
                    other => other?,
                }
            }
        }
    }

    /// Finish the work that is begun, and begin nothing more.
    fn leave_out_rest(&mut self, reason: SkipReason) {
        self.left_out = Some(reason);
        if !(self.ranges.is_empty() && self.pieces.is_empty()) {
            self.ended = Some(reason);
        }
        self.ranges.clear();
        self.pieces.clear();
    }

    /// The range at `self.read` bytes into the open batches.
    fn next_read(&self) -> FileRange {
        let mut skip = self.read;
        for part in self.open.iter().flat_map(|batch| &batch.parts) {
            if skip < part.range.len {
                let len = READ.min(part.range.len - skip);
                let start = part.range.start + skip;
                return FileRange { start, len };
            }
            skip -= part.range.len;
        }
        FileRange::default()
    }

    /// Rewrite the next range of the first open batch.
    fn rewrite(&mut self) -> Result<Moved, Refusal> {
        let Some(part) = self
            .open
            .front()
            .and_then(|batch| batch.parts.get(self.at.0))
        else {
            return Ok(Moved::default());
        };
        let (range, way, encoded) = (part.range, part.way, part.encoded);
        let start = range.start + self.at.1;
        // A call lets go of the locks after each cluster; a range that is cut into calls may become
        // as many extents.
        let limit = CALL;
        let len = piece_of(range.end() - start, way, limit, self.target.block_size);
        if part.mapped.elapsed() >= self.fresh {
            let now = FileRange { start, len };
            let layout = map_around(self.target, now, false, &mut self.mapper)?;
            if let Err(reason) = still_movable(&layout, now, encoded, self.may_unshare) {
                return self.rewrite_failed(reason.into());
            }
        }
        if self.at.1.is_zero() && range.len > CLUSTER && range.end().get() >= self.target.size.get()
        {
            // Without it some of the end may stay.
            if let Err(error) = make_known(self.target, range) {
                tracing::debug!(%error, "the kernel may not know where the end of the file lies");
            }
        }
        let way = match self.reclaim {
            // Nothing may stay, or nothing comes free.
            true => way,
            false => part.way_of(self.at.1, len),
        };
        if way == CompressionWay::Every && !self.at.1.is_zero() {
            // The call would write all of it, and its time tell nothing of locks.
            self.write_back(FileRange::between(range.start, start))?;
        }
        let begun = Instant::now();
        let result = defrag_range(
            &self.target.file,
            start.get(),
            len.get(),
            way.flags(),
            THRESHOLD,
            way.compression(),
        );
        let elapsed = begun.elapsed();
        match result {
            Ok(()) => {}
            Err(error) if interrupted(&error) && self.interrupts < INTERRUPTS => {
                self.interrupts += 1;
                return Ok(Moved::default());
            }
            Err(error) => return self.rewrite_failed(refuse(self.target, start, error)),
        }
        self.recent.add(len);
        self.rewritten += len;
        self.at.1 += len;
        if self.at.1 >= range.len {
            self.at = (self.at.0 + 1, Bytes::ZERO);
        }
        Ok(locked(elapsed, len))
    }

    /// End the relocation after a refusal of the kernel; ranges that are rewritten so far are still
    /// seen through.
    fn rewrite_failed(&mut self, refusal: Refusal) -> Result<Moved, Refusal> {
        let Refusal::Skip(reason) = refusal else {
            return Err(refusal);
        };
        let reason = self.told(reason);
        self.leave_out_rest(reason);
        self.ended = Some(reason);
        // The part that failed may be rewritten in part: it is looked at, too.
        self.give_up_open(self.at.0 + 1);
        self.at.0 += 1;
        Ok(Moved::default())
    }

    /// Give up the open batches, but for the first `parts` of the first one.
    fn give_up_open(&mut self, parts: usize) {
        self.reader.wait(self.reader.asked());
        let later = self.open.split_off(self.open.len().min(1));
        let first = self.open.front_mut();
        let given_up = first.map(|batch| batch.parts.split_off(parts.min(batch.parts.len())));
        let later = later.into_iter().flat_map(|batch| batch.parts);
        for part in given_up.into_iter().flatten().chain(later) {
            part.cached.restore(&self.target.file);
        }
    }

    /// Start to write back a range that is rewritten.
    fn write_back(&self, range: FileRange) -> Result<(), Refusal> {
        let (start, len) = (range.start.get(), range.len.get());
        let started = start_writeback(&self.target.file, start, len);
        Ok(started.map_err(|error| self.target.error("write moved data back", None, error))?)
    }

    /// Start the writeback of the first open batch, which is rewritten, and look at the outcome of
    /// the one before.
    fn close_batch(&mut self) -> Result<Moved, Refusal> {
        let Some(mut batch) = self.open.pop_front() else {
            return Ok(Moved::default());
        };
        batch.asked = self.reader.asked();
        self.at = (0, Bytes::ZERO);
        self.rewritten = self.rewritten.saturating_sub(batch.len());
        self.read = self.read.saturating_sub(batch.len());
        let parts = batch.parts.iter();
        let started = { parts }.try_for_each(|part| self.write_back(part.range));
        let before = self.writing.replace(batch);
        started?;
        before.map_or(Ok(Moved::default()), |batch| self.settle(batch, false))
    }

    /// Wait for a batch's writeback and compare. With `sync`, data that is not in the tree yet is
    /// waited for, too (the tree learns of a place a little after the writeback is over), else only
    /// where something seems to have stayed.
    fn settle(&mut self, batch: Batch, sync: bool) -> Result<Moved, Refusal> {
        let waited = batch.parts.iter().try_for_each(|part| {
            wait_writeback(
                &self.target.file,
                part.range.start.get(),
                part.range.len.get(),
            )
        });
        let compared = self.compare(&batch, sync).and_then(|outcome| {
            if !sync && outcome.relocated < batch.len() {
                return self.compare(&batch, true);
            }
            Ok(outcome)
        });
        let compared = compared.and_then(|outcome| match self.reclaim {
            true => self.complete(&batch, outcome),
            false => Ok(outcome),
        });
        self.reader.wait(batch.asked);
        // Data that somebody wrote meanwhile may be in the cache alone then; and of all who wait for data of the file the
        // kernel tells but one. What has a new place was written.
        waited.map_err(|error| self.target.unwritten("write moved data back", None, error))?;
        let outcome = compared?;
        if outcome.relocated == batch.len() {
            batch.restore_cache(self.target);
        }
        if !outcome.relocated.is_zero() {
            self.moved_any = true;
            self.commits.give_up(self.target, outcome.before);
        }
        let at_most = match self.reclaim {
            // Space is worth a few.
            true => outcome.before * 2 + 4,
            false => outcome.before,
        };
        if outcome.after > at_most {
            // Stop before more becomes worse: the free space is in smaller pieces than the file.
            self.leave_out_rest(SkipReason::NoSpace);
            self.reader.wait(self.reader.asked());
            for batch in self.open.drain(..) {
                self.ended = Some(SkipReason::NoSpace);
                batch.restore_cache(self.target);
            }
            (self.rewritten, self.read) = (Bytes::ZERO, Bytes::ZERO);
        }
        Ok(Moved {
            relocated: outcome.relocated,
            host_written: outcome.relocated,
            ..Moved::default()
        })
    }

    /// Rewrite what the kernel left where it was of a batch of which all shall move.
    fn complete(
        &mut self,
        batch: &Batch,
        mut outcome: Defragmented,
    ) -> Result<Defragmented, Refusal> {
        for _ in 0..AGAIN {
            if outcome.relocated >= batch.len() {
                break;
            }
            for part in &batch.parts {
                let now = map_around(self.target, part.range, true, &mut self.mapper)?;
                if let Err(error) = rewrite_again(self.target, part, &now, THRESHOLD) {
                    // It stays, and was not lost.
                    tracing::debug!(%error, "could not be rewritten again");
                    return Ok(outcome);
                }
            }
            outcome = self.compare(batch, true)?;
        }
        Ok(outcome)
    }

    fn compare(&mut self, batch: &Batch, sync: bool) -> Result<Defragmented, Refusal> {
        let mut outcome = Defragmented::default();
        for (i, part) in batch.parts.iter().enumerate() {
            let now = map_around(self.target, part.range, sync && i == 0, &mut self.mapper)?;
            outcome.before += part.before.fragments();
            outcome.after += now.fragments_in(part.range);
            outcome.relocated += moved_bytes(&part.before, &now);
        }
        Ok(outcome)
    }
}

impl Relocation for BtrfsRelocation<'_> {
    fn step(&mut self, _: StepLimit) -> Result<Step, Refusal> {
        let mut moved = Moved {
            host_read: self.read_on()?,
            ..Moved::default()
        };
        if self.open.is_empty() {
            if let Some(batch) = self.writing.take() {
                moved += self.settle(batch, true)?;
                if self.ended.is_some() {
                    // Why that was all is told by the next step.
                    return Ok(Step::Working(moved));
                }
            }
            // A file of which nothing could be moved is a skip, with its reason.
            let of_all = self.left_out.filter(|_| !self.moved_any);
            return match self.ended.or(of_all) {
                Some(reason) => Err(reason.into()),
                None => Ok(Step::Done(moved)),
            };
        }
        moved += self.rewrite()?;
        let parts = self.open.front().map_or(0, |batch| batch.parts.len());
        if self.at.0 >= parts {
            moved += self.close_batch()?;
        }
        Ok(Step::Working(moved))
    }

    fn end(&mut self) -> Result<Moved, Refusal> {
        self.leave_out_rest(SkipReason::Stopped);
        let (parts, len) = self.at;
        self.give_up_open(parts + usize::from(!len.is_zero()));
        let mut moved = Moved::default();
        match self.open.front_mut() {
            Some(batch) if !batch.parts.is_empty() => {
                if let Some(part) = batch.parts.get_mut(parts) {
                    part.end_at(len);
                }
                moved += self.close_batch()?;
            }
            _ => self.open.clear(),
        }
        if let Some(batch) = self.writing.take() {
            moved += self.settle(batch, false)?;
        }
        Ok(moved)
    }
}

impl Drop for BtrfsRelocation<'_> {
    fn drop(&mut self) {
        self.reader.wait(self.reader.asked());
        // Ended early: rewritten data is written back in any case.
        for batch in self.open.drain(..).chain(self.writing.take()) {
            for part in &batch.parts {
                let (start, len) = (part.range.start.get(), part.range.len.get());
                // What is cached stays: whether it could be written is not told twice.
                let _ = write_and_wait(&self.target.file, start, len);
            }
        }
    }
}
