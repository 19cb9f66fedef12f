//! A short round on each volume with fixed seeds, and whether the hammer finds what is known to be
//! wrong. They need root. `INDEF` names the indef to hammer; without it the workspace's is built.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Stdio},
    sync::{Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use crate::indef::indef;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

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
        .current_dir(source_tree::root())
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
    round_on("image", volume);
}

fn round_on(medium: &str, volume: &str) {
    for program in ["mkfs.xfs", "mkfs.btrfs", "mkfs.ext4"] {
        if !scratch_fs::require_program(program) {
            return;
        }
    }
    if ["xfs-commit", "xfs-unshare", "xfs-compact-commit"].contains(&volume)
        && scratch_fs::require_xfsprogs().is_none()
    {
        return;
    }
    if medium == "cache" && !Path::new("/dev/fuse").exists() {
        scratch_fs::skip("this kernel has no FUSE");
        return;
    }
    let indef = indef().to_str().unwrap();
    // Each has several states where there is a volatile cache.
    let cuts = if medium == "cache" { "3" } else { "6" };
    let arguments = ["--volume", volume, "--medium", medium];
    // To choose a region takes a while, on XFS in part by waiting.
    let slow = if volume.contains("compact") { 4 } else { 1 };
    let how = ["--states", cuts, "--indef", indef];
    let arguments = [&arguments[..], &how].concat();
    // Less than this would show nothing.
    let enough = |rounds: &[Value]| {
        let states = sum(rounds, "states");
        let several = medium != "cache" || states > sum(rounds, "cuts") + 1;
        let doubts = sum(rounds, "in_doubt") > 0;
        sum(rounds, "bytes_moved") > 0 && states >= 7 && several && doubts
    };
    let Some(rounds) = until_slower(&arguments, slow, enough) else {
        return;
    };
    let found = violations(&rounds);
    assert!(found.is_empty(), "{volume}: {found:#?}");
    assert!(enough(&rounds), "{volume} showed nothing: {rounds:#?}");
}

/// Rounds of the seeds from 3 on, at most `MOST`, until they are `enough`.
fn until(arguments: &[&str], enough: impl Fn(&[Value]) -> bool) -> Option<Vec<Value>> {
    until_slower(arguments, 1, enough)
}

/// The same, so many times slower: the first round. Later ones have more time, since the machine may be too busy for what
/// was to be seen in the last one.
fn until_slower(
    arguments: &[&str],
    slow: u64,
    enough: impl Fn(&[Value]) -> bool,
) -> Option<Vec<Value>> {
    const MOST: u64 = 6;
    let mut rounds = Vec::new();
    for round in 0..MOST {
        let (seed, slow) = (
            (3 + round).to_string(),
            (slow * (1 + round / 2)).to_string(),
        );
        let how = ["--seed", &seed, "--slow", &slow];
        rounds.extend(hammer(&[arguments, &how].concat())?);
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
fn loop_round_xfs_dedupe() {
    round("xfs-dedupe");
}

#[test]
fn loop_round_xfs_commit() {
    round("xfs-commit");
}

#[test]
fn loop_round_xfs_unshare() {
    round("xfs-unshare");
}

#[test]
fn loop_round_xfs_share() {
    round("xfs-share");
}

#[test]
fn loop_round_xfs_share_named() {
    round("xfs-share-named");
}

#[test]
fn loop_round_ext4_compact() {
    round("ext4-compact");
}

#[test]
fn loop_round_xfs_compact_dedupe() {
    round("xfs-compact-dedupe");
}

#[test]
fn loop_round_xfs_compact_commit() {
    round("xfs-compact-commit");
}

#[test]
fn loop_round_btrfs() {
    round("btrfs");
}

#[test]
fn loop_round_btrfs_share() {
    round("btrfs-share");
}

#[test]
fn loop_round_btrfs_reclaim() {
    round("btrfs-reclaim");
}

#[test]
fn loop_round_btrfs_compact() {
    round("btrfs-compact");
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
fn loop_cache_round_ext4() {
    round_on("cache", "ext4");
}

#[test]
fn loop_cache_round_ext4_compact() {
    round_on("cache", "ext4-compact");
}

#[test]
fn loop_cache_round_ext4_1k() {
    round_on("cache", "ext4-1k");
}

#[test]
fn loop_cache_round_xfs_share() {
    round_on("cache", "xfs-share");
}

#[test]
fn loop_cache_round_xfs_swap() {
    round_on("cache", "xfs-swap");
}

#[test]
fn loop_cache_round_xfs_dedupe_rmap() {
    round_on("cache", "xfs-dedupe-rmap");
}

#[test]
fn loop_cache_round_xfs_commit() {
    round_on("cache", "xfs-commit");
}

#[test]
fn loop_cache_round_btrfs() {
    round_on("cache", "btrfs");
}

#[test]
fn loop_cache_round_btrfs_compact() {
    round_on("cache", "btrfs-compact");
}

#[test]
fn loop_cache_round_btrfs_raid1() {
    round_on("cache", "btrfs-raid1");
}

/// A file system that is not told of the cache flushes nothing, and what it acknowledged is lost: the same
/// rounds without a mover in which otherwise nothing is found.
#[test]
fn loop_a_cache_that_nobody_flushes_is_found() {
    if !Path::new("/dev/fuse").exists() {
        scratch_fs::skip("this kernel has no FUSE");
        return;
    }
    // Not while the power is on, and of a file system that is whole: it mounts.
    let lost = |text: &&str| {
        let at_cut = text.starts_with("cut ") && text.contains(", Durable: ");
        at_cut && (text.contains("allowed") || text.contains("it is gone"))
    };
    for volume in ["ext4", "xfs-swap", "btrfs"] {
        let on = |medium| {
            let arguments = ["--volume", volume, "--medium", medium, "--states", "2"];
            [&arguments[..], &["--mover", "none", "--window", "0"]].concat()
        };
        let told = hammer(&[&on("cache")[..], &["--seed", "1"]].concat());
        // On a busy machine little may be acknowledged before a cut.
        let enough = |rounds: &[Value]| violations(rounds).iter().any(lost);
        let (Some(told), Some(untold)) = (told, until(&on("cache-untold"), enough)) else {
            return;
        };
        let found = violations(&told);
        assert!(found.is_empty(), "{volume}: {found:#?}");
        let found = violations(&untold);
        assert!(found.iter().any(lost), "{volume}: {found:#?}");
        let live = found.iter().any(|text| text.starts_with("quiet end"));
        assert!(!live, "{volume}: {found:#?}");
    }
}

#[test]
fn loop_nobody_moves_and_nothing_is_found() {
    for volume in ["ext4", "xfs-swap", "btrfs"] {
        let arguments = ["--volume", volume, "--medium", "image", "--seed", "1"];
        let arguments = [&arguments[..], &["--states", "6"]].concat();
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
        let arguments = ["--volume", volume, "--medium", "image", "--states", "6"];
        let arguments = [&arguments[..], &["--indef", program]].concat();
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
    let arguments = ["--volume", "ext4", "--medium", "image", "--states", "8"];
    let arguments = [&arguments[..], &["--mood", "everything"]].concat();
    let Some(rounds) = until(&[&arguments[..], &["--indef", program]].concat(), zeroes) else {
        return;
    };
    assert!(zeroes(&rounds), "{:#?}", violations(&rounds));
}

/// A signal, twice as timeout(1) sends it, in the midst of a round: it ends, says so, and nothing is left.
#[test]
fn loop_a_signal_ends_a_round_in_order() {
    if !rustix::process::geteuid().is_root() {
        scratch_fs::skip("it needs root");
        return;
    }
    let media: &[&str] = if Path::new("/dev/fuse").exists() {
        &["image", "cache"]
    } else {
        &["image"]
    };
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    for medium in media {
        let folder = tempfile::tempdir().unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_hammer"))
            .args(["run", "--json", "--volume", "ext4", "--medium", medium])
            .args(["--states", "500", "--mover", "none", "--folder"])
            .arg(folder.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let loops = || {
            let said = Command::new("losetup").arg("--all").output().unwrap();
            let said = String::from_utf8(said.stdout).unwrap();
            said.matches(folder.path().to_str().unwrap()).count()
        };
        // The outer file system's, and the volume's.
        let begun = Instant::now();
        while loops() < 2 {
            assert!(begun.elapsed() < Duration::from_secs(60), "{medium}");
            thread::sleep(Duration::from_millis(20));
        }
        thread::sleep(Duration::from_secs(1));
        let pid = Pid::from_child(&child);
        kill_process(pid, Signal::TERM).unwrap();
        kill_process(pid, Signal::TERM).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(143), "{medium}");
        let document: Value = serde_json::from_slice(&output.stdout).unwrap();
        let round = &document["rounds"][0];
        assert_eq!(round["interrupted"], true, "{medium}");
        assert_eq!(round["violations"].as_array().unwrap().len(), 0);
        assert_eq!(loops(), 0, "{medium}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "{medium}");
    }
}
