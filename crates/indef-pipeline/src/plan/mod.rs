//! From paths to plans: walk, decide about every file as soon as it is met, keep only the files
//! that move.
//!
//! A million files that need no move must cost no memory: each is noted as it is met, and only the
//! files of which something moves are kept.

mod decide;
mod named;
mod reclaim;
mod shared;
mod times;
mod write;

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Mutex, atomic::AtomicBool},
};

use indef_core::{
    SkipReason,
    access::AccessRange,
    calibrate::{
        Calibration, CannotCalibrate, CannotPredict, Prediction, Service, calibrate,
        most_of_a_request_ns,
    },
    layout::DeviceTimes,
    plan::{
        Counts, FilePlan, Limited, PlanOptions, PlanTotals, Policy, Weight, limit, nothing_to_gain,
        truncate_on,
    },
};
use indef_engine::{
    Cancel,
    collect::{CollectOptions, CollectSummary, FoundFile, Seen, Select, collect_beneath},
};
use indef_fs::{EngineKind, Roots};
use units::Bytes;

pub use crate::service::Replay;
use crate::{
    engines::Engines,
    error::Error,
    geometry::{Geometries, GeometryChoice},
    heat::Accesses,
    note::{Note, Notes},
    service,
    sync::{into_inner, lock},
    weigh::{self, Comparison, Rankings, ReadTimes},
};
pub use decide::is_fine;
pub use decide::untouched_reason;
use decide::{Basis, Names};
use named::Sharers;
use times::TimesBy;
pub use write::write;

/// The error of the part of the time that a move saves, by the model of a probe (docs/probe.md).
const PROBED_ERROR: f64 = 0.1;

/// The paths to plan, and the options.
#[derive(Clone, Debug)]
pub struct Planner {
    /// Files and directories.
    pub paths: Vec<PathBuf>,
    /// What to leave out of them.
    pub select: Select,
    /// A profile store, or a profile of lines: decides which ranges are worth moving.
    pub profile: Option<PathBuf>,
    /// How far the kernel reads ahead of a sequential reader, for profiles of single accesses; `None`
    /// for what the device of each file says.
    pub readahead: Option<Bytes>,
    /// The internal geometry of the devices; `None` to ask them, without a note where they report
    /// nothing.
    pub geometry: Option<GeometryChoice>,
    /// The policy and its parameters. Its geometry is replaced by that found, and its weight where one is measured.
    pub options: PlanOptions,
    /// Measure weights by the times in the profile; without them, those that a probe of the drive found
    /// serve, where there was one.
    pub measured: bool,
    /// Use the times of the weight `device` as they are, also where a probe found those of the drive.
    pub times_given: bool,
    /// Plan although the times in the profile do not show that fragments cost anything.
    pub ignore_times: bool,
    /// Measure the time of contiguous reads on the device, for the prediction, by reads of this kind.
    pub calibrate: Option<Replay>,
    /// Compare measured weights with the paper's.
    pub compare: bool,
    /// Keep files that are not fine and do not move, for the plan file.
    pub keep_notable: bool,
    /// The engine requested by name.
    pub engine: Option<EngineKind>,
    /// Where a file system does not tell which files share blocks, all that do are among `paths`.
    pub shared_among_paths: bool,
    /// Parts in which the reads of a store are counted; 1 but for the service, for which a read that has faded is less than one.
    pub parts: u64,
    /// Number of files examined at the same time; 0 for a default for this machine.
    pub jobs: usize,
}

impl Planner {
    /// A planner for sequential readers of everything below `paths`.
    pub fn new(paths: impl IntoIterator<Item = impl Into<PathBuf>>) -> Self {
        Self {
            paths: paths.into_iter().map(Into::into).collect(),
            select: Select::default(),
            profile: None,
            readahead: None,
            geometry: None,
            options: PlanOptions {
                policy: default_policy(false),
                ..PlanOptions::default()
            },
            measured: false,
            times_given: false,
            ignore_times: false,
            calibrate: None,
            compare: false,
            keep_notable: false,
            engine: None,
            shared_among_paths: false,
            parts: 1,
            jobs: 0,
        }
    }

    /// Plan for the readers in the profile instead.
    #[must_use]
    pub fn with_profile(mut self, profile: impl Into<PathBuf>) -> Self {
        self.profile = Some(profile.into());
        self.options.policy = default_policy(true);
        self
    }

    /// Walk and plan.
    ///
    /// # Errors
    ///
    /// The profile cannot be read, or space is to be given back and only root may know which.
    /// Problems of single files are noted.
    pub fn plan(&self, cancel: &Cancel, notes: &dyn Notes) -> Result<Planned, Error> {
        self.plan_and_see(cancel, notes, &|_, _| {})
    }

    /// The same; `see` gets each file that is met, and the ranges of it in the profile.
    ///
    /// # Errors
    ///
    /// As [`Self::plan`].
    pub fn plan_and_see(
        &self,
        cancel: &Cancel,
        notes: &dyn Notes,
        see: &(dyn Fn(&FoundFile, &[AccessRange]) + Sync),
    ) -> Result<Planned, Error> {
        let roots = Roots::new();
        if self.options.reclaim_ratio.is_some() {
            reclaim::prepare(&roots, &self.paths, notes)?;
        }
        let accesses = match &self.profile {
            Some(path) => {
                let (ahead, parts) = (self.readahead, self.parts);
                Some(Accesses::load_in_parts(path, ahead, parts, notes)?)
            }
            None => None,
        };
        let mut geometries = Geometries::new(self.geometry, &self.paths, notes);
        if self.times_given {
            geometries.forget_times();
        }
        let mut options = geometries.main_options(&self.options);
        let samples = accesses
            .as_ref()
            .filter(|_| self.measured || !self.ignore_times)
            .map(|accesses| {
                let (paths, jobs) = (&self.paths, self.jobs);
                weigh::samples(&options, &geometries, accesses, paths, jobs, cancel)
            });
        let request_ns = samples.as_deref().and_then(most_of_a_request_ns);
        let calibration = samples.map(calibrate);
        let nothing_to_gain = { calibration.as_ref() }
            .filter(|_| !self.ignore_times)
            .and_then(nothing_to_gain);
        let calibration = calibration.filter(|_| self.measured);
        match (&nothing_to_gain, &calibration) {
            (Some(why), _) => notes.note(Note::NothingToGain(why)),
            (None, Some(Err(why))) => {
                let probed = geometries.has_all_models();
                notes.note(Note::NoWeights { why, probed });
                if probed {
                    options.weight = Weight::Device(DeviceTimes::default());
                    options = geometries.main_options(&options);
                }
            }
            (None, Some(found @ Ok(_))) => options.weigh_by(found),
            (None, None) => {}
        }
        if let Weight::Probed(_) = options.weight {
            geometries.note_probes(notes);
        }
        let engines = Engines::new(self.engine, self.options.allow_unshare)
            .with_names(self.shared_among_paths);
        let sharers = Sharers::default();
        let (rankings, times) = (Rankings::default(), ReadTimes::default());
        let compare = self.compare && matches!(calibration, Some(Ok(_)));
        let times_by = TimesBy::of(
            calibration.as_ref(),
            &options.weight,
            self.calibrate.is_some(),
        );
        let basis = Basis {
            options: &options,
            geometries: &geometries,
            engines: &engines,
            sharers: &sharers,
            accesses: accesses.as_ref(),
            rankings: compare.then_some(&rankings),
            times: times_by.map(|_| &times),
            nothing_to_gain: nothing_to_gain.is_some(),
            names: Names::default(),
            on_rows: AtomicBool::new(false),
            see,
        };
        let mut planned = self.walk(roots, &basis, cancel, notes);
        truncate_on(&mut planned.files, &options, accesses.is_some());
        let (files, roots) = (&mut planned.files, &planned.roots);
        let known = shared::Known {
            engines: &engines,
            sharers: &sharers.take(),
        };
        for (file, failed) in shared::look(files, &self.paths, roots, known, cancel, notes) {
            match (failed, untouched_reason(&file.chunks)) {
                (Some(refusal), _) => notes.note(Note::Refused {
                    path: &file.path,
                    refusal: &refusal,
                }),
                (None, reason) => {
                    let reason = reason.unwrap_or(SkipReason::NoGain);
                    self.note_untouched(&file, reason, notes);
                    self.count_untouched(&mut planned, file, reason);
                }
            }
        }
        planned.summary.cancelled |= cancel.is_cancelled();
        planned.limited = limit(&mut planned.files, &options);
        for file in &planned.files {
            planned.totals.add(file);
            planned.counts.add(file);
        }
        options.on_rows = basis.on_rows.into_inner();
        planned.options = options;
        if let (Some(times_by), Some(accesses)) = (times_by, &accesses) {
            let times = times.into_sums();
            let service = |replay| {
                let (reads, files) = &times;
                let mean_ns = reads.now_ns / reads.reads.max(1) as f64;
                let options = &planned.options;
                let ground = (files, planned.files.as_slice());
                service::measure(
                    replay,
                    mean_ns,
                    options,
                    &geometries,
                    accesses,
                    ground,
                    cancel,
                )
            };
            let service = self.calibrate.map(service);
            planned.summary.cancelled |= cancel.is_cancelled();
            let gain = planned.totals.gain;
            // A plan of nothing is no question to the device.
            if matches!(times_by, TimesBy::Weights(_)) || gain > 0.0 {
                planned.prediction = times_by.predict(&times.0, gain, service);
            }
            // Measured was what the plan leaves, not what all that may move would.
            let whole = service.map(|service| {
                service.map(|service| Service {
                    planned: None,
                    ..service
                })
            });
            let possible = planned.limited.possible_gain;
            planned.whole_prediction = times_by.predict(&times.0, possible, whole);
        }
        if let Weight::Probed(_) = planned.options.weight {
            let totals = &planned.totals;
            planned.prediction = Some(Ok(Prediction {
                reads: totals.reads_to_move,
                now_ns: totals.iodp_to_move,
                saved_ns: totals.gain,
                error_ns: totals.iodp_to_move * PROBED_ERROR,
                unseen: 0.0,
            }));
        }
        planned.calibration = calibration;
        planned.request_ns = request_ns;
        planned.nothing_to_gain = nothing_to_gain;
        planned.comparison = compare.then(|| rankings.compare());
        Ok(planned)
    }

    fn walk(&self, roots: Roots, basis: &Basis<'_>, cancel: &Cancel, notes: &dyn Notes) -> Planned {
        notes.note(Note::Walk);
        let planned = Mutex::new(Planned::default());
        let visit = |seen: Seen| match seen {
            Seen::Problem(problem) => notes.note(Note::Refused {
                path: &problem.path,
                refusal: &problem.refusal,
            }),
            Seen::File(found) => {
                notes.note(Note::File);
                self.visit(basis, found, &planned, notes);
            }
        };
        let options = CollectOptions {
            jobs: self.jobs,
            // Where space is given back, all of it is written back already.
            sync: self.options.reclaim_ratio.is_none(),
            held: self.options.reclaim_ratio.is_some(),
            // One that has a block of another file in common is needed, too.
            blocks: self.shared_among_paths,
            select: self.select.clone(),
            ..CollectOptions::default()
        };
        let summary = collect_beneath(&roots, &self.paths, &options, cancel, &visit);
        let mut planned = into_inner(planned);
        // The walk meets files in any order; a plan is the same every time.
        planned.files.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        planned.summary = summary;
        planned.roots = roots;
        planned
    }

    fn visit(
        &self,
        basis: &Basis<'_>,
        found: FoundFile,
        planned: &Mutex<Planned>,
        notes: &dyn Notes,
    ) {
        let path = found.path.clone();
        match basis.decide(found) {
            Ok((mut plan, None)) => {
                plan.chunks.shrink_to_fit();
                lock(planned).files.push(plan);
            }
            Ok((plan, Some(reason))) => {
                self.note_untouched(&plan, reason, notes);
                self.count_untouched(&mut lock(planned), plan, reason);
            }
            Err(refusal) => notes.note(Note::Refused {
                path: &path,
                refusal: &refusal,
            }),
        }
    }

    /// Nothing of this file moves.
    fn note_untouched(&self, plan: &FilePlan, reason: SkipReason, notes: &dyn Notes) {
        notes.note(Note::Untouched {
            plan,
            reason,
            // A file that was named deserves a note; files of a directory, and of a list, are only counted.
            named: !self.select.is_of_files() && self.paths.contains(&plan.path),
        });
    }

    fn count_untouched(&self, planned: &mut Planned, plan: FilePlan, reason: SkipReason) {
        *planned.skipped.entry(reason).or_default() += 1;
        planned.totals.add(&plan);
        planned.counts.add(&plan);
        if self.keep_notable && !is_fine(reason) {
            planned.notable.push(plan);
        }
    }
}

impl Planned {
    /// All files of which nothing moves, by reason: those that were left out, and those of which truncation and limits left
    /// nothing.
    #[must_use]
    pub fn untouched(&self) -> BTreeMap<SkipReason, u64> {
        let mut untouched = self.skipped.clone();
        let chunks = self.files.iter().map(|file| &file.chunks[..]);
        for reason in chunks.filter_map(untouched_reason) {
            *untouched.entry(reason).or_default() += 1;
        }
        untouched
    }
}

/// The policy where none is requested.
#[must_use]
pub const fn default_policy(has_profile: bool) -> Policy {
    match has_profile {
        true => Policy::Indef,
        false => Policy::Sequential,
    }
}

/// The plans, and the files that were left out of them.
#[derive(Debug, Default)]
pub struct Planned {
    /// The directories that the paths lead to, as the walk resolved them. They keep their file
    /// systems in use.
    pub roots: Roots,
    /// The options in force, with the geometry and the weights that were found.
    pub options: PlanOptions,
    /// Files of which something moves, by path; after truncation and limits, also those of which these
    /// left nothing to move.
    pub files: Vec<FilePlan>,
    /// Files of which nothing moves although a person could do something about it, if they were to
    /// be kept.
    pub notable: Vec<FilePlan>,
    /// The files that are not among these, by reason ([`Self::untouched`]).
    pub skipped: BTreeMap<SkipReason, u64>,
    /// Sums over all files.
    pub totals: PlanTotals,
    /// The reads of all ranges.
    pub counts: Counts,
    /// The part that budget and target gain leave.
    pub limited: Limited,
    /// Where weights were to be measured: the weights, or the reason for their absence.
    pub calibration: Option<Result<Calibration, CannotCalibrate>>,
    /// Where reads were timed, however few: the most that a request of them takes, in nanoseconds.
    pub request_ns: Option<f64>,
    /// Where weights were measured: what the plan does to the time of all reads, or the reason for which
    /// that cannot be told. Where they are of a probe of the drive: the same of the reads of what moves.
    pub prediction: Option<Result<Prediction, CannotPredict>>,
    /// The same without budget and target gain.
    pub whole_prediction: Option<Result<Prediction, CannotPredict>>,
    /// The reason for which nothing is planned although ranges are fragmented: the times of the
    /// profile show no cost of fragments.
    pub nothing_to_gain: Option<CannotCalibrate>,
    /// Measured weights and the paper's, if they were to be compared.
    pub comparison: Option<Comparison>,
    /// The walk in numbers; whether it was cancelled.
    pub summary: CollectSummary,
}
