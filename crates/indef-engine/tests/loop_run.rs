//! Collect, plan and run on real file systems on loop devices, while others use the files.

use std::{
    fs::{File, OpenOptions},
    os::unix::fs::FileExt,
    path::Path,
    process::Command,
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use indef_core::{
    SkipReason,
    layout::{ExtentFlags, Layout},
    plan::{FileFacts, FilePlan, PlanOptions, Policy, plan_file},
};
use indef_engine::{
    Cancel, Copier,
    collect::{CollectOptions, FoundFile, Seen, collect},
    run::{FileResult, Reason, RunEvent, RunOptions, RunResult, Status, run},
};
use indef_fs::{
    EngineKind, EngineOptions, Mapper, Moved, Refusal, Relocation, Step, StepLimit, Target,
    count_ranges, detect, map, relocator,
};
use rustix::fs::{IFlags, ioctl_setflags};
use scratch_fs::{FragmentOptions, ScratchFs, Shape, fragment, verify};
use units::{Bytes, FileOffset, FileRange};

const MIB: u64 = 1 << 20;

fn scratch(kind: &str, size: Bytes) -> Option<ScratchFs> {
    scratch_fs::require(ScratchFs::builder(kind, size).build())
}

/// Plan as `indef run` does before it runs.
fn plans(directory: &Path, policy: Policy) -> Vec<FilePlan> {
    let options = PlanOptions {
        policy,
        // Root's engines do.
        keeps_sharing: true,
        ..PlanOptions::default()
    };
    let plans = Mutex::new(Vec::new());
    let collect_options = CollectOptions {
        sync: true,
        ..CollectOptions::default()
    };
    collect(
        &[directory.to_owned()],
        &collect_options,
        &Cancel::new(),
        &|seen| match seen {
            Seen::File(found) => plans.lock().unwrap().extend(plan(&options, found)),
            Seen::Problem(problem) => panic!("{}: {}", problem.path.display(), problem.refusal),
        },
    );
    plans.into_inner().unwrap()
}

fn plan(options: &PlanOptions, found: FoundFile) -> Option<FilePlan> {
    let layout = found.result.unwrap();
    let facts = FileFacts {
        size: found.size,
        block_size: found.block_size,
        layout: &layout,
        accesses: None,
    };
    let plan = FilePlan {
        path: found.path,
        root_len: Some(found.root_len),
        dev: found.id.dev,
        inode: found.id.inode,
        born: found.born,
        size: found.size,
        block_size: found.block_size,
        fs: found.fs.kind.to_string().into(),
        engine: None,
        extents_before: layout.fragments(),
        named: None,
        skip: None,
        chunks: plan_file(options, &facts),
    };
    (!plan.runs().is_empty()).then_some(plan)
}

fn execute(plans: Vec<FilePlan>) -> RunResult {
    let options = RunOptions {
        jobs: 4,
        ..RunOptions::default()
    };
    run(plans, &options, &Cancel::new(), &())
}

fn pieces(path: &Path, size: u64, seed: u64) {
    let options = FragmentOptions {
        size: Bytes(size),
        piece: Bytes::kib(4),
        seed,
    };
    fragment(path, options).unwrap();
}

fn has_content(path: &Path, seed: u64, size: u64) {
    let file = File::open(path).unwrap();
    verify(&file, seed, FileRange::new(0, size)).unwrap();
}

/// Writes the existing content again and again, buffered, and lets the file grow and shrink.
fn write_on(path: &Path, seed: u64, size: u64, stop: &AtomicBool) {
    let file = OpenOptions::new().write(true).open(path).unwrap();
    let mut buffer = vec![0; 12_000];
    let mut at = seed * 77_777;
    while !stop.load(Ordering::Relaxed) {
        at = (at + 48_611) % (size - buffer.len() as u64);
        scratch_fs::content(&mut buffer, seed, FileOffset(at));
        file.write_all_at(&buffer, at).unwrap();
        if at.is_multiple_of(7) {
            scratch_fs::content(&mut buffer, seed, FileOffset(size));
            file.write_all_at(&buffer, size).unwrap();
            file.set_len(size).unwrap();
        }
        if at.is_multiple_of(13) {
            file.sync_data().unwrap();
        }
    }
}

fn many_files_while_others_write(kind: &str) {
    let Some(mut scratch) = scratch(kind, Bytes::gib(1)) else {
        return;
    };
    let folder = scratch.path().join("files");
    std::fs::create_dir(&folder).unwrap();
    let live = 4;
    let files = 80;
    for seed in 0..files {
        pieces(&folder.join(format!("{seed}")), MIB, seed);
    }
    let planned = plans(&folder, Policy::Whole);
    assert_eq!(planned.len(), files as usize);
    let cost: Bytes = planned.iter().map(FilePlan::cost).sum();
    let stop = AtomicBool::new(false);
    let result = std::thread::scope(|scope| {
        for seed in 0..live {
            let (path, stop) = (folder.join(format!("{seed}")), &stop);
            scope.spawn(move || write_on(&path, seed, MIB, stop));
        }
        let result = execute(planned);
        stop.store(true, Ordering::Relaxed);
        result
    });
    assert_eq!(result.totals.files_failed, 0, "{result:#?}");
    assert!(result.totals.bytes_relocated <= cost);
    assert!(result.totals.files_moved >= files - live, "{result:#?}");
    for file in &result.files {
        let name = file.path.file_name().unwrap().to_str().unwrap();
        if name.parse::<u64>().unwrap() >= live {
            assert_eq!(file.status, Status::Moved, "{file:?}");
            // Free space is in pieces of 1 MiB and the space that was between them.
            assert!(file.extents_after <= 4, "{file:?}");
        }
    }
    scratch.remount().unwrap();
    for seed in 0..files {
        has_content(&folder.join(format!("{seed}")), seed, MIB);
    }
    let several = result.files.iter().filter(|f| f.extents_after > 1).count() as u64;
    let again = execute(plans(&folder, Policy::Whole));
    assert_eq!(again.totals.files_failed, 0, "{again:#?}");
    // A file in one piece is not touched again.
    eprintln!(
        "{kind}: {several} files in several pieces, {} again",
        again.totals.bytes_relocated
    );
    assert!(
        again.totals.bytes_relocated <= Bytes::mib(live + several),
        "{several} files in several pieces, {again:#?}"
    );
    scratch.fsck().unwrap();
}

#[test]
fn loop_ext4_many_files_while_others_write() {
    many_files_while_others_write("ext4");
}

#[test]
fn loop_xfs_many_files_while_others_write() {
    many_files_while_others_write("xfs");
}

#[test]
fn loop_btrfs_many_files_while_others_write() {
    many_files_while_others_write("btrfs");
}

/// Many separate ranges of one file, shared out among workers where the engine allows it.
fn ranges_of_one_file(kind: &str) {
    if let Some(scratch) = scratch(kind, Bytes::gib(2)) {
        ranges_of_one_file_on(scratch, Bytes::mib(4));
    }
}

/// A second run may still move up to `rest` bytes.
fn ranges_of_one_file_on(mut scratch: ScratchFs, rest: Bytes) {
    let path = scratch.path().join("half");
    let shape = Shape::half_contiguous(9, Bytes::mib(192));
    shape.make(&path).unwrap();
    let size = std::fs::metadata(&path).unwrap().len();
    let planned = plans(scratch.path(), Policy::Sequential);
    assert_eq!(planned.len(), 1);
    let cost = planned[0].cost();
    assert!(cost.get() < size * 55 / 100);
    let result = execute(planned);
    let file = &result.files[0];
    assert_eq!(file.status, Status::Moved, "{file:?}");
    assert!(file.bytes_relocated <= cost);
    assert!(file.extents_after * 4 < file.extents_before, "{file:?}");
    scratch.remount().unwrap();
    has_content(&path, 9, size);
    let again = execute(plans(scratch.path(), Policy::Sequential));
    assert!(again.totals.bytes_relocated <= rest, "{again:#?}");
    scratch.fsck().unwrap();
}

#[test]
fn loop_ext4_ranges_of_one_file() {
    ranges_of_one_file("ext4");
}

#[test]
fn loop_xfs_ranges_of_one_file() {
    ranges_of_one_file("xfs");
}

#[test]
fn loop_btrfs_ranges_of_one_file() {
    // Where a place is found depends on the rest of the free space: of a batch that got several, a
    // second run makes one.
    if let Some(scratch) = scratch("btrfs", Bytes::gib(8)) {
        ranges_of_one_file_on(scratch, Bytes::mib(20));
    }
}

/// `COMMIT_RANGE` refuses when the file has changed: workers on the same file must not count as
/// others who change it.
#[test]
fn loop_xfs_exchange_ranges_of_one_file() {
    let Some(tools) = scratch_fs::require_xfsprogs() else {
        return;
    };
    let made = ScratchFs::builder("xfs", Bytes::gib(3))
        .mkfs_args(["-i", "exchange=1"])
        .tools(&tools)
        .build();
    if let Some(scratch) = scratch_fs::require(made) {
        ranges_of_one_file_on(scratch, Bytes::mib(4));
    }
}

fn layout(path: &Path) -> Layout {
    let whole = FileRange::new(0, u64::MAX);
    let file = File::open(path).unwrap();
    map(&file, path, whole, true, &mut Mapper::default()).unwrap()
}

/// Bytes that have another place than before.
fn moved(before: &Layout, now: &Layout) -> u64 {
    let mut bytes = 0;
    for old in before.extents() {
        for new in now.clipped(old.range()) {
            let stays = old.phys + (new.file - old.file) == new.phys;
            bytes += if stays { 0 } else { new.len.get() };
        }
    }
    bytes
}

/// What is under way when a run is stopped is seen through, and told.
#[test]
fn loop_btrfs_tells_all_that_moved_before_a_stop() {
    let Some(mut scratch) = scratch("btrfs", Bytes::gib(2)) else {
        return;
    };
    let path = scratch.path().join("file");
    let size = 64 * MIB;
    pieces(&path, size, 5);
    scratch.sync().unwrap();
    let planned = plans(scratch.path(), Policy::Whole);
    let before = layout(&path);
    let cancel = Cancel::new();
    // A batch is told of when the next one is on its way.
    let observer = |event: RunEvent<'_>| {
        if let RunEvent::Progress { .. } = event {
            cancel.cancel();
        }
    };
    let result = run(planned, &RunOptions::default(), &cancel, &observer);
    let file = &result.files[0];
    assert_eq!(file.reason, Some(Reason::Skip(SkipReason::Stopped)));
    let moved = moved(&before, &layout(&path));
    assert!((20 * MIB..size).contains(&moved), "{moved}, {file:?}");
    assert_eq!(file.bytes_relocated, Bytes(moved), "{file:?}");
    assert_eq!(file.bytes_host_written, Bytes(moved), "{file:?}");
    has_content(&path, 5, size);
    scratch.fsck().unwrap();
}

const LIMIT: StepLimit = StepLimit {
    bytes: Bytes::mib(1),
};

/// Begin to move all of a file of Btrfs.
fn with_relocation(path: &Path, steps: impl FnOnce(&mut dyn Relocation)) {
    let target = Target::open(path).unwrap();
    let fs = detect(&target.file, path).unwrap();
    let kind = EngineKind::BtrfsDefragRange;
    let engine = relocator(kind, &fs, &EngineOptions::default()).unwrap();
    let whole = [FileRange::new(0, target.size.get())];
    let counted = count_ranges(&target, &whole).unwrap();
    let copier = Copier::new(8);
    steps(&mut *engine.begin(&target, &counted, &copier).unwrap());
}

/// The same in the midst of a batch, of which there is no event.
#[test]
fn loop_btrfs_tells_what_moved_of_a_batch_that_is_not_finished() {
    let Some(mut scratch) = scratch("btrfs", Bytes::gib(2)) else {
        return;
    };
    let path = scratch.path().join("file");
    let size = 40 * MIB;
    pieces(&path, size, 6);
    scratch.sync().unwrap();
    let before = layout(&path);
    let mut told = Moved::default();
    with_relocation(&path, |relocation| {
        // A step moves 2 MiB, and a batch has 16.
        for _ in 0..11 {
            let Step::Working(done) = relocation.step(LIMIT).unwrap() else {
                panic!("there is more");
            };
            told += done;
        }
        told += relocation.end().unwrap();
    });
    let moved = Bytes(moved(&before, &layout(&path)));
    assert!(moved > Bytes::mib(16) && moved < Bytes::mib(32), "{moved}");
    assert_eq!((told.relocated, told.host_written), (moved, moved));
    has_content(&path, 6, size);
    scratch.fsck().unwrap();
}

/// Where something ends a move in the midst, that is told, though some has moved.
#[test]
fn loop_btrfs_tells_why_a_move_ended_before_its_end() {
    let Some(mut scratch) = scratch("btrfs", Bytes::gib(2)) else {
        return;
    };
    let path = scratch.path().join("file");
    let size = 40 * MIB;
    pieces(&path, size, 7);
    scratch.sync().unwrap();
    let snapshot = scratch.path().join("snapshot");
    let (mut told, mut end) = (Moved::default(), Ok(Step::Done(Moved::default())));
    with_relocation(&path, |relocation| {
        for steps in 1.. {
            match relocation.step(LIMIT) {
                Ok(Step::Working(done)) => told += done,
                other => {
                    end = other;
                    break;
                }
            }
            if steps == 11 {
                btrfs(
                    &["subvolume", "snapshot", "-r"],
                    &[scratch.path(), &snapshot],
                );
                // Then it is looked at again.
                std::thread::sleep(Duration::from_millis(600));
            }
        }
    });
    let shared = matches!(end, Err(Refusal::Skip(SkipReason::Shared)));
    assert!(shared, "{end:?}, {told:?}");
    assert!(!told.relocated.is_zero());
    has_content(&path, 7, size);
    scratch.fsck().unwrap();
}

/// Only the last owner of an extent would write it in place. If it became that by a move, a power cut before the commit would
/// give what it has written to the file that moved.
#[test]
fn loop_btrfs_a_clone_of_a_file_that_is_written_in_place_keeps_sharing() {
    let Some(mut scratch) = scratch("btrfs", Bytes::gib(1)) else {
        return;
    };
    let folder = scratch.path().join("in place");
    std::fs::create_dir(&folder).unwrap();
    ioctl_setflags(File::open(&folder).unwrap(), IFlags::NOCOW).unwrap();
    let (path, clone) = (folder.join("file"), folder.join("clone"));
    let size = 16 * MIB;
    pieces(&path, size, 8);
    scratch.sync().unwrap();
    with_relocation(&path, |relocation| {
        let mut steps = 0;
        while let Ok(Step::Working(_)) = relocation.step(LIMIT) {
            steps += 1;
            if steps == 2 {
                scratch_fs::reflink(&path, &clone).unwrap();
            }
        }
    });
    let layout = layout(&clone);
    let shared = { layout.extents().iter() }
        .filter(|extent| extent.flags.contains(ExtentFlags::SHARED))
        .map(|extent| extent.len)
        .sum::<Bytes>();
    assert_eq!(shared, Bytes(size));
    has_content(&path, 8, size);
    scratch.fsck().unwrap();
}

fn btrfs(arguments: &[&str], paths: &[&Path]) {
    let done = Command::new("btrfs").args(arguments).args(paths).output();
    let done = done.unwrap();
    assert!(done.status.success(), "{done:?}");
}

#[track_caller]
fn of_one(result: &RunResult) -> &FileResult {
    assert_eq!(result.files.len(), 1, "{result:?}");
    &result.files[0]
}

/// A deleted snapshot has its blocks until the kernel comes to it, and not before nobody has a file of it open. Nothing is
/// copied for nothing until then, also if there is another snapshot that would follow.
#[test]
fn loop_btrfs_what_a_deleted_snapshot_has_is_not_copied_in_vain() {
    let Some(mut scratch) = scratch("btrfs", Bytes::gib(1)) else {
        return;
    };
    let root = scratch.path();
    let [sub, deleted, kept] = ["sub", "deleted", "kept"].map(|name| root.join(name));
    btrfs(&["subvolume", "create"], &[&sub]);
    pieces(&sub.join("file"), 4 * MIB, 3);
    scratch.sync().unwrap();
    for snapshot in [&deleted, &kept] {
        btrfs(&["subvolume", "snapshot", "-r"], &[&sub, snapshot]);
    }
    let open = File::open(deleted.join("file")).unwrap();
    btrfs(&["subvolume", "delete", "-c"], &[&deleted]);
    let result = execute(plans(&sub, Policy::Whole));
    let file = of_one(&result);
    let reason = Some(Reason::Skip(SkipReason::HoldersUnreachable));
    assert_eq!((file.status, &file.reason), (Status::Skipped, &reason));
    assert_eq!(file.bytes_host_written, Bytes::ZERO, "{file:?}");
    drop(open);
    has_content(&kept.join("file"), 3, 4 * MIB);
    scratch.fsck().unwrap();
}

/// The copy of a shared file is made beside it.
#[test]
fn loop_btrfs_a_directory_that_may_not_be_changed_is_no_failure() {
    let Some(scratch) = scratch("btrfs", Bytes::gib(1)) else {
        return;
    };
    let folder = scratch.path().join("folder");
    std::fs::create_dir(&folder).unwrap();
    pieces(&folder.join("file"), MIB, 3);
    scratch_fs::reflink(&folder.join("file"), &scratch.path().join("clone")).unwrap();
    scratch.sync().unwrap();
    let directory = File::open(&folder).unwrap();
    ioctl_setflags(&directory, IFlags::IMMUTABLE).unwrap();
    let result = execute(plans(&folder, Policy::Whole));
    ioctl_setflags(&directory, IFlags::empty()).unwrap();
    let file = of_one(&result);
    let reason = Some(Reason::Skip(SkipReason::NotPermitted));
    assert_eq!((file.status, &file.reason), (Status::Skipped, &reason));
    assert_eq!(execute(plans(&folder, Policy::Whole)).totals.files_moved, 1);
}
