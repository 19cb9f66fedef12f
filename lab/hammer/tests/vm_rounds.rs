//! Short rounds in guests, on kernels and file systems that the running kernel is not or has not. Fixed
//! seeds; `INDEF` names the indef to hammer, without it the workspace's is built.

mod indef;

use std::{
    process::Command,
    sync::{Mutex, PoisonError},
};

use guest::{Guest, LabError, Patched, Release, require};
use indef::indef;
use serde_json::Value;

/// One guest at a time: they have the same processors.
static TURN: Mutex<()> = Mutex::new(());

/// Rounds on this volume until something was moved, at most six: nothing may be found.
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
    let (mut shown, mut in_doubt) = (false, 0);
    for seed in ["5", "6", "7", "8", "9", "10"] {
        let round = hammer(release, volume, seed);
        let found = round["violations"].as_array().unwrap();
        assert!(found.is_empty(), "{volume} on {release}: {found:#?}");
        let count = |name: &str| round[name].as_u64().unwrap();
        assert!(count("states") >= 5);
        shown |= round["void"] == false;
        in_doubt += count("in_doubt");
        if shown && in_doubt > 0 {
            return;
        }
    }
    panic!("{volume} on {release}: moved at all: {shown}, values in doubt: {in_doubt}");
}

fn hammer(release: Release, volume: &str, seed: &str) -> Value {
    let output = Command::new(env!("CARGO_BIN_EXE_hammer"))
        .args([
            "run",
            "--json",
            "--kernel",
            release.name(),
            "--volume",
            volume,
        ])
        .args(["--states", "4", "--seed", seed, "--indef"])
        .arg(indef())
        .current_dir(source_tree::root())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    eprintln!("{said}");
    assert!(matches!(output.status.code(), Some(0 | 1)), "{said}");
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    document["rounds"][0].clone()
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
