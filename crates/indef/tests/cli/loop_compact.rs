//! Free space that is made whole: `indef compact` on file systems that were filled with small files, of which every
//! other one was removed.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::ErrorKind,
    os::unix::fs::{FileExt, MetadataExt},
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

use rustix::{
    fs::{FallocateFlags, fallocate},
    io::Errno,
    process::{Pid, Signal, kill_process},
};
use scratch_fs::{ScratchFs, ScratchFsBuilder, require, require_program, require_xfsprogs};
use serde_json::Value;
use units::Bytes;

use crate::common::{
    ForAnybody, Ran, Run, ended, fragments, indef, indef_with_state, is_root, make, signal, spawn,
    times,
};

const KIB: u64 = 1 << 10;
pub(crate) const MIB: u64 = 1 << 20;
const DIRECTORIES: usize = 4;
/// The size of a file, and of a hole.
const SIZE: u64 = 16 * KIB;
pub(crate) const VOLUME: Bytes = Bytes::mib(400);

/// The document without its files, and the messages.
fn rest_of(ran: &Ran) -> String {
    let mut document = ran.json();
    document["files"].take();
    format!("{document} {}", ran.err)
}

#[track_caller]
pub(crate) fn number(document: &Value, name: &str) -> u64 {
    document[name]
        .as_u64()
        .unwrap_or_else(|| panic!("{name}: {document}"))
}

pub(crate) fn builder(kind: &str) -> ScratchFsBuilder {
    let builder = ScratchFs::builder(kind, VOLUME);
    match kind {
        "ext4" => builder.mkfs_args(["-N", "40000", "-m", "0"]),
        // The blocks of that tree lie amid the data; see `loop_metadata_is_gone_around`.
        _ => builder.mkfs_args(["-m", "rmapbt=0"]),
    }
}

/// Bytes that tell a file, and each of its blocks, from all others.
fn fill(bytes: &mut [u8], seed: u64) {
    bytes.fill(seed as u8);
    for (number, block) in bytes.chunks_mut(4096).enumerate() {
        block[..8].copy_from_slice(&(seed << 8 | number as u64).to_le_bytes());
    }
}

fn place(scratch: &ScratchFs, index: usize) -> PathBuf {
    let directory = format!("d{}", index % DIRECTORIES);
    scratch.path().join(directory).join(index.to_string())
}

/// Fill the file system with small files, and remove every other one of each directory. All inodes come first, so
/// that they lie together. Returns the files that are left.
fn age(scratch: &ScratchFs) -> Vec<PathBuf> {
    for directory in 0..DIRECTORIES {
        fs::create_dir(scratch.path().join(format!("d{directory}"))).unwrap();
    }
    let most = (VOLUME.get() / SIZE) as usize;
    let paths: Vec<_> = (0..most).map(|index| place(scratch, index)).collect();
    for path in &paths {
        File::create(path).unwrap();
    }
    scratch.sync().unwrap();
    let mut bytes = vec![0; SIZE as usize];
    let mut full = most;
    for (index, path) in paths.iter().enumerate() {
        fill(&mut bytes, index as u64);
        let file = File::options().write(true).open(path).unwrap();
        let write = || file.write_all_at(&bytes, 0);
        // What was written but has no blocks yet counts as more than it will take.
        let written = write().or_else(|_| scratch.sync().and_then(|()| write()));
        if let Err(error) = written {
            assert_eq!(error.kind(), ErrorKind::StorageFull, "{error}");
            full = index;
            break;
        }
    }
    scratch.sync().unwrap();
    // Less would be another state: one long free run, which then belongs to somebody.
    let filled = full as u64 * SIZE;
    assert!(filled > VOLUME.get() * 2 / 3, "full after {filled} bytes");
    let mut left = Vec::new();
    for (index, path) in paths.into_iter().enumerate() {
        // XFS allocates for each directory in a group of its own, ext4 for all of them in a row.
        let turn = match scratch.kind() {
            "xfs" => index / DIRECTORIES,
            _ => index,
        };
        if index >= full || turn.is_multiple_of(2) {
            fs::remove_file(path).unwrap();
        } else {
            left.push(path);
        }
    }
    settle(scratch);
    // The long runs that are left, at the end and where inodes were, belong to somebody.
    for hog in 0..64 {
        let largest = number(&free_space(scratch), "largest_bytes");
        if largest <= 2 * SIZE {
            break;
        }
        let file = File::create(scratch.path().join(format!("hog{hog}"))).unwrap();
        scanning_all(scratch, || {
            fallocate(&file, FallocateFlags::empty(), 0, largest).unwrap();
        });
        scratch.sync().unwrap();
    }
    // They belong to nobody else: each file that is left has a hole beside it.
    let free = number(&free_space(scratch), "total_bytes");
    let holes = left.len() as u64 * SIZE;
    assert!(free > holes / 4 * 3, "{free} bytes free, {holes} in holes");
    left
}

/// Have ext4 look at all free pieces of a group for what is allocated meanwhile. At 200 of them, as it does by itself, it
/// finds a long run only where that lies before so many small ones, and takes these else.
fn scanning_all<T>(scratch: &ScratchFs, allocate: impl FnOnce() -> T) -> T {
    let device = scratch.device().trim_start_matches("/dev/");
    let to_scan = Path::new("/sys/fs/ext4")
        .join(device)
        .join("mb_max_to_scan");
    let by_itself = fs::read(&to_scan);
    if by_itself.is_ok() {
        fs::write(&to_scan, "1000000").unwrap();
    }
    let done = allocate();
    if let Ok(number) = by_itself {
        fs::write(&to_scan, number).unwrap();
    }
    done
}

/// Wait until everything that was deleted is free. XFS frees blocks in the background; who freezes it waits for that
/// (`xfs_inodegc_stop`, fs/xfs/xfs_icache.c, v6.1).
fn settle(scratch: &ScratchFs) {
    for how in ["--freeze", "--unfreeze"] {
        let status = Command::new("fsfreeze")
            .arg(how)
            .arg(scratch.path())
            .status();
        assert!(status.unwrap().success(), "{how}");
    }
}

/// Wait until a child holds a region, and so listens to signals, too.
#[track_caller]
fn holds(scratch: &ScratchFs, at_first: u64) {
    let deadline = Instant::now() + Duration::from_secs(120);
    while scratch.free().unwrap().get() + 4 * MIB > at_first {
        let kind = scratch.kind();
        assert!(Instant::now() < deadline, "{kind}: nothing is held");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Free space, as a scan of a directory with nothing in it tells it.
pub(crate) fn free_space(scratch: &ScratchFs) -> Value {
    let empty = scratch.path().join("empty");
    let _ = fs::create_dir(&empty);
    let ran = indef().args(["scan", "--json"]).arg(&empty).ran();
    ran.json()["free_space"].clone()
}

/// An aged file system, or a reported skip.
pub(crate) fn aged(builder: ScratchFsBuilder) -> Option<(ScratchFs, Vec<PathBuf>)> {
    let scratch = require(builder.build())?;
    let files = age(&scratch);
    Some((scratch, files))
}

/// In how many extents a file of 64 MiB is born.
pub(crate) fn born_in(scratch: &ScratchFs) -> u64 {
    let path = scratch.path().join("large");
    let file = File::create(&path).unwrap();
    scanning_all(scratch, || {
        fallocate(&file, FallocateFlags::empty(), 0, 64 * MIB).unwrap();
    });
    let extents = scratch_fs::fragments(&file).unwrap();
    fs::remove_file(&path).unwrap();
    drop(file);
    settle(scratch);
    extents
}

/// Content of all files of the directories.
pub(crate) fn contents(scratch: &ScratchFs) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut contents = BTreeMap::new();
    for directory in 0..DIRECTORIES {
        for entry in fs::read_dir(scratch.path().join(format!("d{directory}"))).unwrap() {
            let path = entry.unwrap().path();
            let bytes = fs::read(&path).unwrap();
            contents.insert(path, bytes);
        }
    }
    contents
}

/// Fails where something is not in its file any more.
#[track_caller]
pub(crate) fn are_whole(scratch: &ScratchFs, before: &BTreeMap<PathBuf, Vec<u8>>) {
    let now = contents(scratch);
    assert_eq!(now.len(), before.len());
    for (path, bytes) in before {
        assert!(now[path] == *bytes, "{}", path.display());
    }
}

/// All of a file that stays as it was, and its number of fragments.
pub(crate) type Facts = ((u64, u64, [i64; 6]), u64);

pub(crate) fn facts(files: &[PathBuf]) -> BTreeMap<PathBuf, Facts> {
    let of = |path: &PathBuf| {
        let file = File::open(path).unwrap();
        let m = file.metadata().unwrap();
        let constant = (m.size(), m.blocks(), times(&m));
        let fragments = scratch_fs::fragments(&file).unwrap();
        (path.clone(), (constant, fragments))
    };
    files.iter().map(of).collect()
}

#[track_caller]
pub(crate) fn unchanged(before: &BTreeMap<PathBuf, Facts>, files: &[PathBuf]) {
    let after = facts(files);
    for (path, (was, fragments)) in before {
        let (is, now) = &after[path];
        assert_eq!(is, was, "{}", path.display());
        assert!(
            now <= fragments,
            "{}: {fragments}, now {now}",
            path.display()
        );
    }
}

pub(crate) fn compact(arguments: &[&str], path: &Path) -> Ran {
    indef()
        .args(["compact", "--json"])
        .args(arguments)
        .arg(path)
        .ran()
}

/// The longest free run before and after, and what was written for it: it has the wanted 64 MiB, and was worth it.
#[track_caller]
pub(crate) fn gained(kind: &str, done: &Value) -> (u64, u64, u64) {
    let (from, to) = (
        number(done, "largest_before_bytes"),
        number(done, "largest_after_bytes"),
    );
    let written = number(done, "bytes_written");
    assert!(to >= 64 * MIB && to >= 10 * from, "{kind}: {from} to {to}");
    assert!(
        written > 0 && written <= 2 * (to - from),
        "{kind}: {written} for {}",
        to - from
    );
    (from, to, written)
}

/// The whole proof on one kind of file system.
fn becomes_whole(builder: ScratchFsBuilder, engine: &str) {
    let Some((mut scratch, files)) = aged(builder) else {
        return;
    };
    let kind = scratch.kind().to_owned();
    // Reading changes access times, the first time.
    let bytes = contents(&scratch);
    let before = facts(&files);
    let born_before = born_in(&scratch);
    assert!(born_before > 1000, "{kind}: it is not aged: {born_before}");
    let told = compact(&["--want", "64MiB", "--dry-run"], scratch.path());
    assert_eq!(told.status, 0, "{told:?}");
    let told = told.json();
    assert_eq!(told["ended"], "dry-run");
    let ran = compact(&["--want", "64MiB"], scratch.path());
    assert_eq!(ran.status, 0, "{ran:?}");
    let done = ran.json();
    assert_eq!(done["ended"], "reached", "{kind}: {}", rest_of(&ran));
    assert!(
        done["files"]
            .as_array()
            .unwrap()
            .iter()
            .any(|file| file["engine"] == engine),
        "{kind}: another engine"
    );
    let (from, to, written) = gained(kind.as_str(), &done);
    // Rounds may meet a file twice, no more.
    let planned = number(&told["region"], "to_move_bytes");
    assert!(
        written <= planned + planned / 4,
        "{kind}: {written}, {planned} told"
    );
    let born_after = born_in(&scratch);
    assert!(
        born_after <= 4,
        "{kind}: {born_before} extents, now {born_after}"
    );
    println!(
        "{kind}, {engine}: {born_before} extents, now {born_after}; {from} to {to} with {written} written, {} s",
        number(&done, "duration_ns") as f64 / 1e9
    );
    unchanged(&before, &files);
    are_whole(&scratch, &bytes);
    let again = compact(&["--want", "64MiB"], scratch.path());
    let again = again.json();
    assert_eq!(again["ended"], "whole", "{again}");
    assert_eq!(number(&again, "bytes_written"), 0);
    scratch.fsck().unwrap();
}

#[test]
fn loop_free_space_of_xfs_becomes_whole() {
    becomes_whole(builder("xfs"), "xfs-dedupe-range");
}

#[test]
fn loop_free_space_of_xfs_with_exchange_becomes_whole() {
    let Some(tools) = require_xfsprogs() else {
        return;
    };
    let exchange = builder("xfs").mkfs_args(["-i", "exchange=1"]);
    becomes_whole(exchange.tools(&tools), "xfs-commit-range");
}

#[test]
fn loop_free_space_of_ext4_becomes_whole() {
    becomes_whole(builder("ext4"), "ext4-move-extent");
}

/// With reverse mapping XFS tells what is metadata, and has much of it amid the data.
#[test]
fn loop_metadata_is_gone_around() {
    let builder = ScratchFs::builder("xfs", VOLUME).mkfs_args(["-m", "rmapbt=1"]);
    let Some((mut scratch, files)) = aged(builder) else {
        return;
    };
    // Reading changes access times, the first time.
    let bytes = contents(&scratch);
    let before = facts(&files);
    let ran = compact(&["--want", "64MiB"], scratch.path());
    assert_eq!(ran.status, 0, "{ran:?}");
    let done = ran.json();
    assert_eq!(done["ended"], "no-region", "{}", rest_of(&ran));
    let (from, to) = (
        number(&done, "largest_before_bytes"),
        number(&done, "largest_after_bytes"),
    );
    assert!(to >= 10 * from, "{from} to {to}");
    assert!(
        number(&done, "bytes_written") <= 2 * (to - from),
        "{}",
        rest_of(&ran)
    );
    assert!(
        number(&done["in_the_way"], "metadata_bytes") > MIB,
        "{}",
        rest_of(&ran)
    );
    unchanged(&before, &files);
    are_whole(&scratch, &bytes);
    scratch.fsck().unwrap();
}

#[test]
fn loop_a_dry_run_changes_nothing_and_a_budget_holds() {
    for kind in ["xfs", "ext4"] {
        let Some((mut scratch, files)) = aged(builder(kind)) else {
            continue;
        };
        // Reading changes access times, the first time.
        let bytes = contents(&scratch);
        let before = facts(&files);
        let was = free_space(&scratch);
        let told = compact(&["--want", "32MiB", "--dry-run"], scratch.path());
        assert_eq!(told.status, 0, "{told:?}");
        let told = told.json();
        assert!(number(&told["region"], "len_bytes") >= 32 * MIB, "{told}");
        assert!(number(&told["region"], "to_move_bytes") > 0, "{told}");
        assert_eq!(number(&told, "bytes_written"), 0);
        assert_eq!(
            free_space(&scratch),
            was,
            "{kind}: a dry run changed something"
        );
        let ran = compact(&["--want", "64MiB", "--budget", "8MiB"], scratch.path());
        assert_eq!(ran.status, 3, "{kind}: {ran:?}");
        let done = ran.json();
        assert_eq!(done["stopped"], "budget", "{kind}");
        let written = number(&done, "bytes_written");
        assert!((MIB..=8 * MIB).contains(&written), "{kind}: {written}");
        let largest = number(&done, "largest_after_bytes");
        assert!(largest >= 8 * MIB, "{kind}: {largest} of {written} written");
        unchanged(&before, &files);
        are_whole(&scratch, &bytes);
        scratch.fsck().unwrap();
    }
}

#[test]
fn loop_kills_and_signals_leave_nothing() {
    for kind in ["xfs", "ext4"] {
        let Some((mut scratch, files)) = aged(builder(kind)) else {
            continue;
        };
        // Reading changes access times, the first time.
        let bytes = contents(&scratch);
        let before = facts(&files);
        let used = scratch.free().unwrap();
        for (after, with) in [
            (1500, Signal::KILL),
            (2500, Signal::KILL),
            (500, Signal::INT),
        ] {
            // What a killed one held is free again.
            settle(&scratch);
            let at_first = scratch.free().unwrap().get();
            let child = spawn(
                indef()
                    .args(["compact", "--json", "--want", "64MiB", "--rate", "4MiB"])
                    .arg(scratch.path()),
            );
            if with == Signal::INT {
                holds(&scratch, at_first);
            }
            thread::sleep(Duration::from_millis(after));
            signal(&child, with);
            let ran = ended(child);
            if with == Signal::INT {
                assert_eq!(ran.status, 3, "{kind}: {ran:?}");
                assert_eq!(ran.json()["stopped"], "signal", "{kind}");
            } else {
                assert_eq!(ran.status, 128 + 9, "{kind}: {ran:?}");
            }
        }
        scratch.fsck().unwrap();
        // Nothing is held, and a file of 16 KiB moves in one step.
        let left = scratch.free().unwrap();
        assert!(
            left + Bytes::mib(1) >= used,
            "{kind}: {used} were free, now {left}"
        );
        unchanged(&before, &files);
        are_whole(&scratch, &bytes);
        let rest = compact(&["--want", "64MiB"], scratch.path());
        assert_eq!(rest.json()["ended"], "reached", "{kind}: {}", rest.err);
        are_whole(&scratch, &bytes);
    }
}

#[test]
fn loop_writers_go_on_beside_it() {
    for kind in ["xfs", "ext4"] {
        let Some((mut scratch, files)) = aged(builder(kind)) else {
            continue;
        };
        let mut bytes_before = contents(&scratch);
        let (stop, rounds) = (AtomicBool::new(false), AtomicU64::new(0));
        // Every 16th file is written again and again, and new ones come and go.
        let written: Vec<_> = files.iter().step_by(16).collect();
        let new = scratch.path().join("d0/new");
        let done = thread::scope(|scope| {
            scope.spawn(|| {
                let mut bytes = vec![0; SIZE as usize];
                while !stop.load(Ordering::Relaxed) {
                    let round = rounds.fetch_add(1, Ordering::Relaxed);
                    for (index, path) in written.iter().enumerate() {
                        fill(&mut bytes, round ^ index as u64);
                        let file = File::options().write(true).open(path).unwrap();
                        file.write_all_at(&bytes[..8192], 4096).unwrap();
                        if index % 8 == 0 {
                            file.sync_all().unwrap();
                        }
                    }
                    fs::write(&new, &bytes).unwrap();
                    fs::remove_file(&new).unwrap();
                }
            });
            let ran = compact(&["--want", "48MiB"], scratch.path());
            stop.store(true, Ordering::Relaxed);
            ran
        });
        assert_eq!(done.status, 0, "{kind}: {done:?}");
        let told = rest_of(&done);
        let done = done.json();
        assert!(number(&done, "files_moved") > 500, "{kind}: {told}");
        let (from, to) = (
            number(&done, "largest_before_bytes"),
            number(&done, "largest_after_bytes"),
        );
        assert!(to >= 10 * from, "{kind}: {from} to {to}");
        // The last round of the writer is what is there.
        let rounds = rounds.load(Ordering::Relaxed);
        assert!(rounds > 0);
        let mut bytes = vec![0; SIZE as usize];
        let mut found = vec![0; 8192];
        for (index, path) in written.iter().enumerate() {
            fill(&mut bytes, (rounds - 1) ^ index as u64);
            let file = File::open(path).unwrap();
            file.read_exact_at(&mut found, 4096).unwrap();
            assert_eq!(found, &bytes[..8192], "{kind}: {}", path.display());
            bytes_before.remove(*path);
        }
        for (path, bytes) in &bytes_before {
            assert!(
                fs::read(path).unwrap() == *bytes,
                "{kind}: {}",
                path.display()
            );
        }
        scratch.fsck().unwrap();
    }
}

/// Somebody fills the file system up while a region is emptied. What is held must not be what is missing.
#[test]
fn loop_others_get_the_space_that_is_held() {
    for kind in ["xfs", "ext4"] {
        let Some((mut scratch, files)) = aged(builder(kind)) else {
            continue;
        };
        // Reading changes access times, the first time.
        let bytes = contents(&scratch);
        let before = facts(&files);
        let free = |scratch: &ScratchFs| scratch.free().unwrap().get();
        let at_first = free(&scratch);
        // It would take minutes.
        let child = spawn(
            indef()
                .args(["compact", "--json", "--want", "64MiB", "--rate", "256KiB"])
                .arg(scratch.path()),
        );
        holds(&scratch, at_first);
        let path = scratch.path().join("somebody");
        let somebody = File::create(&path).unwrap();
        let (is_over, pid) = (AtomicBool::new(false), Pid::from_child(&child));
        let ran = thread::scope(|scope| {
            scope.spawn(|| {
                let (mut at, deadline) = (0, Instant::now() + Duration::from_secs(120));
                while !is_over.load(Ordering::Relaxed) && Instant::now() < deadline {
                    match fallocate(&somebody, FallocateFlags::empty(), at, SIZE) {
                        Ok(()) => at += SIZE,
                        Err(errno) => {
                            assert_eq!(errno, Errno::NOSPC);
                            thread::sleep(Duration::from_millis(20));
                        }
                    }
                }
                if !is_over.load(Ordering::Relaxed) {
                    kill_process(pid, Signal::KILL).unwrap();
                }
            });
            let ran = ended(child);
            is_over.store(true, Ordering::Relaxed);
            ran
        });
        assert_eq!(ran.status, 3, "{kind}: {}", ran.err);
        let done = ran.json();
        assert_eq!(done["ended"], "space-short", "{kind}: {}", rest_of(&ran));
        assert_eq!(done["stopped"], "space-short", "{kind}");
        settle(&scratch);
        let (left, taken) = (free(&scratch), somebody.metadata().unwrap().blocks() * 512);
        assert!(
            left + taken + 2 * MIB >= at_first,
            "{kind}: {at_first} were free, now {left}, and somebody has {taken}"
        );
        drop(somebody);
        fs::remove_file(&path).unwrap();
        unchanged(&before, &files);
        are_whole(&scratch, &bytes);
        scratch.fsck().unwrap();
    }
}

#[test]
fn loop_files_that_vanish_are_no_matter() {
    for kind in ["xfs", "ext4"] {
        let Some((mut scratch, files)) = aged(builder(kind)) else {
            continue;
        };
        let mut bytes = contents(&scratch);
        let told = compact(&["--want", "48MiB", "--dry-run"], scratch.path()).json();
        assert!(number(&told, "files_in_region") > 500, "{told}");
        let child = spawn(
            indef()
                .args(["compact", "--json", "--want", "48MiB", "--rate", "16MiB"])
                .arg(scratch.path()),
        );
        // All over the device, while they are moved.
        for path in files.iter().step_by(3) {
            fs::remove_file(path).unwrap();
            bytes.remove(path);
            thread::sleep(Duration::from_micros(500));
        }
        let ran = ended(child);
        assert_eq!(ran.status, 0, "{kind}: {ran:?}");
        let done = ran.json();
        assert_eq!(number(&done, "files_failed"), 0, "{kind}: {ran:?}");
        are_whole(&scratch, &bytes);
        settle(&scratch);
        scratch.fsck().unwrap();
    }
}

#[test]
fn loop_what_cannot_move_is_told_and_gone_around() {
    let Some((mut scratch, files)) = aged(builder("xfs")) else {
        return;
    };
    let told = compact(&["--want", "32MiB", "--dry-run"], scratch.path()).json();
    let (start, len) = (&told["region"]["start_bytes"], &told["region"]["len_bytes"]);
    let region = start.as_u64().unwrap()..start.as_u64().unwrap() + len.as_u64().unwrap();
    // A file in the midst of it.
    let in_region = files.iter().find(|path| {
        let first = first_place(path);
        region.contains(&first) && first > (region.start + region.end) / 2
    });
    let in_region = in_region.expect("the region has files");
    let attribute = |change: &str| {
        assert!(
            Command::new("chattr")
                .arg(change)
                .arg(in_region)
                .status()
                .unwrap()
                .success()
        );
    };
    attribute("+i");
    let ran = compact(&["--want", "32MiB"], scratch.path());
    attribute("-i");
    assert_eq!(ran.status, 0, "{ran:?}");
    let done = ran.json();
    assert_eq!(done["ended"], "reached", "{}", ran.err);
    let moved = done["files"].as_array().unwrap().iter();
    let mut named = moved.filter(|file| file["path"] == in_region.to_str().unwrap());
    assert!(named.next().is_none(), "an immutable file was moved");
    let reasons = done["in_the_way"]["files"].as_array().unwrap();
    assert!(
        reasons.iter().any(|one| one["reason"] == "immutable"),
        "{reasons:?}"
    );
    scratch.fsck().unwrap();
}

/// Where the first block of a file lies.
fn first_place(path: &Path) -> u64 {
    let file = File::open(path).unwrap();
    let range = units::FileRange::new(0, SIZE);
    let layout = indef_fs::map(&file, path, range, true, &mut indef_fs::Mapper::default());
    layout.unwrap().extents()[0].phys.get()
}

/// The file system goes down in a round: what was done until then is told, with the error, and kept in the history.
#[test]
fn loop_an_error_of_a_round_leaves_the_result() {
    if !require_program("xfs_io") {
        return;
    }
    let Some((mut scratch, files)) = aged(builder("xfs")) else {
        return;
    };
    let bytes = contents(&scratch);
    let told = compact(&["--want", "64MiB", "--dry-run"], scratch.path()).json();
    let region = &told["region"];
    let (start, len) = (number(region, "start_bytes"), number(region, "len_bytes"));
    let inside = |path: &&PathBuf| (start..start + len).contains(&first_place(path));
    let in_region: Vec<_> = files.iter().filter(inside).collect();
    let state = tempfile::tempdir().unwrap();
    let child = spawn(
        indef_with_state(state.path())
            .args(["compact", "--json", "--want", "64MiB", "--rate", "2MiB"])
            .arg(scratch.path()),
    );
    let until = Instant::now() + Duration::from_secs(120);
    // The last ones may not be finished.
    while in_region.iter().filter(|path| inside(path)).count() + 32 > in_region.len() {
        assert!(Instant::now() < until, "nothing moves");
        thread::sleep(Duration::from_millis(50));
    }
    let mut shutdown = Command::new("xfs_io");
    let shutdown = shutdown
        .args(["-x", "-c", "shutdown -f"])
        .arg(scratch.path());
    assert!(shutdown.status().unwrap().success());
    let ran = ended(child);
    assert_eq!(ran.status, 1, "{ran:?}");
    let done = ran.json();
    assert_eq!(done["ended"], "failed", "{}", rest_of(&ran));
    let error = done["error"].as_str().unwrap();
    assert!(error.contains("look at its space"), "{error}");
    assert!(ran.err.contains(error), "{}", ran.err);
    assert!(number(&done, "files_moved") >= 16, "{}", rest_of(&ran));
    assert!(number(&done, "bytes_written") >= 16 * SIZE);
    let history = indef_with_state(state.path())
        .args(["history", "--json"])
        .ran()
        .json();
    let run = &history["runs"][0];
    assert_eq!(run["ended"], "failed", "{history}");
    assert_eq!(run["why"], error);
    for name in ["files_moved", "bytes_written"] {
        assert_eq!(run[name], done[name]);
    }
    scratch.remount().unwrap();
    are_whole(&scratch, &bytes);
    scratch.fsck().unwrap();
}

/// The one line of an error, which must have these words.
#[track_caller]
fn refused(ran: &Ran, words: &[&str]) {
    assert_eq!(ran.status, 1, "{ran:?}");
    let line = ran.error_line(words[0]);
    assert!(words.iter().all(|word| line.contains(word)), "{line}");
    let document: Value = ran.json();
    assert_eq!(document["files"].as_array().unwrap().len(), 0);
}

/// What is possible is told at once, and nothing moves for the rest.
#[test]
fn loop_more_than_is_free_is_not_wanted_in_vain() {
    for kind in ["ext4", "xfs"] {
        let size = Bytes::mib(512);
        let Some(scratch) = require(ScratchFs::builder(kind, size).build()) else {
            continue;
        };
        let file = scratch.path().join("file");
        make(&file, Bytes::mib(64), Bytes::mib(1));
        let before = fragments(&file);
        let refused_at = |want: &str, words: &[&str]| {
            for options in [&["--want", want][..], &["--want", want, "--dry-run"]] {
                let ran = compact(options, scratch.path());
                let always = ["--want", "; at most ", "delete files first"];
                refused(&ran, &[&always, words].concat());
            }
        };
        refused_at("10GiB", &["10 GiB is more than the file system has"]);
        refused_at(
            "500MiB",
            &["500 MiB is more than the ", "--min-free keeps 5 %"],
        );
        // What is told is possible, or is there.
        let told = compact(&["--want", "500MiB"], scratch.path());
        let line = told.error_line("--want");
        let (_, most) = line.split_once("at most ").unwrap();
        let (most, _) = most.split_once("MiB").unwrap();
        let less = format!("{}MiB", most.parse::<u64>().unwrap() / 2);
        let ran = compact(&["--want", &less, "--dry-run"], scratch.path());
        assert_eq!(ran.status, 0, "{ran:?}");
        let none = compact(&["--want", "500MiB", "--min-free", "99"], scratch.path());
        refused(&none, &["; nothing can become", "--min-free keeps 99 %"]);
        assert_eq!(fragments(&file), before);
    }
}

#[test]
fn loop_other_file_systems_and_other_users_are_refused() {
    refused(
        &compact(&[], Path::new("/proc/self")),
        &["ext4, XFS, Btrfs and F2FS"],
    );
    refused(
        &compact(&[], Path::new("/no/such/place")),
        &["/no/such/place"],
    );
    if !is_root() {
        return;
    }
    let anybody = ForAnybody::new();
    if let Some(scratch) = require(ScratchFs::builder("ext4", Bytes::mib(64)).build()) {
        let ran = anybody
            .indef()
            .args(["compact", "--json"])
            .arg(scratch.path())
            .ran();
        refused(&ran, &["root"]);
        let set = |mode| {
            let mut mount = Command::new("mount");
            let mount = mount.args(["-o", &format!("remount,{mode}")]);
            assert!(mount.arg(scratch.path()).status().unwrap().success());
        };
        // Engines of another file system.
        for engine in ["xfs-commit-range", "btrfs-defrag-range"] {
            for options in [
                &["--engine", engine][..],
                &["--dry-run", "--engine", engine],
            ] {
                let ran = compact(options, scratch.path());
                let place = format!("{}: ", scratch.path().display());
                refused(
                    &ran,
                    &[&place, engine, "on ext4", "or give ext4-move-extent"],
                );
            }
        }
        set("ro");
        let ran = compact(&["--want", "60MiB"], scratch.path());
        set("rw");
        refused(&ran, &["read-only"]);
        // Without a journal nothing can be moved there.
        let builder = ScratchFs::builder("ext4", Bytes::mib(64));
        if let Some(bare) = require(builder.mkfs_args(["-O", "^has_journal"]).build()) {
            refused(&compact(&["--want", "60MiB"], bare.path()), &["journal"]);
        }
    }
    // An engine of this one that moves nothing out of the way.
    if let Some(scratch) = require(ScratchFs::builder("xfs", Bytes::mib(512)).build()) {
        let ran = compact(&["--engine", "xfs-swap-extents"], scratch.path());
        let others = "or give xfs-commit-range or xfs-dedupe-range";
        refused(&ran, &["xfs-swap-extents", "on xfs", others]);
    }
}
