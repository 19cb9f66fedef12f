//! The ZN540-like device under the loads whose results were published.

use flash_model::{Command, Device, ZoneAction};

use super::drive::{KIB, MIB, closed_loop, run, write, zoned};

const ZONE: u64 = 2048 * MIB;
const CAPACITY: u64 = 1077 * MIB;

fn zn540(zones: u64) -> Device {
    zoned("zn540", zones * ZONE)
}

/// Writes `bytes` of the first zone, and waits until all is on flash.
fn filled(bytes: u64) -> (Device, u64) {
    let mut device = zn540(4);
    let writes = (0..bytes.div_ceil(MIB)).map(|at| write(at * MIB, MIB.min(bytes - at * MIB)));
    let written = closed_loop(&mut device, 0, 4, writes);
    (device, written + 1_000_000_000)
}

/// A write of 4 KiB, alone: nanoseconds.
pub(crate) fn one_write() -> f64 {
    let writes = (0..1000).map(|at| write(at * 4 * KIB, 4 * KIB));
    closed_loop(&mut zn540(2), 0, 1, writes) as f64 / 1000.0
}

/// An append of 4 KiB among `depth`: nanoseconds from one to the next.
pub(crate) fn append(depth: usize) -> f64 {
    let count = 20_000;
    let append = Command::Append {
        zone: 0,
        len: 4 * KIB,
        fua: false,
    };
    let appends = std::iter::repeat_n(append, count);
    closed_loop(&mut zn540(2), 0, depth, appends) as f64 / count as f64
}

/// Writes of 128 KiB to `zones` zones together: MiB/s, without what the buffer took at once.
pub(crate) fn write_zones(zones: u64) -> f64 {
    let writes = (0..8 * 1024).map(|at| {
        let (zone, at) = (at % zones, at / zones);
        write(zone * ZONE + at * 128 * KIB, 128 * KIB)
    });
    let end = closed_loop(&mut zn540(14), 0, 14, writes);
    992.0 / (end as f64 / 1e9)
}

/// Random reads of 4 KiB among `depth`: nanoseconds from one to the next.
pub(crate) fn random_read(depth: usize, count: u64) -> f64 {
    let (mut device, now) = filled(CAPACITY);
    let blocks = CAPACITY / (4 * KIB);
    let mut state = 1_u64;
    // A generator of full period, so that every die gets its share by chance.
    let reads = (0..count).map(|_| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        Command::Read {
            offset: (state >> 33) % blocks * 4 * KIB,
            len: 4 * KIB,
        }
    });
    (closed_loop(&mut device, now, depth, reads) - now) as f64 / count as f64
}

/// Sequential reads of 128 KiB, 64 at a time: MiB/s.
pub(crate) fn sequential_read() -> f64 {
    let (mut device, now) = filled(CAPACITY);
    let reads = (0..CAPACITY / (128 * KIB)).map(|at| Command::Read {
        offset: at * 128 * KIB,
        len: 128 * KIB,
    });
    let end = closed_loop(&mut device, now, 64, reads);
    1077.0 / ((end - now) as f64 / 1e9)
}

/// A reset, or finish, of a zone of which so many bytes are written: nanoseconds.
pub(crate) fn zone_action(action: ZoneAction, written: u64) -> f64 {
    let (mut device, now) = filled(written);
    let command = Command::Zone {
        start: 0,
        all: false,
        action,
    };
    (run(&mut device, now, &command) - now) as f64
}

/// The published states of a zone before a reset, and before a finish.
pub(crate) const RESETS: [(&str, u64); 3] = [
    ("full", CAPACITY),
    ("half", CAPACITY / 2),
    ("quarter", CAPACITY / 4),
];
pub(crate) const FINISHES: [(&str, u64); 3] = [
    ("one LBA", 4 * KIB),
    ("half", CAPACITY / 2),
    ("the end", CAPACITY - 4 * KIB),
];
