//! State that all threads of a round share.

use std::{
    collections::BTreeMap,
    fs::File,
    io,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockWriteGuard,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use rustix::io::Errno;

use crate::{
    lock::lock,
    model::{Findings, Model},
    script::ACTORS,
    volume::Volume,
};

/// Lines of the operation log that are kept.
const LOG_LINES: usize = 100_000;
/// How long a command takes that fails since a block cannot be read: longer than what succeeds.
pub(crate) const FAILS_AFTER: Duration = Duration::from_millis(500);
/// How long an actor waits for a cut.
const PATIENCE: Duration = Duration::from_secs(2);

/// See the module.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) root: PathBuf,
    pub(crate) volume: &'static Volume,
    pub(crate) started: Instant,
    model: Mutex<Model>,
    /// An operation holds it for reading; a thread that wants no operation under way, for writing.
    pub(crate) gate: RwLock<()>,
    /// A full disk: a mapped write into a hole would be a SIGBUS.
    pub(crate) filling: AtomicBool,
    /// Some blocks cannot be read: nothing that reads is done.
    pub(crate) unreadable: AtomicBool,
    /// A sync has just waited for a command that failed, and its actor waits for the cut.
    pub(crate) to_be_cut: AtomicBool,
    pub(crate) stop: AtomicBool,
    /// A signal arrived: everything ends.
    signal: Arc<AtomicUsize>,
    pub(crate) operations: AtomicU64,
    pub(crate) held: [Mutex<Vec<File>>; ACTORS as usize],
    findings: Mutex<Findings>,
    refused: Mutex<BTreeMap<String, u64>>,
    log: Mutex<Vec<String>>,
}

impl Shared {
    pub(crate) fn new(root: &Path, volume: &'static Volume, signal: &Arc<AtomicUsize>) -> Self {
        Self {
            root: root.to_owned(),
            volume,
            started: Instant::now(),
            model: Mutex::default(),
            gate: RwLock::new(()),
            filling: false.into(),
            unreadable: false.into(),
            to_be_cut: false.into(),
            stop: false.into(),
            signal: Arc::clone(signal),
            operations: 0.into(),
            held: Default::default(),
            findings: Mutex::default(),
            refused: Mutex::default(),
            log: Mutex::default(),
        }
    }

    pub(crate) fn now_ms(&self) -> u64 {
        self.started.elapsed().as_millis() as u64
    }

    /// The model, with its time set to now.
    pub(crate) fn model(&self) -> MutexGuard<'_, Model> {
        let mut model = lock(&self.model);
        model.set_now(self.now_ms());
        model
    }

    /// Wait for all operations; none begins until the guard is dropped.
    pub(crate) fn nobody(&self) -> RwLockWriteGuard<'_, ()> {
        self.gate.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    pub(crate) fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.interrupted()
    }

    pub(crate) fn interrupted(&self) -> bool {
        self.signal.load(Ordering::Relaxed) != 0
    }

    pub(crate) fn note(&self, line: String) {
        let mut log = lock(&self.log);
        if log.len() < LOG_LINES {
            log.push(format!("{:>8} {line}", self.now_ms()));
        }
    }

    pub(crate) fn take_log(&self) -> Vec<String> {
        std::mem::take(&mut lock(&self.log))
    }

    pub(crate) fn found(&self, findings: Findings) {
        for violation in &findings.violations {
            self.note(format!("VIOLATION {violation}"));
        }
        lock(&self.findings).merge(findings);
    }

    pub(crate) fn violation(&self, what: String) {
        let mut findings = Findings::default();
        findings.violation(what);
        self.found(findings);
    }

    pub(crate) fn take_findings(&self) -> Findings {
        std::mem::take(&mut lock(&self.findings))
    }

    /// Wait until the power is cut, which is to be now.
    pub(crate) fn have_it_cut(&self) {
        self.to_be_cut.store(true, Ordering::Relaxed);
        let until = Instant::now() + PATIENCE;
        while self.to_be_cut.load(Ordering::Relaxed) && Instant::now() < until && !self.stopped() {
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Note a failed operation: an allowed refusal, or a violation.
    pub(crate) fn failed(&self, what: &str, error: &io::Error) {
        if may_be_refused(error) {
            let kind = what.split(['(', ' ']).next().unwrap_or(what);
            *lock(&self.refused)
                .entry(format!("{kind}: {error}"))
                .or_default() += 1;
        } else {
            self.violation(format!("{what}: {error}"));
        }
    }

    /// Refused operations, and how often.
    pub(crate) fn take_refused(&self) -> BTreeMap<String, u64> {
        std::mem::take(&mut lock(&self.refused))
    }
}

/// Whether a healthy file system may return this error: never `EIO`, `EUCLEAN`, `EBADMSG`, `ESHUTDOWN`.
fn may_be_refused(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    errno.is_some_and(|errno| {
        [
            Errno::NOSPC,
            Errno::DQUOT,
            Errno::OPNOTSUPP,
            Errno::TXTBSY,
            Errno::BUSY,
            Errno::INVAL,
            Errno::AGAIN,
            Errno::ROFS,
        ]
        .contains(&errno)
    })
}
