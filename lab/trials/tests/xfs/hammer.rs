//! Files that are written while they are moved. Here data could be lost, so: every write of a block
//! has a version, writers note a version once its write has returned, and at the end each block
//! must have the last one, in the cache and, after a remount, on the device.
//!
//! Writers pause at intervals, so that some moves succeed; the number of tries makes it likely that
//! a write meets the moments around an exchange. `INDEF_HAMMER_SECONDS` makes it last longer than
//! the few seconds of a test.

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
use workloads::Numbers;

use crate::flavour::*;

const BLOCK: usize = 4096;
const BLOCKS: usize = 1024;

/// The intensity of writes and moves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    pub(crate) files: usize,
    /// Number of times that a file is moved while it is written.
    pub(crate) tries: u32,
    /// The longest pause of a writer.
    pub(crate) longest_pause: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            files: 3,
            tries: 20,
            longest_pause: Duration::from_millis(150),
        }
    }
}

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

/// A way to write a block. Each writer has every third block to itself.
pub(crate) trait Writer: Send {
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
/// still under way. The copier has the means that this needs.
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

pub(crate) type MakeWriter = fn(&Path) -> Box<dyn Writer>;

pub(crate) fn buffered(path: &Path) -> Box<dyn Writer> {
    Box::new(Buffered(open(path, 0)))
}

pub(crate) fn mapped(path: &Path) -> Box<dyn Writer> {
    Box::new(Mapped::new(path))
}

pub(crate) fn direct(path: &Path) -> Box<dyn Writer> {
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
    pause: Duration,
    stop: &AtomicBool,
) {
    let (mut numbers, mut version) = (Numbers::new(seed), 0);
    while !stop.load(Ordering::SeqCst) {
        for _ in 0..=numbers.below(8_u64) {
            version += 1;
            let mut blocks: Vec<usize> = (0..=numbers.below(16_u64))
                .map(|_| numbers.below(BLOCKS / share.1) * share.1 + share.0)
                .collect();
            blocks.sort_unstable();
            blocks.dedup();
            writer.write(&blocks, version);
            for block in blocks {
                board.note(block, version);
            }
        }
        let longest = pause.as_micros() as u64 / if numbers.below(3_u64) == 0 { 1 } else { 15 };
        std::thread::sleep(Duration::from_micros(numbers.below(longest)));
    }
}

fn seconds() -> u64 {
    std::env::var("INDEF_HAMMER_SECONDS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(2)
}

/// Move files in `folder` while `kinds` write to them; `remount` has the file system read from its
/// device again. Returns how many moves succeeded.
pub(crate) fn hammer(
    how: Move,
    pace: Pace,
    folder: &Path,
    kinds: &[MakeWriter],
    mut remount: impl FnMut(),
) -> u64 {
    let until = Instant::now() + Duration::from_secs(seconds());
    let (mut done, mut changed, mut round) = (0, 0, 0);
    while Instant::now() < until || round == 0 {
        round += 1;
        let boards: Vec<Board> = (0..pace.files)
            .map(|i| Board::new(folder.join(format!("file{i}")), i as u64))
            .collect();
        for board in &boards {
            let stop = AtomicBool::new(false);
            std::thread::scope(|scope| {
                // Also if we panic: the scope waits for the writers.
                let _stop = OnDrop(&stop);
                for (number, make) in kinds.iter().enumerate() {
                    let (stop, share) = (&stop, (number, kinds.len()));
                    let mut writer = make(&board.path);
                    let seed = round * 100 + number as u64;
                    let pause = pace.longest_pause;
                    scope.spawn(move || write_on(board, share, &mut *writer, seed, pause, stop));
                }
                let how = Move {
                    limit: Bytes::kib(256),
                    ..how
                };
                for _ in 0..pace.tries {
                    match how.whole(&board.path) {
                        Ok(_) => done += 1,
                        Err(Refusal::Skip(SkipReason::Contiguous)) => break,
                        Err(Refusal::Skip(SkipReason::Changed)) => changed += 1,
                        Err(Refusal::Skip(SkipReason::InUse | SkipReason::NoGain)) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
            });
            eprintln!("fragments after these moves: {}", fragments(&board.path));
            board.check("in the cache");
            // Without a writer, it moves.
            match how.whole(&board.path) {
                Ok(_) => done += 1,
                Err(Refusal::Skip(SkipReason::Contiguous)) => {}
                Err(error) => panic!("{error}"),
            }
            board.check("after the last move");
        }
        remount();
        for board in &boards {
            board.check("on the device");
        }
    }
    eprintln!("{round} rounds, {done} moved, {changed} changed");
    assert!(done > 0, "no move succeeded");
    done
}

/// Tells the writers to stop.
struct OnDrop<'a>(&'a AtomicBool);

impl Drop for OnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}
