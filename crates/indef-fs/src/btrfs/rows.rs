//! Where chunks lie on devices, and beside what.
//!
//! A mirrored chunk lies on several devices, and a new one needs room on as many. What lies beside a chunk on one of them may
//! lie elsewhere on another one: devices are of different size, and the kernel takes the one with the most room first. So
//! chunks and room make a longer run of room only where they touch on all devices ([`Rows`]).

use linux_abi::btrfs::{BlockGroupKind, Chunk, Device, Stripe};
use units::PhysRange;

/// The first bytes of a device are in no chunk (`BTRFS_DEVICE_RANGE_RESERVED`, fs/btrfs/fs.h, v6.12).
const RESERVED: u64 = 1 << 20;

/// The devices of a chunk, and how far each copy lies from the first one: in a row, what touches on one device touches on all.
type Row = Vec<(u64, i128)>;

/// The rows of a file system. Each has places of its own, which are those on the device of the first copy.
pub(super) struct Rows<'a> {
    devices: &'a [Device],
    rows: Vec<Row>,
}

impl<'a> Rows<'a> {
    pub(super) fn on(devices: &'a [Device]) -> Self {
        Self {
            devices,
            rows: Vec::new(),
        }
    }

    /// The place of a chunk in its row.
    pub(super) fn add(&mut self, chunk: &Chunk) -> Option<PhysRange> {
        let mut stripes = chunk.stripes.clone();
        stripes.sort_unstable_by_key(|stripe| stripe.device);
        let first = stripes.first()?.start;
        let distance = |stripe: &Stripe| i128::from(stripe.start) - i128::from(first);
        let row: Row = stripes
            .iter()
            .map(|stripe| (stripe.device, distance(stripe)))
            .collect();
        let known = self.rows.iter().position(|other| *other == row);
        let number = known.unwrap_or_else(|| {
            self.rows.push(row);
            self.rows.len() - 1
        });
        let base = self.base(number)?;
        Some(PhysRange::new(base.saturating_add(first), chunk.len))
    }

    /// What no chunk has on any device of a row, in all rows, in the order of the places.
    pub(super) fn vacant(&self, holes: &[Hole]) -> Vec<PhysRange> {
        let mut vacant = Vec::new();
        for (number, row) in self.rows.iter().enumerate() {
            let of_copies = row.iter().map(|copy| seen_from_first(holes, *copy));
            let common = of_copies.reduce(|one, other| common(&one, &other));
            let Some(base) = self.base(number) else {
                continue;
            };
            for (start, end) in common.unwrap_or_default() {
                // Both lie on the device of the first copy.
                if let (Ok(start), Ok(len)) = (u64::try_from(start), u64::try_from(end - start)) {
                    vacant.push(PhysRange::new(base.saturating_add(start), len));
                }
            }
        }
        vacant.sort_unstable_by_key(|place| place.start);
        vacant
    }

    /// Where the places of a row begin.
    fn base(&self, number: usize) -> Option<u64> {
        let row = self.rows.get(number)?;
        let (first, _) = row.first()?;
        let of_device = base_of(self.devices, *first)?;
        if row.len() == 1 {
            return Some(of_device);
        }
        // Several may have the same devices.
        let sizes = self.devices.iter().map(|device| device.size);
        let all = sizes.fold(0, u64::saturating_add);
        Some(all.saturating_mul(number as u64).saturating_add(of_device))
    }
}

/// The holes of a copy's device (start and end), as far from the first copy as this one is from it.
fn seen_from_first(holes: &[Hole], (device, distance): (u64, i128)) -> Vec<(i128, i128)> {
    let of_device = holes.iter().filter(|hole| hole.device == device);
    of_device
        .map(|hole| {
            let start = i128::from(hole.start) - distance;
            (start, start + i128::from(hole.len))
        })
        .collect()
}

/// What is in both lists of ranges.
fn common(one: &[(i128, i128)], other: &[(i128, i128)]) -> Vec<(i128, i128)> {
    let mut common = Vec::new();
    let (mut at, mut at_other) = (0, 0);
    while let (Some(range), Some(other)) = (one.get(at), other.get(at_other)) {
        let (start, end) = (range.0.max(other.0), range.1.min(other.1));
        if start < end {
            common.push((start, end));
        }
        if range.1 < other.1 {
            at += 1;
        } else {
            at_other += 1;
        }
    }
    common
}

/// A run of a device that belongs to no chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hole {
    device: u64,
    start: u64,
    len: u64,
}

/// Where the places of a device begin among those of all.
fn base_of(devices: &[Device], number: u64) -> Option<u64> {
    let index = devices.iter().position(|device| device.number == number)?;
    let before = devices[..index].iter().map(|device| device.size);
    // Its end does not touch the next one's beginning, which is reserved.
    Some(before.fold(0, u64::saturating_add))
}

/// The holes of all devices, those of one in the order of their places.
pub(super) fn holes(devices: &[Device], chunks: &[Chunk]) -> Vec<Hole> {
    let mut holes = Vec::new();
    for device in devices {
        let places = chunks.iter().flat_map(|chunk| {
            let here = chunk
                .stripes
                .iter()
                .filter(|stripe| stripe.device == device.number);
            here.map(|stripe| (stripe.start, length_of_stripe(chunk)))
        });
        let mut places: Vec<_> = places.collect();
        places.sort_unstable();
        places.push((device.size, 0));
        let mut at = RESERVED;
        for (start, len) in places {
            if start > at {
                holes.push(Hole {
                    device: device.number,
                    start: at,
                    len: start - at,
                });
            }
            at = at.max(start.saturating_add(len));
        }
    }
    holes
}

/// The bytes of a device that a stripe of a chunk takes.
fn length_of_stripe(chunk: &Chunk) -> u64 {
    let stripes = chunk.stripes.len().max(1) as u64;
    let parities = match chunk.kind {
        kind if kind.contains(BlockGroupKind::RAID5) => 1,
        kind if kind.contains(BlockGroupKind::RAID6) => 2,
        _ => 0,
    };
    let striped = BlockGroupKind::RAID0
        | BlockGroupKind::RAID10
        | BlockGroupKind::RAID5
        | BlockGroupKind::RAID6;
    match chunk.kind.intersects(striped) {
        true => chunk.len / ((stripes - parities.min(stripes - 1)) / chunk.kind.copies()).max(1),
        false => chunk.len,
    }
}

/// The runs that new chunks could have: each of them takes the longest hole of as many devices as it has copies.
pub(super) fn unallocated_runs(holes: &[Hole], copies: usize) -> Vec<u64> {
    let mut left = holes.to_vec();
    let mut runs = Vec::new();
    loop {
        left.retain(|hole| hole.len > 0);
        left.sort_unstable_by_key(|hole| std::cmp::Reverse(hole.len));
        let mut chosen: Vec<usize> = Vec::new();
        for (index, hole) in left.iter().enumerate() {
            if chosen
                .iter()
                .all(|other| left[*other].device != hole.device)
            {
                chosen.push(index);
            }
            if chosen.len() == copies {
                break;
            }
        }
        if chosen.len() < copies.max(1) {
            return runs;
        }
        let len = chosen
            .iter()
            .map(|index| left[*index].len)
            .min()
            .unwrap_or(0);
        runs.push(len);
        for index in chosen {
            left[index].len -= len;
            left[index].start += len;
        }
    }
}

#[cfg(test)]
mod tests {
    use linux_abi::btrfs::Stripe;

    use super::*;

    const MIB: u64 = 1 << 20;

    fn chunk(start: u64, len: u64, kind: BlockGroupKind, stripes: &[(u64, u64)]) -> Chunk {
        Chunk {
            start: start * MIB,
            len: len * MIB,
            kind,
            stripes: (stripes.iter())
                .map(|(device, start)| Stripe {
                    device: *device,
                    start: start * MIB,
                })
                .collect(),
        }
    }

    fn device(number: u64, mib: u64) -> Device {
        Device {
            number,
            size: mib * MIB,
            allocated: 0,
        }
    }

    fn hole(device: u64, start: u64, len: u64) -> Hole {
        Hole {
            device,
            start: start * MIB,
            len: len * MIB,
        }
    }

    #[test]
    fn holes_are_what_no_chunk_has() {
        let devices = [device(1, 100), device(3, 50)];
        let chunks = [
            chunk(0, 10, BlockGroupKind::DATA, &[(1, 41)]),
            chunk(
                10,
                20,
                BlockGroupKind::METADATA | BlockGroupKind::DUP,
                &[(1, 1), (1, 21)],
            ),
            chunk(
                30,
                5,
                BlockGroupKind::DATA | BlockGroupKind::RAID1,
                &[(3, 1), (1, 60)],
            ),
            chunk(
                40,
                8,
                BlockGroupKind::DATA | BlockGroupKind::RAID0,
                &[(1, 96), (3, 46)],
            ),
        ];
        assert_eq!(
            holes(&devices, &chunks),
            [hole(1, 51, 9), hole(1, 65, 31), hole(3, 6, 40)]
        );
        assert_eq!(base_of(&devices, 3), Some(100 * MIB));
        assert_eq!(base_of(&devices, 2), None);
    }

    #[test]
    fn a_new_chunk_lies_on_as_many_devices_as_it_has_copies() {
        let holes = [
            hole(1, 51, 9),
            hole(1, 65, 31),
            hole(3, 6, 40),
            hole(4, 0, 5),
        ];
        let runs = |copies| {
            let runs = unallocated_runs(&holes, copies);
            runs.iter().map(|run| run / MIB).collect::<Vec<_>>()
        };
        assert_eq!(runs(1), [40, 31, 9, 5]);
        assert_eq!(runs(2), [31, 9]);
        assert_eq!(runs(3), [5]);
        assert!(runs(4).is_empty());
    }

    #[test]
    fn what_touches_on_one_device_only_is_no_run() {
        let devices = [device(1, 100), device(2, 200)];
        let mirrored = BlockGroupKind::DATA | BlockGroupKind::RAID1;
        let chunks = [
            chunk(0, 20, mirrored, &[(2, 1), (1, 21)]),
            chunk(20, 20, mirrored, &[(2, 21), (1, 41)]),
            // It lies beside the others on the second device only.
            chunk(40, 10, mirrored, &[(2, 41), (1, 11)]),
        ];
        let mut rows = Rows::on(&devices);
        let places: Vec<_> = chunks
            .iter()
            .map(|chunk| rows.add(chunk).unwrap())
            .collect();
        let range = |start, len| PhysRange::new(start * MIB, len * MIB);
        assert_eq!(places, [range(21, 20), range(41, 20), range(300 + 11, 10)]);
        let holes = holes(&devices, &chunks);
        assert_eq!(holes, [hole(1, 1, 10), hole(1, 61, 39), hole(2, 51, 149)]);
        let vacant = rows.vacant(&holes);
        assert_eq!(vacant, [range(71, 29), range(300 + 61, 39)]);
    }

    #[test]
    fn each_device_is_a_row_where_nothing_is_mirrored() {
        let devices = [device(1, 100), device(3, 50)];
        let chunks = [
            chunk(0, 10, BlockGroupKind::DATA, &[(3, 1)]),
            chunk(10, 10, BlockGroupKind::DATA, &[(1, 1)]),
        ];
        let mut rows = Rows::on(&devices);
        let range = |start, len| PhysRange::new(start * MIB, len * MIB);
        assert_eq!(rows.add(&chunks[0]), Some(range(101, 10)));
        assert_eq!(rows.add(&chunks[1]), Some(range(1, 10)));
        let vacant = rows.vacant(&holes(&devices, &chunks));
        assert_eq!(vacant, [range(11, 89), range(111, 39)]);
    }
}
