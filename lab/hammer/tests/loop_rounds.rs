//! A short round on each volume with fixed seeds, and whether the hammer finds what is known to be
//! wrong. They need root. `INDEF` names the indef to hammer; without it the workspace's is built.

use std::{
    env, fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
    sync::{Mutex, OnceLock, PoisonError},
};

use serde_json::Value;

const WORKSPACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// The indef of this workspace, built in the profile of this test.
fn indef() -> &'static Path {
    static INDEF: OnceLock<PathBuf> = OnceLock::new();
    INDEF.get_or_init(|| {
        if let Some(given) = env::var_os("INDEF") {
            return given.into();
        }
        let folder = Path::new(env!("CARGO_BIN_EXE_hammer")).parent().unwrap();
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "--locked", "--package", "indef"]);
        if folder.ends_with("release") {
            cargo.arg("--release");
        }
        let built = cargo.current_dir(WORKSPACE).status().unwrap();
        assert!(built.success(), "indef could not be built");
        folder.join("indef")
    })
}

/// One at a time: what takes long because another one works beside it is no fault.
static ALONE: Mutex<()> = Mutex::new(());

/// The rounds that `hammer run` had, or a reported skip.
fn hammer(arguments: &[&str]) -> Option<Vec<Value>> {
    if !rustix::process::geteuid().is_root() {
        scratch_fs::skip("it needs root");
        return None;
    }
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let output = Command::new(env!("CARGO_BIN_EXE_hammer"))
        .args(["run", "--json"])
        .args(arguments)
        .current_dir(WORKSPACE)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    eprintln!("{said}");
    assert_ne!(output.status.code(), Some(2), "{said}");
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    Some(document["rounds"].as_array().unwrap().clone())
}

fn sum(rounds: &[Value], name: &str) -> u64 {
    rounds
        .iter()
        .map(|round| round[name].as_u64().unwrap())
        .sum()
}

fn violations(rounds: &[Value]) -> Vec<&str> {
    rounds
        .iter()
        .flat_map(|round| round["violations"].as_array().unwrap())
        .map(|violation| violation.as_str().unwrap())
        .collect()
}

/// Rounds of fixed seeds, on a busy machine more than one until something was moved (the timing does
/// not follow from the seed): nothing may be found.
fn round(volume: &str) {
    for program in ["mkfs.xfs", "mkfs.btrfs", "mkfs.ext4"] {
        if !scratch_fs::require_program(program) {
            return;
        }
    }
    if volume == "xfs-commit" && !Path::new(WORKSPACE).join("target/xfsprogs").is_dir() {
        scratch_fs::skip("no mkfs.xfs with the exchange feature; run scripts/xfsprogs");
        return;
    }
    let indef = indef().to_str().unwrap();
    let arguments = ["--volume", volume, "--states", "6", "--indef", indef];
    let Some(rounds) = until(&arguments, |rounds| sum(rounds, "bytes_moved") > 0) else {
        return;
    };
    let found = violations(&rounds);
    assert!(found.is_empty(), "{volume}: {found:#?}");
    assert!(
        sum(&rounds, "bytes_moved") > 0,
        "{volume}: nothing was moved"
    );
    assert!(sum(&rounds, "states") >= 7 && sum(&rounds, "in_doubt") > 0);
}

/// Rounds of the seeds from 3 on, at most `MOST`, until they are `enough`.
fn until(arguments: &[&str], enough: impl Fn(&[Value]) -> bool) -> Option<Vec<Value>> {
    const MOST: u64 = 6;
    let mut rounds = Vec::new();
    for seed in 3..3 + MOST {
        let seed = seed.to_string();
        rounds.extend(hammer(&[arguments, &["--seed", &seed]].concat())?);
        if enough(&rounds) {
            break;
        }
    }
    Some(rounds)
}

/// Whether a block has an older version than may be.
fn older(rounds: &[Value]) -> bool {
    let found = violations(rounds);
    found.iter().any(|text| text.contains("an older version"))
}

#[test]
fn loop_round_ext4() {
    round("ext4");
}

#[test]
fn loop_round_ext4_1k() {
    round("ext4-1k");
}

#[test]
fn loop_round_ext4_writeback() {
    round("ext4-writeback");
}

#[test]
fn loop_round_ext4_5s() {
    round("ext4-5s");
}

#[test]
fn loop_round_xfs_swap() {
    round("xfs-swap");
}

#[test]
fn loop_round_xfs_commit() {
    round("xfs-commit");
}

#[test]
fn loop_round_btrfs() {
    round("btrfs");
}

#[test]
fn loop_round_btrfs_zstd() {
    round("btrfs-zstd");
}

#[test]
fn loop_round_btrfs_nodatacow() {
    round("btrfs-nodatacow");
}

#[test]
fn loop_round_btrfs_raid1() {
    round("btrfs-raid1");
}

#[test]
fn loop_nobody_moves_and_nothing_is_found() {
    for volume in ["ext4", "xfs-swap", "btrfs"] {
        let arguments = ["--volume", volume, "--seed", "1", "--states", "6"];
        let none = ["--mover", "none", "--window", "0"];
        let Some(rounds) = hammer(&[&arguments[..], &none[..]].concat()) else {
            return;
        };
        let found = violations(&rounds);
        assert!(found.is_empty(), "{volume}: {found:#?}");
    }
}

/// A mover that copies a block and puts it back later, over what was written meanwhile.
const LOSES_WRITES: &str = r#"#!/bin/sh
for path; do [ -d "$path" ] && root=$path; done
for file in "$root"/a?/main*; do
  for block in 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do
    dd if="$file" of="$STATE_DIRECTORY.block" bs=64k skip=$block count=1 status=none
    sleep 0.05
    dd if="$STATE_DIRECTORY.block" of="$file" bs=64k seek=$block conv=notrunc status=none
  done
done
echo '{"totals":{"bytes_relocated":1}}'
"#;

#[test]
fn loop_a_mover_that_loses_writes_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("mover");
    fs::write(&program, LOSES_WRITES).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let program = program.to_str().unwrap();
    for volume in ["ext4", "btrfs"] {
        let arguments = ["--volume", volume, "--states", "6", "--indef", program];
        let Some(rounds) = until(&arguments, older) else {
            return;
        };
        assert!(older(&rounds), "{volume}: {:#?}", violations(&rounds));
    }
}

/// A mover that is right while the power is on: it makes a hole and writes the data back.
const UNSAFE_AT_A_CUT: &str = r#"#!/bin/sh
for path; do [ -d "$path" ] && root=$path; done
for block in 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do
  file="$root/still/plain"
  dd if="$file" of="$STATE_DIRECTORY.block" bs=64k skip=$block count=1 status=none
  fallocate -p -o $((block * 65536)) -l 65536 "$file"
  sleep 0.1
  dd if="$STATE_DIRECTORY.block" of="$file" bs=64k seek=$block conv=notrunc status=none
done
echo '{"totals":{"bytes_relocated":1}}'
"#;

#[test]
fn loop_a_mover_that_is_unsafe_at_a_cut_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("mover");
    fs::write(&program, UNSAFE_AT_A_CUT).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let program = program.to_str().unwrap();
    let zeroes = |rounds: &[Value]| {
        let found = violations(rounds);
        let at_cut =
            |text: &&str| text.starts_with("cut ") && text.contains("zeroes, which nobody");
        found.iter().any(at_cut)
    };
    let arguments = ["--volume", "ext4", "--mood", "everything", "--states", "8"];
    let Some(rounds) = until(&[&arguments[..], &["--indef", program]].concat(), zeroes) else {
        return;
    };
    assert!(zeroes(&rounds), "{:#?}", violations(&rounds));
}
