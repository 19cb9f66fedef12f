//! `indef compact` on Btrfs, where the kernel empties chunks.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::ErrorKind,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::{Child, Command},
    thread,
    time::{Duration, Instant},
};

use rustix::{
    fs::{FallocateFlags, fallocate},
    io::Errno,
    process::Signal,
};
use scratch_fs::{ScratchFs, ScratchFsBuilder, require};
use units::Bytes;

use crate::{
    common::{ended, indef, is_root, second::Second, signal, spawn},
    loop_claims::Frozen,
    loop_compact::{born_in, compact, free_space, gained, number},
};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
/// The size of a file, and of a hole.
const SIZE: u64 = 256 * KIB;
pub(crate) const VOLUME: Bytes = Bytes::gib(1);

fn btrfs(arguments: &[&str], path: &Path) {
    let status = Command::new("btrfs")
        .args(arguments)
        .arg(path)
        .status()
        .unwrap();
    assert!(status.success(), "btrfs {arguments:?}");
}

fn aged() -> Option<ScratchFs> {
    aged_as(ScratchFs::builder("btrfs", VOLUME), VOLUME)
}

/// Fill it, which has room for so much, with files in a subvolume, and keep each fourth of them: all room is in chunks then, which
/// are used for a quarter.
pub(crate) fn aged_as(builder: ScratchFsBuilder, room: Bytes) -> Option<ScratchFs> {
    let scratch = require(builder.build())?;
    let files = scratch.path().join("files");
    btrfs(&["--quiet", "subvolume", "create"], &files);
    let mut bytes = vec![0; SIZE as usize];
    let mut made = 0_u64;
    loop {
        for (number, block) in bytes.chunks_mut(4096).enumerate() {
            block[..8].copy_from_slice(&(made << 8 | number as u64).to_le_bytes());
        }
        let path = files.join(made.to_string());
        let written = File::create(&path).and_then(|file| {
            file.write_all_at(&bytes, 0)?;
            file.sync_all()
        });
        match written {
            Ok(()) => made += 1,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::StorageFull, "{error}");
                fs::remove_file(&path).unwrap();
                break;
            }
        }
    }
    assert!(made * SIZE > room.get() / 2, "full after {made} files");
    for number in (0..made).filter(|number| number % 4 != 0) {
        fs::remove_file(files.join(number.to_string())).unwrap();
    }
    scratch.sync().unwrap();
    Some(scratch)
}

/// Chunks that take the kernel long to empty, as every other 4 KiB of them is an extent of its own; others are used for
/// three quarters.
fn in_small_pieces() -> Option<ScratchFs> {
    const PIECES: u64 = 30_000;
    let scratch = require(ScratchFs::builder("btrfs", VOLUME).build())?;
    let [pieces, holes] =
        ["pieces", "holes"].map(|name| File::create(scratch.path().join(name)).unwrap());
    for number in 0..PIECES {
        for file in [&pieces, &holes] {
            fallocate(file, FallocateFlags::empty(), number * 4096, 4096).unwrap();
        }
    }
    let mut bytes = vec![0; (PIECES * 4096) as usize];
    for (number, block) in (1_u64..).zip(bytes.chunks_mut(4096)) {
        block[..8].copy_from_slice(&number.to_le_bytes());
    }
    pieces.write_all_at(&bytes, 0).unwrap();
    scratch.sync().unwrap();
    let place = |number| scratch.path().join(format!("large{number}"));
    let mut made = 0;
    loop {
        let file = File::create(place(made)).unwrap();
        match fallocate(&file, FallocateFlags::empty(), 0, 4 * MIB) {
            Ok(()) => made += 1,
            Err(errno) => {
                assert_eq!(errno, Errno::NOSPC);
                break;
            }
        }
    }
    for number in (0..=made).filter(|number| number % 4 == 0) {
        fs::remove_file(place(number)).unwrap();
    }
    fs::remove_file(scratch.path().join("holes")).unwrap();
    scratch.sync().unwrap();
    Some(scratch)
}

/// Whether the kernel is at a balance, or has one that it would go on with.
fn balances(scratch: &ScratchFs) -> bool {
    let asked = Command::new("btrfs")
        .args(["balance", "status"])
        .arg(scratch.path())
        .output()
        .unwrap();
    let said = String::from_utf8(asked.stdout).unwrap();
    !said.starts_with("No balance found")
}

/// A run that is in the midst of its first chunk.
fn amid_a_chunk(scratch: &ScratchFs, want: &str) -> Child {
    let child = spawn(
        indef()
            .args(["compact", "--json", "--want", want])
            .arg(scratch.path()),
    );
    let begun = Instant::now();
    while !balances(scratch) || written_by(&child).is_some_and(|bytes| bytes < MIB) {
        assert!(begun.elapsed() < Duration::from_secs(60), "nothing begins");
        thread::sleep(Duration::from_millis(10));
    }
    child
}

/// What a process has had written; `None` where the kernel does not count that.
fn written_by(child: &Child) -> Option<u64> {
    let told = fs::read_to_string(format!("/proc/{}/io", child.id())).ok()?;
    let mut lines = told.lines();
    lines.find_map(|line| line.strip_prefix("write_bytes: ")?.parse().ok())
}

pub(crate) fn contents(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let entries = fs::read_dir(folder).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    paths
        .map(|path| (path.clone(), fs::read(path).unwrap()))
        .collect()
}

pub(crate) fn extents(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    paths
        .map(|path| scratch_fs::fragments(&File::open(path).unwrap()).unwrap())
        .sum()
}

#[test]
fn loop_free_space_of_btrfs_becomes_whole() {
    let Some(mut scratch) = aged() else { return };
    let (files, snapshot) = (
        scratch.path().join("files"),
        scratch.path().join("snapshot"),
    );
    let status = Command::new("btrfs")
        .args(["--quiet", "subvolume", "snapshot", "-r"])
        .args([&files, &snapshot])
        .status();
    assert!(status.unwrap().success());
    scratch.sync().unwrap();
    let (bytes, pieces) = (contents(&files), extents(&files));
    let free = number(&free_space(&scratch), "total_bytes");
    let born_before = born_in(&scratch);
    assert!(born_before > 40, "it is not aged: {born_before}");
    let want = ["--want", "64MiB"];
    let told = compact(&[&want[..], &["--dry-run"]].concat(), scratch.path());
    assert_eq!(told.status, 0, "{told:?}");
    let told = told.json();
    assert_eq!(told["ended"], "dry-run", "{told}");
    assert_eq!(number(&told, "parts_emptied"), 0);
    assert_eq!(born_in(&scratch), born_before, "nothing has moved");
    let ran = compact(&want, scratch.path());
    assert_eq!(ran.status, 0, "{ran:?}");
    assert!(ran.err.contains("chunk 1 of "), "{}", ran.err);
    let done = ran.json();
    assert_eq!(done["ended"], "reached", "{done}");
    assert_eq!(done["part"], "chunk");
    let (from, to, written) = gained("btrfs", &done);
    assert_eq!(written, number(&told["region"], "to_move_bytes"));
    let born_after = born_in(&scratch);
    assert!(born_after <= 4, "{born_before} extents, now {born_after}");
    println!("{born_before} extents, now {born_after}; {from} to {to} with {written} written");
    // The snapshot has the same blocks as before.
    let now = number(&free_space(&scratch), "total_bytes");
    assert!(now + 16 * MIB >= free, "{free} were free, now {now}");
    assert!(
        extents(&files) <= pieces,
        "{pieces} extents, now {}",
        extents(&files)
    );
    scratch.remount().unwrap();
    assert!(contents(&files) == bytes);
    let names = |folder: &Path| contents(folder).into_values().collect::<Vec<_>>();
    assert!(names(&snapshot) == names(&files));
    let again = compact(&want, scratch.path()).json();
    assert_eq!(again["ended"], "whole", "{again}");
    scratch.fsck().unwrap();
}

/// On the larger device there is room that has no counterpart on the other one, and gives no room for a mirrored chunk.
#[test]
fn loop_mirrored_chunks_give_room_on_both_devices() {
    on_devices("raid1", UNEQUAL, VOLUME, "256MiB");
}

/// A striped chunk has a half of its data on each device; on the larger one there is room for others, of one stripe.
#[test]
fn loop_striped_chunks_give_room_on_both_devices() {
    on_devices("raid0", UNEQUAL, Bytes(2 * VOLUME.get()), "256MiB");
}

#[test]
fn loop_mirrored_stripes_give_room_on_four_devices() {
    on_devices("raid10", &[SMALL; 4], Bytes(2 * SMALL.get()), "128MiB");
}

/// One of three stripes is a parity.
#[test]
fn loop_stripes_with_a_parity_give_room_on_three_devices() {
    on_devices("raid5", &[SMALL; 3], Bytes(2 * SMALL.get()), "128MiB");
}

const UNEQUAL: &[Bytes] = &[VOLUME, Bytes::mib(1280)];
const SMALL: Bytes = Bytes::mib(256);

#[test]
fn loop_chunks_with_both_copies_on_a_device_give_room_there() {
    let builder = ScratchFs::builder("btrfs", VOLUME).mkfs_args(["-d", "dup", "-m", "dup"]);
    becomes_whole(builder, Bytes(VOLUME.get() / 2), "64MiB");
}

fn on_devices(kind: &str, sizes: &[Bytes], room: Bytes, wanted: &str) {
    if !is_root() {
        return scratch_fs::skip("it needs root");
    }
    let seconds: Vec<_> = sizes[1..].iter().map(|size| Second::of(*size)).collect();
    let others: Vec<_> = seconds.iter().map(|it| it.device.as_str()).collect();
    let options: Vec<_> = others.iter().map(|it| format!("device={it}")).collect();
    let builder = ScratchFs::builder("btrfs", sizes[0])
        .mkfs_args([&["-d", kind, "-m", "raid1"][..], &others[..]].concat())
        .mount_options(&options.join(","));
    becomes_whole(builder, room, wanted);
}

/// How many files of 16 MiB fit into a free run, and how many of them are born in one extent.
fn born_in_run(scratch: &ScratchFs, len: u64) -> (u64, u64) {
    let fit = len / (16 * MIB);
    let path = |number| scratch.path().join(format!("large{number}"));
    let is_whole = |number: &u64| {
        let file = File::create(path(*number)).unwrap();
        fallocate(&file, FallocateFlags::empty(), 0, 16 * MIB).unwrap();
        scratch_fs::fragments(&file).unwrap() == 1
    };
    let born_whole = (0..fit).filter(is_whole).count();
    for number in 0..fit {
        fs::remove_file(path(number)).unwrap();
    }
    (fit, born_whole as u64)
}

/// What is told is what comes, nothing is cut, and all is as it was.
fn becomes_whole(builder: ScratchFsBuilder, room: Bytes, wanted: &str) {
    let Some(mut scratch) = aged_as(builder, room) else {
        return;
    };
    let files = scratch.path().join("files");
    let (bytes, pieces) = (contents(&files), extents(&files));
    let want = ["--want", wanted];
    let told = compact(&[&want[..], &["--dry-run"]].concat(), scratch.path());
    assert_eq!(told.status, 0, "{told:?}");
    let told = told.json();
    let ran = compact(&want, scratch.path());
    assert_eq!(ran.status, 0, "{ran:?}");
    let done = ran.json();
    assert_eq!(done["ended"], "reached", "{done}");
    let to_move = number(&told["region"], "to_move_bytes");
    // Each copy is written, and the bytes are told once.
    assert_eq!(number(&done, "bytes_written"), to_move);
    let expected = number(&told, "largest_after_bytes");
    let got = number(&done, "largest_after_bytes");
    assert!(got >= expected, "{expected} were expected, {got} are there");
    let born = born_in(&scratch);
    assert!(born <= 4, "{born} extents");
    let (fit, born_whole) = born_in_run(&scratch, got);
    // Not across the end of a chunk.
    assert!(born_whole >= fit / 4 * 3, "{born_whole} of {fit} are whole");
    assert!(extents(&files) <= pieces);
    scratch.remount().unwrap();
    assert!(contents(&files) == bytes);
    btrfs(&["scrub", "start", "-B", "-r"], scratch.path());
    scratch.fsck().unwrap();
}

/// A signal cancels what the kernel does in a chunk, also where it comes to the thread that waits for that, and what was done
/// is told. SIGKILL does it, too. Nothing is left that would go on by itself.
#[test]
fn loop_a_signal_ends_a_chunk_in_its_midst() {
    let Some(mut scratch) = in_small_pieces() else {
        return;
    };
    let bytes = contents(scratch.path());
    let child = amid_a_chunk(&scratch, "100MiB");
    signal(&child, Signal::INT);
    let ran = ended(child);
    assert!(!balances(&scratch));
    assert_eq!(ran.status, 3, "{ran:?}");
    let done = ran.json();
    assert_eq!(
        (done["ended"].as_str(), done["stopped"].as_str()),
        (Some("stopped"), Some("signal")),
        "{done}"
    );
    assert_eq!(number(&done, "parts_emptied"), 0, "{ran:?}");
    let (moved, written) = (
        number(&done, "bytes_relocated"),
        number(&done, "bytes_written"),
    );
    assert!(moved <= written && written < 64 * MIB, "{done}");
    assert!(
        written > 0 || !Path::new("/proc/self/io").exists(),
        "{done}"
    );
    assert!(contents(scratch.path()) == bytes);

    let mut child = amid_a_chunk(&scratch, "100MiB");
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!balances(&scratch));
    assert!(contents(scratch.path()) == bytes);
    scratch.remount().unwrap();
    assert!(!balances(&scratch), "one goes on");
    scratch.fsck().unwrap();
    let ran = compact(&["--want", "100MiB"], scratch.path());
    assert_eq!(ran.json()["ended"], "reached", "{ran:?}");
    assert!(contents(scratch.path()) == bytes);
    scratch.fsck().unwrap();
}

/// Somebody who pauses or cancels it has ended the run, which leaves no balance behind: one that is paused goes on at the next
/// mount, and the kernel would refuse all others until then.
#[test]
fn loop_a_chunk_that_somebody_pauses_is_given_up() {
    let Some(mut scratch) = in_small_pieces() else {
        return;
    };
    let bytes = contents(scratch.path());
    for how in ["pause", "cancel"] {
        let child = amid_a_chunk(&scratch, "200MiB");
        btrfs(&["balance", how], scratch.path());
        let ran = ended(child);
        assert!(!balances(&scratch), "{how}: one is left");
        assert_eq!(ran.status, 1, "{how}: {ran:?}");
        let done = ran.json();
        assert_eq!(done["ended"], "failed", "{how}: {done}");
        let error = done["error"].as_str().unwrap();
        assert!(error.contains("paused or cancelled"), "{how}: {error}");
        assert!(ran.err.contains(error), "{how}: {}", ran.err);
        assert_eq!(number(&done, "parts_emptied"), 0, "{how}: {done}");
        assert!(contents(scratch.path()) == bytes, "{how}");
    }
    scratch.remount().unwrap();
    assert!(!balances(&scratch), "one goes on");
    assert!(contents(scratch.path()) == bytes);
    scratch.fsck().unwrap();
}

/// Who freezes the file system waits for the chunk that the kernel is at, and for no other, unless a signal ends that. The run
/// goes on when it is thawed.
#[test]
fn loop_a_freeze_waits_for_one_chunk() {
    let Some(mut scratch) = in_small_pieces() else {
        return;
    };
    let bytes = contents(scratch.path());
    let child = amid_a_chunk(&scratch, "200MiB");
    let freezing = freeze(scratch.path());
    signal(&child, Signal::INT);
    let is_frozen = frozen(freezing, scratch.path());
    assert!(!balances(&scratch));
    drop(is_frozen);
    let ran = ended(child);
    assert_eq!(ran.status, 3, "{ran:?}");
    let done = ran.json();
    assert_eq!(done["stopped"], "signal", "{done}");
    assert_eq!(number(&done, "parts_emptied"), 0, "{done}");
    assert!(contents(scratch.path()) == bytes);

    let mut child = amid_a_chunk(&scratch, "200MiB");
    let is_frozen = frozen(freeze(scratch.path()), scratch.path());
    assert!(!balances(&scratch));
    // There is another chunk to empty, which waits.
    assert_eq!(child.try_wait().unwrap(), None);
    drop(is_frozen);
    let ran = ended(child);
    let done = ran.json();
    assert_eq!(ran.status, 0, "{ran:?}");
    assert!(number(&done, "parts_emptied") >= 2, "{done}");
    assert!(contents(scratch.path()) == bytes);
    scratch.remount().unwrap();
    scratch.fsck().unwrap();
}

/// Begin to freeze a file system, and return once that is being waited for.
fn freeze(path: &Path) -> Child {
    let freezing = Command::new("fsfreeze")
        .arg("-f")
        .arg(path)
        .spawn()
        .unwrap();
    let syscall = format!("/proc/{}/syscall", freezing.id());
    let begun = Instant::now();
    // FIFREEZE (linux/fs.h)
    while !fs::read_to_string(&syscall).is_ok_and(|call| call.contains("0xc0045877")) {
        assert!(begun.elapsed() < Duration::from_secs(60), "nothing waits");
        thread::sleep(Duration::from_millis(1));
    }
    freezing
}

/// Wait until it is frozen.
fn frozen(mut freezing: Child, path: &Path) -> Frozen {
    assert!(freezing.wait().unwrap().success());
    Frozen(path.to_owned())
}

#[test]
fn loop_limits_hold_for_chunks() {
    let Some(mut scratch) = aged() else { return };
    let files = scratch.path().join("files");
    let bytes = contents(&files);
    let stopped = |options: &[&str], why: &str| {
        let ran = compact(&[&["--want", "64MiB"], options].concat(), scratch.path());
        assert_eq!(ran.status, 3, "{ran:?}");
        let done = ran.json();
        assert_eq!(done["stopped"], why, "{done}");
        assert_eq!(number(&done, "parts_emptied"), 0, "{done}");
    };
    stopped(&["--budget", "1MiB"], "budget");
    stopped(&["--time-limit", "1ms"], "time-limit");
    // What moves needs room, and the rest has to stay free.
    let ran = compact(&["--want", "64MiB", "--min-free", "70"], scratch.path());
    assert_eq!(
        (ran.status, ran.json()["ended"].as_str()),
        (0, Some("no-region")),
        "{ran:?}"
    );
    for options in [["--exclude", "x"], ["--engine", "btrfs-defrag-range"]] {
        let ran = compact(&options, scratch.path());
        assert_eq!(ran.status, 1, "{ran:?}");
        let line = ran.error_line("--exclude");
        assert!(line.contains("--engine"), "{line}");
    }
    assert!(contents(&files) == bytes);
    scratch.fsck().unwrap();
}

#[test]
fn loop_chunks_with_trees_are_left_to_balance() {
    let builder = ScratchFs::builder("btrfs", Bytes::mib(256)).mkfs_args(["--mixed"]);
    let Some(scratch) = require(builder.build()) else {
        return;
    };
    let ran = compact(&[], scratch.path());
    assert_eq!(ran.status, 1, "{ran:?}");
    let line = ran.error_line("mixed");
    assert!(line.contains("btrfs balance start"), "{line}");
}
