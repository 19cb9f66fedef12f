//! From real time to the model's and back.

use std::time::Instant;

use units::Nanos;

/// Real time since the device was opened, and the model's time, which may go slower.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    epoch: Instant,
    scale: f64,
    overhead_ns: u64,
}

impl Clock {
    /// A clock that begins now. The model's time goes `scale` times slower than the real one;
    /// `overhead_ns` of real time are what the path to the host takes anyway, and are taken off
    /// each deadline. `None` for a scale that is no positive number.
    #[must_use]
    pub fn new(scale: f64, overhead_ns: u64) -> Option<Self> {
        (scale.is_finite() && scale > 0.0).then(|| Self {
            epoch: Instant::now(),
            scale,
            overhead_ns,
        })
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
        Nanos((self.real_ns() as f64 / self.scale) as u64)
    }

    /// When, in real nanoseconds, the answer to a command that ends at `at` must be sent.
    #[must_use]
    pub fn deadline_ns(&self, at: Nanos) -> u64 {
        ((at.get() as f64 * self.scale) as u64).saturating_sub(self.overhead_ns)
    }

    /// When, in real nanoseconds, the model's time is `at`.
    #[must_use]
    pub fn real_of(&self, at: Nanos) -> u64 {
        (at.get() as f64 * self.scale).ceil() as u64
    }

    /// How many times slower the model's time goes.
    #[must_use]
    pub fn scale(&self) -> f64 {
        self.scale
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_stretched_and_the_path_taken_off() {
        let clock = Clock::new(10.0, 17_000).unwrap();
        assert_eq!(clock.deadline_ns(Nanos(65_000)), 650_000 - 17_000);
        assert_eq!(clock.deadline_ns(Nanos(1)), 0);
        assert!(clock.model_now().get() <= clock.real_ns() / 10 + 1);
        for nonsense in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(Clock::new(nonsense, 0).is_none());
        }
    }
}
