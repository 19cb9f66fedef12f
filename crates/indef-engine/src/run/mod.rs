//! Carry plans out: many files at once, step by step, within limits.
//!
//! ```text
//! plans ─▶ order by gain per byte ─▶ open, look again ─▶ pieces ─▶ begin, step … step ─▶ result
//!                                     (any worker)                 (any worker)
//! ```
//!
//! A worker takes a file, checks that it is still the planned one, maps it, and drops every range
//! that is contiguous by now or would not become better. The remaining ranges are reserved in the
//! budget, cut into pieces where the engine allows it, and moved in steps. Large files are shared
//! by all workers; of small ones, one worker moves each, and the waiting of one overlaps with the
//! work of the others.
//!
//! Not checked here: whether the new place is better (the engine does, before anything moves) and
//! whether the plan is wise.

mod along;
mod backend;
mod error;
mod extent_maps;
mod file;
mod job;
mod limits;
mod observe;
mod options;
mod piece;
mod reclaim;
mod result;
mod schedule;
mod shared;
mod step_size;
mod survey;
mod volume;

#[cfg(test)]
mod tests;

use std::{
    any::Any,
    collections::HashMap,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, Scope},
    time::Instant,
};

use indef_core::{SkipReason, plan::FilePlan};
use indef_fs::{Mapper, Moved, Roots};
use linux_abi::ioprio::{IoPriority, set_for_this_thread};
use units::{Bytes, Nanos};

pub use error::FileError;
pub use extent_maps::{ExtentMaps, MapEntry};
pub use observe::{Observer, RunEvent};
pub use options::RunOptions;
pub use result::{FileResult, Reason, RunResult, Status, StopCause, Totals};

use self::{
    along::Along,
    backend::{Backend, Kernel},
    extent_maps::Worst,
    file::{Opened, Piece},
    job::FileJob,
    limits::{Budget, Pace, Stop, Surplus},
    piece::PieceEnd,
    schedule::{Schedule, Task},
    shared::Run,
    volume::Volumes,
};
use crate::{Cancel, sync::lock, workers};

/// Carry `plans` out. Returns when everything is done, or nothing more may be done; whatever
/// happens to single files is in the result.
pub fn run(
    plans: impl IntoIterator<Item = FilePlan>,
    options: &RunOptions,
    cancel: &Cancel,
    observer: &dyn Observer,
) -> RunResult {
    run_beneath(&Roots::new(), plans, options, cancel, observer)
}

/// The same, with roots that were resolved already, as by a walk.
pub fn run_beneath(
    roots: &Roots,
    plans: impl IntoIterator<Item = FilePlan>,
    options: &RunOptions,
    cancel: &Cancel,
    observer: &dyn Observer,
) -> RunResult {
    let kernel = Kernel {
        roots,
        only_looks: options.dry_run,
    };
    run_with(&kernel, plans, options, cancel, observer)
}

fn run_with(
    backend: &dyn Backend,
    plans: impl IntoIterator<Item = FilePlan>,
    options: &RunOptions,
    cancel: &Cancel,
    observer: &dyn Observer,
) -> RunResult {
    let begin = Instant::now();
    let mut jobs: Vec<_> = plans.into_iter().map(FileJob::new).collect();
    job::order(&mut jobs);
    let files = jobs.len();
    let planned: Bytes = jobs
        .iter()
        .map(|job| job.cost)
        .fold(Bytes::ZERO, Bytes::saturating_add);
    let bytes = options.budget.map_or(planned, |budget| budget.min(planned));
    let too_much = match options.budget {
        Some(_) => SkipReason::OverBudget,
        None => SkipReason::BeyondPlan,
    };
    observer.on(RunEvent::Planned {
        files: files as u64,
        bytes,
    });
    let along = Along::new(&jobs);
    let copier = backend.copier(options.queue_depth);
    let run = Run {
        backend,
        options,
        observer,
        copier: &*copier,
        workers: options.workers(),
        files,
        stop: Stop::new(cancel, options.time_limit),
        budget: Budget::new(bytes),
        too_much,
        surplus: Surplus::new(options.budget, bytes),
        pace: Pace::new(options.rate),
        volumes: Volumes::default(),
        worst: Worst::new(options.keep_maps),
        along,
        longest_lock: AtomicU64::new(0),
        stalls_over_limit: AtomicU64::new(0),
        longest_uncommitted: AtomicU64::new(0),
        said_stopping: AtomicBool::new(false),
        results: Mutex::new(Vec::with_capacity(files)),
    };
    let schedule = Schedule::new(jobs);
    thread::scope(|scope| {
        let wanted = run.workers.min((files * 4).max(1));
        if run.begin_workers(wanted, None, &schedule, scope) == 0 {
            run.work(None, &schedule, scope);
        }
    });
    for job in schedule.rest() {
        let reason = Reason::Skip(job.skip.unwrap_or(SkipReason::Stopped));
        run.done(job.result(Status::Skipped, Some(reason)));
    }
    run.finish(begin)
}

impl Run<'_> {
    /// Begin so many workers, for one file system only if its device number is given. Returns their
    /// number, which may be smaller.
    fn begin_workers<'scope>(
        &'scope self,
        wanted: usize,
        only: Option<u64>,
        schedule: &'scope Schedule,
        scope: &'scope Scope<'scope, '_>,
    ) -> usize {
        workers::begin(scope, wanted, move || self.work(only, schedule, scope))
    }

    /// The loop of one worker.
    fn work<'scope>(
        &'scope self,
        only: Option<u64>,
        schedule: &'scope Schedule,
        scope: &'scope Scope<'scope, '_>,
    ) {
        // Not the idle class: an application that waits for a page which we read, or for the locks
        // under which we write, would wait for our turn; mq-deadline lets the idle class wait for
        // up to 10 s (prio_aging_expire; block/mq-deadline.c, v6.1).
        if self.options.low_priority
            && let Err(error) = set_for_this_thread(IoPriority::BestEffort(7))
        {
            tracing::debug!(%error, "the I/O priority cannot be set");
        }
        let mut mapper = Mapper::default();
        while let Some(task) = schedule.next(only, &self.stop) {
            match task {
                Task::File(job, opening) => {
                    let mut pieces = self.open_safely(*job, &mut mapper).into_iter();
                    let first = pieces.next();
                    opening.found(pieces);
                    if let Some(piece) = first {
                        self.gather(&piece, schedule, scope);
                        self.piece(&piece, &mut mapper);
                    }
                }
                Task::Piece(piece) => self.piece(&piece, &mut mapper),
            }
            self.say_stopping();
        }
    }

    /// Where an engine moves files together, begin as many as it wants, unless somebody has said how
    /// many, or how slowly. The workers wait for each other most of the time. Files of other file
    /// systems are not for them.
    fn gather<'scope>(
        &'scope self,
        piece: &Piece,
        schedule: &'scope Schedule,
        scope: &'scope Scope<'scope, '_>,
    ) {
        let wanted = piece.file.relocator().gathers().min(self.files);
        let is_free = self.options.jobs == 0 && self.options.rate.is_none();
        let file = &piece.file;
        if !is_free || wanted <= self.workers || file.volume.gathers.swap(true, Ordering::Relaxed) {
            return;
        }
        let only = Some(file.target.id.dev);
        self.begin_workers(wanted - self.workers, only, schedule, scope);
    }

    /// Open a file; a panic on the way is that file's failure.
    fn open_safely(&self, job: FileJob, mapper: &mut Mapper) -> Vec<Piece> {
        let (path, id, fs) = (job.path.clone(), job.id, job.fs.clone());
        let extents = job.extents_before;
        match catch_unwind(AssertUnwindSafe(|| self.open(job, mapper))) {
            Ok(Opened::Pieces(pieces)) => pieces,
            Ok(Opened::Finished(result)) => {
                self.done(*result);
                Vec::new()
            }
            Err(panic) => {
                let plan = FilePlan {
                    path,
                    root_len: None,
                    dev: id.dev,
                    inode: id.inode,
                    born: None,
                    size: Bytes::ZERO,
                    block_size: Bytes::ZERO,
                    fs,
                    engine: None,
                    extents_before: extents,
                    named: None,
                    skip: None,
                    chunks: Vec::new(),
                };
                let reason = panicked(&*panic);
                self.done(FileJob::new(plan).result(Status::Failed, Some(reason)));
                Vec::new()
            }
        }
    }

    fn piece(&self, piece: &Piece, mapper: &mut Mapper) {
        let end = catch_unwind(AssertUnwindSafe(|| self.relocate(piece))).unwrap_or_else(|panic| {
            PieceEnd {
                moved: Moved::default(),
                reason: Some(panicked(&*panic)),
                reserved: piece.cost,
                spent: piece.cost,
            }
        });
        self.budget.settle(end.reserved, end.spent);
        self.observer.on(RunEvent::Settled {
            id: piece.file.target.id,
            reserved: end.reserved,
            spent: end.spent,
        });
        if piece.file.piece_done(&end.moved, end.reason) {
            let file = &piece.file;
            let closed = catch_unwind(AssertUnwindSafe(|| self.close(file, mapper)));
            self.done(closed.unwrap_or_else(|panic| file.failed(panicked(&*panic))));
        }
    }

    fn done(&self, mut result: FileResult) {
        self.along.tell(&mut result);
        if let Some(Reason::Failed(error)) = &result.reason {
            tracing::error!(path = %result.path.display(), %error, "failed");
        }
        self.observer.on(RunEvent::FileDone(&result));
        lock(&self.results).push(result);
    }

    fn say_stopping(&self) {
        if let Some(cause) = self.stop.cause()
            && !self.said_stopping.swap(true, Ordering::Relaxed)
        {
            self.observer.on(RunEvent::Stopping(cause));
        }
    }

    fn finish(self, begin: Instant) -> RunResult {
        let failed = self.volumes.settle().into_iter();
        let failed = failed.inspect(|error| tracing::error!(%error, "failed"));
        let mut failed: HashMap<_, _> = failed.map(|error| (error.path.clone(), error)).collect();
        let mut files = self
            .results
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        // Also of one that fails now.
        let unfinished = files.iter().any(FileResult::is_unfinished);
        let mut totals = Totals::default();
        for file in &mut files {
            if let Some(error) = failed.remove(&file.path)
                && !file.is_unwritten()
            {
                file.status = Status::Failed;
                file.reason = Some(FileError::of_moved(error).into());
            }
            self.observer.on(RunEvent::Result(file));
            totals.add(file);
        }
        RunResult {
            totals,
            duration: begin.elapsed(),
            stopped: unfinished.then(|| match self.stop.cause() {
                Some(cause) => cause,
                None if self.volumes.any_device_full() => StopCause::DeviceFull,
                None => StopCause::Cancelled,
            }),
            longest_lock: Nanos(self.longest_lock.load(Ordering::Relaxed)),
            stalls_over_limit: self.stalls_over_limit.load(Ordering::Relaxed),
            longest_uncommitted: Nanos(self.longest_uncommitted.load(Ordering::Relaxed)),
            free_growth: None,
            maps: self.worst.take(),
            files,
        }
    }
}

fn panicked(panic: &(dyn Any + Send)) -> Reason {
    let message = panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message");
    FileError::Panicked {
        message: message.to_owned(),
    }
    .into()
}
