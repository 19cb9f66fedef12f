//! The keep alive timer of a controller, by traffic (Base §3.9).
//!
//! Every byte from the host and every answer to it restarts the timer, on any queue of the
//! controller: a host counts its own completions, and sends no Keep Alive while they come.

use std::{
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
    time::{Duration, Instant},
};

/// The least and the most time beyond the timeout that a host is given: its Keep Alive may be on
/// its way, or its timer may be late.
const MARGIN_MS: (u32, u32) = (250, 10_000);

/// A keep alive timer.
#[derive(Debug)]
pub(super) struct KeepAlive {
    made: Instant,
    traffic_ms: AtomicU64,
    /// KATO; 0 where the host does not want it.
    timeout_ms: AtomicU32,
}

impl KeepAlive {
    pub(super) fn new(timeout_ms: u32) -> Self {
        Self {
            made: Instant::now(),
            traffic_ms: AtomicU64::new(0),
            timeout_ms: AtomicU32::new(timeout_ms),
        }
    }

    /// KATO in milliseconds.
    pub(super) fn timeout_ms(&self) -> u32 {
        self.timeout_ms.load(Ordering::Acquire)
    }

    pub(super) fn set_timeout_ms(&self, timeout_ms: u32) {
        self.timeout_ms.store(timeout_ms, Ordering::Release);
    }

    /// Restart the timer.
    pub(super) fn note_traffic(&self) {
        self.note_traffic_at(self.age_ms());
    }

    fn note_traffic_at(&self, age_ms: u64) {
        self.traffic_ms.fetch_max(age_ms, Ordering::AcqRel);
    }

    /// The time without traffic, once it is longer than the timeout and a margin of half of it.
    pub(super) fn expired(&self) -> Option<Duration> {
        self.expired_at(self.age_ms())
    }

    fn expired_at(&self, age_ms: u64) -> Option<Duration> {
        let timeout = self.timeout_ms();
        let margin = (timeout / 2).clamp(MARGIN_MS.0, MARGIN_MS.1);
        let silent = age_ms.saturating_sub(self.traffic_ms.load(Ordering::Acquire));
        (timeout > 0 && silent > u64::from(timeout) + u64::from(margin))
            .then(|| Duration::from_millis(silent))
    }

    fn age_ms(&self) -> u64 {
        self.made.elapsed().as_millis() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traffic_restarts_the_timer_and_a_margin_is_given() {
        let timer = KeepAlive::new(40);
        assert_eq!(timer.expired_at(290), None, "within the margin");
        assert_eq!(timer.expired_at(291), Some(Duration::from_millis(291)));
        timer.note_traffic_at(300);
        assert_eq!(timer.expired_at(590), None);
        assert_eq!(timer.expired_at(600), Some(Duration::from_millis(300)));
        // Time goes on, and traffic ends that.
        while timer.age_ms() <= 600 {
            std::thread::sleep(Duration::from_millis(50));
        }
        assert!(timer.expired().is_some());
        timer.note_traffic();
        assert_eq!(timer.expired_at(601), None);
        timer.set_timeout_ms(0);
        assert_eq!(timer.expired_at(1 << 40), None, "the host does not want it");
    }
}
