//! The times of requests that are longer than a block: fragments are of all lengths.
//!
//! A longer request takes longer by itself, as its data goes over a channel one byte after the other;
//! and those that go to units of their own wait for each other's channel.

use serde::{Deserialize, Serialize};
use units::{Bytes, FileRange, Nanos};

use super::{
    Drive, Halt, KINDS, Measured, Prober, USUAL_READ,
    speed::{CHAINS, time},
};

const LENGTHS: [Bytes; KINDS] = [Bytes::kib(16), Bytes::kib(32), Bytes::kib(64)];

/// The times of requests of one length.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Longer {
    /// The length.
    pub len: Bytes,
    /// One of them alone.
    pub latency: Nanos,
    /// [`USUAL_READ`] in such requests at random places, all at once.
    pub scattered: Nanos,
}

impl<D: Drive> Prober<'_, D> {
    /// The times of longer requests.
    pub(super) fn longer(&mut self) -> Result<Measured<[Longer; KINDS]>, Halt<D::Error>> {
        let mut confidence: f64 = 1.0;
        let mut longer = LENGTHS.map(|len| Longer {
            len,
            latency: Nanos(0),
            scattered: Nanos(0),
        });
        for times in &mut longer {
            let len = times.len.0;
            let mut of = |count: u64| {
                let times = self.bursts(CHAINS, |prober| {
                    (0..count)
                        .map(|_| Ok(FileRange::new(prober.place(len)?, len)))
                        .collect()
                })?;
                Ok::<_, Halt<D::Error>>(time(times.all())?)
            };
            let (one, all) = (of(1)?, of(USUAL_READ.0 / len)?);
            confidence = confidence.min(one.confidence).min(all.confidence);
            times.latency = one.value;
            times.scattered = all.value;
        }
        Ok(Measured {
            value: longer,
            confidence,
        })
    }
}
