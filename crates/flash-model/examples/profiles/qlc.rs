//! An SLC cache before slow cells, on the profile that is built in for it.

use flash_model::{Device, NamespaceKind};
use units::Nanos;

use super::drive::{KIB, MIB, closed_loop, device, write};

const STEP: u64 = 4 * MIB;
const STEPS: u64 = 50;

pub(crate) struct Cliff {
    /// The first 32 MiB, MB/s.
    pub first: f64,
    /// Bytes before a step that is four times as slow as the first one.
    pub fall: f64,
    /// The second half of all that was written, MB/s.
    pub full: f64,
    /// 32 MiB after ten seconds without a command, MB/s.
    pub after_idle: f64,
}

/// A conventional namespace of 1 GiB, written in order, and again from the beginning after idle time.
pub(crate) fn cliff() -> Cliff {
    let mut device = device("qlc", NamespaceKind::Conventional, 1024 * MIB);
    let mut ends = vec![0];
    for at in 0..STEPS {
        let now = ends[ends.len() - 1];
        ends.push(burst(&mut device, now, at * STEP, STEP));
    }
    let took: Vec<u64> = ends.windows(2).map(|two| two[1] - two[0]).collect();
    let fall = took.iter().position(|it| *it > 4 * took[0]);
    let half = ends.len() / 2;
    let (written, last) = ((STEPS - half as u64) * STEP, ends[ends.len() - 1]);

    let now = Nanos(last + 10_000_000_000);
    let mut finished = Vec::new();
    while let Some(next) = device.next_event().filter(|next| next.0 < now.0) {
        device.advance(next, &mut finished);
    }
    device.advance(now, &mut finished);
    let again = burst(&mut device, now.0, 0, 32 * MIB) - now.0;
    Cliff {
        first: rate(32 * MIB, ends[8]),
        fall: (fall.expect("the cache is full at last") as u64 * STEP) as f64,
        full: rate(written, last - ends[half]),
        after_idle: rate(32 * MIB, again),
    }
}

/// Writes of 128 KiB, 16 at a time; returns the end.
fn burst(device: &mut Device, now: u64, offset: u64, bytes: u64) -> u64 {
    let writes = (0..bytes / (128 * KIB)).map(|at| write(offset + at * 128 * KIB, 128 * KIB));
    closed_loop(device, now, 16, writes)
}

/// MB/s.
fn rate(bytes: u64, nanos: u64) -> f64 {
    bytes as f64 / nanos as f64 * 1e3
}
