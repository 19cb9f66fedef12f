//! The service: learn what is read, decide what pays, move that in small portions, disturb nobody.
//!
//! ```text
//!           ┌── trace a while (learn)                       every hour
//! Tender ───┤   for each file system, while windows, budgets and readings allow:
//!           ├── look and decide (plan)                      no oftener than every hour, up to a day
//!           └── a portion, a second of quiet, a look, a portion …   until nothing is left, or something holds it
//! ```
//!
//! One loop on one thread. It sees the world through [`World`] (clocks, signals, readings) and the work through
//! [`Work`], so a day can pass in a test within milliseconds; [`Duties`] is the real work.
//!
//! - **Learn.** A trace is made beside others ([`crate::learn`]), and waits for a while where they wait for a processor.
//! - **Pause.** Whatever works asks at each step ([`Halt`]) whether it is to stop: for a signal, the end of a window,
//!   or readings at their limits. What was to be moved is kept and goes on later. A plan that is older than some
//!   hours is made anew.
//! - **Stop.** After a restart nothing is resumed: the profile and the [`Ledger`] are kept, and files are planned anew.
//! - **Backoff.** A file system with nothing to do is looked at half as often each time, down to once a day.

mod decide;
mod decision;
mod duties;
mod event;
mod experience;
mod identity;
mod ledger;
mod memory;
pub mod metrics;
mod novelty;
mod portion;
mod settings;
mod state;
mod status;
mod window;
mod world;

use std::{
    path::PathBuf,
    time::{Duration, UNIX_EPOCH},
};

use indef_core::plan::SavedBy;
use units::Bytes;

use crate::{
    apart::NotTraced,
    consider::{CannotTell, Gate, Quantity, Reading},
};
pub use decide::{Decided, decide, noise_of, observed_days, terms_of, worth_days};
pub use decision::{Decision, Outlook};
pub use duties::Duties;
pub use event::{Event, Hold, Level};
pub use experience::{Experience, Foresight, Look, PARTS};
pub use ledger::{Budgets, Ledger, LedgerError, Moment, Spent};
pub use portion::{Portion, PortionEnd, PortionLimit, Traced};
pub use settings::Settings;
pub use state::{CannotKeep, Kept};
pub use status::{PlaceStatus, Status, Totals};
pub use window::{NoWindow, Window, is_within};
pub use world::{Asked, Halt, Place, Round, Work, World};

/// The time between two looks: a look tells of the time since the last one.
const LOOK: Duration = Duration::from_secs(1);
/// How often the loop turns at least: the readings of a paused file system are taken this often.
const TURN: Duration = Duration::from_secs(10);
/// A plan older than this is made anew.
const STALE: Duration = Duration::from_secs(6 * 3600);
/// How long the run of another keeps us away before we look again.
const CLAIMED: Duration = Duration::from_secs(60);
/// Errors of one portion that are told.
const MOST_TOLD: usize = 10;

/// The loop.
pub struct Tender<'a, W, K> {
    settings: Settings,
    world: &'a mut W,
    work: &'a mut K,
    /// `None`: nothing is written.
    ledger: Option<Ledger>,
    places: Vec<Tended>,
    learn_at: Duration,
    /// Whether processors are free for a trace, and until when at most it waits for that.
    processors: Gate,
    put_off: Option<Duration>,
    /// Why there is no trace, as it was told, and when.
    untraced: Option<(String, Duration)>,
    status: Status,
    is_unknown_told: bool,
    /// Another file system was found than the one that was looked after.
    begins_anew: bool,
    work_left: bool,
}

/// A file system that is looked after.
struct Tended {
    place: Place,
    gate: Gate,
    phase: Phase,
    /// Not before this.
    not_before: Duration,
    /// From a round to the next one.
    pause: Duration,
    /// Looks that readings broke off, in a row.
    broken_off: u32,
    held: Option<Hold>,
    /// Bytes that the next range writes in one go.
    needs: Bytes,
    /// Done and not told yet.
    untold: (u64, Bytes, Bytes),
    /// What was done in the round that goes on.
    round: Option<Totals>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// It is to be looked at.
    Due,
    /// There is something to move, planned at this time.
    Moving(Duration),
    /// Its only round is over.
    Finished,
}

impl Tended {
    fn new(place: Place, settings: &Settings) -> Self {
        Self {
            place,
            gate: Gate::default(),
            phase: Phase::Due,
            not_before: Duration::ZERO,
            pause: settings.every,
            broken_off: 0,
            held: None,
            needs: Bytes::ZERO,
            untold: (0, Bytes::ZERO, Bytes::ZERO),
            round: None,
        }
    }

    fn path(&self) -> PathBuf {
        self.place.paths.first().cloned().unwrap_or_default()
    }
}

/// Asks at each step of the work whether it may go on.
struct Watcher<'a, W> {
    world: &'a mut W,
    gate: &'a mut Gate,
    settings: &'a Settings,
    drives: &'a [String],
    last: Duration,
    is_halted: bool,
}

impl<W: World> Watcher<'_, W> {
    fn is_to_halt(&mut self) -> bool {
        if self.is_halted || self.world.asked().is_some() {
            self.is_halted = true;
            return true;
        }
        let now = self.world.now().since_boot;
        if self.settings.dry_run || now.saturating_sub(self.last) < LOOK {
            return false;
        }
        self.last = now;
        let readings = self.world.look(self.drives, true, &self.settings.limits);
        self.gate.take(&readings, now, &self.settings.limits);
        let is_outside = !is_within(&self.settings.windows, self.world.local());
        self.is_halted = is_outside || !self.gate.is_open();
        self.is_halted
    }
}

impl<'a, W: World + Send, K: Work> Tender<'a, W, K> {
    /// A service that has not begun.
    pub fn new(
        settings: Settings,
        world: &'a mut W,
        work: &'a mut K,
        ledger: Option<Ledger>,
    ) -> Self {
        Self {
            settings,
            world,
            work,
            ledger,
            places: Vec::new(),
            learn_at: Duration::ZERO,
            processors: Gate::default(),
            put_off: None,
            untraced: None,
            status: Status::default(),
            is_unknown_told: false,
            begins_anew: false,
            work_left: false,
        }
    }

    /// Go on until the end is asked for; with [`Settings::once`], until each file system had its round. `reload` gives
    /// the settings when they are to be read again. Returns whether something held the work of the only round back,
    /// or the end came before it was done.
    ///
    /// # Errors
    ///
    /// There is no file system to look after.
    pub fn run(
        &mut self,
        reload: &mut dyn FnMut() -> Result<Settings, String>,
    ) -> Result<bool, String> {
        self.begin()?;
        loop {
            match self.world.asked() {
                Some(Asked::Stop) => break,
                Some(Asked::Reload) => {
                    match reload() {
                        Ok(settings) => {
                            self.work.set(&settings);
                            self.settings = settings;
                        }
                        Err(why) => self.tell_failed(PathBuf::new(), &why),
                    }
                    self.begin_anew();
                    continue;
                }
                None => {}
            }
            if std::mem::take(&mut self.begins_anew) {
                self.begin_anew();
            }
            self.publish();
            let now = self.world.now().since_boot;
            if now >= self.learn_at
                && self.does_learn()
                && let Some(aside) = self.may_learn(now)
            {
                self.learn(now, aside);
                if self.world.asked().is_some() {
                    continue;
                }
            }
            // Each trace is followed by work, also where the next one is due when it ends.
            let now = self.world.now().since_boot;
            let mut next = match self.does_learn() {
                true => self.learn_at.min(now + TURN),
                false => now + TURN,
            };
            let mut has_worked = false;
            for index in 0..self.places.len() {
                match self.step(index) {
                    Some(until) => next = next.min(until),
                    None => has_worked = true,
                }
            }
            let are_finished = |tended: &Tended| tended.phase == Phase::Finished;
            if self.places.iter().all(are_finished) {
                break;
            }
            if !has_worked {
                let now = self.world.now().since_boot;
                self.world.wait(next.saturating_sub(now));
            }
        }
        for index in 0..self.places.len() {
            self.work_left |= match self.places[index].phase {
                Phase::Finished => false,
                Phase::Moving(_) => true,
                Phase::Due => self.settings.once,
            };
            self.tell_moved(index, true);
            self.end_round(index, Some("signal"));
        }
        self.publish();
        Ok(self.work_left)
    }

    /// The numbers so far.
    #[must_use]
    pub fn status(&self) -> &Status {
        &self.status
    }

    fn does_learn(&self) -> bool {
        !self.settings.learn.is_zero() && !self.settings.dry_run
    }

    /// The same again, or go on with those that it had, of which nothing is planned any more.
    fn begin_anew(&mut self) {
        if let Err(why) = self.begin() {
            self.tell_failed(PathBuf::new(), &why);
            for tended in &mut self.places {
                tended.phase = Phase::Due;
            }
            self.tell_began();
        }
    }

    /// Look at the mounts, and begin a round of each file system.
    fn begin(&mut self) -> Result<(), String> {
        for index in 0..self.places.len() {
            self.tell_moved(index, true);
            self.end_round(index, Some("reload"));
            self.work.forget(index);
        }
        let places = self.work.places()?;
        let settings = &self.settings;
        let status = |place: &Place| PlaceStatus {
            path: place.paths.first().cloned().unwrap_or_default(),
            ..PlaceStatus::default()
        };
        // What was counted of the same path goes on.
        let mut before = std::mem::take(&mut self.status.places);
        self.status.places = places.iter().map(status).collect();
        for place in &mut self.status.places {
            if let Some(at) = before.iter().position(|old| old.path == place.path) {
                *place = before.swap_remove(at);
            }
        }
        let tended = places.into_iter().map(|place| Tended::new(place, settings));
        self.places = tended.collect();
        self.learn_at = self.world.now().since_boot;
        self.is_unknown_told = false;
        self.tell_began();
        Ok(())
    }

    fn tell_began(&mut self) {
        let paths: Vec<PathBuf> = self.places.iter().map(Tended::path).collect();
        self.world.tell(&Event::Began {
            places: paths.iter().map(PathBuf::as_path).collect(),
            learn: match self.does_learn() {
                true => self.settings.learn,
                false => Duration::ZERO,
            },
        });
    }

    /// Whether the trace that is due may begin, and whether it lets all others go first. It waits until others do not wait
    /// for a processor any more, but not longer than it is from one trace to the next: a machine that is always busy has
    /// reads to learn of, too. There it has to run as others do, or would never come to its turn.
    fn may_learn(&mut self, now: Duration) -> Option<bool> {
        let drives = match self.places.first() {
            Some(tended) if !self.settings.once => &tended.place.drives,
            _ => return Some(false),
        };
        let limits = &self.settings.limits;
        let mut readings = self.world.look(drives, false, limits);
        readings.retain(|reading| reading.quantity == Quantity::CpuPressure);
        self.processors.take(&readings, now, limits);
        let is_calm = self.processors.is_open();
        if is_calm || self.put_off.is_some_and(|until| now >= until) {
            (self.processors, self.put_off) = (Gate::default(), None);
            return Some(is_calm);
        }
        if self.put_off.is_none() {
            let most = self.settings.learn_every;
            self.put_off = Some(now + most);
            let why = self.processors.why();
            self.world.tell(&Event::LearnsLater { why, most });
        }
        self.learn_at = now + TURN;
        None
    }

    fn learn(&mut self, now: Duration, aside: bool) {
        self.learn_at = now + self.settings.learn_every.max(self.settings.learn);
        let (world, status) = (&mut *self.world, &self.status);
        let mut is_over = || {
            world.publish(status);
            world.asked().is_some()
        };
        let learned = self.work.learn(self.settings.learn, aside, &mut is_over);
        let after = self.world.now().since_boot;
        self.status.traced_s += match &learned {
            Ok(_) => after.saturating_sub(now).as_secs_f64(),
            Err(_) => 0.0,
        };
        match learned {
            Ok(traced) => {
                self.status.traced = Some(traced);
                self.untraced = None;
                self.world.tell(&Event::Learned(&traced));
                self.wake(after);
            }
            Err(NotTraced { why, may_pass }) => {
                // Rights and kernels seldom change.
                if !may_pass {
                    self.learn_at = after + Settings::LONGEST_PAUSE;
                }
                let is_told = self.untraced.as_ref().is_some_and(|(told, at)| {
                    *told == why && after.saturating_sub(*at) < Settings::LONGEST_PAUSE
                });
                if !is_told {
                    self.world.tell(&Event::NotLearned { why: &why });
                    self.untraced = Some((why, after));
                }
            }
        }
        if self.settings.once {
            self.learn_at = Duration::MAX;
        }
    }

    /// Another load may have something to gain: where nothing had, it is looked at without the rest of its long pause.
    fn wake(&mut self, now: Duration) {
        for (index, tended) in self.places.iter_mut().enumerate() {
            let is_idle = tended.phase == Phase::Due && tended.pause > self.settings.every;
            if is_idle && self.work.is_another_load(index) {
                tended.not_before = tended.not_before.min(now);
                tended.pause = self.settings.every;
            }
        }
    }

    /// One step of a file system. Returns until when there is nothing to do; `None` after work.
    fn step(&mut self, index: usize) -> Option<Duration> {
        let now = self.world.now().since_boot;
        let tended = &self.places[index];
        if tended.phase == Phase::Finished {
            return Some(Duration::MAX);
        }
        if now < tended.not_before {
            return Some(tended.not_before);
        }
        if let Err(hold) = self.may_work(index) {
            if !self.settings.dry_run {
                return Some(self.hold(index, hold));
            }
            // Who asks what would be done gets the whole answer.
            let path = self.places[index].path();
            self.status.places[index].held = Some((hold.as_str(), hold.to_string()));
            self.world.tell(&Event::Held {
                place: &path,
                why: &hold,
            });
        }
        match self.places[index].phase {
            Phase::Finished => Some(Duration::MAX),
            Phase::Moving(since) if now.saturating_sub(since) > STALE => {
                self.work.forget(index);
                self.tell_moved(index, true);
                self.end_round(index, Some("stale"));
                self.places[index].phase = Phase::Due;
                None
            }
            Phase::Moving(_) => self.move_portion(index),
            // Of that one nothing is known, and what is known is not of that one.
            Phase::Due if !self.settings.once && self.work.is_elsewhere(index) => {
                let path = self.places[index].path();
                self.world.tell(&Event::Elsewhere { place: &path });
                self.begins_anew = true;
                // Where it cannot begin anew, it is tried again later.
                self.rest(index, true);
                None
            }
            Phase::Due => {
                self.plan(index);
                None
            }
        }
    }

    /// Whether windows, budgets and readings allow work.
    fn may_work(&mut self, index: usize) -> Result<(), Hold> {
        if !is_within(&self.settings.windows, self.world.local()) {
            return Err(Hold::Window);
        }
        let moment = self.world.now();
        if let Some(ledger) = &mut self.ledger {
            let left = ledger.left(moment, &self.settings.budgets);
            left.map_err(Hold::Budget)?;
        }
        let tended = &mut self.places[index];
        let limits = &self.settings.limits;
        let mut readings = self.world.look(&tended.place.drives, false, limits);
        let is_early = |reading: &Reading| reading.value == Err(CannotTell::TooEarly);
        if readings.iter().any(is_early) {
            self.world.wait(LOOK);
            readings = self.world.look(&tended.place.drives, false, limits);
        }
        let now = self.world.now().since_boot;
        tended.gate.take(&readings, now, limits);
        let is_unknown = |reading: &&Reading| {
            let early = [CannotTell::TooEarly, CannotTell::OwnWork];
            matches!(&reading.value, Err(why) if !early.contains(why))
        };
        let unknown = readings.iter().filter(is_unknown);
        let unknown: Vec<Reading> = unknown.cloned().collect();
        self.status.places[index].readings = readings;
        let gate = &tended.gate;
        let answer = match gate.is_open() {
            true => Ok(()),
            false => Err(Hold::Readings(gate.why().to_vec())),
        };
        if !unknown.is_empty() && !self.is_unknown_told {
            self.is_unknown_told = true;
            self.world.tell(&Event::Unknown(&unknown));
        }
        answer
    }

    /// Wait, and tell so once. Returns until when.
    fn hold(&mut self, index: usize, why: Hold) -> Duration {
        let now = self.world.now().since_boot;
        let path = self.places[index].path();
        self.status.places[index].held = Some((why.as_str(), why.to_string()));
        let is_new =
            (self.places[index].held.as_ref()).is_none_or(|before| before.as_str() != why.as_str());
        if is_new {
            self.tell_moved(index, true);
            self.world.tell(&Event::Held {
                place: &path,
                why: &why,
            });
        }
        let wait = match &why {
            Hold::Claimed(_) => CLAIMED,
            Hold::Readings(_) | Hold::Window | Hold::Budget(_) => TURN,
        };
        // Until the next window or day is no pause: who asks in the morning is told of the night.
        if self.settings.once || matches!(why, Hold::Window | Hold::Budget(_)) {
            self.end_round(index, Some(why.as_str()));
        }
        let tended = &mut self.places[index];
        tended.held = Some(why);
        if self.settings.once {
            self.work_left = true;
            tended.phase = Phase::Finished;
            self.work.forget(index);
        }
        tended.not_before = now + wait;
        tended.not_before
    }

    /// Nothing holds the work any more.
    fn release(&mut self, index: usize) {
        self.status.places[index].held = None;
        let tended = &mut self.places[index];
        if tended.held.take().is_some() && matches!(tended.phase, Phase::Moving(_)) {
            let path = tended.path();
            self.world.tell(&Event::Resumed { place: &path });
        }
    }

    fn watched<T>(&mut self, index: usize, work: impl FnOnce(&mut K, Halt<'_>) -> T) -> T {
        let tended = &mut self.places[index];
        let mut watcher = Watcher {
            last: self.world.now().since_boot,
            world: &mut *self.world,
            gate: &mut tended.gate,
            settings: &self.settings,
            drives: &tended.place.drives,
            is_halted: false,
        };
        let done = work(&mut *self.work, &mut || watcher.is_to_halt());
        // The quiet time begins now.
        let limits = &self.settings.limits;
        self.world.look(&tended.place.drives, true, limits);
        done
    }

    fn plan(&mut self, index: usize) {
        if !self.settings.dry_run {
            self.release(index);
        }
        self.status.totals.scans += 1;
        let outlook = self.watched(index, |work, halt| work.plan(index, halt));
        let now = self.world.now().since_boot;
        let path = self.places[index].path();
        match outlook {
            Ok(Some(outlook)) => {
                self.world.tell(&Event::Decided {
                    place: &path,
                    outlook: &outlook,
                });
                self.decided(index, &outlook);
            }
            Ok(None) => {
                let tended = &mut self.places[index];
                let factor = 1 << tended.broken_off.min(6);
                tended.broken_off += 1;
                tended.not_before = now + self.settings.limits.calm * factor;
                if self.settings.once {
                    self.work_left = true;
                    // The reason is told, where it is one of readings.
                    match tended.gate.is_open() {
                        true => tended.phase = Phase::Finished,
                        false => tended.not_before = now,
                    }
                }
            }
            Err(why) => {
                self.tell_failed(path, &why);
                self.rest(index, true);
            }
        }
    }

    /// Go on after a decision.
    fn decided(&mut self, index: usize, outlook: &Outlook) {
        let now = self.world.now();
        for (reason, files) in &outlook.skipped {
            *self.status.totals.skipped.entry(*reason).or_default() += files;
        }
        self.places[index].broken_off = 0;
        let status = &mut self.status.places[index];
        let decision = &outlook.decision;
        status.decision = Some((decision.as_str(), outlook.to_string()));
        (status.wanted, status.saved_requests, status.saved_s) = (Bytes::ZERO, 0.0, None);
        let is_move = match decision {
            Decision::Move { paying, .. } => {
                status.wanted = paying.bytes;
                status.saved_requests = paying.requests_a_day;
                status.saved_s = (paying.by == SavedBy::Time).then_some(paying.saved_a_day);
                true
            }
            _ => false,
        };
        if is_move && !self.settings.dry_run {
            self.places[index].phase = Phase::Moving(now.since_boot);
            return;
        }
        if is_move {
            self.work.forget(index);
        } else {
            self.succeed(index);
        }
        // What is not known yet may be known soon.
        let is_idle = !matches!(
            decision,
            Decision::NoProfile | Decision::NotRead | Decision::Unclear(_)
        );
        self.rest(index, is_idle && !is_move);
    }

    /// A portion, and what follows. Returns until when there is nothing to do.
    fn move_portion(&mut self, index: usize) -> Option<Duration> {
        let moment = self.world.now();
        let (needs, budgets) = (self.places[index].needs, &self.settings.budgets);
        let left = match &mut self.ledger {
            None => Ok(Bytes(u64::MAX)),
            Some(ledger) => match ledger.left(moment, budgets) {
                Ok(left) if needs > left => Err(ledger.short(needs, moment, budgets)),
                left => left,
            },
        };
        let left = match left {
            Ok(left) => left,
            Err(spent) => return Some(self.hold(index, Hold::Budget(spent))),
        };
        // Whether another run has ended shows only when a portion begins.
        let was_claimed = matches!(self.places[index].held, Some(Hold::Claimed(_)));
        if !was_claimed {
            self.release(index);
        }
        let limit = PortionLimit {
            bytes: self.settings.portion.max(needs).min(left),
            time: self.settings.portion_time,
        };
        let path = self.places[index].path();
        if let Some(ledger) = &mut self.ledger
            && let Err(error) = ledger.reserve(limit.bytes, moment)
        {
            // What cannot be entered may not be written.
            self.tell_failed(path, &error.to_string());
            self.end_round(index, Some("ledger"));
            self.work.forget(index);
            self.work_left = true;
            self.rest(index, true);
            return None;
        }
        if self.places[index].round.is_none() {
            self.places[index].round = Some(Totals::default());
            self.world.round(&path, Round::Begins);
        }
        let portion = self.watched(index, |work, halt| work.portion(index, &limit, halt));
        if let Some(ledger) = &mut self.ledger {
            ledger.settle(portion.written);
        }
        if was_claimed && !matches!(portion.end, PortionEnd::Claimed(_)) {
            self.release(index);
        }
        self.account(index, &portion);
        match portion.end {
            PortionEnd::Done => {
                self.tell_moved(index, false);
                self.end_round(index, None);
                if portion.failed.is_empty() {
                    self.succeed(index);
                }
                self.places[index].pause = self.settings.every;
                self.rest(index, false);
                None
            }
            PortionEnd::More => {
                self.places[index].needs = Bytes::ZERO;
                None
            }
            PortionEnd::Claimed(why) => Some(self.hold(index, Hold::Claimed(why))),
            PortionEnd::TooSmall(needs) => self.make_room(index, needs, limit.bytes),
        }
    }

    /// A range writes more in one go than the portion had.
    fn make_room(&mut self, index: usize, needs: Bytes, had: Bytes) -> Option<Duration> {
        let budgets = self.settings.budgets;
        let most = [budgets.day, budgets.year].into_iter().flatten().min();
        if most.is_some_and(|most| needs > most) || needs <= had {
            let path = self.places[index].path();
            self.world.tell(&Event::TooLarge {
                place: &path,
                bytes: needs,
            });
            // The other files move.
            self.work.pass_over(index);
            self.places[index].needs = Bytes::ZERO;
            return None;
        }
        // With the next portion, or when there is a new budget.
        self.places[index].needs = needs;
        None
    }

    fn account(&mut self, index: usize, portion: &Portion) {
        self.status.totals.add(portion);
        let status = &mut self.status.places[index];
        status.relocated = status.relocated.saturating_add(portion.relocated);
        status.written = status.written.saturating_add(portion.written);
        status.wanted = status.wanted.saturating_sub(portion.relocated);
        let tended = &mut self.places[index];
        if let Some(round) = &mut tended.round {
            round.add(portion);
        }
        tended.untold.0 += portion.files_moved;
        tended.untold.1 = tended.untold.1.saturating_add(portion.relocated);
        tended.untold.2 = tended.untold.2.saturating_add(portion.written);
        for why in portion.failed.iter().take(MOST_TOLD) {
            let path = tended.path();
            self.world.tell(&Event::Failed { what: &path, why });
        }
    }

    /// No more moves follow on the last decision.
    fn end_round(&mut self, index: usize, left: Option<&'static str>) {
        let tended = &mut self.places[index];
        if let Some(done) = tended.round.take() {
            let path = tended.path();
            self.world.round(&path, Round::Ends { done: &done, left });
        }
    }

    /// The round of a file system is over.
    fn rest(&mut self, index: usize, is_idle: bool) {
        let now = self.world.now().since_boot;
        let tended = &mut self.places[index];
        tended.needs = Bytes::ZERO;
        tended.phase = match self.settings.once {
            true => Phase::Finished,
            false => Phase::Due,
        };
        tended.not_before = now + tended.pause;
        tended.pause = match is_idle {
            true => (tended.pause * 2).min(Settings::LONGEST_PAUSE),
            false => self.settings.every,
        };
    }

    fn succeed(&mut self, index: usize) {
        let since = self.world.now().wall.duration_since(UNIX_EPOCH);
        self.status.places[index].last_success_s = since.ok().map(|since| since.as_secs());
    }

    /// Tell of the moves since the last time.
    fn tell_moved(&mut self, index: usize, more: bool) {
        let tended = &mut self.places[index];
        let (files, relocated, written) = std::mem::take(&mut tended.untold);
        let path = tended.path();
        // Also where nothing was written of what had been reserved.
        let kept = self.ledger.as_mut().map(Ledger::keep);
        if let Some(Err(error)) = kept {
            self.tell_failed(path.clone(), &error.to_string());
        }
        if files > 0 || !written.is_zero() {
            let tended = &self.places[index];
            let more = more && matches!(tended.phase, Phase::Moving(_));
            self.world.tell(&Event::Moved {
                place: &path,
                files,
                relocated,
                written,
                more,
            });
        }
    }

    fn tell_failed(&mut self, what: PathBuf, why: &str) {
        self.status.totals.failures += 1;
        self.world.tell(&Event::Failed { what: &what, why });
    }

    fn publish(&mut self) {
        let moment = self.world.now();
        if let Some(ledger) = &mut self.ledger {
            let mut left = |day, year| {
                let budgets = Budgets { day, year };
                let given = day.is_some() || year.is_some();
                given.then(|| ledger.left(moment, &budgets).unwrap_or(Bytes::ZERO))
            };
            self.status.left_day = left(self.settings.budgets.day, None);
            self.status.left_year = left(None, self.settings.budgets.year);
        }
        self.world.publish(&self.status);
    }
}

#[cfg(test)]
mod tests;
