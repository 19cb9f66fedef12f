//! A dry run needs no more than reading, and leaves no trace.

use std::{fs, mem::MaybeUninit, os::unix::fs::PermissionsExt};

use rustix::{
    fs::inotify::{self, CreateFlags, Reader, WatchFlags},
    io::Errno,
};
use units::Bytes;

use crate::common::{ForAnybody, Run, indef, is_root, make, scratch};

fn only_reads(kind: &str) {
    if !is_root() {
        return;
    }
    let Some(scratch) = scratch(kind) else {
        return;
    };
    let path = scratch.path().join("data");
    make(&path, Bytes::mib(2), Bytes::kib(16));
    // Whoever waits for a file that was written reads it then.
    let watch = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).unwrap();
    let written = WatchFlags::CLOSE_WRITE | WatchFlags::MODIFY | WatchFlags::ATTRIB;
    inotify::add_watch(&watch, &path, written).unwrap();
    let dry = indef()
        .args(["run", "--dry-run", "--json"])
        .arg(&path)
        .ran();
    assert_eq!(dry.json()["files"][0]["reason"], "dry-run", "{dry:?}");
    let mut buffer = [MaybeUninit::uninit(); 4096];
    match Reader::new(&watch, &mut buffer).next() {
        Err(Errno::AGAIN) => {}
        other => panic!("somebody is told: {other:?}"),
    }

    // A file that root alone may write, and all may read.
    for above in [scratch.path(), scratch.path().parent().unwrap()] {
        fs::set_permissions(above, fs::Permissions::from_mode(0o755)).unwrap();
    }
    fs::set_permissions(&path, fs::Permissions::from_mode(0o444)).unwrap();
    let anybody = ForAnybody::new();
    let of = |arguments: &[&str]| {
        let ran = anybody.indef().args(arguments).arg(&path).ran();
        ran.json()["files"][0]["reason"].clone()
    };
    assert_eq!(of(&["run", "--json"]), "not-permitted");
    // XFS's engines read through the host, which only the owner may do without changing the access time.
    let told = match kind {
        "xfs" => "not-permitted",
        _ => "dry-run",
    };
    assert_eq!(of(&["run", "--dry-run", "--json"]), told);
}

#[test]
fn loop_a_dry_run_of_ext4_only_reads() {
    only_reads("ext4");
}

#[test]
fn loop_a_dry_run_of_xfs_only_reads() {
    only_reads("xfs");
}

#[test]
fn loop_a_dry_run_of_btrfs_only_reads() {
    only_reads("btrfs");
}
