//! The aim for which ranges move: to join fragments, or to leave a region of the device.

use std::{
    fs::File,
    sync::{Mutex, PoisonError},
};

use indef_core::{
    SkipReason,
    layout::{Extent, FragmentCount},
};
use units::PhysRange;

/// Why ranges move, and with it which new places are good.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Aim {
    /// So that their files have fewer fragments.
    #[default]
    Join,
    /// So that nothing of them lies in this region. Their files have no more fragments than before.
    Vacate(PhysRange),
}

impl Aim {
    pub(crate) fn new(region: Option<PhysRange>) -> Self {
        region.map_or(Self::Join, Self::Vacate)
    }

    pub(crate) fn vacates(self) -> bool {
        self != Self::Join
    }

    /// The fewest fragments of a range that is worth moving.
    pub(crate) fn least_fragments(self) -> u64 {
        match self {
            Self::Join => 2,
            Self::Vacate(_) => 1,
        }
    }

    /// The fewest fragments that the file must lose.
    pub(crate) fn least_gain(self) -> i64 {
        match self {
            Self::Join => 1,
            Self::Vacate(_) => 0,
        }
    }

    /// Whether a range with this count can gain at all.
    pub(crate) fn is_worth_moving(self, count: FragmentCount) -> bool {
        match self {
            Self::Join => !count.is_contiguous(),
            Self::Vacate(_) => count.fragments > 0,
        }
    }

    /// Whether a range with this count is better off in a donor of so many fragments.
    pub(crate) fn is_better_in(self, count: FragmentCount, donor_fragments: u64) -> bool {
        match self {
            Self::Join => count.is_better_in(donor_fragments),
            Self::Vacate(_) => count.change(donor_fragments) <= 0,
        }
    }

    /// Whether all of these blocks of a donor may take data.
    pub(crate) fn allows(self, donor: impl IntoIterator<Item = Extent>) -> bool {
        match self {
            Self::Join => true,
            Self::Vacate(region) => donor.into_iter().all(|extent| {
                !region.overlaps(PhysRange {
                    start: extent.phys,
                    len: extent.len,
                })
            }),
        }
    }

    /// The reason where no donor is good enough.
    pub(crate) fn no_donor(self) -> SkipReason {
        match self {
            Self::Join => SkipReason::NoGain,
            Self::Vacate(_) => SkipReason::NoPlace,
        }
    }
}

/// How often a donor is allocated again because its blocks lie in the region that is vacated. Each time takes a free
/// run of the region.
pub(crate) const LANDINGS: usize = 4096;

/// Donors that have got the old blocks of ranges that left a region, and those whose own blocks turned out to
/// lie in it. Nobody else gets these blocks before this goes. None of the files has a name.
#[derive(Debug, Default)]
pub(crate) struct Kept(Mutex<Vec<File>>);

impl Kept {
    /// Keep the blocks that the donor has now and gets later. `false` where that is not possible: too many files
    /// are open.
    pub(crate) fn keep(&self, donor: &File) -> bool {
        let Ok(donor) = donor.try_clone() else {
            return false;
        };
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(donor);
        true
    }
}
