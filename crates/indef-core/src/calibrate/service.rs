//! The time of contiguous reads on a busy device, measured instead of modelled.
//!
//! Once reads wait for each other, the slope of their times no longer tells what a move saves. A
//! device that serves many requests at a time has longer queues for all of them, whoever is ahead of
//! whom; and without fragments it may reach another bound, the bytes that its bus carries. So the
//! device is asked: the reads of the profile are done as they lie now, and others of the same lengths
//! on ranges that are contiguous, each by as many readers as it takes until the former take as long
//! as they took in the trace. The ratio of the two is what moving everything gives.

use super::CannotPredict;

/// The most readers.
pub const MOST_READERS: u32 = 256;

/// The replayed reads may be faster or slower than the traced ones by this factor.
const ALIKE: f64 = 1.35;

/// Both kinds of reads by the same number of readers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ServicePass {
    /// Mean time of the reads of the profile as they lie.
    pub as_is_ns: f64,
    /// Mean time of contiguous reads of the same lengths.
    pub contiguous_ns: f64,
    /// Standard error of their ratio, as a part of it.
    pub error: f64,
}

/// The time of contiguous reads under the load of the trace.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Service {
    /// Readers under which the reads of the profile take as long as in the trace.
    pub readers: f64,
    /// The time of contiguous reads, as a part of that of the profile's.
    pub ratio: f64,
    /// Standard error of that part, as a part of it.
    pub error: f64,
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
            if pass.as_is_ns >= traced_ns {
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
        let part = (traced_ns - low.as_is_ns) / (high.as_is_ns - low.as_is_ns).max(1e-9);
        let mix = |low: f64, high: f64| low + part.clamp(0.0, 1.0) * (high - low);
        Self {
            readers: mix(f64::from(below.0), f64::from(above.0)),
            ratio: ratio(
                mix(low.contiguous_ns, high.contiguous_ns),
                mix(low.as_is_ns, high.as_is_ns),
            ),
            error: low.error.max(high.error),
        }
    }

    fn at(traced_ns: f64, readers: u32, pass: &ServicePass) -> Result<Self, CannotPredict> {
        let off = pass.as_is_ns / traced_ns.max(1e-9);
        if !(1.0 / ALIKE..=ALIKE).contains(&off) {
            return Err(CannotPredict::Changed {
                factor: if off > 1.0 { off } else { 1.0 / off.max(1e-9) },
                slower: off > 1.0,
            });
        }
        Ok(Self {
            readers: f64::from(readers),
            ratio: ratio(pass.contiguous_ns, pass.as_is_ns),
            error: pass.error,
        })
    }
}

/// No layout gives time back.
fn ratio(contiguous_ns: f64, as_is_ns: f64) -> f64 {
    (contiguous_ns / as_is_ns.max(1e-9)).clamp(0.0, 1.0)
}
