//! A count of bytes.

use std::{
    fmt,
    iter::Sum,
    ops::{Add, AddAssign, Mul, Sub, SubAssign},
    str::FromStr,
};

use serde::{Deserialize, Serialize};

/// A count of bytes. Displayed and parsed with binary prefixes, serialised as a plain integer.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Bytes(pub u64);

impl Bytes {
    /// No bytes.
    pub const ZERO: Self = Self(0);

    /// `n` KiB.
    #[must_use]
    pub const fn kib(n: u64) -> Self {
        Self(n << 10)
    }

    /// `n` MiB.
    #[must_use]
    pub const fn mib(n: u64) -> Self {
        Self(n << 20)
    }

    /// `n` GiB.
    #[must_use]
    pub const fn gib(n: u64) -> Self {
        Self(n << 30)
    }

    /// The plain number.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Whether the count is zero.
    #[must_use]
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// Difference, or zero if `other` is larger.
    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// Sum, or the largest count if it would overflow.
    #[must_use]
    pub const fn saturating_add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// This many bytes in whole units of `unit` (at least one byte), rounded up.
    #[must_use]
    pub const fn div_ceil(self, unit: Self) -> u64 {
        self.0.div_ceil(if unit.0 == 0 { 1 } else { unit.0 })
    }
}

impl Add for Bytes {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

impl AddAssign for Bytes {
    fn add_assign(&mut self, other: Self) {
        self.0 += other.0;
    }
}

impl Sub for Bytes {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0 - other.0)
    }
}

impl SubAssign for Bytes {
    fn sub_assign(&mut self, other: Self) {
        self.0 -= other.0;
    }
}

impl Mul<u64> for Bytes {
    type Output = Self;
    fn mul(self, n: u64) -> Self {
        Self(self.0 * n)
    }
}

impl Sum for Bytes {
    fn sum<I: Iterator<Item = Self>>(iter: I) -> Self {
        iter.fold(Self::ZERO, Add::add)
    }
}

const UNITS: [(&str, u64); 6] = [
    ("EiB", 1 << 60),
    ("PiB", 1 << 50),
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
];

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match UNITS.iter().find(|(_, unit)| self.0 >= *unit) {
            None => format!("{} B", self.0),
            Some((name, unit)) if self.0.is_multiple_of(*unit) => {
                format!("{} {name}", self.0 / unit)
            }
            Some((name, unit)) => format!("{:.1} {name}", self.0 as f64 / *unit as f64),
        };
        f.pad(&text)
    }
}

/// A size that could not be understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{text}' is not a size; write a number with an optional unit, like 4096, 128KiB or 1.5GiB"
)]
pub struct ParseBytesError {
    text: String,
}

impl FromStr for Bytes {
    type Err = ParseBytesError;

    /// `4096`, `4096B`, `4K`, `4k`, `4KB`, `4KiB`, `1.5 GiB`: all prefixes are binary.
    fn from_str(text: &str) -> Result<Self, ParseBytesError> {
        let fail = || ParseBytesError {
            text: text.to_owned(),
        };
        let trimmed = text.trim();
        let split = trimmed
            .find(|c: char| !(c.is_ascii_digit() || c == '.'))
            .unwrap_or(trimmed.len());
        let (number, unit) = trimmed.split_at(split);
        let factor: u64 = match unit.trim().to_ascii_lowercase().as_str() {
            "" | "b" => 1,
            "k" | "kb" | "kib" => 1 << 10,
            "m" | "mb" | "mib" => 1 << 20,
            "g" | "gb" | "gib" => 1 << 30,
            "t" | "tb" | "tib" => 1 << 40,
            "p" | "pb" | "pib" => 1 << 50,
            "e" | "eb" | "eib" => 1 << 60,
            _ => return Err(fail()),
        };
        if let Ok(whole) = number.parse::<u64>() {
            return whole.checked_mul(factor).map(Self).ok_or_else(fail);
        }
        let value = number.parse::<f64>().map_err(|_| fail())? * factor as f64;
        if value.is_finite() && value < u64::MAX as f64 {
            Ok(Self(value as u64))
        } else {
            Err(fail())
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn sizes_are_shown_and_read_with_binary_prefixes() {
        for (bytes, text) in [
            (Bytes(0), "0 B"),
            (Bytes(1023), "1023 B"),
            (Bytes::kib(4), "4 KiB"),
            (Bytes(1536), "1.5 KiB"),
            (Bytes::mib(256), "256 MiB"),
            (Bytes(1 << 60), "1 EiB"),
        ] {
            assert_eq!(bytes.to_string(), text);
            assert_eq!(text.parse(), Ok(bytes));
        }
        for (text, bytes) in [
            ("128k", 131_072),
            ("1.5GiB", 3 << 29),
            (" 7 B ", 7),
            ("2MB", 2 << 20),
        ] {
            assert_eq!(text.parse(), Ok(Bytes(bytes)), "{text}");
        }
    }

    #[test]
    fn nonsense_is_refused_and_named() {
        for text in [
            "",
            "-1",
            "KiB",
            "12 parsecs",
            "1..5K",
            "99999999999E",
            "inf",
            "nan",
            "1e5",
        ] {
            let error = text.parse::<Bytes>().unwrap_err().to_string();
            assert!(error.contains(&format!("'{text}'")), "{error}");
        }
    }

    proptest! {
        #[test]
        fn plain_numbers_come_back(n: u64) {
            prop_assert_eq!(n.to_string().parse(), Ok(Bytes(n)));
        }

        #[test]
        fn no_text_panics(text: String) {
            let _ = text.parse::<Bytes>();
        }
    }
}
