//! A file that is written bit by bit between writes to others, and the speed of reading it then.

use flash_model::{Device, Profile, Span};
use units::Nanos;
use workloads::Numbers;

use super::{
    device::{drive, stripe},
    dummy::PublishedDraws,
    host::{File, Host, KIB, MIB, mib_per_s},
};

/// The namespace, of which most is never written: there is nothing to collect.
const DRIVE: u64 = 2048 * MIB;

/// The change to the target file, made bit by bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// By appending.
    Append,
    /// By overwriting a file that was written in one go.
    Overwrite,
}

/// The writes to other files between two writes to the target file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dummy {
    /// The same each time (bytes).
    Fixed(u64),
    /// 1 to 32 granules, as the artifact's programs draw them.
    Published,
    /// 1 to 32 granules, drawn anew.
    Drawn(u64),
}

impl Dummy {
    fn sizes(self, granule: u64) -> Box<dyn Iterator<Item = u64>> {
        match self {
            Self::Fixed(bytes) => Box::new(std::iter::repeat(bytes)),
            Self::Published => Box::new(
                PublishedDraws::new().map(move |drawn| (u64::from(drawn) % 32 + 1) * granule),
            ),
            Self::Drawn(seed) => {
                let mut numbers = Numbers::new(seed);
                Box::new(std::iter::from_fn(move || {
                    Some((numbers.below(32) + 1) * granule)
                }))
            }
        }
    }
}

/// The target file, the device that it is on, and the host's time for a call.
#[derive(Clone, Debug)]
pub struct Target {
    /// The device.
    pub profile: Profile,
    /// Bytes of the file.
    pub file: u64,
    /// Bytes of each write to it: the die allocation granularity.
    pub granule: u64,
    /// The host's time for each system call that reads.
    pub per_call: Nanos,
}

impl Target {
    /// The dummy writes that put every granule on one die.
    #[must_use]
    pub fn worst(&self) -> Dummy {
        Dummy::Fixed(stripe(&self.profile) - self.granule)
    }

    /// Speed of reading the file if it was written in one go, in MiB/s.
    #[must_use]
    pub fn contiguous(&self) -> f64 {
        let mut host = Host::new(drive(&self.profile, DRIVE), false, self.per_call);
        let mut file = File::default();
        host.append(&mut file, self.file);
        mib_per_s(self.file, host.read(&file))
    }

    /// Speed of reading it after appends or overwrites of a granule with dummy writes between them, in MiB/s.
    #[must_use]
    pub fn disturbed(&self, change: Change, dummy: Dummy, hints: bool) -> f64 {
        let mut host = Host::new(drive(&self.profile, DRIVE), hints, self.per_call);
        let mut file = File::default();
        if change == Change::Overwrite {
            host.append(&mut file, self.file);
        }
        for (start, size) in (0..self.file)
            .step_by(self.granule as usize)
            .zip(dummy.sizes(self.granule))
        {
            match change {
                Change::Append => host.append(&mut file, self.granule),
                Change::Overwrite => host.overwrite(&file, start, self.granule),
            }
            host.append(&mut File::default(), size);
        }
        mib_per_s(self.file, host.read(&file))
    }

    /// The time that each reading system call must cost the host for a contiguous file to be read at `speed`
    /// (MiB/s): the time that the device does not explain.
    #[must_use]
    pub fn cost_of_a_call(&self, speed: f64) -> Nanos {
        let device_only = Self {
            per_call: Nanos(0),
            ..self.clone()
        };
        let mib = self.file as f64 / MIB as f64;
        let seconds = mib / speed - mib / device_only.contiguous();
        // One call for each MiB.
        Nanos((seconds / mib * 1e9).max(0.0) as u64)
    }
}

/// Returns the speed in MiB/s of `reads` random 4 KiB reads at multiples of `interval` in the first GiB, which
/// was written in order; `depth` of them at a time.
#[must_use]
pub fn aligned_reads(filled: &Device, interval: u64, depth: usize, reads: u64) -> f64 {
    let mut host = Host::new(filled.clone(), false, Nanos(0));
    host.sync();
    let mut numbers = Numbers::new(interval);
    let spans = (0..reads).map(|_| Span {
        offset: numbers.below(1024 * MIB / interval) * interval,
        len: 4 * KIB,
    });
    mib_per_s(reads * 4 * KIB, host.read_spans(spans, depth))
}

/// Returns a device whose first GiB was written in order.
#[must_use]
pub fn filled(profile: &Profile) -> Device {
    let mut host = Host::new(drive(profile, DRIVE), false, Nanos(0));
    host.append(&mut File::default(), 1024 * MIB);
    host.device().clone()
}
