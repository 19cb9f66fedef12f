//! A file system that is mounted read-only while a run is at it. On ext4 nobody can: its engine has a donor open all the time.

use std::{
    fs, thread,
    time::{Duration, Instant},
};

use rustix::mount::{MountFlags, mount_remount};
use scratch_fs::{ScratchFs, ScratchFsBuilder, reflink, require, require_xfsprogs};
use units::Bytes;

use crate::common::{ended, indef, make_several, spawn};

const FILES: usize = 400;

/// The rest is left alone, for that reason; what has moved stays moved.
fn ends_as_read_only(builder: ScratchFsBuilder, options: &[&str], shares: bool) {
    let Some(mut scratch) = require(builder.build()) else {
        return;
    };
    let name = format!("{} {options:?}", scratch.kind());
    make_several(scratch.path(), FILES, Bytes::kib(256), Bytes::kib(16));
    let place = |index: usize| scratch.path().join(format!("file {index}"));
    if shares {
        for index in 0..FILES {
            reflink(&place(index), &place(index).with_extension("clone")).unwrap();
        }
    }
    scratch.sync().unwrap();
    let contents = |scratch: &ScratchFs| -> Vec<Vec<u8>> {
        let read = |index: usize| fs::read(scratch.path().join(format!("file {index}"))).unwrap();
        (0..FILES).map(read).collect()
    };
    let before = contents(&scratch);
    let child = spawn(
        indef()
            .args(["run", "--json", "--jobs", "1", "--rate", "8MiB"])
            .args(options)
            .arg(scratch.path()),
    );
    let remount = |flags| mount_remount(scratch.path(), flags, c"");
    thread::sleep(Duration::from_secs(2));
    let begun = Instant::now();
    // Refused while a file is open for writing.
    while remount(MountFlags::RDONLY).is_err() {
        assert!(begun.elapsed() < Duration::from_secs(60), "{name}: never");
        thread::yield_now();
    }
    let ran = ended(child);
    remount(MountFlags::empty()).unwrap();
    let done = ran.json();
    let files = done["files"].as_array().unwrap();
    let with = |key: &str, word: &str| files.iter().filter(|file| file[key] == word).count();
    let (moved, left) = (with("status", "moved"), with("reason", "read-only-mount"));
    println!("{name}: {moved} moved, {left} left, status {}", ran.status);
    assert_eq!(with("status", "failed"), 0, "{name}: {ran:?}");
    assert!(moved > 0, "{name}: {ran:?}");
    assert!(left > 0, "{name}: {ran:?}");
    for file in files {
        let reason = file["reason"].as_str();
        let known = ["read-only-mount", "moved-along", "contiguous", "no-gain"];
        assert!(
            reason.is_none_or(|it| known.contains(&it)),
            "{name}: {file}"
        );
    }
    assert!(contents(&scratch) == before, "{name}");
    scratch.remount().unwrap();
    assert!(contents(&scratch) == before, "{name}");
    scratch.fsck().unwrap();
}

fn builder(kind: &str) -> ScratchFsBuilder {
    ScratchFs::builder(kind, Bytes::mib(640))
}

#[test]
fn loop_xfs_becomes_read_only_amid_a_run() {
    ends_as_read_only(builder("xfs").mkfs_args(["-m", "rmapbt=0"]), &[], false);
    let reverse = || builder("xfs").mkfs_args(["-m", "rmapbt=1"]);
    ends_as_read_only(reverse(), &["--engine", "xfs-swap-extents"], false);
    ends_as_read_only(reverse(), &[], true);
    if let Some(tools) = require_xfsprogs() {
        let exchange = builder("xfs").mkfs_args(["-i", "exchange=1"]);
        ends_as_read_only(exchange.tools(&tools), &[], false);
    }
}

#[test]
fn loop_btrfs_becomes_read_only_amid_a_run() {
    ends_as_read_only(builder("btrfs"), &[], false);
    ends_as_read_only(builder("btrfs"), &[], true);
}
