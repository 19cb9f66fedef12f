//! Days in fast motion: a world of numbers, and work that only takes time.

use std::{
    collections::HashSet,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::SystemTime,
};

use indef_core::plan::Paying;
use linux_abi::local_time::LocalTime;

use super::*;
use crate::consider::{Limits, Quantity};

const HOUR: u64 = 3600;
const DAY: u64 = 24 * HOUR;
/// Bytes that the work moves a second.
const RATE: u64 = 50 << 20;

/// Milliseconds since boot, which was at noon.
#[derive(Clone, Default)]
struct FakeClock(Arc<AtomicU64>);

impl FakeClock {
    fn ms(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn seconds(&self) -> u64 {
        self.ms() / 1000
    }

    fn pass(&self, time: Duration) {
        let ms = time.as_millis().max(1) as u64;
        self.0.fetch_add(ms, Ordering::Relaxed);
    }
}

/// Seconds since the midnight before boot.
fn of_day(seconds: u64) -> u64 {
    seconds + DAY / 2
}

struct FakeWorld {
    clock: FakeClock,
    /// How busy the disk of others is at a time since boot, in percent.
    busy: fn(u64) -> f64,
    /// How long others wait for a processor, likewise.
    cpu: fn(u64) -> f64,
    /// By how much the wall clock is wrong at a time since boot.
    wrong_s: fn(u64) -> i64,
    until: u64,
    reload_at: Option<u64>,
    lines: Arc<Mutex<Vec<(u64, String)>>>,
    last: Status,
    /// Beginnings and ends.
    rounds: Vec<String>,
}

impl FakeWorld {
    fn new(clock: &FakeClock, until: u64) -> Self {
        Self {
            clock: clock.clone(),
            busy: |_| 0.0,
            cpu: |_| 0.0,
            wrong_s: |_| 0,
            until,
            reload_at: None,
            lines: Arc::default(),
            last: Status::default(),
            rounds: Vec::new(),
        }
    }

    fn lines(&self) -> Vec<(u64, String)> {
        self.lines.lock().unwrap().clone()
    }

    fn told(&self, part: &str) -> usize {
        let lines = self.lines();
        lines.iter().filter(|(_, line)| line.contains(part)).count()
    }
}

impl World for FakeWorld {
    fn now(&self) -> Moment {
        let seconds = self.clock.seconds();
        let wall = (100 * DAY + of_day(seconds)).saturating_add_signed((self.wrong_s)(seconds));
        Moment {
            since_boot: Duration::from_millis(self.clock.ms()),
            wall: UNIX_EPOCH + Duration::from_secs(wall),
        }
    }

    fn local(&self) -> LocalTime {
        let now = of_day(self.clock.seconds());
        LocalTime {
            weekday: (now / DAY % 7) as u8,
            second: (now % DAY) as u32,
        }
    }

    fn wait(&mut self, time: Duration) {
        self.clock.pass(time.min(Duration::from_secs(DAY)));
    }

    fn asked(&mut self) -> Option<Asked> {
        let now = self.clock.seconds();
        if now >= self.until {
            return Some(Asked::Stop);
        }
        if self.reload_at.is_some_and(|at| now >= at) {
            return Some(Asked::Reload);
        }
        None
    }

    fn look(&mut self, drives: &[String], working: bool, _: &Limits) -> Vec<Reading> {
        let busy = (self.busy)(self.clock.seconds());
        let reading = |quantity, value, limit| Reading {
            quantity,
            drive: drives.first().cloned(),
            value,
            limit,
        };
        vec![
            reading(Quantity::IoPressure, Ok(busy / 4.0), 10.0),
            reading(
                Quantity::CpuPressure,
                Ok((self.cpu)(self.clock.seconds())),
                50.0,
            ),
            reading(
                Quantity::DiskBusy,
                match working {
                    true => Err(CannotTell::OwnWork),
                    false => Ok(busy),
                },
                40.0,
            ),
            reading(Quantity::Wear, Err(CannotTell::NotTold), 80.0),
        ]
    }

    fn tell(&mut self, event: &Event<'_>) {
        if matches!(event, Event::Began { .. }) && self.clock.seconds() > 0 {
            self.reload_at = None;
        }
        let place = event.place().map(Path::display);
        let place = place.map_or_else(String::new, |place| format!("{place}: "));
        let line = format!("{place}{event}");
        self.lines
            .lock()
            .unwrap()
            .push((self.clock.seconds(), line));
    }

    fn round(&mut self, place: &Path, round: Round<'_>) {
        let end = match round {
            Round::Begins => String::new(),
            Round::Ends { done, left } => {
                format!(": {} written, left: {left:?}", done.written.get())
            }
        };
        self.rounds.push(format!("{}{end}", place.display()));
    }

    fn publish(&mut self, status: &Status) {
        self.last = status.clone();
    }
}

#[derive(Default)]
struct FakeWork {
    clock: FakeClock,
    /// Bytes to move, by place.
    wanted: Vec<u64>,
    learned: Vec<u64>,
    /// Whether it did so aside.
    aside: Vec<bool>,
    scans: Vec<(u64, usize)>,
    /// Beginning, end, bytes.
    portions: Vec<(u64, u64, u64)>,
    cannot_learn: bool,
    loses_tracer: bool,
    /// The decision, whatever is wanted.
    decides: Option<Decision>,
    /// When another load begins, by place.
    begins: Vec<u64>,
    /// When the first place has another file system.
    elsewhere: Vec<u64>,
    cannot_be_found: bool,
    /// The next range cannot be divided.
    lump: u64,
    kept: HashSet<usize>,
    /// Until then another run works there.
    claimed_until: u64,
}

impl FakeWork {
    /// Let seconds pass as long as nobody wants a stop.
    fn work(&self, seconds: u64, halt: Halt<'_>) -> u64 {
        for second in 0..seconds {
            if halt() {
                return second;
            }
            self.clock.pass(Duration::from_secs(1));
        }
        seconds
    }
}

impl Work for FakeWork {
    fn set(&mut self, _: &Settings) {}

    fn places(&mut self) -> Result<Vec<Place>, String> {
        let place = |index: usize| Place {
            paths: vec![format!("/{index}").into()],
            drives: vec![format!("sd{index}")],
        };
        if self.cannot_be_found && self.clock.seconds() > 0 {
            return Err("/0: no such file or directory".to_owned());
        }
        // Those that are found are there from now on.
        let found = self.clock.seconds();
        self.elsewhere.retain(|at| *at > found);
        Ok((0..self.wanted.len()).map(place).collect())
    }

    fn is_elsewhere(&self, place: usize) -> bool {
        place == 0 && self.elsewhere.iter().any(|at| self.clock.seconds() >= *at)
    }

    fn learn(&mut self, time: Duration, aside: bool, halt: Halt<'_>) -> Result<Traced, NotTraced> {
        self.learned.push(self.clock.seconds());
        self.aside.push(aside);
        if self.cannot_learn {
            return Err("this kernel has no BTF".to_owned().into());
        }
        if self.loses_tracer {
            return Err(NotTraced {
                why: "whoever traces is gone".to_owned(),
                may_pass: true,
            });
        }
        self.work(time.as_secs(), halt);
        Ok(Traced::default())
    }

    fn is_another_load(&self, place: usize) -> bool {
        let (learned, begins) = (self.learned.last(), self.begins.get(place));
        let looked = self.scans.iter().rev().find(|(_, of)| *of == place);
        match (learned, begins, looked) {
            (Some(learned), Some(begins), Some((looked, _))) => {
                (looked..=learned).contains(&begins)
            }
            _ => false,
        }
    }

    fn plan(&mut self, place: usize, halt: Halt<'_>) -> Result<Option<Outlook>, String> {
        self.scans.push((self.clock.seconds(), place));
        if self.work(20, halt) < 20 {
            return Ok(None);
        }
        let bytes = self.wanted[place];
        self.kept.insert(place);
        let paying = Paying {
            by: SavedBy::Time,
            bytes: Bytes(bytes),
            saved_a_day: 100.0,
            requests_a_day: 1000.0,
            saved: 0.0,
            late_serves_days: 30.0,
            late_bytes: Bytes::ZERO,
            late_days: f64::INFINITY,
        };
        let files = u64::from(bytes > 0);
        let skipped = [(indef_core::SkipReason::Contiguous, 5)].into();
        let terms = indef_core::plan::Terms::default();
        let outlook = Outlook::of(files, paying, &terms, skipped, 1.0);
        Ok(Some(Outlook {
            decision: self.decides.clone().unwrap_or(outlook.decision),
            ..outlook
        }))
    }

    fn portion(&mut self, place: usize, limit: &PortionLimit, halt: Halt<'_>) -> Portion {
        assert!(self.kept.contains(&place), "something is planned");
        if self.clock.seconds() < self.claimed_until {
            return Portion {
                end: PortionEnd::Claimed("another run works there".to_owned()),
                ..Portion::default()
            };
        }
        if self.lump > limit.bytes.get() {
            return Portion {
                end: PortionEnd::TooSmall(Bytes(self.lump)),
                ..Portion::default()
            };
        }
        self.lump = 0;
        let begun = self.clock.seconds();
        let most = self.wanted[place].min(limit.bytes.get());
        let seconds = most.div_ceil(RATE).min(limit.time.as_secs());
        let bytes = (self.work(seconds, halt) * RATE).min(most);
        self.wanted[place] -= bytes;
        self.portions.push((begun, self.clock.seconds(), bytes));
        Portion {
            end: match self.wanted[place] {
                0 => PortionEnd::Done,
                _ => PortionEnd::More,
            },
            written: Bytes(bytes),
            relocated: Bytes(bytes),
            files_moved: u64::from(self.wanted[place] == 0),
            ..Portion::default()
        }
    }

    fn pass_over(&mut self, place: usize) {
        self.wanted[place] -= self.lump;
        self.lump = 0;
    }

    fn forget(&mut self, place: usize) {
        self.kept.remove(&place);
    }
}

fn ledger(folder: &Path, world: &FakeWorld, settings: &Settings) -> Ledger {
    let path = folder.join("ledger");
    let opened = Ledger::open(path, "boot", world.now(), &settings.budgets);
    opened.unwrap().0
}

/// Run until the world's end. Returns whether work was left.
fn run(settings: &Settings, world: &mut FakeWorld, work: &mut FakeWork) -> bool {
    let folder = tempfile::tempdir().unwrap();
    let ledger = ledger(folder.path(), world, settings);
    let mut tender = Tender::new(settings.clone(), world, work, Some(ledger));
    tender.run(&mut || Ok(settings.clone())).unwrap()
}

fn night() -> Settings {
    Settings {
        windows: vec!["22:00-06:00".parse().unwrap()],
        ..Settings::default()
    }
}

#[test]
fn a_day_in_fast_motion() {
    let clock = FakeClock::default();
    let mut world = FakeWorld::new(&clock, DAY);
    // Others are busy from one to two at night, and in the evening.
    world.busy = |seconds| match of_day(seconds) % DAY / HOUR {
        1 => 90.0,
        18..20 => 60.0,
        _ => 5.0,
    };
    let mut work = FakeWork {
        clock: clock.clone(),
        wanted: vec![30 << 30, 0],
        ..FakeWork::default()
    };
    let settings = night();
    assert!(run(&settings, &mut world, &mut work), "work is left");
    // Nothing outside of the window, and next to nothing while others are busy.
    let mut of_days = [0u64; 3];
    for (begun, ended, bytes) in &work.portions {
        let hour = of_day(*begun) % DAY / HOUR;
        assert!(!(6..22).contains(&hour), "at {hour}");
        assert_ne!(hour, 1, "others are busy");
        assert!(ended - begun <= settings.portion_time.as_secs());
        of_days[(of_day(*begun) / DAY) as usize] += bytes;
    }
    for (at, _) in &work.scans {
        let hour = of_day(*at) % DAY / HOUR;
        assert!(!(6..22).contains(&hour) && hour != 1, "a scan at {hour}");
    }
    // Each day its whole budget, and no more.
    let budget = settings.budgets.day.unwrap().get();
    assert_eq!(of_days, [budget, budget, 0]);
    assert_eq!(world.last.totals.written, Bytes(2 * budget));
    assert_eq!(world.last.left_day, Some(Bytes::ZERO));
    // A round for each of them: what a spent budget puts off until the next day is another one.
    let spent = format!("/0: {budget} written, left: Some(\"budget\")");
    assert_eq!(world.rounds, ["/0", &spent, "/0", &spent]);
    // A second of quiet after each portion.
    let gaps = work.portions.windows(2).map(|two| two[1].0 - two[0].1);
    assert!(gaps.min().unwrap() < HOUR);
    // It has learned all day, every hour.
    assert_eq!(work.learned.len(), 24);
    // The idle one was looked at less and less.
    let idle: Vec<u64> = { work.scans.iter() }
        .filter(|(_, place)| *place == 1)
        .map(|(at, _)| *at)
        .collect();
    assert!((1..=4).contains(&idle.len()), "{idle:?}");
    // Few lines, each with its reason.
    let lines = world.lines();
    assert!(lines.len() < 24 + 40, "{}: {lines:#?}", lines.len());
    for part in [
        "/0: 30 GiB of 1 file are worth moving: 100.0 s of reads saved a day",
        "/1: no read meets fragments",
        "outside of the maintenance windows",
        "the budget of the day is spent",
        "wear: cannot tell",
    ] {
        assert!(world.told(part) > 0, "{part}: {lines:#?}");
    }
    assert_eq!(world.told("cannot tell"), 1);
}

#[test]
fn others_who_become_busy_end_a_portion_within_a_step() {
    let clock = FakeClock::default();
    let mut world = FakeWorld::new(&clock, 2000);
    // In the middle of a portion.
    world.busy = |seconds| match seconds {
        1000..1600 => 90.0,
        _ => 0.0,
    };
    let mut work = FakeWork {
        clock: clock.clone(),
        wanted: vec![8 << 30 << 10],
        ..FakeWork::default()
    };
    let settings = Settings {
        learn: Duration::ZERO,
        budgets: Budgets::default(),
        ..Settings::default()
    };
    assert!(run(&settings, &mut world, &mut work));
    let during: u64 = { work.portions.iter() }
        .filter(|(begun, ended, _)| *ended > 1000 && *begun < 1600)
        .map(|(begun, ended, _)| ended.min(&1600) - begun.max(&1000))
        .sum();
    assert!(during <= 2, "{during} s of work while others were busy");
    let next = work.portions.iter().find(|(begun, ..)| *begun >= 1600);
    let calm = settings.limits.calm.as_secs();
    let next = next.unwrap().0;
    assert!((1600 + calm..1600 + calm + 15).contains(&next), "{next}");
    assert_eq!(world.told("waits: sd0: others wait for I/O"), 1);
    assert_eq!(world.told("goes on"), 1);
    // What was planned is not planned again.
    assert_eq!(work.scans.len(), 1);
}

#[test]
fn a_busy_machine_is_walked_through_less_and_less_often() {
    let clock = FakeClock::default();
    let mut world = FakeWorld::new(&clock, DAY);
    // Calm for long enough to begin, never to end.
    world.busy = |seconds| match seconds % 120 {
        0..100 => 0.0,
        _ => 99.0,
    };
    let mut work = FakeWork {
        clock: clock.clone(),
        wanted: vec![1 << 30],
        ..FakeWork::default()
    };
    let settings = Settings {
        learn: Duration::ZERO,
        limits: Limits {
            calm: Duration::from_secs(90),
            ..Limits::default()
        },
        ..Settings::default()
    };
    run(&settings, &mut world, &mut work);
    let broken = work.scans.len() - usize::from(!work.portions.is_empty());
    assert!(broken <= 24, "{broken} walks in vain");
}

#[test]
fn a_trace_waits_for_others_who_wait_for_a_processor_but_not_for_ever() {
    let clock = FakeClock::default();
    let mut world = FakeWorld::new(&clock, 7 * HOUR);
    world.cpu = |seconds| match seconds {
        1000..7200 => 20.0,
        _ => 90.0,
    };
    let mut work = FakeWork {
        clock: clock.clone(),
        wanted: vec![0],
        ..FakeWork::default()
    };
    run(&Settings::default(), &mut world, &mut work);
    // Once they have been calm for a while, then every hour, and every other one where they are always busy.
    let calm = Settings::default().limits.calm.as_secs();
    let first = work.learned[0];
    assert!((1000 + calm..1000 + calm + 20).contains(&first), "{first}");
    let gaps: Vec<u64> = { work.learned.windows(2) }
        .map(|two| two[1] - two[0])
        .collect();
    let expected = [HOUR, 2 * HOUR, 2 * HOUR];
    assert_eq!(gaps.len(), expected.len(), "{:?}", work.learned);
    for (gap, expected) in gaps.into_iter().zip(expected) {
        assert!((expected..expected + 40).contains(&gap), "{gap}");
    }
    assert_eq!(work.aside, [true, true, false, false]);
    let later =
        "traces later, in 1.0 hours at the latest: sd0: others wait for a processor (90.0 %";
    assert!(world.told(later) >= 3, "{:?}", world.lines());
    // Who wants one round has it.
    let clock = FakeClock::default();
    let mut world = FakeWorld::new(&clock, HOUR);
    world.cpu = |_| 90.0;
    let mut work = FakeWork {
        clock: clock.clone(),
        wanted: vec![0],
        ..FakeWork::default()
    };
    let once = Settings {
        once: true,
        ..Settings::default()
    };
    run(&once, &mut world, &mut work);
    assert_eq!((work.learned, work.aside), (vec![0], vec![false]));
}

#[test]
fn a_signal_ends_it_within_a_step() {
    let clock = FakeClock::default();
    let mut world = FakeWorld::new(&clock, 32);
    let mut work = FakeWork {
        clock: clock.clone(),
        wanted: vec![64 << 30],
        ..FakeWork::default()
    };
    let settings = Settings {
        learn: Duration::ZERO,
        ..Settings::default()
    };
    assert!(run(&settings, &mut world, &mut work));
    assert!(!work.portions.is_empty());
    assert!(clock.seconds() <= 33, "{}", clock.seconds());
    // What was done is told.
    assert_eq!(world.told("more is left"), 1);
}

#[test]
fn one_round_does_all_or_says_what_held_it_back() {
    let of = |settings: &Settings, busy: fn(u64) -> f64, wanted: u64| {
        let clock = FakeClock::default();
        let mut world = FakeWorld::new(&clock, DAY);
        world.busy = busy;
        let mut work = FakeWork {
            clock: clock.clone(),
            wanted: vec![wanted],
            ..FakeWork::default()
        };
        let once = Settings {
            once: true,
            ..settings.clone()
        };
        let left = run(&once, &mut world, &mut work);
        assert!(clock.seconds() < 2 * HOUR, "it waits for nothing");
        (left, work, world)
    };
    let (left, work, world) = of(&Settings::default(), |_| 0.0, 1 << 30);
    assert!(!left && work.wanted == [0], "{:?}", world.lines());
    assert_eq!(work.learned.len(), 1);
    assert!(world.last.places[0].last_success_s.is_some());
    let (left, work, _) = of(&Settings::default(), |_| 0.0, 0);
    assert!(!left && work.portions.is_empty());
    // Over the budget.
    let (left, work, world) = of(&Settings::default(), |_| 0.0, 11 << 30);
    assert!(left && work.wanted == [1 << 30]);
    assert_eq!(world.told("the budget of the day is spent"), 1);
    // High pressure from the beginning, and after a while.
    let (left, work, world) = of(&Settings::default(), |_| 80.0, 1 << 30);
    assert!(left && work.scans.is_empty(), "{:?}", world.lines());
    assert_eq!(world.told("others wait for I/O (20.0 %"), 1);
    let late: fn(u64) -> f64 = |seconds| if seconds > 630 { 80.0 } else { 0.0 };
    let (left, work, world) = of(&Settings::default(), late, 10 << 30);
    assert!(left && !work.portions.is_empty());
    assert_eq!(world.told("more is left"), 1);
    // A signal in the midst of a trace.
    let long = Settings {
        learn: Duration::from_secs(2 * DAY),
        ..Settings::default()
    };
    let clock = FakeClock::default();
    let mut world = FakeWorld::new(&clock, 100);
    let mut work = FakeWork {
        clock: clock.clone(),
        wanted: vec![1 << 30],
        ..FakeWork::default()
    };
    let once = Settings { once: true, ..long };
    assert!(run(&once, &mut world, &mut work) && work.scans.is_empty());
    // At noon.
    let (left, work, world) = of(&night(), |_| 0.0, 1 << 30);
    assert!(left && work.scans.is_empty());
    assert_eq!(world.told("outside of the maintenance windows"), 1);
    let dry = Settings {
        dry_run: true,
        ..Settings::default()
    };
    let (left, work, world) = of(&dry, |_| 0.0, 1 << 30);
    assert!(!left && work.portions.is_empty() && work.learned.is_empty());
    assert_eq!(world.told("worth moving"), 1);
    // What would hold it back is told, and what it would do all the same.
    let (left, work, world) = of(&dry, |_| 80.0, 1 << 30);
    assert!(!left && work.portions.is_empty());
    assert_eq!((world.told("waits:"), world.told("worth moving")), (1, 1));
    assert!(world.last.places[0].held.is_some());
}

#[test]
fn a_range_that_moves_in_one_go_waits_for_a_budget_or_stays() {
    let of = |lump: u64| {
        let clock = FakeClock::default();
        let mut world = FakeWorld::new(&clock, 2 * DAY);
        let mut work = FakeWork {
            clock: clock.clone(),
            wanted: vec![lump + (1 << 30)],
            lump,
            ..FakeWork::default()
        };
        let settings = Settings {
            learn: Duration::ZERO,
            portion_time: Duration::from_secs(HOUR),
            ..Settings::default()
        };
        run(&settings, &mut world, &mut work);
        (work, world)
    };
    let (work, world) = of(9 << 30);
    assert_eq!(work.wanted, [0], "{:?}", world.lines());
    // Nor do others wait for one that never fits.
    let (work, world) = of(11 << 30);
    let moved: u64 = work.portions.iter().map(|(.., bytes)| bytes).sum();
    assert_eq!(moved, 1 << 30, "{:?}", world.lines());
    assert_eq!(world.told("more than the budget; it stays"), 1);
    assert!(world.lines().len() < 20, "{:?}", world.lines());
}

#[test]
fn the_budget_that_has_no_room_for_a_range_is_named() {
    let clock = FakeClock::default();
    let mut world = FakeWorld::new(&clock, HOUR);
    let mut work = FakeWork {
        clock: clock.clone(),
        wanted: vec![9 << 30],
        lump: 9 << 30,
        ..FakeWork::default()
    };
    let settings = Settings {
        learn: Duration::ZERO,
        budgets: Budgets {
            day: None,
            year: Some(Bytes::gib(10)),
        },
        ..Settings::default()
    };
    let folder = tempfile::tempdir().unwrap();
    let mut ledger = ledger(folder.path(), &world, &settings);
    ledger.reserve(Bytes::gib(2), world.now()).unwrap();
    ledger.settle(Bytes::gib(2));
    let mut tender = Tender::new(settings.clone(), &mut world, &mut work, Some(ledger));
    tender.run(&mut || Ok(settings.clone())).unwrap();
    let named = |period: &str| world.told(&format!("the budget of the {period} is spent"));
    assert_eq!((named("year"), named("day")), (1, 0), "{:?}", world.lines());
}

#[test]
fn without_tracing_it_says_so_once_a_day_and_goes_on() {
    let clock = FakeClock::default();
    let mut world = FakeWorld::new(&clock, 3 * DAY);
    let mut work = FakeWork {
        clock: clock.clone(),
        wanted: vec![1 << 30],
        cannot_learn: true,
        ..FakeWork::default()
    };
    run(&Settings::default(), &mut world, &mut work);
    assert_eq!(world.told("cannot trace: this kernel has no BTF"), 3);
    assert_eq!(work.wanted, [0]);
}

/// Whoever traces may be back the next time.
#[test]
fn a_trace_that_is_lost_is_tried_again_when_the_next_one_is_due() {
    let clock = FakeClock::default();
    let mut world = FakeWorld::new(&clock, 10 * HOUR);
    let mut work = FakeWork {
        clock: clock.clone(),
        wanted: vec![0],
        loses_tracer: true,
        ..FakeWork::default()
    };
    run(&Settings::default(), &mut world, &mut work);
    let tries = work.learned.len();
    assert!((9..=11).contains(&tries), "{tries}");
    assert_eq!(world.told("cannot trace: whoever traces is gone"), 1);
}

/// The next trace may tell what this one does not: such a file system is looked at as often as one with work.
#[test]
fn what_times_do_not_tell_yet_is_looked_at_again_soon() {
    let scans = |decides: Decision| {
        let clock = FakeClock::default();
        let mut world = FakeWorld::new(&clock, DAY);
        let mut work = FakeWork {
            clock: clock.clone(),
            wanted: vec![1 << 30],
            decides: Some(decides),
            ..FakeWork::default()
        };
        run(&Settings::default(), &mut world, &mut work);
        assert!(work.portions.is_empty());
        work.scans.len()
    };
    let unclear = scans(Decision::Unclear("up to 40 %".to_owned()));
    assert!((20..=24).contains(&unclear), "{unclear}");
    assert!(scans(Decision::NotRead) >= 20);
    let idle = scans(Decision::NoCost("no cost".to_owned()));
    assert!((3..=6).contains(&idle), "{idle}");
}

/// A long pause is for a load that had nothing to gain, not for the one that comes after it.
#[test]
fn another_load_is_looked_at_when_a_trace_shows_it() {
    let clock = FakeClock::default();
    let mut world = FakeWorld::new(&clock, 2 * DAY);
    let mut work = FakeWork {
        clock: clock.clone(),
        wanted: vec![0, 0],
        decides: Some(Decision::NothingToJoin),
        begins: vec![20 * HOUR, u64::MAX],
        ..FakeWork::default()
    };
    run(&Settings::default(), &mut world, &mut work);
    let looks = |of: usize| -> Vec<u64> {
        let looks = work.scans.iter().filter(|(_, place)| *place == of);
        looks.map(|(at, _)| at / HOUR).collect()
    };
    let (other, same) = (looks(0), looks(1));
    // The pauses of the one grow again from then on, those of the other just grow.
    let soon = other.iter().filter(|at| (20..=22).contains(*at)).count();
    assert!((1..=2).contains(&soon), "{other:?}");
    assert!(!same.iter().any(|at| (20..=22).contains(at)), "{same:?}");
    assert!(other.len() <= 2 * same.len(), "{other:?}, {same:?}");
}

/// Work gets its turn although a trace is due whenever the last one ends.
#[test]
fn traces_without_a_pause_between_them_do_not_keep_work_away() {
    for learn_s in [HOUR, 2 * HOUR] {
        let clock = FakeClock::default();
        let mut world = FakeWorld::new(&clock, DAY);
        let mut work = FakeWork {
            clock: clock.clone(),
            wanted: vec![1 << 30, 1 << 20],
            ..FakeWork::default()
        };
        let settings = Settings {
            learn: Duration::from_secs(learn_s),
            ..Settings::default()
        };
        run(&settings, &mut world, &mut work);
        assert_eq!(work.wanted, [0, 0], "{:?}", world.lines());
        let learned = work.learned.len() as u64;
        assert!((10..=DAY / learn_s).contains(&learned), "{learned}");
    }
}

/// It says so once, however often it looks whether that run has ended.
#[test]
fn the_run_of_another_is_waited_for_and_costs_no_budget() {
    let settings = Settings {
        learn: Duration::ZERO,
        ..Settings::default()
    };
    let of = |claimed_until: u64| {
        let clock = FakeClock::default();
        let mut world = FakeWorld::new(&clock, 2 * HOUR);
        let mut work = FakeWork {
            clock: clock.clone(),
            wanted: vec![1 << 30],
            claimed_until,
            ..FakeWork::default()
        };
        let folder = tempfile::tempdir().unwrap();
        let of_now = ledger(folder.path(), &world, &settings);
        let mut tender = Tender::new(settings.clone(), &mut world, &mut work, Some(of_now));
        tender.run(&mut || Ok(settings.clone())).unwrap();
        // As after a restart.
        let mut kept = ledger(folder.path(), &world, &settings);
        let left = kept.left(world.now(), &settings.budgets).unwrap();
        let told = ["waits: another run works there", "goes on"].map(|line| world.told(line));
        (told, work.wanted[0], left)
    };
    let budget = settings.budgets.day.unwrap();
    assert_eq!(of(HOUR), ([1, 1], 0, budget.saturating_sub(Bytes::gib(1))));
    assert_eq!(of(u64::MAX), ([1, 0], 1 << 30, budget));
}

#[test]
fn settings_are_read_again() {
    let clock = FakeClock::default();
    let mut world = FakeWorld::new(&clock, 6 * HOUR);
    world.reload_at = Some(2 * HOUR);
    let mut work = FakeWork {
        clock: clock.clone(),
        wanted: vec![1 << 30],
        ..FakeWork::default()
    };
    let folder = tempfile::tempdir().unwrap();
    let settings = night();
    let ledger = ledger(folder.path(), &world, &settings);
    let mut tender = Tender::new(settings, &mut world, &mut work, Some(ledger));
    tender.run(&mut || Ok(Settings::default())).unwrap();
    let first = work.portions[0].0;
    assert!((2 * HOUR..3 * HOUR).contains(&first), "{first}");
    assert_eq!(world.told("looks after one file system"), 2);
    let first = "first it traces reads for 10 minutes";
    assert_eq!(world.told(first), 2, "{:?}", world.lines());
}

#[test]
fn a_clock_that_jumps_gives_no_budget_twice() {
    let clock = FakeClock::default();
    let mut world = FakeWorld::new(&clock, 2 * DAY);
    world.wrong_s = |seconds| match seconds / HOUR {
        3..6 => -(DAY as i64),
        6..8 => -3 * DAY as i64,
        10..12 => -(HOUR as i64),
        _ => 0,
    };
    let mut work = FakeWork {
        clock: clock.clone(),
        wanted: vec![1 << 40],
        ..FakeWork::default()
    };
    let settings = Settings {
        learn: Duration::ZERO,
        ..Settings::default()
    };
    run(&settings, &mut world, &mut work);
    // Noon to noon to noon: parts of three days.
    assert_eq!(world.last.totals.written, Bytes(3 * (10 << 30)));
    assert!(world.now().wall > SystemTime::UNIX_EPOCH);
}

/// What is known of a file system is not held against another one that is mounted in its place.
#[test]
fn another_file_system_in_its_place_has_the_mounts_looked_at_anew() {
    let of = |cannot_be_found: bool| {
        let clock = FakeClock::default();
        let mut world = FakeWorld::new(&clock, DAY);
        let mut work = FakeWork {
            clock: clock.clone(),
            wanted: vec![0, 0],
            elsewhere: vec![2 * HOUR],
            cannot_be_found,
            ..FakeWork::default()
        };
        let settings = Settings {
            learn: Duration::ZERO,
            ..Settings::default()
        };
        run(&settings, &mut world, &mut work);
        (world, work)
    };
    let (world, work) = of(false);
    assert_eq!(world.told("/0: another file system is there"), 1);
    assert_eq!(world.told("looks after 2 file systems"), 2);
    let looks = |work: &FakeWork, of: usize| {
        let looks = work
            .scans
            .iter()
            .filter(|(at, place)| *place == of && *at >= 2 * HOUR);
        looks.count()
    };
    assert!(looks(&work, 0) >= 2, "{:?}", work.scans);
    // One that stays away is asked for less and less often, and the others are looked at.
    let (world, work) = of(true);
    let told = world.told("/0: no such file or directory");
    assert!((2..=6).contains(&told), "{:?}", world.lines());
    assert!(
        looks(&work, 0) == 0 && looks(&work, 1) >= 2,
        "{:?}",
        work.scans
    );
}
