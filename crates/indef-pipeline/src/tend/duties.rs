//! The work of the service, by the stages of the pipeline.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    path::PathBuf,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant, SystemTime},
};

use indef_core::{
    SkipReason,
    access::AccessRange,
    plan::{Credibility, FilePlan, PlanOptions},
};
use indef_engine::{
    Cancel,
    collect::FoundFile,
    run::{FileResult, Observer, Reason, RunEvent, RunOptions, RunResult, Status, StopCause},
};
use indef_fs::{Drive, FileSystemKey, TargetId};
use indef_trace::{
    TracedFile,
    resolve::Resolver,
    store::{Session as StoredSession, Store, StoreOptions},
};
use units::{Bytes, FileRange};

use super::{
    decide::{Decided, decide, noise_of, observed_days, terms_of, worth_days},
    decision::{Decision, Outlook},
    experience::{Foresight, PARTS},
    identity::{Identity, found},
    memory::{FileKey, Memory, OfPlace},
    novelty::Novelty,
    portion::{Portion, PortionEnd, PortionLimit, Traced},
    settings::Settings,
    world::{Halt, Place, Work},
};
use crate::{
    apart::{NotTraced, Order, trace},
    error::{Error, chain},
    geometry::file_system,
    mounts::all_mounts,
    note::Note,
    plan::{Planned, Planner},
    run::{Runner, Work as RunWork},
    sync::{into_inner, lock},
};

/// What was learned of moves, beside the profile.
const EXPERIENCE: &str = "experience.json";

/// So often a file may be stopped before anything of it has moved.
const MOST_TRIES: u32 = 3;
/// Each time it gets this many times the time.
const LONGER: u32 = 4;

/// Learns, plans and moves.
pub struct Duties {
    settings: Settings,
    /// The kept profile; `None`: there is none, and none is made.
    profile: Option<PathBuf>,
    /// The socket of whoever traces; `None`: this process does.
    tracer: Option<PathBuf>,
    /// Set by a signal: ends the current step.
    stop: Cancel,
    places: Vec<Place>,
    /// By place.
    identities: Vec<Identity>,
    rests: HashMap<usize, Rest>,
    memory: Memory,
    /// Why what was learned before is not known, if so.
    forgotten: Option<String>,
    /// What is known of each file system, and its UUID, where that is known.
    known: HashMap<usize, (Option<String>, OfPlace)>,
    /// Ranges that were moved, whose times the profile still has.
    moved: HashMap<TargetId, Vec<FileRange>>,
    /// By place.
    novelty: Vec<Novelty>,
}

/// What is left to be moved on a file system.
struct Rest {
    options: PlanOptions,
    /// Best gain for each byte first.
    files: VecDeque<FilePlan>,
    /// How often a file was stopped with nothing moved.
    tries: HashMap<TargetId, u32>,
    /// The file of which a range did not fit into the last portion.
    too_large: Option<TargetId>,
    /// All files of the plan, and those of them that got new blocks together with another one, in whatever portion.
    planned: HashSet<TargetId>,
    along: HashSet<TargetId>,
    /// On what the decision rests.
    foresight: Foresight,
}

impl Duties {
    /// For these settings, with the kept profile, beside which experience is kept.
    #[must_use]
    pub fn new(settings: Settings, profile: Option<PathBuf>, stop: Cancel) -> Self {
        let path = profile.as_ref().map(|it| it.with_file_name(EXPERIENCE));
        let (memory, error) = Memory::open(path.clone());
        let forgotten = error.zip(path).map(|(error, path)| {
            format!(
                "{}: what was learned of earlier moves cannot be read ({error}), and is replaced: it begins anew",
                path.display()
            )
        });
        Self {
            forgotten,
            settings,
            profile,
            tracer: None,
            stop,
            places: Vec::new(),
            identities: Vec::new(),
            rests: HashMap::new(),
            memory,
            known: HashMap::new(),
            moved: HashMap::new(),
            novelty: Vec::new(),
        }
    }

    /// Have traces made by whoever listens at this socket ([`crate::apart`]).
    #[must_use]
    pub fn with_tracer(mut self, socket: Option<PathBuf>) -> Self {
        self.tracer = socket;
        self
    }

    /// Why it begins without what was learned before, if so.
    #[must_use]
    pub fn forgotten(&self) -> Option<&str> {
        self.forgotten.as_deref()
    }

    fn planner(&self, place: &Place) -> Option<Planner> {
        let planner = Planner {
            select: self.settings.select.clone(),
            engine: self.settings.run.engine,
            ..Planner::new(&place.paths)
        };
        let options = |options| PlanOptions {
            // The payback decides what is too cold.
            truncate_pct: 0.0,
            ..options
        };
        let profile = self.profile.clone().filter(|path| path.exists());
        match profile {
            Some(profile) => {
                let planner = planner.with_profile(profile);
                Some(Planner {
                    options: options(planner.options.clone()),
                    measured: true,
                    parts: PARTS,
                    jobs: self.settings.run.jobs,
                    ..planner
                })
            }
            None if self.settings.without_profile => Some(Planner {
                options: options(planner.options.clone()),
                jobs: self.settings.run.jobs,
                ..planner
            }),
            None => None,
        }
    }

    /// What is known of the traces in the profile.
    fn traces(&self) -> Result<Option<Traces>, Error> {
        let Some(profile) = self.profile.as_ref().filter(|path| path.exists()) else {
            return Ok(None);
        };
        let store = Store::open(profile)?;
        Ok(Some(Traces {
            half_life: store.settings()?.half_life,
            sessions: store.sessions()?,
            now: SystemTime::now(),
        }))
    }

    /// The paths and the selection of files that are looked at.
    fn scope(&self, place: usize) -> String {
        let paths = self.places.get(place).map(|place| &place.paths);
        format!("{paths:?} {:?}", self.settings.select)
    }

    /// What is known of a file system.
    fn known(&mut self, place: usize) -> &mut OfPlace {
        let scope = self.scope(place);
        let memory = &mut self.memory;
        let paths = self.places.get(place).map(|place| place.paths.clone());
        let (_, known) = self.known.entry(place).or_insert_with(|| {
            let found = crate::place::places(&paths.unwrap_or_default());
            let uuid = found.into_iter().find_map(|place| place.uuid);
            let known = uuid.as_deref().map(|uuid| memory.take(uuid));
            (uuid, known.unwrap_or_default().within(&scope))
        });
        known
    }

    /// Keep what is known. It is worth little for a day, so a failure is told and nothing more.
    fn keep_known(&mut self) {
        if self.settings.dry_run {
            return;
        }
        let known = { self.known.values() }
            .filter_map(|(uuid, known)| uuid.as_deref().map(|uuid| (uuid, known)));
        if let Err(error) = self.memory.keep(known) {
            tracing::warn!(%error, "what was learned of moves is not kept");
        }
    }

    /// Times of reads of what was moved are those of a layout that is gone.
    fn forget_times(&mut self) {
        let Some(profile) = self.profile.as_ref().filter(|path| path.exists()) else {
            return self.moved.clear();
        };
        if self.moved.is_empty() {
            return;
        }
        let resolver = Resolver::new();
        // A file of the profile is only looked up where it may be one of them.
        let inodes: HashSet<u64> = self.moved.keys().map(|id| id.inode).collect();
        let moved = |file: &TracedFile| {
            if !inodes.contains(&file.key.inode) {
                return Vec::new();
            }
            let now = resolver.find(file).map(|located| TargetId {
                dev: located.dev,
                inode: located.inode,
            });
            let ranges = now.and_then(|id| self.moved.get(&id));
            ranges.cloned().unwrap_or_default()
        };
        let forgotten = Store::create(profile, &StoreOptions::default())
            .and_then(|mut store| store.forget_times(moved));
        match forgotten {
            Ok(()) => self.moved.clear(),
            // They are tried again at the next look.
            Err(error) => tracing::warn!(%error, "times of moved files stay in the profile"),
        }
    }
}

/// The traces of a profile.
struct Traces {
    sessions: Vec<StoredSession>,
    half_life: Duration,
    now: SystemTime,
}

impl Traces {
    /// The time of each that began at or after a moment, and how long ago it ended.
    fn since(&self, moment: SystemTime) -> impl Iterator<Item = (Duration, Duration)> + '_ {
        let begun = self.sessions.iter().filter(move |it| it.began >= moment);
        begun.map(|session| {
            let end = session.ended.unwrap_or(session.latest);
            let traced = end.duration_since(session.began).unwrap_or_default();
            (traced, self.now.duration_since(end).unwrap_or_default())
        })
    }

    /// The days that the reads stand for: for a decision, which is careful about a short time, and as they were counted. Caution
    /// is no prediction, so what comes is compared with the counts.
    fn days(&self) -> (f64, f64) {
        let careful = observed_days(self.all(), self.half_life);
        (careful, worth_days(self.all(), self.half_life))
    }

    fn all(&self) -> impl Iterator<Item = (Duration, Duration)> + '_ {
        self.since(SystemTime::UNIX_EPOCH)
    }
}

/// The wall clock as experience counts it.
fn since_1970(now: SystemTime) -> Duration {
    now.duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default()
}

/// Turns a question that may be asked by one at a time into a flag that all workers see.
struct Halting<'a> {
    halt: Mutex<Halt<'a>>,
    cancel: &'a Cancel,
}

impl Halting<'_> {
    fn ask(&self) {
        // Whoever finds it busy knows that it is being asked.
        if !self.cancel.is_cancelled()
            && let Ok(mut halt) = self.halt.try_lock()
            && halt()
        {
            self.cancel.cancel();
        }
    }
}

/// Asks at each event, adds up what was spent, and notes what moved along.
struct Observed<'a> {
    halting: &'a Halting<'a>,
    spent: AtomicU64,
    planned: &'a HashSet<TargetId>,
    along: Mutex<HashSet<TargetId>>,
}

impl Observer for Observed<'_> {
    fn on(&self, event: RunEvent<'_>) {
        match event {
            RunEvent::Settled { spent, .. } => {
                self.spent.fetch_add(spent.get(), Ordering::Relaxed);
            }
            RunEvent::MovedAlong(files) => {
                let planned = files.iter().filter(|file| self.planned.contains(*file));
                lock(&self.along).extend(planned);
            }
            _ => {}
        }
        self.halting.ask();
    }
}

impl Work for Duties {
    fn set(&mut self, settings: &Settings) {
        self.settings = settings.clone();
    }

    fn places(&mut self) -> Result<Vec<Place>, String> {
        self.keep_known();
        self.rests.clear();
        // What is not kept is not lost either where only settings are read again.
        for (uuid, known) in std::mem::take(&mut self.known).into_values() {
            if let Some(uuid) = uuid {
                self.memory.put_back(uuid, known);
            }
        }
        let paths = match self.settings.paths.is_empty() {
            false => self.settings.paths.clone(),
            // As those of `indef run --all-mounts`: what is excluded by its path has no second one then.
            true => all_mounts().map_err(|error| format!("cannot list mounts: {error}"))?,
        };
        let mut keys: Vec<FileSystemKey> = Vec::new();
        let mut places: Vec<Place> = Vec::new();
        let mut novelty: Vec<Novelty> = Vec::new();
        for path in paths {
            let found = found(&path).map_err(|error| format!("{}: {error}", path.display()));
            let (dev, key) = found?;
            match keys.iter().position(|known| *known == key) {
                Some(at) => {
                    novelty[at].is_on(dev);
                    places[at].paths.push(path);
                }
                None => {
                    let drive = file_system(&path).and_then(|fs| Drive::of(&fs));
                    let name = drive.map(|drive| drive.name());
                    keys.push(key);
                    let mut of_place = Novelty::default();
                    of_place.is_on(dev);
                    novelty.push(of_place);
                    places.push(Place {
                        paths: vec![path],
                        drives: name.into_iter().collect(),
                    });
                }
            }
        }
        let identities = keys.into_iter().zip(&places);
        self.identities = identities
            .map(|(key, place)| Identity::new(key, &place.paths))
            .collect();
        self.places.clone_from(&places);
        self.novelty = novelty;
        match places.is_empty() {
            true => {
                Err("no engine works on any mounted file system (indef doctor tells why)".into())
            }
            false => Ok(places),
        }
    }

    fn learn(&mut self, time: Duration, aside: bool, halt: Halt<'_>) -> Result<Traced, NotTraced> {
        let Some(path) = self.profile.clone() else {
            return Err("there is no place for a profile".to_owned().into());
        };
        let paths = self.settings.paths.iter();
        let order = Order {
            time,
            aside,
            sampling: self.settings.sampling,
            paths: paths.map(|path| path.clone().into_os_string()).collect(),
            profile: path.into_os_string(),
        };
        let found = trace(self.tracer.as_deref(), &order, halt)?;
        for novelty in &mut self.novelty {
            novelty.add(found.files());
        }
        Ok(Traced {
            reads: found.reads,
            read_time: found.read_time,
            requests_per_read: found.requests_per_read,
        })
    }

    fn is_elsewhere(&self, place: usize) -> bool {
        let known = self.places.get(place).zip(self.identities.get(place));
        known.is_some_and(|(place, identity)| !identity.is_at(&place.paths))
    }

    fn is_another_load(&self, place: usize) -> bool {
        self.novelty.get(place).is_some_and(Novelty::is_other)
    }

    fn plan(&mut self, place: usize, halt: Halt<'_>) -> Result<Option<Outlook>, String> {
        self.rests.remove(&place);
        let Some(planner) = self.places.get(place).map(|place| self.planner(place)) else {
            return Err("it is gone".to_owned());
        };
        let Some(planner) = planner else {
            return Ok(Some(Outlook {
                decision: Decision::NoProfile,
                skipped: Default::default(),
                observed_days: 0.0,
                given: 1.0,
            }));
        };
        self.forget_times();
        let traces = self.traces().map_err(|error| chain(&error))?;
        let now = traces.as_ref().map_or_else(SystemTime::now, |it| it.now);
        let terms = self.settings.terms;
        let cancel = self.stop.child();
        let known = self.known(place);
        let traced = |since: Duration| {
            let moment = SystemTime::UNIX_EPOCH + since;
            let of = |it: &Traces| worth_days(it.since(moment), it.half_life);
            traces.as_ref().map_or(0.0, of)
        };
        let experience = &mut known.experience;
        let look = experience.look(since_1970(now), terms.within_days, &traced);
        let seen = Mutex::new((look, HashSet::new()));
        let halting = Halting {
            halt: Mutex::new(halt),
            cancel: &cancel,
        };
        let notes = |_: Note<'_>| halting.ask();
        let see = |found: &FoundFile, read: &[AccessRange]| {
            let key = FileKey::of(found.id, found.born);
            let (look, devices) = &mut *lock(&seen);
            devices.insert(found.id.dev);
            match &found.result {
                Ok(layout) => look.see(key, layout, read),
                Err(_) => look.pass_over(key),
            }
        };
        let planned = planner
            .plan_and_see(&cancel, &notes, &see)
            .map_err(|error| chain(&error))?;
        if planned.summary.cancelled || cancel.is_cancelled() {
            return Ok(None);
        }
        let (look, devices) = into_inner(seen);
        let terms = terms_of(&planned, &terms);
        // Without a profile nothing is known of reads, and so nothing of what lasts that is read.
        if traces.is_some() {
            look.end();
        }
        let (days, foretold_days, credibility) = match &traces {
            Some(traces) => {
                let noise = noise_of(traces.all(), traces.half_life);
                let credibility = Credibility::of(&planned.counts, noise * PARTS as f64);
                let (days, foretold_days) = traces.days();
                (
                    days * PARTS as f64,
                    foretold_days * PARTS as f64,
                    credibility,
                )
            }
            None => (1.0, 1.0, Credibility::FULL),
        };
        let experience = &known.experience;
        let decided =
            experience.believe(&terms, credibility, FileKey::of_plan, |terms, beliefs| {
                decide(planned, terms, days, beliefs)
            });
        let Decided {
            mut outlook,
            options,
            files,
            by,
        } = decided;
        if traces.is_some() {
            outlook.observed_days /= PARTS as f64;
        }
        self.keep_known();
        if let Some(novelty) = self.novelty.get_mut(place) {
            for dev in devices {
                novelty.is_on(dev);
            }
            novelty.looked();
        }
        let rest = Rest {
            options: options.clone(),
            planned: files.iter().map(id).collect(),
            along: HashSet::new(),
            files: files.into(),
            tries: HashMap::new(),
            too_large: None,
            foresight: Foresight {
                options,
                terms,
                by,
                observed_days: foretold_days,
                credibility,
            },
        };
        self.rests.insert(place, rest);
        Ok(Some(outlook))
    }

    fn portion(&mut self, place: usize, limit: &PortionLimit, halt: Halt<'_>) -> Portion {
        let Some(rest) = self.rests.get_mut(&place) else {
            return Portion::default();
        };
        let (files, tries) = rest.take(limit.bytes);
        if files.is_empty() {
            return Portion::default();
        }
        let cancel = self.stop.child();
        let halting = Halting {
            halt: Mutex::new(halt),
            cancel: &cancel,
        };
        let observer = Observed {
            halting: &halting,
            spent: AtomicU64::new(0),
            planned: &rest.planned,
            along: Mutex::default(),
        };
        let options = RunOptions {
            budget: Some(limit.bytes),
            time_limit: Some(limit.time * LONGER.pow(tries)),
            dry_run: false,
            ..self.settings.run
        };
        let runner = Runner {
            options,
            observer: &observer,
            store: false,
            ..Runner::new(&cancel)
        };
        let planned = Planned {
            options: rest.options.clone(),
            files: files.clone(),
            ..Planned::default()
        };
        let begun = Instant::now();
        let ran = runner.run(RunWork::from_planned(planned, &()));
        let (spent, along) = (observer.spent.into_inner(), into_inner(observer.along));
        rest.along.extend(along);
        let mut result = match ran {
            Ok(result) => result,
            Err(error) => {
                rest.put_back(files);
                return Portion {
                    end: match &error {
                        Error::Claimed { .. } => PortionEnd::Claimed(error.to_string()),
                        _ => PortionEnd::Done,
                    },
                    failed: match &error {
                        Error::Claimed { .. } => Vec::new(),
                        _ => vec![chain(&error)],
                    },
                    ..Portion::default()
                };
            }
        };
        let took = begun.elapsed();
        tracing::debug!(?took, "a portion");
        let spent = Bytes(spent);
        for file in &mut result.files {
            file.tell_along(&rest.along);
        }
        let moved: Vec<FilePlan> = { result.files.iter() }
            .filter(|file| !file.bytes_relocated.is_zero())
            .filter_map(|file| files.iter().find(|plan| id(plan) == file.id).cloned())
            .collect();
        let foresight = rest.foresight.clone();
        let portion = rest.settle(files, &result, spent, limit.bytes);
        for plan in &moved {
            self.moved.entry(id(plan)).or_default().extend(plan.runs());
        }
        if self.profile.is_some() {
            let now = since_1970(SystemTime::now());
            let experience = &mut self.known(place).experience;
            experience.took(spent, took.into());
            for plan in &moved {
                experience.moved(&FileKey::of_plan(plan), plan, &foresight, now);
            }
        }
        if portion.end == PortionEnd::Done {
            self.forget_times();
            self.keep_known();
        }
        portion
    }

    fn pass_over(&mut self, place: usize) {
        if let Some(rest) = self.rests.get_mut(&place)
            && let Some(large) = rest.too_large.take()
        {
            rest.files.retain(|file| id(file) != large);
        }
    }

    fn forget(&mut self, place: usize) {
        if self.rests.remove(&place).is_some() {
            self.forget_times();
            self.keep_known();
        }
    }
}

impl Rest {
    /// Files of about so many bytes, at least one; and how often the first was stopped in vain.
    fn take(&mut self, bytes: Bytes) -> (Vec<FilePlan>, u32) {
        let (mut taken, mut sum) = (Vec::new(), Bytes::ZERO);
        while let Some(file) = self.files.front() {
            sum = sum.saturating_add(file.cost());
            if sum > bytes && !taken.is_empty() {
                break;
            }
            taken.extend(self.files.pop_front());
        }
        let first = taken.first().map(id);
        let tries = first.and_then(|id| self.tries.get(&id).copied());
        (taken, tries.unwrap_or(0))
    }

    fn put_back(&mut self, files: Vec<FilePlan>) {
        for file in files.into_iter().rev() {
            self.files.push_front(file);
        }
    }

    /// Put back what is not finished, and add up the rest.
    fn settle(
        &mut self,
        files: Vec<FilePlan>,
        result: &RunResult,
        spent: Bytes,
        had: Bytes,
    ) -> Portion {
        let of_file: HashMap<TargetId, &FileResult> =
            result.files.iter().map(|file| (file.id, file)).collect();
        let mut portion = Portion {
            written: spent,
            longest_step: result.longest_lock,
            stalls: result.stalls_over_limit,
            ..Portion::default()
        };
        let (mut left, mut too_large) = (Vec::new(), None);
        let has_moved = (result.files.iter()).any(|file| !file.bytes_relocated.is_zero());
        for plan in files {
            let Some(file) = of_file.get(&id(&plan)) else {
                continue;
            };
            portion.relocated = portion.relocated.saturating_add(file.bytes_relocated);
            portion.extents_removed += file.extents_before.saturating_sub(file.extents_after);
            if !file.bytes_relocated.is_zero() {
                portion.extents_left += file.extents_after;
            }
            match &file.reason {
                Some(Reason::Skip(SkipReason::Stopped)) => {
                    let tries = self.tries.entry(file.id).or_default();
                    // A stop before it was begun costs nothing.
                    if file.bytes_relocated.is_zero() && !file.bytes_host_written.is_zero() {
                        *tries += 1;
                    }
                    match *tries < MOST_TRIES {
                        true => left.push(plan),
                        false => *portion.skipped.entry(SkipReason::Stopped).or_default() += 1,
                    }
                }
                Some(Reason::Skip(SkipReason::OverBudget)) => {
                    if !has_moved && too_large.is_none() {
                        let needs = needs(&plan, had);
                        too_large = Some(match spent.is_zero() {
                            true => needs,
                            // It takes more than it is priced at: that of the files that move along.
                            false => needs.max(had.saturating_add(had)),
                        });
                        self.too_large = Some(file.id);
                    }
                    left.push(plan);
                }
                reason => match file.status {
                    Status::Moved => portion.files_moved += 1,
                    Status::Failed => {
                        let why = reason
                            .as_ref()
                            .map_or_else(String::new, ToString::to_string);
                        portion
                            .failed
                            .push(format!("{}: {why}", file.path.display()));
                    }
                    Status::Skipped => {
                        if let Some(Reason::Skip(reason)) = reason {
                            *portion.skipped.entry(*reason).or_default() += 1;
                        }
                    }
                },
            }
        }
        self.put_back(left);
        // Each further file would fail as well: the next look finds out whether there is room again.
        if result.stopped == Some(StopCause::DeviceFull) {
            self.files.clear();
        }
        portion.end = match (self.files.is_empty(), too_large) {
            (true, _) => PortionEnd::Done,
            (false, Some(bytes)) => PortionEnd::TooSmall(bytes),
            (false, None) => PortionEnd::More,
        };
        portion
    }
}

fn id(plan: &FilePlan) -> TargetId {
    TargetId {
        dev: plan.dev,
        inode: plan.inode,
    }
}

/// Bytes that the smallest range of a file writes that is too large for a portion: a range moves in one go.
fn needs(plan: &FilePlan, had: Bytes) -> Bytes {
    let cost = |run: &FileRange| {
        let chunks = plan.migrating().filter(|chunk| run.overlaps(chunk.range));
        chunks.map(|chunk| chunk.cost).sum::<Bytes>()
    };
    let larger = plan
        .runs()
        .iter()
        .map(cost)
        .filter(|cost| *cost > had)
        .min();
    larger.unwrap_or(plan.cost())
}

#[cfg(test)]
mod tests {
    use indef_trace::store::{SessionId, SessionInfo};

    use super::*;

    #[test]
    fn a_session_is_worth_as_much_as_its_counts() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        let hour = Duration::from_secs(3600);
        let session = |age: Duration, ended: bool| StoredSession {
            id: SessionId(1),
            info: SessionInfo::default(),
            began: now - age - 6 * hour,
            latest: now - age,
            ended: ended.then_some(now - age),
            reads: 0,
            writes: 0,
            lost: 0,
            one_in: 1.0,
            common_error: None,
        };
        let week = 7 * 24 * hour;
        let both = |sessions: &[StoredSession], half_life| {
            let traces = Traces {
                sessions: sessions.to_vec(),
                half_life,
                now,
            };
            traces.days()
        };
        let days_of = |sessions: &[StoredSession], half_life| both(sessions, half_life).0;
        let days = |sessions: &[StoredSession]| days_of(sessions, week);
        assert_eq!(days(&[]), 1.0 / 24.0);
        assert_eq!(days(&[session(Duration::ZERO, true)]), 0.25);
        let two = [session(Duration::ZERO, false), session(week, true)];
        assert_eq!(days(&two), 0.375);
        assert_eq!(days_of(&two, Duration::ZERO), 0.5);
        // A first trace of ten minutes stands for an hour, and foretells what ten minutes do.
        let mut first = session(Duration::ZERO, true);
        first.began = now - hour / 6;
        assert_eq!(both(&[first], week), (1.0 / 24.0, 1.0 / 144.0));
        // One that ends in the future, as the clock was set back, is worth its time.
        assert_eq!(days(&[session(Duration::ZERO, true)]), 0.25);
    }
}
