//! Every number that the model depends on, beside the device's profile and the workload.
//!
//! Each has its unit in its type, and its source. *Free* ones are not told by the papers: an experiment shows how far
//! its result depends on them.

use units::{Bytes, Nanos};

use crate::log::{LogMode, VictimPolicy};

/// All parameters. The defaults are InDeF's system: F2FS on its emulated ZNS SSD.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Parameters {
    /// The log allocator.
    pub log: LogParameters,
    /// The in-place allocator.
    pub groups: GroupParameters,
    /// The page cache.
    pub cache: CacheParameters,
    /// The host.
    pub host: HostParameters,
}

/// Parameters of the log allocator.
#[derive(Clone, Debug, PartialEq)]
pub struct LogParameters {
    /// A segment: 2 MiB (F2FS, FAST'15 §2.1; InDeF §III-B).
    pub segment: Bytes,
    /// A section, the unit of cleaning; a zone, where there are zones: 32 MiB (InDeF §IV).
    pub section: Bytes,
    /// Whether heads fill holes; on a zoned device never (F2FS: `mode=lfs`).
    pub mode: LogMode,
    /// Cleaning begins when no more sections than this are free. Free: 16; mkfs.f2fs reserves a head's section for
    /// each log, and some more by its over-provisioning.
    pub reserved_sections: u32,
    /// The choice of the section to clean: greedy, as F2FS in the foreground.
    pub victim: VictimPolicy,
    /// Blocks that one thread adds to a log before another one that waits for it has its turn. Free: 2, as files of
    /// fileserver on F2FS have 1068 to 1395 fragments for 8.4 MB, 6 to 8 KiB each (FragPicker §5.4).
    pub turn_blocks: u32,
    /// Time between checkpoints: 60 s (F2FS: `cp_interval`).
    pub checkpoint_interval: Nanos,
}

impl Default for LogParameters {
    fn default() -> Self {
        Self {
            segment: Bytes::mib(2),
            section: Bytes::mib(32),
            mode: LogMode::Lfs,
            reserved_sections: 16,
            victim: VictimPolicy::Greedy,
            turn_blocks: 2,
            checkpoint_interval: Nanos(60_000_000_000),
        }
    }
}

/// Parameters of the in-place allocator.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupParameters {
    /// A block group: 128 MiB, the blocks of a bitmap of one block (ext4).
    pub group: Bytes,
    /// Whether blocks are allocated when data is written back (ext4: `delalloc`), or as soon as a call writes it.
    pub delayed_allocation: bool,
    /// Whether blocks beyond a file's end are kept for it.
    pub preallocation: bool,
}

impl Default for GroupParameters {
    fn default() -> Self {
        Self {
            group: Bytes::mib(128),
            delayed_allocation: true,
            preallocation: true,
        }
    }
}

/// Parameters of the page cache.
#[derive(Clone, Debug, PartialEq)]
pub struct CacheParameters {
    /// Clean pages that it keeps: 4 GiB. Free; the guest of InDeF has 8 GB (Table I).
    pub pages: Bytes,
    /// Dirty bytes at which the flusher begins: 800 MB, 10 % of 8 GB (Linux: `vm.dirty_background_ratio`).
    pub dirty_background: Bytes,
    /// Dirty bytes at which writers wait for it: 1600 MB, 20 % of 8 GB (Linux: `vm.dirty_ratio`).
    pub dirty_limit: Bytes,
    /// Bytes of a file that the flusher writes before it goes on to the next one: 4 MiB (Linux:
    /// `MIN_WRITEBACK_PAGES`, fs/fs-writeback.c, v6.12, which are the fewest). Free.
    pub writeback_chunk: Bytes,
    /// The longest window of read-ahead: 128 KiB (Linux: `VM_READAHEAD_PAGES`).
    pub readahead: Bytes,
}

impl Default for CacheParameters {
    fn default() -> Self {
        Self {
            pages: Bytes::gib(4),
            dirty_background: Bytes(800_000_000),
            dirty_limit: Bytes(1_600_000_000),
            writeback_chunk: Bytes::mib(4),
            readahead: Bytes::kib(128),
        }
    }
}

/// Parameters of the host.
#[derive(Clone, Debug, PartialEq)]
pub struct HostParameters {
    /// Processors: 4 (InDeF Table I).
    pub cpus: usize,
    /// Processor time of a system call. Free: 1 µs.
    pub call: Nanos,
    /// Processor time of a block that a call copies and places. Free: 1 µs.
    pub block: Nanos,
    /// Processor time of a defragmenter for a file, beside its calls and its data: it opens it, asks for its extents, makes
    /// and removes a donor. 0: left out; no paper tells it.
    pub file: Nanos,
    /// Processor time of a request to the device, from its submission to its completion. Free: 10 µs; in
    /// an emulator each one leaves the guest.
    pub request: Nanos,
    /// The longest request: 256 KiB (InDeF §IV: "we fix the size of read requests as 256KB").
    pub max_request: Bytes,
    /// Requests under way at which writers wait: 128 (Linux: `BLKDEV_MAX_RQ`, include/linux/blkdev.h, v4.10). Free: with
    /// 50 threads that write 1 MiB each it decides whether they meet at the log at all.
    pub queue_depth: usize,
}

impl Default for HostParameters {
    fn default() -> Self {
        Self {
            cpus: 4,
            call: Nanos(1_000),
            block: Nanos(1_000),
            file: Nanos(0),
            request: Nanos(10_000),
            max_request: Bytes::kib(256),
            queue_depth: 128,
        }
    }
}
