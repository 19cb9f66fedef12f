//! The counters of the device so far.

use serde::Serialize;
use units::Nanos;

use crate::{core::Cause, ftl::FtlCounters};

/// Bytes by their cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ByCause {
    /// Reads and writes of the host.
    pub host: u64,
    /// Garbage collection.
    pub gc: u64,
    /// Wear levelling.
    pub wear: u64,
    /// Emptying the SLC cache.
    pub fold: u64,
    /// Copy and migration inside the device.
    pub migration: u64,
    /// The rest of finished zones.
    pub padding: u64,
    /// Pages that were not complete when a flush wanted them.
    pub flush: u64,
}

impl ByCause {
    pub(crate) const fn new(counts: &[u64; Cause::COUNT]) -> Self {
        Self {
            host: counts[Cause::Host as usize],
            gc: counts[Cause::Gc as usize],
            wear: counts[Cause::Wear as usize],
            fold: counts[Cause::Fold as usize],
            migration: counts[Cause::Migration as usize],
            padding: counts[Cause::Padding as usize],
            flush: counts[Cause::Flush as usize],
        }
    }

    /// Returns the bytes of all causes.
    #[must_use]
    pub const fn total(&self) -> u64 {
        let inside = self.gc + self.wear + self.fold + self.migration;
        self.host + inside + self.padding + self.flush
    }

    const fn since(&self, earlier: &Self) -> Self {
        Self {
            host: self.host - earlier.host,
            gc: self.gc - earlier.gc,
            wear: self.wear - earlier.wear,
            fold: self.fold - earlier.fold,
            migration: self.migration - earlier.migration,
            padding: self.padding - earlier.padding,
            flush: self.flush - earlier.flush,
        }
    }
}

/// One die.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DieStats {
    /// Time in which it sensed, programmed, erased, or was taken by a transfer.
    pub busy_ns: u64,
    /// Pages sensed.
    pub reads: u64,
    /// Pages (of all planes) programmed.
    pub programs: u64,
    /// Blocks erased.
    pub erases: u64,
    /// Host reads that found it taken.
    pub collisions: u64,
    /// The time that those reads waited for it.
    pub collision_wait_ns: u64,
}

/// How worn the flash of a namespace is: erases of its zones, or of its flash blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Wear {
    /// Erases of the least worn.
    pub least: u32,
    /// Erases of the most worn.
    pub most: u32,
    /// Mean of the erases.
    pub mean: f64,
}

/// The write commands with a placement hint, and the hints that were refused: the normal rule placed
/// their data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct HintStats {
    /// Commands that carried a hint.
    pub given: u64,
    /// Refused: the neighbour that the hint names is not mapped.
    pub refused_unmapped: u64,
    /// Refused: the die cannot take more data.
    pub refused_no_room: u64,
    /// Refused: the die is worn more than the others.
    pub refused_worn_die: u64,
}

impl HintStats {
    /// Adds the hints that a namespace's FTL has seen.
    pub(crate) const fn add(&mut self, counters: &FtlCounters) {
        self.given += counters.hints;
        self.refused_unmapped += counters.hints_unmapped;
        self.refused_no_room += counters.hints_no_room;
        self.refused_worn_die += counters.hints_worn_die;
    }

    /// Returns the refused hints of all reasons.
    #[must_use]
    pub const fn refused(&self) -> u64 {
        self.refused_unmapped + self.refused_no_room + self.refused_worn_die
    }

    const fn since(&self, earlier: &Self) -> Self {
        Self {
            given: self.given - earlier.given,
            refused_unmapped: self.refused_unmapped - earlier.refused_unmapped,
            refused_no_room: self.refused_no_room - earlier.refused_no_room,
            refused_worn_die: self.refused_worn_die - earlier.refused_worn_die,
        }
    }
}

/// Counters since the device was made; a restored device goes on from the saved state's wear and
/// hints. They only grow (but for `buffered_bytes` and `wear`); the
/// difference of two is an interval.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Stats {
    /// The time up to which they hold.
    pub now_ns: Nanos,
    /// Bytes that the host read.
    pub host_read_bytes: u64,
    /// Time in which at least one read of the host was under way, from the command to its data: the
    /// device's own time for a host that reads one thing after the other.
    pub host_reading_ns: u64,
    /// Bytes that the host wrote (writes, appends, zeroes).
    pub host_written_bytes: u64,
    /// Bytes that were copied inside the device on the host's request.
    pub migrated_bytes: u64,
    /// Commands that asked for that.
    pub migrations: u64,
    /// Bytes that left flash pages over the channels.
    pub sensed_bytes: ByCause,
    /// Bytes programmed, in whole pages, after a transfer.
    pub programmed_bytes: ByCause,
    /// Bytes copied back within a die, without a transfer.
    pub copied_back_bytes: ByCause,
    /// Bytes in the write buffer now.
    pub buffered_bytes: u64,
    /// The time that writes waited for room in the buffer.
    pub buffer_wait_ns: u64,
    /// Time in which each channel was taken.
    pub channel_busy_ns: Vec<u64>,
    /// Time in which the host link was taken by data to the device.
    pub link_in_busy_ns: u64,
    /// Time in which the host link was taken by data to the host.
    pub link_out_busy_ns: u64,
    /// Each die.
    pub dies: Vec<DieStats>,
    /// The wear of each namespace.
    pub wear: Vec<Wear>,
    /// Placement hints, of all namespaces.
    pub hints: HintStats,
}

impl Stats {
    /// Returns the counts since `earlier`, of the same device.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let die = |(now, then): (&DieStats, &DieStats)| DieStats {
            busy_ns: now.busy_ns - then.busy_ns,
            reads: now.reads - then.reads,
            programs: now.programs - then.programs,
            erases: now.erases - then.erases,
            collisions: now.collisions - then.collisions,
            collision_wait_ns: now.collision_wait_ns - then.collision_wait_ns,
        };
        let channels = self.channel_busy_ns.iter().zip(&earlier.channel_busy_ns);
        Self {
            now_ns: Nanos(self.now_ns.0 - earlier.now_ns.0),
            host_read_bytes: self.host_read_bytes - earlier.host_read_bytes,
            host_reading_ns: self.host_reading_ns - earlier.host_reading_ns,
            host_written_bytes: self.host_written_bytes - earlier.host_written_bytes,
            migrated_bytes: self.migrated_bytes - earlier.migrated_bytes,
            migrations: self.migrations - earlier.migrations,
            sensed_bytes: self.sensed_bytes.since(&earlier.sensed_bytes),
            programmed_bytes: self.programmed_bytes.since(&earlier.programmed_bytes),
            copied_back_bytes: self.copied_back_bytes.since(&earlier.copied_back_bytes),
            buffered_bytes: self.buffered_bytes,
            buffer_wait_ns: self.buffer_wait_ns - earlier.buffer_wait_ns,
            channel_busy_ns: channels.map(|(now, then)| now - then).collect(),
            link_in_busy_ns: self.link_in_busy_ns - earlier.link_in_busy_ns,
            link_out_busy_ns: self.link_out_busy_ns - earlier.link_out_busy_ns,
            dies: self.dies.iter().zip(&earlier.dies).map(die).collect(),
            wear: self.wear.clone(),
            hints: self.hints.since(&earlier.hints),
        }
    }

    /// Returns the share of the interval in which the dies were busy, on average: 0 to 1. Meant for
    /// the result of [`Self::since`].
    #[must_use]
    pub fn die_utilisation(&self) -> f64 {
        let busy: u64 = self.dies.iter().map(|die| die.busy_ns).sum();
        busy as f64 / (self.now_ns.0.max(1) as f64 * self.dies.len().max(1) as f64)
    }

    /// Returns the bytes that cells took for each byte that the host wrote or asked to be copied; 1
    /// if there was none.
    #[must_use]
    pub fn write_amplification(&self) -> f64 {
        let asked = self.host_written_bytes + self.migrated_bytes;
        if asked == 0 {
            return 1.0;
        }
        (self.programmed_bytes.total() + self.copied_back_bytes.total()) as f64 / asked as f64
    }

    /// Returns the number of host reads that found a die taken.
    #[must_use]
    pub fn collisions(&self) -> u64 {
        self.dies.iter().map(|die| die.collisions).sum()
    }
}
