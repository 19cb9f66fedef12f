//! Repair: one file at a time, on a thread of its own, by the engine of every run with all its
//! promises and limits.
//!
//! A snapshot may be seconds old. So only the name, the identity and the ranges are taken from it:
//! the file is opened, checked, mapped and planned anew.

use std::{
    io,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
};

use indef_core::{SkipReason, plan::FilePlan};
use indef_engine::{
    Cancel,
    claim::{Claim, ClaimError},
    run::{FileResult, RunEvent, RunOptions, Status, run},
};
use indef_fs::{FileSystemKey, FsError, Mapper, TargetId, detect};
use indef_trace::FileKey;
use units::{Bytes, FileOffset, FileRange};

use super::survey::{decide, plan_options};
use crate::{opened::Opened, plan::untouched_reason};

/// The ranges of a file to repair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// The file, as it was traced.
    pub file: FileKey,
    /// The present identity of the file.
    pub id: TargetId,
    /// Its name.
    pub path: Arc<Path>,
    /// The ranges, ordered by place.
    pub ranges: Vec<FileRange>,
    /// The bytes that a repair writes at most, as far as known.
    pub cost: Bytes,
}

/// A finished repair.
#[derive(Debug)]
pub struct End {
    /// The order as given.
    pub order: Order,
    /// The ending.
    pub ending: Ending,
    /// Bytes that were written.
    pub written: Bytes,
}

/// The ending of a repair.
#[derive(Debug)]
pub enum Ending {
    /// The ranges have new blocks.
    Repaired {
        /// Fragments in the ranges before.
        before: u64,
        /// The same after, if the file can still be mapped.
        after: Option<u64>,
        /// The result of the whole file.
        file: Box<FileResult>,
    },
    /// It was stopped.
    Stopped,
    /// The engine left the file where it was, or failed; its reason is in the result.
    NotMoved(Box<FileResult>),
    /// The planner would move nothing.
    NotPlanned(SkipReason),
    /// The engine had nothing to do.
    NothingToDo,
    /// The file is gone, was replaced, or may not be read.
    Gone,
    /// The file went while its file system was claimed.
    Vanished,
    /// Its extents cannot be mapped.
    Unmapped,
    /// Its file system cannot be determined.
    NoFilesystem(FsError),
    /// Another run works on the file system.
    Claimed(ClaimError),
    /// The file system cannot be named, so it cannot be claimed.
    NoKey(io::Error),
    /// The thread panicked. The contents are whole.
    Panicked,
}

/// The kind of an ending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndKind {
    /// Some range has new blocks.
    Repaired,
    /// The file is unchanged, which is no failure.
    Left,
    /// A failure. The contents are whole all the same.
    Failed,
    /// Stopped before its end.
    Stopped,
}

impl Ending {
    /// The kind of this ending.
    #[must_use]
    pub fn kind(&self) -> EndKind {
        match self {
            Self::Repaired { .. } => EndKind::Repaired,
            Self::Stopped => EndKind::Stopped,
            Self::NotMoved(file) if file.status == Status::Failed => EndKind::Failed,
            Self::NoFilesystem(_) | Self::Panicked => EndKind::Failed,
            _ => EndKind::Left,
        }
    }
}

/// A repair under way.
#[derive(Debug)]
pub struct Repair {
    /// The order as given.
    pub order: Order,
    cancel: Cancel,
    progress: Arc<RepairProgress>,
    thread: JoinHandle<End>,
}

#[derive(Debug, Default)]
struct RepairProgress {
    planned: AtomicU64,
    done: AtomicU64,
}

impl Repair {
    /// Begin. `options.budget` is the number of bytes that may still be written.
    ///
    /// # Errors
    ///
    /// No thread could be started.
    pub fn start(order: Order, options: RunOptions) -> io::Result<Self> {
        let cancel = Cancel::new();
        let progress = Arc::new(RepairProgress::default());
        let thread = {
            let (order, cancel, progress) = (order.clone(), cancel.clone(), Arc::clone(&progress));
            thread::Builder::new()
                .name("repair".into())
                .spawn(move || repair(order, &options, &cancel, &progress))?
        };
        Ok(Self {
            order,
            cancel,
            progress,
            thread,
        })
    }

    /// Bytes that are done, and the total.
    #[must_use]
    pub fn progress(&self) -> (Bytes, Bytes) {
        let load = |number: &AtomicU64| Bytes(number.load(Ordering::Relaxed));
        (load(&self.progress.done), load(&self.progress.planned))
    }

    /// Stop after the current step.
    pub fn stop(&self) {
        self.cancel.cancel();
    }

    /// Whether [`Self::end`] does not wait.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }

    /// Wait for its end.
    #[must_use]
    pub fn end(self) -> End {
        let order = self.order;
        self.thread.join().unwrap_or(End {
            order,
            ending: Ending::Panicked,
            written: Bytes::ZERO,
        })
    }
}

fn repair(order: Order, options: &RunOptions, cancel: &Cancel, progress: &RepairProgress) -> End {
    let (ending, written) = match try_repair(&order, options, cancel, progress) {
        Ok(ended) => ended,
        Err(ending) => (ending, Bytes::ZERO),
    };
    End {
        order,
        ending,
        written,
    }
}

/// The ending, and the bytes written; as an error where the engine did nothing.
fn try_repair(
    order: &Order,
    options: &RunOptions,
    cancel: &Cancel,
    progress: &RepairProgress,
) -> Result<(Ending, Bytes), Ending> {
    let looked = look(order, options)?;
    let before = looked.fragments;
    let observer = |event: RunEvent<'_>| match event {
        RunEvent::Planned { bytes, .. } => progress.planned.store(bytes.get(), Ordering::Relaxed),
        RunEvent::Progress { bytes } => {
            progress.done.fetch_add(bytes.get(), Ordering::Relaxed);
        }
        _ => {}
    };
    let _claim = claim(order, cancel)?;
    let mut result = run([looked.plan], options, cancel, &observer);
    let written = result.totals.bytes_relocated;
    let file = result.files.pop().ok_or(Ending::NothingToDo)?;
    let ending = match file.status {
        _ if result.stopped.is_some() => Ending::Stopped,
        Status::Moved => Ending::Repaired {
            before,
            after: fragments(order),
            file: Box::new(file),
        },
        Status::Skipped | Status::Failed => Ending::NotMoved(Box::new(file)),
    };
    Ok((ending, written))
}

/// Claim the file system for this repair alone; where claims are not available, work without. If
/// root's run begins, it takes precedence.
fn claim(order: &Order, cancel: &Cancel) -> Result<Option<Claim>, Ending> {
    let file = Opened::open(&order.path, order.id).ok_or(Ending::Vanished)?;
    let key = FileSystemKey::of(&file.file).map_err(Ending::NoKey)?;
    match Claim::take([key]) {
        Ok(mut claim) => {
            let cancel = cancel.clone();
            claim.watch(move |_| cancel.cancel());
            Ok(Some(claim))
        }
        Err(held @ ClaimError::Held(_)) => Err(Ending::Claimed(held)),
        Err(_) => Ok(None),
    }
}

/// Fragments in the ranges at present.
fn fragments(order: &Order) -> Option<u64> {
    let file = Opened::open(&order.path, order.id)?;
    let mut mapper = Mapper::default();
    let fragments = |range: &FileRange| {
        let layout = file.map(*range, true, &mut mapper)?;
        Some(layout.fragments())
    };
    order.ranges.iter().map(fragments).sum()
}

/// A file in its present state, with its plan.
struct Looked {
    plan: FilePlan,
    /// Fragments in the ranges.
    fragments: u64,
}

/// Examine the file anew, and plan.
fn look(order: &Order, options: &RunOptions) -> Result<Looked, Ending> {
    let file = Opened::open(&order.path, order.id).ok_or(Ending::Gone)?;
    let fs = detect(&file.file, &order.path).map_err(Ending::NoFilesystem)?;
    let all = FileRange::between(FileOffset(0), FileOffset(u64::MAX));
    let layout = file
        .map(all, true, &mut Mapper::default())
        .ok_or(Ending::Unmapped)?;
    let chunks = decide(&plan_options(options), &file, &layout, &order.ranges);
    if let Some(reason) = untouched_reason(&chunks) {
        return Err(Ending::NotPlanned(reason));
    }
    let ranges = order.ranges.iter();
    let fragments = ranges.map(|range| layout.fragments_in(*range)).sum();
    // Shared ranges are not repaired.
    let engines = fs.engines().into_iter();
    let engine = { engines }.find(|engine| !engine.keeps_sharing());
    let engine = engine.map(|engine| engine.name().into());
    let plan = FilePlan {
        path: order.path.to_path_buf(),
        root_len: None,
        dev: order.id.dev,
        inode: order.id.inode,
        born: file.born,
        size: file.size,
        block_size: file.block_size,
        fs: fs.kind.to_string().into(),
        engine,
        extents_before: layout.fragments(),
        named: None,
        skip: None,
        chunks,
    };
    Ok(Looked { plan, fragments })
}
