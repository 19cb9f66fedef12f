//! The gain of a plan: time where weights were measured, else a number.

use std::fmt;

use indef_core::plan::Weight;
use units::Nanos;

use super::Ratio;

/// A gain by these weights.
pub(crate) struct Gain<'a>(pub(crate) f64, pub(crate) &'a Weight);

impl Gain<'_> {
    /// The unit, to be printed after the number.
    pub(crate) fn unit(&self) -> &'static str {
        match self.1 {
            Weight::Paper => "IODP",
            Weight::Measured(_) => "less time in reads",
            Weight::Device(_) => "less device time in reads, as modelled",
            Weight::Probed(_) => "less time in reads, by a probe of the drive",
        }
    }
}

impl fmt::Display for Gain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.1 {
            Weight::Paper => Ratio(self.0).fmt(f),
            Weight::Measured(_) | Weight::Device(_) | Weight::Probed(_) => {
                Nanos(self.0 as u64).fmt(f)
            }
        }
    }
}
