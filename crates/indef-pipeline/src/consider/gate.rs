//! Go on or pause, without flapping: a reading at its limit pauses at once; work begins again when all have been
//! well below their limits for a while.

use std::time::Duration;

use super::reading::{CannotTell, Limits, Reading};

/// What readings have changed.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// Nothing.
    None,
    /// Work has to pause, for these readings.
    Paused(Vec<Reading>),
    /// Work may begin again.
    Resumed,
}

/// Whether work may go on.
#[derive(Clone, Debug, Default)]
pub struct Gate {
    /// The readings that closed it, or keep it closed.
    why: Vec<Reading>,
    is_closed: bool,
    calm_since: Option<Duration>,
}

impl Gate {
    /// Whether work may go on.
    #[must_use]
    pub fn is_open(&self) -> bool {
        !self.is_closed
    }

    /// The readings that closed it.
    #[must_use]
    pub fn why(&self) -> &[Reading] {
        &self.why
    }

    /// Take new readings, at `now`.
    pub fn take(&mut self, readings: &[Reading], now: Duration, limits: &Limits) -> Change {
        // For want of a second look nothing is wrong, and of our own work nobody is told.
        let is_unknown = |reading: &Reading| {
            limits.cautious
                && matches!(&reading.value, Err(why) if !matches!(why, CannotTell::OwnWork | CannotTell::TooEarly))
        };
        let is_over = |reading: &&Reading| reading.is_over() || is_unknown(reading);
        let over: Vec<Reading> = readings.iter().filter(is_over).cloned().collect();
        if !over.is_empty() {
            self.calm_since = None;
            self.why.clone_from(&over);
            return match std::mem::replace(&mut self.is_closed, true) {
                true => Change::None,
                false => Change::Paused(over),
            };
        }
        if !self.is_closed {
            return Change::None;
        }
        let is_calm = |reading: &Reading| match &reading.value {
            Ok(value) => reading.quantity.is_calm(*value, reading.limit),
            // What closed it and is not known any more has not become calm.
            Err(_) => !self.why.iter().any(|why| {
                (why.quantity, &why.drive) == (reading.quantity, &reading.drive)
                    && why.value.is_ok()
            }),
        };
        if !readings.iter().all(is_calm) {
            self.calm_since = None;
            return Change::None;
        }
        let since = *self.calm_since.get_or_insert(now);
        if now.saturating_sub(since) < limits.calm {
            return Change::None;
        }
        *self = Self::default();
        Change::Resumed
    }
}
