//! Carries sampling out: measures, tells the programs, and attaches and detaches them.

use std::time::Duration;

use super::{
    error::TraceError,
    meter::{Meter, thread_time},
    options::{Layer, TraceOptions},
    programs::Programs,
    sampling::{Choice, Control, LARGEST, ONE_IN, Sampling},
    wire,
};

pub(super) struct Sampler {
    layer: Layer,
    choice: Choice,
    /// Where the cost is bounded.
    control: Option<(Control, Meter)>,
    /// Processor time of taking the counts.
    own: Duration,
    /// Chosen accesses when the last tick began.
    chosen: u64,
    /// Variance that comes from pauses.
    common: u64,
    /// Of so many ticks in a row, the programs are attached in one: those that are left, and which.
    left: u32,
    attached_at: u32,
}

impl Sampler {
    /// Tell the programs, which are not attached yet, how to begin.
    pub(super) fn new(options: &TraceOptions, programs: &mut Programs) -> Self {
        let control = options
            .sampling
            .budget()
            // Single accesses have no weight.
            .filter(|_| !options.raw)
            .map(|budget| (Control::new(budget, LARGEST), Meter::new(Duration::ZERO)));
        let choice = match options.sampling {
            Sampling::OneIn(k) if !options.raw => Choice {
                one_in: k.max(1),
                pauses: 1,
            },
            _ => Choice::of(1.0),
        };
        programs.variables.set_salt(random());
        programs
            .variables
            .set_sampling(choice.one_in, choice.weight());
        Self {
            layer: options.layer,
            choice,
            control,
            own: Duration::ZERO,
            chosen: 0,
            common: 0,
            left: 0,
            attached_at: 0,
        }
    }

    /// Note the time that taking the counts took the calling thread, since it had used `began`.
    pub(super) fn took_counts(&mut self, began: Duration) {
        self.own += thread_time().saturating_sub(began);
    }

    /// To be called some twenty times a second; `reader` is the processor time of the ring's reader.
    /// Returns runs that a pause has cut.
    pub(super) fn tick(
        &mut self,
        programs: &mut Programs,
        reader: Duration,
    ) -> Result<Vec<super::contract::Run>, TraceError> {
        self.end(programs);
        let Some((control, meter)) = &mut self.control else {
            return Ok(Vec::new());
        };
        let began = thread_time();
        let mut cut = Vec::new();
        let own = self.own + reader;
        let chosen = self.chosen;
        if let Some(cost) = meter.end(programs.watched(), self.choice, own, chosen) {
            control.measured(cost);
            let choice = control.choice();
            tracing::trace!("{cost:?}: {choice:?}");
            if choice != self.choice {
                self.choice = choice;
                programs
                    .variables
                    .set_sampling(choice.one_in, choice.weight());
                meter.hurry();
            }
        }
        // A measurement goes on for the time of a tick, so its programs stay.
        if !meter.is_measuring() {
            let pauses = self.choice.pauses;
            if self.left == 0 || self.left > pauses {
                self.left = pauses;
                self.attached_at = random() % pauses + 1;
            }
            let attached = self.left == self.attached_at;
            self.left -= 1;
            if attached && programs.is_paused() {
                if self.layer == Layer::Syscall {
                    cut = programs.take_runs();
                }
                programs.resume()?;
            } else if !attached {
                programs.pause();
            }
            if !programs.is_paused() {
                meter.begin(programs.watched());
            }
        }
        self.own += thread_time().saturating_sub(began);
        Ok(cut)
    }

    /// End a tick: all that was chosen in it was covered by one choice of a pause.
    pub(super) fn end(&mut self, programs: &mut Programs) {
        let chosen = programs.variables.state().chosen;
        let counted = (chosen - self.chosen) as f64 * f64::from(self.choice.weight());
        self.chosen = chosen;
        let detached = 1.0 - 1.0 / f64::from(self.choice.pauses);
        self.common = self
            .common
            .saturating_add((counted * counted * detached) as u64);
    }

    /// The variance of the sum of all counts that comes from pauses.
    pub(super) fn common(&self) -> u64 {
        self.common
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
    wire::read(&bytes).unwrap_or(ONE_IN)
}
