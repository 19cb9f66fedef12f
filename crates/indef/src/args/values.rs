//! Values on the command line, checked while they are parsed: invalid values never get further.

use std::time::Duration;

use units::Bytes;

/// A size that must not be zero.
pub(super) fn size(text: &str) -> Result<Bytes, String> {
    match text.parse::<Bytes>() {
        Ok(Bytes::ZERO) => Err("must be more than zero".into()),
        Ok(size) => Ok(size),
        Err(error) => Err(error.to_string()),
    }
}

/// The size of an I/O: a power of two from 4 KiB to 1 GiB, so that ranges stay block-aligned.
pub(super) fn io_size(text: &str) -> Result<Bytes, String> {
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
pub(super) fn rate(text: &str) -> Result<Bytes, String> {
    size(text.strip_suffix("/s").unwrap_or(text))
}

/// A percentage, optionally followed by `%`.
pub(super) fn percent(text: &str) -> Result<f64, String> {
    match text.strip_suffix('%').unwrap_or(text).trim().parse::<f64>() {
        Ok(value) if (0.0..=100.0).contains(&value) => Ok(value),
        Ok(_) => Err("a percentage lies between 0 and 100".into()),
        Err(_) => Err("write a percentage, like 30 or 12.5".into()),
    }
}

/// A weight of the priority: finite and not negative.
pub(super) fn weight(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if value.is_finite() && value >= 0.0 => Ok(value),
        Ok(_) => Err("a weight is a number from 0 up".into()),
        Err(_) => Err("write a number, like 4 or 0.5".into()),
    }
}

/// A time span that is not zero: `90s`, `15m`, `1h30m`.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    match humantime::parse_duration(text) {
        Ok(Duration::ZERO) => Err("must be more than zero".into()),
        Ok(duration) => Ok(duration),
        Err(_) => Err("write a time span with units, like 90s, 15m or 1h30m".into()),
    }
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
