//! A scan of a whole subvolume of Btrfs: by its tree instead of a walk, and of that only what changed since the last one.
//!
//! `indef_fs::SubvolumeFiles` tells why what did not change may be remembered. Of a plain file that is its
//! contribution to the sums; all others are looked at each time, as it is not in the tree of the subvolume who else
//! has their extents.
//!
//! ```text
//! remembered ──▶ changed since? ──▶ look again ────────────┐
//!            ──▶ gone? (of changed directories) ──▶ look ──┼──▶ sums, and files to be looked at
//!            ──▶ as it was ────────────────────────────────┘
//! ```

use std::{
    collections::HashSet,
    fs::File,
    io,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use indef_engine::{
    Cancel,
    collect::{ByNumber, CollectOptions, CollectSummary, FoundFile},
};
use indef_fs::{Change, Filesystem, Folders, Nature, Numbered, SubvolumeFiles, detect};
use rustix::fs::{Mode, OFlags, open};
use units::Bytes;

use super::{
    memory::Memory,
    plain::Counts,
    records::Records,
    whole::{WholeScan, threads},
};

/// One inode of so many may have changed: else all are read anew, by many threads.
const FEW: u64 = 2;
/// A memory is written anew once one inode of so many has changed since: what changed before costs little to look at
/// again, and a drive wears.
const REWRITE: u64 = 32;
/// Files that a thread takes at once.
const AT_ONCE: usize = 64;

/// The subvolume of a scan.
pub(super) struct Subvolume<'a> {
    files: SubvolumeFiles,
    fs: Arc<Filesystem>,
    root: &'a Path,
    options: &'a CollectOptions,
    cancel: &'a Cancel,
}

/// All inodes as of now.
struct Current {
    counts: Counts,
    /// To be looked at, in order.
    notable: Vec<u64>,
    remembered: u64,
}

/// Inodes that were read by one thread.
struct Part {
    records: Records,
    counts: Counts,
    notable: Vec<u64>,
    is_strange: bool,
}

impl<'a> Subvolume<'a> {
    /// For what `path` leads to, if that is the topmost directory of a subvolume of which the tree tells all.
    pub(super) fn open(
        path: &'a Path,
        options: &'a CollectOptions,
        cancel: &'a Cancel,
    ) -> Option<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let directory = File::from(open(path, flags, Mode::empty()).ok()?);
        let fs = detect(&directory, path).ok()?;
        Some(Self {
            files: SubvolumeFiles::open(&fs, &directory)?,
            fs: Arc::new(fs),
            root: path,
            options,
            cancel,
        })
    }

    /// Scan it for reads of this size; `visit` gets each file that is not plain, from many threads. `None` where
    /// a walk has to do it, before any file was visited.
    pub(super) fn scan(
        &self,
        io_size: Bytes,
        visit: &(dyn Fn(FoundFile) + Sync),
    ) -> Option<WholeScan> {
        // Before anything is read.
        let transaction = self.files.settle()?;
        let (name, session) = (self.files.name(), self.files.session()?);
        let known = Memory::find(&name, &session, io_size);
        let known = known.filter(|memory| memory.transaction <= transaction);
        let current = known.and_then(|memory| self.update(memory, transaction, &name).transpose());
        let current = match current {
            Some(Ok(current)) => current,
            // Whatever it was, all of it tells more.
            Some(Err(_)) | None => self.read_all(io_size, transaction, &name, session)?,
        };
        let looked = self.look(&current.notable, visit);
        let (counts, cancelled) = (current.counts, self.cancel.is_cancelled());
        Some(WholeScan {
            summary: CollectSummary {
                files: counts.plain.files() + looked,
                // Of a scan that was stopped there may be fewer.
                directories: counts.directories.saturating_sub(self.files.covered()),
                hard_links: counts.hard_links,
                others: counts.others,
                other_file_systems: self.files.subvolumes() + self.files.covered(),
                cancelled,
                ..CollectSummary::default()
            },
            counts,
            fs: Arc::clone(&self.fs),
            remembered: current.remembered,
        })
    }

    /// Read all inodes.
    fn read_all(
        &self,
        io_size: Bytes,
        transaction: u64,
        name: &str,
        session: String,
    ) -> Option<Current> {
        let begin = || Part {
            records: Records::default(),
            counts: Counts::default(),
            notable: Vec::new(),
            is_strange: false,
        };
        let visit = |part: &mut Part, numbered: Numbered| {
            part.is_strange |= numbered.parent == 0;
            part.records.push(numbered);
            part.counts
                .add(&Counts::of(numbered.links, &numbered.nature, io_size));
            if numbered.nature == Nature::Notable {
                part.notable.push(numbered.inode);
            }
        };
        let stop = || self.cancel.is_cancelled();
        let parts = self
            .files
            .all(threads(self.options), &stop, &begin, &visit)
            .ok()?;
        let mut all = begin();
        for part in parts {
            all.is_strange |= part.is_strange;
            all.records.append(&part.records);
            all.counts.add(&part.counts);
            all.notable.extend(part.notable);
        }
        if all.is_strange {
            return None;
        }
        let memory = Memory {
            session,
            io_size,
            transaction,
            counts: all.counts,
            records: all.records,
        };
        self.keep(&memory, name);
        Some(Current {
            counts: all.counts,
            notable: all.notable,
            remembered: 0,
        })
    }

    fn keep(&self, memory: &Memory, name: &str) {
        if self.cancel.is_cancelled() {
            return;
        }
        if let Err(error) = memory.keep(name) {
            tracing::info!(%error, "what was scanned is not remembered");
        }
    }

    /// Bring a memory up to date; `None` where it is better to read all.
    fn update(&self, memory: Memory, transaction: u64, name: &str) -> io::Result<Option<Current>> {
        let most = (memory.counts.inodes / FEW) as usize;
        let Some(now) = self.files.changed(memory.transaction, most)? else {
            return Ok(None);
        };
        if (now.iter()).any(|(_, it)| it.is_some_and(|it: Numbered| it.parent == 0)) {
            return Ok(None);
        }
        let Some(gone) = self.gone(&memory, &now)? else {
            return Ok(None);
        };
        let edits = (now.len() + gone.len()) as u64;
        let rewrite = edits * REWRITE > memory.counts.inodes;
        let Some((current, records)) = merge(&memory, &now, &gone, rewrite) else {
            return Ok(None);
        };
        if let Some(records) = records {
            let memory = Memory {
                transaction,
                counts: current.counts,
                records,
                ..memory
            };
            self.keep(&memory, name);
        }
        Ok(Some(current))
    }

    /// Remembered inodes that are gone, in order, of those that are not among the changed ones; `None` if the memory is
    /// none of ours.
    ///
    /// Each was removed from the directory that is remembered with it. So this one changed since, or is gone itself.
    fn gone(&self, memory: &Memory, now: &[Change]) -> io::Result<Option<Vec<u64>>> {
        let has_changed =
            |it: Numbered| it.nature == Nature::Directory && it.changed >= memory.transaction;
        // What has no name any more may have been a directory.
        let is_touched = |(_, it): &&Change| it.is_none_or(has_changed);
        let touched = now.iter().filter(is_touched).map(|(inode, _)| *inode);
        let mut touched: HashSet<u64> = touched.collect();
        let mut gone = Vec::new();
        if touched.is_empty() {
            return Ok(Some(gone));
        }
        let is_new = |inode: u64| {
            now.binary_search_by_key(&inode, |(inode, _)| *inode)
                .is_ok()
        };
        let mut folders = Vec::new();
        for record in memory.records.iter() {
            let Ok(record) = record else { return Ok(None) };
            if record.nature == Nature::Directory && !is_new(record.inode) {
                folders.push((record.parent, record.inode));
            }
        }
        folders.sort_unstable();
        let mut level: Vec<u64> = touched.iter().copied().collect();
        while !level.is_empty() {
            let mut candidates = Vec::new();
            for parent in level.drain(..) {
                let from = folders.partition_point(|(above, _)| *above < parent);
                let within = folders[from..]
                    .iter()
                    .take_while(|(above, _)| *above == parent);
                // The topmost directory is in itself.
                candidates.extend(within.map(|(_, inode)| *inode).filter(|it| *it != parent));
            }
            candidates.sort_unstable();
            self.files.look(&candidates, |inode, numbered| {
                if numbered.is_none() && touched.insert(inode) {
                    gone.push(inode);
                    level.push(inode);
                }
            })?;
        }
        let mut candidates = Vec::new();
        let (mut asked, mut answer) = (0, false);
        for record in memory.records.iter() {
            let Ok(record) = record else { return Ok(None) };
            if record.parent != asked {
                (asked, answer) = (record.parent, touched.contains(&record.parent));
            }
            if answer && record.nature != Nature::Directory && !is_new(record.inode) {
                candidates.push(record.inode);
            }
        }
        self.files.look(&candidates, |inode, numbered| {
            if numbered.is_none() {
                gone.push(inode);
            }
        })?;
        gone.sort_unstable();
        Ok(Some(gone))
    }

    /// Look at files; returns how many are there.
    fn look(&self, inodes: &[u64], visit: &(dyn Fn(FoundFile) + Sync)) -> u64 {
        let (next, looked) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let work = || {
            let mut by_number = ByNumber::new(&self.files, &self.fs, self.options);
            let mut folders = Folders::default();
            loop {
                let from = next.fetch_add(AT_ONCE, Ordering::Relaxed);
                let rest = inodes.get(from..).unwrap_or_default();
                if rest.is_empty() || self.cancel.is_cancelled() {
                    return;
                }
                for inode in &rest[..AT_ONCE.min(rest.len())] {
                    // What is gone by now has no path, or cannot be opened.
                    let path = self.files.path(*inode, &mut folders);
                    let path = path.map(|path| self.root.join(path));
                    let found = path.and_then(|path| by_number.look(*inode, path));
                    if let Some(found) = found {
                        looked.fetch_add(1, Ordering::Relaxed);
                        visit(found);
                    }
                }
            }
        };
        thread::scope(|scope| {
            let enough = inodes.len().div_ceil(AT_ONCE).min(threads(self.options));
            for _ in 1..enough {
                if thread::Builder::new().spawn_scoped(scope, work).is_err() {
                    break;
                }
            }
            work();
        });
        looked.into_inner() as u64
    }
}

/// The inodes of a memory with those that changed, without those that are gone; with `rewrite` also as records. `None` if
/// the memory is none of ours, or that cannot be told.
fn merge(
    memory: &Memory,
    now: &[Change],
    gone: &[u64],
    rewrite: bool,
) -> Option<(Current, Option<Records>)> {
    let of = |numbered: &Numbered| Counts::of(numbered.links, &numbered.nature, memory.io_size);
    let mut current = Current {
        counts: memory.counts,
        notable: Vec::new(),
        remembered: 0,
    };
    let mut records = rewrite.then(Records::default);
    let mut keep = |current: &mut Current, numbered: Numbered| {
        if numbered.nature == Nature::Notable {
            current.notable.push(numbered.inode);
        }
        records.iter_mut().for_each(|it| it.push(numbered));
    };
    let add = |current: &mut Current,
               numbered: &Option<Numbered>,
               keep: &mut dyn FnMut(&mut Current, Numbered)| {
        if let Some(numbered) = numbered {
            current.counts.add(&of(numbered));
            keep(current, *numbered);
        }
    };
    let (mut now, mut gone) = (now.iter().peekable(), gone.iter().peekable());
    for record in memory.records.iter() {
        let record = record.ok()?;
        while let Some((_, new)) = now.next_if(|(inode, _)| *inode < record.inode) {
            add(&mut current, new, &mut keep);
        }
        if let Some((_, new)) = now.next_if(|(inode, _)| *inode == record.inode) {
            // Another one with the number of a directory: what was in that is gone, and nothing told it.
            let is_folder = |it: &Numbered| it.nature == Nature::Directory;
            if is_folder(&record) && new.is_some_and(|new| !is_folder(&new)) {
                return None;
            }
            current.counts.take(&of(&record));
            add(&mut current, new, &mut keep);
        } else if gone.next_if(|inode| **inode == record.inode).is_some() {
            current.counts.take(&of(&record));
        } else {
            current.remembered += u64::from(matches!(record.nature, Nature::Plain { .. }));
            keep(&mut current, record);
        }
    }
    for (_, new) in now {
        add(&mut current, new, &mut keep);
    }
    Some((current, records))
}
