//! Everything that a run depends on.

use indef_core::plan::Terms;
use units::Bytes;

/// The volume of a simulated host.
pub const VOLUME: Bytes = Bytes::mib(64);
/// The volume of the host that it stands for.
pub const REAL_VOLUME: Bytes = Bytes::gib(256);
/// Hosts of the fleet.
pub const FLEET: u32 = 1_000;

/// Sizes are divided by this; times, rates for each byte, and sizes of files are not.
#[must_use]
pub const fn scale() -> u64 {
    REAL_VOLUME.0 / VOLUME.0
}

/// A run.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Hosts that are simulated; each stands for as many others of the fleet.
    pub hosts: u32,
    /// Days of virtual time.
    pub days: u32,
    /// Of everything that is drawn.
    pub seed: u64,
    /// What `watch` asks of a move.
    pub terms: Terms,
    /// Free: writes and reads are multiplied by this.
    pub activity: f64,
    /// Free: the memory of a host as a share of its data; what is in it is not read from the drive.
    pub memory: f64,
    /// Free: how often a day `search` reads everything.
    pub searches: f64,
    /// Free: how often a page is read for each update (YCSB-B: 19).
    pub reads_per_update: f64,
    /// Free: the mean size of files is InDeF's (§IV-B), divided by this, as few of them would fill so small a volume.
    pub size_divisor: u64,
    /// Free: threads that write at a time.
    pub flows: usize,
    /// Free: the part of a day in which nobody reads or writes, so that F2FS cleans.
    pub quiet: f64,
    /// Data on F2FS is moved also where F2FS would move it into holes, of which indef's engine keeps away.
    pub into_holes: bool,
    /// What `watch` knows of reads.
    pub known: Known,
    /// `watch` learns nothing from what became of its predictions: neither how long layouts last, nor what moves gave and took,
    /// nor how far a count is to be believed.
    pub is_trusting: bool,
}

/// What `watch` knows of reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// What ten minutes of tracing an hour show, as a profile keeps it.
    Traced,
    /// How often each range is read, and how long it takes as it lies now: what a perfect trace would show.
    Everything,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            hosts: 32,
            days: 365,
            seed: 1,
            terms: Terms::default(),
            activity: 1.0,
            memory: 0.125,
            searches: 1.0,
            reads_per_update: 19.0,
            size_divisor: 8,
            flows: 4,
            quiet: 0.5,
            into_holes: false,
            known: Known::Traced,
            is_trusting: false,
        }
    }
}
