//! Cuts a run of a file into units, each of which gets new blocks in one call.

use indef_core::layout::Layout;
use units::{Bytes, FileOffset, FileRange};

/// Cut a written run where an extent begins: a unit of at most `bytes` and `extents`, but two of them
/// at least, and the rest, which has none or two at least.
pub(crate) fn cut(
    layout: &Layout,
    run: FileRange,
    bytes: Bytes,
    extents: usize,
) -> (FileRange, Option<FileRange>) {
    let end = FileOffset(run.start.get().saturating_add(bytes.get()));
    let starts: Vec<FileOffset> = layout
        .clipped(run)
        .map(|extent| extent.file)
        .take(extents.saturating_add(3))
        .collect();
    if starts.len() <= extents && run.end() <= end {
        return (run, None);
    }
    let places = 2..starts.len().saturating_sub(1);
    let fits = |index: &usize| *index <= extents && starts[*index] <= end;
    match places.clone().rev().find(fits).or(places.clone().next()) {
        Some(index) => (
            FileRange::between(run.start, starts[index]),
            Some(FileRange::between(starts[index], run.end())),
        ),
        None => (run, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_layout::{NONE, extent};

    /// Extents of these lengths, none beside another.
    fn layout(lengths: &[u64]) -> Layout {
        let mut at = 0;
        let next = |(index, len): (usize, &u64)| {
            let file = at;
            at += len;
            extent(file, 1_000_000 * (index as u64 + 1), *len, NONE)
        };
        Layout::new(lengths.iter().enumerate().map(next).collect())
    }

    /// The lengths of all units.
    fn units(lengths: &[u64], bytes: u64, extents: usize) -> Vec<u64> {
        let layout = layout(lengths);
        let mut rest = Some(FileRange::new(0, lengths.iter().sum()));
        let mut units = Vec::new();
        while let Some(run) = rest {
            let (unit, next) = cut(&layout, run, Bytes(bytes), extents);
            units.push(unit.len.get());
            rest = next;
        }
        units
    }

    #[test]
    fn units_end_where_extents_do_and_have_two_at_least() {
        assert_eq!(units(&[10; 8], 40, usize::MAX), [40, 40]);
        assert_eq!(units(&[10; 8], 45, usize::MAX), [40, 40]);
        // Two extents, however long they are.
        assert_eq!(units(&[10; 8], 1, usize::MAX), [20; 4]);
        assert_eq!(units(&[100, 10, 10, 10], 50, usize::MAX), [110, 20]);
        // None stays alone.
        assert_eq!(units(&[10; 7], 40, usize::MAX), [40, 30]);
        assert_eq!(units(&[10; 5], 40, usize::MAX), [30, 20]);
        assert_eq!(units(&[10; 3], 1, usize::MAX), [30]);
        assert_eq!(units(&[10; 2], 1, 1), [20]);
    }

    #[test]
    fn units_have_a_bounded_number_of_extents() {
        assert_eq!(units(&[1; 10], 1000, 4), [4, 4, 2]);
        assert_eq!(units(&[1; 9], 1000, 4), [4, 3, 2]);
    }
}
