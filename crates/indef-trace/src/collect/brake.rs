//! The brake: where a load comes that is news to user space, the programs choose fewer accesses by themselves,
//! after so many in a slot, until user space looks again.
//!
//! It knows nothing of debts or of what accesses cost: few accesses are counted exactly, however heavy each of
//! them is. It only keeps a slot from costing ten times what was foreseen. Windows that stand for more than
//! themselves have none: they are rare.
//!
//! No bias: whether an access is chosen is settled by its own coin, with a probability that only earlier ones have
//! settled, and its weight is one over it. So sums less the truth are a martingale, and the variance that the programs
//! count is without bias, too.

use super::{contract::BRAKED, sampling::Choice, windows::SLOT};

/// Cost of an access that is looked at, for programs and for the collector, in seconds; most cost less.
const DEAR: f64 = 2e-6;
/// The time whose budget a slot may take for accesses as dear as that, in seconds: a burst of some thousands is
/// counted exactly, and its cost is soon saved again.
const AHEAD: f64 = 0.5;

/// That of one slot.
#[derive(Clone, Copy, Debug)]
pub(super) struct Brake {
    one_in: u32,
    allowed: u64,
}

impl Brake {
    /// For a slot with this choice; `None` where it would spare nothing.
    pub(super) fn of(choice: Choice, budget: f64) -> Option<Self> {
        (choice.pauses == 1 && choice.one_in < BRAKED).then_some(Self {
            one_in: choice.one_in,
            allowed: (budget * AHEAD / DEAR) as u64,
        })
    }

    /// Chosen accesses, after which it brakes.
    pub(super) fn allowed(self) -> u64 {
        self.allowed
    }

    /// Whether it did, where so many were seen.
    pub(super) fn is_on(self, seen: u64) -> bool {
        seen > self.allowed
    }

    /// The accesses of which so many were seen, estimated.
    pub(super) fn made(self, seen: u64) -> u64 {
        let before = seen.min(self.allowed);
        before * u64::from(self.one_in) + (seen - before) * u64::from(BRAKED)
    }
}

/// Whether so many accesses, estimated, are worth a look at the cost at once: more than twice those of the slot
/// that was measured last, and not few.
pub(super) fn is_news(made: u64, measured: u64, budget: f64) -> bool {
    made > 2 * measured && made as f64 > budget * SLOT.as_secs_f64() / DEAR
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use workloads::Numbers;

    use super::*;

    const ONE: Choice = Choice {
        one_in: 1,
        pauses: 1,
    };

    #[test]
    fn few_accesses_are_never_braked() {
        // 240 reads a second, or fifty times as many; a file of 8 MiB, read in blocks at once.
        let brake = Brake::of(ONE, 0.01).unwrap();
        assert!(!brake.is_on(240 / 20) && !brake.is_on(240 * 50 / 20) && !brake.is_on(2048));
        assert_eq!(brake.made(12), 12);
        assert!(!brake.is_on(2500) && brake.is_on(2501));
        assert_eq!(brake.made(2501), 2500 + 64);
    }

    #[test]
    fn it_is_for_slots_that_see_all_or_nearly() {
        let rare = Choice {
            one_in: BRAKED,
            pauses: 1,
        };
        let window = Choice {
            one_in: 1,
            pauses: 16,
        };
        assert!(Brake::of(rare, 0.01).is_none());
        assert!(Brake::of(window, 0.01).is_none());
    }

    #[test]
    fn a_load_that_comes_suddenly_is_news() {
        assert!(is_news(600, 200, 0.01));
        assert!(!is_news(350, 200, 0.01));
        assert!(!is_news(200, 0, 0.01), "so few cost nothing");
    }

    /// One slot as the programs count it, `tasks` in turn. With `ticks` of so many accesses, all those of a task in a
    /// tick share a coin, as at layer syscall. Returns the estimate, and its variance as it is counted.
    fn slot(
        made: u32,
        one_in: u32,
        allowed: u32,
        tasks: u32,
        tick: Option<u32>,
        numbers: &mut Numbers,
    ) -> (f64, f64) {
        let (mut sum, mut variance, mut seen, mut k) = (0.0, 0.0, 0, one_in);
        let mut coins = vec![0.0; tasks as usize];
        let mut covered = vec![0.0; tasks as usize];
        for access in 0..made {
            if tick.is_none_or(|tick| access % tick == 0) {
                coins.fill_with(|| numbers.fraction());
                covered.fill(0.0);
            }
            let task = (access % tasks) as usize;
            if coins[task] * f64::from(k) >= 1.0 {
                continue;
            }
            let weight = f64::from(k);
            sum += weight;
            variance += weight * (weight - 1.0) + 2.0 * weight * covered[task];
            covered[task] += weight - 1.0;
            if seen >= allowed {
                k = BRAKED;
            }
            seen += 1;
        }
        (sum, variance)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        /// The mean of many estimates is the number of accesses, and their spread is the stated error, with a coin for
        /// each access and with one for all of a task in a tick.
        #[test]
        fn a_braked_slot_is_unbiased(
            one_in in 1_u32..20,
            allowed in 1_u32..100,
            tasks in 1_u32..6,
            is_shared: bool,
            seed in 0_u64..1000,
        ) {
            const MADE: u32 = 1200;
            const ROUNDS: u32 = 1500;
            let mut numbers = Numbers::new(seed);
            let tick = is_shared.then_some(60);
            let (mut sum, mut squares, mut stated) = (0.0, 0.0, 0.0);
            for _ in 0..ROUNDS {
                let (estimate, variance) = slot(MADE, one_in, allowed, tasks, tick, &mut numbers);
                let off = estimate - f64::from(MADE);
                sum += off;
                squares += off * off;
                stated += variance;
            }
            let rounds = f64::from(ROUNDS);
            let (bias, variance, stated) = (sum / rounds, squares / rounds, stated / rounds);
            prop_assert!(bias.abs() <= 5.0 * (variance / rounds).sqrt() + 1e-9, "{bias}, {variance}");
            prop_assert!((variance - stated).abs() <= 0.35 * stated + 1e-9, "{variance}, {stated}");
        }
    }
}
