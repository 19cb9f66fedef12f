//! From real time to the model's and back.

use std::{
    sync::{Arc, PoisonError, RwLock},
    time::Instant,
};

use units::Nanos;

/// Real time since the device was opened, and the model's time, which may go slower. All clones are
/// one clock.
#[derive(Clone, Debug)]
pub struct Clock {
    epoch: Instant,
    overhead_ns: u64,
    rate: Arc<RwLock<Rate>>,
}

/// The relation of the two times since a moment.
#[derive(Clone, Copy, Debug)]
struct Rate {
    scale: f64,
    /// The moment, in real time since the epoch and in the model's.
    real_ns: u64,
    model_ns: u64,
}

impl Rate {
    /// The model's time at `real_ns`.
    fn model_at(self, real_ns: u64) -> u64 {
        self.model_ns + (real_ns.saturating_sub(self.real_ns) as f64 / self.scale) as u64
    }

    /// Real time until the model's time is `at`, since the epoch; times before the moment are past.
    fn real_at(self, at: Nanos) -> f64 {
        self.real_ns as f64 + at.get().saturating_sub(self.model_ns) as f64 * self.scale
    }
}

fn is_scale(scale: f64) -> bool {
    scale.is_finite() && scale > 0.0
}

impl Clock {
    /// A clock that begins now. The model's time goes `scale` times slower than the real one;
    /// `overhead_ns` is the real time that the path to the host takes anyway, and is taken off each
    /// deadline. `None` for a scale that is no positive number.
    #[must_use]
    pub fn new(scale: f64, overhead_ns: u64) -> Option<Self> {
        is_scale(scale).then(|| Self {
            epoch: Instant::now(),
            overhead_ns,
            rate: Arc::new(RwLock::new(Rate {
                scale,
                real_ns: 0,
                model_ns: 0,
            })),
        })
    }

    fn rate(&self) -> Rate {
        *self.rate.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Real nanoseconds since the beginning.
    #[must_use]
    pub fn real_ns(&self) -> u64 {
        // 584 years fit.
        self.epoch.elapsed().as_nanos() as u64
    }

    /// The model's time now.
    #[must_use]
    pub fn model_now(&self) -> Nanos {
        // Before the rate: a change between the two must not be overtaken at the old one's pace.
        let real_ns = self.real_ns();
        Nanos(self.rate().model_at(real_ns))
    }

    /// When, in real nanoseconds, the answer to a command that ends at `at` must be sent.
    #[must_use]
    pub fn deadline_ns(&self, at: Nanos) -> u64 {
        (self.rate().real_at(at) as u64).saturating_sub(self.overhead_ns)
    }

    /// When, in real nanoseconds, the model's time is `at`.
    #[must_use]
    pub fn real_of(&self, at: Nanos) -> u64 {
        self.rate().real_at(at).ceil() as u64
    }

    /// The factor by which the model's time goes slower.
    #[must_use]
    pub fn scale(&self) -> f64 {
        self.rate().scale
    }

    /// From now on the model's time goes `scale` times slower than the real one. Deadlines that
    /// were asked for before stay what they are. `None` for a scale that is no positive number.
    pub(crate) fn set_scale(&self, scale: f64) -> Option<()> {
        is_scale(scale).then(|| {
            let mut rate = self.rate.write().unwrap_or_else(PoisonError::into_inner);
            let real_ns = self.real_ns();
            *rate = Rate {
                scale,
                real_ns,
                model_ns: rate.model_at(real_ns),
            };
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn time_is_stretched_and_the_path_taken_off() {
        let clock = Clock::new(10.0, 17_000).unwrap();
        assert_eq!(clock.deadline_ns(Nanos(65_000)), 650_000 - 17_000);
        assert_eq!(clock.deadline_ns(Nanos(1)), 0);
        assert!(clock.model_now().get() <= clock.real_ns() / 10 + 1);
        for nonsense in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(Clock::new(nonsense, 0).is_none());
            assert!(clock.set_scale(nonsense).is_none());
        }
        assert_eq!(clock.scale(), 10.0);
    }

    #[test]
    fn another_pace_goes_on_from_where_the_time_is() {
        let clock = Clock::new(0.001, 0).unwrap();
        std::thread::sleep(Duration::from_millis(2));
        let before = clock.model_now().get();
        assert!(before >= 2_000_000_000);
        clock.set_scale(100.0).unwrap();
        let changed = clock.real_ns();
        let after = clock.model_now().get();
        assert!(after >= before && clock.scale() == 100.0);
        // A microsecond of the model is a tenth of a millisecond from here on, and the past is
        // over.
        let soon = clock.real_of(Nanos(after + 1_000_000));
        assert!(soon >= changed && soon <= clock.real_ns() + 100_000_000);
        assert!(clock.real_of(Nanos(1)) <= changed);
    }
}
