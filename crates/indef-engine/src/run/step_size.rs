//! How much one step may do, learned from how long the steps before held the file's locks.
//!
//! The size grows by a quarter after a step that stayed inside the target, up to the size that the
//! *worst* of the last steps allows. After a step that did not, it falls at once, to the size that
//! this step allows at most. The first one is small, since nothing is known yet.

use std::{collections::VecDeque, time::Duration};

use indef_fs::{Moved, StepLimit};
use units::Bytes;

/// The first step.
const FIRST: u64 = 256 << 10;
/// No step is larger: beyond this, nothing is gained, and an unlucky one would hold the locks for
/// long.
const LARGEST: u64 = 64 << 20;
/// Nor smaller, if blocks are not larger: the cost of a step apart from its bytes would be all that
/// is paid.
const SMALLEST: u64 = 256 << 10;
/// The number of steps that are remembered.
const MEMORY: usize = 8;

#[derive(Debug)]
pub(super) struct StepSize {
    bytes: u64,
    block: u64,
    smallest: u64,
    largest: u64,
    target_ns: u64,
    /// The size that each of the last steps allowed.
    allowed: VecDeque<u64>,
}

impl StepSize {
    /// A size for steps that hold locks at most half of `max_stall`, in blocks of `block_size`,
    /// never larger than `largest`.
    pub(super) fn new(max_stall: Duration, block_size: Bytes, largest: Option<u64>) -> Self {
        let block = block_size.get().max(1);
        let largest = largest.unwrap_or(LARGEST).clamp(block, LARGEST.max(block));
        let smallest = SMALLEST.clamp(block, largest);
        Self {
            bytes: FIRST.clamp(smallest, largest),
            block,
            smallest,
            largest,
            target_ns: u64::try_from(max_stall.as_nanos() / 2)
                .unwrap_or(u64::MAX)
                .max(1),
            allowed: VecDeque::with_capacity(MEMORY),
        }
    }

    pub(super) fn limit(&self) -> StepLimit {
        StepLimit {
            bytes: Bytes(self.bytes - self.bytes % self.block),
        }
    }

    /// Learn from a step that is done. `sharers` workers move parts of the same file, and an
    /// application may wait for each of them in turn.
    pub(super) fn learn(&mut self, moved: &Moved, sharers: u64) {
        let (locked, bytes) = (moved.locked.get(), moved.locked_bytes.get());
        if locked == 0 || bytes == 0 {
            return;
        }
        let target = self.target_ns / sharers.max(1);
        // The time that a smaller step would take as well leaves the less time for bytes; where it
        // takes all of it, small steps would only repeat it.
        let overhead = moved.overhead.get().min(locked);
        let room = target.saturating_sub(overhead).max(target / 4).max(1);
        let moving = (locked - overhead).max(1);
        // At the measured speed this many bytes take as long as they may.
        let allowed = u128::from(bytes) * u128::from(room) / u128::from(moving);
        let allowed = u64::try_from(allowed).unwrap_or(u64::MAX);
        if self.allowed.len() == MEMORY {
            self.allowed.pop_front();
        }
        self.allowed.push_back(allowed);
        let worst = self.allowed.iter().copied().min().unwrap_or(allowed);
        self.bytes = if moving > room {
            allowed.min(self.bytes / 2)
        } else {
            (self.bytes + self.bytes / 4).min(worst.max(self.smallest))
        }
        .clamp(self.smallest, self.largest);
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
        let locked = run(&mut size, 30, 50_000, 1_000_000);
        assert!(size.limit().bytes >= Bytes::mib(16), "{:?}", size.limit());
        assert!(locked.iter().all(|ns| *ns <= 26_000_000), "{locked:?}");
    }

    #[test]
    fn steps_shrink_at_once_where_they_are_slow() {
        let mut size = StepSize::new(STALL, Bytes::kib(4), None);
        run(&mut size, 30, 0, 500_000);
        let locked = run(&mut size, 10, 100_000, 110_000_000);
        assert!(locked[1..].iter().all(|ns| *ns < 50_000_000), "{locked:?}");
        assert!(size.limit().bytes >= Bytes::kib(64));
    }

    #[test]
    fn one_good_step_does_not_outweigh_a_bad_one() {
        let mut size = StepSize::new(STALL, Bytes::kib(4), None);
        run(&mut size, 10, 0, 10_000_000);
        let before = size.limit().bytes;
        run(&mut size, 1, 0, 50_000_000);
        let after = size.limit().bytes;
        assert!(after.get() <= before.get() / 2, "{after}");
        run(&mut size, 1, 0, 1_000);
        assert!(size.limit().bytes <= after + after, "not doubled");
        run(&mut size, 6, 0, 1_000);
        assert!(size.limit().bytes <= Bytes::kib(512), "{:?}", size.limit());
    }

    #[test]
    fn a_commit_that_takes_too_long_does_not_make_steps_tiny() {
        let mut size = StepSize::new(STALL, Bytes::kib(4), None);
        for _ in 0..40 {
            let bytes = size.limit().bytes;
            let moved = Moved {
                locked: Nanos(60_000_000 + bytes.get()),
                locked_bytes: bytes,
                overhead: Nanos(60_000_000),
                ..Moved::default()
            };
            size.learn(&moved, 1);
        }
        assert!(size.limit().bytes >= Bytes::mib(2), "{:?}", size.limit());
        assert!(size.limit().bytes <= Bytes::mib(8), "{:?}", size.limit());
    }

    #[test]
    fn a_step_is_never_less_than_a_block() {
        let mut size = StepSize::new(Duration::from_nanos(1), Bytes::kib(64), None);
        run(&mut size, 20, 1_000_000, 1_000_000);
        assert_eq!(size.limit().bytes, Bytes::kib(256));
        let mut large = StepSize::new(Duration::from_nanos(1), Bytes::mib(1), None);
        run(&mut large, 20, 1_000_000, 1_000_000);
        assert_eq!(large.limit().bytes, Bytes::mib(1));
        let tiny = StepSize::new(STALL, Bytes::kib(4), Some(1));
        assert_eq!(tiny.limit().bytes, Bytes::kib(4));
    }
}
