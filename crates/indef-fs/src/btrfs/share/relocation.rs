//! The steps: look for holders, copy, and let everybody have the blocks of the copy.

use std::{collections::VecDeque, fs::File};

use indef_core::{SkipReason, layout::FragmentCount};
use linux_abi::fiemap::Mapper;
use rustix::{
    fs::{IFlags, OFlags, ioctl_setflags},
    io::Errno,
};
use units::{Bytes, FileRange};

use super::{
    claims::{Claim, Claims},
    holders::{Finder, Found, HolderId},
    metadata::Ledger,
    select::{FileParts, select},
    window::{Place, Window},
};
use crate::{
    Beyond, CountedRange, Filesystem, Moved, RangeCopier, Refusal, Relocation, Step, StepLimit,
    Target,
    btrfs::{
        call::Recent,
        relocation::BtrfsRelocation,
        space::{RESERVE, Room, room},
    },
};

/// The bytes that are copied together: also the space that a copy takes before the old blocks are given up.
const WINDOW: Bytes = Bytes::mib(16);
/// Windows that are copied and written back: while one is compared, the next is on its way to the device.
const COPIED: usize = 2;
/// `FS_NOCOMP_FL` (linux/fs.h, v6.1), which rustix does not name.
const FS_NOCOMP_FL: u32 = 0x400;

/// See [`crate::Relocator::begin`].
pub(super) struct ShareRelocation<'a> {
    fs: &'a Filesystem,
    /// Ranges that nobody shares move in the same way.
    takes_unshared: bool,
    /// Metadata that snapshots got.
    ledger: &'a Ledger,
    target: &'a Target,
    subvolume: u64,
    copier: &'a dyn RangeCopier,
    copy: File,
    finder: Finder,
    claims: Claims,
    mapper: Mapper,
    /// Ranges that no window has taken yet.
    ranges: VecDeque<FileRange>,
    /// Looked at, to be copied next.
    next: Option<Window>,
    /// Copied; the first has been written back if `settled`.
    copied: VecDeque<Window>,
    settled: bool,
    recent: Recent,
    /// Ranges with parts that are left to the engine for ranges that nobody shares.
    rest: Vec<FileRange>,
    /// Which moves them at the end.
    defrag: Option<BtrfsRelocation<'a>>,
    reason: Option<SkipReason>,
    moved_any: bool,
}

/// Begin to move ranges: of those that nobody shares, only some or all with the other engine.
pub(super) fn begin<'a>(
    (fs, takes_unshared, ledger): (&'a Filesystem, bool, &'a Ledger),
    target: &'a Target,
    subvolume: u64,
    ranges: &[CountedRange],
    copier: &'a dyn RangeCopier,
) -> Result<Box<dyn Relocation + 'a>, Refusal> {
    let file = FileRange::new(0, target.size.get()).align_outward(target.block_size);
    let ranges = ranges.iter().map(|counted| {
        let range = counted.range.align_outward(target.block_size);
        range.intersect(file)
    });
    let ranges: VecDeque<_> = ranges.filter(|range| !range.is_empty()).collect();
    if ranges.is_empty() {
        return Err(SkipReason::OutOfRange.into());
    }
    let mut new = ShareRelocation {
        fs,
        takes_unshared,
        ledger,
        target,
        subvolume,
        copier,
        copy: copy_beside(target)?,
        finder: Finder::default(),
        claims: Claims::on(&target.file)
            .map_err(|error| target.error("ask for the file system", None, error))?,
        mapper: Mapper::default(),
        ranges,
        next: None,
        copied: VecDeque::new(),
        settled: false,
        recent: Recent::new(),
        rest: Vec::new(),
        defrag: None,
        reason: None,
        moved_any: false,
    };
    new.next = new.look()?;
    if new.next.is_none() && new.ranges.is_empty() {
        return match new.begin_rest() {
            Ok(rest) => Ok(Box::new(rest)),
            Err(refusal) => Err(new.told(refusal)),
        };
    }
    Ok(Box::new(new))
}

/// The file for the copy: without a name, of the size of the target, and with data that is written as it is.
fn copy_beside(target: &Target) -> Result<File, Refusal> {
    let fail = |errno: Errno| match errno {
        Errno::NOSPC => SkipReason::NoSpace.into(),
        Errno::DQUOT => SkipReason::QuotaExceeded.into(),
        Errno::XDEV => SkipReason::Unsupported.into(),
        errno => Refusal::from(target.error("make a temporary file", None, errno)),
    };
    let copy = target.unnamed_beside(OFlags::empty()).map_err(fail)?;
    // It has the flags of its directory, which the target may not have, and of which not all can be replaced at once.
    for flags in [0, FS_NOCOMP_FL] {
        ioctl_setflags(&copy, IFlags::from_bits_retain(flags)).map_err(fail)?;
    }
    copy.set_len(target.size.get())
        .map_err(|error| super::window::refuse(target, "make a temporary file", error))?;
    Ok(copy)
}

impl<'a> ShareRelocation<'a> {
    /// Take the next window from the ranges, and find its holders. `None` if nothing of it can move.
    fn look(&mut self) -> Result<Option<Window>, Refusal> {
        let (mut asked, mut parts, mut bytes) = (Vec::new(), Vec::new(), Bytes::ZERO);
        while bytes < WINDOW
            && let Some(range) = self.ranges.pop_front()
        {
            let most = WINDOW - bytes;
            let found = (self.finder).parts_of(self.target, self.subvolume, range, most)?;
            let len: Bytes = found.iter().map(|part| Bytes(part.len)).sum();
            bytes += len;
            let mut part = range;
            if len >= most
                && let Some(last) = found.last()
            {
                // Cut after the last one.
                let end = FileRange::new(last.offset, last.len).end().min(range.end());
                part = FileRange::between(range.start, end);
                let later = FileRange::between(end, range.end());
                if !later.is_empty() {
                    self.ranges.push_front(later);
                }
            }
            asked.push(part);
            parts.extend(found);
        }
        let (Some(first), Some(last)) = (asked.first(), asked.last()) else {
            return Ok(None);
        };
        let hull = FileRange::between(first.start, last.end());
        let claim = self.claims.take(parts.iter().map(|part| part.extent));
        // Others may have moved them before they were claimed.
        let mut now = Vec::new();
        for range in &asked {
            let most = Bytes(u64::MAX);
            now.extend((self.finder).parts_of(self.target, self.subvolume, *range, most)?);
        }
        let found =
            (self.finder).find(self.target, self.subvolume, now, hull, &claim, self.copier)?;
        Ok(self.window(&asked, found, claim))
    }

    /// The runs of these ranges that can move.
    fn window(&mut self, asked: &[FileRange], found: Found, claim: Claim) -> Option<Window> {
        let Found {
            target,
            mut holders,
            staying,
        } = found;
        let theirs: Vec<FileParts> = holders
            .iter_mut()
            .map(|holder| std::mem::take(&mut holder.has))
            .collect();
        let selected = select(asked, &target, &theirs, staying, self.takes_unshared);
        for reason in selected.reasons {
            self.note(reason);
        }
        self.rest.extend(others(asked, &selected.runs));
        if selected.runs.is_empty() {
            return None;
        }
        for (holder, has) in holders.iter_mut().zip(theirs) {
            holder.has = has;
        }
        let (runs, segments) = (selected.runs, selected.segments);
        let own = HolderId {
            subvolume: self.subvolume,
            inode: self.target.id.inode,
        };
        Some(Window::new(own, runs, target, holders, segments, claim))
    }

    /// Remember why something that is shared was left out.
    fn note(&mut self, reason: SkipReason) {
        let weight = |reason| match reason {
            SkipReason::Contiguous | SkipReason::Unwritten => 0,
            SkipReason::NoGain => 1,
            _ => 2,
        };
        if self.reason.is_none_or(|old| weight(reason) > weight(old)) {
            self.reason = Some(reason);
        }
    }

    /// The more telling one of a refusal and the reasons so far.
    fn told(&self, refusal: Refusal) -> Refusal {
        match (refusal, self.reason) {
            (
                Refusal::Skip(SkipReason::Shared | SkipReason::Contiguous | SkipReason::NoGain),
                Some(reason),
            ) => reason.into(),
            (refusal, _) => refusal,
        }
    }

    /// Copy the next window, if there is one.
    fn copy_next(&mut self, limit: StepLimit) -> Result<Moved, Refusal> {
        let next = match self.next.take() {
            Some(window) => Some(window),
            None => self.look()?,
        };
        let Some(mut window) = next else {
            return Ok(Moved::default());
        };
        let wanted = self.recent.bytes() + window.len();
        if room(self.target, wanted, window.average(), RESERVE) == Room::Short {
            return Err(SkipReason::NoSpace.into());
        }
        let holders = window.holders(limit.bytes);
        let price = (self.ledger.price(self.target, self.subvolume, holders))
            .map_err(|error| self.target.error("look at the trees", None, error))?;
        if price.bytes() > window.len() {
            self.note(SkipReason::MetadataCost);
            return Ok(Moved::default());
        }
        self.copier.allow(Beyond {
            written: price.bytes(),
            ..Beyond::default()
        })?;
        self.ledger.charge(price);
        let place = Place {
            target: self.target,
            copy: &self.copy,
            run: self.copier,
        };
        self.recent.add(window.len());
        let copied = window.copy(place, limit.bytes);
        match copied {
            Ok(_) => self.copied.push_back(window),
            Err(_) => window.close(place),
        }
        copied
    }

    /// Begin nothing more.
    fn end_with(&mut self, reason: SkipReason) {
        self.reason = Some(reason);
        self.ranges.clear();
        self.rest.clear();
        self.next = None;
    }

    /// Give up what is copied and not taken yet.
    fn close_all(&mut self) {
        let place = Place {
            target: self.target,
            copy: &self.copy,
            run: self.copier,
        };
        for window in self.copied.drain(..) {
            window.close(place);
        }
        self.settled = false;
    }

    /// The relocation of everything that is left, by the other engine.
    fn begin_rest(&mut self) -> Result<BtrfsRelocation<'a>, Refusal> {
        let count = |range: &FileRange| CountedRange {
            range: *range,
            count: FragmentCount::default(),
            written: Bytes::ZERO,
        };
        let rest: Vec<_> = self.rest.drain(..).map(|range| count(&range)).collect();
        if rest.is_empty() {
            return Err(SkipReason::NoGain.into());
        }
        BtrfsRelocation::begin(self.fs, false, false, self.target, &rest)
    }

    fn advance(&mut self, limit: StepLimit) -> Result<Step, Refusal> {
        if let Some(defrag) = &mut self.defrag {
            return defrag.step(limit);
        }
        let mut moved = Moved::default();
        let more = self.next.is_some() || !self.ranges.is_empty();
        if self.copied.len() < COPIED && more {
            match self.copy_next(limit) {
                Ok(copied) => moved += copied,
                // What is copied is still taken.
                Err(Refusal::Skip(reason)) => self.end_with(reason),
                Err(failed) => return Err(failed),
            }
        }
        let place = Place {
            target: self.target,
            copy: &self.copy,
            run: self.copier,
        };
        if let Some(window) = self.copied.front_mut() {
            let mut is_changed = false;
            if !self.settled {
                is_changed = window.settle(place, &mut self.finder, &mut self.mapper)?;
                self.settled = true;
            }
            match window.step(place, &mut self.finder, &mut self.mapper) {
                Some(done) => {
                    moved += done.moved;
                    self.moved_any |= !done.moved.relocated.is_zero();
                    match done.reason {
                        Some(
                            reason @ (SkipReason::Changed
                            | SkipReason::NoGain
                            | SkipReason::HoldersDiffer),
                        ) => self.note(reason),
                        // It would be the same with the next.
                        Some(reason) => {
                            self.end_with(reason);
                            self.close_all();
                        }
                        None => {}
                    }
                }
                None => {
                    window.close(place);
                    self.copied.pop_front();
                    self.settled = false;
                }
            }
            if is_changed {
                self.note(SkipReason::Changed);
            }
            return Ok(Step::Working(moved));
        }
        if self.next.is_some() || !self.ranges.is_empty() {
            return Ok(Step::Working(moved));
        }
        match self.begin_rest() {
            Ok(defrag) => {
                self.defrag = Some(defrag);
                Ok(Step::Working(moved))
            }
            Err(refusal) => match self.told(refusal) {
                Refusal::Skip(reason) if self.moved_any && !is_limit(reason) => {
                    Ok(Step::Done(moved))
                }
                refusal => Err(refusal),
            },
        }
    }
}

impl Relocation for ShareRelocation<'_> {
    fn step(&mut self, limit: StepLimit) -> Result<Step, Refusal> {
        match self.advance(limit) {
            Err(Refusal::Skip(reason)) if self.moved_any && !is_limit(reason) => {
                Ok(Step::Done(Moved::default()))
            }
            other => other,
        }
    }
}

impl Drop for ShareRelocation<'_> {
    fn drop(&mut self) {
        self.close_all();
    }
}

/// Whether it is a limit of the run, which is told although something moved.
fn is_limit(reason: SkipReason) -> bool {
    matches!(reason, SkipReason::Stopped | SkipReason::OverBudget)
}

/// The parts of `asked` that are in none of `runs` (both ordered, disjoint).
fn others(asked: &[FileRange], runs: &[FileRange]) -> Vec<FileRange> {
    let mut others = Vec::new();
    for range in asked {
        let mut place = range.start;
        for run in runs.iter().filter(|run| run.overlaps(*range)) {
            others.push(FileRange::between(place, run.start));
            place = run.end();
        }
        others.push(FileRange::between(place, range.end()));
    }
    others.retain(|range| !range.is_empty());
    others
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_else_is_left_to_the_other_engine() {
        let asked = [FileRange::new(0, 10), FileRange::new(20, 10)];
        let runs = [FileRange::new(2, 3), FileRange::new(20, 10)];
        let expected = [FileRange::new(0, 2), FileRange::new(5, 5)];
        assert_eq!(others(&asked, &runs), expected);
        assert_eq!(others(&asked, &[]), asked);
    }
}
