//! Counts that fade, so that they show which ranges are hot now.
//!
//! A faded count `c` of events that come at a steady rate `r` settles at `r · half-life ÷ ln 2`, so
//! a rate can be computed from it without keeping the events.

use std::time::Duration;

/// A count watched for less than this has no rate yet: a first count divided by almost no time can
/// be any number.
const SHORTEST: Duration = Duration::from_millis(500);

/// The speed at which counts fade.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Decay {
    /// The time after which a count is worth half; `None`: counts keep their values.
    half_life: Option<Duration>,
}

impl Decay {
    /// Counts keep their values.
    pub(crate) const NONE: Self = Self { half_life: None };

    /// Counts are worth half after this time, or keep their values where it is zero, as a profile's settings have it.
    pub(crate) const fn of(half_life: Duration) -> Self {
        match half_life.is_zero() {
            true => Self::NONE,
            false => Self::half_life(half_life),
        }
    }

    /// Counts are worth half after this time, which is not zero.
    pub(crate) const fn half_life(time: Duration) -> Self {
        Self {
            half_life: Some(time),
        }
    }

    /// The factor by which a count fades in `time`.
    pub(crate) fn factor(self, time: Duration) -> f64 {
        self.half_life.map_or(1.0, |half| {
            (-(time.as_secs_f64() / half.as_secs_f64())).exp2()
        })
    }

    /// The factor that makes a faded count a rate per second, once it was watched for `watched`:
    /// shortly after the beginning it has not settled yet. 1 where nothing fades.
    pub(crate) fn per_second(self, watched: Duration) -> f64 {
        let Some(half) = self.half_life else {
            return 1.0;
        };
        let settled = 1.0 - self.factor(watched.max(SHORTEST));
        std::f64::consts::LN_2 / half.as_secs_f64() / settled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_steady_rate_is_told_from_the_first_seconds_on() {
        let decay = Decay::half_life(Duration::from_secs(10));
        let mut count = 0.0;
        for tenth in 1..=1000 {
            count = count * decay.factor(Duration::from_millis(100)) + 5.0;
            let watched = Duration::from_millis(tenth * 100);
            let rate = count * decay.per_second(watched);
            if watched < SHORTEST {
                continue;
            }
            // Events at the end of each tenth weigh a little more than events spread over it.
            assert!((rate - 50.0).abs() < 0.5, "{rate} after {watched:?}");
        }
    }

    #[test]
    fn nothing_fades_without_a_half_life() {
        assert_eq!(Decay::NONE.factor(Duration::from_secs(1 << 40)), 1.0);
        assert_eq!(Decay::NONE.per_second(Duration::from_secs(5)), 1.0);
        let decay = Decay::half_life(Duration::from_secs(1));
        assert_eq!(decay.factor(Duration::from_secs(1)), 0.5);
        assert!(decay.per_second(Duration::ZERO) < 3.0);
        assert_eq!(decay.factor(Duration::MAX), 0.0);
    }
}
