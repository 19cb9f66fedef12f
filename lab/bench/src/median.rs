//! The median of samples.

use std::cmp::Ordering;

/// The middle one, of an even number the lower one: a value that was really measured. 0 of none.
pub(super) fn median<T: Copy + Default + PartialOrd>(samples: impl IntoIterator<Item = T>) -> T {
    let mut samples: Vec<T> = samples.into_iter().collect();
    samples.sort_by(|a, b| a.partial_cmp(b).unwrap_or(Ordering::Equal));
    let middle = samples.len().saturating_sub(1) / 2;
    samples.get(middle).copied().unwrap_or_default()
}
