use std::{
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::Duration,
};

use linux_abi::{
    cache::{Cachestat, cachestat, start_writeback},
    ext4::{MoveResult, move_extents},
    mapping::SharedBytes,
};
use rustix::fs::{FallocateFlags, fallocate};
use scratch_fs::{FragmentOptions, ScratchFs, Segment, Shape, fill_pool, fragment, require};

use super::*;
use crate::{EngineOptions, FsError, NotTakenBack, cache::drop_clean, count_ranges, detect};

const LEN: Bytes = Bytes::mib(2);
const PAGE: u64 = 4096;

/// A fragmented file on a thin volume whose pool is full, and a small one.
struct Full {
    scratch: ScratchFs,
    path: PathBuf,
    other: PathBuf,
    contents: Vec<u8>,
    fragments: u64,
    _pool: ScratchFs,
}

impl Full {
    fn new() -> Option<Self> {
        let size = Bytes::mib(128);
        let pool = require(ScratchFs::builder("ext4", size * 2).build())?;
        let thin = ScratchFs::builder("ext4", size).folder(pool.path());
        let mut scratch = require(thin.build()).expect("there is ext4 here");
        let path = scratch.path().join("file");
        let options = FragmentOptions {
            size: LEN,
            piece: Bytes::kib(4),
            seed: 1,
        };
        fragment(&path, options).unwrap();
        let other = scratch.path().join("other");
        std::fs::write(&other, vec![1; 1 << 20]).unwrap();
        let contents = std::fs::read(&path).unwrap();
        fill_pool(&mut scratch, &pool, Bytes::ZERO).unwrap();
        let fragments = fragments(&File::open(&path).unwrap());
        Some(Self {
            scratch,
            path,
            other,
            contents,
            fragments,
            _pool: pool,
        })
    }

    /// Have the kernel let go of all that it can, and check that it does.
    fn reclaim(&self, target: &Target) {
        let other = open(&self.other);
        for _ in 0..100 {
            reclaim(&target.file);
            if reclaim(&other) == 0 {
                return;
            }
            thread::sleep(Duration::from_millis(10));
        }
        panic!("nothing is reclaimed here");
    }

    /// Whether the file has these bytes, on the device as well.
    fn has(&mut self, bytes: &[u8]) -> bool {
        let now = std::fs::read(&self.path).unwrap() == bytes;
        self.scratch.remount().unwrap();
        now && std::fs::read(&self.path).unwrap() == bytes
    }

    fn fragments(&self) -> u64 {
        fragments(&File::open(&self.path).unwrap())
    }
}

fn open(path: &Path) -> File {
    let file = File::options().read(true).write(true).open(path);
    file.unwrap()
}

fn fragments(file: &File) -> u64 {
    let whole = FileRange::new(0, LEN.get());
    let layout = crate::map(
        file,
        Path::new("file"),
        whole,
        false,
        &mut Mapper::default(),
    );
    layout.unwrap().fragments()
}

/// Returns how many pages are left.
fn reclaim(file: &File) -> u64 {
    let len = file.metadata().unwrap().len();
    // Who waits with `wait_writeback` is told of an error in the place of the engine.
    start_writeback(file, 0, 0).unwrap();
    let is_clean = |counts: Cachestat| counts.nr_dirty + counts.nr_writeback == 0;
    while !is_clean(cachestat(file, 0, 0).unwrap()) {
        thread::sleep(Duration::from_millis(1));
    }
    let map = SharedBytes::map(file, len as usize).unwrap();
    for at in (0..len).step_by(PAGE as usize) {
        let _ = map.load(at as usize);
    }
    map.page_out().unwrap();
    drop(map);
    drop_clean(file, FileRange::new(0, LEN.get()));
    cachestat(file, 0, 0).unwrap().nr_cache
}

/// Move all of a file in one step, and do something after its beginning and before its end.
fn move_with(
    path: &Path,
    begin: impl FnOnce(&mut Target),
    prepare: impl FnOnce(&mut Ext4Relocation<'_>),
    meanwhile: impl FnOnce(&Shared, &Target),
) -> (Moved, Result<(), Refusal>) {
    let fs = detect(File::open(path).unwrap(), path).unwrap();
    let shared = Shared::new(&fs, &EngineOptions::default());
    let mut target = Target::open(path).unwrap();
    begin(&mut target);
    let whole = FileRange::new(0, LEN.get());
    let ranges = count_ranges(&target, &[whole]).unwrap();
    let mut relocation = Ext4Relocation::begin(&shared, &target, &ranges).unwrap();
    assert!(relocation.prepare().unwrap());
    prepare(&mut relocation);
    let hold = shared.holds.take(&target, NAPS);
    let (mut moved, began) = (Moved::default(), Instant::now());
    relocation.advance(LEN, &hold, &mut moved).unwrap();
    assert!(!moved.relocated.is_zero());
    meanwhile(&shared, &target);
    let done = relocation.commit(&mut moved, &hold, began);
    (moved, done)
}

/// The same, with nothing to do after its beginning.
fn move_whole(path: &Path, meanwhile: impl FnOnce(&Target)) -> (Moved, Result<(), Refusal>) {
    move_with(path, |_| (), |_| (), |_, target| meanwhile(target))
}

/// The error, and of how much it says that it may be lost.
fn failed(done: Result<(), Refusal>) -> (FsError, Bytes) {
    let error = match done {
        Err(Refusal::Failed(error)) => error,
        other => panic!("{other:?}"),
    };
    let left = error.source.get_ref();
    let left = left.and_then(|error| error.downcast_ref::<NotTakenBack>());
    let bytes = left.map_or(Bytes::ZERO, |left| left.bytes);
    (error, bytes)
}

/// A page that could not be written is clean, and nothing keeps the kernel from using its memory for something else. Nobody
/// has its contents then but the old blocks, which a move back would overwrite.
#[test]
fn loop_what_cannot_be_written_is_whole_though_memory_is_short() {
    let Some(mut full) = Full::new() else {
        return;
    };
    for is_short in [false, true] {
        let (moved, done) = move_whole(&full.path, |target| {
            if is_short {
                full.reclaim(target);
            }
        });
        let (error, lost) = failed(done);
        assert_eq!(lost, Bytes::ZERO, "{error}");
        assert_eq!(moved.relocated, Bytes::ZERO);
        assert!(full.has(&full.contents.clone()), "{is_short}");
        assert_eq!(full.fragments(), full.fragments);
    }
}

/// Whoever has the file open goes on writing to the pages that are pinned.
#[test]
fn loop_what_others_write_before_it_is_taken_back_is_kept() {
    let Some(mut full) = Full::new() else {
        return;
    };
    let other = open(&full.path);
    let mut expected = full.contents.clone();
    let mut write = |at: u64, bytes: &[u8]| {
        other.write_all_at(bytes, at).unwrap();
        expected[at as usize..][..bytes.len()].copy_from_slice(bytes);
    };
    let (_, done) = move_whole(&full.path, |target| {
        // A part of a page, and pages.
        write(5 * PAGE + 10, &[1; 100]);
        write(9 * PAGE - 1, &[2; 2 * PAGE as usize]);
        other.sync_all().unwrap_err();
        full.reclaim(target);
        write(100 * PAGE + 1, &[3; PAGE as usize]);
        let map = SharedBytes::map(&other, LEN.get() as usize).unwrap();
        map.store(200 * PAGE as usize, 4);
        drop(map);
        full.reclaim(target);
    });
    expected[200 * PAGE as usize] = 4;
    let (error, lost) = failed(done);
    assert_eq!(lost, Bytes::ZERO, "{error}");
    // Of what was written after the first failure, another is told, once.
    let _ = other.sync_all();
    other.sync_all().unwrap();
    drop(other);
    assert!(full.has(&expected));
    assert_eq!(full.fragments(), full.fragments);
}

#[test]
fn loop_what_others_cut_off_before_it_is_taken_back_stays_cut_off() {
    let Some(mut full) = Full::new() else {
        return;
    };
    let other = open(&full.path);
    let cut = 300 * PAGE + 5;
    let (_, done) = move_whole(&full.path, |target| {
        other.set_len(cut).unwrap();
        full.reclaim(target);
    });
    let (error, lost) = failed(done);
    assert_eq!(lost, Bytes::ZERO, "{error}");
    drop(other);
    let expected = full.contents[..cut as usize].to_vec();
    assert!(full.has(&expected));
}

#[test]
fn loop_what_cannot_be_pinned_and_was_reclaimed_is_told_of() {
    let Some(mut full) = Full::new() else {
        return;
    };
    // Reading it would touch the access time.
    let begin = |target: &mut Target| target.noatime = false;
    let (_, done) = move_with(&full.path, begin, |_| (), |_, _| ());
    let (error, lost) = failed(done);
    assert_eq!(lost, Bytes::ZERO, "{error}");
    assert!(full.has(&full.contents.clone()));
    // There are no descriptors left, say.
    let none = |relocation: &mut Ext4Relocation<'_>| {
        relocation.piece.as_mut().unwrap().unsure.pins.most = 0;
    };
    let short = |_: &Shared, target: &Target| full.reclaim(target);
    let (_, done) = move_with(&full.path, |_| (), none, short);
    assert_eq!(failed(done).1, LEN);
}

/// Then what moved is waited for in the midst of a step.
#[test]
fn loop_no_more_moves_at_once_than_can_be_pinned() {
    let Some(mut full) = Full::new() else {
        return;
    };
    let one = |relocation: &mut Ext4Relocation<'_>| {
        relocation.piece.as_mut().unwrap().unsure.pins.most = 1;
    };
    let mut left = 0;
    let (moved, done) = move_with(
        &full.path,
        |_| (),
        one,
        |_, target| {
            left = fragments(&target.file);
            full.reclaim(target);
        },
    );
    // The second half was not moved.
    assert!(left > full.fragments / 3, "{left} of {}", full.fragments);
    let (error, lost) = failed(done);
    assert_eq!(
        (lost, moved.relocated),
        (Bytes::ZERO, Bytes::ZERO),
        "{error}"
    );
    assert!(full.has(&full.contents.clone()));
    // Where there is room, all of it moves.
    let Some(scratch) = require(ScratchFs::builder("ext4", Bytes::mib(64)).build()) else {
        return;
    };
    let (path, before) = in_pieces(&scratch);
    let (moved, done) = move_with(&path, |_| (), one, |_, _| ());
    done.unwrap();
    assert_eq!(moved.relocated, LEN);
    assert_eq!(fragments(&File::open(&path).unwrap()), 1);
    assert_eq!(std::fs::read(&path).unwrap(), before);
}

/// A file in pieces of 4 KiB, and what it contains.
fn in_pieces(scratch: &ScratchFs) -> (PathBuf, Vec<u8>) {
    let path = scratch.path().join("file");
    let data = Segment::Data {
        len: LEN,
        piece: Bytes::kib(4),
    };
    Shape::new(1).with(data).make(&path).unwrap();
    let contents = std::fs::read(&path).unwrap();
    (path, contents)
}

/// A call that moves the first half, and then fails, of which the kernel tells nothing more.
fn fail_midway(
    errno: Errno,
    (file, donor): (&File, &File),
    (at, place): (u64, u64),
    blocks: u64,
) -> MoveResult {
    let moved = move_extents(file, donor, at, place, blocks / 2);
    assert!(moved.result.is_ok() && blocks > 1, "{moved:?}");
    MoveResult {
        moved_blocks: 0,
        result: Err(errno.into()),
    }
}

/// The kernel cannot read metadata, say.
#[test]
fn loop_what_moved_before_an_error_is_taken_back_where_it_cannot_be_written() {
    let Some(mut full) = Full::new() else {
        return;
    };
    let fs = detect(File::open(&full.path).unwrap(), &full.path).unwrap();
    let shared = Shared::new(&fs, &EngineOptions::default());
    let target = Target::open(&full.path).unwrap();
    let ranges = count_ranges(&target, &[FileRange::new(0, LEN.get())]).unwrap();
    let mut relocation = Ext4Relocation::begin(&shared, &target, &ranges).unwrap();
    assert!(relocation.prepare().unwrap());
    relocation.piece.as_mut().unwrap().call =
        |file, donor, at, place, blocks| fail_midway(Errno::IO, (file, donor), (at, place), blocks);
    let done = relocation.step(StepLimit { bytes: LEN });
    let (error, lost) = failed(done.map(|step| panic!("{step:?}")));
    assert_eq!(lost, Bytes::ZERO, "{error}");
    assert_eq!(error.operation, "write back moved data", "{error}");
    drop(relocation);
    drop((target, shared));
    assert!(full.has(&full.contents.clone()));
    assert_eq!(full.fragments(), full.fragments);
}

/// Another call for it would move it back.
#[test]
fn loop_what_moved_before_a_page_was_busy_stays_moved() {
    let Some(mut scratch) = require(ScratchFs::builder("ext4", Bytes::mib(64)).build()) else {
        return;
    };
    let (path, before) = in_pieces(&scratch);
    let fs = detect(File::open(&path).unwrap(), &path).unwrap();
    let shared = Shared::new(&fs, &EngineOptions::default());
    let target = Target::open(&path).unwrap();
    let ranges = count_ranges(&target, &[FileRange::new(0, LEN.get())]).unwrap();
    let mut relocation = Ext4Relocation::begin(&shared, &target, &ranges).unwrap();
    assert!(relocation.prepare().unwrap());
    static WAS_BUSY: AtomicBool = AtomicBool::new(false);
    relocation.piece.as_mut().unwrap().call =
        |file, donor, at, place, blocks| match WAS_BUSY.swap(true, Ordering::Relaxed) {
            false => fail_midway(Errno::BUSY, (file, donor), (at, place), blocks),
            true => move_extents(file, donor, at, place, blocks),
        };
    let mut relocated = Bytes::ZERO;
    while let Step::Working(moved) = relocation.step(StepLimit { bytes: LEN }).unwrap() {
        relocated += moved.relocated;
    }
    assert!(WAS_BUSY.load(Ordering::Relaxed));
    assert_eq!((relocated, fragments(&target.file)), (LEN, 1));
    drop(relocation);
    drop((target, shared));
    scratch.remount().unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), before);
}

/// Another worker may be told of a failure in the place of this one, which only learns of it after its commit.
#[test]
fn loop_what_another_worker_was_told_of_is_taken_back_after_the_commit() {
    taken_back_after_the_commit(Shared::note_unwritten);
}

/// So may the settler, which waits for what others have moved of the file, through the same descriptor.
#[test]
fn loop_what_the_settler_was_told_of_is_taken_back_after_the_commit() {
    taken_back_after_the_commit(|shared, target| {
        // No file that could be written back; the first of them is waited for.
        let file = Arc::new(File::open("/dev/null").unwrap());
        for _ in 0..=64 {
            let record = CacheRecord::of(target, FileRange::new(0, page().get()));
            shared.settler.push(&file, target.path.clone(), record);
        }
    });
}

fn taken_back_after_the_commit(tell: impl Fn(&Shared, &Target)) {
    let Some(scratch) = require(ScratchFs::builder("ext4", Bytes::mib(64)).build()) else {
        return;
    };
    let (path, before) = in_pieces(&scratch);
    let all = fragments(&File::open(&path).unwrap());
    let fs = detect(File::open(&path).unwrap(), &path).unwrap();
    let shared = Shared::new(&fs, &EngineOptions::default());
    let target = Target::open(&path).unwrap();
    let ranges = count_ranges(&target, &[FileRange::new(0, LEN.get())]).unwrap();
    let mut relocation = Ext4Relocation::begin(&shared, &target, &ranges).unwrap();
    let hold = shared.holds.take(&target, NAPS);
    let mut moved = Moved::default();
    relocation.advance(LEN, &hold, &mut moved).unwrap();
    drop(hold);
    let piece = relocation.piece.as_mut().unwrap();
    piece.finish_writing(&mut moved, &|| true).unwrap();
    tell(&shared, &target);
    shared.commit(&target).unwrap();
    assert_eq!(fragments(&target.file), 1);
    let (error, lost) = failed(piece.conclude(&mut moved, &|| true));
    assert_eq!(
        (lost, moved.relocated),
        (Bytes::ZERO, Bytes::ZERO),
        "{error}"
    );
    assert_eq!(fragments(&target.file), all);
    assert_eq!(std::fs::read(&path).unwrap(), before);
}

/// Unwritten blocks only change places; what was written to them since the look at the file is data like any other.
#[test]
fn loop_what_was_unwritten_at_the_last_look_is_moved_as_data() {
    let Some(scratch) = require(ScratchFs::builder("ext4", Bytes::mib(64)).build()) else {
        return;
    };
    let path = scratch.path().join("file");
    let unwritten = Segment::Unwritten {
        len: LEN,
        piece: Bytes::kib(4),
    };
    Shape::new(1).with(unwritten).make(&path).unwrap();
    let other = open(&path);
    let (at, bytes) = (100 * PAGE, [1; 3 * PAGE as usize]);
    let write = |_: &mut Ext4Relocation<'_>| {
        other.write_all_at(&bytes, at).unwrap();
        other.sync_all().unwrap();
        drop_clean(&other, FileRange::new(0, LEN.get()));
    };
    let (moved, done) = move_with(&path, |_| (), write, |_, _| ());
    done.unwrap();
    assert!(moved.host_written >= Bytes(bytes.len() as u64), "{moved:?}");
    let mut now = [0; 5 * PAGE as usize];
    other.read_exact_at(&mut now, at - PAGE).unwrap();
    let page = PAGE as usize;
    assert_eq!(now[page..][..3 * page], bytes);
    assert!(
        now[..page]
            .iter()
            .chain(&now[4 * page..])
            .all(|byte| *byte == 0)
    );
}

/// What comes between that look and the call has no page that is pinned.
#[test]
fn loop_what_was_written_after_the_last_look_and_was_reclaimed_is_told_of() {
    let Some(full) = Full::new() else {
        return;
    };
    let file = open(&full.path);
    // The pool has these blocks.
    fallocate(&file, FallocateFlags::ZERO_RANGE, 0, LEN.get()).unwrap();
    file.sync_all().unwrap();
    drop(file);
    static WRITTEN: AtomicU64 = AtomicU64::new(0);
    let write = |relocation: &mut Ext4Relocation<'_>| {
        relocation.piece.as_mut().unwrap().call = |file, donor, at, place, blocks| {
            let len = blocks * PAGE;
            if WRITTEN.load(Ordering::Relaxed) == 0 {
                file.write_all_at(&vec![7; len as usize], at * PAGE)
                    .unwrap();
                file.sync_all().unwrap();
                WRITTEN.store(len, Ordering::Relaxed);
            }
            move_extents(file, donor, at, place, blocks)
        };
    };
    let short = |_: &Shared, target: &Target| full.reclaim(target);
    let (_, done) = move_with(&full.path, |_| (), write, short);
    assert_eq!(failed(done).1, Bytes(WRITTEN.load(Ordering::Relaxed)));
}

/// The kernel refuses a range behind the end as invalid, as it does a call that is wrong.
#[test]
fn loop_a_file_that_is_cut_and_grown_around_a_call_does_not_fail() {
    let Some(scratch) = require(ScratchFs::builder("ext4", Bytes::mib(64)).build()) else {
        return;
    };
    let (path, before) = in_pieces(&scratch);
    static CALLS: AtomicU64 = AtomicU64::new(0);
    let cut = |relocation: &mut Ext4Relocation<'_>| {
        relocation.piece.as_mut().unwrap().call =
            |file, donor, at, place, blocks| match CALLS.fetch_add(1, Ordering::Relaxed) {
                0 => fail_midway(Errno::BUSY, (file, donor), (at, place), blocks),
                1 => {
                    file.set_len(at * PAGE).unwrap();
                    let refused = move_extents(file, donor, at, place, blocks);
                    file.set_len(LEN.get()).unwrap();
                    let errno = refused.result.as_ref().map_err(Errno::from_io_error);
                    assert_eq!(errno, Err(Some(Errno::INVAL)));
                    refused
                }
                _ => move_extents(file, donor, at, place, blocks),
            };
    };
    let (moved, done) = move_with(&path, |_| (), cut, |_, _| ());
    done.unwrap();
    let now = std::fs::read(&path).unwrap();
    let kept = now.iter().rposition(|byte| *byte != 0).unwrap() + 1;
    assert!(moved.relocated < LEN && CALLS.load(Ordering::Relaxed) > 1);
    assert_eq!((now.len(), &now[..kept]), (before.len(), &before[..kept]));
}

/// However often.
#[test]
fn loop_a_file_that_is_cut_and_grown_around_each_call_has_changed() {
    let Some(scratch) = require(ScratchFs::builder("ext4", Bytes::mib(64)).build()) else {
        return;
    };
    let (path, _) = in_pieces(&scratch);
    let fs = detect(File::open(&path).unwrap(), &path).unwrap();
    let shared = Shared::new(&fs, &EngineOptions::default());
    let target = Target::open(&path).unwrap();
    let whole = FileRange::new(0, LEN.get());
    let ranges = count_ranges(&target, &[whole]).unwrap();
    let mut relocation = Ext4Relocation::begin(&shared, &target, &ranges).unwrap();
    relocation.piece.as_mut().unwrap().call = |file, donor, at, place, blocks| {
        file.set_len(0).unwrap();
        let refused = move_extents(file, donor, at, place, blocks);
        file.set_len(LEN.get()).unwrap();
        refused
    };
    let refused = relocation.step(StepLimit { bytes: LEN });
    let has_changed = matches!(refused, Err(Refusal::Skip(SkipReason::Changed)));
    assert!(has_changed, "{refused:?}");
}
