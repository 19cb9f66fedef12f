//! Short rounds in guests, on kernels and file systems that the running kernel is not or has not. Fixed
//! seeds; `INDEF` names the indef to hammer, without it the workspace's is built.

use std::{
    process::Command,
    sync::{Mutex, PoisonError},
};

use crate::indef::indef;
use guest::{Guest, LabError, Patched, Release, require};
use serde_json::Value;

/// One guest at a time: they have the same processors.
static TURN: Mutex<()> = Mutex::new(());

/// Rounds on this volume in one guest until something was moved, at most six: nothing may be found.
fn round(release: Release, volume: &str) {
    round_in(Guest::with(release), release, volume);
}

/// The same, where there is such a guest.
fn round_in(guest: Result<Guest, LabError>, release: Release, volume: &str) {
    // A volume's name begins with its file system's.
    let kind = volume.split('-').next().unwrap_or(volume);
    for program in ["mkfs.xfs", &format!("mkfs.{kind}")] {
        if !scratch_fs::require_program(program) {
            return;
        }
    }
    if require(guest).is_none() {
        return;
    }
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let rounds = hammer(release, volume);
    for round in &rounds {
        let found = round["violations"].as_array().unwrap();
        assert!(found.is_empty(), "{volume} on {release}: {found:#?}");
        assert!(round["states"].as_u64().unwrap() >= 5);
    }
    let shown = rounds.iter().any(|round| round["void"] == false);
    let in_doubt: u64 = { rounds.iter() }
        .map(|round| round["in_doubt"].as_u64().unwrap())
        .sum();
    assert!(
        shown && in_doubt > 0,
        "{volume} on {release}: moved at all: {shown}, values in doubt: {in_doubt}"
    );
}

fn hammer(release: Release, volume: &str) -> Vec<Value> {
    // On an emulated processor the mover needs this long to get something moved in the first round;
    // more rounds take longer than waits do.
    let slow = if volume.ends_with("-offload") {
        "20"
    } else {
        "8"
    };
    let output = Command::new(env!("CARGO_BIN_EXE_hammer"))
        .args([
            "run",
            "--json",
            "--kernel",
            release.name(),
            "--volume",
            volume,
        ])
        .args(["--states", "4", "--seed", "5", "--rounds", "6"])
        .args(["--until-shown", "--slow", slow, "--indef"])
        .arg(indef())
        .current_dir(source_tree::root())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    eprintln!("{said}");
    assert!(matches!(output.status.code(), Some(0 | 1)), "{said}");
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    document["rounds"].as_array().unwrap().clone()
}

#[test]
fn vm_6_12_round_ext4() {
    round(Release::Linux6_12, "ext4");
}

#[test]
fn vm_newest_round_ext4() {
    round(Release::Newest, "ext4");
}

#[test]
fn vm_6_12_round_f2fs() {
    round(Release::Linux6_12, "f2fs");
}

#[test]
fn vm_6_1_round_f2fs() {
    round(Release::Linux6_1, "f2fs");
}

#[test]
fn vm_6_12_round_f2fs_compact() {
    round(Release::Linux6_12, "f2fs-compact");
}

#[test]
fn vm_6_12_round_xfs_offload() {
    if scratch_fs::require_xfsprogs().is_none() {
        return;
    }
    round(Release::Linux6_12, "xfs-offload");
}

fn round_f2fs_offload(release: Release) {
    let guest = Guest::with(release).and_then(|guest| guest.with_patched(Patched::F2fs));
    round_in(guest, release, "f2fs-offload");
}

#[test]
fn vm_6_12_round_f2fs_offload() {
    round_f2fs_offload(Release::Linux6_12);
}

#[test]
fn vm_6_1_round_f2fs_offload() {
    round_f2fs_offload(Release::Linux6_1);
}
