//! Carries sampling out: measures, tells the programs, and attaches and detaches them.
//!
//! A window ([`super::windows`]) begins and ends with one store, which tells the programs whether
//! anything is chosen. They are attached before it, and detached one slot after it: what began in the
//! window has time to be seen to its end.

use std::{
    thread,
    time::{Duration, Instant},
};

use super::{
    account::{Account, Rest},
    contract::State,
    control::{Choice, Control, Cost},
    drained::Windowed,
    error::TraceError,
    meter::{Accesses, Meter, thread_time},
    options::{Layer, TraceOptions},
    programs::Programs,
    sampling::{Sampling, Spent},
    windows::{Between, SLOT, Window, Windows, longest},
    wire,
};

/// Calls that come sooner do not begin another slot: attaching would cost more than it tells.
const SHORTEST_SLOT: Duration = Duration::from_millis(40);

/// A tick of the kernel's clock, at most.
const TICK: Duration = Duration::from_millis(10);

/// A change of `k` after which the cost is measured again at once (a natural logarithm).
const MUCH: f64 = 0.2;

/// How much is chosen.
enum Plan {
    Fixed(Choice),
    /// Keeps the cost within its bound.
    Bounded(Control, Meter),
}

/// The time from one call to the next.
#[derive(Clone, Copy, PartialEq)]
enum Slot {
    Window,
    /// After a window: nothing that begins is chosen, but the programs are still attached.
    After,
    Paused,
}

/// A window that has begun.
#[derive(Clone, Copy)]
struct Open {
    choice: Choice,
    /// The programs' sums when it began.
    state: State,
    /// Weights of accesses of it that the programs did not count, and the sum of their squares.
    also: (f64, f64),
}

pub(super) struct Sampler {
    plan: Plan,
    windows: Windows,
    between: Between,
    slot: Slot,
    /// When it began, and how many did before.
    began: Instant,
    slots: u32,
    /// The last window.
    open: Option<Open>,
    /// The windows since they were last asked for, if some stand for more than themselves.
    windowed: Option<Windowed>,
    /// Whether accesses of a task within a tick share a coin.
    shares_coins: bool,
    /// When the programs were attached.
    started: Instant,
    /// Processor time of taking the counts.
    own: Duration,
    /// Time in the programs.
    account: Account,
    /// Their share of a processor in the last window that was measured.
    share: f64,
    /// Processor time of attaching them last, and detaching them again.
    attaching: Duration,
}

impl Sampler {
    /// Tell the programs, which are not attached yet, how to begin: with a window.
    pub(super) fn new(options: &TraceOptions, programs: &mut Programs) -> Self {
        let fixed = |one_in: u32, pauses: u32| {
            Plan::Fixed(Choice {
                one_in: one_in.max(1),
                pauses: pauses.max(1),
            })
        };
        let plan = match (options.sampling, options.sampling.budget()) {
            // Single accesses have no weight.
            _ if options.raw => fixed(1, 1),
            (_, Some(budget)) => Plan::Bounded(Control::new(budget), Meter::new()),
            (Sampling::OneIn(one_in), _) => fixed(one_in, 1),
            (Sampling::Paused { one_in, pauses }, _) => fixed(one_in, pauses),
            _ => fixed(1, 1),
        };
        let now = Instant::now();
        let mut sampler = Self {
            plan,
            windows: Windows::default(),
            between: Between::default(),
            slot: Slot::Paused,
            began: now,
            slots: 0,
            open: None,
            windowed: None,
            shares_coins: options.layer == Layer::Syscall,
            started: now,
            own: Duration::ZERO,
            account: Account::begin(now),
            share: 0.0,
            attaching: Duration::ZERO,
        };
        sampler.begin_slot();
        sampler.tell(programs, Duration::ZERO);
        sampler
    }

    /// The programs were attached: the first look at their cost begins.
    pub(super) fn start(&mut self, programs: &Programs) {
        let now = Instant::now();
        (self.started, self.began) = (now, now);
        self.account = Account::begin(now);
        if let Plan::Bounded(_, meter) = &mut self.plan {
            meter.begin(programs.watched());
        }
    }

    /// Note the time that taking the counts took the calling thread, since it had used `began`.
    pub(super) fn took_counts(&mut self, began: Duration) {
        self.own += thread_time().saturating_sub(began);
    }

    /// To be called some twenty times a second; `reader` is the processor time of the ring's reader.
    pub(super) fn tick(
        &mut self,
        programs: &mut Programs,
        reader: Duration,
    ) -> Result<(), TraceError> {
        if self.began.elapsed() < SHORTEST_SLOT {
            return Ok(());
        }
        let began = thread_time();
        let done = self.next_slot(programs, reader);
        self.began = Instant::now();
        self.own += thread_time().saturating_sub(began);
        done
    }

    fn next_slot(&mut self, programs: &mut Programs, reader: Duration) -> Result<(), TraceError> {
        let before = self.slot;
        let state = programs.variables.state();
        let ended = self.open.filter(|_| before == Slot::Window);
        // Where each slot is a window, all of it may change with the next one.
        if let Some(open) = ended.filter(|open| open.choice.pauses == 1) {
            self.learn(programs, &open, &state, reader);
        }
        self.begin_slot();
        // Otherwise, how long a window is does not depend on what there is to do after it.
        if before == Slot::Window && self.slot != Slot::Window {
            self.tell(programs, reader);
        }
        if let Some(open) = ended.filter(|open| open.choice.pauses > 1) {
            self.learn(programs, &open, &state, reader);
        }
        self.count_programs(before, &state);
        if self.slot == Slot::Window {
            self.end_window(programs);
        }
        let at = thread_time();
        match self.slot {
            Slot::Window if programs.is_paused() => {
                programs.resume()?;
                self.attaching = thread_time().saturating_sub(at);
            }
            Slot::Paused if !programs.is_paused() => {
                programs.pause();
                self.attaching += thread_time().saturating_sub(at);
            }
            _ => {}
        }
        if let (Plan::Bounded(_, meter), Slot::Window) = (&mut self.plan, self.slot) {
            meter.begin(programs.watched());
        }
        if self.slot == Slot::Window {
            // What was seen of a tick must not settle what is chosen in the rest of it: the tasks of that
            // tick have shown their coins.
            if self.shares_coins && ended.is_some() && state.sampling as u32 > 1 {
                thread::sleep(TICK);
            }
            self.tell(programs, reader);
        }
        Ok(())
    }

    /// Settle what the next slot is.
    fn begin_slot(&mut self) {
        let wanted = match &self.plan {
            Plan::Fixed(choice) => choice.pauses,
            Plan::Bounded(control, _) => control.pauses(longest(self.slots)),
        };
        let is_window = self.windows.next(wanted, &mut |bound| random() % bound);
        self.slots = self.slots.saturating_add(1);
        self.slot = match self.slot {
            _ if is_window => Slot::Window,
            Slot::Window => Slot::After,
            Slot::After | Slot::Paused => Slot::Paused,
        };
    }

    /// Let the programs choose, if this is a window.
    fn tell(&mut self, programs: &mut Programs, reader: Duration) {
        let variables = &mut programs.variables;
        if self.slot != Slot::Window {
            variables.set_sampling(1, 0, 0);
            return;
        }
        let pauses = self.windows.pauses();
        let choice = match &self.plan {
            Plan::Fixed(choice) => *choice,
            Plan::Bounded(control, _) => {
                let spent = self.account.time() + self.own + reader;
                let elapsed = self.started.elapsed().as_secs_f64();
                let debt = control.debt(spent.as_secs_f64(), elapsed);
                variables.allow(control.allowance(debt, pauses));
                control.choice(pauses)
            }
        };
        self.open = Some(Open {
            choice,
            state: variables.state(),
            also: (0.0, 0.0),
        });
        variables.set_sampling(choice.one_in, choice.weight(), random());
    }

    /// A window has ended that stands for so many.
    fn note_window(&mut self, pauses: u32) {
        if pauses > 1 || self.windowed.is_some() {
            self.windowed.get_or_insert_default().add(Windowed {
                windows: 1,
                time: self.began.elapsed() * pauses,
            });
        }
    }

    /// The windows since the last call, of which the counts were taken now; `None` if they were counted all
    /// the time.
    pub(super) fn take_windowed(&mut self) -> Option<Windowed> {
        let is_paused = self.windows.pauses() > 1;
        std::mem::replace(&mut self.windowed, is_paused.then(Windowed::default))
    }

    /// Whether accesses are counted in windows, or were since the last call of [`Self::take_windowed`].
    pub(super) fn is_windowed(&self) -> bool {
        self.windowed.is_some()
    }

    /// Learn from a window that has ended; `state` is that of its end.
    fn learn(&mut self, programs: &Programs, open: &Open, state: &State, reader: Duration) {
        self.note_window(open.choice.pauses);
        let seen = (state.counted - open.state.counted) as f64 / f64::from(open.choice.pauses);
        // `sampling` has `one_in` in its lower half.
        if let Plan::Bounded(control, meter) = &mut self.plan
            && control.halved(open.choice, state.sampling as u32, seen)
        {
            meter.hurry();
        }
        self.measure(programs, open, state, reader);
    }

    fn measure(&mut self, programs: &Programs, open: &Open, state: &State, reader: Duration) {
        let own = self.own + reader;
        let Plan::Bounded(control, meter) = &mut self.plan else {
            return;
        };
        let choice = open.choice;
        let here = Accesses {
            chosen: state.chosen - open.state.chosen,
            seen: (state.counted - open.state.counted) / u64::from(choice.pauses),
        };
        let Some(measured) = meter.end(programs.watched(), own, state.chosen, here) else {
            return;
        };
        let charged = Duration::from_nanos(state.charged - open.state.charged).as_secs_f64();
        let charged = charged / measured.took;
        // Also in the slot after a window, in which nothing is chosen.
        let rest = measured.attached - charged;
        self.account.measured(Rest {
            attached: rest + measured.staying,
            paused: measured.staying,
        });
        self.share = measured.attached + measured.staying;
        let pauses = f64::from(choice.pauses);
        let after = if choice.pauses > 1 {
            rest.max(0.0)
        } else {
            0.0
        };
        let cost = Cost {
            programs: (measured.attached + after) / pauses + measured.staying,
            own: measured.own,
            attaching: match choice.pauses {
                1 => 0.0,
                _ => self.attaching.as_secs_f64() / (SLOT.as_secs_f64() * pauses),
            },
            rest: rest.max(0.0),
            chosen: measured.chosen,
        };
        let spent = (self.account.time() + own).as_secs_f64();
        let debt = control.debt(spent, self.started.elapsed().as_secs_f64());
        let longest = longest(self.slots);
        control.measured(cost, debt, longest);
        let next = control.choice(control.pauses(longest));
        tracing::trace!("{cost:?} with {choice:?}, {debt:.4} s too much: {next:?}");
        let (now, then) = (f64::from(choice.weight()), f64::from(next.weight()));
        meter.expect(now / then);
        if (then / now).ln().abs() > MUCH {
            meter.hurry();
        }
    }

    /// Count the programs' time in a slot of this kind.
    fn count_programs(&mut self, slot: Slot, state: &State) {
        let is_attached = slot != Slot::Paused;
        self.account
            .count(is_attached, state.charged, Instant::now());
    }

    /// An access of the last window was counted, with this weight, that the programs did not count.
    pub(super) fn chose_also(&mut self, weight: u32) {
        if let Some(open) = &mut self.open {
            let weight = f64::from(weight);
            open.also.0 += weight;
            open.also.1 += weight * weight;
        }
    }

    /// The last window has ended, with all that was chosen in it. Accesses that end later than the
    /// slot after it are few.
    pub(super) fn end_window(&mut self, programs: &Programs) {
        let Some(open) = self.open.take() else {
            return;
        };
        let (state, before) = (programs.variables.state(), open.state);
        let counted = (state.counted - before.counted) as f64;
        // Of w (w - 1) the sum of w² is left; what one choice covered comes to it.
        let squares =
            counted + (state.variance - before.variance + state.common - before.common) as f64;
        let pauses = f64::from(open.choice.pauses);
        self.between.add(Window {
            pauses: open.choice.pauses,
            accesses: (counted + open.also.0) / pauses,
            squares: (squares + open.also.1) / (pauses * pauses),
            share: self.share.min(1.0),
        });
    }

    /// The variance of the sum of all counts that comes from windows.
    pub(super) fn common(&self) -> u64 {
        self.between.variance(&self.windows) as u64
    }

    /// Processor time so far; `reader` is that of the ring's reader.
    pub(super) fn spent(&mut self, programs: &Programs, reader: Duration) -> Spent {
        self.count_programs(self.slot, &programs.variables.state());
        Spent {
            programs: matches!(self.plan, Plan::Bounded(..)).then_some(self.account.time()),
            collector: self.own + reader,
        }
    }

    /// The share of the time that emptying the slots and tables may take.
    pub(super) fn emptying(options: &TraceOptions) -> f64 {
        options
            .sampling
            .budget()
            .map_or(0.01, |budget| budget / 2.0)
    }
}

fn random() -> u32 {
    let mut bytes = [0; 4];
    // Up to 256 bytes always come at once.
    let _ = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    wire::read(&bytes).unwrap_or_default()
}
