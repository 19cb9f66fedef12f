//! A window that has begun, and what was chosen in it once it has ended.

use std::time::Duration;

use super::{
    brake::Brake,
    expense::Expense,
    programs::Programs,
    sampling::Choice,
    windows::{SLOT, Window},
};

/// See the module.
#[derive(Clone, Copy)]
pub(super) struct Opened {
    pub(super) choice: Choice,
    pub(super) brake: Option<Brake>,
    /// The programs' sums when it began.
    seen: u64,
    chosen: u64,
    common: u64,
    /// Accesses of it that the programs did not count.
    pub(super) also: u64,
    /// Its time, once it is over.
    pub(super) long: Duration,
}

impl Opened {
    /// It begins now.
    pub(super) fn new(choice: Choice, brake: Option<Brake>, programs: &Programs) -> Self {
        let state = programs.variables.state();
        Self {
            choice,
            brake,
            seen: state.seen,
            chosen: state.chosen,
            common: state.common,
            also: 0,
            long: SLOT,
        }
    }

    /// The accesses that were looked at, where these are all so far, and an estimate of those there were.
    pub(super) fn looked(&self, seen: u64) -> (u64, u64) {
        let seen = seen.saturating_sub(self.seen);
        let made = match self.brake {
            Some(brake) => brake.made(seen),
            None => seen * u64::from(self.choice.one_in),
        };
        (seen, made)
    }

    /// The accesses that are chosen in it before the programs choose fewer by themselves; no limit where they do not.
    pub(super) fn may_bring(&self) -> u64 {
        self.brake.map_or(u64::MAX, Brake::allowed)
    }

    /// It has ended, with all that was chosen in it.
    pub(super) fn ended(&self, programs: &Programs, expense: &Expense) -> Window {
        let (state, choice) = (programs.variables.state(), self.choice);
        let (chosen, common) = (
            state.chosen - self.chosen + self.also,
            state.common - self.common,
        );
        let seen = (state.seen - self.seen).max(chosen);
        let weight = f64::from(choice.weight());
        let joint = match choice.weight() {
            0 | 1 => 0.0,
            _ => common as f64 / (weight * (weight - 1.0)),
        };
        // A run of reads is chosen once.
        let calls = seen as f64 * f64::from(choice.one_in) / self.long.as_secs_f64().max(1e-3);
        Window {
            pauses: choice.pauses,
            one_in: choice.one_in,
            chosen,
            squares: chosen as f64 + joint,
            share: expense.share(choice, calls),
        }
    }
}
