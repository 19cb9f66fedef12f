//! Files that nobody else can open for the moment.
//!
//! Where nobody else has a file open, it is held with a lease; this is given back when the step is
//! done and durable, and whoever opens the file meanwhile waits for that.

use std::{
    collections::HashMap,
    fs::File,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use linux_abi::lease;

use crate::{Target, TargetId};

/// After each of these (ms) a file that must not be open elsewhere is asked for once more: some
/// programs only look at it, and a process that is just being started has all files open that its
/// parent has.
pub(crate) const NAPS: &[u64] = &[1, 2, 4, 8, 16, 32];

/// The leases of an engine. A lease belongs to an open file description, so workers that move parts
/// of one file share it.
#[derive(Debug, Default)]
pub(crate) struct Holds {
    held: Mutex<HashMap<TargetId, Held>>,
    released: Condvar,
}

#[derive(Debug)]
struct Held {
    holders: u32,
    leased: bool,
}

impl Holds {
    /// Hold the target until the returned [`Hold`] is dropped, with a lease if nobody else has it
    /// open. Asks again after each of `naps` (ms): some programs only look at a file.
    pub(crate) fn take<'a>(&'a self, target: &'a Target, naps: &[u64]) -> Hold<'a> {
        let mut naps = naps.iter();
        let mut held = self.lock();
        loop {
            match held.get_mut(&target.id) {
                None => match (is_granted(target), naps.next()) {
                    (Some(false), Some(nap)) => {
                        // Do not keep others from giving theirs back.
                        drop(held);
                        thread::sleep(Duration::from_millis(*nap));
                        held = self.lock();
                    }
                    (granted, _) => {
                        let leased = granted == Some(true);
                        held.insert(target.id, Held { holders: 1, leased });
                        return Hold {
                            holds: self,
                            target,
                            leased,
                        };
                    }
                },
                // Whoever waits for the file would wait for ever if each worker relieved the other.
                Some(known) if known.leased && is_wanted(&target.file) => {
                    held = match self.released.wait(held) {
                        Ok(held) => held,
                        Err(poisoned) => poisoned.into_inner(),
                    };
                }
                Some(known) => {
                    known.holders += 1;
                    let leased = known.leased;
                    return Hold {
                        holds: self,
                        target,
                        leased,
                    };
                }
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<TargetId, Held>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a lease is granted; `None` where it cannot be asked for.
fn is_granted(target: &Target) -> Option<bool> {
    lease::take(&target.file)
        .inspect_err(|error| {
            tracing::debug!(path = %target.path.display(), %error, "cannot ask for a lease");
        })
        .ok()
}

/// The time after which the kernel takes a lease away from a holder that does not give it back.
fn longest() -> Duration {
    let seconds = std::fs::read_to_string("/proc/sys/fs/lease-break-time")
        .ok()
        .and_then(|text| text.trim().parse().ok());
    Duration::from_secs(seconds.unwrap_or(45))
}

fn is_wanted(file: &File) -> bool {
    lease::is_wanted(file).unwrap_or(true)
}

/// A file that is held.
#[derive(Debug)]
pub(crate) struct Hold<'a> {
    holds: &'a Holds,
    target: &'a Target,
    leased: bool,
}

impl Hold<'_> {
    /// Whether nobody else had the file open, nor can have opened it since.
    pub(crate) fn is_leased(&self) -> bool {
        self.leased
    }

    /// Whether the lease may have been taken away since then: somebody wants the file, and has wanted
    /// it for long enough, perhaps.
    pub(crate) fn is_lost(&self, since: Instant) -> bool {
        self.is_wanted() && since.elapsed() >= longest()
    }

    /// Whether somebody waits for the file.
    pub(crate) fn is_wanted(&self) -> bool {
        self.leased && is_wanted(&self.target.file)
    }
}

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        let mut held = self.holds.lock();
        let Some(known) = held.get_mut(&self.target.id) else {
            return;
        };
        known.holders -= 1;
        if known.holders == 0 {
            if known.leased {
                // Fails where it was broken because we took too long: then it is gone already.
                let _ = lease::give_back(&self.target.file);
            }
            held.remove(&self.target.id);
            drop(held);
            self.holds.released.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target() -> Option<(tempfile::TempDir, Target)> {
        let dir = tempfile::tempdir_in(".").unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, b"something").unwrap();
        let target = Target::open(&path).unwrap();
        if lease::is_sole_opener(&target.file).is_err() {
            eprintln!("skipped: no leases here");
            return None;
        }
        Some((dir, target))
    }

    #[test]
    fn workers_share_a_lease_and_the_last_one_gives_it_back() {
        let Some((_dir, target)) = target() else {
            return;
        };
        let holds = Holds::default();
        let (first, second) = (holds.take(&target, NAPS), holds.take(&target, NAPS));
        assert!(first.is_leased() && second.is_leased());
        std::thread::scope(|scope| {
            let opener = scope.spawn(|| File::open(&target.path).unwrap());
            while !second.is_wanted() {
                thread::yield_now();
            }
            drop(first);
            assert!(!opener.is_finished());
            // Another worker does not prolong it, but takes its turn after the one that waits.
            let third = scope.spawn(|| drop(holds.take(&target, NAPS)));
            thread::sleep(Duration::from_millis(5));
            assert!(!third.is_finished());
            drop(second);
            opener.join().unwrap();
            third.join().unwrap();
        });
        assert!(holds.take(&target, NAPS).is_leased());
    }

    #[test]
    fn a_file_that_is_open_elsewhere_is_held_without_a_lease() {
        let Some((_dir, target)) = target() else {
            return;
        };
        let holds = Holds::default();
        let other = File::open(&target.path).unwrap();
        assert!(!holds.take(&target, &[1]).is_leased());
        drop(other);
        assert!(holds.take(&target, NAPS).is_leased());
    }
}
