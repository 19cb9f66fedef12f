//! Options: the layer, the filters, and the limits of a trace.

use std::path::PathBuf;

use units::Bytes;

use super::sampling::Sampling;

/// Where reads and writes are seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layer {
    /// Below the page cache: what really reaches the device (InDeF §III-A).
    Fs,
    /// At the system call: what the application asks for (FragPicker §4.1.2).
    Syscall,
}

impl Layer {
    /// The name on the command line and in the profile.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Fs => "fs",
            Self::Syscall => "syscall",
        }
    }
}

/// The accesses that count. They have to pass all filters; of several names, paths or devices, one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Only these processes, with all children that they fork while they are watched. Empty: all.
    pub pids: Vec<u32>,
    /// Only followed processes, even if none is named yet (`Collector::follow`).
    pub only_followed: bool,
    /// Only processes of these names (`/proc/PID/comm`), with all their threads.
    pub comms: Vec<String>,
    /// Only processes in this control group (a folder of cgroup v2) or below.
    pub cgroup: Option<PathBuf>,
    /// Only processes of this user.
    pub uid: Option<u32>,
    /// Only these files, or files in these trees.
    pub paths: Vec<PathBuf>,
    /// Only files on these devices (`/dev/…`).
    pub devices: Vec<PathBuf>,
}

/// How to collect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceOptions {
    /// Where reads and writes are seen.
    pub layer: Layer,
    /// Whether reads count.
    pub reads: bool,
    /// Whether writes count.
    pub writes: bool,
    /// Which accesses count.
    pub filter: Filter,
    /// Layer syscall: how far the kernel reads ahead of a sequential buffered reader; `None`: as
    /// the device of each file says. With zero, each read counts as it was asked for.
    pub readahead: Option<Bytes>,
    /// Hand out every single access, too (`Drained::accesses`): nothing is sampled then.
    pub raw: bool,
    /// How many of the accesses are counted.
    pub sampling: Sampling,
    /// Let all others go first: the thread that reads the ring is no more urgent than the one that starts it. If both are
    /// kept from running for long, accesses may be lost, and are counted as lost.
    pub aside: bool,
    /// How many ranges, and how many single accesses, may wait for `Collector::drain`; further ones are
    /// lost, and counted as lost. About 50 bytes each.
    pub held: usize,
}

impl Default for TraceOptions {
    fn default() -> Self {
        Self {
            layer: Layer::Fs,
            reads: true,
            writes: true,
            filter: Filter::default(),
            readahead: None,
            raw: false,
            sampling: Sampling::All,
            aside: false,
            held: (1 << 19) / 8 * 7,
        }
    }
}
