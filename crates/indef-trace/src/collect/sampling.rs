//! Sampling: one access in `k` is counted, as `k` accesses, where counting each one would cost too
//! much.
//!
//! **What is chosen.** At layer fs every read and every bio that is written has a coin of its own, in
//! the program that sees it first; a chosen read keeps its requests and its time. So the estimate of a
//! range's count is unbiased whatever the application does, and its ranges are those of real requests.
//! At layer syscall a coin holds for all calls of a task within a tick of the kernel's clock (1 to 10 ms): choosing single calls
//! would make a sequential reader look like a random one, and its windows of read-ahead would be lost.
//!
//! **Pauses.** A call that is not chosen still runs a program. Beyond [`ONE_IN`] the programs are also
//! attached for a random part of the time only ([`super::windows`]), and cost nothing in between; `k` is
//! the product of both.
//!
//! **Error.** An access with the weight `k` was chosen with the probability `1/k`. So a sum over `N`
//! accesses has the variance `N (k - 1)`, for which the sum of `k (k - 1)` over the chosen ones is an
//! unbiased estimate, also where `k` changes. The relative standard error of a count `C` (that is,
//! `C / k` chosen accesses) is `sqrt((k - 1) / C)`. Where one coin covers `n` accesses (layer syscall,
//! pauses), the sum varies by `(k n)²`, not `n k²`: the difference is summed up, too. If each range has the
//! same part in all of them, it is an error that all counts share, which changes no ranking
//! ([`Sampled::common_error`]).
//!
//! **Control.** The cost is measured, not assumed ([`super::meter`]); `k` follows it. What the first looks,
//! or a load that comes suddenly, cost more than the bound is a debt, which is paid back within some
//! [`REPAID`] seconds: so the bound holds for a trace as a whole ([`Spent`]).

use std::time::Duration;

use super::windows::{PAUSES, SHORTEST};

/// From this on, accesses that are not chosen cost as much as those that are: beyond it only pauses
/// spare anything.
pub(super) const ONE_IN: u32 = 64;
/// With windows, one in so many of their accesses is chosen, if that is enough. More would be paid for in
/// vain with a smaller share, and the application be slowed more with a larger one.
const COINS: u32 = 8;
/// One in so many, at most: at layer syscall a window holds few choices for a single task, and one without
/// any would tell of no load.
const FEWEST: u32 = 2 * COINS;
/// Part of the budget that is aimed at.
const AIM: f64 = 0.7;
/// Below this part of it, more is chosen again.
const CALM: f64 = 0.5;
/// The part of the budget beyond which there is a debt: the rest is kept for what comes suddenly.
const SPENDABLE: f64 = 0.95;
/// Seconds in which a debt is paid back.
const REPAID: f64 = 5.0;
/// The part of the budget that may be used for that.
const REPAYMENT: f64 = 0.5;
/// How much `k` may grow at once.
const STEP: f64 = 8.0;
/// Part of the budget that the programs have to take before `k` grows although hardly anything is
/// chosen: then it is the programs that cost, not what they count.
const NOTABLE: f64 = 0.125;
/// Chosen accesses per second that count as hardly anything.
const FEW: f64 = 50.0;

/// How many of the accesses are counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sampling {
    /// Every one.
    #[default]
    All,
    /// One in this many, at random, always.
    OneIn(u32),
    /// One in `one_in`, in random windows that are one in `pauses` of the time.
    Paused {
        /// Chosen in a window.
        one_in: u32,
        /// Windows.
        pauses: u32,
    },
    /// One in as many as keep the cost of tracing below this many millionths of the time of one
    /// processor. One in one, as long as that does.
    AtMost(u32),
}

impl Sampling {
    /// The cost is at most this many percent of the time of one processor; of 100 and more, every
    /// access is counted.
    #[must_use]
    pub fn at_most_percent(percent: f64) -> Self {
        if percent >= 100.0 {
            return Self::All;
        }
        Self::AtMost((percent * 10_000.0) as u32)
    }

    /// The share of a processor's time that tracing may cost.
    pub(super) fn budget(self) -> Option<f64> {
        match self {
            Self::AtMost(millionths) => Some(f64::from(millionths) / 1e6),
            Self::All | Self::OneIn(_) | Self::Paused { .. } => None,
        }
    }

    /// The share of a processor's time that tracing may cost, in percent; `None` without a bound.
    #[must_use]
    pub fn bound_percent(self) -> Option<f64> {
        self.budget().map(|share| share * 100.0)
    }
}

/// Processor time that tracing took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// In the BPF programs: estimated from times at which it was measured; `None` if the cost has no
    /// bound, and it was not.
    pub programs: Option<Duration>,
    /// In the collector: the reader of the ring, and whoever takes the counts and keeps them.
    pub collector: Duration,
}

impl Spent {
    /// Add the time of another part of the trace.
    pub fn add(&mut self, more: Self) {
        self.collector += more.collector;
        if let Some(programs) = more.programs {
            *self.programs.get_or_insert_default() += programs;
        }
    }

    /// The difference since it was `before`.
    pub(super) fn since(&self, before: Self) -> Self {
        let programs = before.programs.unwrap_or_default();
        Self {
            programs: self.programs.map(|time| time.saturating_sub(programs)),
            collector: self.collector.saturating_sub(before.collector),
        }
    }

    /// The share of one processor's time, in percent, over the `traced` time; `None` if it is not known
    /// of the programs.
    #[must_use]
    pub fn percent(&self, traced: Duration) -> Option<f64> {
        let all = self.programs? + self.collector;
        (!traced.is_zero()).then(|| all.as_secs_f64() / traced.as_secs_f64() * 100.0)
    }
}

/// How exact counts are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sampled {
    /// Sum of all counts.
    pub counted: u64,
    /// Estimated variance of that sum, as if every access was chosen by itself: 0 if each was counted.
    pub variance: u64,
    /// The part of the error that comes from one choice for many accesses.
    pub common: u64,
}

impl Sampled {
    /// Add the counts of another time.
    pub fn add(&mut self, more: Self) {
        self.counted = self.counted.saturating_add(more.counted);
        self.variance = self.variance.saturating_add(more.variance);
        self.common = self.common.saturating_add(more.common);
    }

    /// `k`: one in so many accesses was counted, as a mean over the accesses; 1 if every one was.
    #[must_use]
    pub fn one_in(&self) -> f64 {
        if self.variance == 0 || self.counted == 0 {
            return 1.0;
        }
        1.0 + self.variance as f64 / self.counted as f64
    }

    /// The part of the relative standard error that all counts share: it changes no ranking.
    #[must_use]
    pub fn common_error(&self) -> f64 {
        (self.common as f64).sqrt() / self.counted.max(1) as f64
    }

    /// The relative standard error of a count: 0 if every access was counted.
    #[must_use]
    pub fn relative_error(&self, count: u64) -> f64 {
        relative_error(self.one_in(), count).hypot(self.common_error())
    }
}

/// The relative standard error of a count, where one in `one_in` accesses was counted, each by a choice
/// of its own; 0 where every one was.
#[must_use]
pub fn relative_error(one_in: f64, count: u64) -> f64 {
    ((one_in - 1.0).max(0.0) / count.max(1) as f64).sqrt()
}

/// The settings of the programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Choice {
    /// One access in so many is chosen while the programs are attached.
    pub(super) one_in: u32,
    /// They are attached for one slot in so many.
    pub(super) pauses: u32,
}

impl Choice {
    /// The accesses that a chosen one stands for.
    pub(super) fn weight(self) -> u32 {
        self.one_in * self.pauses
    }
}

/// The cost of a time, as shares of a processor's time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cost {
    /// The programs.
    pub(super) programs: f64,
    /// The collector, and which part of that is for windows.
    pub(super) own: f64,
    pub(super) attaching: f64,
    /// Chosen accesses per second.
    pub(super) chosen: f64,
}

/// Follows the cost with `k`.
#[derive(Debug)]
pub(super) struct Control {
    budget: f64,
    k: f64,
    /// The cost of the programs, smoothed.
    programs: f64,
}

impl Control {
    pub(super) fn new(budget: f64) -> Self {
        Self {
            budget,
            k: 1.0,
            programs: 0.0,
        }
    }

    /// The processor time that tracing took too much in its first `elapsed` seconds, in seconds.
    pub(super) fn debt(&self, spent: f64, elapsed: f64) -> f64 {
        spent - self.budget * SPENDABLE * elapsed
    }

    /// The best `m` now ([`super::windows`]), where it may be `longest`.
    pub(super) fn pauses(&self, longest: u32) -> u32 {
        if self.k <= f64::from(ONE_IN) {
            return 1;
        }
        let pauses = (self.k / f64::from(COINS)).ceil() as u32;
        pauses.clamp(SHORTEST, longest.min(PAUSES))
    }

    /// One in how many is chosen beside that, at least.
    pub(super) fn choice(&self, pauses: u32) -> Choice {
        let one_in = (self.k / f64::from(pauses)).ceil() as u32;
        let most = if pauses > 1 { FEWEST } else { ONE_IN };
        Choice {
            one_in: one_in.clamp(1, most),
            pauses,
        }
    }

    /// Take a measurement; `debt` is that of [`Self::debt`]. More than the budget, and in debt more than what
    /// is aimed at, is answered at once; `k` falls slowly, by half at most and not in debt,
    /// so that a cost that comes and goes does not make it swing.
    pub(super) fn measured(&mut self, cost: Cost, debt: f64, longest: u32) {
        self.programs = f64::midpoint(self.programs, cost.programs);
        let now = cost.programs + cost.own;
        let budget = self.budget - (debt / REPAID).clamp(0.0, self.budget * REPAYMENT);
        let aim = budget * AIM;
        let matters = cost.programs > self.budget * NOTABLE || cost.chosen > FEW || self.k < 2.0;
        let before = self.k;
        let most = if debt > 0.0 { aim } else { budget };
        if now > most && matters {
            self.k *= (now / aim).min(STEP);
        } else if debt <= 0.0 {
            // Without windows, they would not cost anything.
            let smooth = now.max(self.programs + cost.own) - cost.attaching;
            if smooth < budget * CALM {
                self.k *= (smooth / aim).max(0.5);
            }
        }
        // Whole numbers below, so that a `k` that falls reaches 1.
        self.k = match self.k < before {
            true => self.k.floor(),
            false => self.k.ceil(),
        };
        self.k = self.k.clamp(1.0, f64::from(FEWEST * longest));
        if before != self.k {
            // What was measured before does not hold for the new one.
            self.programs *= before / self.k;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use workloads::Numbers;

    use super::*;
    use crate::collect::windows::{Windows, longest};

    /// One percent.
    const BUDGET: f64 = 0.01;

    /// As good as for ever.
    const LONG: u32 = 1_000_000;

    /// A machine with this many accesses a second: a chosen one costs 0.6 µs in the programs and
    /// 2 µs in the collector, any other one 0.05 µs, attaching and detaching 4 ms, and the collector
    /// 0.1 % in any case. A slot of 50 ms after each window is attached, too.
    fn cost(choice: Choice, rate: f64) -> Cost {
        let chosen = rate / f64::from(choice.weight());
        let pauses = f64::from(choice.pauses);
        let is_paused = choice.pauses > 1;
        let seen = rate / pauses * if is_paused { 2.0 } else { 1.0 };
        let attaching = if is_paused {
            0.004 / (0.05 * pauses)
        } else {
            0.0
        };
        Cost {
            programs: chosen * 0.6e-6 + (seen - chosen) * 0.05e-6,
            own: 0.001 + chosen * 2e-6 + attaching,
            attaching,
            chosen,
        }
    }

    fn choice(control: &Control, slots: u32) -> Choice {
        control.choice(control.pauses(longest(slots)))
    }

    /// A measurement each second, `seconds` long, where the trace has lasted for `slots`.
    fn run(control: &mut Control, rate: f64, slots: u32, seconds: u32) -> f64 {
        for second in 0..seconds {
            let slots = slots + 20 * second;
            control.measured(cost(choice(control, slots), rate), 0.0, longest(slots));
        }
        let cost = cost(choice(control, slots + 20 * seconds), rate);
        cost.programs + cost.own
    }

    fn settle(control: &mut Control, rate: f64) -> f64 {
        run(control, rate, LONG, 60)
    }

    #[test]
    fn a_low_rate_is_counted_exactly() {
        let mut control = Control::new(BUDGET);
        settle(&mut control, 2000.0);
        assert_eq!(choice(&control, LONG).weight(), 1);
    }

    #[test]
    fn k_rises_with_the_rate_and_falls_with_it() {
        let mut control = Control::new(BUDGET);
        let mut before = 1;
        for rate in [1e4, 1e5, 1e6, 5e6] {
            let cost = settle(&mut control, rate);
            assert!(cost <= BUDGET, "{cost} at {rate}");
            let weight = choice(&control, LONG).weight();
            assert!(weight > before, "{weight} at {rate}");
            before = weight;
        }
        let cost = settle(&mut control, 1e5);
        assert!(choice(&control, LONG).weight() < before / 4);
        assert!(cost <= BUDGET, "{cost}");
        settle(&mut control, 1000.0);
        assert_eq!(choice(&control, LONG).weight(), 1);
    }

    /// A trace from its beginning, slot by slot, on the machine of [`cost`], with a measurement of a window in
    /// each second: the share of a processor's time that it took, after each slot.
    fn trace(rate: impl Fn(u32) -> f64, slots: u32, seed: u64) -> Vec<f64> {
        const SLOT: f64 = 0.05;
        let mut numbers = Numbers::new(seed);
        let (mut control, mut windows) = (Control::new(BUDGET), Windows::default());
        let (mut was_window, mut is_attached) = (false, true);
        let (mut spent, mut measured, mut hurried) = (0.0, 0, true);
        let mut shares = Vec::new();
        for slot in 0..slots {
            let wanted = control.pauses(longest(slot));
            let is_window = windows.next(wanted, &mut |bound| numbers.below(bound));
            let choice = control.choice(windows.pauses());
            let is_after = was_window && !is_window;
            if (is_window || is_after) != is_attached {
                is_attached = !is_attached;
                spent += 0.002;
            }
            let rate = rate(slot);
            let chosen = if is_window {
                rate / f64::from(choice.one_in)
            } else {
                0.0
            };
            if is_attached {
                spent += (chosen * 0.6e-6 + (rate - chosen) * 0.05e-6) * SLOT;
            }
            // The ring has one reader.
            spent += (0.001 + chosen * 2e-6).min(1.0) * SLOT;
            if is_window && (hurried || slot >= measured + 20) {
                let before = choice;
                let debt = control.debt(spent, SLOT * f64::from(slot + 1));
                control.measured(cost(choice, rate), debt, longest(slot));
                let after = control.choice(control.pauses(longest(slot)));
                hurried = before.weight() != after.weight();
                measured = slot;
            }
            was_window = is_window;
            shares.push(spent / (SLOT * f64::from(slot + 1)));
        }
        shares
    }

    /// The bound holds for a trace as a whole, from some time on: 10 s at 100,000 accesses a second, a minute
    /// at over a million. A load that begins later is no different.
    #[test]
    fn the_bound_holds_for_a_trace_as_a_whole() {
        const RATES: [(f64, u32); 5] =
            [(1e4, 20), (1e5, 200), (3e5, 300), (6e5, 600), (1.2e6, 1200)];
        for (rate, from) in RATES {
            let mut latest = 0;
            for (seed, begin) in (0..20).flat_map(|seed| [(seed, 0), (seed, 300)]) {
                let shares = trace(
                    |slot| if slot < begin { 0.0 } else { rate },
                    begin + 3000,
                    seed,
                );
                let over = shares.iter().rposition(|share| *share > BUDGET);
                latest = latest.max(over.map_or(0, |slot| slot as u32 + 1 - begin));
            }
            println!("{rate} accesses a second: within the bound after {latest} slots");
            assert!(latest <= from, "{rate} accesses a second: {latest} slots");
        }
    }

    #[test]
    fn it_is_not_chosen_less_than_is_of_use() {
        // The collector alone costs more than the budget: nothing is gained by a larger k.
        let mut control = Control::new(0.0005);
        settle(&mut control, 20_000.0);
        let cost = cost(choice(&control, LONG), 20_000.0);
        assert!(cost.chosen > FEW / STEP, "{cost:?}");
        assert!(cost.programs < 0.0005, "{cost:?}");
    }

    #[test]
    fn it_answers_within_a_few_measurements() {
        let mut control = Control::new(BUDGET);
        let cost = run(&mut control, 1e5, 0, 3);
        assert!(cost <= BUDGET * 1.2, "{cost:?}");
    }

    #[test]
    fn the_options_tell_shares() {
        assert_eq!(Sampling::at_most_percent(1.0).budget(), Some(0.01));
        assert_eq!(Sampling::at_most_percent(100.0), Sampling::All);
        assert_eq!(Sampling::OneIn(3).budget(), None);
    }

    proptest! {
        /// The mean of many estimates is the number of accesses, and their spread is the stated error,
        /// also where the weight changes in the middle.
        #[test]
        fn estimates_are_unbiased(first in 1_u32..40, second in 1_u32..40, seed in 0_u64..1000) {
            const ACCESSES: u32 = 400;
            const ROUNDS: u32 = 400;
            let mut numbers = Numbers::new(seed);
            let (mut sum, mut squares, mut stated) = (0.0, 0.0, 0.0);
            for _ in 0..ROUNDS {
                let mut sampled = Sampled::default();
                for access in 0..ACCESSES {
                    let k = if access < ACCESSES / 2 { first } else { second };
                    let weight = u64::from(k);
                    if numbers.below(weight) == 0 {
                        sampled.add(Sampled {
                            counted: weight,
                            variance: weight * (weight - 1),
                            common: 0,
                        });
                    }
                }
                let estimate = sampled.counted as f64;
                sum += estimate;
                squares += (estimate - f64::from(ACCESSES)).powi(2);
                stated += sampled.variance as f64;
            }
            let rounds = f64::from(ROUNDS);
            let (mean, variance, stated) = (sum / rounds, squares / rounds, stated / rounds);
            let error = (variance / rounds).sqrt();
            prop_assert!((mean - f64::from(ACCESSES)).abs() <= 5.0 * error + 1e-9, "{mean} ± {error}");
            prop_assert!((variance - stated).abs() <= 0.5 * stated + 1e-9, "{variance}, {stated}");
        }

        #[test]
        fn a_choice_is_at_least_what_was_asked(k in 1.0_f64..4096.0) {
            let control = Control { k, ..Control::new(BUDGET) };
            let choice = choice(&control, LONG);
            prop_assert!(f64::from(choice.weight()) >= k);
            prop_assert!(f64::from(choice.weight()) < k + f64::from(PAUSES));
        }

        #[test]
        fn the_time_that_was_spent_adds_up(programs in 0_u64..9000, collector in 0_u64..9000) {
            let mut spent = Spent::default();
            prop_assert_eq!(spent.percent(Duration::from_secs(1)), None);
            for _ in 0..2 {
                spent.add(Spent {
                    programs: Some(Duration::from_micros(programs)),
                    collector: Duration::from_micros(collector),
                });
            }
            let percent = spent.percent(Duration::from_secs(2)).unwrap();
            prop_assert!((percent - (programs + collector) as f64 / 1e4).abs() < 1e-9);
        }

        #[test]
        fn k_means_what_it_says(k in 1_u64..5000, chosen in 1_u64..5000) {
            let sampled = Sampled {
                counted: k * chosen,
                variance: k * (k - 1) * chosen,
                common: 0,
            };
            prop_assert!((sampled.one_in() - k as f64).abs() < 1e-6 * k as f64);
            let expected = ((k - 1) as f64 / (k * chosen) as f64).sqrt();
            let error = sampled.relative_error(sampled.counted);
            prop_assert!((error - expected).abs() < 1e-6);
        }
    }
}
