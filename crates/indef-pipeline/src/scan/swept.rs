//! A scan of a whole XFS: bulk statistics of all inodes, and a walk that looks at files in several pieces alone.
//!
//! ```text
//! all inodes ──▶ in one piece ──▶ sums
//!            ──▶ others ──▶ a walk finds their names ──▶ each is opened by its number, and mapped
//! ```
//!
//! Without such files there is no walk. Nothing is remembered for the next scan: docs/usage.md tells why.

use std::{
    fs::File,
    path::{Path, PathBuf},
    sync::Arc,
};

use indef_engine::{
    Cancel,
    collect::{CollectOptions, CollectSummary, Listed, Seen, collect_beneath},
};
use indef_fs::{Filesystem, Mounts, Nature, Roots, Sweep, SweptInode, detect, reopen};
use rustix::fs::OFlags;
use units::Bytes;

use super::{
    plain::Counts,
    whole::{WholeScan, threads},
};

/// The file system of a scan.
pub(super) struct Swept<'a> {
    sweep: Sweep,
    fs: Arc<Filesystem>,
    paths: &'a [PathBuf],
    /// What the path leads to: the walk begins at the same directory.
    roots: Roots,
    options: &'a CollectOptions,
    cancel: &'a Cancel,
}

/// Inodes of one part of the file system.
#[derive(Default)]
struct Part {
    counts: Counts,
    /// To be looked at: numbers with generations.
    notable: Vec<(u64, u32)>,
}

impl<'a> Swept<'a> {
    /// For what `path`, which is all of `paths`, leads to, if that is the topmost directory of a file system that can be
    /// swept.
    pub(super) fn open(
        paths: &'a [PathBuf],
        path: &Path,
        options: &'a CollectOptions,
        cancel: &'a Cancel,
    ) -> Option<Self> {
        let roots = Roots::new();
        let root = roots.get(path, Mounts::Stay).ok()?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = File::from(reopen(&*root, flags).ok()?);
        let fs = detect(&directory, path).ok()?;
        Some(Self {
            sweep: Sweep::open(&fs, &directory)?,
            fs: Arc::new(fs),
            paths,
            roots,
            options,
            cancel,
        })
    }

    /// Scan it for reads of this size; `visit` gets each file that is not plain. `None` where a walk has to do it,
    /// before any file was visited.
    pub(super) fn scan(&self, io_size: Bytes, visit: &(dyn Fn(Seen) + Sync)) -> Option<WholeScan> {
        let stop = || self.cancel.is_cancelled();
        let count = |part: &mut Part, it: SweptInode| {
            part.counts.add(&Counts::of(it.links, &it.nature, io_size));
            if it.nature == Nature::Notable {
                part.notable.push((it.inode, it.generation));
            }
        };
        let threads = threads(self.options);
        let parts = self
            .sweep
            .all(threads, &stop, &Part::default, &count)
            .ok()?;
        let (mut counts, mut notable) = (Counts::default(), Vec::new());
        for part in parts {
            counts.add(&part.counts);
            notable.extend(part.notable);
        }
        let walked = self.walk(Listed::new(self.fs.dev, notable), visit);
        Some(WholeScan {
            summary: CollectSummary {
                files: counts.plain.files() + walked.files,
                // Of a scan that was stopped there may be fewer.
                directories: counts.directories.saturating_sub(self.sweep.covered()),
                hard_links: counts.hard_links,
                others: counts.others,
                other_file_systems: self.sweep.covered(),
                problems: walked.problems,
                vanished: walked.vanished,
                cancelled: self.cancel.is_cancelled(),
                ..CollectSummary::default()
            },
            counts,
            fs: Arc::clone(&self.fs),
            remembered: 0,
        })
    }

    /// Look at the listed files.
    fn walk(&self, listed: Listed, visit: &(dyn Fn(Seen) + Sync)) -> CollectSummary {
        if listed.is_empty() {
            return CollectSummary::default();
        }
        let options = CollectOptions {
            listed: Some(listed),
            ..self.options.clone()
        };
        collect_beneath(&self.roots, self.paths, &options, self.cancel, visit)
    }
}

#[cfg(test)]
mod tests;
