//! How many requests a read takes, before and after: the gain in words.

use std::fmt;

use units::Bytes;

use crate::document::FileMap;

/// The usual block of a file system; borders of fragments lie between blocks.
const BLOCK: u64 = 4096;

/// Mean requests of a read of one size, over reads of different weight.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reads {
    weight: f64,
    before: f64,
    after: f64,
}

impl Reads {
    /// Count reads of this weight that take so many requests before and after.
    pub(super) fn add(&mut self, weight: f64, before: f64, after: f64) {
        self.weight += weight;
        self.before += weight * before;
        self.after += weight * after;
    }

    /// Count the reads of another sum.
    pub(super) fn join(&mut self, other: Self) {
        self.weight += other.weight;
        self.before += other.before;
        self.after += other.after;
    }

    /// Whether there is a difference that a person would see.
    pub(super) fn differ(&self) -> bool {
        (self.before - self.after).abs() >= 0.05 * self.weight && self.weight > 0.0
    }
}

/// `32 → 1.0`.
impl fmt::Display for Reads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mean = |sum: f64| crate::output::Ratio(sum / self.weight.max(f64::MIN_POSITIVE));
        write!(f, "{} → {}", mean(self.before), mean(self.after))
    }
}

/// Fragments that a read of `io_size` meets in each slice of a map, 0 for holes, where the map has the fragments of the
/// slices and the file so many in all.
///
/// Each border between two fragments costs one more request to the read that crosses it; those where one read ends and
/// the next begins cost nothing. Borders that lie between two slices are in neither's count: they are shared out evenly.
pub(super) fn per_read(map: &FileMap, slices: &[u64], extents: u64, io_size: Bytes) -> Vec<f64> {
    let held = slices.iter().filter(|n| **n > 0).count() as f64;
    let inside = slices.iter().map(|n| n.saturating_sub(1));
    let inside = inside.fold(0, u64::saturating_add);
    let between = extents.saturating_sub(1).saturating_sub(inside) as f64 / held.max(1.0);
    let reads = map.slice_bytes as f64 / io_size.get().max(1) as f64;
    // The part of the borders between blocks that lie inside of a read.
    let borders = |of: u64| map.size_bytes.div_ceil(of.max(1)).saturating_sub(1) as f64;
    let crossed = 1.0 - borders(io_size.get()) / borders(BLOCK).max(1.0);
    slices
        .iter()
        .map(|n| match n {
            0 => 0.0,
            n => 1.0 + (n.saturating_sub(1) as f64 + between) / reads * crossed.max(0.0),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use indef_core::plan::PathJson;

    use super::*;

    fn map(slice_bytes: u64) -> FileMap {
        FileMap {
            path: PathJson::from(std::path::Path::new("/f")),
            size_bytes: slice_bytes * 4,
            slice_bytes,
            extents_before: 1,
            extents_after: None,
            before: Vec::new(),
            after: Vec::new(),
            device: None,
        }
    }

    #[test]
    fn a_contiguous_file_takes_one_request() {
        for slice in [4096, 131_072, 1 << 24] {
            let reads = per_read(&map(slice), &[1, 1, 0, 1], 1, Bytes::kib(128));
            assert_eq!(reads, [1.0, 1.0, 0.0, 1.0]);
        }
    }

    #[test]
    fn borders_between_slices_count_too() {
        // Four blocks, each a fragment of its own: no border is inside of a slice.
        let reads = per_read(&map(4096), &[1, 1, 1, 1], 4, Bytes::kib(16));
        assert!(reads.iter().all(|n| (*n - 4.0).abs() < 0.01), "{reads:?}");
    }

    #[test]
    fn a_file_in_single_blocks_takes_a_request_for_each() {
        let slices = [2; 256];
        let map = FileMap {
            size_bytes: 2 << 20,
            ..map(8192)
        };
        let reads = per_read(&map, &slices, 512, Bytes::kib(128));
        assert!(reads.iter().all(|n| (*n - 32.0).abs() < 0.1), "{reads:?}");
    }

    #[test]
    fn the_mean_is_weighted_by_reads() {
        let mut reads = Reads::default();
        reads.add(3.0, 10.0, 1.0);
        reads.add(1.0, 2.0, 2.0);
        assert!(reads.differ());
        assert_eq!(reads.to_string(), "8.00 → 1.25");
        assert!(!Reads::default().differ());
    }
}
