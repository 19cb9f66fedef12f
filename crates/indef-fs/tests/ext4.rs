//! Behaviour that is particular to the ext4 engine, on real file systems on loop files.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::{FileExt, MetadataExt},
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicBool, Ordering},
};

use indef_core::{
    SkipReason,
    layout::{Layout, Row},
};
use indef_fs::{
    EngineKind, EngineOptions, Mapper, Moved, RangeCopier, Refusal, Relocator, Space, Step,
    StepLimit, Target, count_ranges, detect, map, relocator,
};
use linux_abi::{
    cache::{cachestat, resident_pages},
    mapping::SharedBytes,
};
use rustix::fs::{Advice, FallocateFlags, fadvise, fallocate};
use scratch_fs::{
    CacheChange, ScratchFs, Segment, Shape, cached_pages_after, require, settled_cache_change,
    undisturbed, verify,
};
use units::{Bytes, FileRange, PhysOffset};
use workloads::Numbers;

const SEED: u64 = 11;

struct NoCopier;

impl RangeCopier for NoCopier {
    fn copy(&self, _: &File, _: &File, _: &[FileRange]) -> io::Result<()> {
        unreachable!("the kernel copies")
    }
}

fn scratch(size: Bytes, mkfs: &[&str]) -> Option<ScratchFs> {
    let args = mkfs.iter().map(|arg| (*arg).to_owned());
    require(ScratchFs::builder("ext4", size).mkfs_args(args).build())
}

fn engine(path: &Path) -> Result<Box<dyn Relocator>, Refusal> {
    engine_for(path, None)
}

fn engine_for(path: &Path, row: Option<Row>) -> Result<Box<dyn Relocator>, Refusal> {
    let fs = detect(File::open(path).unwrap(), path)?;
    assert_eq!(fs.engines(), [EngineKind::Ext4MoveExtent]);
    relocator(
        EngineKind::Ext4MoveExtent,
        &fs,
        &EngineOptions {
            queue_depth: 8,
            row,
            ..EngineOptions::default()
        },
    )
}

fn layout(path: &Path) -> Layout {
    let file = File::open(path).unwrap();
    let whole = FileRange::new(0, u64::MAX);
    map(&file, path, whole, true, &mut Mapper::default()).unwrap()
}

fn whole(target: &Target) -> FileRange {
    FileRange::new(0, target.size.get()).align_outward(target.block_size)
}

/// Move ranges of a file to the end.
fn relocate(
    engine: &dyn Relocator,
    path: &Path,
    ranges: Option<&[FileRange]>,
    step: Bytes,
) -> Result<Moved, Refusal> {
    let target = Target::open(path)?;
    engine.admit(&target)?;
    let everything = [whole(&target)];
    let ranges = count_ranges(&target, ranges.unwrap_or(&everything))?;
    let mut total = Moved::default();
    let mut relocation = engine.begin(&target, &ranges, &NoCopier)?;
    loop {
        let (done, moved) = match relocation.step(StepLimit { bytes: step })? {
            Step::Working(moved) => (false, moved),
            Step::Done(moved) => (true, moved),
        };
        assert!(moved.locked_bytes <= step.max(Bytes(rustix::param::page_size() as u64)));
        total.relocated += moved.relocated;
        total.host_read += moved.host_read;
        total.host_written += moved.host_written;
        if done {
            drop(relocation);
            return match engine.settle().pop() {
                Some(error) => Err(error.into()),
                None => Ok(total),
            };
        }
    }
}

fn skip_reason(result: Result<Moved, Refusal>) -> SkipReason {
    match result {
        Err(Refusal::Skip(reason)) => reason,
        other => panic!("{other:?}"),
    }
}

fn times(path: &Path) -> [i64; 6] {
    let status = fs::symlink_metadata(path).unwrap();
    [
        status.atime(),
        status.atime_nsec(),
        status.mtime(),
        status.mtime_nsec(),
        status.ctime(),
        status.ctime_nsec(),
    ]
}

/// Data, holes and unwritten ranges in small fragments, and an odd tail.
fn mixed() -> Shape {
    let piece = Bytes::kib(4);
    let len = Bytes::kib(256);
    Shape::new(SEED)
        .with(Segment::Data { len, piece })
        .with(Segment::Hole(Bytes::kib(64)))
        .with(Segment::Unwritten { len, piece })
        .with(Segment::Data { len, piece })
        .with(Segment::Hole(Bytes::mib(1)))
        .repeated(3)
        .with(Segment::Data {
            len: Bytes::kib(61),
            piece,
        })
}

fn dense(len: Bytes) -> Shape {
    Shape::new(SEED).with(Segment::Data {
        len,
        piece: Bytes::kib(4),
    })
}

/// Holes and unwritten ranges, as pairs of offset and length.
fn without_data(layout: &Layout) -> Vec<(u64, u64, bool)> {
    use indef_core::layout::ExtentFlags;
    let mut spans: Vec<(u64, u64, bool)> = Vec::new();
    for extent in layout.extents() {
        let unwritten = extent.flags.contains(ExtentFlags::UNWRITTEN);
        match spans.last_mut() {
            Some((_, end, flag)) if *end == extent.file.get() && *flag == unwritten => {
                *end = extent.file_end().get();
            }
            _ => spans.push((extent.file.get(), extent.file_end().get(), unwritten)),
        }
    }
    spans
}

fn mixed_file_is_moved(mkfs: &[&str]) {
    let Some(mut scratch) = scratch(Bytes::mib(512), mkfs) else {
        return;
    };
    let path = scratch.path().join("mixed");
    mixed().make(&path).unwrap();
    fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o6755)).unwrap();
    scratch.remount().unwrap();
    let before = layout(&path);
    let (size, seen) = (fs::metadata(&path).unwrap().len(), times(&path));
    let digest = hash(&path);
    scratch.remount().unwrap();
    let seen_after_hash = times(&path);
    let engine_of = engine(&path).unwrap();
    let moved = relocate(engine_of.as_ref(), &path, None, Bytes::kib(100)).unwrap();
    assert_eq!(times(&path), seen_after_hash, "times");
    assert_eq!(seen[2..], seen_after_hash[2..]);
    assert_eq!(moved.relocated, before.allocated());
    assert!(
        moved.host_written < moved.relocated,
        "unwritten is only remapped"
    );
    let after = layout(&path);
    assert_eq!(without_data(&before), without_data(&after));
    assert!(after.fragments() < before.fragments() / 10, "{after:?}");
    drop(engine_of);
    scratch.fsck().unwrap();
    assert_eq!(times(&path), seen_after_hash, "times after a remount");
    let status = fs::metadata(&path).unwrap();
    assert_eq!((status.len(), status.mode() & 0o7777), (size, 0o6755));
    assert_eq!(hash(&path), digest);
    // A second time there is nothing left to gain.
    let again = relocate(engine(&path).unwrap().as_ref(), &path, None, Bytes::mib(1));
    assert!(matches!(
        skip_reason(again),
        SkipReason::Contiguous | SkipReason::NoGain
    ));
}

fn hash(path: &Path) -> Vec<u8> {
    use sha2::{Digest, Sha256};
    Sha256::digest(fs::read(path).unwrap()).to_vec()
}

#[test]
fn loop_holes_unwritten_ranges_and_times_stay() {
    mixed_file_is_moved(&[]);
}

#[test]
fn loop_blocks_smaller_than_pages() {
    mixed_file_is_moved(&["-b", "1024"]);
}

#[test]
fn loop_fragments_smaller_than_pages() {
    let Some(mut scratch) = scratch(Bytes::mib(256), &["-b", "1024"]) else {
        return;
    };
    let path = scratch.path().join("tiny");
    let len = Bytes::kib(200);
    Shape::new(SEED)
        .with(Segment::Data {
            len,
            piece: Bytes::kib(1),
        })
        .with(Segment::Hole(Bytes::kib(3)))
        .with(Segment::Data {
            len: Bytes::kib(5),
            piece: Bytes::kib(1),
        })
        .roughly()
        .make(&path)
        .unwrap();
    let digest = hash(&path);
    let before = layout(&path).fragments();
    assert!(before > 50);
    let engine = engine(&path).unwrap();
    relocate(engine.as_ref(), &path, None, Bytes::kib(16)).unwrap();
    assert!(layout(&path).fragments() <= 3, "{:?}", layout(&path));
    drop(engine);
    scratch.fsck().unwrap();
    assert_eq!(hash(&path), digest);
}

#[test]
fn loop_only_the_ranges_asked_for_are_moved() {
    let Some(mut scratch) = scratch(Bytes::mib(512), &[]) else {
        return;
    };
    let path = scratch.path().join("file");
    dense(Bytes::mib(8)).make(&path).unwrap();
    let before = layout(&path);
    let ranges = [
        FileRange::new(1 << 20, 128 << 10),
        FileRange::new(3 << 20, 128 << 10),
    ];
    let engine = engine(&path).unwrap();
    let moved = relocate(engine.as_ref(), &path, Some(&ranges), Bytes::mib(1)).unwrap();
    assert_eq!(moved.relocated, Bytes::kib(256));
    let after = layout(&path);
    for range in ranges {
        assert_eq!(after.fragments_in(range), 1);
    }
    assert_eq!(after.fragments(), before.fragments() - 2 * 31);
    let target = Target::open(&path).unwrap();
    let counted = count_ranges(&target, &ranges).unwrap();
    let asked = counted.iter().map(|counted| counted.written).sum();
    assert_eq!(engine.cost(asked, Bytes::mib(8)), Bytes::kib(256));
    drop((engine, target));
    scratch.fsck().unwrap();
    verify(
        &File::open(&path).unwrap(),
        SEED,
        FileRange::new(0, 8 << 20),
    )
    .unwrap();
}

#[test]
fn loop_ranges_of_a_row_lie_in_rows_as_in_the_file() {
    for (row, origin) in [(256 << 10, 0), (96 << 10, 20 << 10)] {
        let Some(mut scratch) = scratch(Bytes::mib(512), &[]) else {
            return;
        };
        let row = Row {
            bytes: Bytes(row),
            origin: PhysOffset(origin),
        };
        let path = scratch.path().join("file");
        dense(Bytes::mib(8)).make(&path).unwrap();
        // Free space that begins in the middle of a row.
        let beside = File::create(scratch.path().join("beside")).unwrap();
        fallocate(&beside, FallocateFlags::empty(), 0, (1 << 20) + 36_864).unwrap();
        let before = layout(&path).fragments();
        let space = || Space::of(&beside).unwrap().free;
        let free = space();
        let (long, short) = (256 << 10, 32 << 10);
        let ranges = [
            FileRange::new(0, long),
            FileRange::new(512 << 10, short),
            FileRange::new(576 << 10, short),
            FileRange::new((768 << 10) + 4096, short),
            FileRange::new(1 << 20, long),
            FileRange::new((2 << 20) + 20_480, 300 << 10),
            FileRange::new(4 << 20, 1 << 20),
        ];
        let engine = engine_for(&path, Some(row)).unwrap();
        let moved = relocate(engine.as_ref(), &path, Some(&ranges), Bytes::kib(100)).unwrap();
        let asked: Bytes = ranges.iter().map(|range| range.len).sum();
        assert_eq!((moved.relocated, moved.host_written), (asked, asked));
        let after = layout(&path);
        for range in ranges {
            assert_eq!(after.fragments_in(range), 1, "{range:?}");
            let first = after.clipped(range).next().unwrap();
            let place = Bytes((first.phys.0 - origin) % row.bytes.0);
            if range.len >= row.bytes {
                assert_eq!(place.0, range.start.0 % row.bytes.0, "{range:?}");
            } else {
                assert!(place + range.len <= row.bytes, "{range:?} at {place:?}");
            }
        }
        let blocks: u64 = ranges.iter().map(|range| range.len.0 / 4096 - 1).sum();
        assert!(after.fragments() <= before - blocks);
        drop(engine);
        let file = File::open(&path).unwrap();
        verify(&file, SEED, FileRange::new(0, 8 << 20)).unwrap();
        assert!(space() >= free, "the rest of the donors is free again");
        drop((beside, file));
        scratch.fsck().unwrap();
    }
}

/// Nothing is refused for want of an aligned place.
#[test]
fn loop_without_an_aligned_place_data_moves_all_the_same() {
    let Some(mut scratch) = scratch(Bytes::mib(256), &[]) else {
        return;
    };
    let path = scratch.path().join("file");
    dense(Bytes::mib(2)).make(&path).unwrap();
    let row = |bytes| Row {
        bytes: Bytes(bytes),
        origin: PhysOffset(0),
    };
    // Free space in pieces that hold a row's length, but not a row.
    let mut holes = Vec::new();
    let space = || Space::of(File::open(&path).unwrap()).unwrap();
    let filler = File::create(scratch.path().join("filler")).unwrap();
    let most = space().free.0 - (1 << 20);
    fallocate(&filler, FallocateFlags::empty(), 0, most).unwrap();
    for n in 0..most / (2 << 20) {
        holes.push(FileRange::new(n * (2 << 20), 384 << 10));
    }
    for hole in &holes {
        let flags = FallocateFlags::KEEP_SIZE | FallocateFlags::PUNCH_HOLE;
        fallocate(&filler, flags, hole.start.0, hole.len.0).unwrap();
    }
    filler.sync_all().unwrap();
    let engine = engine_for(&path, Some(row(1 << 20))).unwrap();
    let ranges = [
        FileRange::new(0, 1 << 20),
        FileRange::new(1 << 20, 256 << 10),
    ];
    let moved = relocate(engine.as_ref(), &path, Some(&ranges), Bytes::mib(1)).unwrap();
    assert!(moved.relocated >= Bytes::mib(1), "{moved:?}");
    assert!(layout(&path).fragments() < 400);
    drop(engine);
    drop(filler);
    scratch.fsck().unwrap();
}

/// A donor that cannot be put on a row is used as it is: if it were given back, its blocks could not be
/// had before the next commit, and there is no other place in one piece.
#[test]
fn loop_the_only_place_is_used_though_it_is_not_on_a_row() {
    let Some(mut scratch) = scratch(Bytes::mib(256), &[]) else {
        return;
    };
    let path = scratch.path().join("file");
    dense(Bytes::mib(2)).make(&path).unwrap();
    let filler_path = scratch.path().join("filler");
    let filler = File::create(&filler_path).unwrap();
    let free = Space::of(&filler).unwrap().free.0;
    fallocate(&filler, FallocateFlags::empty(), 0, free - (256 << 10)).unwrap();
    let only = FileRange::new(4 << 20, 640 << 10);
    let flags = FallocateFlags::KEEP_SIZE | FallocateFlags::PUNCH_HOLE;
    let place = layout(&filler_path).clipped(only).next().unwrap();
    assert!(place.len >= only.len, "{place:?}");
    let small = (128..768).map(|n| FileRange::new(n * (128 << 10), 64 << 10));
    for hole in small.chain([only]) {
        fallocate(&filler, flags, hole.start.0, hole.len.0).unwrap();
    }
    filler.sync_all().unwrap();
    let row = Row {
        bytes: Bytes::mib(1),
        origin: PhysOffset(place.phys.0 + (384 << 10)),
    };
    let engine = engine_for(&path, Some(row)).unwrap();
    let range = FileRange::new(0, 512 << 10);
    relocate(engine.as_ref(), &path, Some(&[range]), Bytes::mib(1)).unwrap();
    assert_eq!(layout(&path).fragments_in(range), 1);
    drop((engine, filler));
    scratch.fsck().unwrap();
}

#[test]
fn loop_at_no_moment_there_are_more_fragments() {
    let Some(mut scratch) = scratch(Bytes::mib(512), &[]) else {
        return;
    };
    let path = scratch.path().join("file");
    let data = |len, piece| Segment::Data { len, piece };
    let large = Bytes::mib(1);
    Shape::new(SEED)
        .with(data(large * 2, large))
        .with(data(Bytes::kib(64), Bytes::kib(4)))
        .with(Segment::Hole(Bytes::kib(8)))
        .with(data(large * 2, large))
        .with(data(Bytes::kib(64), Bytes::kib(4)))
        .make(&path)
        .unwrap();
    let before = layout(&path).fragments();
    let engine = engine(&path).unwrap();
    let target = Target::open(&path).unwrap();
    let ranges = count_ranges(&target, &[whole(&target)]).unwrap();
    let mut relocation = engine.begin(&target, &ranges, &NoCopier).unwrap();
    let limit = StepLimit {
        bytes: Bytes::kib(100),
    };
    while let Step::Working(_) = relocation.step(limit).unwrap() {
        assert!(layout(&path).fragments() <= before, "{:?}", layout(&path));
    }
    drop(relocation);
    assert_eq!(layout(&path).fragments(), 2);
    let len = target.size.get();
    drop((engine, target));
    scratch.fsck().unwrap();
    verify(
        &File::open(&path).unwrap(),
        SEED,
        FileRange::new(0, 64 << 10),
    )
    .unwrap();
    assert_eq!(fs::metadata(&path).unwrap().len(), len);
}

#[test]
fn loop_a_large_file_becomes_one_extent() {
    let Some(scratch) = scratch(Bytes::gib(3), &[]) else {
        return;
    };
    let path = scratch.path().join("large");
    dense(Bytes::mib(192)).make(&path).unwrap();
    let engine = engine(&path).unwrap();
    relocate(engine.as_ref(), &path, None, Bytes::mib(1)).unwrap();
    assert_eq!(layout(&path).fragments(), 1);
    verify(
        &File::open(&path).unwrap(),
        SEED,
        FileRange::new(0, 192 << 20),
    )
    .unwrap();
}

#[test]
fn loop_what_was_not_cached_is_not_cached_afterwards() {
    let Some(scratch) = scratch(Bytes::mib(512), &[]) else {
        return;
    };
    let path = scratch.path().join("cold");
    dense(Bytes::mib(20)).make(&path).unwrap();
    let file = File::open(&path).unwrap();
    fadvise(&file, 0, None, Advice::DontNeed).unwrap();
    assert_eq!(cached(&file), 0);
    relocate(engine(&path).unwrap().as_ref(), &path, None, Bytes::mib(1)).unwrap();
    assert_eq!(cached(&file), 0);
}

fn cached(file: &File) -> u64 {
    let len = file.metadata().unwrap().len();
    cachestat(file, 0, 0).map_or_else(
        |_| {
            let pages = resident_pages(file, 0, len as usize).unwrap();
            pages.iter().filter(|cached| **cached).count() as u64
        },
        |counts| counts.nr_cache,
    )
}

/// Journal commits since it was mounted.
fn commits(scratch: &ScratchFs) -> u64 {
    let device = scratch.device().trim_start_matches("/dev/");
    let info = std::fs::read_to_string(format!("/proc/fs/jbd2/{device}-8/info")).unwrap();
    info.split_whitespace().next().unwrap().parse().unwrap()
}

#[test]
fn loop_large_folios_move_fast_and_stay_cached() {
    undisturbed(large_folios_move_fast_and_stay_cached);
}

fn large_folios_move_fast_and_stay_cached() {
    let Some(scratch) = scratch(Bytes::mib(512), &[]) else {
        return;
    };
    let path = scratch.path().join("warm");
    let len = 32 << 20;
    dense(Bytes(len)).make(&path).unwrap();
    let file = File::open(&path).unwrap();
    // An ordinary sequential reader leaves large folios.
    let pages = cached_pages_after(&file, || {
        verify(&file, SEED, FileRange::new(0, len)).unwrap();
        Ok(())
    })
    .unwrap();
    assert!(pages.iter().all(|cached| *cached));
    let before = commits(&scratch);
    relocate(engine(&path).unwrap().as_ref(), &path, None, Bytes::mib(1)).unwrap();
    // Each step has one, at most a few; not each page.
    let commits = commits(&scratch) - before;
    assert!(commits < pages.len() as u64 / 32, "{commits} commits");
    let change = settled_cache_change(&file, &pages).unwrap();
    assert_eq!(change, CacheChange::default());
    assert_eq!(layout(&path).fragments(), 1);
}

#[test]
fn loop_mapped_large_folios_do_not_hold_the_locks_for_long() {
    let Some(scratch) = scratch(Bytes::mib(512), &[]) else {
        return;
    };
    let path = scratch.path().join("mapped");
    let len: u64 = 4 << 20;
    dense(Bytes(len)).make(&path).unwrap();
    let file = File::open(&path).unwrap();
    fadvise(&file, 0, None, Advice::DontNeed).unwrap();
    verify(&file, SEED, FileRange::new(0, len)).unwrap();
    let writable = File::options().read(true).write(true).open(&path).unwrap();
    let map = SharedBytes::map(&writable, len as usize).unwrap();
    let before = (0..len as usize)
        .step_by(4096)
        .map(|at| u64::from(map.load(at)));
    let before: u64 = before.sum();
    let engine = engine(&path).unwrap();
    let commits_before = commits(&scratch);
    let moved = relocate(engine.as_ref(), &path, None, Bytes::mib(1));
    let commits = commits(&scratch) - commits_before;
    let after = (0..len as usize)
        .step_by(4096)
        .map(|at| u64::from(map.load(at)));
    assert_eq!(after.sum::<u64>(), before);
    assert_eq!(moved.unwrap().relocated, Bytes(len));
    assert_eq!(layout(&path).fragments(), 1);
    // One for each page would be waited for under the locks.
    assert!(commits < len / 4096 / 8, "{commits} commits");
    verify(&file, SEED, FileRange::new(0, len)).unwrap();
}

#[test]
fn loop_of_a_partly_cached_file_each_page_is_as_before() {
    undisturbed(of_a_partly_cached_file_each_page_is_as_before);
}

fn of_a_partly_cached_file_each_page_is_as_before() {
    let Some(scratch) = scratch(Bytes::mib(512), &[]) else {
        return;
    };
    let path = scratch.path().join("partly");
    let len = 10 << 20;
    dense(Bytes(len)).make(&path).unwrap();
    let file = File::open(&path).unwrap();
    fadvise(&file, 0, None, Advice::Random).unwrap();
    let mut bytes = vec![0; 64 << 10];
    let before = cached_pages_after(&file, || {
        [0, 1 << 20, 5 << 20, (10 << 20) - (64 << 10)]
            .into_iter()
            .try_for_each(|at| file.read_exact_at(&mut bytes, at))
    })
    .unwrap();
    assert!(before.iter().any(|cached| *cached) && before.iter().any(|cached| !cached));
    relocate(engine(&path).unwrap().as_ref(), &path, None, Bytes::mib(1)).unwrap();
    let change = settled_cache_change(&file, &before).unwrap();
    assert_eq!(change, CacheChange::default());
}

#[test]
fn loop_dropped_half_way_nothing_is_left() {
    let Some(mut scratch) = scratch(Bytes::mib(512), &[]) else {
        return;
    };
    let path = scratch.path().join("half");
    dense(Bytes::mib(16)).make(&path).unwrap();
    let file = File::open(&path).unwrap();
    fadvise(&file, 0, None, Advice::DontNeed).unwrap();
    let before = layout(&path).fragments();
    let free = || rustix::fs::fstatfs(&file).unwrap().f_bfree;
    let free_before = free();
    let engine = engine(&path).unwrap();
    let target = Target::open(&path).unwrap();
    let ranges = count_ranges(&target, &[whole(&target)]).unwrap();
    let mut relocation = engine.begin(&target, &ranges, &NoCopier).unwrap();
    for _ in 0..3 {
        let limit = StepLimit {
            bytes: Bytes::mib(1),
        };
        assert!(matches!(relocation.step(limit), Ok(Step::Working(_))));
    }
    drop(relocation);
    assert!(engine.settle().is_empty());
    let after = layout(&path).fragments();
    assert!(after < before, "{before} {after}");
    assert_eq!(cached(&file), 0);
    // Blocks of the extent tree come and go.
    assert!(free().abs_diff(free_before) < 32);
    drop((engine, target));
    verify(&file, SEED, FileRange::new(0, 16 << 20)).unwrap();
    drop(file);
    scratch.fsck().unwrap();
}

struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn loop_writers_and_truncation_meanwhile() {
    let Some(mut scratch) = scratch(Bytes::mib(512), &[]) else {
        return;
    };
    let path = scratch.path().join("busy");
    let len: u64 = 16 << 20;
    dense(Bytes(len)).make(&path).unwrap();
    let stop = AtomicBool::new(false);
    let wanted = std::thread::scope(|scope| {
        // Also when this thread panics: the scope waits for the writer.
        let _stop = SetOnDrop(&stop);
        let writer = scope.spawn(|| {
            let file = File::options().read(true).write(true).open(&path).unwrap();
            let mut wanted = fs::read(&path).unwrap();
            let mut numbers = Numbers::new(1);
            while !stop.load(Ordering::Relaxed) {
                let at = numbers.below(len - 9000);
                let data = vec![numbers.next() as u8; 1 + numbers.below(9000_usize)];
                file.write_all_at(&data, at).unwrap();
                wanted[at as usize..][..data.len()].copy_from_slice(&data);
                std::thread::sleep(std::time::Duration::from_micros(200));
            }
            // Data that is cut off while being moved is gone.
            file.set_len(len / 2).unwrap();
            wanted.truncate(len as usize / 2);
            wanted
        });
        let engine = engine(&path).unwrap();
        for round in 0..3 {
            let target = Target::open(&path).unwrap();
            let begun = count_ranges(&target, &[whole(&target)])
                .and_then(|ranges| engine.begin(&target, &ranges, &NoCopier));
            let mut relocation = match begun {
                Ok(relocation) => relocation,
                Err(Refusal::Skip(_)) => continue,
                Err(failed) => panic!("{failed}"),
            };
            let mut steps = 0;
            loop {
                let limit = StepLimit {
                    bytes: Bytes::kib(256),
                };
                match relocation.step(limit) {
                    Ok(Step::Working(_)) => {}
                    // Its pages are in use, or what was to move is cut off.
                    Ok(Step::Done(_))
                    | Err(Refusal::Skip(
                        SkipReason::InUse
                        | SkipReason::Changed
                        | SkipReason::Contiguous
                        | SkipReason::NoGain,
                    )) => break,
                    Err(failed) => panic!("{failed}"),
                }
                steps += 1;
                if round == 0 && steps == 20 {
                    stop.store(true, Ordering::Relaxed);
                }
            }
        }
        stop.store(true, Ordering::Relaxed);
        writer.join().unwrap()
    });
    assert!(fs::read(&path).unwrap() == wanted);
    scratch.fsck().unwrap();
    assert!(fs::read(&path).unwrap() == wanted);
}

#[test]
fn loop_what_is_cut_off_before_it_moves_has_changed() {
    let Some(scratch) = scratch(Bytes::mib(128), &[]) else {
        return;
    };
    let path = scratch.path().join("cut");
    dense(Bytes::mib(1)).make(&path).unwrap();
    let engine = engine(&path).unwrap();
    let target = Target::open(&path).unwrap();
    let ranges = count_ranges(&target, &[FileRange::new(64 << 10, 512 << 10)]).unwrap();
    let mut relocation = engine.begin(&target, &ranges, &NoCopier).unwrap();
    let file = File::options().write(true).open(&path).unwrap();
    // Something is left of it, but nothing that was to move.
    file.set_len(4096).unwrap();
    let limit = StepLimit {
        bytes: Bytes::mib(1),
    };
    let end = loop {
        match relocation.step(limit) {
            Ok(Step::Working(moved)) => assert!(moved.relocated.is_zero(), "{moved:?}"),
            end => break end,
        }
    };
    let end = end.map(|_| Moved::default());
    assert_eq!(skip_reason(end), SkipReason::Changed);
}

#[test]
fn loop_no_space_and_no_better_place_are_skips() {
    let Some(mut scratch) = scratch(Bytes::mib(64), &["-m", "0"]) else {
        return;
    };
    let path = scratch.path().join("file");
    dense(Bytes::mib(8)).make(&path).unwrap();
    let before = layout(&path);
    let rest = File::create(scratch.path().join("rest")).unwrap();
    let mut filled = 0;
    for len in [1 << 20, 64 << 10, 4 << 10] {
        while fallocate(&rest, FallocateFlags::empty(), filled, len).is_ok() {
            filled += len;
        }
    }
    let engine = engine(&path).unwrap();
    let full = relocate(engine.as_ref(), &path, None, Bytes::mib(1));
    assert_eq!(skip_reason(full), SkipReason::NoSpace);
    assert_eq!(layout(&path), before);
    // Every second block is free: no better place, and where a few lie together still no harm.
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    for at in (0..filled).step_by(8192) {
        fallocate(&rest, punch, at, 4096).unwrap();
    }
    rest.sync_all().unwrap();
    match relocate(engine.as_ref(), &path, None, Bytes::mib(1)) {
        Ok(_) => assert!(layout(&path).fragments() < before.fragments()),
        refused => {
            assert_eq!(skip_reason(refused), SkipReason::NoGain);
            assert_eq!(layout(&path), before);
        }
    }
    drop((engine, rest));
    scratch.fsck().unwrap();
    verify(
        &File::open(&path).unwrap(),
        SEED,
        FileRange::new(0, 8 << 20),
    )
    .unwrap();
}

#[test]
fn loop_a_file_system_that_cannot_is_refused_by_name() {
    for (mkfs, options, reason) in [
        (&["-O", "^has_journal"][..], "", SkipReason::NoJournal),
        (&["-O", "bigalloc"], "", SkipReason::Unsupported),
        (&["-O", "fast_commit"], "", SkipReason::FastCommit),
        (&[], "data=journal", SkipReason::Unsupported),
    ] {
        let args = mkfs.iter().map(|arg| (*arg).to_owned());
        let built = ScratchFs::builder("ext4", Bytes::mib(64))
            .mkfs_args(args)
            .mount_options(options)
            .build();
        let Some(scratch) = require(built) else {
            return;
        };
        let path = scratch.path().join("file");
        fs::write(&path, vec![1; 20_000]).unwrap();
        let refused = engine(&path).and_then(|engine| {
            let target = Target::open(&path)?;
            engine.admit(&target)
        });
        match refused {
            Err(Refusal::Skip(found)) => assert_eq!(found, reason, "{mkfs:?} {options}"),
            other => panic!("{mkfs:?} {options}: {other:?}"),
        }
    }
}

#[test]
fn loop_files_that_cannot_be_moved_are_refused_by_name() {
    let args = ["-O", "inline_data", "-I", "256"].map(str::to_owned);
    let built = ScratchFs::builder("ext4", Bytes::mib(128))
        .mkfs_args(args)
        .build();
    let Some(scratch) = require(built) else {
        return;
    };
    let file = |name: &str, len: usize| -> PathBuf {
        let path = scratch.path().join(name);
        fs::write(&path, vec![7; len]).unwrap();
        File::open(&path).unwrap().sync_all().unwrap();
        path
    };
    let run = |program: &str, arguments: &[&str], path: &Path| {
        let status = Command::new(program).args(arguments).arg(path).status();
        assert!(status.unwrap().success(), "{program} {arguments:?}");
    };
    let engine = engine(scratch.path()).unwrap();
    let reason = |path: &Path| skip_reason(relocate(engine.as_ref(), path, None, Bytes::mib(1)));

    assert_eq!(reason(&file("inline", 50)), SkipReason::Inline);
    assert_eq!(reason(&file("empty", 0)), SkipReason::Empty);
    assert_eq!(reason(&file("whole", 100_000)), SkipReason::Contiguous);
    let journaled = file("journaled", 0);
    // Needs CAP_SYS_RESOURCE, which root in a container may not have.
    let set = Command::new("chattr").arg("+j").arg(&journaled).status();
    if set.unwrap().success() {
        fs::write(&journaled, vec![1; 9000]).unwrap();
        assert_eq!(reason(&journaled), SkipReason::Unsupported);
    }
    let mapped = file("mapped", 0);
    run("chattr", &["-e"], &mapped);
    fs::write(&mapped, vec![1; 9000]).unwrap();
    assert_eq!(reason(&mapped), SkipReason::Unsupported);
    for (name, flag, wanted) in [
        ("immutable", "i", SkipReason::Immutable),
        ("append", "a", SkipReason::AppendOnly),
    ] {
        let path = file(name, 9000);
        run("chattr", &[&format!("+{flag}")], &path);
        let found = reason(&path);
        run("chattr", &[&format!("-{flag}")], &path);
        assert_eq!(found, wanted);
    }
    let swap = file("swap", 1 << 20);
    fs::set_permissions(&swap, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    run("mkswap", &["-q"], &swap);
    if Command::new("swapon")
        .arg(&swap)
        .status()
        .unwrap()
        .success()
    {
        std::thread::sleep(std::time::Duration::from_millis(1100));
        let found = reason(&swap);
        run("swapoff", &[], &swap);
        assert_eq!(found, SkipReason::SwapFile);
    } else {
        scratch_fs::skip("this kernel has no swap");
    }
}
