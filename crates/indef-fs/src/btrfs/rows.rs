//! Where chunks lie on devices, and beside what.
//!
//! A mirrored chunk lies on several devices, and a new one needs room on as many. What lies beside a chunk on one of them may
//! lie elsewhere on another one: devices are of different size, and the kernel takes the one with the most room first. So
//! chunks and room make a longer run of room only where they touch on all devices ([`Rows`]). A striped chunk is as long as
//! its stripes together, so a byte of a device is several bytes of a place. Both copies on one device lie side by side when they
//! are made (`decide_stripe_size_regular`, fs/btrfs/volumes.c, v6.12), and two bytes of it are one of a place.

use linux_abi::btrfs::{BlockGroupKind, Chunk, Device, Stripe};
use units::{Bytes, PhysRange};

/// The first bytes of a device are in no chunk (`BTRFS_DEVICE_RANGE_RESERVED`, fs/btrfs/fs.h, v6.12).
const RESERVED: u64 = 1 << 20;

/// Chunks that lie on the same devices, equally far from each other: in a row, what touches on one device touches on all.
#[derive(Debug, PartialEq)]
struct Row {
    /// The device of each stripe, and how far it lies from the first one; of copies side by side, the first one.
    stripes: Vec<(u64, i128)>,
    /// The bytes of data for each byte of a stripe.
    spread: u64,
    /// Copies side by side.
    beside: u64,
}

impl Row {
    fn of(chunk: &Chunk) -> Option<(Self, u64)> {
        let mut stripes = chunk.stripes.clone();
        stripes.sort_unstable_by_key(|stripe| (stripe.device, stripe.start));
        let first = stripes.first()?.start;
        let spread = data_stripes(chunk.kind, stripes.len()) as u64;
        let touch = |one: &Stripe, next: &Stripe| {
            one.device == next.device && one.start.checked_add(chunk.len) == Some(next.start)
        };
        let beside = match chunk.kind.contains(BlockGroupKind::DUP) {
            true if stripes.is_sorted_by(touch) => stripes.len() as u64,
            // The room of one copy is none for both copies of another chunk.
            true => return None,
            false => 1,
        };
        if beside > 1 {
            stripes.truncate(1);
        }
        let distance = |stripe: &Stripe| i128::from(stripe.start) - i128::from(first);
        let row = Self {
            stripes: stripes
                .iter()
                .map(|stripe| (stripe.device, distance(stripe)))
                .collect(),
            spread,
            beside,
        };
        Some((row, first))
    }

    /// The place that a byte of the first stripe's device has.
    const fn place(&self, at: u64) -> u64 {
        at.saturating_mul(self.spread) / self.beside
    }
}

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
        let (row, first) = Row::of(chunk)?;
        let start = row.place(first);
        let known = self.rows.iter().position(|other| *other == row);
        let number = known.unwrap_or_else(|| {
            self.rows.push(row);
            self.rows.len() - 1
        });
        let base = self.base(number)?;
        Some(PhysRange::new(base.saturating_add(start), chunk.len))
    }

    /// What no chunk has on any device of a row, in all rows, in the order of the places.
    pub(super) fn vacant(&self, holes: &[Hole]) -> Vec<PhysRange> {
        let mut vacant = Vec::new();
        for (number, row) in self.rows.iter().enumerate() {
            let of_stripes = { row.stripes.iter() }.map(|stripe| seen_from_first(holes, *stripe));
            let common = of_stripes.reduce(|one, other| common(&one, &other));
            let Some(base) = self.base(number) else {
                continue;
            };
            for (start, end) in common.unwrap_or_default() {
                // Both lie on the device of the first stripe.
                if let (Ok(start), Ok(len)) = (u64::try_from(start), u64::try_from(end - start)) {
                    let start = base.saturating_add(row.place(start));
                    vacant.push(PhysRange::new(start, row.place(len)));
                }
            }
        }
        vacant.sort_unstable_by_key(|place| place.start);
        vacant
    }

    /// Where the places of a row begin.
    fn base(&self, number: usize) -> Option<u64> {
        let row = self.rows.get(number)?;
        let (first, _) = row.stripes.first()?;
        let of_device = base_of(self.devices, *first)?.saturating_mul(row.spread);
        if row.stripes.len() == 1 {
            return Some(of_device);
        }
        // Several may have the same devices, and so may rows of one stripe, which come first.
        let sizes = self.devices.iter().map(|device| device.size);
        let all = sizes.fold(0, u64::saturating_add);
        let before = self.rows[..number].iter().map(|row| row.spread);
        let before = before.fold(1, u64::saturating_add);
        Some(all.saturating_mul(before).saturating_add(of_device))
    }
}

/// What new chunks can have, once others are gone.
#[derive(Clone, Debug)]
pub(crate) struct NewChunks {
    pub(super) devices: Vec<Device>,
    pub(super) chunks: Vec<Chunk>,
    /// The kind of new ones.
    pub(super) kind: BlockGroupKind,
}

impl NewChunks {
    /// The longest run without the chunks that are `gone`. Stripes take what there is on all devices, also where a row of
    /// chunks is not, so that less may come of a row than has lain there.
    pub(crate) fn longest_without(&self, gone: impl Fn(u64) -> bool) -> Bytes {
        let mut left = self.chunks.clone();
        left.retain(|chunk| !gone(chunk.start));
        let runs = unallocated_runs(&holes(&self.devices, &left), self.kind);
        Bytes(runs.into_iter().max().unwrap_or(0))
    }
}

/// The holes of a stripe's device (start and end), as far from the first stripe as this one is from it.
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
    chunk.len / data_stripes(chunk.kind, chunk.stripes.len()) as u64
}

/// The stripes of a chunk that have different data.
fn data_stripes(kind: BlockGroupKind, stripes: usize) -> usize {
    let parities = match kind {
        kind if kind.contains(BlockGroupKind::RAID5) => 1,
        kind if kind.contains(BlockGroupKind::RAID6) => 2,
        _ => 0,
    };
    match kind.intersects(STRIPED) {
        true => (stripes.saturating_sub(parities) / kind.copies() as usize).max(1),
        false => 1,
    }
}

/// Kinds of chunks that lie on as many devices as there are with room.
const STRIPED: BlockGroupKind = BlockGroupKind::RAID0
    .union(BlockGroupKind::RAID10)
    .union(BlockGroupKind::RAID5)
    .union(BlockGroupKind::RAID6);

/// A stripe has so many bytes at least (`BTRFS_STRIPE_LEN`, fs/btrfs/volumes.h, v6.12).
const LEAST: u64 = 64 << 10;

/// Of these kinds of data a new chunk has the one that is first here (`btrfs_reduce_alloc_profile`, fs/btrfs/block-group.c,
/// v6.12), else a single copy.
pub(super) fn kind_of_new(kinds: BlockGroupKind) -> BlockGroupKind {
    let order = [
        BlockGroupKind::RAID1C4,
        BlockGroupKind::RAID6,
        BlockGroupKind::RAID1C3,
        BlockGroupKind::RAID5,
        BlockGroupKind::RAID10,
        BlockGroupKind::RAID1,
        BlockGroupKind::DUP,
        BlockGroupKind::RAID0,
    ];
    let first = order.into_iter().find(|kind| kinds.contains(*kind));
    BlockGroupKind::DATA | first.unwrap_or(BlockGroupKind::empty())
}

/// The devices that a new chunk needs at least, and a number of which theirs is a multiple (`btrfs_raid_array`,
/// fs/btrfs/volumes.c, v6.12).
const fn devices_of_new(kind: BlockGroupKind) -> (usize, usize) {
    if kind.contains(BlockGroupKind::RAID10) {
        (2, 2)
    } else if kind.contains(BlockGroupKind::RAID6) {
        (3, 1)
    } else if kind.contains(BlockGroupKind::RAID5) {
        (2, 1)
    } else if kind.intersects(STRIPED.union(BlockGroupKind::DUP)) {
        (1, 1)
    } else {
        let copies = kind.copies() as usize;
        (copies, copies)
    }
}

/// The runs that new chunks of this kind could have: each of them takes the longest hole of as many devices as it may, and
/// as much of each as there is in all of these.
pub(super) fn unallocated_runs(holes: &[Hole], kind: BlockGroupKind) -> Vec<u64> {
    let (least, step) = devices_of_new(kind);
    let most = match kind.intersects(STRIPED) {
        true => usize::MAX,
        false => least,
    };
    let on_one_device = match kind.contains(BlockGroupKind::DUP) {
        true => kind.copies(),
        false => 1,
    };
    let mut left = holes.to_vec();
    let mut runs = Vec::new();
    loop {
        left.retain(|hole| hole.len >= LEAST * on_one_device);
        left.sort_unstable_by_key(|hole| std::cmp::Reverse(hole.len));
        let mut chosen: Vec<usize> = Vec::new();
        for (index, hole) in left.iter().enumerate() {
            if chosen
                .iter()
                .all(|other| left[*other].device != hole.device)
            {
                chosen.push(index);
            }
            if chosen.len() == most {
                break;
            }
        }
        chosen.truncate(chosen.len() / step * step);
        let shortest = chosen.iter().map(|index| left[*index].len).min();
        let len = shortest.unwrap_or(0) / on_one_device;
        if chosen.len() < least || len == 0 {
            return runs;
        }
        runs.push(len.saturating_mul(data_stripes(kind, chosen.len()) as u64));
        for index in chosen {
            left[index].len -= len * on_one_device;
            left[index].start += len * on_one_device;
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

    fn range(start: u64, len: u64) -> PhysRange {
        PhysRange::new(start * MIB, len * MIB)
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
    fn a_new_chunk_lies_on_as_many_devices_as_its_kind_has() {
        let holes = [
            hole(1, 51, 9),
            hole(1, 65, 31),
            hole(3, 6, 40),
            hole(4, 0, 5),
        ];
        let runs = |kind| {
            let runs = unallocated_runs(&holes, BlockGroupKind::DATA | kind);
            runs.iter().map(|run| run / MIB).collect::<Vec<_>>()
        };
        assert_eq!(runs(BlockGroupKind::empty()), [40, 31, 9, 5]);
        assert_eq!(runs(BlockGroupKind::RAID1), [31, 9]);
        assert_eq!(runs(BlockGroupKind::RAID1C3), [5]);
        assert!(runs(BlockGroupKind::RAID1C4).is_empty());
        // Both copies share a hole.
        assert_eq!(runs(BlockGroupKind::DUP), [20, 15, 4, 2]);
        // Of 40, 31 and 5 first, then of 35 and 26, then of 9 and 9.
        assert_eq!(runs(BlockGroupKind::RAID0), [15, 52, 18]);
        assert_eq!(runs(BlockGroupKind::RAID5), [10, 26, 9]);
        assert_eq!(runs(BlockGroupKind::RAID6), [5]);
        assert_eq!(runs(BlockGroupKind::RAID10), [31, 9]);
    }

    #[test]
    fn a_new_chunk_is_of_the_safest_kind() {
        let all = BlockGroupKind::DATA | BlockGroupKind::RAID1 | BlockGroupKind::RAID0;
        assert_eq!(
            kind_of_new(all),
            BlockGroupKind::DATA | BlockGroupKind::RAID1
        );
        assert_eq!(kind_of_new(BlockGroupKind::DATA), BlockGroupKind::DATA);
    }

    #[test]
    fn striped_chunks_are_as_long_as_their_stripes_together() {
        let devices = [device(1, 100), device(2, 200)];
        let striped = BlockGroupKind::DATA | BlockGroupKind::RAID0;
        let chunks = [
            chunk(0, 40, striped, &[(2, 1), (1, 21)]),
            chunk(40, 40, striped, &[(1, 41), (2, 21)]),
        ];
        let mut rows = Rows::on(&devices);
        let places = chunks.each_ref().map(|chunk| rows.add(chunk).unwrap());
        assert_eq!(places, [range(342, 40), range(382, 40)]);
        let holes = holes(&devices, &chunks);
        assert_eq!(holes, [hole(1, 1, 20), hole(1, 61, 39), hole(2, 41, 159)]);
        // Behind them, on both devices.
        assert_eq!(rows.vacant(&holes), [range(422, 78)]);
    }

    /// Its next chunk has a third stripe, which is short, and so are the others.
    #[test]
    fn a_device_with_little_room_shortens_what_others_give() {
        let striped = BlockGroupKind::DATA | BlockGroupKind::RAID0;
        let new = NewChunks {
            devices: [1, 2, 3].map(|number| device(number, 41)).into(),
            chunks: vec![
                chunk(0, 80, striped, &[(1, 1), (2, 1)]),
                chunk(80, 30, striped, &[(3, 1)]),
            ],
            kind: striped,
        };
        let longest = |gone: &[u64]| new.longest_without(|start| gone.contains(&(start / MIB)));
        assert_eq!(longest(&[]), Bytes::mib(10));
        assert_eq!(longest(&[0]), Bytes::mib(60));
        assert_eq!(longest(&[0, 80]), Bytes::mib(120));
    }

    #[test]
    fn chunks_that_lie_twice_on_a_device_have_half_of_the_room() {
        let devices = [device(1, 200)];
        let twice = BlockGroupKind::DATA | BlockGroupKind::DUP;
        let chunks = [
            chunk(0, 10, twice, &[(1, 12), (1, 2)]),
            chunk(10, 20, twice, &[(1, 22), (1, 42)]),
            // Its copies are apart: two holes of its length are no room for two copies side by side.
            chunk(30, 10, twice, &[(1, 80), (1, 100)]),
        ];
        let mut rows = Rows::on(&devices);
        let places: Vec<_> = chunks.iter().map(|chunk| rows.add(chunk)).collect();
        assert_eq!(places, [Some(range(1, 10)), Some(range(11, 20)), None]);
        let holes = holes(&devices, &chunks);
        assert_eq!(
            holes,
            [
                hole(1, 1, 1),
                hole(1, 62, 18),
                hole(1, 90, 10),
                hole(1, 110, 90)
            ]
        );
        let vacant = rows.vacant(&holes);
        let half = PhysRange::new(MIB / 2, MIB / 2);
        assert_eq!(vacant, [half, range(31, 9), range(45, 5), range(55, 45)]);
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
        let places = chunks.each_ref().map(|chunk| rows.add(chunk).unwrap());
        assert_eq!(
            places,
            [range(321, 20), range(341, 20), range(600 + 11, 10)]
        );
        let holes = holes(&devices, &chunks);
        assert_eq!(holes, [hole(1, 1, 10), hole(1, 61, 39), hole(2, 51, 149)]);
        let vacant = rows.vacant(&holes);
        assert_eq!(vacant, [range(371, 29), range(600 + 61, 39)]);
    }

    #[test]
    fn each_device_is_a_row_where_nothing_is_mirrored() {
        let devices = [device(1, 100), device(3, 50)];
        let chunks = [
            chunk(0, 10, BlockGroupKind::DATA, &[(3, 1)]),
            chunk(10, 10, BlockGroupKind::DATA, &[(1, 1)]),
        ];
        let mut rows = Rows::on(&devices);
        assert_eq!(rows.add(&chunks[0]), Some(range(101, 10)));
        assert_eq!(rows.add(&chunks[1]), Some(range(1, 10)));
        let vacant = rows.vacant(&holes(&devices, &chunks));
        assert_eq!(vacant, [range(11, 89), range(111, 39)]);
    }
}
