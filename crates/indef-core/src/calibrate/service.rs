//! The time of contiguous reads on a busy device, measured instead of modelled.
//!
//! Once reads wait for each other, the slope of their times no longer tells what a move saves. A
//! device that serves many requests at a time has longer queues for all of them, whoever is ahead of
//! whom; and without fragments it may reach another bound, the bytes that its bus carries. So the
//! device is asked: the reads of the profile are done as they lie now, and others of the same lengths
//! on ranges that are contiguous, each by as many readers as it takes until the former take as long
//! as they took in the trace. The ratio of the two is what moving everything gives.
//!
//! A plan that moves a part is asked for likewise: its ranges are read as contiguous ones, the others as they lie. What
//! such a part gives is not its part of the cost of all fragments: whose requests wait for whose depends on where
//! on the device they lie.

use super::CannotPredict;

/// The most readers.
pub const MOST_READERS: u32 = 256;

/// The replayed reads may be faster or slower than the traced ones by this factor.
const ALIKE: f64 = 1.35;

/// The mean time of reads, with its standard error as a part of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MeanTime {
    /// The mean.
    pub ns: f64,
    /// Its error.
    pub error: f64,
}

/// All kinds of reads by the same number of readers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ServicePass {
    /// The reads of the profile as they lie.
    pub as_is: MeanTime,
    /// Contiguous reads of the same lengths.
    pub contiguous: MeanTime,
    /// These where a plan moves the range, and the others as they lie; `None` where it moves all or nothing.
    pub planned: Option<MeanTime>,
}

/// The time of reads as a part of that of the profile's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio {
    /// The part: no layout gives time back, so it is at most 1.
    pub ratio: f64,
    /// Standard error of it, as a part of it.
    pub error: f64,
}

/// The time of reads under the load of the trace.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Service {
    /// Readers under which the reads of the profile take as long as in the trace.
    pub readers: f64,
    /// That of contiguous reads.
    pub contiguous: Ratio,
    /// That after a plan which moves a part of what is fragmented.
    pub planned: Option<Ratio>,
}

impl Service {
    /// Find the number of readers: `run` does both kinds of reads with a number of them.
    ///
    /// # Errors
    ///
    /// With no number do reads take as long as in the trace, or `run` has nothing to read.
    pub fn find(
        traced_ns: f64,
        mut run: impl FnMut(u32) -> Result<ServicePass, CannotPredict>,
    ) -> Result<Self, CannotPredict> {
        let mut below: Option<(u32, ServicePass)> = None;
        let mut readers = 1;
        while readers <= MOST_READERS {
            let pass = run(readers)?;
            if pass.as_is.ns >= traced_ns {
                return match below {
                    Some(below) => Ok(Self::between(traced_ns, below, (readers, pass))),
                    None => Self::at(traced_ns, readers, &pass),
                };
            }
            below = Some((readers, pass));
            readers *= 2;
        }
        match below {
            Some((readers, pass)) => Self::at(traced_ns, readers, &pass),
            None => Err(CannotPredict::NothingToRead),
        }
    }

    fn between(traced_ns: f64, below: (u32, ServicePass), above: (u32, ServicePass)) -> Self {
        let (low, high) = (below.1, above.1);
        let part = (traced_ns - low.as_is.ns) / (high.as_is.ns - low.as_is.ns).max(1e-9);
        let mix = |low: f64, high: f64| low + part.clamp(0.0, 1.0) * (high - low);
        let mean = |low: MeanTime, high: MeanTime| MeanTime {
            ns: mix(low.ns, high.ns),
            error: low.error.max(high.error),
        };
        let mixed = ServicePass {
            as_is: mean(low.as_is, high.as_is),
            contiguous: mean(low.contiguous, high.contiguous),
            planned: low
                .planned
                .zip(high.planned)
                .map(|(low, high)| mean(low, high)),
        };
        Self::of(mix(f64::from(below.0), f64::from(above.0)), &mixed)
    }

    fn at(traced_ns: f64, readers: u32, pass: &ServicePass) -> Result<Self, CannotPredict> {
        let off = pass.as_is.ns / traced_ns.max(1e-9);
        if !(1.0 / ALIKE..=ALIKE).contains(&off) {
            return Err(CannotPredict::Changed {
                factor: if off > 1.0 { off } else { 1.0 / off.max(1e-9) },
                slower: off > 1.0,
            });
        }
        Ok(Self::of(f64::from(readers), pass))
    }

    fn of(readers: f64, pass: &ServicePass) -> Self {
        let ratio = |mean: MeanTime| Ratio {
            ratio: (mean.ns / pass.as_is.ns.max(1e-9)).clamp(0.0, 1.0),
            error: mean.error.hypot(pass.as_is.error),
        };
        Self {
            readers,
            contiguous: ratio(pass.contiguous),
            planned: pass.planned.map(ratio),
        }
    }
}
