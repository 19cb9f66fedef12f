//! `indef watch` on a simulated host: the real service loop with its settings, ledger, backoff and decision, in virtual
//! time. Nothing disturbs it, as the model has no hour of the day in which a host is busy.

use std::{
    collections::{HashMap, VecDeque},
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, UNIX_EPOCH},
};

use anyhow::{Result, anyhow};
use indef_core::{
    SkipReason,
    access::AccessRange,
    calibrate::{Sample, calibrate, most_of_a_request_ns},
    layout::{Geometry, Layout},
    plan::{
        Beliefs, Credibility, Decision, FilePlan, PlanOptions, Policy, nothing_to_gain, serves_days,
    },
};
use indef_pipeline::{
    apart::NotTraced,
    consider::{Limits, Reading},
    plan::Planned,
    tend::{
        self, Asked, Budgets, Decided, Event, Experience, Foresight, Halt, Ledger, Moment, Outlook,
        PARTS, Place, Portion, PortionEnd, PortionLimit, Round, Status, Tender, Traced, Work,
        World, decide, noise_of, observed_days, terms_of, worth_days,
    },
};
use lfs_sim::{FileId, planning};
use linux_abi::local_time::LocalTime;
use units::Bytes;
use workloads::Numbers;

use crate::{
    heat::{HALF_LIFE, Heat, told},
    outcome::Outcome,
    reads::Window,
    settings::{Known, Settings},
    year::{Year, day, scaled},
};

const HOUR: Duration = Duration::from_secs(3600);
const DAY_S: f64 = 24.0 * 3600.0;
/// Days of reads that a perfect trace has seen.
const TOLD_DAYS: f64 = 30.0;

/// What world and work share.
struct Shared {
    year: Year,
    now: Duration,
    until: Duration,
    /// The first failure of the simulation.
    failed: Option<anyhow::Error>,
}

impl Shared {
    /// Time passes up to this one; days that begin meanwhile are lived.
    fn pass_to(&mut self, time: Duration) {
        self.now = time.min(self.until);
        let days = (self.now.as_secs() / day(1).as_secs()) as u32;
        if let Err(error) = self.year.pass_to(days) {
            self.fail(error);
        }
    }

    fn fail(&mut self, error: anyhow::Error) {
        self.failed.get_or_insert(error);
    }
}

/// A handle of both.
#[derive(Clone)]
struct Handle(Arc<Mutex<Shared>>);

impl Handle {
    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl World for Handle {
    fn now(&self) -> Moment {
        let since_boot = self.lock().now;
        Moment {
            since_boot,
            wall: UNIX_EPOCH + day(20_000) + since_boot,
        }
    }

    fn local(&self) -> LocalTime {
        let now = self.lock().now.as_secs();
        LocalTime {
            weekday: (now / day(1).as_secs() % 7) as u8,
            second: (now % day(1).as_secs()) as u32,
        }
    }

    /// Nothing happens before the next full hour: whoever is to be looked at before that is looked at then.
    fn wait(&mut self, time: Duration) {
        let mut shared = self.lock();
        let hours = (shared.now.as_secs() / HOUR.as_secs()) as u32 + 1;
        let until = (shared.now + time).max(HOUR * hours);
        shared.pass_to(until);
    }

    fn asked(&mut self) -> Option<Asked> {
        let shared = self.lock();
        (shared.failed.is_some() || shared.now >= shared.until).then_some(Asked::Stop)
    }

    fn look(&mut self, _: &[String], _: bool, _: &Limits) -> Vec<Reading> {
        Vec::new()
    }

    fn tell(&mut self, event: &Event<'_>) {
        if let Event::Decided { outlook, .. } = event {
            let mut shared = self.lock();
            let decisions = &mut shared.year.outcome.decisions;
            *decisions.entry(outlook.decision.as_str()).or_default() += 1;
        }
    }

    fn round(&mut self, _: &Path, _: Round<'_>) {}

    fn publish(&mut self, _: &Status) {}
}

/// The work: traces, plans and moves of one host.
struct Duties {
    handle: Handle,
    settings: Settings,
    heat: Heat,
    numbers: Numbers,
    /// What is left to be moved, the best first.
    rest: VecDeque<(FileId, FilePlan)>,
    /// On what the decision about it rests.
    foresight: Option<Foresight>,
    /// The days that layouts of these files are expected to last.
    lives: HashMap<FileId, f64>,
    experience: Experience<u32>,
}

impl Work for Duties {
    fn set(&mut self, _: &tend::Settings) {}

    fn places(&mut self) -> Result<Vec<Place>, String> {
        Ok(vec![Place {
            paths: vec!["/".into()],
            drives: Vec::new(),
        }])
    }

    fn learn(&mut self, time: Duration, _: bool, _: Halt<'_>) -> Result<Traced, NotTraced> {
        let mut shared = self.handle.lock();
        let (begin, traced) = (shared.now, time.as_secs_f64() / DAY_S);
        if self.settings.known == Known::Traced {
            let reads = shared.year.draw().reads(traced, &mut self.numbers);
            let reads: Vec<Window> = reads.into_iter().cloned().collect();
            for window in reads {
                let timed = shared.year.host.time(window.file, window.blocks.clone());
                match timed {
                    Ok((time, requests)) => self.heat.add(&window, begin, time, requests),
                    Err(error) => shared.fail(error),
                }
            }
        }
        self.heat.trace(begin, time);
        shared.pass_to(begin + time);
        Ok(Traced::default())
    }

    fn is_elsewhere(&self, _: usize) -> bool {
        false
    }

    /// It is looked at once a day anyway, which is the longest pause.
    fn is_another_load(&self, _: usize) -> bool {
        false
    }

    fn plan(&mut self, _: usize, _: Halt<'_>) -> Result<Option<Outlook>, String> {
        self.rest.clear();
        let mut shared = self.handle.lock();
        let now = shared.now;
        let told_days = TOLD_DAYS * PARTS as f64;
        let (accesses, days, foretold_days) = match self.settings.known {
            Known::Traced => {
                let volume = shared.year.host.volume();
                let days = observed_days(self.heat.traces(now), HALF_LIFE) * PARTS as f64;
                let counted = worth_days(self.heat.traces(now), HALF_LIFE) * PARTS as f64;
                (self.heat.accesses(now, volume), days, counted)
            }
            Known::Everything => match timed(&mut shared.year) {
                Ok(windows) => (told(&windows, TOLD_DAYS), told_days, told_days),
                Err(error) => {
                    let text = error.to_string();
                    shared.fail(error);
                    return Err(text);
                }
            },
        };
        let volume = shared.year.host.volume();
        let files: Vec<(FileId, Layout, Vec<AccessRange>)> = accesses
            .into_iter()
            .map(|(file, ranges)| (file, volume.layout(file), ranges))
            .collect();
        let unread = shared.year.host.files().len().saturating_sub(files.len());
        let traced = |since: Duration| worth_days(self.heat.traces_since(since, now), HALF_LIFE);
        let terms = self.settings.terms;
        let mut look = self.experience.look(now, terms.within_days, &traced);
        for (file, layout, ranges) in &files {
            look.see(file.0, layout, ranges);
        }
        look.end();
        let sizes = shared.year.host.files().into_iter();
        let of_files: Bytes = sizes.map(|file| volume.files().bytes(file)).sum();
        let planned = planned(&files, unread as u64, of_files);
        let terms = terms_of(&planned, &terms);
        let noise = noise_of(self.heat.traces(now), HALF_LIFE) * PARTS as f64;
        let key = |plan: &FilePlan| files[plan.inode as usize].0.0;
        let (credibility, decided) = match (self.settings.is_trusting, self.settings.known) {
            (true, _) => {
                let decided = decide(planned, &terms, days, &Beliefs::TRUSTING);
                (Credibility::FULL, decided)
            }
            (false, known) => {
                let credibility = match known {
                    Known::Traced => Credibility::of(&planned.counts, noise),
                    Known::Everything => Credibility::FULL,
                };
                let experience = &self.experience;
                let decided = experience.believe(&terms, credibility, key, |terms, beliefs| {
                    decide(planned, terms, days, beliefs)
                });
                (credibility, decided)
            }
        };
        let Decided {
            outlook,
            files: worth,
            options,
            by,
        } = decided;
        self.lives = { worth.iter() }
            .map(|plan| (files[plan.inode as usize].0, plan))
            .map(|(file, _)| {
                (
                    file,
                    self.experience.life_days_of(&file.0, terms.within_days),
                )
            })
            .collect();
        self.foresight = Some(Foresight {
            options,
            terms,
            by,
            observed_days: foretold_days,
            credibility,
        });
        let of = |plan: FilePlan| (files[plan.inode as usize].0, plan);
        self.rest = worth.into_iter().map(of).collect();
        Ok(Some(outlook))
    }

    fn portion(&mut self, _: usize, limit: &PortionLimit, _: Halt<'_>) -> Portion {
        let (mut taken, mut left) = (Vec::new(), limit.bytes);
        while !left.is_zero()
            && let Some((file, plan)) = self.rest.pop_front()
        {
            let (now, later) = split(plan, left);
            left = left.saturating_sub(now.cost());
            let is_cut = later.is_some();
            if !now.cost().is_zero() {
                taken.push((file, now));
            }
            if let Some(later) = later {
                self.rest.push_front((file, later));
            }
            if is_cut {
                break;
            }
        }
        if taken.is_empty()
            && let Some((_, plan)) = self.rest.front()
        {
            let first = plan
                .migrating()
                .next()
                .map_or(Bytes::ZERO, |chunk| chunk.cost);
            return Portion {
                end: PortionEnd::TooSmall(first),
                ..Portion::default()
            };
        }
        let mut shared = self.handle.lock();
        let promised = taken.clone();
        let within = self.settings.terms.within_days;
        let lives = |file: FileId| match self.settings.is_trusting {
            true => within,
            false => serves_days(self.lives.get(&file).copied().unwrap_or(within), within),
        };
        let done = shared
            .year
            .migrate_on_promise(taken, self.foresight.as_ref(), lives);
        let moves = match done {
            Ok(moves) => moves,
            Err(error) => {
                shared.fail(error);
                return Portion::default();
            }
        };
        let now = shared.now + Duration::from_nanos(moves.time.0);
        self.experience.took(moves.bytes, moves.time);
        for (file, plan) in promised
            .iter()
            .filter(|(file, _)| moves.files.contains(file))
        {
            // A file was moved as a whole run of its chunks: what times tell of them is past.
            self.heat.forget_times(*file, plan.runs().iter());
            if let Some(foresight) = &self.foresight {
                self.experience.moved(&file.0, plan, foresight, shared.now);
            }
        }
        shared.pass_to(now);
        Portion {
            end: match self.rest.is_empty() {
                true => PortionEnd::Done,
                false => PortionEnd::More,
            },
            written: moves.bytes,
            relocated: moves.bytes,
            files_moved: moves.files.len() as u64,
            ..Portion::default()
        }
    }

    fn pass_over(&mut self, _: usize) {
        self.rest.pop_front();
    }

    fn forget(&mut self, _: usize) {
        self.rest.clear();
    }
}

/// All windows of a host, with the time and the pieces of each.
fn timed(year: &mut Year) -> Result<Vec<(Window, units::Nanos, u64)>> {
    let windows = year.draw().windows().to_vec();
    let mut timed = Vec::with_capacity(windows.len());
    for window in windows {
        let (time, pieces) = year.host.time(window.file, window.blocks.clone())?;
        timed.push((window, time, pieces));
    }
    Ok(timed)
}

/// What the planner of the service makes of these files: weights by the times, and all that a move would join.
fn planned(files: &[(FileId, Layout, Vec<AccessRange>)], unread: u64, of_files: Bytes) -> Planned {
    let mut options = PlanOptions {
        policy: Policy::Indef,
        // The payback decides what is too cold.
        truncate_pct: 0.0,
        ..PlanOptions::default()
    };
    let samples = files.iter().flat_map(|(_, layout, ranges)| {
        let most = PlanOptions::default().max_request;
        let sample = move |range| Sample::of(layout, range, &Geometry::Unknown, most);
        ranges.iter().filter_map(sample)
    });
    let samples: Vec<Sample> = samples.collect();
    let request_ns = most_of_a_request_ns(&samples);
    let calibration = calibrate(samples);
    let nothing_to_gain = nothing_to_gain(&calibration);
    options.weigh_by(&calibration);
    let plans = files
        .iter()
        .map(|(_, layout, ranges)| (layout, ranges.as_slice()));
    let mut planned = Planned {
        files: planning::plan(&options, plans),
        options,
        calibration: Some(calibration),
        request_ns,
        nothing_to_gain,
        ..Planned::default()
    };
    for plan in &planned.files {
        planned.counts.add(plan);
    }
    let read: Bytes = planned.files.iter().map(|plan| plan.size).sum();
    planned.counts.add_unread(of_files.saturating_sub(read));
    let all = planned.files.len() as u64;
    planned
        .files
        .retain(|plan| plan.migrating().next().is_some());
    let contiguous = all - planned.files.len() as u64;
    let reasons = [
        (SkipReason::NotRead, unread),
        (SkipReason::Contiguous, contiguous),
    ];
    planned
        .skipped
        .extend(reasons.into_iter().filter(|(_, files)| *files > 0));
    planned
}

/// The chunks of a plan that write at most so much, and the others.
fn split(plan: FilePlan, most: Bytes) -> (FilePlan, Option<FilePlan>) {
    if plan.cost() <= most {
        return (plan, None);
    }
    let (mut now, mut later, mut sum) = (plan.clone(), plan, Bytes::ZERO);
    let skip = Decision::Skip(SkipReason::OverBudget);
    for (now, later) in now.chunks.iter_mut().zip(&mut later.chunks) {
        if !now.migrates() {
            continue;
        }
        sum += now.cost;
        match sum <= most {
            true => later.decision = skip,
            false => now.decision = skip,
        }
    }
    (now, Some(later))
}

/// A year under the service.
pub(crate) fn watch(year: Year, settings: &Settings) -> Result<Outcome> {
    let usual = tend::Settings::default();
    let service = tend::Settings {
        terms: settings.terms,
        budgets: Budgets {
            day: usual.budgets.day.map(scaled),
            year: usual.budgets.year.map(scaled),
        },
        // One portion a day: what each costs whatever its size would count 24 times for what is one portion of a host of full size.
        every: day(1),
        ..usual
    };
    let seed = year.host.kind.seed;
    let shared = Shared {
        year,
        now: Duration::ZERO,
        until: day(settings.days),
        failed: None,
    };
    let mut world = Handle(Arc::new(Mutex::new(shared)));
    let mut duties = Duties {
        handle: world.clone(),
        settings: settings.clone(),
        heat: Heat::default(),
        numbers: Numbers::stream(seed, 1),
        rest: VecDeque::new(),
        foresight: None,
        lives: HashMap::new(),
        experience: Experience::default(),
    };
    let ledger = Ledger::in_memory("model");
    let mut reload = || Err("nothing is read again".to_owned());
    let ran = Tender::new(service, &mut world, &mut duties, Some(ledger)).run(&mut reload);
    drop(duties);
    let shared = Arc::into_inner(world.0).map(Mutex::into_inner);
    let mut shared = shared
        .and_then(Result::ok)
        .ok_or_else(|| anyhow!("a thread of the simulation panicked"))?;
    if let Some(error) = shared.failed.take() {
        return Err(error);
    }
    ran.map_err(|why| anyhow!(why))?;
    Ok(shared.year.end())
}
