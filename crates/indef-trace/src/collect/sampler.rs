//! Carries sampling out: measures, tells the programs, and attaches and detaches them.
//!
//! A window ([`super::windows`]) begins and ends with one store, which tells the programs whether
//! anything is chosen. They are attached before it, and detached one slot after it: what began in the
//! window has time to be seen to its end.

use std::time::{Duration, Instant};

use super::{
    brake::{Brake, is_news},
    drained::Windowed,
    error::TraceError,
    expense::Expense,
    intake::{self, Pace},
    meter::{Meter, thread_time},
    opened::Opened,
    options::{Layer, TraceOptions},
    programs::Programs,
    sampling::{Choice, Control, FEWEST, FEWEST_TICKS, Sampling, Spent},
    standing::Standing,
    windows::{Between, SLOT, Stretch, Windows, longest},
    wire::{self, monotonic},
};

/// Calls that come sooner do not begin another slot: attaching would cost more than it tells.
const SHORTEST_SLOT: Duration = Duration::from_millis(40);

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

pub(super) struct Sampler {
    plan: Plan,
    windows: Windows,
    between: Between,
    stretch: Stretch,
    standing: Standing,
    /// The sums of `between` when counts were weighed last.
    before: (f64, f64),
    /// When the stratum began.
    stratum: Instant,
    slot: Slot,
    /// When it began, and how many did before.
    began: Instant,
    slots: u32,
    /// When the one before it ended.
    ended: Instant,
    /// The last window.
    open: Option<Opened>,
    /// The windows since they were last asked for, if some stand for more than themselves.
    windowed: Option<Windowed>,
    expense: Expense,
    /// The processor time that the calling thread had used when it began to wait.
    waits_since: Option<Duration>,
    /// The accesses of the slot that was measured last.
    made: u64,
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
            (_, Some(budget)) => {
                let fewest = match options.layer {
                    Layer::Fs => FEWEST,
                    Layer::Syscall => FEWEST_TICKS,
                };
                Plan::Bounded(Control::new(budget, fewest), Meter::new())
            }
            (Sampling::OneIn(one_in), _) => fixed(one_in, 1),
            (Sampling::Paused { one_in, pauses }, _) => fixed(one_in, pauses),
            _ => fixed(1, 1),
        };
        let now = Instant::now();
        let mut sampler = Self {
            plan,
            windows: Windows::default(),
            between: Between::default(),
            stretch: Stretch::default(),
            standing: Standing::new(monotonic()),
            before: (0.0, 0.0),
            stratum: now,
            slot: Slot::Paused,
            began: now,
            slots: 0,
            ended: now,
            open: None,
            windowed: None,
            expense: Expense::new(options, now),
            waits_since: None,
            made: 0,
        };
        programs.variables.set_salt(random());
        programs.variables.set_began(monotonic());
        sampler.begin_slot();
        sampler.tell(programs);
        sampler
    }

    /// The programs were attached: the first look at their cost begins.
    pub(super) fn start(&mut self, programs: &Programs) {
        let now = Instant::now();
        (self.began, self.ended) = (now, now);
        self.standing = Standing::new(monotonic());
        self.expense.start(now, programs.watched());
        if let Plan::Bounded(_, meter) = &mut self.plan {
            meter.begin(programs.watched());
        }
    }

    /// Note the time that taking the counts took the calling thread, since it had used `began`. Returns what it has used now.
    pub(super) fn took_counts(&mut self, began: Duration) -> Duration {
        self.expense.took_counts(began)
    }

    /// The calling thread waits for the next [`Self::tick`], from now on.
    pub(super) fn waits(&mut self) {
        self.waits_since = Some(thread_time());
    }

    /// To be called some twenty times a second; `reader` is the processor time of the ring's reader. Where a slot has
    /// ended, returns the time that the calling thread has used: then [`Self::go_on`] begins the next one.
    pub(super) fn tick(&mut self, programs: &mut Programs, reader: Duration) -> Option<Duration> {
        let waited = self.waits_since.take();
        if self.began.elapsed() < SHORTEST_SLOT {
            return None;
        }
        self.pass_over();
        let began = waited.unwrap_or_else(thread_time);
        self.end_slot(programs, reader);
        Some(self.expense.took_slot(began, Duration::ZERO))
    }

    /// Whether the next slot is a window, and no program is attached yet.
    pub(super) fn opens_window(&self, programs: &Programs) -> bool {
        self.slot == Slot::Window && programs.is_paused()
    }

    /// Begin the next slot, which is done since the calling thread had used `began`.
    pub(super) fn go_on(
        &mut self,
        programs: &mut Programs,
        began: Duration,
    ) -> Result<(), TraceError> {
        let before = self.expense.attaching_in_all();
        let done = self.next_slot(programs);
        self.began = Instant::now();
        let attaching = self.expense.attaching_in_all() - before;
        self.expense.took_slot(began, attaching);
        done
    }

    /// How long nothing is counted: as far as the slots are known of which none is a window.
    pub(super) fn rest(&self) -> Duration {
        let slots = match self.slot {
            Slot::Paused => 1 + self.windows.quiet(),
            Slot::Window | Slot::After => 1,
        };
        (SLOT * slots).saturating_sub(self.began.elapsed())
    }

    /// How fast the ring may fill now.
    pub(super) fn pace(&self) -> Pace {
        match self.open {
            Some(open) if open.may_bring() <= intake::FEW => Pace::Slow,
            _ => Pace::Usual,
        }
    }

    /// Count the slots of a pause that have passed by since the last call, but for one.
    fn pass_over(&mut self) {
        if self.slot == Slot::Paused {
            let passed = self.began.elapsed().div_duration_f64(SLOT) as u32;
            let more = passed.saturating_sub(1).min(self.windows.quiet());
            self.windows.pass_over(more);
            self.slots = self.slots.saturating_add(more);
        }
    }

    fn end_slot(&mut self, programs: &mut Programs, reader: Duration) {
        let before = self.slot;
        self.note_standing();
        // How long a window is that stands for others does not depend on what there is to do after it. One that
        // stands for itself goes on meanwhile, and what it cost is known before the next slot is settled.
        let stands_for_others = self.windows.pauses() > 1;
        if stands_for_others {
            if before == Slot::Window {
                (self.stretch).window(self.began.elapsed(), self.windows.pauses());
            }
            self.settle_slot(programs, before);
        }
        if let (Some(open), Slot::Window) = (self.open, before) {
            self.note_window(open.choice.pauses);
            self.measure(programs, open, reader);
            if let Some(open) = &mut self.open {
                open.long = self.began.elapsed();
            }
        }
        if !stands_for_others {
            self.settle_slot(programs, before);
        }
        self.expense.charge(before != Slot::Paused);
        if self.slot == Slot::Window {
            self.end_window(programs);
        }
    }

    fn next_slot(&mut self, programs: &mut Programs) -> Result<(), TraceError> {
        match self.slot {
            Slot::Window if programs.is_paused() => {
                let at = thread_time();
                programs.resume()?;
                self.expense.attached(at);
            }
            Slot::Paused if !programs.is_paused() => {
                let at = thread_time();
                programs.pause();
                self.expense.detached(at);
            }
            _ => {}
        }
        if let (Plan::Bounded(_, meter), Slot::Window) = (&mut self.plan, self.slot) {
            meter.begin(programs.watched());
        }
        self.tell(programs);
        Ok(())
    }

    /// A slot has ended: for how much time does it stand?
    fn note_standing(&mut self) {
        let took = std::mem::replace(&mut self.ended, Instant::now()).elapsed();
        let stands_for = match (self.slot, self.windows.pauses(), self.open) {
            (_, 1, _) => took,
            (Slot::Window, _, Some(open)) => self.began.elapsed() * open.choice.pauses,
            _ => Duration::ZERO,
        };
        self.standing.slot(took, stands_for);
    }

    /// Settle what the next slot is, and end a window that does not go on.
    fn settle_slot(&mut self, programs: &mut Programs, before: Slot) {
        self.begin_slot();
        if before == Slot::Window && self.slot != Slot::Window {
            programs.variables.set_sampling(1, 0, None);
        }
    }

    fn begin_slot(&mut self) {
        let wanted = match &self.plan {
            Plan::Fixed(choice) => choice.pauses,
            Plan::Bounded(control, _) => control.pauses(longest(self.slots)),
        };
        if self.windows.is_over() {
            if self.windows.pauses() > 1 {
                self.stretch.stratum(self.stratum.elapsed());
            }
            self.stratum = Instant::now();
        }
        let is_window = self.windows.next(wanted, &mut |bound| random() % bound);
        self.slots = self.slots.saturating_add(1);
        self.slot = match self.slot {
            _ if is_window => Slot::Window,
            Slot::Window => Slot::After,
            Slot::After | Slot::Paused => Slot::Paused,
        };
    }

    /// Let the programs choose, if this is a window.
    fn tell(&mut self, programs: &mut Programs) {
        if self.slot != Slot::Window {
            programs.variables.set_sampling(1, 0, None);
            return;
        }
        let (mut choice, brake) = match &self.plan {
            Plan::Fixed(choice) => (*choice, None),
            Plan::Bounded(control, _) => {
                let choice = control.choice(self.windows.pauses());
                let brake = Brake::of(choice, control.budget());
                (choice, brake)
            }
        };
        if choice.pauses > 1 {
            choice.pauses = self.stretch.slots(choice.pauses, random());
        }
        self.open = Some(Opened::new(choice, brake, programs));
        programs
            .variables
            .set_sampling(choice.one_in, choice.weight(), brake.map(Brake::allowed));
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

    /// Whether windows stand for more than themselves now.
    pub(super) fn is_in_windows(&self) -> bool {
        self.windows.pauses() > 1
    }

    /// Of what was counted since the last call: how many times as much there may have been, as counting slows, and how many
    /// accesses these are more.
    pub(super) fn weigh(&mut self) -> (f64, f64) {
        let now = self.between.estimated();
        let before = std::mem::replace(&mut self.before, now);
        let (estimated, slowed) = (now.0 - before.0, now.1 - before.1);
        (1.0 + slowed / estimated.max(1.0), slowed)
    }

    /// For how much of the time windows stand.
    pub(super) fn standing(&self) -> &Standing {
        &self.standing
    }

    /// The counts so far were weighed.
    pub(super) fn weighed(&mut self) {
        self.standing.weighed();
    }

    /// The trace is over.
    pub(super) fn end(&mut self, programs: &Programs) {
        self.note_standing();
        self.end_window(programs);
    }

    /// Whether accesses are counted in windows, or were since the last call of [`Self::take_windowed`].
    pub(super) fn is_windowed(&self) -> bool {
        self.windowed.is_some()
    }

    fn measure(&mut self, programs: &Programs, open: Opened, reader: Duration) {
        let own = self.expense.own(reader);
        let Plan::Bounded(control, meter) = &mut self.plan else {
            return;
        };
        let all_seen = programs.variables.state().seen;
        let (seen, made) = open.looked(all_seen);
        let choice = open.choice;
        let is_braked = open.brake.is_some_and(|brake| brake.is_on(seen));
        let Some(measured) = meter.end(programs.watched(), own, all_seen, (seen, made)) else {
            if is_braked || is_news(made, self.made, control.budget()) {
                meter.hurry();
            }
            return;
        };
        self.made = made;
        if is_braked {
            control.braked(made as f64 / seen as f64);
        }
        let pauses = f64::from(choice.pauses);
        let seconds = self.began.elapsed().as_secs_f64();
        let cost = (self.expense).measured(measured, choice, seconds, (seen, made));
        let spent = (self.expense.programs() + own.all).as_secs_f64();
        let debt = control.debt(spent, self.expense.elapsed().as_secs_f64());
        let longest = longest(self.slots);
        control.measured(cost, debt, longest);
        let next = control.choice(control.pauses(longest));
        tracing::trace!("{cost:?} with {choice:?}, {debt:.4} s too much: {next:?}");
        let now = made.max(1) as f64 / seen.max(1) as f64 * pauses;
        let then = f64::from(next.weight());
        meter.expect(now / then);
        if (then / now).ln().abs() > MUCH {
            meter.hurry();
        }
    }

    /// An access of the last window was counted that the programs did not count.
    pub(super) fn chose_also(&mut self) {
        if let Some(open) = &mut self.open {
            open.also += 1;
        }
    }

    /// The last window has ended, with all that was chosen in it. Accesses that end later than the
    /// slot after it are few.
    fn end_window(&mut self, programs: &Programs) {
        if let Some(open) = self.open.take() {
            self.between.add(open.ended(programs, &self.expense));
        }
    }

    /// The variance of the sum of all counts that comes from windows, where counts have grown so many times and `slowed` accesses
    /// may still be missing.
    pub(super) fn common(&self, growth: f64, slowed: f64) -> u64 {
        self.between.variance(&self.windows, growth, slowed) as u64
    }

    /// Processor time so far; `reader` is that of the ring's reader.
    pub(super) fn spent(&mut self, reader: Duration) -> Spent {
        self.expense.charge(self.slot != Slot::Paused);
        Spent {
            programs: matches!(self.plan, Plan::Bounded(..)).then_some(self.expense.programs()),
            collector: self.expense.own(reader).all,
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
