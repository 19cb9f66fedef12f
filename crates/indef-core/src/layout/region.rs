//! The region of a device that is the cheapest to empty.
//!
//! Free space is made whole by moving away what lies between free runs. A *region* is a range of the device
//! that has nothing but free runs and what can move, each as a whole: a fragment of a file that is cut would leave its
//! file with one more, and a chunk of Btrfs is emptied by the kernel or is not. Emptying a region writes the bytes that
//! these have, and gives one free run.
//!
//! ```text
//!        ┌──────── region: 7 blocks of fragments to move ────────┐
//! M M M M f f f f A A A f f f f B B f f f f f f f f f C C f f f f M
//! metadata        └ fragments ┘   └ free                         metadata
//! ```
//!
//! Of all regions of the wanted length, the cheapest has the fewest bytes to move. Found in one pass: for each
//! beginning, the nearest end.

use units::{Bytes, PhysRange};

/// A region, with the price of emptying it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// The range that has to be emptied, whose ends cut no fragment and no free run.
    pub place: PhysRange,
    /// The bytes in it that have to be moved.
    pub to_move: Bytes,
    /// Its free bytes.
    pub free: Bytes,
}

/// A range that can be emptied, as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Movable {
    /// Where it lies.
    pub place: PhysRange,
    /// The bytes that are moved then: all of a fragment; of a part of the file system what is used of it.
    pub used: Bytes,
}

impl From<PhysRange> for Movable {
    /// A fragment.
    fn from(place: PhysRange) -> Self {
        Self {
            place,
            used: place.len,
        }
    }
}

#[derive(Clone, Copy)]
struct Part {
    place: PhysRange,
    used: Bytes,
}

/// The cheapest region of at least `wanted` bytes, of the longest ones with that price; `None` where there is
/// none. `free` are the free runs and `movable` what can move, both in the order of the device and
/// without overlap; everything else stays where it is.
#[must_use]
pub fn cheapest_region(free: &[PhysRange], movable: &[Movable], wanted: Bytes) -> Option<Region> {
    let parts = merge(free, movable);
    parts
        .chunk_by(|one, next| one.place.end() == next.place.start)
        .filter_map(|parts| cheapest_of(parts, wanted))
        .min_by_key(|region| (region.to_move, std::cmp::Reverse(region.place.len)))
}

/// The same where all parts touch.
fn cheapest_of(parts: &[Part], wanted: Bytes) -> Option<Region> {
    let mut best: Option<Region> = None;
    let (mut end, mut to_move) = (0, Bytes::ZERO);
    for (first, part) in parts.iter().enumerate() {
        let place = |end: usize| PhysRange::between(part.place.start, parts[end - 1].place.end());
        // What is free beyond costs nothing.
        while end < parts.len()
            && (end <= first || place(end).len < wanted || parts[end].used.is_zero())
        {
            to_move += parts[end].used;
            end += 1;
        }
        let place = place(end);
        if place.len < wanted {
            break;
        }
        let better = best.is_none_or(|best| {
            (to_move, std::cmp::Reverse(place.len))
                < (best.to_move, std::cmp::Reverse(best.place.len))
        });
        if better {
            best = Some(Region {
                place,
                to_move,
                free: place.len.saturating_sub(to_move),
            });
        }
        to_move = to_move.saturating_sub(part.used);
    }
    best
}

/// All parts in the order of the device. Of two that overlap, as they can where the device changed between two
/// looks, neither is used.
fn merge(free: &[PhysRange], movable: &[Movable]) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::with_capacity(free.len() + movable.len());
    parts.extend(free.iter().map(|place| Part {
        place: *place,
        used: Bytes::ZERO,
    }));
    parts.extend(movable.iter().map(|it| Part {
        place: it.place,
        used: it.used,
    }));
    parts.retain(|part| !part.place.is_empty());
    parts.sort_by_key(|part| part.place.start);
    let mut reached = units::PhysOffset(0);
    let mut kept: Vec<Part> = Vec::with_capacity(parts.len());
    for part in parts {
        if part.place.start < reached {
            while kept
                .last()
                .is_some_and(|last| last.place.overlaps(part.place))
            {
                kept.pop();
            }
        } else {
            kept.push(part);
        }
        reached = reached.max(part.place.end());
    }
    kept
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// `.` is free, a letter a fragment (of equal ones beside each other), `#` stays.
    fn parse(map: &str) -> (Vec<PhysRange>, Vec<Movable>) {
        let (mut free, mut movable) = (Vec::new(), Vec::new());
        let bytes = map.as_bytes();
        let mut at = 0;
        for run in bytes.chunk_by(|a, b| a == b) {
            let place = PhysRange::new(at as u64, run.len() as u64);
            match run[0] {
                b'.' => free.push(place),
                b'#' => {}
                _ => movable.push(place.into()),
            }
            at += run.len();
        }
        (free, movable)
    }

    fn cheapest(map: &str, wanted: u64) -> Option<(u64, u64, u64)> {
        let (free, movable) = parse(map);
        let region = cheapest_region(&free, &movable, Bytes(wanted))?;
        assert_eq!(region.free + region.to_move, region.place.len);
        Some((region.place.start.0, region.place.len.0, region.to_move.0))
    }

    #[test]
    fn fewest_bytes_to_move_win() {
        assert_eq!(cheapest("aaa.bb..c...dddd.", 6), Some((6, 6, 1)));
        assert_eq!(cheapest("aaa.bb..c...dddd.", 7), Some((3, 9, 3)));
        assert_eq!(cheapest("aaa.bb..c...dddd.", 17), Some((0, 17, 10)));
        assert_eq!(cheapest("aaa.bb..c...dddd.", 18), None);
        assert_eq!(cheapest("...a", 3), Some((0, 3, 0)), "free already");
        assert_eq!(cheapest("", 1), None);
    }

    #[test]
    fn nothing_that_stays_lies_inside() {
        assert_eq!(cheapest("...#...aaaaa...", 5), Some((4, 11, 5)));
        assert_eq!(cheapest("...#...", 4), None);
        // Free space at the ends comes with it.
        assert_eq!(cheapest("#.a.....", 7), Some((1, 7, 1)));
    }

    #[test]
    fn what_overlaps_is_not_used() {
        let free = [PhysRange::new(0, 4), PhysRange::new(8, 4)];
        let movable = [PhysRange::new(2, 4), PhysRange::new(6, 2)].map(Movable::from);
        let region = cheapest_region(&free, &movable, Bytes(5)).unwrap();
        assert_eq!(region.place, PhysRange::new(6, 6));
        assert_eq!(cheapest_region(&free, &movable, Bytes(7)), None);
    }

    #[test]
    fn parts_that_are_hardly_used_are_cheap() {
        let part = |start, len, used| Movable {
            place: PhysRange::new(start, len),
            used: Bytes(used),
        };
        let movable = [part(0, 8, 7), part(8, 8, 2), part(16, 8, 3), part(28, 8, 8)];
        let free = [PhysRange::new(24, 4)];
        let region = |wanted| cheapest_region(&free, &movable, Bytes(wanted)).unwrap();
        let expect = |start, len, to_move: u64| Region {
            place: PhysRange::new(start, len),
            to_move: Bytes(to_move),
            free: Bytes(len - to_move),
        };
        assert_eq!(region(5), expect(8, 8, 2));
        assert_eq!(region(12), expect(16, 12, 3));
        assert_eq!(region(17), expect(8, 20, 5));
    }

    proptest! {
        #[test]
        fn no_region_is_cheaper(map in "[.abc#]{0,40}", wanted in 1u64..20) {
            let (free, movable) = parse(&map);
            let found = cheapest_region(&free, &movable, Bytes(wanted));
            // Every range whose ends cut nothing.
            let bytes = map.as_bytes();
            let is_border = |at: usize| {
                at == 0 || at == bytes.len() || bytes[at - 1] != bytes[at]
            };
            let mut least: Option<u64> = None;
            for start in 0..bytes.len() {
                for end in start + wanted as usize..=bytes.len() {
                    let inside = &bytes[start..end];
                    if is_border(start) && is_border(end) && !inside.contains(&b'#') {
                        let cost = inside.iter().filter(|byte| **byte != b'.').count() as u64;
                        least = Some(least.map_or(cost, |least| least.min(cost)));
                    }
                }
            }
            prop_assert_eq!(found.map(|region| region.to_move.0), least);
            if let Some(region) = found {
                prop_assert!(region.place.len.0 >= wanted);
            }
        }
    }
}
