//! `xfs-commit-range`: exchange ranges of the file with those of a donor, piece by piece
//! (`XFS_IOC_COMMIT_RANGE`).
//!
//! ```text
//! allocate ─▶ ( look ─▶ wait ─▶ barrier ─▶ map ─▶ copy ─▶ sync ─▶ exchange )* ─▶ Done
//! ```
//!
//! A piece is as long as a step may be, but ends where an extent of the file ends, and has at least
//! two of them: then the file has no more fragments after any piece than before it, even if no
//! other follows. Only copied data is exchanged, so a piece may have gaps, and one exchange serves
//! many small ranges.
//!
//! A piece whose file changed meanwhile is tried again, smaller. A file that is written all the time
//! is left alone in the end.
//!
//! The exchange gives the file everything that the donor has *written* in the span of the piece. So
//! before each exchange, the donor must have exactly the ranges written that the file has, by a map
//! made after freshness was taken: otherwise the copy of an earlier try would return where the file
//! has a hole by now, or zeros.
//!
//! A piece with a gap never reaches from the beginning of the file to its end. Such an exchange
//! swaps, too, whether the two files are known to share blocks (`xmi_can_exchange_reflink_flags`,
//! fs/xfs/libxfs/xfs_exchmaps.c, v6.18), although the file keeps the ranges that the donor has not
//! written. A file that keeps shared blocks and is no longer known to share is written in place:
//! its clones change with it, and with reverse mapping the file system may shut down.

use std::{collections::VecDeque, fs::File};

use indef_core::{
    SkipReason,
    layout::{Layout, Row},
};
use linux_abi::{
    xfs::{CommitFlags, Freshness, XfsGeometry, commit_range, start_commit},
    xfs_handle::open_unnoticed,
};
use rustix::{
    fs::{AtFlags, OFlags, StatxFlags, fgetxattr, fstat, statx},
    io::Errno,
    thread::CapabilitySet,
};
use units::{Bytes, FileOffset, FileRange};

use super::{
    cached::{Cached, is_dirty},
    donor::{Donor, allocated_runs, is_shared, runs},
    file::{admit, map_file, open_direct, refuse, refuse_data, timed, whole},
    freshness::Sample,
    offload::{Copied, Offload, Pin},
    select::{choose, gain, replaced},
    turn::Turns,
};
use crate::{
    CountedRange, EngineKind, FsError, Moved, RangeCopier, Refusal, Relocation, Relocator, Step,
    StepLimit, Target,
    aim::{Aim, Kept, LANDINGS},
};

/// Blocks that are allocated ahead of copying, so that they are in one piece; free space of this
/// size is needed, however large the file is.
const AHEAD: u64 = 1 << 30;

/// Bytes copied between two looks at the clock, and at whether the file has changed.
const COPY_STEP: u64 = 32 << 20;

/// How often a piece is tried, each time with a quarter of the size.
const TRIES: u32 = 4;

/// The smallest piece that is tried.
const SMALLEST_PIECE: u64 = 256 << 10;

/// The engine.
#[derive(Debug)]
pub(super) struct CommitRange {
    pub(super) allow_unshare: bool,
    /// The device copies.
    pub(super) offload: Option<Offload>,
    /// Rows of the device that data is placed in.
    pub(super) row: Option<Row>,
    pub(super) turns: Turns,
    pub(super) aim: Aim,
    /// Where a region is vacated, the donors with what lay there.
    pub(super) kept: Kept,
}

impl Relocator for CommitRange {
    fn name(&self) -> &'static str {
        self.kind().name()
    }

    fn admit(&self, target: &Target) -> Result<(), Refusal> {
        self.look(target).map(drop)
    }

    fn writes_per_byte(&self) -> u64 {
        self.kind().writes_per_byte()
    }

    fn begin<'a>(
        &'a self,
        target: &'a Target,
        ranges: &[CountedRange],
        copier: &'a dyn RangeCopier,
    ) -> Result<Box<dyn Relocation + 'a>, Refusal> {
        let geometry = self.look(target)?;
        let sample = Sample::take(target)?;
        sample.settle();
        let file = whole(sample.size, target.block_size);
        // Used to choose and to allocate; each piece is written back and mapped before it is
        // copied.
        let layout = map_file(target, file, false)?;
        let ranges: Vec<_> = ranges.iter().map(|counted| counted.range).collect();
        let chosen = choose(
            &layout,
            &ranges,
            file,
            target.block_size,
            self.allow_unshare,
            self.aim,
        )?;
        let donor = Donor::new(target, OFlags::DIRECT)?;
        let mut commit = Commit {
            source: open_direct(target)?,
            unnoticed: open_again(target)?,
            target,
            copier,
            offload: self.offload.as_ref(),
            row: self.row,
            turns: &self.turns,
            aim: self.aim,
            kept: &self.kept,
            allow_unshare: self.allow_unshare,
            refused: false,
            geometry,
            sample,
            layout,
            donor,
            chosen: chosen.into(),
            allocated: VecDeque::new(),
            piece: None,
            tries: 0,
            progress: false,
        };
        commit.allocate_ahead()?;
        if commit.allocated.is_empty() {
            return Err(self.aim.no_donor().into());
        }
        Ok(Box::new(commit))
    }

    fn settle(&self) -> Vec<FsError> {
        if let Some(offload) = &self.offload {
            offload.settle();
        }
        Vec::new()
    }
}

impl CommitRange {
    fn kind(&self) -> EngineKind {
        match self.offload {
            Some(_) => EngineKind::XfsOffload,
            None => EngineKind::XfsCommitRange,
        }
    }

    fn look(&self, target: &Target) -> Result<XfsGeometry, Refusal> {
        let geometry = admit(target)?;
        // An exchange takes away capabilities, and without CAP_FSETID set-user-id, as a write would
        // (`xfs_exchange_range_finish`, fs/xfs/xfs_exchrange.c, v6.12).
        match fgetxattr(&target.file, "security.capability", &mut [0_u8; 0]) {
            Err(Errno::NODATA | Errno::OPNOTSUPP) => {}
            _ => return Err(SkipReason::Unsupported.into()),
        }
        let may_keep = || {
            rustix::thread::capabilities(None)
                .is_ok_and(|sets| sets.effective.contains(CapabilitySet::FSETID))
        };
        if target.mode & 0o6000 != 0 && !may_keep() {
            return Err(SkipReason::NotPermitted.into());
        }
        Ok(geometry)
    }
}

/// Open the target again, so that an exchange leaves its times alone.
fn open_again(target: &Target) -> Result<File, Refusal> {
    let fail = |error| refuse(target, "open by handle", None, error);
    let mount = |fd: &File| {
        statx(fd, "", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID)
            .map(|status| status.stx_mnt_id)
            .map_err(|errno| fail(errno.into()))
    };
    let directory = target
        .open_directory()
        .map_err(|errno| fail(errno.into()))?;
    // A single file can be mounted into a directory of another file system.
    if mount(&directory)? != mount(&target.file)? {
        return Err(SkipReason::Unsupported.into());
    }
    let file = File::from(open_unnoticed(&target.file, &directory).map_err(fail)?);
    let status = fstat(&file).map_err(|errno| fail(errno.into()))?;
    if (status.st_dev, status.st_ino) == (target.id.dev, target.id.inode) {
        Ok(file)
    } else {
        Err(SkipReason::Changed.into())
    }
}

/// Ranges that are copied and exchanged together.
struct ExchangePiece<'a> {
    /// Parts of the file, ordered.
    ranges: Vec<FileRange>,
    freshness: Freshness,
    sample: Sample,
    /// Where the ranges are now.
    layout: Layout,
    /// The written parts of the ranges, in runs: the donor must have these written, and nothing
    /// else.
    written: Vec<FileRange>,
    /// The written parts that are still to be copied.
    copies: VecDeque<FileRange>,
    /// The length of all written parts.
    bytes: Bytes,
    /// The part of their span that was in the page cache.
    cached: Cached,
    /// The source of the device's copies.
    pin: Option<Pin<'a>>,
}

impl ExchangePiece<'_> {
    /// Whether somebody else shares some of it.
    fn is_shared(&self, layout: &Layout) -> bool {
        let mut ranges = self.ranges.iter();
        ranges.any(|range| is_shared(layout, *range))
    }
}

/// From the first to the last byte of ordered ranges.
fn span(ranges: &[FileRange]) -> FileRange {
    match (ranges.first(), ranges.last()) {
        (Some(first), Some(last)) => FileRange::between(first.start, last.end()),
        _ => FileRange::default(),
    }
}

/// The written runs of ordered ranges; those that touch are one.
fn written(layout: &Layout, ranges: &[FileRange]) -> Vec<FileRange> {
    let mut written: Vec<FileRange> = Vec::new();
    for run in ranges.iter().flat_map(|range| runs(layout, *range, true)) {
        match written.last_mut() {
            Some(last) if last.end() == run.start => last.len += run.len,
            _ => written.push(run),
        }
    }
    written
}

/// How many fragments fewer the file has once its `written` runs lie where the donor has them.
fn change(layout: &Layout, donor: &Layout, written: &[FileRange], block_size: Bytes) -> i64 {
    let hull = span(written);
    let around = FileRange::between(
        FileOffset(hull.start.get().saturating_sub(block_size.get())),
        hull.end() + block_size,
    );
    let after = replaced(layout, donor, written, around).fragments();
    layout.fragments_in(around) as i64 - after as i64
}

/// A file on its way.
struct Commit<'a> {
    target: &'a Target,
    copier: &'a dyn RangeCopier,
    offload: Option<&'a Offload>,
    row: Option<Row>,
    turns: &'a Turns,
    aim: Aim,
    kept: &'a Kept,
    allow_unshare: bool,
    /// The device has refused to copy: the host does.
    refused: bool,
    geometry: XfsGeometry,
    /// The file when we began.
    sample: Sample,
    /// For direct reads.
    source: File,
    /// For exchanges.
    unnoticed: File,
    donor: Donor<'a>,
    /// Of the whole file, when we began.
    layout: Layout,
    /// Ranges to be moved that have no blocks in the donor yet.
    chosen: VecDeque<FileRange>,
    /// Ranges to be moved that have blocks in the donor.
    allocated: VecDeque<FileRange>,
    piece: Option<ExchangePiece<'a>>,
    /// How often in a row the file had changed.
    tries: u32,
    /// Something was moved.
    progress: bool,
}

impl Relocation for Commit<'_> {
    fn step(&mut self, limit: StepLimit) -> Result<Step, Refusal> {
        self.advance(limit)
            .map_err(|refusal| self.sample.explain(self.target, refusal))
    }
}

impl<'a> Commit<'a> {
    fn advance(&mut self, limit: StepLimit) -> Result<Step, Refusal> {
        let mut moved = Moved::default();
        let mut piece = match self.piece.take() {
            Some(piece) => piece,
            None if self.allocated.is_empty() => return Ok(Step::Done(moved)),
            None => {
                let ranges = self.next_ranges(limit.bytes);
                match self.look(ranges)? {
                    Some(piece) => piece,
                    None => return Ok(Step::Working(moved)),
                }
            }
        };
        self.copy(&mut piece, &mut moved)?;
        if piece.sample != Sample::take(self.target)? {
            self.again(piece)?;
        } else if piece.copies.is_empty() {
            self.exchange(piece, &mut moved)?;
            if self.allocated.is_empty() {
                self.allocate_ahead()?;
            }
        } else {
            self.piece = Some(piece);
        }
        if self.piece.is_none() && self.allocated.is_empty() {
            return if self.progress {
                Ok(Step::Done(moved))
            } else {
                Err(SkipReason::NoGain.into())
            };
        }
        Ok(Step::Working(moved))
    }

    /// Make a donor with blocks for the next ranges. The old one is freed with the blocks that it
    /// got in exchange.
    fn allocate_ahead(&mut self) -> Result<(), Refusal> {
        while self.allocated.is_empty() && !self.chosen.is_empty() {
            let ranges = take(&mut self.chosen, &self.layout, Bytes(AHEAD));
            let mut new = self.allocate(&ranges)?;
            for _ in 0..LANDINGS {
                if !self.donor.keep_landed(&ranges, &new, self.aim, self.kept)? {
                    break;
                }
                new = self.allocate(&ranges)?;
            }
            for range in ranges {
                let is_better = gain(&self.layout, &new, range) >= self.aim.least_gain();
                if is_better && self.aim.allows(new.clipped(range)) {
                    self.allocated.push_back(range);
                } else {
                    self.donor.release(range)?;
                }
            }
        }
        Ok(())
    }

    /// Make a donor with blocks for `ranges`. Returns where they are.
    fn allocate(&mut self, ranges: &[FileRange]) -> Result<Layout, Refusal> {
        self.donor = Donor::new(self.target, OFlags::DIRECT)?;
        self.donor.open_up(self.sample.size)?;
        for range in ranges {
            for run in allocated_runs(&self.layout, *range) {
                if self.device().is_none() || !self.donor.allocate_written(run) {
                    self.donor.allocate_in_row(run, self.row)?;
                }
            }
        }
        self.donor
            .layout(whole(self.sample.size, self.target.block_size))
    }

    /// The ranges of the next piece.
    fn next_ranges(&mut self, limit: Bytes) -> Vec<FileRange> {
        let smaller = (limit.get() >> (2 * self.tries)).max(SMALLEST_PIECE);
        let limit = Bytes(smaller.min(limit.get()));
        let mut ranges = take(&mut self.allocated, &self.layout, limit);
        // See the module: never the whole file with something left out.
        let gaps = ranges.len() > 1;
        let is_whole = span(&ranges) == whole(self.sample.size, self.target.block_size);
        if let Some(last) = ranges.pop_if(|_| is_whole && gaps) {
            self.allocated.push_front(last);
        }
        ranges
    }

    /// Look at the file before copying; see the [module](super) for the order.
    fn look(&mut self, ranges: Vec<FileRange>) -> Result<Option<ExchangePiece<'a>>, Refusal> {
        let fail = |error| refuse(self.target, "prepare an exchange", None, error);
        let freshness = start_commit(&self.unnoticed).map_err(fail)?;
        let sample = Sample::take(self.target)?;
        if sample.size != self.sample.size {
            return Err(SkipReason::Changed.into());
        }
        sample.settle();
        let first = span(&ranges);
        let mut piece = ExchangePiece {
            cached: Cached::of(self.target, &self.layout, first),
            ranges,
            freshness,
            sample,
            layout: Layout::default(),
            written: Vec::new(),
            copies: VecDeque::new(),
            bytes: Bytes::ZERO,
            pin: None,
        };
        let block = FileRange {
            len: self.target.block_size.min(first.len),
            ..first
        };
        // A dry run waits for direct I/O, as the exchange itself would.
        match self.commit(&piece, block, CommitFlags::DRY_RUN) {
            Err(error) if Errno::from_io_error(&error) == Some(Errno::BUSY) => {
                self.again(piece)?;
                return Ok(None);
            }
            result => result.map_err(fail)?,
        }
        let around = FileRange::between(
            FileOffset(
                first
                    .start
                    .get()
                    .saturating_sub(self.target.block_size.get()),
            ),
            first.end() + self.target.block_size,
        );
        piece.layout = map_file(self.target, around, true)?;
        if !self.allow_unshare && piece.is_shared(&piece.layout) {
            return Err(SkipReason::Shared.into());
        }
        piece.written = written(&piece.layout, &piece.ranges);
        self.donor.keep_written(first, &piece.written)?;
        piece.copies = piece.written.clone().into();
        piece.bytes = piece.written.iter().map(|range| range.len).sum();
        if self.device().is_some() {
            let copies = piece.copies.make_contiguous();
            let pin = Pin::new(self.target, copies, self.sample.size)?;
            // Written between mapping and pinning.
            if !pin.is_what(&piece.layout, copies) {
                drop(pin);
                self.again(piece)?;
                return Ok(None);
            }
            piece.pin = Some(pin);
        }
        Ok(Some(piece))
    }

    fn commit(
        &self,
        piece: &ExchangePiece<'_>,
        range: FileRange,
        flags: CommitFlags,
    ) -> std::io::Result<()> {
        let end = range.end().get().min(self.sample.size.get());
        commit_range(
            &self.unnoticed,
            &self.donor.file,
            range.start.get(),
            end - range.start.get(),
            flags,
            piece.freshness,
        )
    }

    /// The device that copies instead of the host, unless it has refused.
    fn device(&self) -> Option<&'a Offload> {
        self.offload.filter(|_| !self.refused)
    }

    fn copy(&mut self, piece: &mut ExchangePiece<'_>, moved: &mut Moved) -> Result<(), Refusal> {
        let batch = take_bytes(&mut piece.copies, COPY_STEP);
        if let (Some(offload), Some(pin)) = (self.device(), &piece.pin) {
            match offload.copy(self.target, pin, &self.donor, &batch, self.copier, moved)? {
                Copied::Done => return Ok(()),
                Copied::Refused(why) => {
                    tracing::warn!(
                        path = %self.target.path.display(),
                        device = %offload.device.path.display(),
                        "the device does not copy ({why}): the rest goes through the host"
                    );
                    self.refused = true;
                }
            }
        }
        let bytes: Bytes = batch.iter().map(|range| range.len).sum();
        self.copier
            .copy(&self.source, &self.donor.file, &batch)
            .map_err(|error| refuse_data(self.target, &batch, error))?;
        moved.host_read += bytes;
        moved.host_written += bytes;
        Ok(())
    }

    fn exchange(&mut self, mut piece: ExchangePiece<'_>, moved: &mut Moved) -> Result<(), Refusal> {
        if piece.written.is_empty() {
            return Ok(());
        }
        // Direct writes of the last block have made the donor longer.
        self.donor.set_size(self.sample.size)?;
        let pin = piece.pin.take();
        if let (Some(_), Some(offload)) = (&pin, self.offload) {
            offload.flush(self.target, &self.donor)?;
        }
        self.donor.sync()?;
        let span = span(&piece.ranges);
        let turn = self.turns.wait(&self.geometry, &piece.layout, span);
        let new = self.donor.layout(span)?;
        if runs(&new, span, true) != piece.written {
            drop(pin);
            return self.start_over(piece);
        }
        if change(&piece.layout, &new, &piece.written, self.target.block_size) < 0 {
            // The file is not as it was when its pieces were cut.
            return Ok(());
        }
        // Durable before we can be killed, whatever was seen: see (5) in the module.
        let flags = CommitFlags::DONOR_WRITTEN | CommitFlags::DURABLE;
        // See (4) in the module.
        if is_dirty(self.target, span) != Some(false) || !self.is_as_copied(pin.as_ref(), &piece)? {
            drop(pin);
            return self.again(piece);
        }
        let (result, time) = timed(|| self.commit(&piece, span, flags));
        drop(pin);
        piece.cached.restore(self.target);
        match result {
            Ok(()) => {}
            Err(error) if Errno::from_io_error(&error) == Some(Errno::BUSY) => {
                return self.again(piece);
            }
            Err(error) => {
                return Err(refuse(
                    self.target,
                    "exchange a range",
                    Some(span.start),
                    error,
                ));
            }
        }
        // What lay in a region that is vacated stays with the donor.
        if !(self.aim.vacates() && self.donor.keep(self.kept)) {
            self.donor.give_back(span);
        }
        drop(turn);
        self.tries = 0;
        self.progress = true;
        moved.relocated += piece.bytes;
        moved.note_lock(time, piece.bytes);
        Ok(())
    }

    /// Whether the file still has data, zeros and holes where it had them, shares none of it unless
    /// it may, and has the very blocks that the device has copied from: a block that is written
    /// after the pin gets another place.
    fn is_as_copied(
        &self,
        pin: Option<&Pin<'_>>,
        piece: &ExchangePiece<'_>,
    ) -> Result<bool, Refusal> {
        let now = map_file(self.target, span(&piece.ranges), false)?;
        // A pin shares the blocks that it pins.
        let shared = pin.is_none() && !self.allow_unshare && piece.is_shared(&now);
        Ok(!shared
            && written(&now, &piece.ranges) == piece.written
            && pin.is_none_or(|pin| pin.is_what(&now, &piece.written)))
    }

    /// Replace a donor that has other ranges written than those copied for this piece: all ranges
    /// with blocks in it get new ones.
    fn start_over(&mut self, piece: ExchangePiece<'_>) -> Result<(), Refusal> {
        tracing::warn!(
            path = %self.target.path.display(),
            "the donor does not cover what the file does: trying with a new one"
        );
        self.again(piece)?;
        for range in self.allocated.drain(..).rev() {
            self.chosen.push_front(range);
        }
        self.allocate_ahead()
    }

    /// The file has changed: try once more, or give up.
    fn again(&mut self, piece: ExchangePiece<'_>) -> Result<(), Refusal> {
        self.tries += 1;
        if self.tries >= TRIES {
            return Err(SkipReason::Changed.into());
        }
        for range in piece.ranges.into_iter().rev() {
            self.allocated.push_front(range);
        }
        Ok(())
    }
}

/// Take up to `limit` bytes of ranges from the front, at least one part. A range is only cut where
/// an extent ends, and so that both parts have two extents at least.
fn take(from: &mut VecDeque<FileRange>, layout: &Layout, limit: Bytes) -> Vec<FileRange> {
    let mut taken: Vec<FileRange> = Vec::new();
    let mut room = limit.get();
    while let Some(range) = from.pop_front() {
        let (part, rest) = cut(range, layout, room);
        if !taken.is_empty() && part.len.get() > room {
            from.push_front(range);
            break;
        }
        room = room.saturating_sub(part.len.get());
        taken.push(part);
        if !rest.is_empty() {
            from.push_front(rest);
        }
        if room == 0 {
            break;
        }
    }
    taken
}

/// Cut `range` at the first end of an extent at or past `length` bytes, with two extents on either
/// side; else not at all.
fn cut(range: FileRange, layout: &Layout, length: u64) -> (FileRange, FileRange) {
    let wanted = range.start.get().saturating_add(length);
    let mut starts = layout
        .clipped(range)
        .map(|extent| extent.file)
        .enumerate()
        .skip_while(|&(index, start)| index < 2 || start.get() < wanted);
    let at = match (starts.next(), starts.next()) {
        (Some((_, start)), Some(_)) => start,
        _ => range.end(),
    };
    (
        FileRange::between(range.start, at),
        FileRange::between(at, range.end()),
    )
}

/// Take up to `most` bytes from the front.
pub(super) fn take_bytes(from: &mut VecDeque<FileRange>, most: u64) -> Vec<FileRange> {
    let mut taken = Vec::new();
    let mut room = most;
    while room > 0
        && let Some(range) = from.pop_front()
    {
        let part = FileRange::new(range.start.get(), range.len.get().min(room));
        let rest = FileRange::between(part.end(), range.end());
        if !rest.is_empty() {
            from.push_front(rest);
        }
        room -= part.len.get();
        taken.push(part);
    }
    taken
}
