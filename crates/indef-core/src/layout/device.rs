//! The time that a device takes for a read, modelled from its geometry.
//!
//! DoPF counts file system blocks, but flash senses whole pages: with 16 chips that take turns after
//! 4 KiB, a page of 16 KiB holds four blocks that are 64 KiB apart. Four fragments of 64 KiB are as
//! even as can be (DoPF 0), and cost 64 senses; in one piece from the beginning of a *row* (the same
//! page of every chip, 256 KiB here) they cost 16, from elsewhere up to 32.
//!
//! ```text
//! time = commands · command + the largest, over the units, of (pages · sense + bytes ÷ page · transfer)
//! ```
//!
//! Each fragment senses its own pages. Ignored: caches, other load, the moment at which a request
//! arrives, and pages that two requests of one long fragment share.

use serde::{Deserialize, Serialize};
use units::{Bytes, FileRange};

use super::{
    Geometry, Layout,
    spread::{Spread, gcd},
};

/// The times of a flash device. The defaults are those of InDeF §IV, Table I; its time of a command
/// is assumed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceTimes {
    /// Size of a flash page.
    pub page_bytes: Bytes,
    /// Time to sense a page.
    pub sense_ns: u64,
    /// Time to transfer a page from its unit.
    pub transfer_ns: u64,
    /// Time of a command by itself.
    pub command_ns: u64,
}

impl Default for DeviceTimes {
    fn default() -> Self {
        Self {
            page_bytes: Bytes::kib(16),
            sense_ns: 80_000,
            transfer_ns: 24_000,
            command_ns: 10_000,
        }
    }
}

impl DeviceTimes {
    /// Whether the values are such as a device can have: pages of 512 B to 1 GiB, no time above an
    /// hour.
    #[must_use]
    pub fn are_sound(&self) -> bool {
        let times = [self.sense_ns, self.transfer_ns, self.command_ns];
        (512..=1 << 30).contains(&self.page_bytes.0)
            && times.iter().all(|ns| *ns <= 3_600_000_000_000)
    }

    /// The time for reading a range of a file once, with this number of commands, in nanoseconds.
    pub(crate) fn read_ns(
        &self,
        layout: &Layout,
        range: FileRange,
        geometry: &Geometry,
        commands: u64,
    ) -> f64 {
        let mut load = UnitLoad::new(geometry, self.page_bytes);
        for fragment in layout.placed_fragments(range) {
            load.add(fragment.phys.0, fragment.len.0);
        }
        self.ns(&load, commands)
    }

    /// The time for reading `len` contiguous bytes that begin `place` bytes into a row. Where that is
    /// not its beginning, most units take a page more.
    pub(crate) fn contiguous_ns(
        &self,
        len: Bytes,
        place: Bytes,
        geometry: &Geometry,
        commands: u64,
    ) -> f64 {
        let mut load = UnitLoad::new(geometry, self.page_bytes);
        load.add(load.map.origin.saturating_add(place.0), len.0);
        self.ns(&load, commands)
    }

    fn ns(&self, load: &UnitLoad, commands: u64) -> f64 {
        let of_unit = |(pages, bytes): &(u64, u64)| {
            let transfers = *bytes as f64 / self.page_bytes.0.max(1) as f64;
            *pages as f64 * self.sense_ns as f64 + transfers * self.transfer_ns as f64
        };
        let slowest = load.units.iter().map(of_unit).fold(0.0, f64::max);
        commands as f64 * self.command_ns as f64 + slowest
    }
}

/// The pages sensed on each unit, and the bytes transferred from it; no units where the geometry is
/// unknown.
struct UnitLoad {
    map: Spread,
    page: u64,
    units: Vec<(u64, u64)>,
}

impl UnitLoad {
    fn new(geometry: &Geometry, page: Bytes) -> Self {
        let map = geometry.spread();
        // The mapping of a stripe begins again after one granule on each die.
        let longest = match geometry {
            Geometry::Striped { granule, .. } => granule.0,
            Geometry::Zoned { .. } | Geometry::Unknown => u64::MAX,
        };
        Self {
            page: page.0.min(longest).max(1),
            units: vec![(0, 0); map.bytes.len()],
            map,
        }
    }

    /// Count one fragment. Its time depends on the number of units, not on `len`.
    fn add(&mut self, phys: u64, len: u64) {
        let end = phys.saturating_add(len);
        let start = phys.max(self.map.origin);
        if self.units.is_empty() || start >= end {
            return;
        }
        let period = self.map.period;
        let (at, end) = (start - self.map.origin, end - self.map.origin);
        let (first, last) = (at / period, (end - 1) / period);
        if first == last {
            self.add_within(first, at % period, end - first * period, 1);
            return;
        }
        self.add_within(first, at % period, period, 1);
        self.add_within(last, 0, end - last * period, 1);
        // After `cycle` periods the beginnings are on the same units again.
        let units = self.units.len() as u64;
        let cycle = units / gcd(self.map.lanes, units);
        let between = last - first - 1;
        for i in 0..cycle.min(between) {
            let times = between / cycle + u64::from(i < between % cycle);
            self.add_within(first + 1 + i, 0, period, times);
        }
    }

    /// Count the bytes from `from` to `to` of one period, `times` over. They are in one piece on each
    /// of its units.
    fn add_within(&mut self, period: u64, from: u64, to: u64, times: u64) {
        let Spread { granule, lanes, .. } = self.map;
        let units = self.units.len() as u64;
        let round = granule.saturating_mul(lanes);
        // Bytes of the period before `place` that are on a lane.
        let before = |place: u64, lane: u64| {
            let rest = (place % round).saturating_sub(lane.saturating_mul(granule));
            place / round * granule + rest.min(granule)
        };
        for lane in 0..lanes {
            let (low, high) = (before(from, lane), before(to, lane));
            if low == high {
                continue;
            }
            let pages = (high - 1) / self.page - low / self.page + 1;
            let unit = (period % units * lanes + lane) % units;
            let (sensed, bytes) = &mut self.units[unit as usize];
            *sensed = sensed.saturating_add(pages.saturating_mul(times));
            *bytes = bytes.saturating_add((high - low).saturating_mul(times));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::layout::tests::{blocks, layout};

    fn zoned() -> Geometry {
        "zoned:chips=16,block=4KiB,segment=2MiB".parse().unwrap()
    }

    fn load(geometry: Geometry, page: Bytes, pieces: &[(u64, u64)]) -> UnitLoad {
        let mut load = UnitLoad::new(&geometry, page);
        for (phys, len) in pieces {
            load.add(*phys, *len);
        }
        load
    }

    fn pages(load: &UnitLoad) -> (u64, u64) {
        let pages = load.units.iter().map(|unit| unit.0);
        (pages.clone().sum(), pages.max().unwrap_or(0))
    }

    #[test]
    fn four_aligned_fragments_of_64_kib_cost_64_senses_and_one_row_16() {
        let kib = 1024;
        let four: Vec<_> = (0..4).map(|i| (i * 256 * kib, 64 * kib)).collect();
        let page = Bytes::kib(16);
        assert_eq!(pages(&load(zoned(), page, &four)), (64, 4));
        assert_eq!(pages(&load(zoned(), page, &[(0, 256 * kib)])), (16, 1));
        let off = load(zoned(), page, &[(128 * kib, 256 * kib)]);
        assert_eq!(pages(&off), (32, 2));
        // With pages of a block there is no difference.
        assert_eq!(pages(&load(zoned(), Bytes::kib(4), &four)), (64, 4));
        let whole = load(zoned(), Bytes::kib(4), &[(0, 256 * kib)]);
        assert_eq!(pages(&whole), (64, 4));
    }

    #[test]
    fn the_time_is_that_of_the_slowest_unit_and_of_the_commands() {
        let times = DeviceTimes::default();
        // 16 blocks, all on chip 0: sixteen pages or, in four of its pages, four.
        let apart: Vec<_> = (0..16).map(|i| (i, i * 64, 1)).collect();
        let scattered = layout(&apart);
        let ns = times.read_ns(&scattered, blocks(0, 16), &zoned(), 16);
        assert_eq!(ns, 16.0 * 10_000.0 + 16.0 * 80_000.0 + 4.0 * 24_000.0);
        // 64 KiB in one piece, wherever it begins: at most two pages of a chip.
        let ns = times.contiguous_ns(Bytes::kib(64), Bytes::kib(4), &zoned(), 1);
        assert_eq!(ns, 10_000.0 + 80_000.0 + 6_000.0);
        let ns = times.read_ns(&scattered, blocks(0, 16), &Geometry::Unknown, 16);
        assert_eq!(ns, 160_000.0);
    }

    proptest! {
        /// The closed form against counting block by block.
        #[test]
        fn pages_are_those_that_hold_a_byte(
            chips in 1u32..6, lanes in 1u32..6, rounds in 1u64..5, page in 0u32..4,
            from in 0u64..300, len in 1u64..300, striped: bool,
        ) {
            let block = 4096;
            let geometry = if striped {
                Geometry::Striped { granule: Bytes(block * 8), dies: chips }
            } else {
                Geometry::Zoned {
                    chips,
                    block: Bytes(block),
                    segment: Bytes(block * u64::from(lanes.min(chips)) * rounds),
                    segment_chips: lanes.min(chips),
                    offset: Bytes::ZERO,
                }
            };
            let page = block << page;
            let load = load(geometry, Bytes(page), &[(from * block, len * block)]);
            let mut seen = std::collections::HashSet::new();
            let mut bytes = vec![0; chips as usize];
            for at in from..from + len {
                let (unit, place) = match geometry {
                    Geometry::Zoned { .. } => {
                        let lanes = u64::from(lanes.min(chips));
                        let (segment, i) = (at / (lanes * rounds), at % (lanes * rounds));
                        let unit = (segment * lanes + i % lanes) % u64::from(chips);
                        (unit, (segment, i / lanes * block / page))
                    }
                    _ => {
                        let stripe = at / 8 / u64::from(chips);
                        (at / 8 % u64::from(chips), (stripe, at % 8 * block / page))
                    }
                };
                seen.insert((unit, place));
                bytes[unit as usize] += block;
            }
            let mut pages = vec![0; chips as usize];
            seen.iter().for_each(|(unit, _)| pages[*unit as usize] += 1);
            let expected: Vec<_> = pages.into_iter().zip(bytes).collect();
            prop_assert_eq!(load.units, expected);
        }

        #[test]
        fn no_contiguous_place_takes_longer_than_the_one_that_is_assumed(from in 0u64..512, len in 1u64..200) {
            let times = DeviceTimes::default();
            for geometry in [zoned(), "striped:granule=32KiB,dies=8".parse().unwrap()] {
                let here = layout(&[(0, from, len)]);
                let ns = times.read_ns(&here, blocks(0, len), &geometry, 1);
                let assumed = times.contiguous_ns(Bytes(len * 4096), Bytes::kib(4), &geometry, 1);
                // The bytes of the slowest unit may differ by a block or a granule.
                prop_assert!(ns <= assumed + 80_000.0 + 48_000.0, "{} {}", ns, assumed);
            }
        }
    }
}
