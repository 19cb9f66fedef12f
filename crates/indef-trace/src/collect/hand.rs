//! Counts on their way from the programs to whoever drains them: first in hand, then weighed by the calls of their processes
//! ([`super::accounts`]), and ready.

use std::time::{Duration, Instant};

use super::{
    accounts::Accounts,
    contract::{Counters, RangeKey, State},
    drained::Windowed,
    intake::{Intake, PARTS},
    options::Layer,
    programs::Programs,
    sampler::Sampler,
};

/// How long counts wait for the next window, at most.
const LONGEST: Duration = Duration::from_secs(25);

/// Sums of the programs, when counts were weighed last.
#[derive(Clone, Copy, Default)]
struct Sums {
    chosen: u64,
    variance: u64,
    common: u64,
}

impl Sums {
    fn of(state: &State) -> Self {
        Self {
            chosen: state.chosen,
            variance: state.variance,
            common: state.common,
        }
    }
}

pub(super) struct Hand {
    accounts: Accounts,
    ready: Vec<(RangeKey, Counters)>,
    /// What was counted of each process last, as it was.
    last: Vec<(RangeKey, Counters)>,
    /// The windows of what is ready.
    windows: Option<Windowed>,
    weighed_at: Instant,
    sums: Sums,
    /// Variance of single choices, and what comes to it; with the factors of counts.
    variance: f64,
    common: f64,
    /// The variance of single choices of accesses that came to the counts beside those of the programs, before factors.
    cut: f64,
    /// Accesses as they were counted, and with their factors.
    counted: f64,
    grown: f64,
    /// Accesses that may not have happened as the programs took their time: of processes whose calls tell, and of others.
    slowed: (f64, f64),
    /// [`Accounts::untold`], at the end.
    untold: (f64, f64),
}

impl Hand {
    pub(super) fn new() -> Self {
        Self {
            accounts: Accounts::default(),
            ready: Vec::new(),
            last: Vec::new(),
            windows: None,
            weighed_at: Instant::now(),
            sums: Sums::default(),
            variance: 0.0,
            common: 0.0,
            cut: 0.0,
            counted: 0.0,
            grown: 0.0,
            slowed: (0.0, 0.0),
            untold: (0.0, 0.0),
        }
    }

    /// Whether what is in hand waits for the next window.
    pub(super) fn waits(&self, layer: Layer, sampler: &Sampler) -> bool {
        layer == Layer::Syscall && sampler.is_in_windows() && self.weighed_at.elapsed() < LONGEST
    }

    /// The ranges that are ready.
    pub(super) fn len(&self) -> usize {
        self.ready.len()
    }

    /// Take all that the programs and the ring have: it becomes ready.
    pub(super) fn weigh(
        &mut self,
        programs: &mut Programs,
        intake: &Intake,
        sampler: &mut Sampler,
        is_end: bool,
    ) {
        for (range, counters) in programs.variables.take_slots() {
            intake.count(&range, &counters);
        }
        intake.catch_up();
        let mut inbox = intake.inbox();
        let ended = std::mem::take(&mut inbox.ended);
        let lost_calls = inbox.lost_calls;
        drop(inbox);
        let state = programs.variables.state();
        let now = Sums::of(&state);
        let (slower, slowed) = sampler.weigh();
        self.accounts.ended_unseen(state.untold_calls + lost_calls);
        if is_end {
            programs.variables.set_over();
        }
        // Otherwise, all was counted exactly. At the end, what is missing of what was not is known.
        if is_end || now.chosen > self.sums.chosen || !ended.is_empty() {
            match programs.calls_of_each_task() {
                Ok(live) => {
                    let standing = sampler.standing();
                    (self.accounts).weigh(&live, &ended, standing, slower, is_end);
                }
                Err(error) => tracing::debug!("counts by time alone: {error}"),
            }
        }
        let mut counted = Vec::new();
        for part in 0..PARTS {
            counted.append(&mut intake.inbox().take_part(part));
        }
        if is_end {
            self.take_again();
        }
        let keeps = sampler.is_in_windows() && now.chosen > self.sums.chosen;
        self.take_in(&counted, now, slowed);
        if keeps {
            let accounts = &self.accounts;
            self.last
                .retain(|(range, _)| accounts.may_count_again(range));
            self.last.append(&mut counted);
        }
        if is_end && !is_exact(&state) {
            self.note_untold();
        }
        sampler.weighed();
        if let Some(windows) = sampler.take_windowed() {
            self.windows.get_or_insert_default().add(windows);
        }
        self.weighed_at = Instant::now();
    }

    /// The trace is over: calls that were not told by now never are.
    fn note_untold(&mut self) {
        self.untold = self.accounts.untold();
    }

    /// Calls of tasks of which none was counted, as far as they are not told of other tasks; 0 before the end.
    pub(super) fn untold(&self) -> u64 {
        self.untold.0 as u64
    }

    /// What was counted last counts again, as far as it has to.
    fn take_again(&mut self) {
        for (range, counters) in &self.last {
            if let Some((range, counters)) = self.accounts.again(range, counters) {
                self.grown += f64::from(counters.count);
                self.ready.push((range, counters));
            }
        }
    }

    /// Counts become ready, with their errors; `slowed` are the accesses that may be missing beside them.
    fn take_in(&mut self, counted: &[(RangeKey, Counters)], now: Sums, slowed: f64) {
        let (mut all, mut by_calls, mut squares) = (0.0, 0.0, 0.0);
        for (range, counters) in counted {
            let (range, weighed, factor) = self.accounts.weighed(range, counters);
            let before = f64::from(counters.count);
            all += before;
            self.grown += f64::from(weighed.count);
            if let Some(factor) = factor {
                by_calls += before;
                squares += before * factor.powi(2);
            }
            self.ready.push((range, weighed));
        }
        self.accounts.counted(by_calls);
        let square = match by_calls > 0.0 {
            true => squares / by_calls,
            false => 1.0,
        };
        let cut = std::mem::take(&mut self.cut);
        self.variance += ((now.variance - self.sums.variance) as f64 + cut) * square;
        self.common += now.common.saturating_sub(self.sums.common) as f64 * square;
        self.sums = now;
        self.counted += all;
        let known = by_calls / f64::max(all, 1.0) * slowed;
        self.slowed.0 += known;
        self.slowed.1 += slowed - known;
    }

    /// Counts that were not taken from the programs by themselves; they have the factor that holds.
    pub(super) fn weighed(
        &mut self,
        range: &RangeKey,
        counters: &Counters,
    ) -> (RangeKey, Counters) {
        let (range, weighed, factor) = self.accounts.weighed(range, counters);
        self.variance += alone(counters.count) * factor.unwrap_or(1.0).powi(2);
        (range, weighed)
    }

    /// An access of this weight comes to the counts that the programs did not count.
    pub(super) fn cut(&mut self, weight: u32) {
        self.cut += alone(weight);
    }

    /// Take what is ready, in the order in which a store keeps it: ranges that are added together lie together.
    pub(super) fn take(&mut self) -> Vec<(RangeKey, Counters)> {
        let mut ready = std::mem::take(&mut self.ready);
        ready.sort_unstable_by_key(|(range, _)| (range.file, range.start, range.len));
        ready
    }

    /// The windows in which it was counted; `None`: all the time.
    pub(super) fn take_windows(&mut self, sampler: &Sampler) -> Option<Windowed> {
        let windows = self.windows.take();
        windows.or_else(|| sampler.is_windowed().then(Windowed::default))
    }

    /// The variance of all that was ready so far, as if each access was chosen by itself; and what comes to it. `of_windows` is
    /// [`Sampler::common`].
    pub(super) fn variance(&self, of_windows: impl FnOnce(f64, f64) -> u64) -> (u64, u64) {
        let (known, unknown) = self.slowed;
        let growth = match self.counted > 0.0 {
            true => self.grown / self.counted,
            false => 1.0,
        };
        let (_, unseen) = self.untold;
        let missing = known.min(self.accounts.missing()) + unknown + unseen;
        let windows = of_windows(growth, missing);
        let common = (self.common as u64).saturating_add(windows);
        (self.variance as u64, common)
    }
}

/// Whether each access was chosen from the beginning on.
fn is_exact(state: &State) -> bool {
    state.sampling >> 32 == 1 && state.exact_since == state.began
}

/// The variance of an access of this weight that is chosen by itself.
fn alone(weight: u32) -> f64 {
    let weight = f64::from(weight);
    weight * (weight - 1.0).max(0.0)
}

#[cfg(test)]
mod tests;
