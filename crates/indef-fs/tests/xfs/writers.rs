//! Files that are written while they are moved. Here data could be lost, so: every write of a block
//! has a version, writers note a version once its write has returned, and at the end each block must
//! have the last one, in the cache and, after a remount, on the device.
//!
//! Writers pause now and then, so that some moves succeed; the moments around an exchange are hit by
//! number of tries. `INDEF_HAMMER_SECONDS` makes it last longer than the few seconds of a test.

use std::{
    fs::{File, OpenOptions},
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::{Duration, Instant},
};

use indef_core::SkipReason;
use indef_engine::Copier;
use indef_fs::{RangeCopier, Refusal};
use scratch_fs::{Segment, Shape, content};
use units::{Bytes, FileOffset, FileRange};

use crate::flavour::*;

const BLOCK: usize = 4096;
const BLOCKS: usize = 1024;
const FILES: usize = 3;

/// The last version of each block of a file that is known to be written.
struct Board {
    path: PathBuf,
    seed: u64,
    versions: Vec<AtomicU64>,
}

impl Board {
    fn new(path: PathBuf, seed: u64) -> Self {
        Shape::new(seed)
            .with(Segment::Data {
                len: Bytes((BLOCK * BLOCKS) as u64),
                piece: Bytes::kib(4),
            })
            .make(&path)
            .unwrap();
        Self {
            path,
            seed,
            versions: (0..BLOCKS).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    fn note(&self, block: usize, version: u64) {
        self.versions[block].store(version, Ordering::SeqCst);
    }

    fn check(&self, when: &str) {
        let all = std::fs::read(&self.path).unwrap();
        assert_eq!(all.len(), BLOCK * BLOCKS);
        for (block, bytes) in all.chunks(BLOCK).enumerate() {
            let mut expected = vec![0; BLOCK];
            match self.versions[block].load(Ordering::SeqCst) {
                0 => content(&mut expected, self.seed, FileOffset((block * BLOCK) as u64)),
                version => fill(&mut expected, block, version),
            }
            assert!(
                bytes == expected,
                "{when}: block {block} of {} should have version {} and begins {:?}",
                self.path.display(),
                self.versions[block].load(Ordering::SeqCst),
                &bytes[..16]
            );
        }
    }
}

fn fill(bytes: &mut [u8], block: usize, version: u64) {
    let word = ((block as u64) << 40 | version).to_le_bytes();
    for part in bytes.chunks_mut(8) {
        part.copy_from_slice(&word);
    }
}

/// Random enough.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % below
    }
}

/// How a block is written. Each writer has every third block to itself.
trait Writer: Send {
    fn write(&mut self, blocks: &[usize], version: u64);
}

struct Buffered(File);

impl Writer for Buffered {
    fn write(&mut self, blocks: &[usize], version: u64) {
        let mut bytes = vec![0; BLOCK];
        for block in blocks {
            fill(&mut bytes, *block, version);
            self.0.write_all_at(&bytes, (block * BLOCK) as u64).unwrap();
        }
    }
}

/// Direct and asynchronous: returns from the kernel, and drops the file's locks, while the write is
/// still under way. The copier has what it takes.
struct Direct {
    copier: Copier,
    memory: File,
    file: File,
}

impl Writer for Direct {
    fn write(&mut self, blocks: &[usize], version: u64) {
        Buffered(self.memory.try_clone().unwrap()).write(blocks, version);
        let ranges: Vec<_> = blocks
            .iter()
            .map(|block| FileRange::new((block * BLOCK) as u64, BLOCK as u64))
            .collect();
        self.copier.copy(&self.memory, &self.file, &ranges).unwrap();
    }
}

struct Mapped {
    memory: *mut u8,
}

// SAFETY: the mapping belongs to this value alone.
unsafe impl Send for Mapped {}

impl Mapped {
    fn new(path: &Path) -> Self {
        use rustix::mm::{MapFlags, ProtFlags, mmap};
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(path)
            .unwrap();
        // SAFETY: a new mapping at a place of the kernel's choice; only accessed through `write`,
        // and the file is never truncated.
        let memory = unsafe {
            mmap(
                std::ptr::null_mut(),
                BLOCK * BLOCKS,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                &file,
                0,
            )
        };
        Self {
            memory: memory.unwrap().cast(),
        }
    }
}

impl Writer for Mapped {
    fn write(&mut self, blocks: &[usize], version: u64) {
        let mut bytes = vec![0; BLOCK];
        for block in blocks {
            fill(&mut bytes, *block, version);
            assert!(*block < BLOCKS);
            // SAFETY: within the mapping, by the assertion.
            let place = unsafe { self.memory.add(block * BLOCK) };
            // SAFETY: as before, and the vector is memory of its own.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), place, BLOCK) };
        }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: exactly what `new` mapped; nothing refers to it any more.
        unsafe { rustix::mm::munmap(self.memory.cast(), BLOCK * BLOCKS) }.unwrap();
    }
}

fn open(path: &Path, flags: i32) -> File {
    OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(flags)
        .open(path)
        .unwrap()
}

type MakeWriter = fn(&Path) -> Box<dyn Writer>;

fn buffered(path: &Path) -> Box<dyn Writer> {
    Box::new(Buffered(open(path, 0)))
}

fn mapped(path: &Path) -> Box<dyn Writer> {
    Box::new(Mapped::new(path))
}

fn direct(path: &Path) -> Box<dyn Writer> {
    let memory = tempfile::tempfile().unwrap();
    memory.set_len((BLOCK * BLOCKS) as u64).unwrap();
    Box::new(Direct {
        copier: Copier::new(32),
        memory,
        file: open(path, rustix::fs::OFlags::DIRECT.bits() as i32),
    })
}

/// Write until told to stop, with pauses.
fn write_on(
    board: &Board,
    share: (usize, usize),
    writer: &mut dyn Writer,
    seed: u64,
    stop: &AtomicBool,
) {
    let (mut dice, mut version) = (Dice(seed * 2 + 1), 0);
    while !stop.load(Ordering::SeqCst) {
        for _ in 0..=dice.roll(8) {
            version += 1;
            let mut blocks: Vec<usize> = (0..=dice.roll(16))
                .map(|_| dice.roll((BLOCKS / share.1) as u64) as usize * share.1 + share.0)
                .collect();
            blocks.sort_unstable();
            blocks.dedup();
            writer.write(&blocks, version);
            for block in blocks {
                board.note(block, version);
            }
        }
        let longest = if dice.roll(3) == 0 { 150_000 } else { 10_000 };
        std::thread::sleep(Duration::from_micros(dice.roll(longest)));
    }
}

fn seconds() -> u64 {
    std::env::var("INDEF_HAMMER_SECONDS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(2)
}

/// Move files while `kinds` write to them.
fn hammer(flavour: Flavour, fs: &mut scratch_fs::ScratchFs, kinds: &[MakeWriter]) {
    let until = Instant::now() + Duration::from_secs(seconds());
    let (mut done, mut changed, mut round) = (0, 0, 0);
    while Instant::now() < until || round == 0 {
        round += 1;
        let boards: Vec<Board> = (0..FILES)
            .map(|i| Board::new(fs.path().join(format!("file{i}")), i as u64))
            .collect();
        for board in &boards {
            let stop = AtomicBool::new(false);
            std::thread::scope(|scope| {
                for (number, make) in kinds.iter().enumerate() {
                    let (stop, share) = (&stop, (number, kinds.len()));
                    let mut writer = make(&board.path);
                    let seed = round * 100 + number as u64;
                    scope.spawn(move || write_on(board, share, &mut *writer, seed, stop));
                }
                let how = Move {
                    limit: Bytes::kib(256),
                    ..Move::with(flavour)
                };
                for _ in 0..20 {
                    match how.whole(&board.path) {
                        Ok(_) => done += 1,
                        Err(Refusal::Skip(SkipReason::Contiguous)) => break,
                        Err(Refusal::Skip(SkipReason::Changed)) => changed += 1,
                        Err(Refusal::Skip(SkipReason::InUse | SkipReason::NoGain)) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
                stop.store(true, Ordering::SeqCst);
            });
            board.check("in the cache");
            // Left alone, it moves.
            match Move::with(flavour).whole(&board.path) {
                Ok(_) => done += 1,
                Err(Refusal::Skip(SkipReason::Contiguous)) => {}
                Err(error) => panic!("{error}"),
            }
            board.check("after the last move");
        }
        fs.remount().unwrap();
        for board in &boards {
            board.check("on the device");
        }
    }
    eprintln!(
        "{}: {round} rounds, {done} moved, {changed} changed",
        flavour.name
    );
    assert!(done > 0, "no move succeeded");
    fs.fsck().unwrap();
}

#[test]
fn loop_buffered_writes_are_never_lost() {
    each(&ALL, Bytes::mib(512), |flavour, fs| {
        if flavour.name != SWAP_NO_REFLINK.name {
            hammer(flavour, fs, &[buffered]);
        }
    });
}

#[test]
fn loop_mapped_writes_are_never_lost() {
    each(
        &[SWAP, SWAP_RMAP, COMMIT],
        Bytes::mib(512),
        |flavour, fs| {
            hammer(flavour, fs, &[mapped, mapped]);
        },
    );
}

#[test]
fn loop_direct_writes_are_never_lost() {
    each(
        &[SWAP, SWAP_RMAP, COMMIT],
        Bytes::mib(512),
        |flavour, fs| {
            hammer(flavour, fs, &[direct]);
        },
    );
}

#[test]
fn loop_all_kinds_of_writes_at_once_are_never_lost() {
    each(&[SWAP, COMMIT], Bytes::mib(512), |flavour, fs| {
        hammer(flavour, fs, &[buffered, mapped, direct]);
    });
}
