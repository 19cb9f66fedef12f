//! The time that the programs take, from their beginning on.
//!
//! They charge what they do for chosen accesses (`charge` in bpf/maps.h), at fixed rates, so a burst is
//! seen at once. The rest is known from the last measurement: what calls cost that are not chosen, and by what
//! the rates are wrong here.

use std::time::{Duration, Instant};

/// What a measurement tells besides the charges, as shares of a processor's time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Rest {
    /// While all programs are attached. Below 0 where they charge too much.
    pub(super) attached: f64,
    /// While only those are that pauses leave alone.
    pub(super) paused: f64,
}

/// The programs' time.
#[derive(Debug)]
pub(super) struct Account {
    time: Duration,
    /// Up to when it is known, and the programs' charges then.
    upto: Instant,
    charged: u64,
    /// `None` before the first measurement.
    rest: Option<Rest>,
}

impl Account {
    /// The programs were attached.
    pub(super) fn begin(at: Instant) -> Self {
        Self {
            time: Duration::ZERO,
            upto: at,
            charged: 0,
            rest: None,
        }
    }

    /// A measurement has told the rest.
    pub(super) fn measured(&mut self, rest: Rest) {
        self.rest = Some(rest);
    }

    /// Count the time until `now`, in which the programs were attached or paused; `charged` is the sum of their
    /// charges. Before the first measurement nothing is counted: it makes up for all of the time.
    pub(super) fn count(&mut self, is_attached: bool, charged: u64, now: Instant) {
        let Some(rest) = self.rest else { return };
        let share = match is_attached {
            true => rest.attached,
            false => rest.paused,
        };
        let charges = Duration::from_nanos(charged - self.charged).as_secs_f64();
        let rest = (now - self.upto).as_secs_f64() * share;
        self.time += Duration::from_secs_f64((charges + rest).max(0.0));
        (self.charged, self.upto) = (charged, now);
    }

    pub(super) fn time(&self) -> Duration {
        self.time
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn charges_count_at_once_and_the_rest_by_time() {
        let begin = Instant::now();
        let after = |millis| begin + Duration::from_millis(millis);
        let mut account = Account::begin(begin);
        account.count(true, 1_000_000, after(50));
        assert_eq!(account.time(), Duration::ZERO);
        // The first measurement: of all of the time since the beginning.
        account.measured(Rest {
            attached: 0.04,
            paused: 0.0,
        });
        account.count(true, 2_000_000, after(100));
        assert_eq!(account.time(), Duration::from_millis(2 + 4));
        // A burst in a time that was not measured.
        account.count(true, 5_000_000, after(200));
        assert_eq!(account.time(), Duration::from_millis(6 + 3 + 4));
        account.count(false, 5_000_000, after(1200));
        assert_eq!(account.time(), Duration::from_millis(13));
    }

    #[test]
    fn charges_that_are_too_high_are_put_right() {
        let begin = Instant::now();
        let mut account = Account::begin(begin);
        account.measured(Rest {
            attached: -0.01,
            paused: 0.0,
        });
        let after = |millis| begin + Duration::from_millis(millis);
        account.count(true, 3_000_000, after(100));
        assert_eq!(account.time(), Duration::from_millis(2));
        // Never more than there is.
        account.count(true, 3_000_000, after(200));
        assert_eq!(account.time(), Duration::from_millis(2));
    }
}
