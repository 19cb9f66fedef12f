//! Follows the cost with `k`, and sets what the programs may spend between two looks.
//!
//! Two circles hold the cost within its bound:
//!
//! - **In the kernel, at once.** Each slot has an [`Allowance`], which the programs charge for what they do for
//!   chosen accesses (`charge` in bpf/maps.h). A part of it is for accesses that are chosen as `k` says; when
//!   that is spent, the programs choose half as many, and half as many again after each further step. So a
//!   burst of any rate costs an allowance and a few steps, whenever user space looks next, and begins exactly
//!   if `k` was 1. A trace begins with [`ADVANCE`] seconds of its budget.
//! - **Here, with each measurement.** The cost is measured, not assumed ([`super::meter`]), and `k` follows it.
//!   This also holds what no allowance can: what a call costs that is not chosen (windows), and the collector.
//!
//! What was spent beyond the budget is a debt, which is paid back within some [`REPAID`] seconds; what was not
//! spent is saved for a burst, up to the budget of [`SAVED`] seconds. So the bound holds for a trace as a whole.

#[cfg(test)]
mod tests;

use super::windows::{PAUSES, SHORTEST, SLOT};

/// From this on, accesses that are not chosen cost as much as those that are: beyond it only pauses
/// spare anything.
const ONE_IN: u32 = 64;
/// With windows, one in so many of their accesses is chosen, if that is enough. More would be paid for in
/// vain with a smaller share, and the application be slowed more with a larger one.
const COINS: u32 = 8;
/// A window begins with one in so many, at most: at layer syscall it holds few choices for a single task, and
/// one without any would tell of no load.
const FEWEST: u32 = 2 * COINS;
/// Part of the budget that is aimed at.
const AIM: f64 = 0.6;
/// Below this part of it, more is chosen again.
const CALM: f64 = 0.5;
/// The part of the budget beyond which there is a debt: the rest is kept for what comes suddenly.
const SPENDABLE: f64 = 0.95;
/// Seconds in which a debt is paid back.
const REPAID: f64 = 5.0;
/// The part of the budget that may be used for that.
const REPAYMENT: f64 = 0.5;
/// Seconds whose budget may be spent in advance.
const ADVANCE: f64 = 0.5;
/// Seconds whose budget is saved at most.
const SAVED: f64 = 1.0;
/// The part of what is aimed at that chosen accesses may take in a slot, at least, whatever the debt; and of
/// windows at most: what they may take does not tell whether there are too many of them.
const LEAST: f64 = 0.25;
const MOST: f64 = 0.5;
/// The programs' part of what a chosen access costs, with what the collector has to do for it.
const IN_PROGRAMS: f64 = 0.25;
/// The part of an allowance after which fewer are chosen for the first time, and from then on.
const FIRST: f64 = 0.5;
const FURTHER: f64 = 1.0 / 16.0;
/// Processor time of attaching and detaching the programs, and that of the programs for an access that is
/// not chosen, at most: before it is measured.
const ATTACHING: f64 = 0.004;
const UNCHOSEN: f64 = 0.05e-6;
/// How much `k` may grow at once.
const STEP: f64 = 8.0;
/// Part of the budget that the programs have to take before `k` grows although hardly anything is
/// chosen: then it is the programs that cost, not what they count.
const NOTABLE: f64 = 0.125;
/// Chosen accesses per second that count as hardly anything.
const FEW: f64 = 50.0;

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

/// Nanoseconds that the programs may charge for chosen accesses in a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Allowance {
    /// Before they choose half as many.
    pub(super) first: u64,
    /// And then before each further halving.
    pub(super) further: u64,
}

/// The cost of a time, as shares of a processor's time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cost {
    /// The programs.
    pub(super) programs: f64,
    /// The collector, and which part of that is for windows.
    pub(super) own: f64,
    pub(super) attaching: f64,
    /// The programs for what is not chosen, while all of them are attached.
    pub(super) rest: f64,
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
    /// The cost of a window besides that of its chosen accesses, in seconds.
    window: f64,
}

impl Control {
    pub(super) fn new(budget: f64) -> Self {
        Self {
            budget,
            k: 1.0,
            programs: 0.0,
            window: ATTACHING,
        }
    }

    /// The processor time that tracing took too much in its first `elapsed` seconds, in seconds; below 0, that
    /// is saved.
    pub(super) fn debt(&self, spent: f64, elapsed: f64) -> f64 {
        spent - self.budget * SPENDABLE * elapsed
    }

    /// The allowance of a slot that stands for `pauses` of them.
    pub(super) fn allowance(&self, debt: f64, pauses: u32) -> Allowance {
        let aim = self.budget * AIM * SLOT.as_secs_f64() * f64::from(pauses);
        let allowed = match pauses {
            1 => (self.budget * ADVANCE - debt).min(self.budget * SAVED),
            // The window itself has to be paid for, too.
            _ => (-debt - self.window).min(aim * MOST),
        };
        let allowed = allowed.max(aim * LEAST);
        let nanoseconds = |part: f64| (allowed * IN_PROGRAMS * part * 1e9) as u64;
        Allowance {
            first: nanoseconds(FIRST),
            further: nanoseconds(FURTHER).max(1),
        }
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

    /// In a slot of about so many accesses, which began with `choice`, the programs have come to one in
    /// `one_in`. Returns whether that changes what is chosen next: in windows it does not, as they begin with
    /// more on purpose.
    pub(super) fn halved(&mut self, choice: Choice, one_in: u32, accesses: f64) -> bool {
        let before = self.k;
        if choice.pauses > 1 || f64::from(one_in) <= before {
            return false;
        }
        self.k = one_in.into();
        self.window = 2.0 * accesses * UNCHOSEN + ATTACHING;
        self.begin_windows(before);
        true
    }

    /// Where windows begin, they are as rare as what they cost wants it.
    fn begin_windows(&mut self, before: f64) {
        let one_in = f64::from(ONE_IN);
        if before <= one_in && self.k > one_in {
            let each = self.budget * AIM * (1.0 - MOST) * SLOT.as_secs_f64();
            let pauses = (self.window / each).min(PAUSES.into());
            self.k = (pauses * f64::from(COINS)).max(one_in + 1.0);
        }
    }

    /// Take a measurement; `debt` is that of [`Self::debt`]. More than the budget, and in debt more than what
    /// is aimed at, is answered at once; `k` falls slowly, by half at most and not in debt,
    /// so that a cost that comes and goes does not make it swing.
    pub(super) fn measured(&mut self, cost: Cost, debt: f64, longest: u32) {
        self.programs = f64::midpoint(self.programs, cost.programs);
        // Attached for a slot more.
        self.window = 2.0 * cost.rest * SLOT.as_secs_f64() + ATTACHING;
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
        self.begin_windows(before);
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
