//! What is measured, and where.

use std::path::PathBuf;

use scratch_fs::ScratchFs;

/// The bound that is given to the trace, in percent of one processor's time; also the goal for fio's
/// processor time of a read.
pub(super) const BOUND: f64 = 1.0;
const DIRECT_1: &[&str] = &["--rw=randread", "--bs=4k", "--direct=1", "--ioengine=psync"];
const DIRECT_32: &[&str] = &[
    "--rw=randread",
    "--bs=4k",
    "--direct=1",
    "--ioengine=libaio",
    "--iodepth=32",
];
const BUFFERED: &[&str] = &["--rw=randread", "--bs=128k", "--ioengine=psync"];
const CACHED: &[&str] = &[
    "--rw=randread",
    "--bs=4k",
    "--ioengine=psync",
    "--invalidate=0",
    "--pre_read=1",
    "--norandommap=1",
];

/// Whose accesses the trace counts.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Counted {
    /// Those to fio's file.
    File,
    /// Those on another device.
    OtherDevice,
    /// Those of another process.
    OtherProcess,
}

pub(super) struct OverheadCase {
    pub(super) name: &'static str,
    pub(super) layer: &'static str,
    pub(super) counts: Counted,
    pub(super) fio: &'static [&'static str],
    /// Seconds before those that are measured, and these.
    pub(super) settle: u64,
    pub(super) measured: u64,
}

/// The first seconds of a trace, with what a load costs that comes suddenly.
pub(super) const SHORT: (u64, u64) = (1, 10);
/// A trace that has settled; the measured time holds several windows.
pub(super) const LONG: (u64, u64) = (15, 20);
/// The same where windows differ by more than what they cost.
const LONGER: (u64, u64) = (LONG.0, 60);

pub(super) const CASES: [OverheadCase; 11] = [
    case(
        "direct, one at a time",
        "fs",
        Counted::File,
        DIRECT_1,
        SHORT,
    ),
    case(
        "direct, 32 at a time",
        "fs",
        Counted::File,
        DIRECT_32,
        SHORT,
    ),
    case("buffered, 128 KiB", "fs", Counted::File, BUFFERED, SHORT),
    case(
        "direct, one at a time",
        "syscall",
        Counted::File,
        DIRECT_1,
        SHORT,
    ),
    case(
        "from the page cache",
        "syscall",
        Counted::File,
        CACHED,
        SHORT,
    ),
    case(
        "direct, 32 at a time, settled",
        "fs",
        Counted::File,
        DIRECT_32,
        LONG,
    ),
    case(
        "from the page cache, settled",
        "syscall",
        Counted::File,
        CACHED,
        LONG,
    ),
    case(
        "direct, 32 at a time, other device traced",
        "fs",
        Counted::OtherDevice,
        DIRECT_32,
        SHORT,
    ),
    case(
        "direct, 32 at a time, other device traced, settled",
        "fs",
        Counted::OtherDevice,
        DIRECT_32,
        LONGER,
    ),
    case(
        "from the page cache, other process traced",
        "syscall",
        Counted::OtherProcess,
        CACHED,
        SHORT,
    ),
    case(
        "from the page cache, other process traced, settled",
        "syscall",
        Counted::OtherProcess,
        CACHED,
        LONG,
    ),
];

impl OverheadCase {
    /// How its reads are told.
    pub(super) fn told(&self) -> Told {
        match self.fio == DIRECT_32 {
            // libaio's are no calls of their own.
            true => Told::ByBytes(4096),
            false => Told::ByCalls,
        }
    }
}

const fn case(
    name: &'static str,
    layer: &'static str,
    counts: Counted,
    fio: &'static [&'static str],
    (settle, measured): (u64, u64),
) -> OverheadCase {
    OverheadCase {
        name,
        layer,
        counts,
        fio,
        settle,
        measured,
    }
}

/// How reads are told from /proc/PID/io.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Told {
    /// Each is a system call.
    ByCalls,
    /// Each brings so many bytes from the device.
    ByBytes(u64),
}

/// Where it is measured, and with which program.
pub(super) struct TestBed {
    pub(super) indef: PathBuf,
    pub(super) file: PathBuf,
    pub(super) profile: PathBuf,
    pub(super) other: ScratchFs,
}
