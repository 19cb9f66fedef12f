//! The ZN540-like profile against the published numbers of the device (docs/flash-model.md).

use super::*;

const ZONE: u64 = 2048 * MIB;
const CAPACITY: u64 = 1077 * MIB;

fn zn540(zones: u64) -> Device {
    device("zn540", NamespaceKind::Zoned, zones * ZONE)
}

fn append(zone: u64, len: u64) -> Command<'static> {
    Command::Append {
        zone: zone * ZONE,
        len,
        fua: false,
    }
}

/// Writes `bytes` of a zone, and waits until all is on flash.
fn fill_zone(device: &mut Device, now: u64, zone: u64, bytes: u64) -> u64 {
    let mut at = 0;
    let writes = std::iter::from_fn(|| {
        let len = MIB.min(bytes - at);
        at += len;
        (len > 0).then(|| write(zone * ZONE + at - len, len))
    });
    let written = closed_loop(device, now, 4, writes);
    written + 1_000_000_000
}

fn zone_command(device: &mut Device, now: u64, zone: u64, action: ZoneAction) -> f64 {
    let command = Command::Zone {
        start: zone * ZONE,
        all: false,
        action,
    };
    (run(device, now, &command) - now) as f64 / 1e6
}

#[test]
fn writes_and_appends_of_4_kib() {
    let mut device = zn540(2);
    let mean = |end: u64, count: u64| end as f64 / count as f64 / 1e3;
    let writes = (0..1000).map(|at| write(at * 4 * KIB, 4 * KIB));
    within(
        10.0,
        mean(closed_loop(&mut device, 0, 1, writes), 1000),
        11.4,
    );
    let mut device = zn540(2);
    let appends = (0..1000).map(|_| append(0, 4 * KIB));
    within(
        10.0,
        mean(closed_loop(&mut device, 0, 1, appends), 1000),
        14.8,
    );
    for depth in [4, 16] {
        let mut device = zn540(2);
        let appends = (0..20_000).map(|_| append(0, 4 * KIB));
        let end = closed_loop(&mut device, 0, depth, appends);
        within(10.0, 20_000.0 / end as f64 * 1e6, 132.0);
    }
}

#[test]
fn all_zones_together_write_no_faster_than_one() {
    for zones in [1, 14] {
        let mut device = zn540(14);
        let writes = (0..8 * 1024).map(|at| {
            let (zone, at) = (at % zones, at / zones);
            write(zone * ZONE + at * 128 * KIB, 128 * KIB)
        });
        let end = closed_loop(&mut device, 0, 14, writes);
        // The buffer took the first 32 MiB at once.
        let rate = 992.0 / (end as f64 / 1e9);
        within(10.0, rate, 1150.0);
    }
}

#[test]
fn reads() {
    let mut device = zn540(4);
    let now = fill_zone(&mut device, 0, 0, CAPACITY);
    let blocks = CAPACITY / (4 * KIB);
    // A generator of full period, so that every die gets its share by chance.
    let random = |count: u64| {
        let mut state = 1_u64;
        (0..count).map(move |_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            Command::Read {
                offset: (state >> 33) % blocks * 4 * KIB,
                len: 4 * KIB,
            }
        })
    };
    let end = closed_loop(&mut device, now, 1, random(1000));
    within(10.0, (end - now) as f64 / 1e6, 72.6);
    let now = end + MIB;
    let end = closed_loop(&mut device, now, 256, random(100_000));
    within(10.0, 1e11 / (end - now) as f64, 437.0);
    let now = end + MIB;
    let sequential = (0..CAPACITY / (128 * KIB)).map(|at| Command::Read {
        offset: at * 128 * KIB,
        len: 128 * KIB,
    });
    let end = closed_loop(&mut device, now, 64, sequential);
    within(10.0, 1077.0 / ((end - now) as f64 / 1e9), 3103.0);
}

#[test]
fn resets_and_finishes() {
    for (part, reset) in [(1, 16.9), (2, 12.2), (4, 8.7)] {
        let mut device = zn540(2);
        let now = fill_zone(&mut device, 0, 0, CAPACITY / part);
        within(
            10.0,
            zone_command(&mut device, now, 0, ZoneAction::Reset),
            reset,
        );
    }
    for (bytes, finish) in [
        (4 * KIB, 908.0),
        (CAPACITY / 2, 457.0),
        (CAPACITY - 4 * KIB, 4.1),
    ] {
        let mut device = zn540(2);
        let now = fill_zone(&mut device, 0, 0, bytes);
        within(
            10.0,
            zone_command(&mut device, now, 0, ZoneAction::Finish),
            finish,
        );
    }
}
