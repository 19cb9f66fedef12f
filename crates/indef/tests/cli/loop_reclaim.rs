//! Space that no file reaches: `scan` tells of it, `run --reclaim` gives it back, and what would not
//! come free is left alone. What is told is held against the free space of the file system.

use std::{
    collections::BTreeSet,
    fs::{self, File, OpenOptions},
    os::unix::fs::{FileExt, MetadataExt},
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use linux_abi::{
    btrfs::ExtentParts,
    handle::{self, FileHandle},
    mapping::SharedBytes,
};
use rustix::fs::{FallocateFlags, copy_file_range, fallocate};
use scratch_fs::{ScratchFs, content, most_left_by_btrfs, reflink, require};
use serde_json::Value;
use units::{Bytes, FileOffset};
use workloads::Numbers;

use crate::common::{
    self, ForAnybody, Ran, Run, btrfs_progs, fragments, hashes, indef, indef_with_state, is_root,
    spawn,
};

const BLOCK: u64 = 4096;
const MIB: u64 = 1 << 20;
/// Metadata, which comes and goes with a commit.
const SLACK: u64 = 2 * MIB;

fn command(arguments: &[&str], path: &Path) -> Ran {
    indef().args(arguments).arg(path).ran()
}

/// Limits by which a run is over before its work is.
const STOPS_SOON: [&str; 6] = ["--jobs", "1", "--rate", "8MiB", "--time-limit", "1s"];

/// A run that gives space back, stopped by them.
#[track_caller]
fn stopped(mut indef: Command, path: &Path) -> Ran {
    let run = ["run", "--reclaim", "--json"];
    let stopped = indef.args(run).args(STOPS_SOON).arg(path).ran();
    assert_eq!(stopped.status, 3, "{stopped:?}");
    stopped
}

fn btrfs(options: &str) -> Option<ScratchFs> {
    let builder = ScratchFs::builder("btrfs", Bytes::gib(1));
    require(builder.mount_options(options).build())
}

/// Used bytes of data as `btrfs filesystem usage` has them, and those of `df`, after a commit.
fn used(scratch: &ScratchFs) -> (u64, u64) {
    let root = scratch.path();
    for _ in 0..2 {
        btrfs_progs(&["filesystem", "sync"], &[root]);
    }
    let told = btrfs_progs(&["filesystem", "usage", "-b"], &[root]);
    let data = told.lines().find(|line| line.starts_with("Data,")).unwrap();
    let data = data
        .split("Used:")
        .nth(1)
        .unwrap()
        .split_whitespace()
        .next()
        .unwrap();
    (data.parse().unwrap(), scratch.used().unwrap().get())
}

/// The extents that a file has from `start` on, up to `end`: several may touch on the device.
fn extents(file: &File, start: u64, end: u64) -> usize {
    let FileHandle::Btrfs {
        inode, subvolume, ..
    } = handle::of(file).unwrap()
    else {
        panic!("it is no Btrfs");
    };
    let mut found = BTreeSet::new();
    let visited = ExtentParts::new().visit(file, (subvolume, inode), start, end, |part| {
        found.insert(part.extent);
        true
    });
    visited.unwrap();
    found.len()
}

/// Write until what is written has one extent. The kernel may write some of it back before the rest is there, and cuts it
/// then. `write` gets the number of the try.
#[track_caller]
fn until_whole(file: &File, (start, end): (u64, u64), write: impl Fn(u32)) {
    for turn in 0..20 {
        write(turn);
        file.sync_all().unwrap();
        if extents(file, start, end) == 1 {
            return;
        }
    }
    panic!("it lies in {} extents", extents(file, start, end));
}

/// A file that was written in one go, and is one extent.
#[track_caller]
fn write(path: &Path, size: u64) {
    let mut options = OpenOptions::new();
    let file = options
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
        .unwrap();
    until_whole(&file, (0, size), |turn| {
        if turn > 0 {
            file.set_len(0).unwrap();
        }
        for at in (0..size).step_by(MIB as usize) {
            let length = (size - at).min(MIB) as usize;
            let mut buffer = vec![0; length];
            content(&mut buffer, size, FileOffset(at));
            file.write_all_at(&buffer, at).unwrap();
        }
    });
}

fn truncate(path: &Path, size: u64) {
    let file = OpenOptions::new().write(true).open(path).unwrap();
    file.set_len(size).unwrap();
    file.sync_all().unwrap();
}

/// Overwrite a third of the blocks, in any order.
fn overwrite(path: &Path) {
    let file = OpenOptions::new().write(true).open(path).unwrap();
    let blocks = file.metadata().unwrap().len() / BLOCK;
    let mut numbers = Numbers::new(7);
    for _ in 0..blocks / 3 {
        let at = numbers.below(blocks) * BLOCK;
        file.write_all_at(&[at as u8; BLOCK as usize], at).unwrap();
    }
    file.sync_all().unwrap();
}

/// Punch `length` bytes of each `step`.
fn punch(path: &Path, step: u64, length: u64) {
    let file = OpenOptions::new().write(true).open(path).unwrap();
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    for at in (0..file.metadata().unwrap().len()).step_by(step as usize) {
        fallocate(&file, flags, at + step / 4, length).unwrap();
    }
    file.sync_all().unwrap();
}

/// Size, blocks and the three times.
fn metadata(path: &Path) -> impl PartialEq + std::fmt::Debug + use<> {
    let m = fs::metadata(path).unwrap();
    (m.size(), m.blocks(), common::times(&m))
}

fn scanned(path: &Path) -> Value {
    let ran = command(&["scan", "--json"], path);
    assert_eq!(ran.status, 0, "{ran:?}");
    ran.json()
}

#[track_caller]
fn number(document: &Value, name: &str) -> u64 {
    document[name]
        .as_u64()
        .unwrap_or_else(|| panic!("{name}: {document}"))
}

/// Give back what the one file at `path` holds; checks that nothing else changes, that as much comes
/// free as was told, and that there is nothing to do afterwards. Returns the document.
#[track_caller]
fn reclaimed(scratch: &mut ScratchFs, path: &Path, arguments: &[&str]) -> Value {
    let dir = path.parent().unwrap().to_owned();
    scratch.sync().unwrap();
    let contents = hashes(&dir);
    let before = metadata(path);
    let extents = fragments(path);
    let told = scanned(&dir);
    let free = number(&told, "unreachable_bytes");
    assert!(free > 0, "{told}");
    let (data, df) = used(scratch);

    let plan = command(
        &[&["plan", "--reclaim", "--json"], arguments].concat(),
        &dir,
    )
    .json();
    let cost = number(&plan["totals"], "cost_bytes");
    assert!(plan["reclaim_ratio"].is_f64(), "{plan}");
    let ran = command(&[&["run", "--reclaim", "--json"], arguments].concat(), &dir);
    assert_eq!((ran.status, ran.err.as_str()), (0, ""), "{ran:?}");
    let document = ran.json();
    let totals = &document["totals"];
    let predicted = number(totals, "bytes_reclaimed");
    assert_eq!(totals["files_moved"], 1, "{document}");
    assert!(number(totals, "bytes_host_written") <= cost, "{document}");
    assert_eq!(
        predicted as f64,
        plan["totals"]["gain"].as_f64().unwrap(),
        "{document}"
    );

    let (data_after, df_after) = used(scratch);
    let (freed, more) = (data - data_after, df.saturating_sub(df_after));
    let grown = totals["free_growth_bytes"].as_i64().unwrap();
    eprintln!(
        "{}: {cost} B to write, {predicted} B told, {freed} B of data and {more} B of df freed, \
         {grown} B measured, {extents} → {} extents",
        path.display(),
        fragments(path)
    );
    assert!(more.abs_diff(predicted) <= SLACK, "{more} and {predicted}");
    assert!(
        (grown - predicted as i64).unsigned_abs() <= SLACK,
        "{grown}, {predicted}"
    );
    assert_eq!(metadata(path), before);
    assert_eq!(
        number(&document["files"][0], "extents_after"),
        fragments(path)
    );
    // README, promise 3: the sync of another program can cut a part while it is written.
    assert!(fragments(path) <= 2 * extents, "{extents}: {document}");

    let left = number(&scanned(&dir), "unreachable_bytes");
    assert_eq!(left, free - predicted, "{document}");
    let again = command(&[&["run", "--reclaim", "--json"], arguments].concat(), &dir).json();
    assert_eq!(again["totals"]["bytes_relocated"], 0, "{again}");
    assert_eq!(again["totals"]["bytes_reclaimed"], 0, "{again}");

    scratch.fsck().unwrap();
    assert_eq!(hashes(&dir), contents);
    document
}

/// Nothing comes free, so nothing is written; `reason` says why.
#[track_caller]
fn left_alone(scratch: &mut ScratchFs, dir: &Path, reason: &str) {
    scratch.sync().unwrap();
    let contents = hashes(dir);
    let before = used(scratch);
    let ran = command(&["run", "--reclaim", "--json"], dir);
    assert_eq!(ran.status, 0, "{ran:?}");
    let document = ran.json();
    for name in ["bytes_relocated", "bytes_host_written", "bytes_reclaimed"] {
        assert_eq!(document["totals"][name], 0, "{document}");
    }
    let reasons: Vec<_> = document["files"]
        .as_array()
        .unwrap()
        .iter()
        .map(|file| &file["reason"])
        .collect();
    assert!(
        reasons.iter().any(|found| **found == reason),
        "{reason}: {document}"
    );
    assert_eq!(used(scratch).0, before.0);
    scratch.fsck().unwrap();
    assert_eq!(hashes(dir), contents);
}

fn data(scratch: &ScratchFs) -> (PathBuf, PathBuf) {
    let dir = scratch.path().join("data");
    fs::create_dir(&dir).unwrap();
    let path = dir.join("file");
    (dir, path)
}

#[test]
fn loop_a_truncated_file_gives_its_space_back() {
    // So large that one extent may have 128 MiB.
    let builder = ScratchFs::builder("btrfs", Bytes::gib(4)).mount_options("noatime");
    let Some(mut scratch) = require(builder.build()) else {
        return;
    };
    let (_, path) = data(&scratch);
    let file = File::create(&path).unwrap();
    fallocate(&file, FallocateFlags::empty(), 0, 128 * MIB).unwrap();
    write(&path, 128 * MIB);
    truncate(&path, BLOCK);
    drop(file);
    let document = reclaimed(&mut scratch, &path, &[]);
    let totals = &document["totals"];
    assert_eq!(totals["bytes_host_written"], BLOCK);
    assert_eq!(totals["bytes_reclaimed"], 128 * MIB - BLOCK, "{document}");
}

#[test]
fn loop_a_database_gives_back_what_it_overwrote() {
    let Some(mut scratch) = btrfs("noatime") else {
        return;
    };
    let (_, path) = data(&scratch);
    write(&path, 64 * MIB);
    overwrite(&path);
    let document = reclaimed(&mut scratch, &path, &[]);
    // 1 − e^(−1/3) of all blocks were overwritten at least once.
    let freed = number(&document["totals"], "bytes_reclaimed");
    assert!((16 * MIB..=20 * MIB).contains(&freed), "{document}");
}

#[test]
fn loop_a_punched_disk_image_gives_its_holes_back() {
    let Some(mut scratch) = btrfs("noatime") else {
        return;
    };
    let (_, path) = data(&scratch);
    write(&path, 64 * MIB);
    punch(&path, MIB, MIB / 2);
    let document = reclaimed(&mut scratch, &path, &[]);
    assert_eq!(document["totals"]["bytes_reclaimed"], 32 * MIB);
    assert_eq!(document["totals"]["bytes_host_written"], 32 * MIB);
}

#[test]
fn loop_compressed_data_stays_compressed_and_gives_its_share_back() {
    let Some(mut scratch) = btrfs("noatime,compress=zstd") else {
        return;
    };
    let (dir, path) = data(&scratch);
    // Half of each block can be compressed away.
    let mut bytes = vec![0; 32 << 20];
    for (n, block) in bytes.chunks_exact_mut(BLOCK as usize).enumerate() {
        content(&mut block[..2048], 3, FileOffset(n as u64 * BLOCK));
    }
    fs::write(&path, &bytes).unwrap();
    File::open(&path).unwrap().sync_all().unwrap();
    punch(&path, 128 << 10, 64 << 10);
    scratch.sync().unwrap();
    let contents = hashes(&dir);
    let free = number(&scanned(&dir), "unreachable_bytes");
    let (data, _) = used(&scratch);
    let document = command(&["run", "--reclaim", "--json"], &dir).json();
    let (data_after, _) = used(&scratch);
    let told = number(&document["totals"], "bytes_reclaimed");
    eprintln!(
        "{free} B unreachable, {told} B told, {} B freed",
        data - data_after
    );
    // The parts of 32 KiB before and behind each hole: two of them in 128 KiB.
    assert!(told > 6 * MIB && told <= free, "{document}");
    assert!(
        (data - data_after).abs_diff(told) <= told / 8,
        "{data} → {data_after}: {told}"
    );
    let (kept, _) = used(&scratch);
    assert!(kept < 11 * MIB, "compressed as before: {kept}");
    let flags = rustix::fs::ioctl_getflags(File::open(&path).unwrap()).unwrap();
    assert!(
        !flags.contains(rustix::fs::IFlags::from_bits_retain(0x400)),
        "{flags:?}: no 'm'"
    );
    let again = command(&["run", "--reclaim", "--json"], &dir).json();
    assert_eq!(again["totals"]["bytes_relocated"], 0, "{again}");
    scratch.fsck().unwrap();
    assert_eq!(hashes(&dir), contents);
}

/// Neighbours that are compressed in different ways each stay as they are, and give their space back.
#[test]
fn loop_neighbours_that_are_compressed_differently_give_their_share_back() {
    let Some(mut scratch) = btrfs("noatime") else {
        return;
    };
    let (dir, path) = data(&scratch);
    let half = |seed: u64, len: usize| {
        let mut bytes = vec![0; len];
        for (n, block) in bytes.chunks_exact_mut(BLOCK as usize).enumerate() {
            content(&mut block[..2048], seed, FileOffset(n as u64 * BLOCK));
        }
        bytes
    };
    let file = File::create(&path).unwrap();
    let algorithm = |name: &str| {
        let value = ["compression", name].map(Path::new);
        btrfs_progs(&["property", "set"], &[&[&*path], &value[..]].concat());
    };
    for n in 0..64_u64 {
        algorithm(["zstd", "lzo"][n as usize % 2]);
        file.write_all_at(&half(n, 128 << 10), n * (128 << 10))
            .unwrap();
        file.sync_all().unwrap();
    }
    // Of each, 64 and 32 KiB are left: the end of one is the neighbour of the next one's beginning.
    algorithm("none");
    for n in 0..64_u64 {
        let at = n * (128 << 10) + (64 << 10);
        let mut bytes = vec![0; 32 << 10];
        content(&mut bytes, n, FileOffset(at));
        file.write_all_at(&bytes, at).unwrap();
    }
    file.sync_all().unwrap();
    algorithm("");
    drop(file);
    scratch.sync().unwrap();
    let contents = hashes(&dir);
    let kinds = || {
        let file = File::open(&path).unwrap();
        let inode = file.metadata().unwrap().ino();
        let at = |at: u64| linux_abi::btrfs::compressions(&file, inode, at, at + 4096).unwrap();
        (0..64 * 4).map(|n| at(n * (32 << 10))).collect::<Vec<_>>()
    };
    let before = kinds();
    assert_ne!(before[0], before[4]);
    let free = number(&scanned(&dir), "unreachable_bytes");
    assert!(free > 0);
    let document = command(
        &["run", "--reclaim", "--reclaim-ratio", "0.1", "--json"],
        &dir,
    )
    .json();
    let told = number(&document["totals"], "bytes_reclaimed");
    scratch.sync().unwrap();
    assert_eq!(told, free, "{document}");
    assert_eq!(kinds(), before);
    scratch.fsck().unwrap();
    assert_eq!(hashes(&dir), contents);
}

#[test]
fn loop_a_file_that_is_written_in_place_stays_one() {
    let Some(mut scratch) = btrfs("noatime") else {
        return;
    };
    let (dir, path) = data(&scratch);
    let nocow = rustix::fs::IFlags::NOCOW;
    rustix::fs::ioctl_setflags(File::open(&dir).unwrap(), nocow).unwrap();
    write(&path, 32 * MIB);
    punch(&path, 4 * MIB, 3 * MIB);
    let document = reclaimed(&mut scratch, &path, &[]);
    assert_eq!(document["totals"]["bytes_reclaimed"], 24 * MIB);
    let flags = rustix::fs::ioctl_getflags(File::open(&path).unwrap()).unwrap();
    assert!(flags.contains(nocow), "{flags:?}");
}

#[test]
fn loop_what_snapshots_and_reflinks_hold_is_left_alone() {
    let Some(mut scratch) = btrfs("noatime") else {
        return;
    };
    let volume = scratch.path().join("volume");
    btrfs_progs(&["subvolume", "create"], &[&volume]);
    let path = volume.join("file");
    write(&path, 32 * MIB);
    let snapshot = scratch.path().join("snapshot");
    btrfs_progs(&["subvolume", "snapshot", "-r"], &[&volume, &snapshot]);
    truncate(&path, BLOCK);
    let told = scanned(&volume);
    assert_eq!(told["unreachable_bytes"], 0, "{told}");
    assert!(number(&told, "unreached_shared_bytes") > 0, "{told}");
    let text = command(&["scan"], &volume).out;
    assert!(text.contains("snapshots refer to"), "{text}");
    left_alone(&mut scratch, &volume, "held-by-others");
    // Once the snapshot is gone, it comes free.
    btrfs_progs(&["subvolume", "delete", "-c"], &[&snapshot]);
    btrfs_progs(&["subvolume", "sync"], &[scratch.path()]);
    reclaimed(&mut scratch, &path, &[]);

    let (dir, path) = data(&scratch);
    write(&path, 16 * MIB);
    reflink(&path, &scratch.path().join("clone")).unwrap();
    truncate(&path, BLOCK);
    left_alone(&mut scratch, &dir, "held-by-others");
    // A file that shares with itself.
    fs::remove_file(scratch.path().join("clone")).unwrap();
    write(&path, 16 * MIB);
    let file = File::options().read(true).write(true).open(&path).unwrap();
    // The kernel shares what it copies here.
    let (mut from, mut to) = (0, 64 * MIB);
    let copied = copy_file_range(&file, Some(&mut from), &file, Some(&mut to), MIB as usize);
    assert_eq!(copied.unwrap() as u64, MIB);
    file.sync_all().unwrap();
    drop(file);
    punch(&path, 16 * MIB, 8 * MIB);
    left_alone(&mut scratch, &dir, "held-by-others");
}

/// A snapshot holds what was allocated past the end of a file, which is not in the file's map.
#[test]
fn loop_what_snapshots_hold_past_the_end_is_not_for_nobody() {
    let Some(mut scratch) = btrfs("noatime") else {
        return;
    };
    let volume = scratch.path().join("volume");
    btrfs_progs(&["subvolume", "create"], &[&volume]);
    let path = volume.join("file");
    write(&path, BLOCK);
    let file = File::options().write(true).open(&path).unwrap();
    fallocate(&file, FallocateFlags::KEEP_SIZE, MIB, 16 * MIB).unwrap();
    file.sync_all().unwrap();
    let snapshot = scratch.path().join("snapshot");
    btrfs_progs(&["subvolume", "snapshot", "-r"], &[&volume, &snapshot]);
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    fallocate(&file, punch, 4 * MIB, 8 * MIB).unwrap();
    drop(file);
    scratch.sync().unwrap();
    let told = scanned(&volume);
    assert_eq!(told["unreachable_bytes"], 0, "{told}");
    assert_eq!(number(&told, "unreached_shared_bytes"), 8 * MIB, "{told}");
    left_alone(&mut scratch, &volume, "all-reached");
}

#[test]
fn loop_preallocated_space_is_reached() {
    let Some(mut scratch) = btrfs("noatime") else {
        return;
    };
    let (dir, path) = data(&scratch);
    let file = File::create(&path).unwrap();
    fallocate(&file, FallocateFlags::empty(), 0, 32 * MIB).unwrap();
    file.write_all_at(&[7; 8192], 16 * MIB).unwrap();
    file.sync_all().unwrap();
    drop(file);
    left_alone(&mut scratch, &dir, "all-reached");
    assert_eq!(scanned(&dir)["unreachable_bytes"], 0);
    truncate(&path, 24 * MIB);
    left_alone(&mut scratch, &dir, "unwritten");
}

#[test]
fn loop_little_is_left_unless_it_is_asked_for() {
    let Some(mut scratch) = btrfs("noatime") else {
        return;
    };
    let (dir, path) = data(&scratch);
    write(&path, 32 * MIB);
    punch(&path, 4 * MIB, MIB / 2);
    left_alone(&mut scratch, &dir, "frees-little");
    reclaimed(&mut scratch, &path, &["--reclaim-ratio", "0.1"]);
}

#[test]
fn loop_a_budget_takes_the_best_extents_and_plans_can_be_kept() {
    let Some(mut scratch) = btrfs("noatime") else {
        return;
    };
    let (dir, path) = data(&scratch);
    for (name, left) in [("most", BLOCK), ("more", 4 * MIB), ("some", 8 * MIB)] {
        write(&dir.join(name), 16 * MIB);
        punch(&dir.join(name), 64 * MIB, 1);
        let file = OpenOptions::new().write(true).open(dir.join(name)).unwrap();
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(&file, flags, left, 16 * MIB - left).unwrap();
        file.sync_all().unwrap();
    }
    let plan = path.with_extension("plan");
    let plan = plan.to_str().unwrap();
    let ran = command(&["plan", "--reclaim", "--budget", "5MiB", "-o", plan], &dir);
    assert_eq!(ran.status, 0, "{ran:?}");
    assert!(ran.out.contains("come free"), "{ran:?}");
    let text = fs::read_to_string(plan).unwrap();
    assert!(text.starts_with("{\"indef-plan\":3,"), "{text}");
    let contents = hashes(&dir);
    let dry = indef()
        .args(["run", "--dry-run", "--json", "--plan", plan])
        .ran()
        .json();
    assert_eq!(dry["totals"]["bytes_relocated"], 0, "{dry}");
    let ran = indef().args(["run", "--json", "--plan", plan]).ran();
    assert_eq!(ran.status, 0, "{ran:?}");
    let document = ran.json();
    assert_eq!(
        document["totals"]["bytes_relocated"],
        4 * MIB + BLOCK,
        "{document}"
    );
    assert_eq!(
        document["totals"]["bytes_reclaimed"],
        28 * MIB - BLOCK,
        "{document}"
    );
    // The plan is old now.
    let again = indef().args(["run", "--json", "--plan", plan]).ran().json();
    assert_eq!(again["totals"]["bytes_relocated"], 0, "{again}");
    scratch.fsck().unwrap();
    assert_eq!(hashes(&dir), contents);
}

#[test]
fn loop_a_killed_run_loses_nothing_and_another_one_finishes() {
    let Some(mut scratch) = btrfs("noatime") else {
        return;
    };
    let (dir, path) = data(&scratch);
    let mut interrupted = 0;
    for round in 0..4 {
        write(&path, 64 * MIB);
        overwrite(&path);
        scratch.sync().unwrap();
        let contents = hashes(&dir);
        let plan = command(&["plan", "--reclaim", "--json"], &dir).json();
        let cost = number(&plan["totals"], "cost_bytes");
        let mut child = spawn(
            indef()
                .args(["run", "--reclaim", "--rate", "12MiB"])
                .arg(&dir),
        );
        // In the midst, however fast the machine is.
        let written = || scratch.device_bytes().unwrap().written.get();
        let (before, some) = (written(), (4 + 5 * round) * MIB);
        while written() < before + some && child.try_wait().unwrap().is_none() {
            thread::sleep(Duration::from_millis(5));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        scratch.fsck().unwrap();
        assert_eq!(hashes(&dir), contents, "round {round}");
        let document = command(&["run", "--reclaim", "--json"], &dir).json();
        let rest = number(&document["totals"], "bytes_relocated");
        eprintln!("round {round}: {rest} B of {cost} were left to write");
        interrupted += u64::from(rest > 0 && rest < cost);
        assert_eq!(scanned(&dir)["unreachable_bytes"], 0, "round {round}");
        assert_eq!(hashes(&dir), contents, "round {round}");
        fs::remove_file(&path).unwrap();
    }
    assert!(interrupted > 0, "no kill came between");
}

#[test]
fn loop_a_stopped_run_is_resumed() {
    let Some(mut scratch) = btrfs("noatime") else {
        return;
    };
    let (dir, path) = data(&scratch);
    for n in 0..6 {
        let path = path.with_extension(n.to_string());
        write(&path, 16 * MIB);
        overwrite(&path);
    }
    scratch.sync().unwrap();
    let contents = hashes(&dir);
    let state = tempfile::tempdir().unwrap();
    let indef = || indef_with_state(state.path());
    let stopped = stopped(indef(), &dir);
    let first = number(&stopped.json()["totals"], "bytes_reclaimed");
    assert!(
        number(&scanned(&dir), "unreachable_bytes") > 0,
        "{stopped:?}"
    );
    let resumed = indef().args(["run", "--json", "--resume"]).ran();
    assert_eq!(resumed.status, 0, "{resumed:?}");
    let second = number(&resumed.json()["totals"], "bytes_reclaimed");
    assert!(second > 0, "{first} and {second}: {resumed:?}");
    assert_eq!(scanned(&dir)["unreachable_bytes"], 0);
    scratch.fsck().unwrap();
    assert_eq!(hashes(&dir), contents);
}

/// A file of 32 MiB that was written in layers: of 32 MiB, then of all but the first and the last MiB, and so on. Of
/// each of the extents it reaches a MiB on either side.
fn layered(path: &Path) {
    let file = File::create(path).unwrap();
    for layer in 0..16_u64 {
        let mut bytes = vec![0; ((32 - 2 * layer) * MIB) as usize];
        content(&mut bytes, layer, FileOffset(0));
        let (start, end) = (layer * MIB, (32 - layer) * MIB);
        until_whole(&file, (start, end), |_| {
            file.write_all_at(&bytes, start).unwrap();
        });
    }
}

/// Extents are written anew one after the other, not by turns: whenever a run is stopped, most of what was written has
/// given something back.
#[test]
fn loop_a_stop_costs_little() {
    let Some(mut scratch) = btrfs("noatime") else {
        return;
    };
    let (dir, path) = data(&scratch);
    layered(&path);
    scratch.sync().unwrap();
    let contents = hashes(&dir);
    let (mut written, mut freed, mut stops) = (0, 0, 0);
    while written < 12 * MIB {
        let stopped = stopped(indef(), &dir);
        let totals = &stopped.json()["totals"];
        written += number(totals, "bytes_host_written");
        freed += number(totals, "bytes_reclaimed");
        stops += 1;
        assert!(stops < 20, "{stopped:?}");
    }
    eprintln!("{written} B written, {freed} B free, {stops} stops");
    assert!(written < 30 * MIB);
    // The best layers: 30, 28, 26 and 24 MiB for two each. A stop leaves at most a group of 8 MiB unfinished, here the first
    // MiB of so many layers, and the next run begins with these.
    let (unfinished, layers) = (7, (written / MIB).saturating_sub(7) / 2);
    let least =
        (unfinished..unfinished + layers).map(|layer| 30_u64.saturating_sub(2 * layer) * MIB);
    let least: u64 = least.sum();
    assert!(freed >= least && least > 0, "{freed} of {least}");
    reclaimed(&mut scratch, &path, &[]);
    assert_eq!(hashes(&dir), contents);
}

/// The rest of a run that moves fragments is still to be done after one that gave space back.
#[test]
fn loop_a_stopped_run_of_another_kind_stays() {
    let Some(scratch) = btrfs("noatime") else {
        return;
    };
    let (dir, path) = data(&scratch);
    let files: Vec<_> = (0..6).map(|n| path.with_extension(n.to_string())).collect();
    for path in &files {
        common::make(path, Bytes::mib(8), Bytes::kib(8));
    }
    let left = || files.iter().map(|path| fragments(path)).sum::<u64>();
    let other = dir.join("cut off");
    write(&other, 8 * MIB);
    truncate(&other, BLOCK);
    scratch.sync().unwrap();
    let state = tempfile::tempdir().unwrap();
    let indef = || indef_with_state(state.path());
    let stopped = indef().arg("run").args(STOPS_SOON).arg(&dir).ran();
    assert_eq!(stopped.status, 3, "{stopped:?}");
    let before = left();
    let reclaimed = indef().args(["run", "--reclaim", "--json"]).arg(&dir).ran();
    assert_eq!(reclaimed.status, 0, "{reclaimed:?}");
    assert_eq!(
        reclaimed.json()["totals"]["files_moved"],
        1,
        "{reclaimed:?}"
    );
    let resumed = indef().args(["run", "--json", "--resume"]).ran();
    assert_eq!(resumed.status, 0, "{resumed:?}");
    let (after, most) = (left(), most_left_by_btrfs(Bytes::mib(6 * 8), 99));
    assert!(
        before > 1024 && after <= most,
        "{before}, {after}: {resumed:?}"
    );
}

#[test]
fn loop_a_long_rest_is_written_anew_in_one_piece() {
    let builder = ScratchFs::builder("btrfs", Bytes::gib(4)).mount_options("noatime");
    let Some(mut scratch) = require(builder.build()) else {
        return;
    };
    let (_, path) = data(&scratch);
    let file = File::create(&path).unwrap();
    fallocate(&file, FallocateFlags::empty(), 0, 128 * MIB).unwrap();
    drop(file);
    write(&path, 128 * MIB);
    truncate(&path, 100 * MIB);
    let document = reclaimed(&mut scratch, &path, &[]);
    assert_eq!(
        document["totals"]["bytes_reclaimed"],
        28 * MIB,
        "{document}"
    );
}

#[test]
fn loop_a_snapshot_since_the_plan_keeps_what_it_holds() {
    let Some(mut scratch) = btrfs("noatime") else {
        return;
    };
    let volume = scratch.path().join("volume");
    btrfs_progs(&["subvolume", "create"], &[&volume]);
    let path = volume.join("file");
    write(&path, 16 * MIB);
    truncate(&path, MIB);
    let plan = scratch.path().join("plan");
    let ran = indef()
        .args(["plan", "--reclaim", "-o"])
        .args([&plan, &volume])
        .ran();
    assert_eq!(ran.status, 0, "{ran:?}");
    let report = indef().arg("report").arg(&plan).ran();
    assert!(
        report.out.contains("15 MiB") && report.out.contains("come free"),
        "{report:?}"
    );
    let snapshot = scratch.path().join("snapshot");
    btrfs_progs(&["subvolume", "snapshot"], &[&volume, &snapshot]);
    let contents = hashes(scratch.path());
    let document = indef()
        .args(["run", "--json", "--plan"])
        .arg(&plan)
        .ran()
        .json();
    assert_eq!(
        document["files"][0]["reason"], "held-by-others",
        "{document}"
    );
    for name in ["bytes_relocated", "bytes_reclaimed"] {
        assert_eq!(document["totals"][name], 0, "{document}");
    }
    scratch.fsck().unwrap();
    assert_eq!(hashes(scratch.path()), contents);
}

/// A balance gives extents other addresses; what a plan says of the file stays true.
#[test]
fn loop_a_plan_outlives_a_balance() {
    let Some(mut scratch) = btrfs("noatime") else {
        return;
    };
    let (dir, path) = data(&scratch);
    write(&path, 32 * MIB);
    truncate(&path, 3 * MIB);
    let plan = scratch.path().join("plan");
    let ran = indef()
        .args(["plan", "--reclaim", "-o"])
        .args([&plan, &dir])
        .ran();
    assert_eq!(ran.status, 0, "{ran:?}");
    btrfs_progs(&["balance", "start", "-d"], &[scratch.path()]);
    let contents = hashes(scratch.path());
    let document = indef()
        .args(["run", "--json", "--plan"])
        .arg(&plan)
        .ran()
        .json();
    assert_eq!(
        document["totals"]["bytes_reclaimed"],
        29 * MIB,
        "{document}"
    );
    assert_eq!(scanned(&dir)["unreachable_bytes"], 0);
    scratch.fsck().unwrap();
    assert_eq!(hashes(scratch.path()), contents);
}

/// A balance has the kernel forget where the file's end lies, and pages that somebody has mapped stay cached. Behind
/// the file's items lie those of other files.
#[test]
fn loop_a_mapped_file_gives_its_space_back_after_a_balance() {
    let Some(mut scratch) = btrfs("noatime") else {
        return;
    };
    let (dir, path) = data(&scratch);
    write(&path, 32 * MIB);
    truncate(&path, 3 * MIB);
    for n in 0..4 {
        write(&scratch.path().join(format!("behind{n}")), 16 * BLOCK);
    }
    scratch.sync().unwrap();
    let contents = hashes(scratch.path());
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(&path)
        .unwrap();
    let mapped = SharedBytes::map(&file, 3 * MIB as usize).unwrap();
    for at in (0..3 * MIB).step_by(BLOCK as usize) {
        std::hint::black_box(mapped.load(at as usize));
    }
    btrfs_progs(&["balance", "start", "-d"], &[scratch.path()]);
    let document = command(&["run", "--reclaim", "--json"], &dir).json();
    let totals = &document["totals"];
    assert_eq!(totals["bytes_reclaimed"], 29 * MIB, "{document}");
    assert_eq!(totals["bytes_host_written"], 3 * MIB, "{document}");
    assert_eq!(fragments(&path), 1, "{document}");
    assert_eq!(scanned(&dir)["unreachable_bytes"], 0);
    drop((mapped, file));
    scratch.fsck().unwrap();
    assert_eq!(hashes(scratch.path()), contents);
}

#[test]
fn loop_writers_go_on() {
    let Some(mut scratch) = btrfs("noatime") else {
        return;
    };
    let (dir, path) = data(&scratch);
    write(&path, 32 * MIB);
    overwrite(&path);
    let mut wanted = fs::read(&path).unwrap();
    let stop = AtomicBool::new(false);
    let moved = thread::scope(|scope| {
        let (stop, wanted, path) = (&stop, &mut wanted, &path);
        scope.spawn(move || {
            let file = OpenOptions::new().write(true).open(path).unwrap();
            let mut numbers = Numbers::new(11);
            while !stop.load(Ordering::Relaxed) {
                let at = (numbers.below(32 * MIB / BLOCK) * BLOCK) as usize;
                let mut block = [0; BLOCK as usize];
                numbers.fill(&mut block);
                file.write_all_at(&block, at as u64).unwrap();
                wanted[at..at + BLOCK as usize].copy_from_slice(&block);
                if numbers.percent(2) {
                    file.sync_data().unwrap();
                }
            }
        });
        let mut moved = 0;
        for _ in 0..6 {
            let ran = command(&["run", "--reclaim", "--json"], &dir);
            assert_eq!(ran.status, 0, "{ran:?}");
            moved += number(&ran.json()["totals"], "bytes_relocated");
        }
        stop.store(true, Ordering::Relaxed);
        moved
    });
    assert!(moved > 8 * MIB, "{moved}");
    assert!(fs::read(&path).unwrap() == wanted);
    scratch.remount().unwrap();
    assert!(fs::read(&path).unwrap() == wanted);
    scratch.fsck().unwrap();
}

#[test]
fn loop_a_full_file_system_gets_space() {
    let Some(mut scratch) = btrfs("noatime") else {
        return;
    };
    let (dir, path) = data(&scratch);
    write(&path, 64 * MIB);
    let fill = File::create(scratch.path().join("fill")).unwrap();
    let mut at = 0;
    while fill
        .write_all_at(&[3; MIB as usize], at)
        .and_then(|()| fill.sync_all())
        .is_ok()
    {
        at += MIB;
    }
    drop(fill);
    assert!(at > 256 * MIB, "{at}");
    truncate(&path, 64 << 10);
    // A few MiB, without which no tree can change.
    truncate(&scratch.path().join("fill"), at - 8 * MIB);
    scratch.sync().unwrap();
    let contents = hashes(&dir);
    let kept = command(&["run", "--reclaim", "--json"], &dir).json();
    assert_eq!(
        kept["files"][0]["reason"], "no-space",
        "5 % stay free: {kept}"
    );
    let document = command(&["run", "--reclaim", "--min-free", "0", "--json"], &dir).json();
    assert!(
        number(&document["totals"], "bytes_reclaimed") > MIB / 2,
        "{document}"
    );
    assert_eq!(scanned(&dir)["unreachable_bytes"], 0);
    scratch.fsck().unwrap();
    assert_eq!(hashes(&dir), contents);
}

/// Room for some of the extents is enough, as each gives more back than it took.
#[test]
fn loop_little_room_is_enough_for_many_extents() {
    let Some(mut scratch) = btrfs("noatime") else {
        return;
    };
    let (dir, path) = data(&scratch);
    layered(&path);
    let fill = File::create(scratch.path().join("fill")).unwrap();
    scratch.sync().unwrap();
    let free = scratch.free().unwrap().get();
    // Less than the 30 MiB that are reached, and the trees want some.
    fallocate(&fill, FallocateFlags::empty(), 0, free - 14 * MIB).unwrap();
    drop(fill);
    scratch.sync().unwrap();
    let contents = hashes(&dir);
    let free = scratch.free().unwrap();
    let ran = command(&["run", "--reclaim", "--min-free", "0", "--json"], &dir);
    assert_eq!(ran.status, 0, "{ran:?}");
    let document = ran.json();
    eprintln!(
        "{free} free, {} B given back",
        document["totals"]["bytes_reclaimed"]
    );
    assert_eq!(
        document["totals"]["bytes_reclaimed"],
        240 * MIB,
        "{document}"
    );
    scratch.fsck().unwrap();
    assert_eq!(hashes(&dir), contents);
}

#[test]
fn loop_where_it_cannot_be_told_that_is_said() {
    if !is_root() {
        return;
    }
    let Some(scratch) = btrfs("noatime") else {
        return;
    };
    let anybody = ForAnybody::new();
    let (dir, path) = data(&scratch);
    write(&path, 4 * MIB);
    truncate(&path, 2 * MIB);
    let ran = anybody.indef().args(["scan", "--json"]).arg(&dir).ran();
    let document = ran.json();
    assert!(document["unreachable_bytes"].is_null(), "{document}");
    assert!(
        document["files"][0]["unreachable_bytes"].is_null(),
        "{document}"
    );
    let untold = document["unreachable_untold"].as_str().unwrap();
    assert!(untold.contains("root"), "{document}");
    let text = anybody.indef().arg("scan").arg(&dir).ran().out;
    assert!(text.contains("root"), "{text}");
    for verb in ["plan", "run"] {
        let ran = anybody.indef().args([verb, "--reclaim"]).arg(&dir).ran();
        assert_eq!(ran.status, 1, "{ran:?}");
        ran.error_line("only root");
    }
    for kind in ["ext4", "xfs"] {
        let Some(scratch) = common::scratch(kind) else {
            continue;
        };
        fs::write(scratch.path().join("file"), vec![1; MIB as usize]).unwrap();
        scratch.sync().unwrap();
        let ran = command(&["run", "--reclaim", "--json"], scratch.path());
        assert_eq!(ran.status, 0, "{ran:?}");
        assert!(ran.err.contains("--reclaim is for Btrfs"), "{ran:?}");
        let document = ran.json();
        assert_eq!(document["totals"]["files_moved"], 0, "{document}");
        assert_eq!(document["files"][0]["reason"], "all-reached", "{document}");
        assert_eq!(scanned(scratch.path())["unreachable_bytes"], 0);
    }
}
