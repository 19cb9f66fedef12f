//! Walk directories in parallel and map every file that could be fragmented.
//!
//! Speed comes from work that is *not* done: no path is resolved (everything is found relative to
//! its directory), and a file with at most one block is never opened. For root, hardly any is opened on ext4 and
//! Btrfs, and on XFS only those in several pieces, by their numbers: four system calls. Most others cost seven
//! (`statx`; `openat`, `statx` and `close` to be sure of the file without opening it; `openat`, one FIEMAP,
//! `close`). Memory stays small because nothing is remembered of a file: findings go to the visitor
//! by value. Only hard links (files with more than one name) leave a trace, so that each is counted
//! once.
//!
//! The walk keeps to the file systems of the paths that it was given, follows no symbolic link
//! except one named itself, and opens only directories, regular files and the device of an ext4.
//! Entries that vanish during the walk are counted and otherwise ignored; entries that cannot be
//! read are reported, and the walk goes on.

mod counts;
mod directory;
mod entry;
mod listed;
mod names;
mod numbered;
mod root;
mod seen;
mod select;
mod walker;
mod work_stack;

#[cfg(test)]
mod tests;

use std::path::PathBuf;

use indef_fs::Roots;

pub use listed::Listed;
pub use numbered::ByNumber;
pub use seen::{CollectOptions, CollectSummary, Excluded, FoundFile, Seen, WalkProblem};
pub use select::{Glob, GlobError, Select};

use self::walker::{Walk, Walker};
use crate::{Cancel, workers};

/// Walk `paths` (files and directories) and hand everything to `visit`, which is called from many
/// threads at once, in no particular order.
pub fn collect(
    paths: &[PathBuf],
    options: &CollectOptions,
    cancel: &Cancel,
    visit: &(dyn Fn(Seen) + Sync),
) -> CollectSummary {
    collect_beneath(&Roots::new(), paths, options, cancel, visit)
}

/// The same, keeping the directories that `paths` lead to in `roots`: a run that is given them
/// resolves no given path again.
pub fn collect_beneath(
    roots: &Roots,
    paths: &[PathBuf],
    options: &CollectOptions,
    cancel: &Cancel,
    visit: &(dyn Fn(Seen) + Sync),
) -> CollectSummary {
    let jobs = match options.jobs {
        0 => std::thread::available_parallelism().map_or(1, |n| n.get().min(16)),
        jobs => jobs,
    };
    let given = root::identities(paths);
    let walk = Walk::new(roots, paths, given, options, cancel, visit, jobs);
    let work = || Walker::new(&walk).work();
    std::thread::scope(|scope| {
        workers::begin(scope, jobs - 1, work);
        work();
    });
    walk.counts.summary(cancel.is_cancelled())
}
