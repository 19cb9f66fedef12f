//! The gain of a plan: bytes where space is given back, time where weights were measured, else a number.

use std::fmt;

use indef_core::plan::{PlanOptions, Weight};
use units::{Bytes, Nanos};

use super::Ratio;

/// A gain of a plan with these options.
pub(crate) struct Gain<'a>(pub(crate) f64, pub(crate) &'a PlanOptions);

impl Gain<'_> {
    /// The unit, to be printed after the number.
    pub(crate) fn unit(&self) -> &'static str {
        match self.1.weight {
            _ if self.1.reclaim_ratio.is_some() => "come free",
            Weight::Paper => "IODP",
            Weight::Measured(_) => "less time in reads",
            Weight::Device(_) => "less device time in reads, as modelled",
            Weight::Probed(_) => "less time in reads, by a probe of the drive",
        }
    }

    /// The unit of the number itself, as a word for scripts.
    pub(crate) fn unit_word(&self) -> &'static str {
        match self.1.weight {
            _ if self.1.reclaim_ratio.is_some() => "bytes",
            Weight::Paper => "iodp",
            Weight::Measured(_) | Weight::Device(_) | Weight::Probed(_) => "ns",
        }
    }
}

impl fmt::Display for Gain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.1.weight {
            _ if self.1.reclaim_ratio.is_some() => Bytes(self.0 as u64).fmt(f),
            Weight::Paper => Ratio(self.0).fmt(f),
            Weight::Measured(_) | Weight::Device(_) | Weight::Probed(_) => {
                Nanos(self.0 as u64).fmt(f)
            }
        }
    }
}
