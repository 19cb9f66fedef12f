//! How many fragments beyond the first cost nothing.
//!
//! A drive of many dies senses the pages of a read at the same time. A few fragments more change nothing, as long as
//! they lie on dies of their own; from some number on, each further one waits. A straight line through both parts fits
//! neither: on a model of such a drive it left two in five ranges out as wild ones.

use super::{
    fit::{self, AHEAD, COLUMNS, DOLF, DOPF, Observation, SPLIT},
    sample::Sample,
};

/// Numbers that are tried: further apart where a fit would not tell them from each other.
const FREE: [u64; 8] = [0, 1, 2, 3, 5, 7, 11, 15];

/// A larger number is taken only where ranges lie this much closer to the fit than without any.
const CLOSER: f64 = 0.9;

/// On the way to the right number, each step is as much closer at least.
const ON_THE_WAY: f64 = 0.98;

/// Ranges that are looked at for it: the fit of all follows once.
const MANY: usize = 1024;

/// The smallest share of DoLF that length must leave unexplained: below it, the effects of the two
/// cannot be separated.
const TELLABLE: f64 = 1e-3;

/// The number with which a fit is closest to these ranges, and the columns that such a fit can use, of which requests
/// ahead are one where they are known.
pub(super) fn find(
    samples: &[Sample],
    prior_reads: f64,
    knows_ahead: bool,
) -> (u64, [bool; COLUMNS]) {
    let some: Vec<&Sample> = (samples.iter())
        .step_by(samples.len().div_ceil(MANY))
        .collect();
    let rows_with = |free| -> Vec<Observation> {
        let rows = some.iter().map(|sample| sample.row(prior_reads, free));
        rows.collect()
    };
    let rows = rows_with(0);
    let without = usable(&rows, knows_ahead);
    let mut best = (0, without);
    if !without[DOLF] {
        return best;
    }
    let mut last = fit::robust(&rows, without).mean_error;
    // Rounding is no reason.
    let close = CLOSER * last - 1.0;
    for free in FREE.into_iter().skip(1) {
        let rows = rows_with(free);
        let usable = usable(&rows, knows_ahead);
        if !usable[DOLF] {
            break;
        }
        let error = fit::robust(&rows, usable).mean_error;
        // Away from the right number it only becomes worse.
        if error > ON_THE_WAY * last {
            break;
        }
        if error < close {
            best = (free, usable);
        }
        last = error;
    }
    best
}

/// The columns whose effects can be told from that of the length.
fn usable(rows: &[Observation], knows_ahead: bool) -> [bool; COLUMNS] {
    let tells = |column| fit::unexplained(rows, column) >= TELLABLE;
    let mut usable = [true; COLUMNS];
    usable[DOLF] = tells(DOLF);
    usable[DOPF] = tells(DOPF);
    usable[AHEAD] = knows_ahead && tells(AHEAD);
    usable[SPLIT] = usable[DOLF] && tells(SPLIT);
    usable
}
