//! Repair from the screen: one file at a time, on a thread of its own, by the engine of `indef run`
//! with all its promises and limits.
//!
//! What is shown may be seconds old. So nothing of it is used but the name, the identity and the
//! ranges: the file is opened, checked, mapped and planned anew.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use anyhow::{Context, Result};
use indef_core::plan::FilePlan;
use indef_engine::{
    Cancel,
    claim::{Claim, ClaimError},
    run::{Event, FileResult, Reason, RunOptions, Status, run},
};
use indef_fs::{FileSystemKey, Mapper, TargetId, detect};
use indef_pipeline::{opened::Opened, plan::untouched_reason};
use indef_trace::FileKey;
use units::{Bytes, FileOffset, FileRange};

use super::survey::{decide, plan_options};
use crate::{
    output::{Count, counted},
    refusal::failure,
};

/// What is to be repaired.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Order {
    pub(super) file: FileKey,
    pub(super) id: TargetId,
    pub(super) path: Arc<Path>,
    /// Ordered by place.
    pub(super) ranges: Vec<FileRange>,
    /// What it will write at most, as far as known.
    pub(super) cost: Bytes,
}

/// How a repair ended.
#[derive(Clone, Debug)]
pub(super) struct End {
    pub(super) order: Order,
    pub(super) kind: EndKind,
    /// One sentence.
    pub(super) text: String,
    /// Bytes that were written.
    pub(super) written: Bytes,
}

/// In one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EndKind {
    Repaired,
    /// Left as it was, which is all right.
    Left,
    Failed,
    Stopped,
}

/// A repair under way.
#[derive(Debug)]
pub(super) struct Repair {
    pub(super) order: Order,
    cancel: Cancel,
    progress: Arc<Progress>,
    thread: JoinHandle<End>,
}

#[derive(Debug, Default)]
struct Progress {
    planned: AtomicU64,
    done: AtomicU64,
}

impl Repair {
    /// Begin. `options.budget` is what may still be written.
    ///
    /// # Errors
    ///
    /// No thread could be started.
    pub(super) fn start(order: Order, options: RunOptions) -> Result<Self> {
        let cancel = Cancel::new();
        let progress = Arc::new(Progress::default());
        let thread = {
            let (order, cancel, progress) = (order.clone(), cancel.clone(), Arc::clone(&progress));
            thread::Builder::new()
                .name("repair".into())
                .spawn(move || repair(order, &options, &cancel, &progress))
                .context("no thread for the repair")?
        };
        Ok(Self {
            order,
            cancel,
            progress,
            thread,
        })
    }

    /// Bytes that are done, and bytes that there are.
    pub(super) fn progress(&self) -> (Bytes, Bytes) {
        let load = |number: &AtomicU64| Bytes(number.load(Ordering::Relaxed));
        (load(&self.progress.done), load(&self.progress.planned))
    }

    /// Finish the current step, and no more.
    pub(super) fn stop(&self) {
        self.cancel.cancel();
    }

    /// Whether [`Self::end`] does not wait.
    pub(super) fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }

    /// Wait for its end.
    pub(super) fn end(self) -> End {
        let order = self.order;
        self.thread.join().unwrap_or_else(|_| End {
            order,
            kind: EndKind::Failed,
            text: "the repair panicked; the contents are whole, please report this".into(),
            written: Bytes::ZERO,
        })
    }
}

fn repair(order: Order, options: &RunOptions, cancel: &Cancel, progress: &Progress) -> End {
    let left = |kind, text: String| End {
        order: order.clone(),
        kind,
        text,
        written: Bytes::ZERO,
    };
    let file = match look(&order, options) {
        Ok(file) => file,
        Err(refused) => return left(refused.0, refused.1),
    };
    let before = file.fragments;
    let observer = |event: Event<'_>| match event {
        Event::Planned { bytes, .. } => progress.planned.store(bytes.get(), Ordering::Relaxed),
        Event::Progress { bytes } => {
            progress.done.fetch_add(bytes.get(), Ordering::Relaxed);
        }
        _ => {}
    };
    let _claim = match claim(&order, cancel) {
        Ok(claim) => claim,
        Err(held) => return left(EndKind::Left, held),
    };
    let result = run([file.plan], options, cancel, &observer);
    let written = result.totals.bytes_relocated;
    let Some(moved) = result.files.first() else {
        return left(EndKind::Left, "nothing was to be done".into());
    };
    let (kind, text) = match moved.status {
        _ if result.stopped.is_some() => (
            EndKind::Stopped,
            format!("stopped; {written} of it have new blocks"),
        ),
        Status::Moved => (EndKind::Repaired, repaired(&order, before, moved)),
        Status::Skipped => (EndKind::Left, reason(moved).to_owned()),
        Status::Failed => (EndKind::Failed, reason(moved).to_owned()),
    };
    End {
        order,
        kind,
        text,
        written,
    }
}

/// The file system, for ourselves; where claims cannot be had, without. Root's run, should it begin, goes
/// ahead.
fn claim(order: &Order, cancel: &Cancel) -> Result<Option<Claim>, String> {
    let file = Opened::open(&order.path, order.id).ok_or("the file cannot be opened any more")?;
    let key = FileSystemKey::of(&file.file).map_err(|error| error.to_string())?;
    match Claim::take([key]) {
        Ok(mut claim) => {
            let cancel = cancel.clone();
            claim.watch(move |_| cancel.cancel());
            Ok(Some(claim))
        }
        Err(held @ ClaimError::Held(_)) => Err(held.to_string()),
        Err(_) => Ok(None),
    }
}

fn reason(file: &FileResult) -> &str {
    file.reason.as_ref().map_or("no reason", Reason::advice)
}

/// What became of the ranges and of the file.
fn repaired(order: &Order, before: u64, moved: &FileResult) -> String {
    let file = Opened::open(&order.path, order.id);
    let after = file.and_then(|file| {
        let mut mapper = Mapper::default();
        let fragments = |range: &FileRange| {
            let layout = file.map(*range, true, &mut mapper)?;
            Some(layout.fragments())
        };
        order.ranges.iter().map(fragments).sum::<Option<u64>>()
    });
    let after = after.map_or_else(|| "?".to_owned(), |after| Count(after).to_string());
    let mut text = format!(
        "{}, {}: {} → {after} fragments; the file: {} → {}",
        counted(order.ranges.len() as u64, "range", "ranges"),
        moved.bytes_relocated,
        Count(before),
        Count(moved.extents_before),
        Count(moved.extents_after),
    );
    if let Some(reason) = &moved.reason {
        text += &format!(" (not all: {})", reason.advice());
    }
    text
}

/// A file as it is now, with its plan.
struct Looked {
    plan: FilePlan,
    /// Fragments in the ranges.
    fragments: u64,
}

type Refused = (EndKind, String);

/// Look at the file anew, and plan.
fn look(order: &Order, options: &RunOptions) -> Result<Looked, Refused> {
    let gone = || {
        let text = "gone, replaced, or not permitted to read; nothing was done";
        (EndKind::Left, text.to_owned())
    };
    let file = Opened::open(&order.path, order.id).ok_or_else(gone)?;
    let fs = detect(&file.file, &order.path).map_err(|error| (EndKind::Failed, failure(&error)))?;
    let all = FileRange::between(FileOffset(0), FileOffset(u64::MAX));
    let layout = file
        .map(all, true, &mut Mapper::default())
        .ok_or_else(|| (EndKind::Left, "its extents cannot be mapped".to_owned()))?;
    let chunks = decide(&plan_options(options), &file, &layout, &order.ranges);
    if let Some(reason) = untouched_reason(&chunks) {
        return Err((EndKind::Left, reason.advice().to_owned()));
    }
    let ranges = order.ranges.iter();
    let fragments = ranges.map(|range| layout.fragments_in(*range)).sum();
    let engine = fs.engines().first().map(|engine| engine.name().into());
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
        skip: None,
        chunks,
    };
    Ok(Looked { plan, fragments })
}

/// How long a screen that is left waits for the current step of a repair at most.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);
