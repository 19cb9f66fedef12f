//! Heat that decays, without rewriting values that do not change.
//!
//! The heat of an access is halved with every half-life that passes. Instead of lowering all values
//! all the time, a store keeps all of them as of one moment, its *epoch*: an access `n` half-lives
//! later counts 2ⁿ. So values add up in any order, the coldest is the smallest, and reading takes one
//! factor. Before the factor exceeds the range of a double, the epoch is moved.
//!
//! A clock that is before the epoch is wrong; its accesses count as of the epoch.

/// How values of a store relate to counts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Decay {
    /// In nanoseconds; 0 for heat that does not decay.
    pub(super) half_life_ns: i64,
    /// In nanoseconds since 1970.
    pub(super) epoch_ns: i64,
}

/// Half-lives from the epoch after which it is moved: doubles reach up to 2¹⁰²³.
const FAR: f64 = 256.0;

impl Decay {
    /// The amount that one access at `now` adds to a value.
    pub(super) fn weight(&self, now_ns: i64) -> f64 {
        self.half_lives(now_ns).min(2.0 * FAR).exp2()
    }

    /// The decay with the epoch `now`, if it is time to move it, and the factor for all values.
    pub(super) fn moved(&self, now_ns: i64) -> Option<(Self, f64)> {
        (self.half_lives(now_ns) > FAR).then(|| self.restarted(now_ns))
    }

    /// The decay with the epoch `now`, and the factor for all values.
    pub(super) fn restarted(&self, now_ns: i64) -> (Self, f64) {
        let epoch_ns = now_ns.max(self.epoch_ns);
        let factor = (-self.half_lives(now_ns)).exp2();
        (Self { epoch_ns, ..*self }, factor)
    }

    fn half_lives(&self, now_ns: i64) -> f64 {
        let since = now_ns.saturating_sub(self.epoch_ns).max(0);
        match self.half_life_ns {
            0 => 0.0,
            half_life => since as f64 / half_life as f64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heat_is_halved_with_each_half_life() {
        let decay = Decay {
            half_life_ns: 1000,
            epoch_ns: 5000,
        };
        for (now, weight) in [(0, 1.0), (5000, 1.0), (6000, 2.0), (8000, 8.0)] {
            assert_eq!(decay.weight(now), weight);
        }
        let never = Decay {
            half_life_ns: 0,
            ..decay
        };
        assert_eq!(never.weight(i64::MAX), 1.0);
        assert_eq!(never.moved(i64::MAX), None);
    }

    #[test]
    fn moving_the_epoch_changes_no_heat() {
        let decay = Decay {
            half_life_ns: 1000,
            epoch_ns: 0,
        };
        assert_eq!(decay.moved(200_000), None);
        let now = 300_000;
        let (moved, factor) = decay.moved(now).unwrap();
        assert_eq!(moved.epoch_ns, now);
        let value = 3.0 * decay.weight(299_000);
        assert_eq!(
            value / decay.weight(now),
            value * factor / moved.weight(now)
        );
        // A clock that is wrong by thousands of years still leaves numbers.
        assert!(decay.weight(i64::MAX).is_finite());
    }
}
