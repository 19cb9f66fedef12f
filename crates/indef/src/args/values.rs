//! Values on the command line, checked while they are parsed: invalid values never get further.

use std::{ops::RangeInclusive, str::FromStr, time::Duration};

use indef_core::plan::Policy;
use indef_fs::EngineKind;
use indef_trace::store::SMALLEST;
use units::Bytes;

/// A limit, or the word `none` for its absence: what takes the limit of the configuration away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limit<T> {
    /// None.
    Off,
    /// This one.
    At(T),
}

impl<T> Limit<T> {
    /// The limit, if there is one.
    pub(crate) fn value(self) -> Option<T> {
        match self {
            Self::Off => None,
            Self::At(limit) => Some(limit),
        }
    }

    fn parse(text: &str, parse: impl Fn(&str) -> Result<T, String>) -> Result<Self, String> {
        match text {
            "none" => Ok(Self::Off),
            text => parse(text).map(Self::At),
        }
    }
}

/// A budget, or none.
pub(super) fn size_or_none(text: &str) -> Result<Limit<Bytes>, String> {
    Limit::parse(text, size)
}

/// A rate, or none.
pub(super) fn rate_or_none(text: &str) -> Result<Limit<Bytes>, String> {
    Limit::parse(text, rate)
}

/// A time span, or none.
pub(super) fn duration_or_none(text: &str) -> Result<Limit<Duration>, String> {
    Limit::parse(text, duration)
}

/// A number of files at the same time.
pub(crate) fn jobs(text: &str) -> Result<u16, String> {
    whole(text, 1..=1024)
}

/// A number of requests in flight.
pub(crate) fn queue_depth(text: &str) -> Result<u32, String> {
    whole(text, 1..=4096)
}

/// A time for which a write may wait, in milliseconds.
pub(crate) fn stall(text: &str) -> Result<Duration, String> {
    whole(text, 1..=60_000).map(Duration::from_millis)
}

fn whole<T: FromStr + PartialOrd + std::fmt::Display>(
    text: &str,
    range: RangeInclusive<T>,
) -> Result<T, String> {
    let number = text.parse::<T>().ok();
    number
        .filter(|number| range.contains(number))
        .ok_or_else(|| {
            format!(
                "must be a whole number from {} to {}",
                range.start(),
                range.end()
            )
        })
}

/// A policy by its name.
pub(crate) fn policy(text: &str) -> Result<Policy, String> {
    text.parse::<Policy>().map_err(|error| error.to_string())
}

/// An engine by its name.
pub(crate) fn engine(text: &str) -> Result<EngineKind, String> {
    text.parse::<EngineKind>().map_err(|_| {
        let names = EngineKind::ALL.map(EngineKind::name).join(", ");
        format!("'{text}' is no engine; there are {names}")
    })
}

/// A size that must not be zero.
pub(crate) fn size(text: &str) -> Result<Bytes, String> {
    match text.parse::<Bytes>() {
        Ok(Bytes::ZERO) => Err("must be more than zero".into()),
        Ok(size) => Ok(size),
        Err(error) => Err(error.to_string()),
    }
}

/// The size that a store never grows beyond.
pub(crate) fn max_size(text: &str) -> Result<Bytes, String> {
    match size(text)? {
        size if size >= SMALLEST => Ok(size),
        _ => Err(format!("must be at least {SMALLEST}")),
    }
}

/// The size of an I/O: a power of two from 4 KiB to 1 GiB, so that ranges stay block-aligned.
pub(crate) fn io_size(text: &str) -> Result<Bytes, String> {
    let size = size(text)?;
    if size.get().is_power_of_two() && (Bytes::kib(4)..=Bytes::gib(1)).contains(&size) {
        Ok(size)
    } else {
        Err("must be a power of two from 4KiB to 1GiB, like 128KiB".into())
    }
}

/// The amount of data for the demo: enough to fragment, small enough for a temporary directory.
pub(super) fn demo_size(text: &str) -> Result<Bytes, String> {
    match size(text)? {
        size if (Bytes::mib(16)..=Bytes::gib(64)).contains(&size) => Ok(size),
        _ => Err("must lie between 16MiB and 64GiB".into()),
    }
}

/// A rate: a size, optionally followed by `/s`.
pub(crate) fn rate(text: &str) -> Result<Bytes, String> {
    size(text.strip_suffix("/s").unwrap_or(text))
}

/// A percentage, optionally followed by `%`.
pub(crate) fn percent(text: &str) -> Result<f64, String> {
    match text.strip_suffix('%').unwrap_or(text).trim().parse::<f64>() {
        Ok(value) if (0.0..=100.0).contains(&value) => Ok(value),
        Ok(_) => Err("a percentage lies between 0 and 100".into()),
        Err(_) => Err("write a percentage, like 30 or 12.5".into()),
    }
}

/// A weight of the priority: finite and not negative.
pub(crate) fn weight(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if value.is_finite() && value >= 0.0 => Ok(value),
        Ok(_) => Err("a weight is a number from 0 up".into()),
        Err(_) => Err("write a number, like 4 or 0.5".into()),
    }
}

/// A time span that is not zero: `90s`, `15m`, `1h30m`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    match humantime::parse_duration(text) {
        Ok(Duration::ZERO) => Err("must be more than zero".into()),
        Ok(duration) => Ok(duration),
        Err(_) => Err("write a time span with units, like 90s, 15m or 1h30m".into()),
    }
}

/// The same, or none of it: `0s`.
pub(crate) fn duration_or_zero(text: &str) -> Result<Duration, String> {
    match humantime::parse_duration(text) {
        Ok(Duration::ZERO) => Ok(Duration::ZERO),
        _ => duration(text),
    }
}

/// A time span that is not zero, in days.
pub(crate) fn days(text: &str) -> Result<f64, String> {
    duration(text).map(|duration| duration.as_secs_f64() / (24.0 * 3600.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn good_values_are_understood() {
        assert_eq!(size("4KiB"), Ok(Bytes(4096)));
        assert_eq!(io_size("128KiB"), Ok(Bytes::kib(128)));
        assert_eq!(rate("100MiB/s"), Ok(Bytes::mib(100)));
        assert_eq!(percent("12.5%"), Ok(12.5));
        assert_eq!(weight("0"), Ok(0.0));
        assert_eq!(duration("1h30m"), Ok(Duration::from_secs(5400)));
    }

    #[test]
    fn a_limit_may_be_none() {
        assert_eq!(size_or_none("4KiB"), Ok(Limit::At(Bytes(4096))));
        assert_eq!(rate_or_none("none").unwrap().value(), None);
        assert!(duration_or_none("never").is_err());
    }

    #[test]
    fn numbers_have_bounds() {
        assert_eq!((jobs("1"), queue_depth("4096")), (Ok(1), Ok(4096)));
        assert_eq!(stall("50"), Ok(Duration::from_millis(50)));
        for text in ["0", "-1", "1025", "99999999999999999999", "1.5", "many", ""] {
            let error = jobs(text).unwrap_err();
            assert!(error.contains("1 to 1024"), "{error}");
        }
    }

    #[test]
    fn nonsense_is_refused_with_an_example() {
        for text in ["", "0", "-1", "12 parsecs"] {
            assert!(size(text).is_err(), "{text}");
            assert!(rate(text).is_err(), "{text}");
            assert!(io_size(text).is_err(), "{text}");
        }
        assert!(io_size("100000").is_err() && io_size("2GiB").is_err() && io_size("512").is_err());
        for text in ["101", "-1", "nan", "inf", "many", ""] {
            assert!(percent(text).is_err(), "{text}");
        }
        for text in ["-1", "nan", "inf", ""] {
            assert!(weight(text).is_err(), "{text}");
        }
        for text in ["0s", "5", "soon", "-3m"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }
}
