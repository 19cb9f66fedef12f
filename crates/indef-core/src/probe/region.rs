//! Where granules begin, near some place.
//!
//! No result says where a stripe begins: metadata that a file system wrote meanwhile shifts the turns. But near each
//! other, granules follow each other. Of two blocks, one stripe further from each other than they would be in a granule,
//! it shows whether they are on one unit: they wait for each other. That is so up to the end of the granule; where it
//! ends is found by halves.

use units::FileRange;

use super::{BLOCK, CannotTell, Drive, Halt, Known, Placement, Prober};

/// Stripes of a region, and of the smallest.
const STRIPES: u64 = 8;
const FEWEST: u64 = 3;
/// Pairs that vote whether two blocks are on one unit.
const VOTES: usize = 5;

/// Consecutive whole granules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Region {
    /// Where the first one begins.
    pub(super) first: u64,
    pub(super) granules: u64,
}

impl<D: Drive> Prober<'_, D> {
    /// The granules near any place, if they show.
    pub(super) fn region(
        &mut self,
        placement: Placement,
        known: Known,
    ) -> Result<Option<Region>, Halt<D::Error>> {
        let (granule, stripe) = (placement.granule.0, placement.stripe().0);
        let stripes = STRIPES.min(self.ground.longest().0 / stripe);
        if stripes < FEWEST {
            return Err(CannotTell::NoGround.into());
        }
        let len = stripes * stripe;
        let place = self.place(len)?;
        let blocks = granule / BLOCK;
        // The last block that is on the unit of the first one, and the first that is not.
        let (mut inside, mut outside) = (0_u64, blocks);
        while outside - inside > 1 {
            let middle = inside.midpoint(outside);
            match self.are_on_one(placement, known, place, place + middle * BLOCK)? {
                true => inside = middle,
                false => outside = middle,
            }
        }
        let first = place + outside * BLOCK;
        // The next one has to begin and end as this says.
        let last = first + granule - BLOCK;
        let is_true = self.are_on_one(placement, known, first, last)?
            && !self.are_on_one(placement, known, first, first - BLOCK)?
            && !self.are_on_one(placement, known, first, last + BLOCK)?;
        Ok(is_true.then_some(Region {
            first,
            granules: (place + len - first) / granule,
        }))
    }

    /// Whether two blocks are on one unit: most pairs of one of them and the block a stripe after the other wait for
    /// longer than for a request that is on another unit.
    fn are_on_one(
        &mut self,
        placement: Placement,
        known: Known,
        one: u64,
        other: u64,
    ) -> Result<bool, Halt<D::Error>> {
        let mut waiting = 0;
        for nth in 0..VOTES {
            let read = |at| FileRange::new(at, BLOCK);
            let mut reads = [read(one), read(other + placement.stripe().0)];
            if nth % 2 == 1 {
                reads.swap(0, 1);
            }
            let together = self.time(&reads, 2)?;
            let [one, other] = reads;
            let (one, other) = (self.time(&[one], 1)?, self.time(&[other], 1)?);
            let of_unit = (one.min(other) - known.outside).max(0.0);
            let wait = together - one.max(other);
            waiting += usize::from(wait > known.further.midpoint(of_unit));
        }
        Ok(waiting > VOTES / 2)
    }
}
