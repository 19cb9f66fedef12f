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
    self, BlockGroupKind, cancel_balance, each_extent, empty_data_chunk, free_runs,
};
use rustix::{
    fs::{StatVfsMountFlags, fstatvfs, syncfs},
    io::Errno,
};
use units::{Bytes, PhysRange};

use super::{
    rows::{NewChunks, Rows, holes, kind_of_new, unallocated_runs},
    settled::folder,
};
use crate::{
    Filesystem, Finding, SpaceMap,
    emptier::{Emptier, Emptying, NoEmptier, NotEmptied, Part, PartKind, PartMap},
};

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
            } else if !data().all(is_known) {
                Err(NoEmptier::Unknown)
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
        if Errno::from_io_error(&error) == Some(Errno::INPROGRESS) {
            return Emptying::nothing(NotEmptied::Busy);
        }
        // Who asks first is told that what moved could not be written, and nobody afterwards.
        let synced = syncfs(&self.root);
        let why = match Errno::from_io_error(&error) {
            Some(Errno::CANCELED) if stopped => NotEmptied::Stopped,
            Some(Errno::CANCELED) => {
                self.give_up_paused(part);
                NotEmptied::Ended
            }
            Some(Errno::NOSPC) => match synced {
                // What moves has its place by then. Trees have room, too.
                Err(Errno::NOSPC) if self.has_room_for_trees() => {
                    NotEmptied::Failed(Finding::DeviceFull.into())
                }
                // Metadata needs room, too.
                Ok(()) | Err(Errno::NOSPC) => NotEmptied::Stays(SkipReason::NoSpace),
                // Nobody is told of it afterwards.
                Err(errno) => NotEmptied::Failed(errno.into()),
            },
            Some(Errno::TXTBSY) => NotEmptied::Stays(SkipReason::SwapFile),
            Some(Errno::ROFS) => NotEmptied::Refused(SkipReason::ReadOnlyMount),
            _ => NotEmptied::Failed(error),
        };
        let moved = match synced {
            Ok(()) => self.moved(part),
            Err(_) => Bytes::ZERO,
        };
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

    /// A balance that somebody has paused would be gone on with at the next mount, and no other one could begin before: ours is
    /// given up, as nobody else knows of it.
    fn give_up_paused(&self, part: &Part) {
        let ended = match btrfs::is_paused_at(&self.root, part.address) {
            Ok(true) => cancel_balance(&self.root),
            asked => asked.map(drop),
        };
        if let Err(error) = ended {
            tracing::warn!(%error, "a balance of one chunk may be paused");
        }
    }

    /// Whether a sync that fails for want of space wants the device's. A Btrfs that is short of room for its trees tells users
    /// that nothing is free (`btrfs_statfs`, fs/btrfs/super.c, v6.12), and is read-only from a commit on that found none.
    fn has_room_for_trees(&self) -> bool {
        let told = fstatvfs(&self.root);
        told.is_ok_and(|it| it.f_bavail > 0 && !it.f_flag.contains(StatVfsMountFlags::RDONLY))
    }

    /// The bytes of a part that are not in it any more. The kernel first copies all that lies in a chunk, and then has files use
    /// the copies, one after the other.
    fn moved(&self, part: &Part) -> Bytes {
        match btrfs::used(&self.root, part.address, part.place.len.get()) {
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

/// The free space of a file system; `None` where `stop` said so, data is stored in a way that is not known, or there is no free
/// space tree.
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

/// Whether it is known how a chunk of this kind lies on its devices.
fn is_known(kind: BlockGroupKind) -> bool {
    BlockGroupKind::KNOWN.contains(kind)
}

fn look(root: &File, stop: &dyn Fn() -> bool) -> io::Result<Option<PartMap>> {
    let sector = btrfs::sector_size(root)?;
    let devices = btrfs::devices(root)?;
    let chunks = btrfs::chunks(root)?;
    let data = chunks
        .iter()
        .filter(|chunk| chunk.kind.contains(BlockGroupKind::DATA));
    // Another one gives no room for such chunks.
    let kind = kind_of_new(data.fold(BlockGroupKind::DATA, |all, chunk| all | chunk.kind));
    let (mut map, mut rows, mut end) = (PartMap::default(), Rows::on(&devices), 0);
    for chunk in &chunks {
        end = end.max(chunk.start.saturating_add(chunk.len));
        if !chunk.kind.contains(BlockGroupKind::DATA) {
            map.space.metadata += Bytes(chunk.len);
            continue;
        }
        if !is_known(chunk.kind) {
            return Ok(None);
        }
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
        if chunk.kind == kind {
            map.parts.extend(rows.add(chunk).map(|place| Part {
                address: chunk.start,
                place,
                used: Bytes(used),
            }));
        }
    }
    map.parts.sort_unstable_by_key(|part| part.place.start);
    let holes = holes(&devices, &chunks);
    map.vacant = rows.vacant(&holes);
    // A new chunk has the addresses after the last one.
    for run in unallocated_runs(&holes, kind) {
        end = end.saturating_add(sector.into());
        map.space.free.push(PhysRange::new(end, run));
        end = end.saturating_add(run);
    }
    map.new_chunks = Some(NewChunks {
        devices,
        chunks,
        kind,
    });
    Ok(Some(map))
}
