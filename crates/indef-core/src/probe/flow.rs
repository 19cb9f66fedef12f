//! The way of a read's requests through units and channels, step by step.
//!
//! ```text
//! request nth:       begins at nth · submit, and is cut where flash pages and granules end
//! page of a unit:    sense, once the unit is free
//! its bytes:         over the channel, in the order in which pages are sensed; then over the link, which all share
//! unit:              free once the page is sensed, or (one register) once its bytes have left it
//! ```
//!
//! The time is that until the last byte is there, on a drive that does nothing else.

use std::{cmp::Reverse, collections::BinaryHeap};

use serde::{Deserialize, Serialize};
use units::Bytes;

use super::{BLOCK, Placement};

/// Beginnings of which a mean is taken.
const BEGINNINGS: u64 = 64;

/// The parts of a drive that requests pass, with their times in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Flow {
    /// One flash page of a unit: a granule, or a part of it.
    pub(super) page: Bytes,
    /// The channels of the units.
    pub(super) channels: Channels,
    /// To sense a page.
    pub(super) sense_ns: f64,
    /// Each byte on its channel.
    pub(super) transfer_ns: f64,
    /// Each byte on the way to the host that all channels share.
    pub(super) link_ns: f64,
    /// Whether a unit senses nothing else until its bytes have left.
    pub(super) holds: bool,
    /// From one request to the next.
    pub(super) submit_ns: f64,
    /// Once for all: the host's own time and the controller's.
    pub(super) host_ns: f64,
}

/// The units that share a channel: so many consecutive units are on one, the next ones on the next channel, in turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Channels {
    /// Consecutive units on one channel.
    pub run: u32,
    /// Number of channels.
    pub count: u32,
}

impl Channels {
    /// The channel of a unit.
    pub(super) const fn of(self, unit: u32) -> u32 {
        unit / self.run % self.count
    }

    /// Whether units of a drive can be on channels in this way: each has as many.
    pub(super) const fn are_possible(self, units: u32) -> bool {
        let Some(round) = self.run.checked_mul(self.count) else {
            return false;
        };
        round > 0 && units.is_multiple_of(round)
    }
}

/// A part of a request that is on one flash page.
struct Part {
    unit: u32,
    begins: u64,
    bytes: u64,
}

impl Flow {
    /// The time of these requests, each a place and a length, that go out together, in nanoseconds.
    pub(super) fn read_ns(
        &self,
        placement: &Placement,
        requests: impl Iterator<Item = (u64, u64)>,
    ) -> f64 {
        let mut parts = self.parts(placement, requests);
        // Those of one unit are done in the order in which they came.
        parts.sort_by_key(|part| part.unit);
        let units: Vec<&[Part]> = parts.chunk_by(|a, b| a.unit == b.unit).collect();
        // The parts of each unit that are done, and when the bytes of the last one left.
        let mut done = vec![(0, 0); units.len()];
        let mut channels = vec![0; self.channels.count as usize];
        let mut sensed: BinaryHeap<Reverse<(u64, usize)>> = (units.iter().enumerate())
            .filter_map(|(nth, parts)| {
                let first = parts.first()?;
                Some(Reverse((first.begins + self.sense_ns as u64, nth)))
            })
            .collect();
        let mut sent = Vec::with_capacity(parts.len());
        while let Some(Reverse((ready, nth))) = sensed.pop() {
            let (count, left_before) = done[nth];
            let part = &units[nth][count];
            let channel = &mut channels[self.channels.of(part.unit) as usize];
            let left = ready.max(*channel) + (part.bytes as f64 * self.transfer_ns) as u64;
            *channel = left;
            sent.push((left, part.bytes));
            done[nth] = (count + 1, left);
            if let Some(next) = units[nth].get(count + 1) {
                // Without a second register the page waits in the first one.
                let free = match self.holds {
                    true => left,
                    false => ready.max(left_before),
                };
                let begins = next.begins.max(free);
                sensed.push(Reverse((begins + self.sense_ns as u64, nth)));
            }
        }
        sent.sort_unstable();
        let arrive = |link: u64, (left, bytes): &(u64, u64)| {
            link.max(*left) + (*bytes as f64 * self.link_ns) as u64
        };
        self.host_ns + sent.iter().fold(0, arrive) as f64
    }

    fn parts(
        &self,
        placement: &Placement,
        requests: impl Iterator<Item = (u64, u64)>,
    ) -> Vec<Part> {
        let granule = placement.granule.0.max(1);
        let page = self.page.0.clamp(1, granule);
        let mut parts = Vec::new();
        for (nth, (place, len)) in requests.enumerate() {
            let begins = (nth as f64 * self.submit_ns) as u64;
            let (mut at, end) = (place, place.saturating_add(len));
            while at < end {
                let within = at % granule;
                let rest = (page - within % page).min(granule - within);
                let bytes = rest.min(end - at);
                let unit = (at / granule % u64::from(placement.units.max(1))) as u32;
                parts.push(Part {
                    unit,
                    begins,
                    bytes,
                });
                at += bytes;
            }
        }
        parts
    }

    /// The mean time of `count` requests `apart` bytes from each other, over all beginnings in a stripe.
    pub(super) fn mean_ns(&self, placement: &Placement, count: u64, apart: u64, len: u64) -> f64 {
        let blocks = placement.stripe().0 / BLOCK;
        // Some beginnings tell of all.
        let step = (blocks / BEGINNINGS).max(1) | 1;
        let times = (0..blocks.min(BEGINNINGS)).map(|nth| {
            let first = nth * step * BLOCK;
            self.read_ns(placement, (0..count).map(|nth| (first + nth * apart, len)))
        });
        times.sum::<f64>() / blocks.clamp(1, BEGINNINGS) as f64
    }

    /// Whether the values are such as a drive can have, with times up to this one.
    pub(super) fn is_sound(&self, placement: &Placement, longest_ns: f64) -> bool {
        let page = self.page.0 as f64;
        let times = [
            self.sense_ns,
            self.transfer_ns * page,
            self.link_ns * page,
            self.submit_ns,
            self.host_ns,
        ];
        times.iter().all(|ns| (0.0..=longest_ns).contains(ns))
            && (BLOCK..=placement.granule.0).contains(&self.page.0)
            && self.channels.are_possible(placement.units)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACEMENT: Placement = Placement {
        granule: Bytes::kib(32),
        units: 8,
    };
    const KIB: u64 = 1 << 10;

    /// Eight units of two pages of 16 KiB, on four channels.
    fn flow(holds: bool) -> Flow {
        Flow {
            page: Bytes::kib(16),
            channels: Channels { run: 1, count: 4 },
            sense_ns: 50_000.0,
            transfer_ns: 1.0,
            link_ns: 0.25,
            holds,
            submit_ns: 1_000.0,
            host_ns: 10_000.0,
        }
    }

    fn ns(flow: &Flow, requests: &[(u64, u64)]) -> f64 {
        let requests = requests.iter().map(|(place, len)| (place * KIB, len * KIB));
        flow.read_ns(&PLACEMENT, requests)
    }

    #[test]
    fn requests_wait_for_pages_units_and_channels() {
        let (one, two) = (flow(true), flow(false));
        let k = KIB as f64;
        // A block; two on units of their own; two on one channel; two on one unit.
        assert_eq!(ns(&one, &[(0, 4)]), 60_000.0 + 5.0 * k);
        assert_eq!(ns(&one, &[(0, 4), (32, 4)]), 60_000.0 + 6.0 * k);
        assert_eq!(ns(&one, &[(0, 4), (128, 4)]), 60_000.0 + 9.0 * k);
        assert_eq!(ns(&one, &[(0, 4), (256, 4)]), 110_000.0 + 9.0 * k);
        // With a second register the next page is sensed while bytes leave.
        assert_eq!(ns(&two, &[(0, 4), (256, 4)]), 110_000.0 + 5.0 * k);
        // A request within a page, across two of a unit, and across two units.
        assert_eq!(ns(&one, &[(0, 8)]), 60_000.0 + 10.0 * k);
        assert_eq!(ns(&one, &[(12, 8)]), 110_000.0 + 9.0 * k);
        assert_eq!(ns(&one, &[(28, 8)]), 60_000.0 + 6.0 * k);
        assert_eq!(ns(&one, &[]), 10_000.0);
    }

    #[test]
    fn what_no_drive_can_have_is_not_sound() {
        assert!(flow(true).is_sound(&PLACEMENT, 1e9));
        let mut wrong = [flow(true); 5];
        wrong[0].page = Bytes::kib(64);
        wrong[1].page = Bytes(0);
        wrong[2].channels.count = 3;
        wrong[3].channels = Channels { run: 0, count: 0 };
        wrong[4].submit_ns = f64::NAN;
        assert!(wrong.iter().all(|flow| !flow.is_sound(&PLACEMENT, 1e9)));
    }
}
