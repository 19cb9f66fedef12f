//! Sampling: one access in `k` is counted, as `k` accesses, where counting each one would cost too
//! much.
//!
//! **What is chosen.** At layer fs every read and every bio that is written has a coin of its own, in
//! the program that sees it first; a chosen read keeps its requests and its time. So the estimate of a
//! range's count is unbiased whatever the application does, and its ranges are those of real requests.
//! At layer syscall a coin holds for all calls of a task within a tick of the kernel's clock (1 to 10 ms): choosing single calls
//! would make a sequential reader look like a random one, and its windows of read-ahead would be lost. What is counted of a
//! process there is weighed by its calls, which Linux counts in any case ([`super::accounts`]).
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
//! **Control.** The cost is measured, not assumed ([`super::meter`]); `k` follows it. What a load that comes
//! suddenly costs more than the bound ([`super::brake`] keeps it small) is a debt, which is paid back within
//! some [`REPAID`] seconds: so the bound holds for a trace as a whole ([`Spent`]).

use std::time::Duration;

use super::{
    contract::BRAKED,
    windows::{PAUSES, SHORTEST},
};

/// From this on, accesses that are not chosen cost as much as those that are: beyond it only pauses
/// spare anything.
pub(super) const ONE_IN: u32 = BRAKED;
/// With windows, one in so many of their accesses is chosen, if that is enough. More would be paid for in
/// vain with a smaller share, and the application be slowed more with a larger one.
const COINS: u32 = 6;
/// One in so many, at most: a window without any would tell of no load.
pub(super) const FEWEST: u32 = 16;
/// The same where a choice holds for a tick: a window has 12 of them where the kernel's clock has 250 in a second, so that one is chosen
/// for each task.
pub(super) const FEWEST_TICKS: u32 = 12;
/// Part of the budget that is aimed at.
const AIM: f64 = 0.7;
/// Where chosen accesses cost less than this part of what they may, more are chosen again.
const CALM: f64 = 0.7;
/// The part of the budget beyond which there is a debt: the rest is kept for what comes suddenly, and for the error
/// of the measurement.
const SPENDABLE: f64 = 0.9;
/// Seconds in which a debt is paid back.
const REPAID: f64 = 2.0;
/// The part of the budget that may be used for that.
const REPAYMENT: f64 = 0.7;
/// Without windows, the part of the budget that chosen accesses may take at least, as long as all together stay within
/// what is [`SPENDABLE`]: where the cost is that of accesses which are not chosen, a larger `k` spares nothing.
const CHOSEN: f64 = 0.15;
/// The part of the budget that attaching the programs for windows, and detaching them, may take: if they may be, windows are rarer
/// than `k` wants them.
const ATTACHING: f64 = 0.2;
/// What that takes of a processor, in slots, until it is known.
const USUAL_ATTACHING: f64 = 0.04;
/// How much `k` may grow at once.
const STEP: f64 = 8.0;
/// The part of the budget that is left for accesses at least, whatever the collector's [`Cost::upkeep`] takes: a
/// larger `k` does not lower that, and would only tell less.
const KEPT: f64 = 0.3;
/// Part of the budget that the programs have to take before `k` grows although hardly anything is
/// chosen: then it is the programs that cost, not what they count.
const NOTABLE: f64 = 0.125;
/// Accesses per second that are looked at and count as hardly anything.
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
    /// The part of it that accesses would cost which are not chosen ([`super::split`]).
    pub(super) unchosen: f64,
    /// The collector, and which part of that is for windows.
    pub(super) own: f64,
    pub(super) attaching: f64,
    /// What attaching and detaching takes of a processor for one window, in slots; `None` if there was none yet.
    pub(super) a_window: Option<f64>,
    /// The part of the collector's that `k` does not change: looking at the cost, slot by slot.
    pub(super) upkeep: f64,
    /// Accesses that are looked at, per second.
    pub(super) seen: f64,
}

/// Follows the cost with `k`.
#[derive(Debug)]
pub(super) struct Control {
    budget: f64,
    k: f64,
    /// The cost of the programs, smoothed.
    programs: f64,
    /// One access in so many is chosen in a window, at most.
    fewest: u32,
    /// [`Cost::a_window`].
    a_window: f64,
}

impl Control {
    pub(super) fn new(budget: f64, fewest: u32) -> Self {
        Self {
            budget,
            k: 1.0,
            programs: 0.0,
            fewest,
            a_window: USUAL_ATTACHING,
        }
    }

    pub(super) fn budget(&self) -> f64 {
        self.budget
    }

    /// The programs chose fewer by themselves: what is measured is the cost of this `k`.
    pub(super) fn braked(&mut self, k: f64) {
        self.programs *= self.k / k;
        self.k = k;
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
        let by_k = self.k / f64::from(COINS);
        let by_attaching = self.a_window / (self.budget * ATTACHING);
        let pauses = by_k.max(by_attaching).ceil() as u32;
        pauses.clamp(SHORTEST, longest.min(PAUSES))
    }

    /// One in how many is chosen beside that, at least.
    pub(super) fn choice(&self, pauses: u32) -> Choice {
        let one_in = (self.k / f64::from(pauses)).ceil() as u32;
        let most = if pauses > 1 { self.fewest } else { ONE_IN };
        Choice {
            one_in: one_in.clamp(1, most),
            pauses,
        }
    }

    /// Take a measurement; `debt` is that of [`Self::debt`]. What accesses may cost is what upkeep leaves of the
    /// budget. More than that, and in debt more than what
    /// is aimed at, is answered at once; `k` falls slowly, by half at most and not in debt,
    /// so that a cost that comes and goes does not make it swing.
    pub(super) fn measured(&mut self, cost: Cost, debt: f64, longest: u32) {
        self.programs = f64::midpoint(self.programs, cost.programs);
        self.a_window = cost.a_window.unwrap_or(self.a_window);
        let now = cost.programs + cost.own - cost.upkeep;
        // So that both together are what is aimed at.
        let left = (self.budget - cost.upkeep / AIM).max(self.budget * KEPT);
        let budget = left - (debt / REPAID).clamp(0.0, left * REPAYMENT);
        let aim = budget * AIM;
        let matters = cost.programs > self.budget * NOTABLE || cost.seen > FEW || self.k < 2.0;
        let before = self.k;
        let most = if debt > 0.0 { aim } else { budget };
        // Windows spare the cost of all accesses, a `k` without them only that of chosen ones.
        let fixed = match self.k <= f64::from(ONE_IN)
            && cost.unchosen + CHOSEN * left <= SPENDABLE * left
        {
            true => cost.unchosen,
            false => 0.0,
        };
        let room = (aim - fixed).max(if fixed > 0.0 { CHOSEN * budget } else { 0.0 });
        if now > most && matters {
            self.k *= ((now - fixed) / room).clamp(1.0, STEP);
        } else if debt <= 0.0 {
            // Without windows, they would not cost anything.
            let smooth = now.max(self.programs + cost.own - cost.upkeep) - cost.attaching;
            let chosen = (smooth - fixed).max(0.0);
            if chosen < room * CALM {
                self.k *= (chosen / room).max(0.5);
            }
        }
        // Whole numbers below, so that a `k` that falls reaches 1.
        self.k = match self.k < before {
            true => self.k.floor(),
            false => self.k.ceil(),
        };
        self.k = self.k.clamp(1.0, f64::from(self.fewest * longest));
        if before != self.k {
            // What was measured before does not hold for the new one.
            let chosen = (self.programs - fixed).max(0.0);
            self.programs = self.programs - chosen + chosen * before / self.k;
        }
    }
}

#[cfg(test)]
mod tests;
