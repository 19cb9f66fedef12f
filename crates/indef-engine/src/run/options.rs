//! The options of a run.

use std::time::Duration;

use indef_core::layout::Row;
use indef_fs::EngineKind;
use units::{Bytes, PhysRange};

/// How to carry plans out.
#[derive(Clone, Copy, Debug)]
pub struct RunOptions {
    /// Files (or pieces of large files) that are moved at the same time. 0: one on each CPU, but at
    /// least 4, as the work waits for the device more than it computes; and if an engine moves files
    /// together, as many as it wants ([`indef_fs::Relocator::gathers`]).
    pub jobs: usize,
    /// Requests in flight inside one file.
    pub queue_depth: u32,
    /// This engine and no other; `None` for the best that each file system has.
    pub engine: Option<EngineKind>,
    /// Write at most this many bytes a second.
    pub rate: Option<Bytes>,
    /// No step should hold a file's locks longer than this: steps are sized from measured ones to
    /// stay at half of it. The result tells of steps that took longer.
    pub max_stall: Duration,
    /// Begin no step later than this.
    pub time_limit: Option<Duration>,
    /// Write at most this many bytes. Whatever its value, no more is written than the plans cost.
    pub budget: Option<Bytes>,
    /// Keep this share of each file system free, in percent of its size.
    pub min_free_pct: f64,
    /// Look at everything anew, but move nothing. Files are opened for reading only, so what only a run meets, like missing
    /// rights to write or a program that is running, is not told.
    pub dry_run: bool,
    /// The plans give space back: extents of which files reach only a part are let go, if at least so many bytes come
    /// free for each byte written. Overrides [`Self::allow_unshare`]; fragments then decide nothing.
    pub reclaim_ratio: Option<f64>,
    /// Move ranges out of this region of the device, however few fragments they have; their files have no more
    /// afterwards. A range that has begun to move is finished, whatever ends the run: half of it would leave its
    /// file with one fragment more.
    pub vacate: Option<PhysRange>,
    /// Move ranges that share blocks with a reflink or snapshot, which gives the sharing up.
    pub allow_unshare: bool,
    /// Leave files alone that others have open, wherever a power cut right after a step could take
    /// back data that they were told is durable.
    pub strict: bool,
    /// The device's rows, where they are known: moved data is placed congruently to them.
    pub row: Option<Row>,
    /// Give the workers' I/O the lowest best-effort priority.
    pub low_priority: bool,
    /// Keep the extent maps of this many of the most fragmented files.
    pub keep_maps: usize,
}

impl Default for RunOptions {
    fn default() -> Self {
        Self {
            jobs: 0,
            queue_depth: 64,
            engine: None,
            rate: None,
            max_stall: Duration::from_millis(50),
            time_limit: None,
            budget: None,
            min_free_pct: 5.0,
            dry_run: false,
            reclaim_ratio: None,
            vacate: None,
            allow_unshare: false,
            strict: false,
            row: None,
            low_priority: true,
            keep_maps: 12,
        }
    }
}

impl RunOptions {
    pub(super) fn workers(&self) -> usize {
        match self.jobs {
            0 => std::thread::available_parallelism().map_or(4, |n| n.get().max(4)),
            jobs => jobs,
        }
    }
}
