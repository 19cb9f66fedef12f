//! FAST'24's Figures 8, 11 and 12: placement, and the cost of reading with it.

use std::{cmp::Reverse, collections::BinaryHeap};

use flash_model::{Command, Device, NamespaceKind, NamespaceSpec, Profile};
use units::{Bytes, Nanos};
use workloads::Numbers;

use super::{
    dummy::PublishedDraws,
    host::{File, Host, KIB, MIB, mib_per_s},
};

/// The target file (§5.1).
pub(crate) const FILE: u64 = 8 * MIB;
/// Its writes, each of one die allocation granule.
const WRITES: u64 = 256;
/// Die allocation granularity of the paper's NVMe-A, NVMe-B and emulated device.
pub(crate) const GRANULE: u64 = 32 * KIB;

/// The change to the target file, made bit by bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Append,
    Overwrite,
}

/// The writes to other files between two writes to the target file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dummy {
    /// The same each time (bytes).
    Fixed(u64),
    /// 1 to 32 granules, as the artifact's programs draw them.
    Published,
    /// 1 to 32 granules, drawn anew.
    Drawn(u64),
}

impl Dummy {
    fn sizes(self) -> Box<dyn Iterator<Item = u64>> {
        match self {
            Self::Fixed(bytes) => Box::new(std::iter::repeat(bytes)),
            Self::Published => {
                Box::new(PublishedDraws::new().map(|drawn| (u64::from(drawn) % 32 + 1) * GRANULE))
            }
            Self::Drawn(seed) => {
                let mut numbers = Numbers::new(seed);
                Box::new(std::iter::from_fn(move || {
                    Some((numbers.below(32_u64) + 1) * GRANULE)
                }))
            }
        }
    }
}

pub(crate) fn device(profile: &Profile, size: u64) -> Device {
    let spec = NamespaceSpec {
        kind: NamespaceKind::Conventional,
        size: Bytes(size),
    };
    Device::new(profile, &[spec]).expect("the profile has room for the namespace")
}

/// Returns the bytes that go to all dies before it is the first one's turn again.
pub(crate) fn stripe(profile: &Profile) -> u64 {
    profile.geometry().unit.0 * u64::from(profile.geometry().dies())
}

/// Speed of reading a file that was written in one go, in MiB/s.
pub(crate) fn contiguous(profile: &Profile, per_call: Nanos) -> f64 {
    let mut host = Host::new(device(profile, 2048 * MIB), false, per_call);
    let mut file = File::default();
    host.append(&mut file, FILE);
    mib_per_s(FILE, host.read(&file))
}

/// Speed of reading a file after 256 appends or overwrites with dummy writes between them, in
/// MiB/s.
pub(crate) fn disturbed(
    profile: &Profile,
    change: Change,
    dummy: Dummy,
    hints: bool,
    per_call: Nanos,
) -> f64 {
    let mut host = Host::new(device(profile, 2048 * MIB), hints, per_call);
    let mut file = File::default();
    if change == Change::Overwrite {
        host.append(&mut file, FILE);
    }
    for (nth, size) in (0..WRITES).zip(dummy.sizes()) {
        match change {
            Change::Append => host.append(&mut file, GRANULE),
            Change::Overwrite => host.overwrite(&file, nth * GRANULE, GRANULE),
        }
        host.append(&mut File::default(), size);
    }
    mib_per_s(FILE, host.read(&file))
}

/// Mean, least and most of [`disturbed`] over `runs` different random dummy sizes.
pub(crate) fn disturbed_at_random(
    profile: &Profile,
    change: Change,
    hints: bool,
    per_call: Nanos,
    runs: u64,
) -> [f64; 3] {
    let speeds: Vec<f64> = (0..runs)
        .map(|seed| disturbed(profile, change, Dummy::Drawn(seed), hints, per_call))
        .collect();
    let mean = speeds.iter().sum::<f64>() / runs as f64;
    let least = speeds.iter().copied().fold(f64::INFINITY, f64::min);
    [mean, least, speeds.iter().copied().fold(0.0, f64::max)]
}

/// Returns the time that each reading system call must cost the host for a contiguous file to be
/// read at `speed` (MiB/s): the time that the device does not explain.
pub(crate) fn cost_of_a_call(profile: &Profile, speed: f64) -> Nanos {
    let device_only = FILE as f64 / MIB as f64 / contiguous(profile, Nanos(0));
    let published = FILE as f64 / MIB as f64 / speed;
    let calls = (FILE / MIB) as f64;
    Nanos(((published - device_only) / calls * 1e9).max(0.0) as u64)
}

/// Figure 8: returns the speed in MiB/s of `reads` random 4 KiB reads at multiples of `interval` in
/// the first GiB, which was written in order; `depth` of them at a time.
pub(crate) fn aligned_reads(filled: &Device, interval: u64, depth: usize, reads: u64) -> f64 {
    let mut host = Host::new(filled.clone(), false, Nanos(0));
    host.sync();
    let began = host.now();
    let mut numbers = Numbers::new(interval);
    let mut flying = BinaryHeap::new();
    for _ in 0..reads {
        if flying.len() == depth {
            let Reverse(done) = flying.pop().expect("the depth is not 0");
            host.wait_until(done);
        }
        let offset = numbers.below(1024 * MIB / interval) * interval;
        flying.push(Reverse(host.submit(&Command::Read {
            offset,
            len: 4 * KIB,
        })));
    }
    let ended = flying
        .into_iter()
        .map(|Reverse(done)| done)
        .max()
        .unwrap_or(began);
    mib_per_s(reads * 4 * KIB, Nanos(ended.0 - began.0))
}

/// Returns a device whose first GiB was written in order.
pub(crate) fn filled(profile: &Profile) -> Device {
    let mut host = Host::new(device(profile, 2048 * MIB), false, Nanos(0));
    host.append(&mut File::default(), 1024 * MIB);
    host.device().clone()
}
