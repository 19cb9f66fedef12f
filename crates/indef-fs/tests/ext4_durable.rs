//! ext4: data that an application was told is durable stays so, though its file is being moved.
//! Each test ends with a cut: the file system is stopped without writing anything more, and mounted
//! again. The journal commits by itself every 300 s, so everything that survives was committed on
//! purpose.

use std::{
    fs::{File, OpenOptions},
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use indef_core::SkipReason;
use indef_fs::{
    EngineKind, EngineOptions, Mapper, Moved, RangeCopier, Refusal, Relocator, Step, StepLimit,
    Target, count_ranges, detect, map, relocator,
};
use rustix::fs::OFlags;
use scratch_fs::{ScratchFs, Segment, Shape, require};
use units::{Bytes, FileRange};

const BLOCK: usize = 4096;
const LEN: u64 = 16 << 20;
const BLOCKS: u64 = LEN / BLOCK as u64;

struct NoCopier;

impl RangeCopier for NoCopier {
    fn copy(&self, _: &File, _: &File, _: &[FileRange]) -> std::io::Result<()> {
        unreachable!("the kernel copies")
    }
}

fn scratch() -> Option<(ScratchFs, PathBuf)> {
    let built = ScratchFs::builder("ext4", Bytes::mib(256))
        .mount_options("commit=300")
        .build();
    let scratch = require(built)?;
    let path = scratch.path().join("file");
    let data = Segment::Data {
        len: Bytes(LEN),
        piece: Bytes::kib(4),
    };
    Shape::new(5).with(data).make(&path).unwrap();
    scratch.sync().unwrap();
    Some((scratch, path))
}

fn engine(path: &Path, strict: bool) -> Box<dyn Relocator> {
    let fs = detect(File::open(path).unwrap(), path).unwrap();
    let options = EngineOptions {
        strict,
        ..EngineOptions::default()
    };
    relocator(EngineKind::Ext4MoveExtent, &fs, &options).unwrap()
}

fn fragments(path: &Path) -> u64 {
    let whole = FileRange::new(0, LEN);
    let file = File::open(path).unwrap();
    map(&file, path, whole, true, &mut Mapper::default())
        .unwrap()
        .fragments()
}

/// How an application writes a block so that it is durable, as `fdatasync` defines it.
#[derive(Clone, Copy, Debug)]
enum How {
    Fdatasync,
    Dsync,
    Direct,
}

impl How {
    fn of(round: u64) -> Self {
        [Self::Fdatasync, Self::Dsync, Self::Direct][round as usize % 3]
    }

    fn open(self, path: &Path) -> std::io::Result<File> {
        // The DSYNC of rustix 1.1 is O_SYNC (asm-generic/fcntl.h has both).
        const O_DSYNC: i32 = 0o10000;
        let flags = match self {
            Self::Fdatasync => 0,
            Self::Dsync => O_DSYNC,
            Self::Direct => OFlags::DIRECT.bits() as i32,
        };
        OpenOptions::new()
            .write(true)
            .custom_flags(flags)
            .open(path)
    }

    fn write(self, file: &File, block: u64, version: u64) -> std::io::Result<()> {
        #[repr(align(4096))]
        struct Aligned([u8; BLOCK]);
        let mut bytes = Aligned([0; BLOCK]);
        for word in bytes.0.chunks_exact_mut(8) {
            word.copy_from_slice(&version.to_le_bytes());
        }
        file.write_all_at(&bytes.0, block * BLOCK as u64)?;
        if !matches!(self, Self::Dsync) {
            file.sync_data()?;
        }
        Ok(())
    }
}

/// The acknowledged writes: blocks and their versions.
#[derive(Default)]
struct Acknowledged(Vec<(u64, u64)>);

impl Acknowledged {
    fn write(&mut self, how: How, file: &File, block: u64) -> std::io::Result<()> {
        let version = 0xACED_0000_0000 + self.0.len() as u64;
        how.write(file, block, version)?;
        self.0.push((block, version));
        Ok(())
    }

    /// The writes that are lost.
    fn lost(&self, path: &Path) -> Vec<(u64, u64)> {
        let file = File::open(path).unwrap();
        // The last write of a block counts.
        let last: std::collections::BTreeMap<_, _> = self.0.iter().copied().collect();
        let is_lost = |&(block, version): &(u64, u64)| {
            let mut word = [0; 8];
            file.read_exact_at(&mut word, block * BLOCK as u64).unwrap();
            u64::from_le_bytes(word) != version
        };
        last.into_iter().filter(is_lost).collect()
    }
}

/// Tells a writer to stop.
struct OnDrop<'a>(&'a AtomicBool);

impl Drop for OnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

fn cut(scratch: &mut ScratchFs) {
    linux_abi::shutdown::without_flush(File::open(scratch.path()).unwrap()).unwrap();
    scratch.remount().unwrap();
}

/// Move the file, and do something after each step.
fn steps(
    engine: &dyn Relocator,
    path: &Path,
    limit: Bytes,
    mut after: impl FnMut(u64, &Moved),
) -> Result<Moved, Refusal> {
    let target = Target::open(path)?;
    engine.admit(&target)?;
    let whole = count_ranges(&target, &[FileRange::new(0, LEN)])?;
    let mut relocation = engine.begin(&target, &whole, &NoCopier)?;
    let mut sum = Moved::default();
    for step in 0.. {
        let done = relocation.step(StepLimit { bytes: limit })?;
        let (Step::Working(moved) | Step::Done(moved)) = done;
        sum += moved;
        after(step, &moved);
        if matches!(done, Step::Done(_)) {
            return Ok(sum);
        }
    }
    unreachable!("steps end")
}

#[test]
fn loop_what_is_written_after_a_step_survives_a_cut() {
    let Some((mut scratch, path)) = scratch() else {
        return;
    };
    let mut acknowledged = Acknowledged::default();
    let engine = engine(&path, false);
    let limit = Bytes::mib(1);
    let moved = steps(&*engine, &path, limit, |step, moved| {
        assert_eq!(moved.uncommitted.get(), 0, "nobody has the file open");
        let how = How::of(step);
        let file = how.open(&path).unwrap();
        for block in (0..BLOCKS).step_by(61) {
            acknowledged
                .write(how, &file, (block + step) % BLOCKS)
                .unwrap();
        }
    })
    .unwrap();
    assert_eq!(moved.relocated, Bytes(LEN));
    drop(engine);
    cut(&mut scratch);
    let lost = acknowledged.lost(&path);
    assert!(acknowledged.0.len() > 1000);
    assert_eq!(lost.len(), 0, "of {}: {lost:x?}", acknowledged.0.len());
    assert!(fragments(&path) < 200, "what was moved stays moved");
    scratch.fsck().unwrap();
}

#[test]
fn loop_who_opens_a_file_while_it_is_moved_loses_nothing() {
    let Some((mut scratch, path)) = scratch() else {
        return;
    };
    let stop = AtomicBool::new(false);
    let mut acknowledged = Acknowledged::default();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut acknowledged = Acknowledged::default();
            for round in 0_u64.. {
                if stop.load(Ordering::SeqCst) {
                    break;
                }
                let how = How::of(round);
                let Ok(file) = how.open(&path) else {
                    // Cut.
                    break;
                };
                for block in 0..2 {
                    let block = (round * 97 + block * 2048) % BLOCKS;
                    if acknowledged.write(how, &file, block).is_err() {
                        // Cut.
                        return acknowledged;
                    }
                }
                drop(file);
                std::thread::sleep(Duration::from_millis(10));
            }
            acknowledged
        });
        // Also if we panic: the scope waits for the writer.
        let _stop = OnDrop(&stop);
        let engine = engine(&path, true);
        // Somebody has it open much of the time; strict, it moves when nobody has.
        let mut relocated = Bytes::ZERO;
        let begun = Instant::now();
        while relocated < Bytes::mib(1) || begun.elapsed() < Duration::from_secs(2) {
            assert!(begun.elapsed() < Duration::from_secs(400), "{relocated}");
            let moved = steps(&*engine, &path, Bytes::kib(256), |_, moved| {
                assert_eq!(moved.uncommitted.get(), 0);
                relocated += moved.relocated;
            });
            match moved {
                Err(Refusal::Skip(SkipReason::InUse)) => {}
                Ok(_) => break,
                Err(other) => panic!("{other:?}"),
            }
        }
        linux_abi::shutdown::without_flush(File::open(scratch.path()).unwrap()).unwrap();
        stop.store(true, Ordering::SeqCst);
        acknowledged = writer.join().unwrap();
    });
    scratch.remount().unwrap();
    let lost = acknowledged.lost(&path);
    assert_eq!(lost.len(), 0, "of {}: {lost:x?}", acknowledged.0.len());
    scratch.fsck().unwrap();
}

#[test]
fn loop_a_file_in_use_is_committed_step_by_step_or_left_alone() {
    let Some((mut scratch, path)) = scratch() else {
        return;
    };
    let held = How::Fdatasync.open(&path).unwrap();
    let strict = engine(&path, true);
    let refused = steps(&*strict, &path, Bytes::mib(4), |_, _| {});
    assert!(
        matches!(refused, Err(Refusal::Skip(SkipReason::InUse))),
        "{refused:?}"
    );
    drop(strict);
    assert!(fragments(&path) > 4000);
    let engine = engine(&path, false);
    let mut acknowledged = Acknowledged::default();
    let moved = steps(&*engine, &path, Bytes::mib(64), |step, moved| {
        assert!(moved.relocated <= Bytes::mib(1), "{}", moved.relocated);
        assert_eq!(moved.uncommitted.get() > 0, !moved.relocated.is_zero());
        for block in (0..BLOCKS).step_by(61) {
            let block = (block + step) % BLOCKS;
            acknowledged.write(How::Fdatasync, &held, block).unwrap();
        }
    })
    .unwrap();
    assert_eq!(moved.relocated, Bytes(LEN));
    drop((engine, held));
    cut(&mut scratch);
    let lost = acknowledged.lost(&path);
    assert_eq!(lost.len(), 0, "of {}: {lost:x?}", acknowledged.0.len());
    scratch.fsck().unwrap();
}
