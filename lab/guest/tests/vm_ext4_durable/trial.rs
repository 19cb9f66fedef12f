//! The guest's side: a file is moved while one application overwrites it, and then the file system
//! is stopped without writing anything more. The journal commits by itself every 300 s, so all
//! durable data was committed because the application asked for it.

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::Duration,
};

use linux_abi::{ext4::move_extents, shutdown::without_flush};
use rustix::fs::{FallocateFlags, OFlags, fallocate};
use workloads::Numbers;

use crate::bounds::{BLOCK, Bounds, Buffer, fill, versions};

/// The prefix of a line with a result.
pub(crate) const RESULT: &str = "trial:";

const BLOCKS: u64 = 512;
/// The cut comes this long after the beginning, plus up to `SPREAD_MS`.
const SHORTEST_MS: u64 = 20;
const SPREAD_MS: u64 = 400;

/// The way in which the application makes its data durable. Each round uses only one: the commit of
/// one would hide a fault of another.
#[derive(Clone, Copy, Debug)]
enum Way {
    Fdatasync,
    Dsync,
    DirectFdatasync,
    DirectDsync,
}

impl Way {
    const ALL: [Self; 4] = [
        Self::Fdatasync,
        Self::Dsync,
        Self::DirectFdatasync,
        Self::DirectDsync,
    ];

    fn open(self, path: &Path) -> io::Result<File> {
        // The constant DSYNC of rustix 1.1 is O_SYNC (asm-generic/fcntl.h has both).
        const O_DSYNC: i32 = 0o10000;
        let direct = OFlags::DIRECT.bits() as i32;
        let flags = match self {
            Self::Fdatasync => 0,
            Self::Dsync => O_DSYNC,
            Self::DirectFdatasync => direct,
            Self::DirectDsync => direct | O_DSYNC,
        };
        OpenOptions::new()
            .write(true)
            .custom_flags(flags)
            .open(path)
    }

    fn write(self, file: &File, block: u64, version: u64) -> io::Result<()> {
        let mut buffer = Buffer([0; BLOCK]);
        fill(&mut buffer, block, version);
        file.write_all_at(&buffer.0, block * BLOCK as u64)?;
        match self {
            Self::Fdatasync | Self::DirectFdatasync => file.sync_data(),
            Self::Dsync | Self::DirectDsync => Ok(()),
        }
    }
}

/// The place of the file system.
pub(crate) struct Place {
    root: PathBuf,
    disk: PathBuf,
}

/// The place in the environment; only in the guest.
pub(crate) fn in_guest() -> Option<Place> {
    Some(Place {
        root: std::env::var_os("INDEF_ON_EXT4")?.into(),
        disk: std::env::var_os("INDEF_ON_DISK")?.into(),
    })
}

impl Place {
    fn mount(&self) {
        let options = ["-t", "ext4", "-o", "commit=300,data=ordered"];
        let paths = [&self.disk, &self.root];
        let status = Command::new("mount").args(options).args(paths).status();
        assert!(status.unwrap().success());
    }

    fn unmount(&self) {
        let status = Command::new("umount").arg(&self.root).status();
        assert!(status.unwrap().success());
    }

    fn file(&self) -> PathBuf {
        self.root.join("file")
    }
}

/// The sum over the cuts of one way.
#[derive(Clone, Copy, Default)]
struct Sum {
    cuts: u64,
    /// Cuts at which something was lost.
    bad: u64,
    moved: u64,
    acknowledged: u64,
    /// Blocks that were acknowledged in the round of the cut, each examined once.
    blocks: u64,
    lost: u64,
}

/// The application: it overwrites blocks, most often moved ones, until the file system is gone.
/// Returns the number of acknowledged writes.
fn write_until_cut(
    (way, file): (Way, &File),
    bounds: &mut [Bounds],
    front: &AtomicU64,
    mut rng: Numbers,
) -> u64 {
    for acknowledged in 0.. {
        let moved = front.load(Ordering::Relaxed);
        let anywhere = moved == 0 || rng.below(4_u64) == 0;
        let block = rng.below(if anywhere { BLOCKS } else { moved });
        let bound = &mut bounds[block as usize];
        bound.written += 1;
        if way.write(file, block, bound.written).is_err() {
            return acknowledged;
        }
        bound.durable = bound.written;
    }
    unreachable!()
}

/// The mover: as e4defrag, it commits nothing.
fn move_all(file: &File, donor: &File, front: &AtomicU64, over: &AtomicBool, mut rng: Numbers) {
    let mut at = 0;
    while at < BLOCKS && !over.load(Ordering::Relaxed) {
        let len = (1 + rng.below(64)).min(BLOCKS - at);
        let moved = move_extents(file, donor, at, at, len);
        at += moved.moved_blocks;
        front.store(at, Ordering::Relaxed);
        // The move of pages that are being written is tried again; any other error means that the
        // file system is gone.
        if moved
            .result
            .is_err_and(|error| error.kind() != io::ErrorKind::ResourceBusy)
        {
            return;
        }
        thread::sleep(Duration::from_micros(rng.below(3000)));
    }
}

/// One round, up to the cut. Returns the number of moved blocks and of acknowledged writes.
fn round(place: &Place, way: Way, bounds: &mut [Bounds], seed: u64) -> (u64, u64) {
    let mut rng = Numbers::new(seed);
    let file = way.open(&place.file()).unwrap();
    let target = OpenOptions::new()
        .read(true)
        .write(true)
        .open(place.file())
        .unwrap();
    let donor = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(OFlags::TMPFILE.bits() as i32)
        .open(&place.root)
        .unwrap();
    fallocate(&donor, FallocateFlags::empty(), 0, BLOCKS * BLOCK as u64).unwrap();
    // An inode that is read while a transaction is running has the number of that transaction,
    // whatever it changes.
    let root = File::open(&place.root).unwrap();
    rustix::fs::syncfs(&root).unwrap();
    let (front, over) = (AtomicU64::new(0), AtomicBool::new(false));
    let cut_after = Duration::from_millis(SHORTEST_MS + rng.below(SPREAD_MS));
    let (mover, writer) = (Numbers::new(seed ^ 1 << 63), Numbers::new(seed ^ 1 << 62));
    thread::scope(|scope| {
        let moving = scope.spawn(|| move_all(&target, &donor, &front, &over, mover));
        let writing = scope.spawn(|| write_until_cut((way, &file), bounds, &front, writer));
        thread::sleep(cut_after);
        without_flush(&root).unwrap();
        over.store(true, Ordering::Relaxed);
        moving.join().unwrap();
        let acknowledged = writing.join().unwrap();
        (front.load(Ordering::Relaxed), acknowledged)
    })
}

/// Examine every block; its content holds from now on. Returns how many blocks were acknowledged
/// since `before`, and how many blocks hold content that is not allowed (lost).
fn look(place: &Place, before: &[Bounds], bounds: &mut [Bounds]) -> (u64, u64) {
    let file = File::open(place.file()).unwrap();
    let mut buffer = Buffer([0; BLOCK]);
    let (mut blocks, mut lost) = (0, 0);
    for (block, bound) in (0..).zip(bounds.iter_mut()) {
        file.read_exact_at(&mut buffer.0, block * BLOCK as u64)
            .unwrap();
        let found = versions(&buffer, block);
        blocks += u64::from(bound.durable > before[block as usize].durable);
        lost += u64::from(!bound.allow(found));
        let (oldest, newest) = found.unwrap_or((0, bound.written));
        *bound = Bounds {
            durable: oldest,
            written: newest.max(bound.written),
        };
    }
    (blocks, lost)
}

/// Run this many cuts. (Rounds in which nothing was moved, or nothing acknowledged, prove
/// nothing.)
pub(crate) fn run(place: &Place, cuts: u64) {
    place.mount();
    let mut bounds = vec![
        Bounds {
            durable: 1,
            written: 1
        };
        BLOCKS as usize
    ];
    let file = File::create(place.file()).unwrap();
    for block in 0..BLOCKS {
        Way::Dsync.write(&file, block, 1).unwrap();
    }
    file.sync_all().unwrap();
    drop(file);
    let mut sums = [Sum::default(); Way::ALL.len()];
    let mut done = 0;
    for seed in 0.. {
        assert!(seed < 3 * cuts + 10, "most rounds show nothing");
        if done == cuts {
            break;
        }
        let at = done as usize % sums.len();
        let before = bounds.clone();
        let (moved, acknowledged) = round(place, Way::ALL[at], &mut bounds, seed);
        place.unmount();
        place.mount();
        let (blocks, lost) = look(place, &before, &mut bounds);
        if moved == 0 || acknowledged == 0 {
            assert_eq!(lost, 0, "though {moved} moved, {acknowledged} acknowledged");
            continue;
        }
        let sum = &mut sums[at];
        sum.cuts += 1;
        sum.bad += u64::from(lost > 0);
        sum.moved += moved;
        sum.acknowledged += acknowledged;
        sum.blocks += blocks;
        sum.lost += lost;
        done += 1;
    }
    place.unmount();
    for (way, sum) in Way::ALL.iter().zip(sums).filter(|(_, sum)| sum.cuts > 0) {
        let Sum {
            cuts,
            bad,
            moved,
            acknowledged,
            blocks,
            lost,
        } = sum;
        eprintln!(
            "{RESULT} {way:?} cuts={cuts} bad={bad} moved={moved} acknowledged={acknowledged} \
             blocks={blocks} lost={lost}"
        );
    }
}
