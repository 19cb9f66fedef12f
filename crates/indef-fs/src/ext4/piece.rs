//! Moving the blocks of one piece into its donor's place, window by window.
//!
//! Three things go on at the same time, each ahead of the next: the device reads the data to be
//! moved next, the kernel moves data that is in memory, the device writes moved data. Moving is the
//! only one that holds the file's locks; it finds its pages in memory, so that it waits for
//! nothing.
//!
//! Linux 6.16 and newer may have the file cached in large folios. Before 6.19 they move a page at a
//! time, since then what an extent and a folio have in common (fs/ext4/move_extent.c). Either way a
//! move makes its folio dirty, and a dirty folio cannot let go of its mapping for the next move
//! before a journal commit, for which the kernel waits under the locks: one for each fragment that
//! does not end with its folio. So where files are cached in large folios at all
//! ([`folios`](super::folios)), cached data is dropped first and read again as single pages, each of
//! which is moved once. Data that cannot be dropped, since it is mapped, is moved page by page, and
//! each page is written back before the next one is moved: a clean folio lets go.
//!
//! From 6.19 on the kernel also makes a folio as large as the extent for data that is not cached, reads
//! it under the locks, each block with a request of its own, and moves it at once. Large fragments are
//! then fewer steps for whoever does not read ahead. Leaving such to the kernel is not done: it pays
//! only where the file and its donor begin alike, and where the kernel is known to move whole folios.

use std::{
    cell::RefCell,
    collections::VecDeque,
    fs::File,
    os::unix::fs::FileExt,
    time::{Duration, Instant},
};

use indef_core::{
    SkipReason,
    layout::{Extent, ExtentFlags},
};
use linux_abi::{
    cache::{cachestat, start_writeback, write_and_wait},
    ext4::{MoveResult, move_extents},
    fiemap::Mapper,
};
use rustix::io::Errno;
use units::{Bytes, FileOffset, FileRange, Nanos};

use super::{
    donor::{Donor, refuse},
    queue::{MoveQueue, WINDOW},
    shared::Shared,
    unsure::{InMemory, MAX_BUSY, TakenBack, Unsure, size},
};
use crate::{
    CacheRecord, Moved, NotTakenBack, Refusal, Target,
    cache::{READ_PIECE, cached_pages, drop_clean, page, read_ahead},
    map,
    survey::Survey,
};

/// Moved bytes are handed to the device in batches of this size.
const WRITE_BATCH: Bytes = Bytes::mib(1);

#[derive(Debug)]
struct Window {
    record: CacheRecord,
    /// Bytes that are not moved yet.
    left: Bytes,
    /// Part of it could not be dropped from the cache: move single pages.
    careful: bool,
}

/// Ranges with their common donor.
pub(super) struct DonorPiece<'a> {
    shared: &'a Shared,
    target: &'a Target,
    donor: Donor,
    donor_len: Bytes,
    queue: MoveQueue,
    windows: VecDeque<Window>,
    /// Read, or being read, and not moved yet.
    ahead: Bytes,
    /// Moved, and not yet handed to the device.
    dirty: Option<FileRange>,
    /// Handed to the device, and not waited for yet.
    unfinished: Option<FileRange>,
    /// All that moved and is perhaps not on the device yet.
    pub(super) unsure: Unsure,
    /// Why something that was moved is not on the device.
    failed: Option<std::io::Error>,
    /// Handed to the device.
    settling: Vec<CacheRecord>,
    busy: u32,
    /// Pages that may stay where they are, each a fragment amid the others, with half of the gain
    /// left.
    may_stay: u64,
    page: Bytes,
    /// The call that moves.
    pub(super) call: MoveCall,
}

/// [`move_extents`], or what a test has in its place.
pub(super) type MoveCall = fn(&File, &File, u64, u64, u64) -> MoveResult;

impl<'a> DonorPiece<'a> {
    pub(super) fn new(
        shared: &'a Shared,
        target: &'a Target,
        surveyed: Vec<(FileRange, Survey)>,
        donor: Donor,
    ) -> Self {
        let fragments = donor.fragments();
        let surveys = surveyed.iter().map(|(_, survey)| survey);
        let may_stay = surveys.map(|survey| survey.count.gain(fragments) / 4).sum();
        let donor_len = surveyed
            .last()
            .map_or(Bytes::ZERO, |(_, last)| last.donor_len);
        Self {
            shared,
            target,
            donor,
            donor_len,
            queue: MoveQueue::new(surveyed),
            windows: VecDeque::new(),
            ahead: Bytes::ZERO,
            dirty: None,
            unfinished: None,
            unsure: Unsure::default(),
            failed: None,
            settling: Vec::new(),
            busy: 0,
            may_stay,
            page: page(),
            call: |file, donor, at, place, blocks| move_extents(file, donor, at, place, blocks),
        }
    }

    /// Whether nothing is left to move.
    pub(super) fn is_done(&mut self, mapper: &mut Mapper) -> Result<bool, Refusal> {
        while self.queue.to_move.is_empty() && self.queue.has_more() {
            self.enter_window(mapper)?;
        }
        if self.queue.to_move.is_empty() {
            self.close_windows();
        }
        Ok(self.queue.to_move.is_empty())
    }

    /// Take the windows that were moved since the last call, and are written back in the
    /// background.
    pub(super) fn take_settling(&mut self) -> Vec<CacheRecord> {
        std::mem::take(&mut self.settling)
    }

    /// Move the next bytes, in one call into the kernel, `limit` bytes at most.
    pub(super) fn advance(
        &mut self,
        limit: Bytes,
        moved: &mut Moved,
        mapper: &mut Mapper,
    ) -> Result<(), Refusal> {
        self.read_ahead(moved, mapper)?;
        let Some(segment) = self.queue.to_move.front() else {
            return Ok(());
        };
        let careful = self.windows.front().is_some_and(|window| window.careful);
        let limit = if careful || self.busy > 0 {
            self.page.max(self.target.block_size)
        } else {
            limit
        };
        let mut part = FileRange {
            start: segment.range.start,
            len: segment.choose(limit, self.page),
        };
        let (donor, unwritten) = (segment.donor, segment.unwritten);
        let mut in_memory = InMemory::Nothing;
        if !unwritten || self.has_data(part, mapper)? {
            let Some(kept) = self.keep_in_memory(part)? else {
                return Ok(());
            };
            (part.len, in_memory) = kept;
            self.wait_written(part);
        }
        let passed = self.move_part(part, donor, in_memory, moved, mapper)?;
        self.pass(passed);
        Ok(())
    }

    /// Whether somebody has written to a range that was unwritten.
    fn has_data(&self, part: FileRange, mapper: &mut Mapper) -> Result<bool, Refusal> {
        let layout = map(&self.target.file, &self.target.path, part, false, mapper)?;
        let is_data = |extent: Extent| !extent.flags.contains(ExtentFlags::UNWRITTEN);
        Ok(layout.clipped(part).any(is_data))
    }

    /// Wait until a part is in memory, and let it stay there until it is on the device in its new place: should that fail, the
    /// way back needs it. Returns how much of it is in memory, of one window at most; `None` where what moved before could not
    /// be written.
    ///
    /// Pinning a page reads it. Through a descriptor without `O_NOATIME` that would touch the access time: then the kernel
    /// does the waiting, under the locks, and nothing is pinned.
    fn keep_in_memory(
        &mut self,
        mut part: FileRange,
    ) -> Result<Option<(Bytes, InMemory)>, Refusal> {
        let mut left = self.windows.iter().map(|window| window.left);
        if let Some(left) = left.find(|left| !left.is_zero()) {
            part.len = part.len.min(left);
        }
        if !self.target.noatime {
            return Ok(Some((part.len, InMemory::Perhaps)));
        }
        let mut pinned = self.unsure.pins.pin(&self.target.file, part);
        if pinned.is_zero() && !self.unsure.pins.is_empty() {
            // No more can be pinned before what is pinned is on the device.
            if !self.settle() {
                return Ok(None);
            }
            pinned = self.unsure.pins.pin(&self.target.file, part);
        }
        if pinned.is_zero() {
            self.wait_read(part)?;
            return Ok(Some((part.len, InMemory::Perhaps)));
        }
        Ok(Some((pinned, InMemory::Pinned)))
    }

    /// End the piece early: nothing more is moved, and data that was read in vain has arrived, so
    /// that it can be dropped.
    pub(super) fn abandon(&mut self) {
        let mut ahead = std::mem::take(&mut self.ahead);
        for segment in std::mem::take(&mut self.queue.to_move) {
            if !segment.unwritten {
                let len = segment.range.len.min(ahead);
                ahead -= len;
                let read = FileRange {
                    len,
                    ..segment.range
                };
                if len.is_zero() || self.wait_read(read).is_err() {
                    break;
                }
            }
        }
        self.close_windows();
    }

    /// Look at the next extents, and prepare the page cache for moving them.
    fn enter_window(&mut self, mapper: &mut Mapper) -> Result<(), Refusal> {
        let Some((hull, left)) = self.queue.fill(self.target, mapper)? else {
            return Ok(());
        };
        let record = CacheRecord::of(self.target, hull);
        let careful = record.any()
            && self.shared.caches_large_folios(self.target)
            && !self.prepare(record.range());
        self.windows.push_back(Window {
            record,
            left,
            careful,
        });
        Ok(())
    }

    /// Make sure that nothing of a window is cached. Returns `false` where something stays.
    fn prepare(&mut self, range: FileRange) -> bool {
        if self.drop_cached(range) {
            return true;
        }
        // It may have been written to since the survey.
        self.write_and_wait(range);
        self.drop_cached(range)
    }

    /// Have a range written, and wait for that. The kernel tells of a failure only once, whatever part of the file
    /// it concerns.
    fn write_and_wait(&mut self, range: FileRange) {
        let written = write_and_wait(&self.target.file, range.start.get(), range.len.get());
        if let Err(error) = written {
            self.note_failure(error);
        }
    }

    /// Wait until a range is on the device. `false` where it is not.
    pub(super) fn is_written(&mut self, range: FileRange) -> bool {
        self.write_and_wait(range);
        self.was_written()
    }

    /// Whether something that was moved may not be on the device.
    pub(super) fn has_failed(&self) -> bool {
        self.failed.is_some()
    }

    /// Note that it may not be.
    pub(super) fn note_failure(&mut self, error: std::io::Error) {
        self.shared.note_unwritten(self.target);
        self.failed.get_or_insert(error);
    }

    /// Drop the cached pages of a window. Returns `false` where something stays. A folio that
    /// reaches over the window's ends is only dropped together with the pages around it, which are
    /// read back.
    fn drop_cached(&self, range: FileRange) -> bool {
        let file = &self.target.file;
        let is_gone = || cached_pages(file, range).is_some_and(|pages| pages == 0);
        drop_clean(file, range);
        if is_gone() {
            return true;
        }
        let around = range.align_outward(WINDOW);
        if around != range {
            let before = FileRange::between(around.start, range.start);
            let behind = FileRange::between(range.end(), around.end());
            let sides = [before, behind].map(|side| CacheRecord::of(self.target, side));
            drop_clean(file, around);
            sides
                .iter()
                .filter(|side| side.any())
                .for_each(|side| side.restore(file));
        }
        is_gone()
    }

    /// Keep the configured number of bytes of reads in flight.
    fn read_ahead(&mut self, moved: &mut Moved, mapper: &mut Mapper) -> Result<(), Refusal> {
        while self.ahead < self.shared.read_ahead {
            let Some(range) = self.queue.to_read.front_mut() else {
                if !self.queue.has_more() {
                    break;
                }
                self.enter_window(mapper)?;
                continue;
            };
            let end = (range.start + READ_PIECE).align_down(READ_PIECE);
            let part = FileRange::between(range.start, end.min(range.end()));
            *range = FileRange::between(part.end(), range.end());
            if range.is_empty() {
                self.queue.to_read.pop_front();
            }
            read_ahead(&self.target.file, part);
            self.ahead += part.len;
            moved.host_read += part.len;
        }
        Ok(())
    }

    /// Wait until the range is in memory, where that does not touch the access time.
    fn wait_read(&self, range: FileRange) -> Result<(), Refusal> {
        thread_local! {
            static SCRATCH: RefCell<Vec<u8>> = RefCell::new(vec![0; READ_PIECE.get() as usize]);
        }
        if !self.target.noatime {
            return Ok(());
        }
        let mut at = range.start;
        SCRATCH.with_borrow_mut(|scratch| {
            while at < range.end() {
                let len = READ_PIECE.min(range.end() - at).get() as usize;
                let read = self.target.file.read_at(&mut scratch[..len], at.get());
                match read {
                    Ok(0) => break,
                    Ok(read) => at = at + Bytes(read as u64),
                    Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(self.target.error("read", Some(at), error).into()),
                }
            }
            Ok(())
        })
    }

    /// Wait for the writeback of data that somebody wrote a moment ago: the kernel would wait for
    /// it under the locks, a page at a time.
    fn wait_written(&mut self, range: FileRange) {
        let (start, len) = (range.start.get(), range.len.get());
        let waits = cachestat(&self.target.file, start, len)
            .is_ok_and(|counts| counts.nr_dirty + counts.nr_writeback > 0);
        if waits {
            self.write_and_wait(range);
        }
    }

    /// Make one call. Returns how many bytes are dealt with.
    fn move_part(
        &mut self,
        part: FileRange,
        donor: FileOffset,
        mut in_memory: InMemory,
        moved: &mut Moved,
        mapper: &mut Mapper,
    ) -> Result<Bytes, Refusal> {
        let block = self.target.block_size.get();
        let began = Instant::now();
        let outcome = (self.call)(
            &self.target.file,
            &self.donor.file,
            part.start.get() / block,
            (donor + self.donor.base).get() / block,
            part.len.get() / block,
        );
        moved.note_lock(Nanos::from(began.elapsed()), part.len);
        let told = Bytes(outcome.moved_blocks.saturating_mul(block)).min(part.len);
        let errno = { outcome.result.as_ref().err() }
            .map(|error| Errno::from_io_error(error).unwrap_or(Errno::IO));
        let places = match errno {
            None if told.is_zero() => Vec::new(),
            None => vec![(part, told)],
            Some(_) => self.moved_until_error(part, donor, mapper),
        };
        // Somebody may have written to it since the look.
        if in_memory == InMemory::Nothing && self.has_data(part, mapper).unwrap_or(true) {
            in_memory = InMemory::Perhaps;
        }
        for (range, bytes) in &places {
            let donor = donor + (range.start - part.start);
            self.unsure.note(*range, donor, in_memory, *bytes);
            self.note_dirty(*range);
            moved.relocated += *bytes;
            if in_memory != InMemory::Nothing {
                moved.host_written += *bytes;
            }
        }
        match errno {
            // Bytes that were not moved have become a hole meanwhile: the kernel went past it.
            None => {
                self.busy = 0;
                Ok(part.len)
            }
            Some(errno) => {
                let last = places.last();
                let passed = last.map_or(Bytes::ZERO, |(range, _)| range.end() - part.start);
                self.after_error(errno, part, passed)
            }
        }
    }

    /// The ranges that a call has moved which failed in the end, in order, each with its bytes. The kernel does not tell which:
    /// before 6.8 it says that nothing moved where it meets a hole at the end, or metadata that it cannot read; since then it
    /// leaves holes out of the count (`ext4_move_extents`, fs/ext4/move_extent.c). A call for what has moved would move it back.
    fn moved_until_error(
        &self,
        part: FileRange,
        donor: FileOffset,
        mapper: &mut Mapper,
    ) -> Vec<(FileRange, Bytes)> {
        match self.donor.given(self.target, part, donor, mapper) {
            Ok(given) => given.into_iter().map(|it| (it, it.len)).collect(),
            // All of it, perhaps.
            Err(_) => vec![(part, Bytes::ZERO)],
        }
    }

    fn after_error(
        &mut self,
        errno: Errno,
        part: FileRange,
        passed: Bytes,
    ) -> Result<Bytes, Refusal> {
        match errno {
            // Everything from here on is a hole now.
            Errno::NODATA => Ok(part.len),
            // Cut off meanwhile.
            Errno::INVAL if size(self.target) <= part.start.get() => {
                let segment = self.queue.to_move.front();
                Ok(segment.map_or(part.len, |segment| segment.range.len))
            }
            // Cut off, and grown again before the look at its size.
            Errno::INVAL if self.busy < MAX_BUSY => {
                self.busy += 1;
                Ok(passed)
            }
            // Again and again; if nobody is at it, the call is wrong.
            Errno::INVAL if !self.target.is_as_opened() => Err(SkipReason::Changed.into()),
            // A page is being used in a way that the kernel's own retries did not outlast.
            Errno::BUSY if self.busy < MAX_BUSY => {
                self.busy += 1;
                self.calm_down(part);
                Ok(passed)
            }
            Errno::BUSY if self.may_stay > 0 => {
                self.may_stay -= 1;
                self.busy = 0;
                Ok(part.len)
            }
            Errno::BUSY => Err(SkipReason::InUse.into()),
            errno => Err(refuse(self.target, "move extents", errno)),
        }
    }

    /// A page of the range was dirty, or its folio was, since somebody is writing to it: get it
    /// written and out of the cache, and in again on its own.
    fn calm_down(&mut self, part: FileRange) {
        std::thread::sleep(Duration::from_millis(u64::from(self.busy)));
        // It cannot be dropped while it is pinned.
        self.settle();
        self.write_and_wait(part);
        if self.shared.caches_large_folios(self.target) {
            self.drop_cached(part.align_outward(self.page));
            read_ahead(&self.target.file, part);
        }
    }

    /// Remove `passed` bytes from the beginning of the first segment.
    fn pass(&mut self, passed: Bytes) {
        let Some(segment) = self.queue.to_move.front_mut() else {
            return;
        };
        if !segment.unwritten {
            self.ahead = self.ahead.saturating_sub(passed);
        }
        segment.range = FileRange::between(segment.range.start + passed, segment.range.end());
        segment.donor = segment.donor + passed;
        if segment.range.is_empty() {
            self.queue.to_move.pop_front();
        }
        self.leave_windows(passed);
    }

    fn leave_windows(&mut self, mut passed: Bytes) {
        while let Some(window) = self.windows.front_mut() {
            let part = window.left.min(passed);
            window.left -= part;
            passed -= part;
            if !window.left.is_zero() {
                break;
            }
            self.write_back();
            self.unsure.pins.seal();
            if let Some(window) = self.windows.pop_front() {
                self.settling.push(window.record);
            }
            if self.donor_len > WINDOW {
                // The donor's own pages, which nobody reads.
                drop_clean(
                    &self.donor.file,
                    FileRange::new(self.donor.base.get(), self.donor_len.get()),
                );
            }
        }
    }

    fn close_windows(&mut self) {
        self.write_back();
        let windows = self.windows.drain(..);
        self.settling.extend(windows.map(|window| window.record));
    }

    /// Wait until the data that the last calls moved is on the device, and let go of its pages. `false` where it is not on the
    /// device.
    fn settle(&mut self) -> bool {
        let is_written = self.wait_for_moved();
        if is_written {
            self.unsure.unpin();
        }
        is_written
    }

    /// Wait until the data that the last calls moved is on the device. `false` where it is not.
    fn wait_for_moved(&mut self) -> bool {
        self.write_back();
        if let Some(range) = self.unfinished.take() {
            // Also what the kernel left out when it was told to begin.
            self.write_and_wait(range);
        }
        self.was_written()
    }

    /// Whether nobody was told of a failure.
    fn was_written(&mut self) -> bool {
        // Another worker may have been.
        if !self.unsure.is_empty() && self.shared.is_unwritten(self.target) {
            self.failed.get_or_insert_with(|| Errno::IO.into());
        }
        self.failed.is_none()
    }

    /// End a step before its commit: wait until the data that it moved is on the device. Where that fails, it is taken back to
    /// its old blocks, which still have it: the kernel commits a move whether or not its data could be written
    /// (`jbd2_journal_commit_transaction`, fs/jbd2/commit.c, v6.18), and with the cached pages it would be gone. A page that
    /// could not be written is clean, and so the next to be reclaimed, if it were not pinned.
    ///
    /// `is_alone` says that nobody else can have written to the file.
    pub(super) fn finish_writing(
        &mut self,
        moved: &mut Moved,
        is_alone: &dyn Fn() -> bool,
    ) -> Result<(), Refusal> {
        match self.wait_for_moved() {
            true => Ok(()),
            false => Err(self.give_up(moved, is_alone)),
        }
    }

    /// End a step after its commit. Of workers that wait for data of one file, the kernel tells one of a failure; if that was
    /// another one, it has noted so by now, and what moved is taken back all the same, for another commit.
    pub(super) fn conclude(
        &mut self,
        moved: &mut Moved,
        is_alone: &dyn Fn() -> bool,
    ) -> Result<(), Refusal> {
        if self.was_written() {
            self.unsure.forget();
            return Ok(());
        }
        Err(self.give_up(moved, is_alone))
    }

    /// Take back what moved. Returns why.
    fn give_up(&mut self, moved: &mut Moved, is_alone: &dyn Fn() -> bool) -> Refusal {
        let error = self.failed.take().unwrap_or_else(|| Errno::IO.into());
        let start = self.unsure.start();
        let mut failed = self.target.unwritten("write back moved data", start, error);
        let TakenBack { back, doubtful } =
            self.unsure
                .take_back(self.shared, self.target, &self.donor, is_alone);
        moved.relocated = moved.relocated.saturating_sub(back);
        if !doubtful.is_zero() {
            let path = self.target.path.display();
            tracing::error!(%path, bytes = %doubtful, "moved data could not be written, nor be taken back");
            // What is cached is all that there is.
            self.windows.clear();
            self.settling.clear();
            let (bytes, source) = (doubtful, failed.source);
            failed.source = NotTakenBack { bytes, source }.into();
        }
        failed.into()
    }

    fn note_dirty(&mut self, part: FileRange) {
        let hull = self.dirty.map_or(part, |dirty| hull(dirty, part));
        self.dirty = Some(hull);
        if hull.len >= WRITE_BATCH {
            self.write_back();
        }
    }

    /// Hand moved data to the device.
    fn write_back(&mut self) {
        if let Some(dirty) = self.dirty.take() {
            self.unfinished = Some(self.unfinished.map_or(dirty, |before| hull(before, dirty)));
            // An error is reported by whoever waits for it.
            let _ = start_writeback(&self.target.file, dirty.start.get(), dirty.len.get());
        }
    }
}

/// The smallest range that contains both.
fn hull(a: FileRange, b: FileRange) -> FileRange {
    FileRange::between(a.start.min(b.start), a.end().max(b.end()))
}
