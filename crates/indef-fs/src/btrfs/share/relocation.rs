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
    look::Look,
    metadata::Ledger,
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

/// Windows that are copied and written back: while one is compared, the next is on its way to the device.
const COPIED: usize = 2;
/// `FS_NOCOMP_FL` (linux/fs.h, v6.1), which rustix does not name.
const FS_NOCOMP_FL: u32 = 0x400;

/// See [`crate::Relocator::begin`].
pub(super) struct ShareRelocation<'a> {
    fs: &'a Filesystem,
    target: &'a Target,
    copier: &'a dyn RangeCopier,
    copy: File,
    look: Look<'a>,
    mapper: Mapper,
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
    let ranges = ranges.iter().map(|counted| counted.range);
    let mut new = ShareRelocation {
        fs,
        target,
        copier,
        look: Look::at(ledger, target, subvolume, ranges, takes_unshared)?,
        copy: copy_beside(target)?,
        mapper: Mapper::default(),
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
    if new.next.is_none() && new.look.is_done() {
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
    /// Look at the next window. `None` if nothing of it can move.
    fn look(&mut self) -> Result<Option<Window>, Refusal> {
        let copier = self.copier;
        let Some(looked) = self.look.next(&|| copier.is_stopping())? else {
            return Ok(None);
        };
        for (_, reason) in &looked.staying {
            self.note(*reason);
        }
        self.rest.extend(looked.rest());
        Ok(looked.window)
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
        let price = match self.look.price(&window, limit.bytes)? {
            Ok(price) => price,
            Err(reason) => {
                self.note(reason);
                // Parts of it that nobody shares.
                self.rest.extend(window.runs());
                return Ok(Moved::default());
            }
        };
        self.copier.allow(Beyond {
            written: price.bytes(),
            ..Beyond::default()
        })?;
        self.look.charge(&window, limit.bytes, price);
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
        self.look.end();
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
        self.rest.sort_unstable();
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
        let more = self.next.is_some() || !self.look.is_done();
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
                is_changed = window.settle(place, &mut self.look.finder, &mut self.mapper)?;
                self.settled = true;
            }
            match window.step(place, &mut self.look.finder, &mut self.mapper) {
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
        if self.next.is_some() || !self.look.is_done() {
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
