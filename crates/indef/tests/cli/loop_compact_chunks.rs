//! `indef compact` on Btrfs, where the kernel empties chunks.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::ErrorKind,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::Command,
};

use scratch_fs::{ScratchFs, require};
use units::Bytes;

use crate::loop_compact::{born_in, compact, free_space, gained, number};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
/// The size of a file, and of a hole.
const SIZE: u64 = 256 * KIB;
const VOLUME: Bytes = Bytes::gib(1);

fn btrfs(arguments: &[&str], path: &Path) {
    let status = Command::new("btrfs")
        .args(arguments)
        .arg(path)
        .status()
        .unwrap();
    assert!(status.success(), "btrfs {arguments:?}");
}

/// Fill it with files in a subvolume, and keep each fourth of them: all room is in chunks then, which are used for a quarter.
fn aged() -> Option<ScratchFs> {
    let scratch = require(ScratchFs::builder("btrfs", VOLUME).build())?;
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
    assert!(made * SIZE > VOLUME.get() / 2, "full after {made} files");
    for number in (0..made).filter(|number| number % 4 != 0) {
        fs::remove_file(files.join(number.to_string())).unwrap();
    }
    scratch.sync().unwrap();
    Some(scratch)
}

fn contents(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let entries = fs::read_dir(folder).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    paths
        .map(|path| (path.clone(), fs::read(path).unwrap()))
        .collect()
}

fn extents(folder: &Path) -> u64 {
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
