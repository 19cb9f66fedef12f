//! The SLC cache of conventional namespaces: the table `[slc]`, which may be left out.

use super::{
    error::{ProfileError, ValueFault},
    fields::Fields,
};
use crate::{flash::DieTimes, ftl::SLC_BLOCKS_LEAST, geometry::FlashGeometry};

/// The size of the SLC cache.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct SlcParameters {
    /// Its size, in percent of a namespace; 0: there is none.
    pub(crate) percent: f64,
    /// Bits that its cells hold elsewhere: so many times fewer pages a block has in it.
    bits: u32,
}

impl SlcParameters {
    /// Reads the size, and adds the cache's times to the die's.
    pub(super) fn read(
        fields: &mut Fields<'_>,
        die: &mut DieTimes,
        geometry: &FlashGeometry,
        bits: u32,
    ) -> Result<Self, ProfileError> {
        let key = "slc.capacity";
        let mut slc = Self { percent: 0.0, bits };
        if !fields.has(key) {
            return Ok(slc);
        }
        slc.percent = fields.percent(key)?;
        die.read = die.read.with_slc(fields.nanos("slc.read")?);
        die.program = die.program.with_slc(fields.nanos("slc.program")?);
        if slc.percent > 0.0 && bits < 2 {
            return Err(fields.error(key, ValueFault::OneBit));
        }
        if slc.percent > 0.0 && slc.pages(geometry) == 0 {
            return Err(fields.error(key, ValueFault::SmallBlocks));
        }
        Ok(slc)
    }

    /// Returns the pages of a block in the cache, in whole units of the namespace.
    pub(crate) fn pages(&self, geometry: &FlashGeometry) -> u32 {
        let unit = (geometry.unit.0 / geometry.program_unit().0) as u32;
        geometry.pages_per_block / self.bits / unit * unit
    }

    /// Returns the blocks of the cache on each die, for a namespace of `size` bytes.
    pub(crate) fn blocks(&self, geometry: &FlashGeometry, size: u64) -> u32 {
        if self.percent == 0.0 {
            return 0;
        }
        let block = geometry.program_unit().0 * u64::from(self.pages(geometry));
        let wanted = size as f64 * self.percent / 100.0;
        let each = wanted / f64::from(geometry.dies()) / block as f64;
        (each.ceil() as u32).max(SLC_BLOCKS_LEAST)
    }
}
