//! Extent maps: the places of a file's fragments, condensed to a few hundred numbers that a
//! person can take in.
//!
//! A map has two views of a file, each in equal slices: over the file, how many fragments each
//! slice is in (as a sequential reader meets them); over the stretch of the device on which it
//! lies, how much of each slice belongs to the file (how scattered it is). Entries of very
//! fragmented files have several fragments each: their fragments are then spread evenly over the
//! entry.

use indef_core::plan::PathJson;
use indef_engine::run::{ExtentMaps, MapEntry};
use units::Bytes;

use crate::document::{DeviceMap, FileMap};

/// Number of slices over the file: a grid of 32 × 8.
pub(crate) const FILE_SLICES: u64 = 256;
/// Number of slices over the device.
pub(crate) const DEVICE_SLICES: u64 = 192;
/// The fragments of an entry that has several are taken to lie between its place and that of the
/// next entry, if that distance is at most this many times their length.
const SPREAD: u64 = 64;

/// The bytes in one slice of a file of `size`: whole blocks, [`FILE_SLICES`] of them at most.
pub(crate) fn slice_bytes(size: Bytes, block_size: Bytes) -> Bytes {
    let block = block_size.get().max(1);
    Bytes(
        size.get()
            .div_ceil(FILE_SLICES)
            .max(1)
            .next_multiple_of(block),
    )
}

/// The map of a file before and after.
pub(crate) fn file_map(maps: &ExtentMaps) -> FileMap {
    let slice = slice_bytes(maps.size, Bytes::kib(4));
    let (before, after) = (places(&maps.before), places(&maps.after));
    let device = stretch(before.iter().chain(&after)).map(|(start, len)| DeviceMap {
        start_bytes: start,
        len_bytes: len,
        before: coverage(&before, start, len),
        after: coverage(&after, start, len),
    });
    FileMap {
        path: PathJson::from(maps.path.as_path()),
        size_bytes: maps.size.get(),
        slice_bytes: slice.get(),
        extents_before: maps.extents_before,
        extents_after: Some(maps.extents_after),
        before: fragments(&maps.before, maps.size, slice),
        after: fragments(&maps.after, maps.size, slice),
        device,
    }
}

/// Fragments in each slice; 0 is a hole.
fn fragments(entries: &[MapEntry], size: Bytes, slice: Bytes) -> Vec<u64> {
    let slices = size.div_ceil(slice);
    let mut counts = vec![0.0_f64; slices as usize];
    for entry in entries.iter().filter(|entry| !entry.len.is_zero()) {
        let (start, end) = (entry.file.get(), entry.file.get() + entry.len.get());
        let last = ((end - 1) / slice.get()).min(slices.saturating_sub(1));
        for n in start / slice.get()..=last {
            let from = start.max(n * slice.get());
            let to = end.min((n + 1) * slice.get());
            let share = to.saturating_sub(from) as f64 / entry.len.get() as f64;
            // A fragment that reaches into a slice counts there as one, however little of it lies
            // in the slice.
            counts[n as usize] += (entry.fragments as f64 * share).max(1.0);
        }
    }
    counts
        .into_iter()
        .map(|count| count.round() as u64)
        .collect()
}

/// A run of device bytes, of which `held` belong to the file.
#[derive(Clone, Copy, Debug)]
struct DeviceRun {
    start: u64,
    len: u64,
    held: u64,
}

fn places(entries: &[MapEntry]) -> Vec<DeviceRun> {
    let place = |(n, entry): (usize, &MapEntry)| {
        let held = entry.len.get();
        let next = entries.get(n + 1).map_or(0, |next| next.phys.get());
        let room = next.saturating_sub(entry.phys.get());
        let spread = entry.fragments > 1 && (held..=held.saturating_mul(SPREAD)).contains(&room);
        DeviceRun {
            start: entry.phys.get(),
            len: if spread { room } else { held },
            held,
        }
    };
    entries
        .iter()
        .enumerate()
        .map(place)
        .filter(|place| place.len > 0)
        .collect()
}

/// The stretch of the device that holds all of these: its beginning and its length.
fn stretch<'a>(places: impl Iterator<Item = &'a DeviceRun> + Clone) -> Option<(u64, u64)> {
    let start = places.clone().map(|place| place.start).min()?;
    let end = places
        .map(|place| place.start.saturating_add(place.len))
        .max()?;
    Some((start, end - start))
}

/// The file's share of each slice of the stretch, in per mille. A slice that holds any part of
/// the file is never shown as empty.
fn coverage(places: &[DeviceRun], start: u64, len: u64) -> Vec<u16> {
    let slice = len.div_ceil(DEVICE_SLICES).max(1);
    let mut held = vec![0.0_f64; len.div_ceil(slice) as usize];
    for place in places {
        let mut at = place.start - start;
        let end = (at + place.len).min(len);
        while at < end {
            let n = at / slice;
            let to = ((n + 1) * slice).min(end);
            held[n as usize] += (to - at) as f64 * place.held as f64 / place.len as f64;
            at = to;
        }
    }
    held.into_iter()
        .map(|bytes| match (bytes * 1000.0 / slice as f64).min(1000.0) {
            share if share > 0.0 => share.round().max(1.0) as u16,
            _ => 0,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use units::{FileOffset, PhysOffset};

    use super::*;

    fn entry(file: u64, phys: u64, len: u64, fragments: u64) -> MapEntry {
        MapEntry {
            file: FileOffset(file),
            phys: PhysOffset(phys),
            len: Bytes(len),
            fragments,
        }
    }

    #[test]
    fn slices_are_whole_blocks_and_cover_the_file() {
        let block = Bytes::kib(4);
        assert_eq!(slice_bytes(Bytes::mib(256), block), Bytes::mib(1));
        assert_eq!(slice_bytes(Bytes(10), block), block);
        assert_eq!(slice_bytes(Bytes(0), block), block);
        assert_eq!(slice_bytes(Bytes(1 << 50), block).get() % 4096, 0);
        let size = Bytes(4096 * 300 + 1);
        let slice = slice_bytes(size, block);
        let counts = fragments(
            &[entry(0, 0, 8192, 1), entry(8192, 1 << 20, 4096, 1)],
            size,
            slice,
        );
        assert_eq!(counts.len() as u64, size.div_ceil(slice));
        assert_eq!(&counts[..3], &[1, 1, 0]);
    }

    #[test]
    fn entries_of_many_fragments_are_spread_over_their_slices() {
        let counts = fragments(&[entry(0, 0, 1 << 20, 256)], Bytes::mib(1), Bytes::kib(64));
        assert_eq!(counts, vec![16; 16]);
    }

    #[test]
    fn the_device_is_covered_where_the_file_lies() {
        let before = places(&[
            entry(0, 1_000_000, 4096, 1),
            entry(4096, 3_000_000, 4096, 1),
        ]);
        let after = places(&[entry(0, 2_000_000, 8192, 1)]);
        let (start, len) = stretch(before.iter().chain(&after)).unwrap();
        assert_eq!((start, len), (1_000_000, 2_004_096));
        let (was, is) = (coverage(&before, start, len), coverage(&after, start, len));
        assert!(was[0] > 0 && *was.last().unwrap() > 0);
        assert_eq!(was.iter().filter(|&&share| share > 0).count(), 2);
        assert!(is[0] == 0 && is[is.len() / 2] > 0);
        assert!(stretch([].iter()).is_none());
    }

    #[test]
    fn interleaved_fragments_cover_a_part_of_each_slice() {
        let half = places(&[
            entry(0, 0, 1 << 20, 256),
            entry(1 << 20, 2 << 20, 1 << 20, 256),
        ]);
        let shares = coverage(&half[..1], 0, 2 << 20);
        assert_eq!(shares.len() as u64, DEVICE_SLICES);
        assert!(
            shares.iter().all(|share| (490..=500).contains(share)),
            "{shares:?}"
        );
    }
}
