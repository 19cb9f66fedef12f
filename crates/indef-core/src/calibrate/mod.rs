//! `--weight measured`: the cost of fragments on this device, from the times of traced reads.
//!
//! InDeF weighs logical and physical fragmentation with α = 4 and β = 1 (§IV), which its authors
//! found by experiment on one device. If a collector timed reads, the same form (eq. 2) can have
//! measured weights, and the priority becomes a time:
//!
//! ```text
//! mean time of a read = base + per_byte · length + per_fragment · (DoLF − 1 − free, if above 0)
//!                       + split (if DoLF > 1) + per_dopf · DoPF + per_ahead · requests in flight when it begins
//! IODP                = (per_fragment · DoLF + split + per_ahead · those that find it in flight
//!                       + per_dopf · DoPF + correction) · reads                             [ns]
//! gain of a chunk     = IODP now − IODP of the ideal layout     = time lost per read × reads
//! ```
//!
//! FAST 2024 §3.2 found at queue depth 1 that time grows by a constant with each fragment: a split
//! read waits for each further request (85 µs on its NVMe drive, 136 µs on SATA). At greater depths
//! requests overlap, and reads wait for those of others (module `queue`). So do the requests of one read on a drive
//! of many dies: the first fragments then cost nothing (`free`; module `knee`), until some of them meet on a die; what becomes of a busy device
//! without fragments is measured ([`Service`]).
//!
//! - **Fit** ([`calibrate`]). Each timed range is one sample: its mean time, weighted by `n / (n + k)`
//!   for `n` timed reads. `k` is the variance of single reads ÷ that of the true means of ranges
//!   around the model; it follows from how much less the means of many reads scatter. Weights are not
//!   negative (no layout gives time back); the exact solution is the best feasible one of the few subsets of six
//!   columns. Huber's weights limit outliers, Tukey's finally set them aside, on a
//!   scale taken from the median.
//! - **A timed range** ([`Weights::correction`]). A range that was timed itself may be worse or better
//!   than its degrees predict. The difference between its mean and the model counts by `n / (n + k)` as
//!   well (the best linear estimate under this model), where it is slower up to three standard deviations, as times may be
//!   wild (no read is faster than it can be); if reads scatter and ranges do not, hardly at all. Ranges that were never
//!   timed follow the model.
//!   Those that are slower than the model are chosen first, so for them it matters why they are. Ranges without
//!   fragments scatter, too, for reasons that a move does not take away, or not because of fragments. So of a
//!   fragmented range's own slowness that part counts by which the variance of fragmented ranges exceeds that of contiguous
//!   ones ([`Weights::other_reasons`]): the best linear estimate of one of two causes, by their variances. Where a range
//!   is faster than the model, its fragments cost it less, whatever the reason is: that counts as a whole.
//!
//! Samples that are too few, all alike, or do not show that fragments cost time give
//! [`CannotCalibrate`]; a plan then uses the paper's weights, and says so. The order of samples does
//! not matter, and no result is ever NaN, infinite or negative.
//!
//! Ignored: other load on the device during the trace, except for what a median absorbs; differences
//! between devices (one set of weights for a whole plan, so plan different devices apart).

mod fit;
mod knee;
mod predict;
mod queue;
mod request;
mod sample;
mod service;
mod unpredicted;

use serde::{Deserialize, Serialize};
use units::Bytes;

use crate::{access::Observed, layout::Fragmentation, priority::finite};
use fit::{AHEAD, COLUMNS, DOLF, DOPF, Fit, Observation, SPLIT};
pub use predict::{Prediction, Reads};
pub use request::most_of_a_request_ns;
use sample::columns;
pub use sample::{FEWEST_RANGES, Sample};
pub use service::{Asked, MOST_READERS, Ratio, Service, ServicePass, ServiceTurn, TURNS};
pub use unpredicted::{CannotPredict, FEWEST_CONTIGUOUS};

/// `k`, if it does not follow from the samples.
const USUAL_PRIOR: f64 = 8.0;

/// The bounds of `k`.
const PRIORS: (f64, f64) = (0.5, 1e6);

/// Number of standard errors by which the cost of fragments must differ from zero.
const SIGNIFICANT: f64 = 3.0;

/// Where fragments show no cost, the largest share of the time of the reads that they may have all the
/// same (by [`SIGNIFICANT`] errors) before it is unknown.
const LITTLE_PCT: u32 = 10;

/// Number of standard deviations by which the time of a single range may differ from the model.
const LIMIT: f64 = 3.0;

/// With fewer requests ahead of the mean read, reads hardly wait for each other.
const IDLE: f64 = 0.1;

/// The cost of reads on the traced device. All values are finite and not negative.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Weights {
    /// Cost of any read.
    pub base_ns: f64,
    /// Cost of each byte.
    pub per_byte_ns: f64,
    /// Cost of each fragment beyond the first and the free ones; takes the place of α.
    pub per_fragment_ns: f64,
    /// Fragments beyond the first that cost nothing: the drive serves them at the same time.
    #[serde(default, skip_serializing_if = "is_none")]
    pub free_fragments: u64,
    /// Cost of there being more than one; negative only in plans of earlier versions.
    #[serde(default)]
    pub split_ns: f64,
    /// Cost of each unit of DoPF; takes the place of β.
    pub per_dopf_ns: f64,
    /// Cost of each request that is in flight when a read begins.
    #[serde(default)]
    pub per_ahead_ns: f64,
    /// The mean number of these.
    #[serde(default)]
    pub mean_ahead: f64,
    /// The number of these that a read meets for each request of the average read.
    #[serde(default)]
    pub ahead_per_request: f64,
    /// Standard deviation of the true mean times of single ranges around the model.
    pub spread_ns: f64,
    /// The number of timed reads at which a range's own times count as much as the model.
    pub prior_reads: f64,
    /// Of the variance of fragmented ranges around the model, the part that contiguous ones have as well; 0 to 1.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub other_reasons: f64,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
const fn is_none(fragments: &u64) -> bool {
    *fragments == 0
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_zero(part: &f64) -> bool {
    *part == 0.0
}

impl Weights {
    /// Whether every weight is a number that a plan can use.
    #[must_use]
    pub fn are_sound(&self) -> bool {
        let other = [
            self.base_ns,
            self.per_byte_ns,
            self.per_fragment_ns,
            self.per_dopf_ns,
            self.per_ahead_ns,
            self.mean_ahead,
            self.ahead_per_request,
            self.spread_ns,
            self.prior_reads,
        ];
        other.iter().all(|weight| (0.0..=1e18).contains(weight))
            && self.split_ns.abs() <= 1e18
            && (0.0..=1.0).contains(&self.other_reasons)
    }

    /// The cost of a read of the range to all reads, beyond what has nothing to do with its layout, in
    /// nanoseconds: to itself, and to those that find it in flight.
    #[must_use]
    pub fn layout_ns(&self, fragmentation: &Fragmentation) -> f64 {
        let further = fragmentation.dolf.saturating_sub(1);
        let costly = further.saturating_sub(self.free_fragments) as f64;
        let split = if fragmentation.dolf > 1 {
            self.split_ns
        } else {
            0.0
        };
        let own = finite(self.per_fragment_ns * costly + split);
        let others = self.per_ahead_ns * self.ahead_per_request * further as f64;
        let first = self.per_fragment_ns + self.per_ahead_ns * self.ahead_per_request;
        finite(own + others + first + self.per_dopf_ns * finite(fragmentation.dopf))
    }

    /// The part of that which a layout without any further fragment avoids, in nanoseconds.
    #[must_use]
    pub fn excess_ns(&self, fragmentation: &Fragmentation) -> f64 {
        let whole = Fragmentation {
            dolf: 1,
            dopf: 0.0,
            requests: 1,
        };
        finite(self.layout_ns(fragmentation) - self.layout_ns(&whole))
    }

    /// The time of one read of the range by the model, with as many requests ahead as the average read
    /// has, in nanoseconds.
    #[must_use]
    pub fn read_ns(&self, len: Bytes, fragmentation: &Fragmentation) -> f64 {
        self.read_behind_ns(len, fragmentation, self.mean_ahead)
    }

    fn read_behind_ns(&self, len: Bytes, fragmentation: &Fragmentation, ahead: f64) -> f64 {
        let columns = columns(len, fragmentation, ahead, self.free_fragments);
        finite(
            self.base_ns
                + self.per_byte_ns * columns[1]
                + self.per_fragment_ns * columns[2]
                + self.per_dopf_ns * columns[3]
                + self.per_ahead_ns * columns[AHEAD]
                + self.split_ns * columns[SPLIT],
        )
    }

    /// The time by which one read of this range takes longer (or, if negative, shorter) than the model
    /// predicts, as far as its own times count and that is due to its fragments, in nanoseconds.
    #[must_use]
    pub fn correction(
        &self,
        len: Bytes,
        fragmentation: &Fragmentation,
        observed: &Observed,
    ) -> f64 {
        let Some(mean) = observed.mean_ns() else {
            return 0.0;
        };
        let timed = observed.timed as f64;
        let belief = timed / (timed + self.prior_reads);
        let limit = finite(LIMIT * self.spread_ns / belief.sqrt());
        let ahead = observed.mean_ahead().unwrap_or(self.mean_ahead);
        let own = mean - self.read_behind_ns(len, fragmentation, ahead);
        let own = belief * own.min(limit);
        match own > 0.0 {
            true => own * (1.0 - self.other_reasons),
            false => own,
        }
    }
}

/// Weights, and how well they explain the samples.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Calibration {
    /// The weights.
    pub weights: Weights,
    /// Timed ranges that the fit uses.
    pub ranges: u64,
    /// Timed reads of these.
    pub reads: u64,
    /// Ranges set aside as outliers.
    pub outliers: u64,
    /// Share of the variance of the mean times that the weights explain, outliers apart; 0 to 1.
    pub r_squared: f64,
    /// Half of the ranges lie closer to the model than this.
    pub typical_error_ns: f64,
    /// Whether the cost of a fragment to other reads is in the weights.
    pub queue: Queue,
    /// Standard error of what fragments cost all of these reads, as a part of it.
    pub cost_error: f64,
}

/// Knowledge of the requests that reads find in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Queue {
    /// Their cost.
    Known,
    /// The profile does not say how many there were.
    Unknown,
    /// All reads found as many, so what one costs cannot be told.
    Alike,
}

/// There are no measured weights; the message gives the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CannotCalibrate {
    /// No read was timed.
    #[error("the profile holds no times of reads; record it with `indef trace`")]
    NoTimes,
    /// Too few ranges were timed.
    #[error(
        "the profile times {found} ranges that a request can hold, but at least {FEWEST_RANGES} are needed; trace for longer"
    )]
    TooFew {
        /// Timed ranges.
        found: usize,
    },
    /// There is nothing to compare with.
    #[error(
        "the ranges that were timed are all fragmented alike, so what a fragment costs cannot be told"
    )]
    Alike,
    /// Fragments show no cost to the reads that they are part of, but requests do to others.
    #[error(
        "reads waited for each other, which hides what fragments cost; trace with fewer readers at a time"
    )]
    Hidden,
    /// Fragments cost no more than [`LITTLE_PCT`] % of the time of the reads.
    #[error(
        "the times seen do not show that fragmented ranges are slower than contiguous ones on this device: at most {at_most_pct} %"
    )]
    NoDifference {
        /// Of the time of the reads.
        at_most_pct: u32,
    },
    /// Fragments show no cost in time, but might well have one.
    #[error(
        "the times scatter so much that fragments may cost anything up to {at_most_pct} % of them; trace for longer, or while less else runs"
    )]
    Unclear {
        /// Of the time of the reads.
        at_most_pct: u32,
    },
}

/// Find the weights that explain the samples best.
///
/// # Errors
///
/// [`CannotCalibrate`], with the reason.
pub fn calibrate(mut samples: Vec<Sample>) -> Result<Calibration, CannotCalibrate> {
    samples.retain(|sample| sample.observed.timed > 0);
    match samples.len() {
        0 => return Err(CannotCalibrate::NoTimes),
        found if found < FEWEST_RANGES => return Err(CannotCalibrate::TooFew { found }),
        _ => {}
    }
    // Sums of fractions depend on the order, so the order is always the same.
    samples.sort_unstable_by(|a, b| {
        let key = |s: &Sample| {
            (
                s.len,
                s.fragmentation.dolf,
                s.observed.time.0,
                s.observed.timed,
                s.observed.ahead,
            )
        };
        key(a)
            .cmp(&key(b))
            .then(a.fragmentation.dopf.total_cmp(&b.fragmentation.dopf))
            .then(a.requests.total_cmp(&b.requests))
    });
    let load = queue::load(&mut samples);
    let (free, usable) = knee::find(&samples, USUAL_PRIOR, load.is_some());
    let rows = rows_with(&samples, USUAL_PRIOR, free);
    if !usable[DOLF] && !usable[DOPF] {
        return Err(CannotCalibrate::Alike);
    }
    // An effect that cannot be separated from that of the length is attributed to the length.
    let prior_reads = prior_reads(&samples, &fit::robust(&rows, usable), free);
    let rows = rows_with(&samples, prior_reads, free);
    let fit = fit::robust(&rows, usable);
    let mean = means(&rows);
    let of = |columns: &[usize]| -> [f64; COLUMNS] {
        std::array::from_fn(|i| if columns.contains(&i) { mean[i] } else { 0.0 })
    };
    // The number of fragments counts with the first one: they may be hard to tell from each other.
    let clear = |columns: &[usize]| {
        let factors = of(columns);
        let cost = fit.sum_of(&factors);
        cost > 0.0 && cost > SIGNIFICANT * fit.error_of(&factors)
    };
    let per_request = load.map_or(0.0, |load| finite(load.per_request));
    let mut fragments = of(&[DOLF, DOPF, SPLIT]);
    // Others wait for those that cost the read itself nothing, too.
    let further = { samples.iter() }.map(|s| s.fragmentation.dolf.saturating_sub(1) as f64);
    fragments[AHEAD] = per_request * mean_of(&rows, further);
    let cost_error = finite(fit.error_of(&fragments) / fit.sum_of(&fragments).max(1e-9));
    if !clear(&[DOLF, SPLIT]) && !clear(&[DOPF]) {
        let busy = load.is_some_and(|load| load.mean_ahead > IDLE);
        let others_pay = busy && cost_error > 0.0 && cost_error * SIGNIFICANT < 1.0;
        let most = fit.most_of(&fragments, SIGNIFICANT) / mean_time(&rows).max(1.0);
        let at_most_pct = (most * 100.0).ceil() as u32;
        return Err(match () {
            () if others_pay => CannotCalibrate::Hidden,
            () if at_most_pct <= LITTLE_PCT => CannotCalibrate::NoDifference { at_most_pct },
            () => CannotCalibrate::Unclear { at_most_pct },
        });
    }
    let [base, byte, fragment, dopf, ahead, split] = fit.coefficients.map(finite);
    let weights = Weights {
        base_ns: base,
        per_byte_ns: byte,
        per_fragment_ns: fragment,
        free_fragments: free,
        split_ns: split,
        per_dopf_ns: dopf,
        per_ahead_ns: ahead,
        mean_ahead: load.map_or(0.0, |load| finite(load.mean_ahead)),
        ahead_per_request: per_request,
        spread_ns: finite(fit.scale),
        prior_reads,
        other_reasons: other_reasons(&samples, &rows, &fit),
    };
    Ok(Calibration {
        weights,
        ranges: samples.len() as u64,
        reads: samples
            .iter()
            .fold(0, |sum, sample| sum.saturating_add(sample.observed.timed)),
        outliers: fit.outliers,
        r_squared: fit.r_squared,
        typical_error_ns: fit.median_error,
        queue: match load {
            None => Queue::Unknown,
            Some(load) if load.mean_ahead > IDLE && !usable[AHEAD] => Queue::Alike,
            Some(_) => Queue::Known,
        },
        cost_error,
    })
}

/// The part of the variance of fragmented ranges around the model that contiguous ones show as well. Of few of these it is not
/// known, and they are believed to scatter as fragmented ones do, with the weight of [`FEWEST_RANGES`].
fn other_reasons(samples: &[Sample], rows: &[Observation], fit: &Fit) -> f64 {
    let of = |fragmented: bool| {
        let is_of = |sample: &Sample| (sample.fragmentation.dolf > 1) == fragmented;
        let rows = samples.iter().zip(rows).filter(|(sample, _)| is_of(sample));
        let rows: Vec<&Observation> = rows.map(|(_, row)| row).collect();
        (rows.len() as f64, fit.spread_of(&rows).powi(2))
    };
    let ((_, fragmented), (count, contiguous)) = (of(true), of(false));
    let prior = FEWEST_RANGES as f64;
    let contiguous = (count * contiguous + prior * fragmented) / (count + prior);
    match fragmented > 0.0 {
        true => finite(contiguous / fragmented).min(1.0),
        // They do not scatter: what is slow is so by chance.
        false => 1.0,
    }
}

/// The weighted mean of the times, in nanoseconds.
fn mean_time(rows: &[Observation]) -> f64 {
    mean_of(rows, rows.iter().map(|row| row.y))
}

/// The weighted mean of each column.
fn means(rows: &[Observation]) -> [f64; COLUMNS] {
    std::array::from_fn(|i| mean_of(rows, rows.iter().map(|row| row.x[i])))
}

/// The mean of a value of each row, by the rows' weights.
fn mean_of(rows: &[Observation], values: impl Iterator<Item = f64>) -> f64 {
    let weight: f64 = rows.iter().map(|row| row.weight).sum();
    let sum: f64 = rows
        .iter()
        .zip(values)
        .map(|(row, value)| row.weight * value)
        .sum();
    finite(sum / weight.max(f64::MIN_POSITIVE))
}

fn rows_with(samples: &[Sample], prior_reads: f64, free: u64) -> Vec<Observation> {
    samples.iter().map(|s| s.row(prior_reads, free)).collect()
}

/// Estimate `k`. The squared distance of a range's mean of `n` reads from the model is, on average, the
/// variance of ranges plus the variance of reads ÷ n; a linear fit gives both variances.
fn prior_reads(samples: &[Sample], fit: &Fit, free: u64) -> f64 {
    let squares: Vec<Observation> = samples
        .iter()
        .map(|sample| {
            let Observation { x, y, .. } = sample.row(0.0, free);
            let model: f64 = x.iter().zip(fit.coefficients).map(|(x, b)| x * b).sum();
            // Beyond the limit it is an outlier and says nothing about the others.
            let share = sample.timed() / (sample.timed() + USUAL_PRIOR);
            let limit = LIMIT * fit.scale / share.sqrt();
            let off = (y - model).clamp(-limit, limit) / fit.scale;
            Observation {
                x: [1.0, 1.0 / sample.timed(), 0.0, 0.0, 0.0, 0.0],
                y: finite(off * off),
                weight: 1.0,
            }
        })
        .collect();
    let (least, most) = squares
        .iter()
        .map(|row| row.x[1])
        .fold((1.0, 0.0), |(least, most): (f64, f64), x| {
            (least.min(x), most.max(x))
        });
    if most < 2.0 * least {
        return USUAL_PRIOR;
    }
    let [ranges, reads, ..] = fit::least_squares(&squares);
    // Only reads scatter: the quotient is infinite, or 0 ÷ 0.
    match (ranges > 0.0, reads > 0.0) {
        (true, _) => (reads / ranges).clamp(PRIORS.0, PRIORS.1),
        (false, true) => PRIORS.1,
        (false, false) => USUAL_PRIOR,
    }
}

#[cfg(test)]
mod tests;
