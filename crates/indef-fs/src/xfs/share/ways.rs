//! The steps as XFS takes them: with a file that keeps the old blocks, and room that is allocated ahead.

use std::fs::File;

use indef_core::SkipReason;
use linux_abi::{fiemap::Mapper, keeper::Kept};
use rustix::fs::OFlags;
use units::{Bytes, FileRange};

use super::{holders::Finder, look::Look, old_blocks::OldBlocks, unshared::alone};
use crate::{
    CountedRange, RangeCopier, Refusal, Relocation, Relocator, Space, StepLimit, Target, map,
    reopen,
    share::{
        asked::Asked,
        place::Place,
        relocation::{Looked, Ways},
        window::Window,
    },
    xfs::{
        donor::Donor,
        file::{admit, refuse, whole},
    },
};

/// Free space that must remain: the trees of blocks and owners grow while several have the same ones.
const RESERVE: Bytes = Bytes::mib(16);

/// A file of XFS that moves.
pub(super) struct XfsWays<'a> {
    /// The engine for what nobody shares.
    other: Option<&'a dyn Relocator>,
    old_blocks: &'a OldBlocks,
    target: &'a Target,
    look: Look<'a>,
    /// Made with the first window that moves.
    files: Option<Files<'a>>,
}

/// Files without a name, of the size of the target.
struct Files<'a> {
    copy: Donor<'a>,
    /// The copy, so that what it gives is durable at once.
    giver: File,
    old: Donor<'a>,
    /// Another process keeps both, too, if this one is killed.
    _kept: [Kept; 2],
}

impl<'a> XfsWays<'a> {
    pub(super) fn new(
        (other, old_blocks): (Option<&'a dyn Relocator>, &'a OldBlocks),
        target: &'a Target,
        ranges: &[CountedRange],
        (takes_unshared, needs_names): (bool, bool),
    ) -> Result<Self, Refusal> {
        let ranges = ranges.iter().map(|counted| counted.range);
        admit(target)?;
        Ok(Self {
            other,
            old_blocks,
            target,
            look: Look::at(target, ranges, (takes_unshared, needs_names))?,
            files: None,
        })
    }

    fn files(&mut self) -> Result<&Files<'a>, Refusal> {
        let files = match self.files.take() {
            Some(files) => files,
            None => {
                let files = self.new_files()?;
                self.look.finder.know(&files.copy.file, &files.old.file)?;
                files
            }
        };
        Ok(self.files.insert(files))
    }

    fn new_files(&self) -> Result<Files<'a>, Refusal> {
        let target = self.target;
        let new = || {
            let donor = Donor::new(target, OFlags::empty())?;
            donor.set_size(target.size)?;
            Ok::<_, Refusal>(donor)
        };
        let (copy, old) = (new()?, new()?);
        let giver = reopen(&copy.file, OFlags::RDWR | OFlags::DSYNC)
            .map_err(|errno| refuse(target, "open the copy", None, errno.into()))?;
        let keep = |donor: &Donor<'a>| {
            let kept = self.old_blocks.keep(&donor.file);
            kept.map_err(|error| target.error("start a process that keeps old blocks", None, error))
        };
        let kept = [keep(&old)?, keep(&copy)?];
        Ok(Files {
            copy,
            giver: giver.into(),
            old,
            _kept: kept,
        })
    }

    /// Give the copy blocks for a window. `false` if they are in too many pieces.
    fn allocate(&mut self, window: &Window) -> Result<bool, Refusal> {
        let copy = &self.files()?.copy;
        let allocated = window.runs().iter().try_for_each(|run| copy.allocate(*run));
        let fewer = allocated.and_then(|()| {
            let mut fragments = 0;
            for run in window.runs() {
                fragments += copy.layout(*run)?.fragments_in(*run);
            }
            Ok(fragments < window.fragments())
        });
        if !matches!(fewer, Ok(true)) {
            for run in window.runs() {
                copy.give_back(*run);
            }
        }
        fewer
    }
}

impl<'a> Ways<'a> for XfsWays<'a> {
    type Finder = Finder;

    fn look(&mut self, is_stopping: &dyn Fn() -> bool) -> Result<Option<Looked>, Refusal> {
        self.look.next(is_stopping)
    }

    fn asked(&mut self) -> &mut Asked {
        &mut self.look.asked
    }

    fn make_room(
        &mut self,
        window: &Window,
        _limit: StepLimit,
        _run: &dyn RangeCopier,
    ) -> Result<Option<SkipReason>, Refusal> {
        let needed = window.len() + RESERVE;
        if Space::of(&self.target.file).is_ok_and(|space| space.free < needed) {
            return Err(SkipReason::NoSpace.into());
        }
        Ok((!self.allocate(window)?).then_some(SkipReason::NoGain))
    }

    fn place<'b>(
        &'b mut self,
        target: &'b Target,
        run: &'b dyn RangeCopier,
    ) -> Option<(Place<'b>, &'b mut Finder)> {
        let files = self.files.as_ref()?;
        let place = Place {
            target,
            copy: &files.copy.file,
            giver: &files.giver,
            old: Some(&files.old.file),
            run,
        };
        Some((place, &mut self.look.finder))
    }

    fn begin_rest(
        &mut self,
        target: &'a Target,
        rest: &[CountedRange],
        run: &'a dyn RangeCopier,
    ) -> Result<Box<dyn Relocation + 'a>, Refusal> {
        let other = self.other.ok_or(SkipReason::NoGain)?;
        let file = whole(target.size, target.block_size);
        let (of, path) = (&target.file, &target.path);
        let layout = map(of, path, file, false, &mut Mapper::default())?;
        let ranges: Vec<FileRange> = rest.iter().map(|counted| counted.range).collect();
        let counted = |range| CountedRange {
            range,
            count: layout.count(range),
            written: Bytes::ZERO,
        };
        let ranges: Vec<_> = { alone(&layout, &ranges).into_iter() }
            .map(counted)
            .collect();
        if ranges.is_empty() {
            return Err(SkipReason::NoGain.into());
        }
        other.admit(target)?;
        other.begin(target, &ranges, run)
    }
}
