//! A duration or a time stamp in nanoseconds.

use std::{
    fmt,
    iter::Sum,
    ops::{Add, AddAssign},
    time::Duration,
};

use serde::{Deserialize, Serialize};

/// Nanoseconds: the only unit of time in interfaces and files.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Nanos(pub u64);

impl Nanos {
    /// The plain number.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// As the standard library's duration.
    #[must_use]
    pub const fn duration(self) -> Duration {
        Duration::from_nanos(self.0)
    }
}

impl From<Duration> for Nanos {
    /// Durations of more than 584 years become the largest value.
    fn from(duration: Duration) -> Self {
        Self(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl Add for Nanos {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

impl AddAssign for Nanos {
    fn add_assign(&mut self, other: Self) {
        self.0 += other.0;
    }
}

impl Sum for Nanos {
    fn sum<I: Iterator<Item = Self>>(iter: I) -> Self {
        iter.fold(Self::default(), Add::add)
    }
}

impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ns = self.0 as f64;
        let text = match self.0 {
            0..1_000 => format!("{} ns", self.0),
            1_000..1_000_000 => format!("{:.1} µs", ns / 1e3),
            1_000_000..1_000_000_000 => format!("{:.1} ms", ns / 1e6),
            1_000_000_000..100_000_000_000 => format!("{:.2} s", ns / 1e9),
            _ => {
                let seconds = self.0 / 1_000_000_000;
                format!(
                    "{}:{:02}:{:02}",
                    seconds / 3600,
                    seconds / 60 % 60,
                    seconds % 60
                )
            }
        };
        f.pad(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_shown_in_the_unit_that_fits() {
        for (ns, text) in [
            (999, "999 ns"),
            (1_500, "1.5 µs"),
            (2_000_000, "2.0 ms"),
            (1_030_000_000, "1.03 s"),
            (3_725_000_000_000, "1:02:05"),
        ] {
            assert_eq!(Nanos(ns).to_string(), text);
        }
    }
}
