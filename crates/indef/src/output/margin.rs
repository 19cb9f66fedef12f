//! The error of an estimate.

use std::fmt;

use indef_pipeline::RateError;

/// The standard error of a rate, to be written after its unit: ` ±3 %`. Nothing where every access was counted.
pub(crate) struct Margin {
    pub(crate) error: Option<RateError>,
    pub(crate) rate: f64,
}

impl fmt::Display for Margin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(error) = self.error.filter(|error| !error.is_none()) else {
            return Ok(());
        };
        match error.relative(self.rate) * 100.0 {
            percent if percent < 10.0 => write!(f, " ±{percent:.1} %"),
            percent if percent < 100.0 => write!(f, " ±{percent:.0} %"),
            _ => f.write_str(" ±100 % or more"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use indef_pipeline::learn::{Batch, Live};
    use indef_trace::collect::Sampled;

    use super::*;

    #[test]
    fn margins_are_told_where_accesses_were_not_counted() {
        let of = |variance, rate| {
            let mut live = Live::default();
            let sampled = Sampled {
                counted: 64_000,
                variance,
                common: 0,
            };
            let batch = Batch {
                sampled,
                ..Batch::default()
            };
            live.add(&batch, Duration::from_secs(10));
            let error = Some(live.rate_error());
            Margin { error, rate }.to_string()
        };
        assert_eq!(of(0, 5.0), "");
        assert_eq!(of(64_000 * 63, 6400.0), " ±4.3 %");
        assert_eq!(of(64_000 * 63, 64.0), " ±43 %");
        assert_eq!(of(64_000 * 63, 1.0), " ±100 % or more");
        let none = Margin {
            error: None,
            rate: 5.0,
        };
        assert_eq!(none.to_string(), "");
    }
}
