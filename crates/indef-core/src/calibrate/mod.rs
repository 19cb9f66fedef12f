//! `--weight measured`: the cost of fragments on this device, from the times of traced reads.
//!
//! InDeF weighs logical and physical fragmentation with α = 4 and β = 1 (§IV), which its authors
//! found by experiment on one device. If a collector timed reads, the same form (eq. 2) can have
//! measured weights, and the priority becomes a time:
//!
//! ```text
//! mean time of a read = base + per_byte · length + per_fragment · (DoLF − 1) + per_dopf · DoPF
//! IODP                = (per_fragment · DoLF + per_dopf · DoPF + correction) · reads        [ns]
//! gain of a chunk     = IODP now − IODP of the ideal layout     = time lost per read × reads
//! ```
//!
//! FAST 2024 §3.2 found at queue depth 1 that time grows by a constant with each fragment: a split
//! read waits for each further request (85 µs on its NVMe drive, 136 µs on SATA). At greater depths
//! requests overlap, and the measured slope is smaller accordingly.
//!
//! - **Fit** ([`calibrate`]). Each timed range is one sample: its mean time, weighted by `n / (n + k)`
//!   for `n` timed reads. `k` is the variance of single reads ÷ that of the true means of ranges
//!   around the model; it follows from how much less the means of many reads scatter. Weights are not
//!   negative (no layout gives time back); the exact solution is the best feasible one of the few
//!   subsets of four columns. Huber's weights limit outliers, Tukey's finally set them aside, on a
//!   scale taken from the median.
//! - **A timed range** ([`Weights::correction`]). A range that was timed itself may be worse or better
//!   than its degrees predict. The difference between its mean and the model counts by `n / (n + k)` as
//!   well (the best linear estimate under this model), up to three standard deviations; if reads
//!   scatter and ranges do not, hardly at all. Ranges that were never timed follow the model.
//!
//! Samples that are too few, all alike, or do not show that fragments cost time give
//! [`CannotCalibrate`]; a plan then uses the paper's weights, and says so. The order of samples does
//! not matter, and no result is ever NaN, infinite or negative.
//!
//! Ignored: other load on the device during the trace, except for what a median absorbs; differences
//! between devices (one set of weights for a whole plan, so plan different devices apart); the queue
//! depth, unless the trace is typical of it.

mod fit;

use serde::{Deserialize, Serialize};
use units::Bytes;

use crate::{
    access::{AccessRange, Observed},
    layout::{Fragmentation, Geometry, Layout},
    priority::finite,
};
use fit::{COLUMNS, Fit, Row};

/// `k`, if it does not follow from the samples.
const USUAL_PRIOR: f64 = 8.0;

/// The bounds of `k`.
const PRIORS: (f64, f64) = (0.5, 1e6);

/// The smallest number of timed ranges for a calibration.
pub const FEWEST_RANGES: usize = 16;

/// Number of standard errors by which the cost of fragments must differ from zero.
const SIGNIFICANT: f64 = 3.0;

/// Number of standard deviations by which the time of a single range may differ from the model.
const LIMIT: f64 = 3.0;

/// The smallest share of DoLF that length must leave unexplained: below it, the effects of the two
/// cannot be separated.
const TELLABLE: f64 = 1e-3;

/// One timed range.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// Its length.
    pub len: Bytes,
    /// Its degrees of fragmentation.
    pub fragmentation: Fragmentation,
    /// The times of its reads.
    pub observed: Observed,
}

impl Sample {
    /// The range as a sample; `None` if it was not timed, holds no data, or is longer than
    /// `max_request`. Such a range was merged from reads of its parts, whose times are not its own.
    #[must_use]
    pub fn of(
        layout: &Layout,
        access: &AccessRange,
        geometry: &Geometry,
        max_request: Bytes,
    ) -> Option<Self> {
        if access.observed.timed == 0 || access.range.len > max_request {
            return None;
        }
        let fragmentation = layout.measure(access.range, geometry, max_request);
        (fragmentation.dolf > 0).then_some(Self {
            len: access.range.len,
            fragmentation,
            observed: access.observed,
        })
    }

    fn timed(&self) -> f64 {
        self.observed.timed.max(1) as f64
    }

    fn row(&self, prior_reads: f64) -> Row {
        let timed = self.timed();
        Row {
            x: columns(self.len, &self.fragmentation),
            y: self.observed.time.0 as f64 / timed,
            weight: timed / (timed + prior_reads),
        }
    }
}

/// The terms of the mean time of a read, in the order of [`Weights`].
fn columns(len: Bytes, fragmentation: &Fragmentation) -> [f64; COLUMNS] {
    [
        1.0,
        len.0 as f64,
        fragmentation.dolf.saturating_sub(1) as f64,
        finite(fragmentation.dopf),
    ]
}

/// The cost of reads on the traced device. All values are finite and not negative.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Weights {
    /// Cost of any read.
    pub base_ns: f64,
    /// Cost of each byte.
    pub per_byte_ns: f64,
    /// Cost of each fragment beyond the first; takes the place of α.
    pub per_fragment_ns: f64,
    /// Cost of each unit of DoPF; takes the place of β.
    pub per_dopf_ns: f64,
    /// Standard deviation of the true mean times of single ranges around the model.
    pub spread_ns: f64,
    /// The number of timed reads at which a range's own times count as much as the model.
    pub prior_reads: f64,
}

impl Weights {
    /// Whether every weight is a number that a plan can use.
    #[must_use]
    pub fn are_sound(&self) -> bool {
        let all = [
            self.base_ns,
            self.per_byte_ns,
            self.per_fragment_ns,
            self.per_dopf_ns,
            self.spread_ns,
            self.prior_reads,
        ];
        all.iter().all(|weight| (0.0..=1e18).contains(weight))
    }

    /// The time of one read of the range by the model, in nanoseconds.
    #[must_use]
    pub fn read_ns(&self, len: Bytes, fragmentation: &Fragmentation) -> f64 {
        let columns = columns(len, fragmentation);
        finite(
            self.base_ns
                + self.per_byte_ns * columns[1]
                + self.per_fragment_ns * columns[2]
                + self.per_dopf_ns * columns[3],
        )
    }

    /// The time by which one read of this range takes longer (or, if negative, shorter) than the model
    /// predicts, as far as its own times count, in nanoseconds.
    #[must_use]
    pub fn correction(
        &self,
        len: Bytes,
        fragmentation: &Fragmentation,
        observed: &Observed,
    ) -> f64 {
        if observed.timed == 0 {
            return 0.0;
        }
        let timed = observed.timed as f64;
        let belief = timed / (timed + self.prior_reads);
        let mean = observed.time.0 as f64 / timed;
        let limit = finite(LIMIT * self.spread_ns / belief.sqrt());
        belief * (mean - self.read_ns(len, fragmentation)).clamp(-limit, limit)
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
    /// Fragments show no cost in time.
    #[error(
        "the times seen do not show that fragmented ranges are slower than contiguous ones on this device"
    )]
    NoDifference,
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
            )
        };
        key(a)
            .cmp(&key(b))
            .then(a.fragmentation.dopf.total_cmp(&b.fragmentation.dopf))
    });
    let rows = rows_with(&samples, USUAL_PRIOR);
    let dolf = fit::unexplained(&rows, 2);
    let dopf = fit::unexplained(&rows, 3);
    if dolf < TELLABLE && dopf < TELLABLE {
        return Err(CannotCalibrate::Alike);
    }
    // An effect that cannot be separated from that of the length is attributed to the length.
    let usable = [true, true, dolf >= TELLABLE, dopf >= TELLABLE];
    let prior_reads = prior_reads(&samples, &fit::robust(&rows, usable));
    let fit = fit::robust(&rows_with(&samples, prior_reads), usable);
    let clear = |column: usize| {
        let (weight, error) = (fit.coefficients[column], fit.standard_errors[column]);
        weight > 0.0 && weight > SIGNIFICANT * error
    };
    if !clear(2) && !clear(3) {
        return Err(CannotCalibrate::NoDifference);
    }
    let [base, byte, fragment, dopf] = fit.coefficients.map(finite);
    let weights = Weights {
        base_ns: base,
        per_byte_ns: byte,
        per_fragment_ns: fragment,
        per_dopf_ns: dopf,
        spread_ns: finite(fit.scale),
        prior_reads,
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
    })
}

fn rows_with(samples: &[Sample], prior_reads: f64) -> Vec<Row> {
    samples.iter().map(|s| s.row(prior_reads)).collect()
}

/// Estimate `k`. The squared distance of a range's mean of `n` reads from the model is, on average, the
/// variance of ranges plus the variance of reads ÷ n; a linear fit gives both variances.
fn prior_reads(samples: &[Sample], fit: &Fit) -> f64 {
    let squares: Vec<Row> = samples
        .iter()
        .map(|sample| {
            let Row { x, y, .. } = sample.row(0.0);
            let model: f64 = x.iter().zip(fit.coefficients).map(|(x, b)| x * b).sum();
            // Beyond the limit it is an outlier and says nothing about the others.
            let share = sample.timed() / (sample.timed() + USUAL_PRIOR);
            let limit = LIMIT * fit.scale / share.sqrt();
            let off = (y - model).clamp(-limit, limit) / fit.scale;
            Row {
                x: [1.0, 1.0 / sample.timed(), 0.0, 0.0],
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
