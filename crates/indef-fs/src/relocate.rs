//! The one interface of every engine.
//!
//! ```text
//! admit(file) ──▶ begin(file, ranges) ──▶ step ─▶ step ─▶ … ─▶ Done
//!     │                 │                   │
//!     └── Refusal       └── Refusal         └── Refusal; data moved before stays moved
//! ```

use std::{fs::File, io, ops::AddAssign};

use indef_core::{SkipReason, layout::FragmentCount, plan::SharedWindow};
use units::{Bytes, FileRange, Nanos};

use crate::{FsError, Refusal, Target, TargetId};

/// An engine: how ranges get new, contiguous blocks on one kind of file system.
///
/// Contract, checked by the conformance suite for every engine: contents, size, times, holes,
/// unwritten ranges, sharing and compression stay as they were whatever happens; nothing remains of
/// a [`Relocation`] that is dropped at any point; the file never has more fragments afterwards; the
/// page cache is left as it was found.
pub trait Relocator: Send + Sync {
    /// The engine's name, as in `--engine`.
    fn name(&self) -> &'static str;

    /// Whether this file can be moved at all. Reads only; nothing is changed.
    ///
    /// # Errors
    ///
    /// The named reason, or the failure while looking.
    fn admit(&self, target: &Target) -> Result<(), Refusal>;

    /// Whether ranges of one file are independent, so that a large file may be split over several
    /// relocations at the same time. `false` where only a whole file can be exchanged, or where the
    /// parts would wait for each other.
    fn splits(&self) -> bool {
        true
    }

    /// Whether it always moves all of a file, whatever ranges it is asked for.
    fn moves_whole_files(&self) -> bool {
        false
    }

    /// How many bytes it writes at most for each one that it moves.
    fn writes_per_byte(&self) -> u64 {
        1
    }

    /// The number of bytes that a move writes, of ranges with `asked` written bytes in a file with
    /// `all` written bytes.
    fn cost(&self, asked: Bytes, all: Bytes) -> Bytes {
        let moved = if self.moves_whole_files() { all } else { asked };
        Bytes(moved.get().saturating_mul(self.writes_per_byte()))
    }

    /// Relocations that it moves together, and so wants begun at the same time, of whatever files:
    /// at most this many. 0: it moves each by itself.
    fn gathers(&self) -> usize {
        0
    }

    /// Whether it moves files together that share blocks, and is not told by the file system which they are: then it
    /// takes those that are [named](Target::named) with a file, and nothing of a file without names.
    fn needs_names(&self) -> bool {
        false
    }

    /// For a plan: what moving `ranges` (ordered, disjoint, block-aligned outward) of an admitted file comes to with
    /// the files that share them. Reads only. An engine notes what it tells, as the price of one file may be in that
    /// of another: files are asked about in the order in which they are to be moved, and it moves none of them.
    /// Nothing is told by an engine that leaves shared ranges alone.
    ///
    /// # Errors
    ///
    /// The named reason why none of them moves, or the failure while looking.
    fn foresee(
        &self,
        target: &Target,
        ranges: &[FileRange],
        is_stopping: &dyn Fn() -> bool,
    ) -> Result<Vec<SharedWindow>, Refusal> {
        let _ = (target, ranges, is_stopping);
        Ok(Vec::new())
    }

    /// Prepare to move `ranges` (ordered, disjoint, block-aligned outward, each of which becomes
    /// contiguous). May allocate, never changes the file.
    ///
    /// The file was written back, and the ranges counted, since the target was opened: that is not
    /// done again. But the count may be old by now, so an engine looks at the extents that it moves
    /// right before it does.
    ///
    /// # Errors
    ///
    /// A refusal; then nothing has changed.
    fn begin<'a>(
        &'a self,
        target: &'a Target,
        ranges: &[CountedRange],
        copier: &'a dyn RangeCopier,
    ) -> Result<Box<dyn Relocation + 'a>, Refusal>;

    /// Wait for the work that relocations left to the background: writeback of moved data, and then
    /// the state of the page cache. Called at the end of a run; dropping the engine waits, too, but
    /// cannot report a failure.
    ///
    /// Returns what failed since the last call, once for each file.
    fn settle(&self) -> Vec<FsError> {
        Vec::new()
    }
}

/// A range to be moved, as [`count_ranges`](crate::count_ranges) found it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountedRange {
    /// The bytes of the file.
    pub range: FileRange,
    /// Its fragments.
    pub count: FragmentCount,
    /// Its allocated and written bytes.
    pub written: Bytes,
}

/// A relocation under way. Dropping it releases everything; moved data stays moved.
pub trait Relocation {
    /// Do the next bounded piece of work. Asynchronous parts (reads ahead, later writeback) go on
    /// between steps.
    ///
    /// # Errors
    ///
    /// A refusal ends the relocation (the caller drops it); the file is whole.
    fn step(&mut self, limit: StepLimit) -> Result<Step, Refusal>;

    /// See through what is begun, and begin nothing more: no step follows. Returns the work that no step has told of.
    ///
    /// # Errors
    ///
    /// As for [`Self::step`].
    fn end(&mut self) -> Result<Moved, Refusal> {
        Ok(Moved::default())
    }
}

/// How much a step may do.
#[derive(Clone, Copy, Debug)]
pub struct StepLimit {
    /// At most this many bytes change place under the file's locks in one go (at least one block
    /// is always moved).
    pub bytes: Bytes,
}

/// The outcome of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// More to do.
    Working(Moved),
    /// Everything that could be moved is moved, and is on its way to the device.
    Done(Moved),
}

/// Work done by one step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Bytes that have new blocks now.
    pub relocated: Bytes,
    /// Bytes read through the host.
    pub host_read: Bytes,
    /// Bytes written through the host.
    pub host_written: Bytes,
    /// Bytes copied inside the device.
    pub offloaded: Bytes,
    /// Other files that share the moved blocks, as before.
    pub holders: u64,
    /// Bytes that another file does not share any more.
    pub unshared: Bytes,
    /// The longest time for which the file's locks were held in one go.
    pub locked: Nanos,
    /// Bytes moved under these locks.
    pub locked_bytes: Bytes,
    /// How often locks were held longer than [`EngineOptions::max_stall`](crate::EngineOptions::max_stall)
    /// beside that time.
    pub further_stalls: u64,
    /// The part of that time that a smaller step would have taken, too: a commit.
    pub overhead: Nanos,
    /// The longest time from a change of place to its commit while others had the file open: a
    /// power cut takes back data that was written to these blocks meanwhile and reported durable by
    /// `fdatasync`.
    pub uncommitted: Nanos,
}

impl Moved {
    /// Remember for how long locks were held, and for how many bytes, if it is the longest time yet.
    pub fn note_lock(&mut self, time: Nanos, bytes: Bytes) {
        self.note_lock_and(time, bytes, Nanos(0));
    }

    /// The same, where `overhead` of the time does not depend on the bytes.
    pub fn note_lock_and(&mut self, time: Nanos, bytes: Bytes, overhead: Nanos) {
        if time > self.locked {
            self.locked = time;
            self.locked_bytes = bytes;
            self.overhead = overhead;
        }
    }
}

impl AddAssign for Moved {
    fn add_assign(&mut self, more: Self) {
        self.relocated += more.relocated;
        self.host_read += more.host_read;
        self.host_written += more.host_written;
        self.offloaded += more.offloaded;
        self.holders = self.holders.max(more.holders);
        self.unshared += more.unshared;
        self.note_lock_and(more.locked, more.locked_bytes, more.overhead);
        self.further_stalls += more.further_stalls;
        self.uncommitted = self.uncommitted.max(more.uncommitted);
    }
}

/// The services of the executor. It copies ranges between two open files with many requests in flight
/// (io_uring), so that engines need no rings of their own, and knows the limits of the run.
pub trait RangeCopier: Send + Sync {
    /// Copy each of `ranges` from `from` to the same offset of `to`; no byte outside of them is
    /// written. When it returns, all of it has been submitted and completed; durability is the
    /// caller's business.
    ///
    /// # Errors
    ///
    /// The first error of any request; `to` is then unspecified in `ranges`.
    fn copy(&self, from: &File, to: &File, ranges: &[FileRange]) -> io::Result<()>;

    /// Whether the run is to end. What takes long beside copying asks now and then, and gives up.
    fn is_stopping(&self) -> bool {
        false
    }

    /// Ask for leave to do more than the ranges cost, before it is done. Waits for its turn at the requested rate.
    ///
    /// # Errors
    ///
    /// The limit that is in the way.
    fn allow(&self, more: Beyond) -> Result<(), SkipReason> {
        let _ = more;
        Ok(())
    }

    /// Tell of more than the ranges cost that was done without leave, since it could not be left out: the limits of the
    /// run count it, and whoever comes next waits for it.
    fn spent(&self, more: Beyond) {
        let _ = more;
    }

    /// Tell of other files that have new blocks now, together with the one that the run moves.
    fn moved_along(&self, files: &[TargetId]) {
        let _ = files;
    }
}

/// Work beyond what ranges cost: that of other files that move along.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Beyond {
    /// Bytes that are read, to compare them.
    pub read: Bytes,
    /// Bytes that come to be written, as metadata.
    pub written: Bytes,
}
