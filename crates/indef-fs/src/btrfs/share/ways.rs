//! The steps as Btrfs takes them: with a price in metadata, and with a look at free space by the trees.

use std::fs::File;

use indef_core::SkipReason;
use rustix::{
    fs::{IFlags, OFlags, ioctl_setflags},
    io::Errno,
};

use super::{holders::Finder, look::Look, metadata::Ledger};
use crate::{
    Beyond, CountedRange, Filesystem, RangeCopier, Refusal, Relocation, StepLimit, Target,
    btrfs::{
        call::Recent,
        commits::Commits,
        relocation::BtrfsRelocation,
        space::{RESERVE, Room, room},
    },
    share::{
        asked::Asked,
        place::Place,
        relocation::{Looked, Ways},
        take::refuse,
        window::Window,
    },
};

/// `FS_NOCOMP_FL` (linux/fs.h, v6.1), which rustix does not name.
const FS_NOCOMP_FL: u32 = 0x400;

/// A file of Btrfs that moves.
pub(super) struct BtrfsWays<'a> {
    fs: &'a Filesystem,
    commits: &'a Commits,
    target: &'a Target,
    copy: File,
    look: Look<'a>,
    recent: Recent,
}

impl<'a> BtrfsWays<'a> {
    pub(super) fn new(
        (fs, takes_unshared, ledger, commits): (&'a Filesystem, bool, &'a Ledger, &'a Commits),
        target: &'a Target,
        subvolume: u64,
        ranges: &[CountedRange],
    ) -> Result<Self, Refusal> {
        let ranges = ranges.iter().map(|counted| counted.range);
        Ok(Self {
            fs,
            commits,
            target,
            look: Look::at(ledger, target, subvolume, ranges, takes_unshared)?,
            copy: copy_beside(target)?,
            recent: Recent::new(),
        })
    }
}

/// The file for the copy: without a name, of the size of the target, and with data that is written as it is.
fn copy_beside(target: &Target) -> Result<File, Refusal> {
    let fail = |errno: Errno| match errno {
        Errno::NOSPC => SkipReason::NoSpace.into(),
        Errno::DQUOT => SkipReason::QuotaExceeded.into(),
        Errno::XDEV => SkipReason::Unsupported.into(),
        // The directory is gone, or may not be changed.
        Errno::NOENT => SkipReason::Gone.into(),
        Errno::PERM | Errno::ACCESS => SkipReason::NotPermitted.into(),
        // Its subvolume, by now.
        Errno::ROFS => SkipReason::ReadOnlyMount.into(),
        errno => Refusal::from(target.error("make a temporary file", None, errno)),
    };
    let copy = target.unnamed_beside(OFlags::empty()).map_err(fail)?;
    // It has the flags of its directory, which the target may not have, and of which not all can be replaced at once.
    for flags in [0, FS_NOCOMP_FL] {
        ioctl_setflags(&copy, IFlags::from_bits_retain(flags)).map_err(fail)?;
    }
    copy.set_len(target.size.get())
        .map_err(|error| refuse(target, "make a temporary file", error))?;
    Ok(copy)
}

impl<'a> Ways<'a> for BtrfsWays<'a> {
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
        limit: StepLimit,
        run: &dyn RangeCopier,
    ) -> Result<Option<SkipReason>, Refusal> {
        let wanted = self.recent.bytes() + window.len();
        if room(self.target, wanted, window.average(), RESERVE) == Room::Short {
            return Err(SkipReason::NoSpace.into());
        }
        let price = match self.look.price(window, limit.bytes)? {
            Ok(price) => price,
            Err(reason) => return Ok(Some(reason)),
        };
        run.allow(Beyond {
            written: price.bytes(),
            ..Beyond::default()
        })?;
        self.look.charge(window, limit.bytes, price);
        self.recent.add(window.len());
        Ok(None)
    }

    fn place<'b>(
        &'b mut self,
        target: &'b Target,
        run: &'b dyn RangeCopier,
    ) -> Option<(Place<'b>, &'b mut Finder)> {
        let place = Place {
            target,
            copy: &self.copy,
            giver: &self.copy,
            old: None,
            run,
        };
        Some((place, &mut self.look.finder))
    }

    fn begin_rest(
        &mut self,
        target: &'a Target,
        rest: &[CountedRange],
        _run: &'a dyn RangeCopier,
    ) -> Result<Box<dyn Relocation + 'a>, Refusal> {
        let rest = BtrfsRelocation::begin((self.fs, self.commits), false, false, target, rest)?;
        Ok(Box::new(rest))
    }
}
