//! What is known of one host, from any number of documents in any order.

use std::collections::{BTreeMap, HashSet};

use super::{
    job::{Ended, Job, Record, Unit},
    reasons::Reasons,
    told::{Kind, RunTold, Told, VerdictTold, WatchedTold},
};
use crate::made::{Made, MadeOn};

/// File systems that are listed of a host, and lists of paths of which scans are kept apart.
const MOST: usize = 64;
/// Words for the verdict, as scans use them.
pub(super) const WORTH_MOVING: &str = "worth-moving";
const NOTHING_TO_DO: &str = "nothing-to-do";
pub(super) const NO_ENGINE: &str = "no-engine";
/// The verdicts that say that there is nothing to do.
pub(super) const NOTHING: [&str; 3] = ["fine", "nothing-to-gain", NOTHING_TO_DO];

/// A host.
#[derive(Debug, Default)]
pub(super) struct Host {
    pub(super) documents: u64,
    /// Of the newest document.
    pub(super) newest: Newest,
    pub(super) verdict: Option<HostVerdict>,
    /// By the paths that were scanned.
    scans: BTreeMap<Vec<String>, Scans>,
    pub(super) predicted: Option<Predicted>,
    /// Of the newest document that tells of it.
    left_alone: Option<(u64, Reasons)>,
    pub(super) places: Vec<MadeOn>,
    /// Of runs.
    pub(super) work: Work,
    /// The records that were counted, by their begin.
    records: Vec<Record>,
    /// The newest history.
    history_ns: Option<u64>,
    /// Results of runs of which a history may tell as well.
    results: Vec<Job>,
    /// Times and kinds of the documents so far: the same one twice counts once.
    seen: HashSet<(u64, Kind)>,
}

/// Where the newest document comes from.
#[derive(Debug, Default)]
pub(super) struct Newest {
    /// 0 if no document tells of its time.
    pub(super) time_ns: u64,
    pub(super) version: String,
    pub(super) kernel: String,
    pub(super) machine: String,
}

/// What the newest scan, plan or look of `watch` came to.
#[derive(Clone, Debug)]
pub(super) struct HostVerdict {
    pub(super) time_ns: u64,
    pub(super) kind: String,
    pub(super) text: String,
    /// Bytes that are worth moving.
    pub(super) move_bytes: u64,
}

/// The oldest and the newest scan of the same paths.
#[derive(Debug)]
struct Scans {
    first: (u64, u64),
    /// Time, extents, and the fewest that there could be.
    last: (u64, u64, u64),
}

/// The sums over the paths that were scanned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fragments {
    pub(super) extents: u64,
    pub(super) ideal_extents: u64,
    /// Of the oldest scans of the same paths.
    pub(super) extents_first: u64,
}

/// What `watch` expects the moves that it wants to save each day.
#[derive(Clone, Copy, Debug)]
pub(super) struct Predicted {
    time_ns: u64,
    pub(super) saved_requests_per_day: f64,
    /// Where times are known.
    pub(super) saved_ns_per_day: Option<u64>,
}

/// Sums over runs.
#[derive(Clone, Debug, Default)]
pub(super) struct Work {
    pub(super) runs: u64,
    pub(super) runs_stopped: u64,
    pub(super) runs_failed: u64,
    pub(super) files_moved: u64,
    pub(super) files_failed: u64,
    pub(super) requests_saved: u64,
    pub(super) bytes_moved: u64,
    pub(super) bytes_written: u64,
    pub(super) stalls: u64,
    pub(super) predicted_ns: f64,
    pub(super) predicted_iodp: f64,
    pub(super) predicted_bytes: f64,
    pub(super) last_success_ns: Option<u64>,
    /// When the newest run ended, and whether it failed or files or paths of it did.
    pub(super) last: Option<(u64, bool)>,
}

impl Host {
    /// Add a document.
    pub(super) fn add(&mut self, kind: Kind, told: Told) {
        let made = told.made.clone().unwrap_or_default();
        let time_ns = made.time_ns;
        self.documents += 1;
        if time_ns > 0 && !self.seen.insert((time_ns, kind)) {
            return;
        }
        self.meet(&made);
        match kind {
            Kind::Scan => self.add_scan(&made, &told),
            Kind::Plan => {
                let bytes = told.totals.cost_bytes.unwrap_or(0);
                let is_worth = told.totals.files_to_move > 0;
                self.judge(time_ns, is_worth.then_some(bytes), "planned");
                self.leave_alone(time_ns, Reasons::of(&told.totals.skipped));
            }
            // It did not come to its files.
            Kind::Run | Kind::Watch if told.error.is_some() => {}
            Kind::Watch => {
                self.add_look(time_ns, &told.file_systems);
                self.leave_alone(time_ns, Reasons::of(&told.totals.skipped));
            }
            Kind::Run => {
                let files = told.files.as_ref();
                let reasons = files.map(|files| files.left_alone.clone());
                self.leave_alone(time_ns, reasons.unwrap_or_default());
            }
            Kind::Compact => {}
            Kind::History => {
                self.history_ns = self.history_ns.max(Some(time_ns));
                let runs = told.runs.as_ref().map_or(&[][..], |runs| &runs.0);
                runs.iter().for_each(|run| self.add_record(run));
            }
        }
        self.results.extend(Job::of_result(kind, &told, time_ns));
    }

    /// All documents are there: count the results that no history tells of.
    pub(super) fn finish(&mut self) {
        for job in std::mem::take(&mut self.results) {
            let is_told = self.records.iter().any(|record| job.is_in(record));
            // A round has a record for each file system.
            let is_covered = job.verb == super::job::Verb::Watch
                && self
                    .history_ns
                    .is_some_and(|history| history >= job.ended_ns);
            match (is_told, is_covered) {
                (true, _) => {}
                (false, true) => self.work.add(&job.without_amounts()),
                (false, false) => self.work.add(&job),
            }
        }
        self.records = Vec::new();
        self.seen = HashSet::new();
    }

    fn meet(&mut self, made: &Made) {
        if made.time_ns >= self.newest.time_ns {
            self.newest = Newest {
                time_ns: made.time_ns,
                version: made.version.clone(),
                kernel: made.kernel.clone(),
                machine: made.machine.clone(),
            };
        }
        made.file_systems
            .iter()
            .for_each(|place| self.meet_place(place));
    }

    fn meet_place(&mut self, place: &MadeOn) {
        let is_it = |known: &MadeOn| match (&known.uuid, &place.uuid) {
            (Some(known), Some(uuid)) => known == uuid,
            _ => (&known.fs, &known.mounted_at) == (&place.fs, &place.mounted_at),
        };
        let Some(known) = self.places.iter_mut().find(|known| is_it(known)) else {
            if self.places.len() < MOST {
                self.places.push(place.clone());
            }
            return;
        };
        // A history has only a part of it.
        known.uuid = known.uuid.take().or_else(|| place.uuid.clone());
        known.device = known.device.take().or_else(|| place.device.clone());
        known.source = known.source.take().or_else(|| place.source.clone());
        known.model = known.model.take().or_else(|| place.model.clone());
    }

    fn add_scan(&mut self, made: &Made, told: &Told) {
        let totals = &told.totals;
        if let Some(VerdictTold::OfScan {
            kind,
            text,
            move_bytes,
        }) = &told.verdict
        {
            self.verdict = newer(
                self.verdict.take(),
                HostVerdict {
                    time_ns: made.time_ns,
                    kind: kind.clone(),
                    text: text.clone(),
                    move_bytes: *move_bytes,
                },
            );
        }
        self.leave_alone(made.time_ns, Reasons::of(&totals.skipped));
        // One that was stopped saw a part.
        let (None, Some(extents)) = (&told.stopped, totals.extents) else {
            return;
        };
        let paths: Vec<String> = made.paths.iter().map(|path| path.path.clone()).collect();
        let (time, ideal) = (made.time_ns, totals.ideal_extents);
        if let Some(scans) = self.scans.get_mut(&paths) {
            if time < scans.first.0 {
                scans.first = (time, extents);
            }
            if time >= scans.last.0 {
                scans.last = (time, extents, ideal);
            }
        } else if self.scans.len() < MOST {
            let (first, last) = ((time, extents), (time, extents, ideal));
            self.scans.insert(paths, Scans { first, last });
        }
    }

    fn add_look(&mut self, time_ns: u64, places: &[WatchedTold]) {
        let bytes = places.iter().map(|place| place.worth_moving_bytes);
        let bytes = bytes.fold(0, u64::saturating_add);
        let texts = places.iter().filter_map(|place| place.text.as_deref());
        let text: Vec<&str> = texts.take(MOST).collect();
        self.judge(time_ns, (bytes > 0).then_some(bytes), &text.join("; "));
        let times: Vec<u64> = places
            .iter()
            .filter_map(|place| place.saved_ns_per_day)
            .collect();
        let predicted = Predicted {
            time_ns,
            saved_requests_per_day: places
                .iter()
                .filter_map(|place| place.saved_requests_per_day)
                .sum(),
            saved_ns_per_day: (!times.is_empty())
                .then(|| times.into_iter().fold(0, u64::saturating_add)),
        };
        if (self.predicted).is_none_or(|known| known.time_ns <= time_ns) {
            self.predicted = Some(predicted);
        }
    }

    /// Take a verdict: so many bytes are worth moving, or none are.
    fn judge(&mut self, time_ns: u64, worth_bytes: Option<u64>, text: &str) {
        let verdict = HostVerdict {
            time_ns,
            kind: match worth_bytes {
                Some(_) => WORTH_MOVING.to_owned(),
                None => NOTHING_TO_DO.to_owned(),
            },
            text: text.to_owned(),
            move_bytes: worth_bytes.unwrap_or(0),
        };
        self.verdict = newer(self.verdict.take(), verdict);
    }

    fn leave_alone(&mut self, time_ns: u64, reasons: Reasons) {
        if self
            .left_alone
            .as_ref()
            .is_none_or(|(known, _)| *known <= time_ns)
        {
            self.left_alone = Some((time_ns, reasons));
        }
    }

    fn add_record(&mut self, run: &RunTold) {
        for place in run.file_systems.iter().flatten() {
            self.meet_place(place);
        }
        let Some((job, record)) = Job::of_record(run) else {
            return;
        };
        let place = self
            .records
            .binary_search_by_key(&record.started_ns, |known| known.started_ns);
        // It stands in another history, too.
        let Err(place) = place else { return };
        self.records.insert(place, record);
        if let Some(skipped) = &run.skipped {
            self.leave_alone(job.ended_ns, Reasons::of(skipped));
        }
        self.work.add(&job);
    }

    /// Files that were left alone, by reason.
    pub(super) fn left_alone(&self) -> Option<&Reasons> {
        self.left_alone.as_ref().map(|(_, reasons)| reasons)
    }

    /// The fragments by the newest scans.
    pub(super) fn fragments(&self) -> Option<Fragments> {
        let zero = Fragments {
            extents: 0,
            ideal_extents: 0,
            extents_first: 0,
        };
        let sum = self.scans.values().fold(zero, |sum, scans| Fragments {
            extents: sum.extents.saturating_add(scans.last.1),
            ideal_extents: sum.ideal_extents.saturating_add(scans.last.2),
            extents_first: sum.extents_first.saturating_add(scans.first.1),
        });
        (!self.scans.is_empty()).then_some(sum)
    }

    /// Bytes that are worth moving.
    pub(super) fn worth_bytes(&self) -> u64 {
        let verdict = self.verdict.as_ref();
        verdict.map_or(0, |verdict| verdict.move_bytes)
    }

    /// Whether its newest run failed, or files or paths of it did.
    pub(super) fn has_failed(&self) -> bool {
        self.work.last.is_some_and(|(_, failed)| failed)
    }

    /// Whether something moved after the verdict, so that it may be out of date.
    pub(super) fn moved_since(&self) -> bool {
        match (&self.verdict, self.work.last) {
            (Some(verdict), Some((ended_ns, _))) => {
                self.work.bytes_moved > 0 && ended_ns > verdict.time_ns
            }
            _ => false,
        }
    }
}

fn newer(known: Option<HostVerdict>, other: HostVerdict) -> Option<HostVerdict> {
    Some(match known {
        Some(known) if known.time_ns > other.time_ns => known,
        _ => other,
    })
}

impl Work {
    fn add(&mut self, job: &Job) {
        self.runs += 1;
        self.runs_stopped += u64::from(job.ended == Ended::Stopped);
        self.runs_failed += u64::from(job.ended == Ended::Failed);
        if let Some((unit, gain)) = job.predicted {
            *match unit {
                Unit::Ns => &mut self.predicted_ns,
                Unit::Iodp => &mut self.predicted_iodp,
                Unit::Bytes => &mut self.predicted_bytes,
            } += gain;
        }
        self.join_amounts(&Self {
            files_moved: job.files_moved,
            files_failed: job.files_failed,
            requests_saved: job.requests_saved,
            bytes_moved: job.bytes_moved,
            bytes_written: job.bytes_written,
            stalls: job.stalls,
            ..Self::default()
        });
        if job.ended_ns > 0 {
            if job.is_success() {
                self.last_success_ns = self.last_success_ns.max(Some(job.ended_ns));
            }
            if self.last.is_none_or(|(known, _)| known <= job.ended_ns) {
                self.last = Some((job.ended_ns, job.has_failed()));
            }
        }
    }

    fn join_amounts(&mut self, other: &Self) {
        for (sum, more) in [
            (&mut self.files_moved, other.files_moved),
            (&mut self.files_failed, other.files_failed),
            (&mut self.requests_saved, other.requests_saved),
            (&mut self.bytes_moved, other.bytes_moved),
            (&mut self.bytes_written, other.bytes_written),
            (&mut self.stalls, other.stalls),
        ] {
            *sum = sum.saturating_add(more);
        }
    }

    /// Add the sums of another host.
    pub(super) fn join(&mut self, other: &Self) {
        self.runs += other.runs;
        self.runs_stopped += other.runs_stopped;
        self.runs_failed += other.runs_failed;
        self.predicted_ns += other.predicted_ns;
        self.predicted_iodp += other.predicted_iodp;
        self.predicted_bytes += other.predicted_bytes;
        self.join_amounts(other);
    }
}

#[cfg(test)]
mod tests;
