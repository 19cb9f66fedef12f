//! How much one step may do, learned from how long the steps before held the file's locks.
//!
//! Additive caution, multiplicative retreat: the size doubles while steps stay well inside the
//! target and the measured speed allows it, and falls at once below what the measured speed
//! allows when one does not. The first step is small, since nothing is known yet.

use std::time::Duration;

use indef_fs::{Moved, StepLimit};
use units::Bytes;

/// The first step.
const FIRST: u64 = 1 << 20;
/// No step is larger: beyond, nothing is gained, and an unlucky one would hold the locks for long.
const LARGEST: u64 = 64 << 20;

#[derive(Debug)]
pub(super) struct StepSize {
    bytes: u64,
    block: u64,
    largest: u64,
    target_ns: u64,
}

impl StepSize {
    /// For steps that hold locks at most half of `max_stall`, in blocks of `block_size`, never
    /// larger than `largest`.
    pub(super) fn new(max_stall: Duration, block_size: Bytes, largest: Option<u64>) -> Self {
        let block = block_size.get().max(1);
        let largest = largest.unwrap_or(LARGEST).clamp(block, LARGEST.max(block));
        Self {
            bytes: FIRST.clamp(block, largest),
            block,
            largest,
            target_ns: u64::try_from(max_stall.as_nanos() / 2)
                .unwrap_or(u64::MAX)
                .max(1),
        }
    }

    pub(super) fn limit(&self) -> StepLimit {
        StepLimit {
            bytes: Bytes(self.bytes - self.bytes % self.block),
        }
    }

    /// A step is done. `sharers` workers move parts of the same file, and an application may wait
    /// for each of them in turn.
    pub(super) fn learn(&mut self, moved: &Moved, sharers: u64) {
        let (locked, bytes) = (moved.locked.get(), moved.locked_bytes.get());
        if locked == 0 || bytes == 0 {
            return;
        }
        let target = self.target_ns / sharers.max(1);
        // At the measured speed this many bytes take as long as they may.
        let allowed = u128::from(bytes) * u128::from(target) / u128::from(locked);
        let allowed = u64::try_from(allowed).unwrap_or(u64::MAX);
        self.bytes = if locked > target {
            allowed.min(self.bytes / 2)
        } else {
            self.bytes.saturating_mul(2).min(allowed.max(self.bytes))
        }
        .clamp(self.block, self.largest);
    }
}

#[cfg(test)]
mod tests {
    use units::Nanos;

    use super::*;

    /// Steps of a file system that needs `fixed` plus `per_mib` for each step.
    fn run(size: &mut StepSize, steps: usize, fixed_ns: u64, per_mib_ns: u64) -> Vec<u64> {
        (0..steps)
            .map(|_| {
                let bytes = size.limit().bytes.get();
                let locked = fixed_ns + ((u128::from(bytes) * u128::from(per_mib_ns)) >> 20) as u64;
                let moved = Moved {
                    locked: Nanos(locked),
                    locked_bytes: Bytes(bytes),
                    ..Moved::default()
                };
                size.learn(&moved, 1);
                locked
            })
            .collect()
    }

    const STALL: Duration = Duration::from_millis(50);

    #[test]
    fn steps_grow_where_they_are_quick() {
        let mut size = StepSize::new(STALL, Bytes::kib(4), None);
        let locked = run(&mut size, 12, 50_000, 1_000_000);
        assert!(size.limit().bytes >= Bytes::mib(16), "{:?}", size.limit());
        assert!(locked.iter().all(|ns| *ns <= 26_000_000), "{locked:?}");
    }

    #[test]
    fn steps_shrink_at_once_where_they_are_slow() {
        let mut size = StepSize::new(STALL, Bytes::kib(4), None);
        run(&mut size, 12, 0, 500_000);
        let locked = run(&mut size, 10, 100_000, 110_000_000);
        assert!(locked[1..].iter().all(|ns| *ns < 50_000_000), "{locked:?}");
        assert!(size.limit().bytes >= Bytes::kib(64));
    }

    #[test]
    fn a_step_is_never_less_than_a_block() {
        let mut size = StepSize::new(Duration::from_nanos(1), Bytes::kib(64), None);
        run(&mut size, 20, 1_000_000, 1_000_000);
        assert_eq!(size.limit().bytes, Bytes::kib(64));
        let tiny = StepSize::new(STALL, Bytes::kib(4), Some(1));
        assert_eq!(tiny.limit().bytes, Bytes::kib(4));
    }
}
