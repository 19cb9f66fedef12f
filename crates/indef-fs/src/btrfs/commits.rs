//! Commits in the midst of a move.
//!
//! What a move gives up comes free in the trees later: an extent's reference is counted down, its checksums go, and its
//! space becomes free, at the next commit, by one thread, and some 10 µs for each extent (fs/btrfs/extent-tree.c,
//! `__btrfs_free_extent`, v6.18). A file in 65,536 fragments leaves a second of that to whoever syncs next, or has the
//! move wait for room for metadata. So a commit begins whenever many extents were given up: it goes on beside the reads
//! of the next ones.
//!
//! It makes durable what is in the trees by then, as the one that comes every 30 s does, and holds others up no longer
//! than that: the references are counted down while others may still change the trees.
//!
//! The kernel's thread that commits may miss a call that comes just when it ends a commit, and sleep for 30 s
//! (`transaction_kthread`, fs/btrfs/disk-io.c; seen on 6.18). Another call wakes it. So no call waits for the one before,
//! and who waits for the last one calls again.

use std::{
    fs::File,
    io,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use linux_abi::btrfs::start_commit;

use crate::{Filesystem, Target};

/// A commit begins after so many extents: some 0.1 s of work, beside which its own blocks are few.
const EACH: u64 = 8192;
/// Who waits for a commit to begin calls again after this time.
const PATIENCE: Duration = Duration::from_millis(100);
/// Calls at the same time: a device that does not answer is not called for ever.
const MOST: usize = 16;

/// The commits that the moves of a file system begin.
#[derive(Debug)]
pub(super) struct Commits {
    /// A commit would write everybody's data back.
    flushes: bool,
    given_up: AtomicU64,
    begun: Mutex<Begun>,
}

/// Calls that begin a commit, each in a thread of its own: one lasts until the references are counted down.
#[derive(Debug, Default)]
struct Begun {
    /// Not the file: nobody shall find it open by us once it has moved.
    directory: Option<Arc<File>>,
    calls: Vec<JoinHandle<()>>,
}

impl Commits {
    pub(super) fn of(fs: &Filesystem) -> Self {
        Self {
            flushes: fs.has_mount_option("flushoncommit"),
            given_up: AtomicU64::new(0),
            begun: Mutex::default(),
        }
    }

    /// Note that a file gave up this many extents, for which it has others.
    pub(super) fn give_up(&self, target: &Target, extents: u64) {
        if !self.is_due(extents) {
            return;
        }
        self.given_up.store(0, Ordering::Relaxed);
        let mut begun = self.begun();
        if begun.directory.is_none() {
            begun.directory = target.open_directory().ok().map(Arc::new);
        }
        begun.call(commit);
    }

    /// Whether a commit is to begin after these.
    fn is_due(&self, extents: u64) -> bool {
        let before = self.given_up.fetch_add(extents, Ordering::Relaxed);
        before.saturating_add(extents) >= EACH && !self.flushes
    }

    /// Wait until no commit is being begun.
    pub(super) fn wait(&self) {
        let mut begun = std::mem::take(&mut *self.begun());
        begun.wait(commit);
    }

    fn begun(&self) -> MutexGuard<'_, Begun> {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Commits {
    fn drop(&mut self) {
        self.wait();
    }
}

type Call = fn(&File) -> io::Result<u64>;

fn commit(directory: &File) -> io::Result<u64> {
    start_commit(directory)
}

impl Begun {
    fn call(&mut self, commit: Call) {
        self.calls.retain(|call| !call.is_finished());
        let Some(directory) = self.directory.clone() else {
            return;
        };
        let call = move || {
            if let Err(error) = commit(&directory) {
                tracing::debug!(%error, "no commit in between");
            }
        };
        let begun = thread::Builder::new().name("commit".into()).spawn(call);
        self.calls.extend(begun);
    }

    fn wait(&mut self, commit: Call) {
        let mut called = Instant::now();
        while self.calls.iter().any(|call| !call.is_finished()) {
            thread::sleep(Duration::from_millis(2));
            if called.elapsed() >= PATIENCE && self.calls.len() < MOST {
                self.call(commit);
                called = Instant::now();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_begins_after_many_extents_unless_it_writes_all_data_back() {
        let commits = |flushes| Commits {
            flushes,
            given_up: AtomicU64::new(0),
            begun: Mutex::default(),
        };
        let usual = commits(false);
        assert!(!usual.is_due(EACH - 1));
        assert!(usual.is_due(1));
        assert!(!commits(true).is_due(2 * EACH));
    }

    /// A call that the kernel misses lasts until the next one.
    #[test]
    fn a_call_that_was_missed_is_made_again() {
        static CALLS: AtomicU64 = AtomicU64::new(0);
        let commit: Call = |_| {
            CALLS.fetch_add(1, Ordering::Relaxed);
            while CALLS.load(Ordering::Relaxed) < 2 {
                thread::sleep(Duration::from_millis(1));
            }
            Ok(0)
        };
        let mut begun = Begun {
            directory: Some(Arc::new(tempfile::tempfile().unwrap())),
            calls: Vec::new(),
        };
        begun.call(commit);
        begun.wait(commit);
        assert_eq!(CALLS.load(Ordering::Relaxed), 2);
    }
}
