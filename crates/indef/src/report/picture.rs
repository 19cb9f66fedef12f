//! Pictures of files: each slice before and after in one cell, and the stretch of the device below.

use units::Bytes;

use super::reads::{Reads, per_read};
use crate::{
    document::FileMap,
    extent_map::{DEVICE_SLICES, FILE_SLICES},
    output::{Count, Name, Ratio, counted},
};

/// Upper limits (inclusive) of the colour classes for the requests of a read; `f0` is a hole.
const CLASSES: [(u64, &str); 4] = [(1, "f1"), (3, "f2"), (7, "f3"), (31, "f4")];

/// The text of the legend, class by class.
pub(super) const LEGEND: [(&str, &str); 6] = [
    ("f1", "1 request: contiguous"),
    ("f2", "2–3"),
    ("f3", "4–7"),
    ("f4", "8–31"),
    ("f5", "32 or more"),
    ("f0", "hole"),
];

fn class(requests: f64) -> &'static str {
    match requests.round() as u64 {
        0 => "f0",
        n => CLASSES
            .iter()
            .find(|(limit, _)| n <= *limit)
            .map_or("f5", |(_, class)| class),
    }
}

const COLUMNS: usize = 32;
const CELL: usize = 16;
const _: () = assert!((FILE_SLICES as usize).is_multiple_of(COLUMNS));

/// The picture of one file.
pub(super) struct Picture {
    pub(super) name: String,
    /// Size, and size of a cell.
    pub(super) sizes: String,
    pub(super) extents: String,
    /// The picture in words, for readers who cannot see it.
    pub(super) description: String,
    pub(super) height: usize,
    pub(super) cells: Vec<Cell>,
    pub(super) bars: Vec<Bar>,
    pub(super) reads: Reads,
}

/// A slice of the file: its upper half shows it before, its lower half after.
pub(super) struct Cell {
    pub(super) x: usize,
    pub(super) y: usize,
    pub(super) before: &'static str,
    pub(super) after: &'static str,
    pub(super) tip: String,
}

/// The file on the device, at one time.
pub(super) struct Bar {
    pub(super) when: &'static str,
    pub(super) description: String,
    pub(super) parts: Vec<Part>,
}

/// A part of the bar, darker where more of it belongs to the file.
pub(super) struct Part {
    pub(super) x: String,
    pub(super) width: String,
    pub(super) opacity: String,
}

impl Picture {
    /// The picture of a map, for reads of this size.
    pub(super) fn new(map: &FileMap, io_size: Bytes) -> Self {
        let path = map.path.to_path().unwrap_or_default();
        let before = per_read(map, &map.before, map.extents_before, io_size);
        let after = match (map.after.is_empty(), map.extents_after) {
            // Not known: as it is.
            (true, _) => before.clone(),
            (false, Some(extents)) => per_read(map, &map.after, extents, io_size),
            (false, None) => per_read(map, &map.after, map.extents_before, io_size),
        };
        Self::of(map, &path, &before, &after)
    }

    /// The picture of a plan's map, whose slices have the requests of their reads already.
    pub(super) fn planned(map: &FileMap) -> Self {
        let path = map.path.to_path().unwrap_or_default();
        let numbers = |slices: &[u64]| slices.iter().map(|n| *n as f64).collect::<Vec<_>>();
        Self::of(map, &path, &numbers(&map.before), &numbers(&map.after))
    }

    fn of(map: &FileMap, path: &std::path::Path, before: &[f64], after: &[f64]) -> Self {
        let mut reads = Reads::default();
        let mut cells = Vec::new();
        for (n, (before, after)) in before.iter().zip(after).enumerate() {
            if *before > 0.0 {
                reads.add(1.0, *before, *after);
            }
            cells.push(Cell {
                x: n % COLUMNS * CELL + 1,
                y: n / COLUMNS * CELL + 1,
                before: class(*before),
                after: class(*after),
                tip: tip(map, n as u64, *before, *after),
            });
        }
        let extents = match map.extents_after {
            Some(after) => format!("{} → {} extents", Count(map.extents_before), Count(after)),
            None => counted(map.extents_before, "extent", "extents"),
        };
        let split = |numbers: &[f64]| numbers.iter().filter(|n| n.round() > 1.0).count() as u64;
        Self {
            name: Name(path).to_string(),
            sizes: format!(
                "{}, a cell is {}",
                Bytes(map.size_bytes),
                Bytes(map.slice_bytes)
            ),
            extents,
            description: format!(
                "{} of {} cells take more than one request for a read before, {} after",
                Count(split(before)),
                Count(cells.len() as u64),
                Count(split(after))
            ),
            height: cells.len().div_ceil(COLUMNS).max(1) * CELL,
            cells,
            bars: bars(map),
            reads,
        }
    }
}

fn tip(map: &FileMap, n: u64, before: f64, after: f64) -> String {
    let from = Bytes(n * map.slice_bytes);
    let place = format!("from {from}");
    if before == 0.0 {
        return format!("{place}: a hole");
    }
    if (before - after).abs() < 0.005 {
        return format!("{place}: {} for a read, as before", Requests(before));
    }
    format!(
        "{place}: {} for a read, then {}",
        Requests(before),
        Ratio(after)
    )
}

struct Requests(f64);

impl std::fmt::Display for Requests {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            n if (n - 1.0).abs() < 0.005 => f.write_str("1 request"),
            n => write!(f, "{} requests", Ratio(n)),
        }
    }
}

fn bars(map: &FileMap) -> Vec<Bar> {
    let Some(device) = &map.device else {
        return Vec::new();
    };
    [("before", &device.before), ("after", &device.after)]
        .into_iter()
        .filter(|(_, shares)| !shares.is_empty())
        .map(|(when, shares)| Bar {
            when,
            description: format!(
                "{when}: where the file lies on {} of the device, from byte {} on",
                Bytes(device.len_bytes),
                Count(device.start_bytes)
            ),
            parts: parts(shares),
        })
        .collect()
}

/// Neighbours that look the same are one rectangle: no seams, and a smaller page.
fn parts(shares: &[u16]) -> Vec<Part> {
    let width = 512.0 / DEVICE_SLICES as f64;
    let mut parts = Vec::new();
    let mut n = 0;
    for same in shares.chunk_by(|one, next| one == next) {
        if same[0] > 0 {
            parts.push(Part {
                x: format!("{:.2}", n as f64 * width),
                width: format!("{:.2}", same.len() as f64 * width),
                opacity: format!("{:.2}", (f64::from(same[0]) / 1000.0).max(0.12)),
            });
        }
        n += same.len();
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_count_has_a_colour_of_the_legend() {
        for (requests, expected) in [
            (0.0, "f0"),
            (1.0, "f1"),
            (1.4, "f1"),
            (2.0, "f2"),
            (3.4, "f2"),
            (4.0, "f3"),
            (8.0, "f4"),
            (31.0, "f4"),
            (32.0, "f5"),
            (1e30, "f5"),
        ] {
            assert_eq!(class(requests), expected, "{requests}");
            assert!(LEGEND.iter().any(|(class, _)| *class == expected));
        }
    }

    #[test]
    fn bars_have_a_part_for_each_run_of_like_slices() {
        for n in [0, 1, 31, 192] {
            assert_eq!(parts(&vec![500; n]).len(), usize::from(n > 0));
        }
        assert_eq!(parts(&[0, 5, 5, 0, 1000]).len(), 2);
    }
}
