//! Fits a granule and a stripe to the times of pairs.
//!
//! ```text
//! time = share · together + (1 − share) · (apart + before · how far below the multiple + after · how far above)
//! ```
//!
//! with the share of pairs on one unit, a triangle of the granule's width around each multiple of the stripe.
//! Pairs that are apart take the longer of two times, which changes with the distance where pages of
//! different speed take turns; pairs together take the sum, which does not. The four times follow by least
//! squares for each possible granule and stripe, around each multiple of the stripe for itself. The best
//! candidate counts if it is better than every other by far.

use super::{BLOCK, Placement, sample::Mean};
use units::Bytes;

/// By how much the sum of squares of every other candidate has to be larger, in squares of the standard
/// error.
const DECISIVE: f64 = 16.0;
/// The largest sum of squares of the best candidate, for each value.
const GOOD: f64 = 6.0;
/// Errors are not believed to be smaller than this part of what they look like, squared.
const LEAST_SCALE: f64 = 0.1;
/// No mean is believed to be better than this part of the triangle's height.
const LEAST_ERROR: f64 = 0.04;

/// The mean time of pairs at a lag near some multiple of the stripe.
#[derive(Clone, Copy, Debug)]
pub(super) struct LagTime {
    pub(super) lag: u64,
    pub(super) time: Mean,
}

/// The result of a fit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Fit {
    /// One candidate is better than all others.
    Clear(Placement),
    /// Several would do: more values may tell.
    Open,
    /// None explains the values.
    Bad,
}

/// The best candidate for values around several multiples of the stripe, each of them a group.
/// `height` is about the time by which pairs on one unit take longer.
pub(super) fn fit(groups: &[Vec<LagTime>], candidates: &[Placement], height: f64) -> Fit {
    let mut ranked: Vec<(f64, Placement)> = candidates
        .iter()
        .filter_map(|candidate| Some((squares(groups, candidate, height)?, *candidate)))
        .collect();
    ranked.sort_by(|a, b| a.0.total_cmp(&b.0));
    let values: usize = groups.iter().map(Vec::len).sum();
    let freedom = values.saturating_sub(COLUMNS * groups.len() + 2).max(1) as f64;
    let Some((best, placement)) = ranked.first().copied() else {
        return Fit::Bad;
    };
    if best / freedom > GOOD {
        return Fit::Bad;
    }
    // Where the best leaves more than the errors explain, or less, they are larger than they look, or smaller.
    let scale = (best / freedom).max(LEAST_SCALE);
    match ranked.get(1) {
        Some((next, _)) if next - best < DECISIVE * scale => Fit::Open,
        _ => Fit::Clear(placement),
    }
}

/// The share of pairs on one unit.
pub(super) fn share(placement: &Placement, lag: u64) -> f64 {
    let (stripe, granule) = (placement.stripe().0.max(1), placement.granule.0.max(1));
    let off = lag % stripe;
    let off = off.min(stripe - off);
    (1.0 - off as f64 / granule as f64).max(0.0)
}

/// Together, apart, and the two slopes.
const COLUMNS: usize = 4;

/// The terms of the time of pairs.
fn columns(candidate: &Placement, lag: u64) -> [f64; COLUMNS] {
    let stripe = candidate.stripe().0.max(1);
    let share = share(candidate, lag);
    let off = lag % stripe;
    let (below, above) = match off > stripe / 2 {
        true => (stripe - off, 0),
        false => (0, off),
    };
    // In granules, so that all columns are of one magnitude.
    let far = |bytes: u64| bytes as f64 / candidate.granule.0.max(1) as f64;
    [
        share,
        1.0 - share,
        (1.0 - share) * far(below),
        (1.0 - share) * far(above),
    ]
}

/// The weighted sum of squares that a candidate leaves; `None` where it has nothing to say, or pairs
/// would have to be faster on one unit.
fn squares(groups: &[Vec<LagTime>], candidate: &Placement, height: f64) -> Option<f64> {
    let mut left = 0.0;
    for group in groups {
        let weight = |value: &LagTime| value.time.error.max(LEAST_ERROR * height).powi(-2);
        let (mut xx, mut xy) = ([[0.0; COLUMNS]; COLUMNS], [0.0; COLUMNS]);
        for value in group {
            let (weight, x) = (weight(value), columns(candidate, value.lag));
            for i in 0..COLUMNS {
                xy[i] += weight * x[i] * value.time.value;
                for j in 0..COLUMNS {
                    xx[i][j] += weight * x[i] * x[j];
                }
            }
        }
        let solution = solve(xx, xy)?;
        if solution[0] - solution[1] < height * 0.3 {
            return None;
        }
        left += group
            .iter()
            .map(|value| {
                let x = columns(candidate, value.lag);
                let model: f64 = x.iter().zip(solution).map(|(x, b)| x * b).sum();
                weight(value) * (value.time.value - model).powi(2)
            })
            .sum::<f64>();
    }
    Some(left)
}

/// The solution of the normal equations; a column without effect gets 0. `None` where the first two
/// cannot be told apart.
fn solve(mut xx: [[f64; COLUMNS]; COLUMNS], mut xy: [f64; COLUMNS]) -> Option<[f64; COLUMNS]> {
    let diagonal: [f64; COLUMNS] = std::array::from_fn(|i| xx[i][i]);
    let mut used = [true; COLUMNS];
    // Gauss–Jordan; a positive definite matrix needs no pivoting.
    for i in 0..COLUMNS {
        let pivot = xx[i][i];
        if pivot.is_nan() || pivot <= 1e-6 * diagonal[i] || pivot <= 0.0 {
            if i < 2 {
                return None;
            }
            used[i] = false;
            continue;
        }
        let row = xx[i];
        for k in (0..COLUMNS).filter(|k| *k != i) {
            let factor = xx[k][i] / pivot;
            for (cell, above) in xx[k].iter_mut().zip(row) {
                *cell -= factor * above;
            }
            xy[k] -= factor * xy[i];
        }
    }
    Some(std::array::from_fn(|i| match used[i] {
        true => xy[i] / xx[i][i],
        false => 0.0,
    }))
}

/// All placements with a stripe of about this size.
pub(super) fn candidates(about: u64, off: u64) -> Vec<Placement> {
    let steps = |stripe: u64| {
        let whole = stripe / BLOCK;
        let granules = (1..=whole / 2).filter(move |granule| whole.is_multiple_of(*granule));
        granules.map(move |granule| Placement {
            granule: Bytes(granule * BLOCK),
            units: u32::try_from(whole / granule).unwrap_or(u32::MAX),
        })
    };
    let from = about
        .saturating_sub(off)
        .max(2 * BLOCK)
        .next_multiple_of(BLOCK);
    (from..=about + off)
        .step_by(BLOCK as usize)
        .flat_map(steps)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const G: u64 = 32 << 10;

    fn truth() -> Placement {
        Placement {
            granule: Bytes(G),
            units: 6,
        }
    }

    fn values(truth: &Placement, image: u64, noise: f64) -> Vec<LagTime> {
        let stripe = truth.stripe().0;
        let lags = (0..=16).map(|i| image * stripe + i * 2 * BLOCK - 16 * BLOCK);
        lags.enumerate()
            .map(|(i, lag)| LagTime {
                lag,
                time: Mean {
                    value: 80.0
                        + 40.0 * share(truth, lag)
                        + noise * (f64::from(i as u32 * 7 % 5) - 2.0),
                    error: 0.1 + noise * 1.4,
                },
            })
            .collect()
    }

    #[test]
    fn a_share_is_a_triangle_around_each_multiple_of_the_stripe() {
        let stripe = truth().stripe().0;
        for (lag, expected) in [(0, 1.0), (G / 2, 0.5), (G, 0.0), (stripe - G / 4, 0.75)] {
            assert_eq!(share(&truth(), lag), expected);
            assert_eq!(share(&truth(), lag + 3 * stripe), expected);
        }
    }

    #[test]
    fn the_truth_is_found_or_left_open_but_nothing_else() {
        let stripe = truth().stripe().0;
        let candidates = candidates(stripe + BLOCK, 4 * BLOCK);
        assert!(candidates.contains(&truth()));
        let groups = |noise| [values(&truth(), 1, noise), values(&truth(), 2, noise)];
        assert_eq!(fit(&groups(0.0), &candidates, 40.0), Fit::Clear(truth()));
        for noise in 1..40 {
            let found = fit(&groups(f64::from(noise)), &candidates, 40.0);
            assert!([Fit::Clear(truth()), Fit::Open, Fit::Bad].contains(&found));
        }
        assert_eq!(fit(&groups(20.0), &candidates, 40.0), Fit::Open);
    }

    #[test]
    fn what_is_no_triangle_is_bad() {
        let stripe = truth().stripe().0;
        let candidates = candidates(stripe, 4 * BLOCK);
        let mut group = values(&truth(), 1, 0.0);
        for (i, value) in group.iter_mut().enumerate() {
            value.time.value = if i % 2 == 0 { 80.0 } else { 120.0 };
        }
        assert_eq!(fit(&[group], &candidates, 40.0), Fit::Bad);
    }
}
