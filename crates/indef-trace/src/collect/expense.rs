//! What sampling has taken so far: processor time of this program, of the BPF programs, and of the kernel's way to them, as far
//! as their cost is known.

use std::time::{Duration, Instant};

use super::{
    meter::{Measured, OwnTime, Watched, thread_time},
    options::TraceOptions,
    sampling::{Choice, Cost},
    slower_calls::{ASSUMED_WAY, SlowerCalls},
    split::Split,
    windows::SLOT,
};

/// Shares of a processor.
#[derive(Clone, Copy)]
struct Shares {
    /// Programs that pause, while they are attached, and the kernel's way to them.
    attached: f64,
    way: f64,
    /// Programs that do not pause, and the kernel's way to them: these are at no system call.
    staying: f64,
}

/// See the module.
pub(super) struct Expense {
    /// When the programs were attached.
    started: Instant,
    /// Processor time of taking the counts, and of the slots.
    own: Duration,
    /// The part of it that is for slots, without attaching.
    upkeep: Duration,
    /// Time in the programs, up to `charged`.
    programs: Duration,
    charged: Instant,
    /// Their shares of a processor; `None` before the first measurement.
    shares: Option<Shares>,
    /// The part of the programs' cost that no choice spares.
    split: Split,
    /// What a system call takes longer while the programs are attached, where they are at its beginning and its end.
    slower_calls: SlowerCalls,
    /// The share of a processor that counting takes while it is chosen, where a choice holds for a time.
    while_chosen: f64,
    /// Processor time of attaching them last, and of detaching them last.
    attaching: Duration,
    detaching: Duration,
    /// That of all times.
    attaching_in_all: Duration,
}

impl Expense {
    /// Before the programs are attached.
    pub(super) fn new(options: &TraceOptions, now: Instant) -> Self {
        Self {
            started: now,
            own: Duration::ZERO,
            upkeep: Duration::ZERO,
            programs: Duration::ZERO,
            charged: now,
            shares: None,
            split: Split::default(),
            slower_calls: SlowerCalls::before(options),
            while_chosen: 0.0,
            attaching: Duration::ZERO,
            detaching: Duration::ZERO,
            attaching_in_all: Duration::ZERO,
        }
    }

    /// The programs were attached.
    pub(super) fn start(&mut self, now: Instant, programs: &[Watched]) {
        (self.started, self.charged) = (now, now);
        self.slower_calls.after(programs);
    }

    /// Note the time that taking the counts took the calling thread, since it had used `began`. Returns what it has used now.
    pub(super) fn took_counts(&mut self, began: Duration) -> Duration {
        let now = thread_time();
        self.own += now.saturating_sub(began);
        now
    }

    /// Note the same of waiting for a slot, ending it or beginning it, with `attaching` of it.
    pub(super) fn took_slot(&mut self, began: Duration, attaching: Duration) -> Duration {
        let now = thread_time();
        let took = now.saturating_sub(began);
        self.own += took;
        self.upkeep += took.saturating_sub(attaching);
        now
    }

    /// Note the same of attaching the programs.
    pub(super) fn attached(&mut self, began: Duration) {
        self.attaching = thread_time().saturating_sub(began);
        self.attaching_in_all += self.attaching;
    }

    /// Note the same of detaching them.
    pub(super) fn detached(&mut self, began: Duration) {
        self.detaching = thread_time().saturating_sub(began);
        self.attaching_in_all += self.detaching;
    }

    /// Time of attaching and detaching, in all.
    pub(super) fn attaching_in_all(&self) -> Duration {
        self.attaching_in_all
    }

    /// Processor time of this program; `reader` is that of the ring's reader.
    pub(super) fn own(&self, reader: Duration) -> OwnTime {
        OwnTime {
            all: self.own + reader,
            upkeep: self.upkeep,
        }
    }

    /// Time in the programs, as far as they are charged.
    pub(super) fn programs(&self) -> Duration {
        self.programs
    }

    /// Since the programs were attached.
    pub(super) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// A time was measured, of `seconds` until now, in which `seen` accesses were looked at, of some `made`. Returns what it cost.
    pub(super) fn measured(
        &mut self,
        measured: Measured,
        choice: Choice,
        seconds: f64,
        (seen, made): (u64, u64),
    ) -> Cost {
        let way = measured.runs * self.slower_calls.way();
        let staying = measured.staying + measured.staying_runs * ASSUMED_WAY;
        self.shares = Some(Shares {
            attached: measured.attached,
            way,
            staying,
        });
        let pauses = f64::from(choice.pauses);
        let a_window = (self.attaching + self.detaching).as_secs_f64() / SLOT.as_secs_f64();
        let unchosen = (self.split).measured(measured.attached, seconds, seen, made);
        self.while_chosen = match self.slower_calls.is_asked() {
            true => (measured.attached - unchosen) * made as f64 / seen.max(1) as f64,
            false => 0.0,
        };
        // Also in the slot after a window, when they cost less.
        let of_all = |share: f64| share * (2.0 / pauses).min(1.0) + staying;
        Cost {
            programs: of_all(measured.attached + way),
            unchosen: of_all(unchosen + way),
            own: measured.own,
            attaching: match choice.pauses {
                1 => 0.0,
                _ => a_window / pauses,
            },
            // Until both were measured, it is not known.
            a_window: (!self.attaching.is_zero() && !self.detaching.is_zero()).then_some(a_window),
            upkeep: measured.upkeep,
            seen: measured.seen,
        }
    }

    /// Charge the programs for the time since they were charged last, in which they were attached, or paused. Before the first
    /// measurement they are charged for nothing: it charges them for all of it.
    pub(super) fn charge(&mut self, were_attached: bool) {
        let Some(shares) = self.shares else {
            return;
        };
        let now = Instant::now();
        let attached = match were_attached {
            true => shares.attached + shares.way,
            false => 0.0,
        };
        self.programs += (now - self.charged).mul_f64(attached + shares.staying);
        self.charged = now;
    }

    /// The share of a processor that counting took in a window with this choice, in which so many calls were made in a second.
    pub(super) fn share(&self, choice: Choice, calls: f64) -> f64 {
        match choice.pauses {
            1 if choice.one_in == 1 => 0.0,
            1 => self.while_chosen,
            _ => {
                let way = calls * self.slower_calls.way_of_a_call();
                match self.shares {
                    // This window may be busier than the one that was measured last.
                    Some(it) if it.way > 0.0 => {
                        (it.attached + it.way) * (way / it.way).max(1.0) + it.staying
                    }
                    // All that a call takes longer, as it was asked of a call that does nothing.
                    shares => {
                        let staying = shares.map_or(0.0, |it| it.staying);
                        calls * self.slower_calls.longer() + staying
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_way_to_the_programs_counts_with_them_and_no_choice_spares_it() {
        let mut expense = Expense::new(&TraceOptions::default(), Instant::now());
        let measured = Measured {
            attached: 0.03,
            runs: 1e6,
            staying: 0.0005,
            staying_runs: 0.0005 / ASSUMED_WAY,
            own: 0.0,
            upkeep: 0.0,
            seen: 1000.0,
        };
        let way = 1e6 * expense.slower_calls.way();
        assert!(way > 0.01, "{way}");
        let choice = |pauses| Choice { one_in: 1, pauses };
        let cost = expense.measured(measured, choice(1), 1.0, (1000, 1000));
        assert!(
            (cost.programs - (0.031 + way)).abs() < 1e-9 && cost.unchosen >= way,
            "{cost:?}"
        );
        // In one slot of twenty, and in the one after it.
        let cost = expense.measured(measured, choice(20), 1.0, (1000, 1000));
        assert!(
            (cost.programs - ((0.03 + way) / 10.0 + 0.001)).abs() < 1e-9,
            "{cost:?}"
        );
        assert!(cost.unchosen >= way / 10.0, "{cost:?}");
        // An application that is counted waits for it, too.
        expense.started = Instant::now();
        expense.charged = expense.started - Duration::from_secs(1);
        expense.charge(true);
        let charged = expense.programs().as_secs_f64();
        assert!((charged / (0.031 + way) - 1.0).abs() < 0.01, "{charged}");
        let share = expense.share(choice(20), 1000.0);
        assert!((share - (0.031 + way)).abs() < 1e-9, "{share}");
    }

    /// A call that takes 400 ns longer, of which the programs take 100 ns and tell it themselves.
    #[test]
    fn the_time_of_the_programs_slows_a_call_once() {
        let mut expense = Expense::new(&TraceOptions::default(), Instant::now());
        expense.slower_calls = SlowerCalls::known(150e-9);
        let calls = 5e5;
        let measured = Measured {
            attached: calls * 100e-9,
            runs: 2.0 * calls,
            staying: 0.0,
            staying_runs: 0.0,
            own: 0.0,
            upkeep: 0.0,
            seen: calls,
        };
        let window = Choice {
            one_in: 1,
            pauses: 20,
        };
        expense.measured(measured, window, 1.0, (1000, 1000));
        let share = expense.share(window, calls);
        assert!((share - calls * 400e-9).abs() < 1e-9, "{share}");
        // What was measured was half as busy.
        let share = expense.share(window, 2.0 * calls);
        assert!((share - 2.0 * calls * 400e-9).abs() < 1e-9, "{share}");
        // Nothing was measured: what the kernel's way takes is not all.
        expense.shares = None;
        let share = expense.share(window, calls);
        assert!(share >= calls * 300e-9, "{share}");
    }
}
