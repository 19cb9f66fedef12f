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
//!
//! A trace times how long reads wait for the device, and so many readers are looked for by direct reads, which do hardly
//! anything else. Calls that read through the page cache copy as well, which no move shortens: where such calls are
//! asked for, the ratios are those of whole calls by as many readers, and the time that they are of is longer.

use super::CannotPredict;

/// The most readers.
pub const MOST_READERS: u32 = 256;

/// The replayed reads may be faster or slower than the traced ones by this factor.
const ALIKE: f64 = 1.35;

/// Student's t of 95 % with as many turns as [`TURNS`] leave free, divided by that of a known error.
const FEW_TURNS: f64 = 1.2;

/// Turns that a pass has: each does all kinds of reads for a moment, one after the other.
pub const TURNS: usize = 8;

/// The mean times of all kinds of reads in one turn of a pass, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ServiceTurn {
    /// The reads of the profile as they lie, timed as in a trace: how long they wait for the device.
    pub waited_ns: f64,
    /// The same, the whole calls.
    pub as_is_ns: f64,
    /// Contiguous reads of the same lengths.
    pub contiguous_ns: f64,
    /// These where a plan moves the range, and the others as they lie; `None` where it moves all or nothing.
    pub planned_ns: Option<f64>,
}

/// All kinds of reads by the same number of readers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ServicePass {
    /// The mean time that the reads of the profile wait for the device as they lie, in nanoseconds.
    waited_ns: f64,
    /// That of whole calls.
    as_is_ns: f64,
    /// That of contiguous reads, as a part of it.
    contiguous: Ratio,
    /// That after a plan which moves a part.
    planned: Option<Ratio>,
}

impl ServicePass {
    /// What the turns of a pass tell: times are compared within each turn, so that a device which becomes slower or
    /// faster meanwhile does so for all kinds, and what still differs from turn to turn is the error.
    #[must_use]
    pub fn of(turns: &[ServiceTurn]) -> Self {
        let as_is: Vec<f64> = turns.iter().map(|turn| turn.as_is_ns).collect();
        let ratio = |times: Vec<f64>| {
            let ratios = times.iter().zip(&as_is);
            let ratios: Vec<f64> = ratios.map(|(time, as_is)| time / as_is.max(1e-9)).collect();
            let (mean, error) = mean_and_error(&ratios);
            Ratio {
                ratio: mean.clamp(0.0, 1.0),
                error: FEW_TURNS * error / mean.max(1e-9),
            }
        };
        let planned: Option<Vec<f64>> = turns.iter().map(|turn| turn.planned_ns).collect();
        Self {
            waited_ns: mean_and_error(&turns.iter().map(|turn| turn.waited_ns).collect::<Vec<_>>())
                .0,
            as_is_ns: mean_and_error(&as_is).0,
            contiguous: ratio(turns.iter().map(|turn| turn.contiguous_ns).collect()),
            planned: planned.map(ratio),
        }
    }
}

/// The mean, and its standard error.
fn mean_and_error(values: &[f64]) -> (f64, f64) {
    let count = values.len().max(1) as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    let variance = squares / (count - 1.0).max(1.0);
    (mean, (variance / count).sqrt())
}

/// A device that can be asked, by a number of readers that each wait for their read.
pub trait Asked {
    /// The mean time that the reads of the profile wait for the device as they lie, in nanoseconds: a short look, to
    /// find how many readers there were.
    ///
    /// # Errors
    ///
    /// There is nothing to read, or the device does not answer.
    fn waited_ns(&mut self, readers: u32) -> Result<f64, CannotPredict>;

    /// All kinds of reads, in turns.
    ///
    /// # Errors
    ///
    /// There is nothing to read, or the device does not answer.
    fn pass(&mut self, readers: u32) -> Result<ServicePass, CannotPredict>;
}

/// The time of reads as a part of that of the profile's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio {
    /// The part: no layout gives time back, so it is at most 1.
    pub ratio: f64,
    /// Standard error of it, as a part of it.
    pub error: f64,
}

impl Ratio {
    /// Between the two, so much of the way to the other.
    fn mixed(self, other: Self, part: f64) -> Self {
        Self {
            ratio: mix(self.ratio, other.ratio, part),
            error: self.error.max(other.error),
        }
    }
}

fn mix(low: f64, high: f64, part: f64) -> f64 {
    low + part * (high - low)
}

/// The time of reads under the load of the trace.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Service {
    /// Readers under which the reads of the profile take as long as in the trace.
    pub readers: f64,
    /// The time of whole calls divided by that for which they wait for the device.
    pub calls: f64,
    /// The time of contiguous reads.
    pub contiguous: Ratio,
    /// That after a plan which moves a part of what is fragmented.
    pub planned: Option<Ratio>,
}

impl Service {
    /// Find the number of readers under which reads take as long as in the trace, and ask what others take then.
    ///
    /// # Errors
    ///
    /// With no number do reads take as long as in the trace, or the device cannot be asked.
    pub fn find(traced_ns: f64, device: &mut impl Asked) -> Result<Self, CannotPredict> {
        let mut readers = 1;
        while readers < MOST_READERS && device.waited_ns(readers)? < traced_ns {
            readers *= 2;
        }
        let above = device.pass(readers)?;
        if readers == 1 || above.waited_ns < traced_ns {
            return Self::at(traced_ns, readers, &above);
        }
        let below = device.pass(readers / 2)?;
        Ok(Self::between(
            traced_ns,
            (readers / 2, &below),
            (readers, &above),
        ))
    }

    fn between(
        traced_ns: f64,
        (fewer, low): (u32, &ServicePass),
        (more, high): (u32, &ServicePass),
    ) -> Self {
        let part = (traced_ns - low.waited_ns) / (high.waited_ns - low.waited_ns).max(1e-9);
        let part = part.clamp(0.0, 1.0);
        // Times lie on a line between, so their ratios count by the time that they are of.
        let as_is_ns = mix(low.as_is_ns, high.as_is_ns, part);
        let of_high = part * high.as_is_ns / as_is_ns.max(1e-9);
        Self {
            readers: mix(fewer.into(), more.into(), part),
            calls: as_is_ns / mix(low.waited_ns, high.waited_ns, part).max(1e-9),
            contiguous: low.contiguous.mixed(high.contiguous, of_high),
            planned: { low.planned.zip(high.planned) }.map(|(low, high)| low.mixed(high, of_high)),
        }
    }

    fn at(traced_ns: f64, readers: u32, pass: &ServicePass) -> Result<Self, CannotPredict> {
        let off = pass.waited_ns / traced_ns.max(1e-9);
        if !(1.0 / ALIKE..=ALIKE).contains(&off) {
            return Err(CannotPredict::Changed {
                factor: if off > 1.0 { off } else { 1.0 / off.max(1e-9) },
                slower: off > 1.0,
            });
        }
        Ok(Self {
            readers: readers.into(),
            calls: pass.as_is_ns / pass.waited_ns.max(1e-9),
            contiguous: pass.contiguous,
            planned: pass.planned,
        })
    }
}
