//! Robust weighted least squares with few columns and without negative coefficients: a minority of
//! wild values does not distort the result.
//!
//! The normal equations of six columns are so small that all 64 subsets can be solved. The best
//! subset without a negative coefficient is the exact optimum of the constrained problem, because it is
//! the unconstrained optimum of the columns that it uses.

/// Constant, length, further fragments that cost something, DoPF, requests ahead, whether DoLF is above 1.
pub(super) const COLUMNS: usize = 6;

/// Columns by name.
pub(super) const DOLF: usize = 2;
pub(super) const DOPF: usize = 3;
pub(super) const AHEAD: usize = 4;
pub(super) const SPLIT: usize = 5;

/// Huber's and Tukey's constants for 95 % efficiency on normal errors.
const HUBER: f64 = 1.345;
const TUKEY: f64 = 4.685;

/// Rounds of reweighting; a fit that still moves after them moves by little.
const ROUNDS: usize = 40;

/// A median of absolute values times this is the standard deviation of normal errors.
const MEDIAN_TO_DEVIATION: f64 = 1.4826;

/// One observation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Observation {
    pub(super) x: [f64; COLUMNS],
    pub(super) y: f64,
    /// Reciprocal of its variance, relative to the others.
    pub(super) weight: f64,
}

/// The result of [`robust`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Fit {
    pub(super) coefficients: [f64; COLUMNS],
    /// Their covariances, from which standard errors follow.
    pub(super) covariances: [[f64; COLUMNS]; COLUMNS],
    /// The same if no coefficient were held at 0 for being negative.
    pub(super) free_covariances: [[f64; COLUMNS]; COLUMNS],
    /// Standard deviation of an observation of weight 1.
    pub(super) scale: f64,
    pub(super) r_squared: f64,
    pub(super) median_error: f64,
    /// Mean distance of all rows, outliers and all.
    pub(super) mean_error: f64,
    pub(super) outliers: u64,
}

impl Fit {
    /// A sum of the coefficients, each times a factor.
    pub(super) fn sum_of(&self, factors: &[f64; COLUMNS]) -> f64 {
        dot(&self.coefficients, factors)
    }

    /// The standard error of a sum of the coefficients, each times a factor.
    pub(super) fn error_of(&self, factors: &[f64; COLUMNS]) -> f64 {
        deviation(&self.covariances, factors)
    }

    /// The standard deviation of these observations around the fit, of one of weight 1; robust, and 0 without any.
    pub(super) fn spread_of(&self, rows: &[&Observation]) -> f64 {
        let error = |row: &&Observation| (row.y - self.sum_of(&row.x)).abs() * row.weight.sqrt();
        let mut errors: Vec<f64> = rows.iter().map(error).collect();
        MEDIAN_TO_DEVIATION * median(&mut errors)
    }

    /// The most that a sum of the coefficients may be, `errors` standard errors above the fit.
    pub(super) fn most_of(&self, factors: &[f64; COLUMNS], errors: f64) -> f64 {
        self.sum_of(factors).max(0.0) + errors * deviation(&self.free_covariances, factors)
    }
}

/// The standard deviation of a sum of values with these covariances, each times a factor.
fn deviation(covariances: &[[f64; COLUMNS]; COLUMNS], factors: &[f64; COLUMNS]) -> f64 {
    let variance: f64 = (0..COLUMNS)
        .map(|i| factors[i] * dot(&covariances[i], factors))
        .sum();
    variance.max(0.0).sqrt()
}

/// Weighted sums of products, from which every subset of columns can be solved.
struct Normal {
    xx: [[f64; COLUMNS]; COLUMNS],
    xy: [f64; COLUMNS],
}

impl Normal {
    fn new(rows: &[Observation], weights: &[f64], scales: &[f64; COLUMNS]) -> Self {
        let mut sums = Self {
            xx: [[0.0; COLUMNS]; COLUMNS],
            xy: [0.0; COLUMNS],
        };
        for (row, weight) in rows.iter().zip(weights) {
            let x: [f64; COLUMNS] = std::array::from_fn(|i| row.x[i] / scales[i]);
            for i in 0..COLUMNS {
                let weighted = weight * x[i];
                sums.xy[i] += weighted * row.y;
                for (sum, x) in sums.xx[i].iter_mut().zip(x) {
                    *sum += weighted * x;
                }
            }
        }
        sums
    }

    /// The inverse of the sub-matrix of the columns of `subset`, the others zero; `None` if these
    /// columns depend on each other.
    fn inverse(&self, subset: u32) -> Option<[[f64; COLUMNS]; COLUMNS]> {
        let used = |i: usize| subset & (1 << i) != 0;
        let mut left = self.xx;
        let mut right: [[f64; COLUMNS]; COLUMNS] =
            std::array::from_fn(|i| std::array::from_fn(|j| f64::from(u8::from(i == j))));
        // Gauss–Jordan; a positive definite matrix needs no pivoting.
        for i in (0..COLUMNS).filter(|i| used(*i)) {
            let pivot = left[i][i];
            if pivot.is_nan() || pivot <= 1e-10 * self.xx[i][i] || pivot <= 0.0 {
                return None;
            }
            for j in 0..COLUMNS {
                left[i][j] /= pivot;
                right[i][j] /= pivot;
            }
            for k in (0..COLUMNS).filter(|k| *k != i && used(*k)) {
                let factor = left[k][i];
                for j in 0..COLUMNS {
                    left[k][j] -= factor * left[i][j];
                    right[k][j] -= factor * right[i][j];
                }
            }
        }
        let cell = |i: usize, j: usize| if used(i) && used(j) { right[i][j] } else { 0.0 };
        Some(std::array::from_fn(|i| std::array::from_fn(|j| cell(i, j))))
    }

    fn solve(&self, subset: u32) -> Option<[f64; COLUMNS]> {
        let inverse = self.inverse(subset)?;
        Some(std::array::from_fn(|i| dot(&inverse[i], &self.xy)))
    }

    /// The best non-negative coefficients of the usable columns, and the columns that they use. The fit
    /// reduces the sum of squares by `b · X'y`.
    fn non_negative(&self, usable: u32) -> ([f64; COLUMNS], u32) {
        let mut best = ([0.0; COLUMNS], 0, 0.0);
        for subset in (1..1 << COLUMNS).filter(|subset| subset & !usable == 0) {
            let Some(solution) = self.solve(subset) else {
                continue;
            };
            let explained = dot(&solution, &self.xy);
            let allowed = |b: &f64| b.is_finite() && *b >= 0.0;
            if solution.iter().all(allowed) && explained > best.2 {
                best = (solution, subset, explained);
            }
        }
        (best.0, best.1)
    }
}

fn dot(a: &[f64; COLUMNS], b: &[f64; COLUMNS]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// The median, or 0 without values. Reorders `values`.
fn median(values: &mut [f64]) -> f64 {
    if values.is_empty() {
        return 0.0;
    }
    let middle = values.len() / 2;
    *values.select_nth_unstable_by(middle, f64::total_cmp).1
}

/// The largest value of each column, so that all are of one magnitude.
fn scales(rows: &[Observation]) -> [f64; COLUMNS] {
    std::array::from_fn(|i| {
        let largest = rows.iter().map(|row| row.x[i]).fold(0.0, f64::max);
        if largest > 0.0 { largest } else { 1.0 }
    })
}

/// The share of a column's (weighted) sum of squares that constant and length do not explain.
pub(super) fn unexplained(rows: &[Observation], column: usize) -> f64 {
    let as_target: Vec<Observation> = rows
        .iter()
        .map(|row| Observation {
            x: [1.0, row.x[1], 0.0, 0.0, 0.0, 0.0],
            y: row.x[column],
            ..*row
        })
        .collect();
    let weights: Vec<f64> = rows.iter().map(|row| row.weight).collect();
    let squares = |value: &dyn Fn(&Observation) -> f64| -> f64 {
        let square = |row: &Observation| row.weight * value(row) * value(row);
        as_target.iter().map(square).sum()
    };
    let all = squares(&|row| row.y);
    if all.is_nan() || all <= 0.0 {
        return 0.0;
    }
    let scales = scales(&as_target);
    let normal = Normal::new(&as_target, &weights, &scales);
    let solution = normal.solve(0b11).or_else(|| normal.solve(0b01));
    let Some(solution) = solution else {
        return 0.0;
    };
    let left = squares(&|row| {
        let model: f64 = (0..2).map(|i| solution[i] * row.x[i] / scales[i]).sum();
        row.y - model
    });
    (left / all).clamp(0.0, 1.0)
}

/// The coefficients of plain weighted least squares, none negative.
pub(super) fn least_squares(rows: &[Observation]) -> [f64; COLUMNS] {
    let scales = scales(rows);
    let weights: Vec<f64> = rows.iter().map(|row| row.weight).collect();
    let (solution, _) = Normal::new(rows, &weights, &scales).non_negative((1 << COLUMNS) - 1);
    std::array::from_fn(|i| solution[i] / scales[i])
}

/// Fit the usable columns.
pub(super) fn robust(rows: &[Observation], usable: [bool; COLUMNS]) -> Fit {
    let scales = scales(rows);
    let usable = (0..COLUMNS)
        .filter(|i| usable[*i])
        .fold(0, |subset, i| subset | 1 << i);
    // If most of the rows fit exactly, the median would be 0, and rounding errors would be outliers.
    let largest = rows.iter().map(|row| row.y).fold(0.0, f64::max);
    let least_scale = 1.0 + largest * 1e-12;
    let mut trust = vec![1.0; rows.len()];
    let mut state = Iterate::new(rows, &trust, usable, &scales, least_scale);
    // Huber's problem has one optimum, found from any start. Tukey's starts from that optimum and
    // keeps its scale, so that it converges.
    for (shape, keeps_scale) in [(huber as fn(f64) -> f64, false), (tukey, true)] {
        let first_scale = state.scale;
        for _ in 0..ROUNDS {
            let scale = if keeps_scale {
                first_scale
            } else {
                state.scale
            };
            for ((trust, row), error) in trust.iter_mut().zip(rows).zip(&state.errors) {
                *trust = shape(error * row.weight.sqrt() / scale);
            }
            let next = Iterate::new(rows, &trust, usable, &scales, least_scale);
            let moved = next.moved_from(&state);
            state = next;
            if !moved {
                break;
            }
        }
    }
    state.finish(rows, &trust, &scales, usable)
}

/// The weight of an observation whose error is `error` standard deviations.
fn huber(error: f64) -> f64 {
    (HUBER / error.abs().max(HUBER)).min(1.0)
}

fn tukey(error: f64) -> f64 {
    let part = (error / TUKEY).abs().min(1.0);
    (1.0 - part * part).powi(2)
}

/// One intermediate solution.
struct Iterate {
    /// For scaled columns.
    solution: [f64; COLUMNS],
    subset: u32,
    normal: Normal,
    errors: Vec<f64>,
    scale: f64,
}

impl Iterate {
    fn new(
        rows: &[Observation],
        trust: &[f64],
        usable: u32,
        scales: &[f64; COLUMNS],
        least_scale: f64,
    ) -> Self {
        let weights: Vec<f64> = rows.iter().zip(trust).map(|(r, t)| r.weight * t).collect();
        let normal = Normal::new(rows, &weights, scales);
        let (solution, subset) = normal.non_negative(usable);
        let error = |row: &Observation| {
            let model: f64 = (0..COLUMNS)
                .map(|i| solution[i] * row.x[i] / scales[i])
                .sum();
            row.y - model
        };
        let errors: Vec<f64> = rows.iter().map(error).collect();
        let mut standardised: Vec<f64> = rows
            .iter()
            .zip(&errors)
            .map(|(row, error)| error.abs() * row.weight.sqrt())
            .collect();
        let scale = (MEDIAN_TO_DEVIATION * median(&mut standardised)).max(least_scale);
        Self {
            solution,
            subset,
            normal,
            errors,
            scale,
        }
    }

    fn moved_from(&self, before: &Self) -> bool {
        let size = self.solution.iter().fold(0.0, |sum, b| sum + b.abs());
        let difference = |i: usize| (self.solution[i] - before.solution[i]).abs();
        (0..COLUMNS).any(|i| difference(i) > size * 1e-9)
    }

    fn finish(
        self,
        rows: &[Observation],
        trust: &[f64],
        scales: &[f64; COLUMNS],
        usable: u32,
    ) -> Fit {
        let covariances = |inverse: [[f64; COLUMNS]; COLUMNS]| {
            std::array::from_fn(|i| {
                std::array::from_fn(|j| {
                    self.scale * self.scale * inverse[i][j] / (scales[i] * scales[j])
                })
            })
        };
        // Columns that say the same are told by one of them.
        let fewer = [
            usable,
            usable & !(1 << SPLIT),
            usable & !(1 << SPLIT | 1 << DOPF),
        ];
        let free = fewer.iter().find_map(|subset| self.normal.inverse(*subset));
        let (mut weight, mut sum) = (0.0, 0.0);
        for (row, trust) in rows.iter().zip(trust) {
            weight += row.weight * trust;
            sum += row.weight * trust * row.y;
        }
        let mean = sum / weight.max(f64::MIN_POSITIVE);
        let (mut left, mut all) = (0.0, 0.0);
        for ((row, trust), error) in rows.iter().zip(trust).zip(&self.errors) {
            left += row.weight * trust * error * error;
            all += row.weight * trust * (row.y - mean).powi(2);
        }
        let mut errors: Vec<f64> = self.errors.iter().map(|error| error.abs()).collect();
        let outlier = |(row, error): (&Observation, &f64)| {
            error.abs() * row.weight.sqrt() > TUKEY * self.scale
        };
        Fit {
            coefficients: std::array::from_fn(|i| self.solution[i] / scales[i]),
            covariances: covariances(self.normal.inverse(self.subset).unwrap_or_default()),
            free_covariances: covariances(free.unwrap_or_default()),
            scale: self.scale,
            r_squared: if all > 0.0 {
                (1.0 - left / all).clamp(0.0, 1.0)
            } else {
                0.0
            },
            mean_error: {
                let weight: f64 = rows.iter().map(|row| row.weight).sum();
                let sum: f64 = rows
                    .iter()
                    .zip(&errors)
                    .map(|(row, error)| row.weight * error)
                    .sum();
                sum / weight.max(f64::MIN_POSITIVE)
            },
            median_error: median(&mut errors),
            outliers: rows
                .iter()
                .zip(&self.errors)
                .filter(|pair| outlier(*pair))
                .count() as u64,
        }
    }
}
