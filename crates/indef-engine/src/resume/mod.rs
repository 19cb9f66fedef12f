//! Go on with a run that was stopped or killed.
//!
//! A run stores its plan and a journal side by side in a state directory. Stopped by a limit, a
//! signal or `kill -9`, it leaves both; the next one takes the newest pair that nobody works on,
//! drops the files that are done, and goes on with the bytes that may still be written, with the
//! options that it had. A run that ends removes them. So does a new plan that covers all files that
//! an old one has left, and time.
//!
//! A journal is locked (`flock`) as long as its run lives, and gets its name only when it is locked
//! and its plan is complete: so nobody works any more on a run whose journal can be locked.

mod journal;
mod state_directory;

#[cfg(test)]
pub(crate) mod tests;

use std::{
    ffi::OsStr,
    fs::{self, File, OpenOptions},
    io::{self, BufReader, BufWriter, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::{Mutex, OnceLock},
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use indef_core::plan::{
    FilePlan, PlanOptions,
    format::{PlanError, PlanReader, PlanWriter},
};
use indef_fs::FsError;
use rustix::fs::{FlockOperation, flock};
use units::Bytes;

use self::journal::{History, JournalEntry, ReadError};
use crate::{
    Cancel, absolute,
    process::is_ending,
    run::{Observer, RunEvent, RunOptions},
    sync::lock,
};

pub use state_directory::{find_state_directory, state_directory};

/// The remaining work of a run could not be stored or read.
#[derive(Debug, thiserror::Error)]
pub enum ResumeError {
    /// A file operation failed.
    #[error(transparent)]
    Io(#[from] FsError),
    /// The stored plan cannot be read.
    #[error("{path}: {source}", path = path.display())]
    Plan {
        /// The file.
        path: PathBuf,
        /// The error in it.
        #[source]
        source: PlanError,
    },
    /// The only ones that are stored are still going on.
    #[error("no run was stopped with work left; one is still going on (process {0})")]
    Running(u32),
    /// The journal cannot be understood.
    #[error("{path}: line {line} is damaged; remove the file and plan again", path = path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Counted from 1.
        line: u64,
    },
}

/// A run whose work is stored. Dropped without [`Self::finish`], it can be resumed.
#[derive(Debug)]
pub struct StoredRun {
    journal: Mutex<File>,
    journal_path: PathBuf,
    plan_path: PathBuf,
    /// Why a line of the journal is missing. None is written after that: it would be one with what may be half a line.
    failure: OnceLock<FsError>,
}

/// A stored run that nobody works on any more.
#[derive(Debug)]
pub struct Resumed {
    /// The run to go on with.
    pub run: StoredRun,
    /// The files that are left to do.
    pub plans: Vec<FilePlan>,
    /// The options that it was planned with.
    pub options: PlanOptions,
    /// The options of the run, except for its budget and time limit; `None` if it was stored by a
    /// version that did not keep them, or if they name an engine that this version does not have.
    pub run_options: Option<RunOptions>,
    /// What it was stored for, where that was said ([`StoredRun::mark`]).
    pub purpose: Option<String>,
    /// Bytes that were written before, or may have been.
    pub spent: Bytes,
    /// Bytes that may still be written: the limit of the whole run, less the spent bytes. To be
    /// given to the run as its budget.
    pub left: Bytes,
}

/// The files of a stored run, as somebody finds them who only looks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remnant {
    /// Its journal.
    pub path: PathBuf,
    /// Size of its files.
    pub bytes: Bytes,
    /// When something was last written to its journal.
    pub written: SystemTime,
    /// Some process works on it.
    pub is_running: bool,
}

/// The runs that are stored in a directory, the oldest first. Changes nothing; a directory that is not there has none.
///
/// # Errors
///
/// The directory or a journal in it cannot be read.
pub fn remnants(directory: &Path) -> io::Result<Vec<Remnant>> {
    let mut journals = match names(directory, "journal") {
        Ok(journals) => journals,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(error),
    };
    journals.sort();
    let mut found = Vec::new();
    for path in journals {
        let Ok(journal) = File::open(&path) else {
            // It has just ended.
            continue;
        };
        let status = journal.metadata()?;
        let plan = fs::metadata(path.with_extension("plan")).map_or(0, |plan| plan.len());
        // Shared and given back at once: who resumes in this very moment may find it taken.
        let locked = flock(&journal, FlockOperation::NonBlockingLockShared);
        found.push(Remnant {
            bytes: Bytes(status.len() + plan),
            written: status.modified()?,
            is_running: locked == Err(rustix::io::Errno::WOULDBLOCK),
            path,
        });
    }
    Ok(found)
}

impl StoredRun {
    /// Store the work and the options of a run. `limit` is the number of bytes that may be written
    /// in all: the smaller of the plans' cost and the budget. Once this returns, neither a kill nor
    /// a power cut loses the run.
    ///
    /// # Errors
    ///
    /// The failure; then nothing remains.
    pub fn create(
        directory: &Path,
        options: &PlanOptions,
        plans: &[FilePlan],
        limit: Bytes,
        run_options: &RunOptions,
    ) -> Result<Self, ResumeError> {
        sweep(directory);
        let stem = fresh_name();
        let name = |extension: &str| directory.join(format!("{stem}.{extension}"));
        let (plan_path, journal_path, unnamed) =
            (name("plan"), name("journal"), name("journal.new"));
        let stored = Self::store(
            &plan_path,
            &journal_path,
            &unnamed,
            options,
            plans,
            |file| journal::write_header(file, limit, run_options),
        );
        if stored.is_err() {
            let _ = fs::remove_file(&plan_path);
            let _ = fs::remove_file(&unnamed);
        }
        stored
    }

    fn store(
        plan_path: &Path,
        journal_path: &Path,
        unnamed: &Path,
        options: &PlanOptions,
        plans: &[FilePlan],
        write_header: impl FnOnce(&mut File) -> io::Result<()>,
    ) -> Result<Self, ResumeError> {
        let create = |path: &Path| {
            OpenOptions::new()
                .append(true)
                .create_new(true)
                .mode(0o600)
                .open(path)
                .map_err(|error| FsError::new(path, "create", error))
        };
        let mut journal = create(unnamed)?;
        flock(&journal, FlockOperation::NonBlockingLockExclusive)
            .map_err(|errno| FsError::new(unnamed, "lock", errno))?;
        let plan = create(plan_path)?;
        write_plan(&plan, options, plans)
            .and_then(|()| plan.sync_all())
            .map_err(|error| FsError::new(plan_path, "write", error))?;
        write_header(&mut journal)
            .and_then(|()| journal.sync_all())
            .and_then(|()| fs::rename(unnamed, journal_path))
            .map_err(|error| FsError::new(unnamed, "write", error))?;
        // Make both names durable, too.
        let directory = journal_path.parent().unwrap_or(Path::new("/"));
        File::open(directory)
            .and_then(|directory| directory.sync_all())
            .map_err(|error| FsError::new(directory, "write", error))?;
        Ok(Self {
            journal: Mutex::new(journal),
            journal_path: journal_path.to_owned(),
            plan_path: plan_path.to_owned(),
            failure: OnceLock::new(),
        })
    }

    /// The newest run in `directory` that nobody works on, if there is one. A process that was
    /// killed a moment ago may still hold its run, inside of a step: then its end is waited for.
    ///
    /// # Errors
    ///
    /// [`ResumeError::Running`]; the directory, the journal or the plan cannot be read.
    pub fn newest(directory: &Path) -> Result<Option<Resumed>, ResumeError> {
        let mut running = None;
        for path in newest_first(directory)? {
            match lock_when_left(&path).map_err(|error| FsError::new(&path, "lock", error))? {
                Lockable::Yes(journal) => return Self::resume(journal, path).map(Some),
                Lockable::Gone => {}
                Lockable::Held(process) => {
                    running.get_or_insert(process);
                }
            }
        }
        running.map_or(Ok(None), |process| Err(ResumeError::Running(process)))
    }

    /// The newest run in `directory` that nobody works on, that was marked with this purpose, and that was planned
    /// at most so long ago. What cannot be read is left to [`Self::newest`].
    ///
    /// # Errors
    ///
    /// The directory cannot be read.
    pub fn newest_for(
        directory: &Path,
        purpose: &str,
        within: Duration,
    ) -> Result<Option<Resumed>, ResumeError> {
        let fresh = |path: &PathBuf| stored_since(path).is_some_and(|age| age <= within);
        for path in newest_first(directory)?.into_iter().filter(fresh) {
            if let Ok(Some(journal)) = lock_if_left(&path)
                && let Ok(resumed) = Self::resume(journal, path)
                && resumed.purpose.as_deref() == Some(purpose)
            {
                return Ok(Some(resumed));
            }
        }
        Ok(None)
    }

    /// Remove the runs that nobody works on, and of which every file that is left is `covered` by a
    /// new plan, also with the options that they were planned with: nobody needs to go on with them.
    /// Returns how many.
    ///
    /// # Errors
    ///
    /// The directory cannot be read. A run that cannot be read stays.
    pub fn supersede(
        directory: &Path,
        covered: &dyn Fn(&PlanOptions, &FilePlan) -> bool,
    ) -> Result<u64, ResumeError> {
        let journals =
            names(directory, "journal").map_err(|error| FsError::new(directory, "list", error))?;
        let mut removed = 0;
        for path in journals {
            let Ok(Some(journal)) = lock_if_left(&path) else {
                continue;
            };
            if let Ok(old) = Self::resume(journal, path)
                && old.plans.iter().all(|plan| covered(&old.options, plan))
            {
                old.run.finish()?;
                removed += 1;
            }
        }
        Ok(removed)
    }

    fn resume(journal: File, journal_path: PathBuf) -> Result<Resumed, ResumeError> {
        let History {
            limit,
            spent,
            done,
            valid_len,
            options: run_options,
            purpose,
            process: _,
        } = journal::read(&journal).map_err(|error| match error {
            ReadError::Io(source) => ResumeError::Io(FsError::new(&journal_path, "read", source)),
            ReadError::Line(line) => ResumeError::Damaged {
                path: journal_path.clone(),
                line,
            },
        })?;
        journal
            .set_len(valid_len)
            .map_err(|error| FsError::new(&journal_path, "write", error))?;
        let plan_path = journal_path.with_extension("plan");
        let plan =
            File::open(&plan_path).map_err(|error| FsError::new(&plan_path, "open", error))?;
        let damaged = |source| ResumeError::Plan {
            path: plan_path.clone(),
            source,
        };
        let mut reader = PlanReader::new(BufReader::new(plan)).map_err(damaged)?;
        let mut plans = Vec::new();
        for plan in &mut reader {
            let plan = plan.map_err(damaged)?;
            if !done.contains(&(plan.dev, plan.inode)) {
                plans.push(plan);
            }
        }
        let options = reader.options().clone();
        Ok(Resumed {
            run: Self {
                journal: Mutex::new(journal),
                journal_path,
                plan_path,
                failure: OnceLock::new(),
            },
            plans,
            options,
            run_options: run_options.and_then(|kept| kept.options()),
            purpose,
            spent,
            left: limit.saturating_sub(spent),
        })
    }

    /// Note in the journal what the run is for: who comes with the same purpose may go on with it without being asked to.
    pub fn mark(&self, purpose: &str) {
        self.append(&JournalEntry::Purpose(purpose.to_owned()));
    }

    /// Note in the journal that this process goes on with a resumed run, and with which options.
    pub fn continue_with(&self, options: &RunOptions) {
        self.append(&JournalEntry::Process(std::process::id()));
        self.append(&JournalEntry::Options(options.into()));
    }

    /// An observer that keeps the journal and tells `inner` everything. Where a line cannot be written, it sets `cancel`, so
    /// that nothing moves of which [`Self::newest`] would not know, and [`Self::failure`] tells.
    #[must_use]
    pub fn observer<'a>(
        &'a self,
        inner: &'a dyn Observer,
        cancel: &'a Cancel,
    ) -> impl Observer + 'a {
        Keeper {
            run: self,
            inner,
            cancel,
        }
    }

    /// Why the journal could not be written, if so.
    #[must_use]
    pub fn failure(&self) -> Option<&FsError> {
        self.failure.get()
    }

    /// The path of the journal.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.journal_path
    }

    /// Remove the stored files: nothing is left to do.
    ///
    /// # Errors
    ///
    /// A file could not be removed.
    pub fn finish(self) -> Result<(), ResumeError> {
        // The plan first: a plan without a journal would be noticed by nobody but `sweep`.
        for path in [&self.plan_path, &self.journal_path] {
            fs::remove_file(path).map_err(|error| FsError::new(path, "remove", error))?;
        }
        Ok(())
    }

    fn append(&self, entry: &JournalEntry) {
        let mut journal = lock(&self.journal);
        if self.failure.get().is_none()
            && let Err(error) = journal::write_entry(&mut *journal, entry)
        {
            let error = FsError::new(&self.journal_path, "write the journal", error);
            let _ = self.failure.set(error);
        }
    }
}

struct Keeper<'a> {
    run: &'a StoredRun,
    inner: &'a dyn Observer,
    cancel: &'a Cancel,
}

impl Observer for Keeper<'_> {
    fn on(&self, event: RunEvent<'_>) {
        match event {
            RunEvent::Reserved { id, bytes } => {
                self.run
                    .append(&JournalEntry::Reserved(id.dev, id.inode, bytes));
            }
            RunEvent::Settled {
                id,
                reserved,
                spent,
            } => {
                let entry = JournalEntry::Settled(id.dev, id.inode, reserved, spent);
                self.run.append(&entry);
            }
            RunEvent::FileDone(result) if !result.is_unfinished() => {
                let entry = JournalEntry::Done(result.id.dev, result.id.inode);
                self.run.append(&entry);
            }
            _ => {}
        }
        if self.run.failure().is_some() {
            self.cancel.cancel();
        }
        self.inner.on(event);
    }
}

fn write_plan(file: &File, options: &PlanOptions, plans: &[FilePlan]) -> io::Result<()> {
    let mut writer = PlanWriter::new(BufWriter::new(file), options)?;
    for plan in plans {
        writer.write(&*absolute(plan)?)?;
    }
    let (mut out, _) = writer.finish()?;
    out.flush()
}

/// Names in the order of time, different for each process.
fn fresh_name() -> String {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_nanos());
    format!("{now:020}-{}", std::process::id())
}

/// How long a run has been stored, by its name.
fn stored_since(path: &Path) -> Option<Duration> {
    let (time, _) = path.file_stem()?.to_str()?.split_once('-')?;
    let stored = UNIX_EPOCH.checked_add(Duration::from_nanos(time.parse().ok()?))?;
    stored.elapsed().ok()
}

/// The journals of all runs in `directory`, the newest first, after a [sweep]; none where it does not exist.
fn newest_first(directory: &Path) -> Result<Vec<PathBuf>, ResumeError> {
    sweep(directory);
    let mut journals = match names(directory, "journal") {
        Ok(journals) => journals,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(FsError::new(directory, "list", error).into()),
    };
    journals.sort();
    journals.reverse();
    Ok(journals)
}

/// Files of our own with this extension.
fn names(directory: &Path, extension: &str) -> io::Result<Vec<PathBuf>> {
    let me = rustix::process::geteuid().as_raw();
    let mut found = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let ours = fs::symlink_metadata(&path).is_ok_and(|s| s.is_file() && s.uid() == me);
        if ours && path.extension() == Some(OsStr::new(extension)) {
            found.push(path);
        }
    }
    Ok(found)
}

/// Open and lock a file whose process is gone; `None` if it lives, or just removed the file.
fn lock_if_left(path: &Path) -> io::Result<Option<File>> {
    let file = match OpenOptions::new().read(true).append(true).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
        Err(errno) => return Err(errno.into()),
    }
    Ok((file.metadata()?.nlink() > 0).then_some(file))
}

/// Whether the journal of a run can be locked.
enum Lockable {
    Yes(File),
    Gone,
    /// This process works on it.
    Held(u32),
}

/// How long a killed process may take to end.
const ENDING: Duration = Duration::from_secs(60);

/// As [`lock_if_left`], waiting for a process that is ending.
fn lock_when_left(path: &Path) -> io::Result<Lockable> {
    let begun = Instant::now();
    let mut looks = 0;
    loop {
        if let Some(file) = lock_if_left(path)? {
            return Ok(Lockable::Yes(file));
        }
        let history = match File::open(path) {
            Ok(file) => journal::read(file).ok(),
            Err(_) => return Ok(Lockable::Gone),
        };
        let process = history.map_or(0, |history| history.process);
        // Between taking the signal and being marked by it there are some instructions.
        looks = match is_ending(process) {
            true => 0,
            false => looks + 1,
        };
        if looks > 2 || begun.elapsed() > ENDING {
            return Ok(Lockable::Held(process));
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// Remove the files of processes that were killed while they stored a run or removed one, and runs
/// that are too old. Best effort: files that stay do no harm.
fn sweep(directory: &Path) {
    let list = |extension| names(directory, extension).unwrap_or_default();
    for unnamed in list("new") {
        // It is locked while its process lives, but not yet in the moment after it is created: so
        // it has to be old, too.
        let is_left = fs::metadata(&unnamed).is_ok_and(|status| is_old(&status));
        if is_left && let Ok(Some(_lock)) = lock_if_left(&unnamed) {
            let _ = fs::remove_file(&unnamed);
        }
    }
    for plan in list("plan") {
        let (named, unnamed) = (
            plan.with_extension("journal"),
            plan.with_extension("journal.new"),
        );
        // In this order: the one becomes the other.
        if !unnamed.exists()
            && !named.exists()
            && fs::metadata(&plan).is_ok_and(|status| is_old(&status))
        {
            let _ = fs::remove_file(&plan);
        }
    }
    for journal in list("journal") {
        // Most of its plan is not true any more.
        let outdated = age(&journal).is_some_and(|age| age > KEPT);
        if (outdated || !journal.with_extension("plan").exists())
            && let Ok(Some(_lock)) = lock_if_left(&journal)
        {
            let _ = fs::remove_file(journal.with_extension("plan"));
            let _ = fs::remove_file(&journal);
        }
    }
}

/// A run that nobody works on is kept for this time.
const KEPT: Duration = Duration::from_secs(30 * 24 * 3600);

fn age(path: &Path) -> Option<Duration> {
    fs::metadata(path).ok()?.modified().ok()?.elapsed().ok()
}

/// Whether a file is older than any run that is just being stored.
fn is_old(status: &fs::Metadata) -> bool {
    status
        .modified()
        .ok()
        .and_then(|modified| modified.elapsed().ok())
        .is_some_and(|age| age.as_secs() > 3600)
}
