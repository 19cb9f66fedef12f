//! Chunks of data: how free space lies in them and beside them, and how one is emptied.
//!
//! A file gets space from chunks of data, and where these have none, from a new one, if any device has room that belongs
//! to no chunk. So a free run lies in a chunk, or is such room ([`unallocated_runs`]). Metadata gets new chunks from that
//! room alone: where there is none left, a file system that is half empty is full.
//!
//! The kernel empties a chunk by `BTRFS_IOC_BALANCE_V2` with a filter for its first address. It moves each extent as a whole
//! (`prealloc_file_extent_cluster`, fs/btrfs/relocation.c, v6.12: no piece is smaller), with all files and snapshots that have
//! it, in transactions: a kill or a power cut leaves what is moved, and what is not. An extent for which no chunk has a
//! place gets a new chunk, and so the room that is to be won; who calls has to look for places before.

use std::{
    fs::{self, File},
    io,
    panic::resume_unwind,
    sync::mpsc::{RecvTimeoutError, channel},
    thread,
    time::Duration,
};

use indef_core::SkipReason;
use linux_abi::btrfs::{
    self, BlockGroupKind, Chunk, Device, cancel_balance, each_extent, empty_data_chunk, free_runs,
};
use rustix::{fs::syncfs, io::Errno};
use units::{Bytes, PhysRange};

use super::settled::folder;
use crate::{
    Filesystem, SpaceMap,
    emptier::{Emptier, Emptying, NoEmptier, NotEmptied, Part, PartKind, PartMap},
};

/// The first bytes of a device are in no chunk (`BTRFS_DEVICE_RANGE_RESERVED`, fs/btrfs/fs.h, v6.12).
const RESERVED: u64 = 1 << 20;
/// The time between two questions whether to stop.
const ASK_EVERY: Duration = Duration::from_millis(50);

/// The chunks of a file system.
pub(crate) struct Chunks {
    root: File,
}

impl Chunks {
    /// Of a file system whose chunks can be emptied one by one.
    pub(crate) fn of(fs: &Filesystem) -> io::Result<Result<Self, NoEmptier>> {
        let mount = fs.mount.as_ref().ok_or(Errno::OPNOTSUPP)?;
        let root = mount.open(fs.dev)?;
        let chunks = btrfs::chunks(&root)?;
        let data = || {
            chunks
                .iter()
                .map(|chunk| chunk.kind)
                .filter(|kind| kind.contains(BlockGroupKind::DATA))
        };
        Ok(
            if data().any(|kind| kind.contains(BlockGroupKind::METADATA)) {
                Err(NoEmptier::Mixed)
            } else if data().any(|kind| !is_plain(kind)) {
                Err(NoEmptier::Striped)
            } else if is_zoned(&root)? {
                Err(NoEmptier::ByItself)
            } else if !is_told(&root)? {
                Err(NoEmptier::Untold)
            } else {
                Ok(Self { root })
            },
        )
    }
}

impl Emptier for Chunks {
    fn kind(&self) -> PartKind {
        PartKind::Chunk
    }

    fn look(&self) -> io::Result<PartMap> {
        let told = look(&self.root, &|| false)?;
        Ok(told.ok_or(Errno::OPNOTSUPP)?)
    }

    fn pieces(&self, part: &Part) -> io::Result<Vec<Bytes>> {
        let mut pieces = Vec::new();
        each_extent(&self.root, part.address, part.place.len.get(), |len| {
            pieces.push(Bytes(len))
        })?;
        Ok(pieces)
    }

    fn empty(&self, part: &Part, stop: &dyn Fn() -> bool) -> Emptying {
        let worked = self.beside(stop, || {
            let before = written_by_this_thread();
            let emptied = empty_data_chunk(&self.root, part.address);
            (emptied, written_by_this_thread().saturating_sub(before))
        });
        let ((emptied, written), stopped) = match worked {
            Ok(worked) => worked,
            Err(error) => return Emptying::nothing(NotEmptied::Failed(error)),
        };
        let Err(error) = emptied else {
            return Emptying::whole(part);
        };
        let why = match Errno::from_io_error(&error) {
            Some(Errno::INPROGRESS) => return Emptying::nothing(NotEmptied::Busy),
            Some(Errno::CANCELED) if stopped => NotEmptied::Stopped,
            Some(Errno::CANCELED) => NotEmptied::Stays(SkipReason::Changed),
            // Metadata needs room, too.
            Some(Errno::NOSPC) => NotEmptied::Stays(SkipReason::NoSpace),
            Some(Errno::TXTBSY) => NotEmptied::Stays(SkipReason::SwapFile),
            _ => NotEmptied::Failed(error),
        };
        let moved = self.moved(part);
        Emptying {
            moved,
            // The rest is metadata.
            written: Bytes(written).min(part.used).max(moved),
            left: Some(why),
        }
    }
}

impl Chunks {
    /// Do what is to be done in the kernel, on a thread of its own: who calls may be the one thread that signals come to, and
    /// these are seen when the kernel lets go of it. Cancels that when `stop` says so, and returns whether it has.
    fn beside<T: Send>(
        &self,
        stop: &dyn Fn() -> bool,
        work: impl FnOnce() -> T + Send,
    ) -> io::Result<(T, bool)> {
        thread::scope(|scope| {
            let (ends, is_over) = channel::<()>();
            let work = move || {
                let done = work();
                drop(ends);
                done
            };
            let working = thread::Builder::new().spawn_scoped(scope, work)?;
            let mut stopped = false;
            while is_over.recv_timeout(ASK_EVERY) == Err(RecvTimeoutError::Timeout) {
                // It fails before there is something to cancel, and once that has ended.
                stopped = stopped || (stop() && cancel_balance(&self.root).is_ok());
            }
            let done = working.join().unwrap_or_else(|panic| resume_unwind(panic));
            Ok((done, stopped))
        })
    }

    /// The bytes of a part that are not in it any more. The kernel first copies all that lies in a chunk, and then has files use
    /// the copies, one after the other.
    fn moved(&self, part: &Part) -> Bytes {
        let used = syncfs(&self.root)
            .map_err(io::Error::from)
            .and_then(|()| btrfs::used(&self.root, part.address, part.place.len.get()));
        match used {
            Ok(used) => part.used.saturating_sub(Bytes(used.unwrap_or(0))),
            Err(_) => Bytes::ZERO,
        }
    }
}

/// The bytes that this thread has had written, with those that are to be written yet; 0 where the kernel does not count them.
fn written_by_this_thread() -> u64 {
    let told = fs::read_to_string("/proc/thread-self/io").unwrap_or_default();
    let mut lines = told.lines();
    let written = lines.find_map(|line| line.strip_prefix("write_bytes: ")?.parse().ok());
    written.unwrap_or(0)
}

/// The free space of a file system; `None` where `stop` said so, data is striped, or there is no free space tree.
pub(crate) fn space_map(root: &File, stop: &dyn Fn() -> bool) -> io::Result<Option<SpaceMap>> {
    Ok(look(root, stop)?.map(|map| map.space))
}

/// Whether the devices have zones; the kernel then empties chunks by itself (`btrfs_reclaim_bgs_work`,
/// fs/btrfs/block-group.c, v6.12).
fn is_zoned(root: &File) -> io::Result<bool> {
    Ok(folder(&btrfs::fsid(root)?).join("features/zoned").exists())
}

/// Whether it has a free space tree.
fn is_told(root: &File) -> io::Result<bool> {
    match free_runs(root, (0, u64::MAX), 4096, |_, _| false) {
        Err(error) if Errno::from_io_error(&error) == Some(Errno::NOENT) => Ok(false),
        asked => asked.map(|()| true),
    }
}

/// Whether each stripe of a chunk has all of it, on a device of its own.
fn is_plain(kind: BlockGroupKind) -> bool {
    let mirrored = BlockGroupKind::RAID1 | BlockGroupKind::RAID1C3 | BlockGroupKind::RAID1C4;
    let known = BlockGroupKind::DATA | BlockGroupKind::METADATA | mirrored;
    known.contains(kind)
}

fn look(root: &File, stop: &dyn Fn() -> bool) -> io::Result<Option<PartMap>> {
    let sector = btrfs::sector_size(root)?;
    let devices = btrfs::devices(root)?;
    let chunks = btrfs::chunks(root)?;
    let (mut map, mut copies, mut end) = (PartMap::default(), 1, 0);
    for chunk in &chunks {
        end = end.max(chunk.start.saturating_add(chunk.len));
        if !chunk.kind.contains(BlockGroupKind::DATA) {
            map.space.metadata += Bytes(chunk.len);
            continue;
        }
        if !is_plain(chunk.kind) {
            return Ok(None);
        }
        copies = copies.max(chunk.stripes.len());
        let Some(used) = btrfs::used(root, chunk.start, chunk.len)? else {
            continue;
        };
        map.space.used += Bytes(used);
        let mut runs: Vec<PhysRange> = Vec::new();
        let place = (chunk.start, chunk.len);
        let visited = free_runs(root, place, sector, |start, len| {
            match runs.last_mut() {
                Some(last) if last.end().get() == start => last.len += Bytes(len),
                _ => runs.push(PhysRange::new(start, len)),
            }
            !stop()
        });
        match visited {
            Err(error) if Errno::from_io_error(&error) == Some(Errno::NOENT) => return Ok(None),
            visited => visited?,
        }
        if stop() {
            return Ok(None);
        }
        map.inside
            .extend(runs.iter().map(|run| (chunk.start, run.len)));
        map.space.free.append(&mut runs);
        let first = chunk.stripes.first();
        let place = first.and_then(|stripe| {
            let base = base_of(&devices, stripe.device)?;
            Some(PhysRange::new(base.saturating_add(stripe.start), chunk.len))
        });
        map.parts.extend(place.map(|place| Part {
            address: chunk.start,
            place,
            used: Bytes(used),
        }));
    }
    map.parts.sort_unstable_by_key(|part| part.place.start);
    let holes = holes(&devices, &chunks);
    for hole in &holes {
        map.vacant.extend(
            base_of(&devices, hole.device)
                .map(|base| PhysRange::new(base.saturating_add(hole.start), hole.len)),
        );
    }
    // A new chunk has the addresses after the last one.
    for run in unallocated_runs(&holes, copies) {
        end = end.saturating_add(sector.into());
        map.space.free.push(PhysRange::new(end, run));
        end = end.saturating_add(run);
    }
    Ok(Some(map))
}

/// A run of a device that belongs to no chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Hole {
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

fn holes(devices: &[Device], chunks: &[Chunk]) -> Vec<Hole> {
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
fn unallocated_runs(holes: &[Hole], copies: usize) -> Vec<u64> {
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
    fn striped_data_is_not_plain() {
        let data = BlockGroupKind::DATA;
        assert!(is_plain(data) && is_plain(data | BlockGroupKind::RAID1C3));
        for other in [
            BlockGroupKind::RAID0,
            BlockGroupKind::DUP,
            BlockGroupKind::RAID6,
            BlockGroupKind::from_bits_retain(1 << 40),
        ] {
            assert!(!is_plain(data | other), "{other:?}");
        }
    }
}
