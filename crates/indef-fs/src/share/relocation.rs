//! The steps: look for holders, copy, and let everybody have the blocks of the copy.

use std::collections::VecDeque;

use indef_core::{
    SkipReason,
    layout::{FragmentCount, Layout},
};
use linux_abi::fiemap::Mapper;
use units::{Bytes, FileRange};

use super::{
    asked::{Asked, others},
    claims::Claim,
    holder::{Found, Holder, HolderId},
    place::{HolderFinder, Place},
    select::{FileParts, Selected, select},
    window::Window,
};
use crate::{CountedRange, Moved, RangeCopier, Refusal, Relocation, Step, StepLimit, Target};

/// Windows that are copied and written back: while one is compared, the next is on its way to the device.
const COPIED: usize = 2;

/// Some ranges of the file, looked at.
pub(crate) struct Looked {
    /// The ranges.
    pub(crate) asked: Vec<FileRange>,
    /// Of the target, with a bit on either side.
    pub(crate) layout: Layout,
    /// The parts that can move, unless there are none.
    pub(crate) window: Option<Window>,
    /// Those that move.
    pub(crate) runs: Vec<FileRange>,
    /// The others, and why they do not.
    pub(crate) staying: Vec<(FileRange, SkipReason)>,
}

impl Looked {
    /// Select what of the `asked` ranges of the file `own` can move together with its holders.
    pub(crate) fn select(
        own: HolderId,
        asked: Vec<FileRange>,
        found: Found,
        takes_unshared: bool,
        claim: Claim,
    ) -> Self {
        let Found {
            target,
            mut holders,
            staying,
        } = found;
        let layout = target.layout.clone();
        let take = |holder: &mut Holder| std::mem::take(&mut holder.has);
        let theirs: Vec<FileParts> = holders.iter_mut().map(take).collect();
        let Selected {
            runs,
            segments,
            staying,
        } = select(&asked, &target, &theirs, staying, takes_unshared);
        for (holder, has) in holders.iter_mut().zip(theirs) {
            holder.has = has;
        }
        let window = (!runs.is_empty())
            .then(|| Window::new(own, runs.clone(), target, holders, segments, claim));
        Self {
            asked,
            layout,
            window,
            runs,
            staying,
        }
    }

    /// The parts of what was asked for that are in no run.
    pub(crate) fn rest(&self) -> Vec<FileRange> {
        others(&self.asked, &self.runs)
    }
}

/// What a file system does in its own way. It has the files that [`Place`] names.
pub(crate) trait Ways<'a> {
    type Finder: HolderFinder;

    /// Look at the next window. `None` if there is none.
    fn look(&mut self, is_stopping: &dyn Fn() -> bool) -> Result<Option<Looked>, Refusal>;

    /// What no window has taken yet.
    fn asked(&mut self) -> &mut Asked;

    /// Before a window is copied: find room for it, and ask the run for leave. Why it stays, or none.
    ///
    /// # Errors
    ///
    /// The limit that is in the way of this window and of all others; or a failure.
    fn make_room(
        &mut self,
        window: &Window,
        limit: StepLimit,
        run: &dyn RangeCopier,
    ) -> Result<Option<SkipReason>, Refusal>;

    /// The files, and who finds holders. `None` before there was room for a window.
    fn place<'b>(
        &'b mut self,
        target: &'b Target,
        run: &'b dyn RangeCopier,
    ) -> Option<(Place<'b>, &'b mut Self::Finder)>;

    /// Begin to move the rest in the way of another engine.
    fn begin_rest(
        &mut self,
        target: &'a Target,
        rest: &[CountedRange],
        run: &'a dyn RangeCopier,
    ) -> Result<Box<dyn Relocation + 'a>, Refusal>;
}

/// See [`crate::Relocator::begin`].
pub(crate) struct ShareRelocation<'a, W: Ways<'a>> {
    ways: W,
    target: &'a Target,
    run: &'a dyn RangeCopier,
    mapper: Mapper,
    /// Looked at, to be copied next.
    next: Option<Window>,
    /// Copied; the first has been written back if `settled`.
    copied: VecDeque<Window>,
    settled: bool,
    /// Ranges with parts that are left to the engine for ranges that nobody shares.
    rest: Vec<FileRange>,
    /// Which moves them at the end.
    resting: Option<Box<dyn Relocation + 'a>>,
    reason: Option<SkipReason>,
    moved_any: bool,
}

/// Begin to move ranges: of those that nobody shares, only some or all with the other engine.
pub(crate) fn begin<'a, W: Ways<'a> + 'a>(
    ways: W,
    target: &'a Target,
    run: &'a dyn RangeCopier,
) -> Result<Box<dyn Relocation + 'a>, Refusal> {
    let mut new = ShareRelocation {
        ways,
        target,
        run,
        mapper: Mapper::default(),
        next: None,
        copied: VecDeque::new(),
        settled: false,
        rest: Vec::new(),
        resting: None,
        reason: None,
        moved_any: false,
    };
    new.next = new.look()?;
    if new.next.is_none() && new.ways.asked().is_done() {
        return match new.begin_rest() {
            Ok(rest) => Ok(rest),
            Err(refusal) => Err(new.told(refusal)),
        };
    }
    Ok(Box::new(new))
}

impl<'a, W: Ways<'a>> ShareRelocation<'a, W> {
    /// Look at the next window. `None` if nothing of it can move.
    fn look(&mut self) -> Result<Option<Window>, Refusal> {
        let run = self.run;
        let Some(looked) = self.ways.look(&|| run.is_stopping())? else {
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
            SkipReason::NoGain | SkipReason::MovedAlong => 1,
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
        if let Some(reason) = self.ways.make_room(&window, limit, self.run)? {
            self.note(reason);
            // Parts of it that nobody shares.
            self.rest.extend(window.runs());
            return Ok(Moved::default());
        }
        let Some((place, _)) = self.ways.place(self.target, self.run) else {
            return Ok(Moved::default());
        };
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
        self.ways.asked().end();
        self.rest.clear();
        self.next = None;
    }

    /// Give up what is copied and not taken yet.
    fn close_all(&mut self) {
        if let Some((place, _)) = self.ways.place(self.target, self.run) {
            for window in self.copied.drain(..) {
                window.close(place);
            }
        }
        self.settled = false;
    }

    /// The relocation of everything that is left, by the other engine.
    fn begin_rest(&mut self) -> Result<Box<dyn Relocation + 'a>, Refusal> {
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
        self.ways.begin_rest(self.target, &rest, self.run)
    }

    /// Work on the first window that is copied. `None` if there is none.
    fn take_on(&mut self) -> Result<Option<Moved>, Refusal> {
        let Some(window) = self.copied.front_mut() else {
            return Ok(None);
        };
        let Some((place, finder)) = self.ways.place(self.target, self.run) else {
            return Ok(None);
        };
        let mut is_changed = false;
        if !self.settled {
            is_changed = window.settle(place, finder, &mut self.mapper)?;
            self.settled = true;
        }
        let mut moved = Moved::default();
        match window.step(place, finder, &mut self.mapper) {
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
        Ok(Some(moved))
    }

    fn advance(&mut self, limit: StepLimit) -> Result<Step, Refusal> {
        if let Some(resting) = &mut self.resting {
            return resting.step(limit);
        }
        let mut moved = Moved::default();
        let more = self.next.is_some() || !self.ways.asked().is_done();
        if self.copied.len() < COPIED && more {
            match self.copy_next(limit) {
                Ok(copied) => moved += copied,
                // What is copied is still taken.
                Err(Refusal::Skip(reason)) => self.end_with(reason),
                Err(failed) => return Err(failed),
            }
        }
        if let Some(taken) = self.take_on()? {
            moved += taken;
            return Ok(Step::Working(moved));
        }
        if self.next.is_some() || !self.ways.asked().is_done() {
            return Ok(Step::Working(moved));
        }
        match self.begin_rest() {
            Ok(resting) => {
                self.resting = Some(resting);
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

impl<'a, W: Ways<'a>> Relocation for ShareRelocation<'a, W> {
    fn step(&mut self, limit: StepLimit) -> Result<Step, Refusal> {
        match self.advance(limit) {
            Err(Refusal::Skip(reason)) if self.moved_any && !is_limit(reason) => {
                Ok(Step::Done(Moved::default()))
            }
            other => other,
        }
    }

    fn end(&mut self) -> Result<Moved, Refusal> {
        match &mut self.resting {
            Some(resting) => resting.end(),
            None => Ok(Moved::default()),
        }
    }
}

impl<'a, W: Ways<'a>> Drop for ShareRelocation<'a, W> {
    fn drop(&mut self) {
        self.close_all();
    }
}

/// Whether it is a limit, of the run or of the file system, which is told although something moved.
fn is_limit(reason: SkipReason) -> bool {
    matches!(
        reason,
        SkipReason::Stopped
            | SkipReason::OverBudget
            | SkipReason::BeyondPlan
            | SkipReason::NoSpace
            | SkipReason::QuotaExceeded
            | SkipReason::ReadOnlyMount
    )
}
