//! Files that share their data with reflinks and snapshots, by the command line.

use std::{
    fs::{self, File},
    io::Write,
    os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, chown},
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use crate::common::{
    ForAnybody, NOBODY, Run, btrfs_progs, fragments, hashes, indef, make, scratch,
};
use indef_core::layout::{ExtentFlags, Layout};
use indef_fs::{Mapper, map};
use linux_abi::share::{Compared, dedupe_range};
use scratch_fs::{ScratchFs, reflink, require, uncut};
use serde_json::Value;
use units::{Bytes, FileRange};
use workloads::Numbers;

/// Bytes of the files below that they have alone (`btrfs filesystem du`).
fn exclusive(path: &Path) -> u64 {
    let output = Command::new("btrfs")
        .args(["filesystem", "du", "--raw", "-s"])
        .arg(path)
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let numbers = text.lines().last().unwrap();
    numbers.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Each worker moves what it comes to first. Of a file with nothing left to move, the reason is that it moved along.
fn tells_what_moved_along(document: &Value, names: &[&str]) {
    let files = document["files"].as_array().unwrap();
    for name in names {
        let is_it = |file: &&Value| file["path"].as_str().unwrap().ends_with(name);
        let file = files.iter().find(is_it).unwrap();
        let is_told = file["status"] == "moved" || file["reason"] == "moved-along";
        assert!(is_told, "{name}: {document}");
    }
}

/// Two files of a tree share their data with each other and with a snapshot: workers that want both at the same time
/// move it once.
#[test]
fn loop_what_files_of_btrfs_share_moves_once_and_stays_shared() {
    uncut(|| what_files_of_btrfs_share_leaves().is_none_or(|left| left <= 24));
}

/// The most fragments that a file is left in.
fn what_files_of_btrfs_share_leaves() -> Option<u64> {
    let mut scratch = scratch("btrfs")?;
    let (dir, snap) = (scratch.path().join("sub"), scratch.path().join("snap"));
    btrfs_progs(&["-q", "subvolume", "create"], &[&dir]);
    let files = ["a", "b"].map(|name| dir.join(name));
    make(&files[0], Bytes::mib(24), Bytes::kib(8));
    reflink(&files[0], &files[1]).unwrap();
    make(&dir.join("alone"), Bytes::mib(2), Bytes::kib(8));
    btrfs_progs(&["-q", "subvolume", "snapshot", "-r"], &[&dir, &snap]);
    make(&dir.join("later"), Bytes::mib(2), Bytes::kib(8));
    scratch.remount().unwrap();
    let contents = hashes(scratch.path());
    let used = scratch.used().unwrap();

    let scanned = indef().args(["scan", "--json"]).arg(&dir).ran().json();
    assert_eq!(scanned["verdict"]["kind"], "worth-moving", "{scanned}");
    let foreseen = indef().args(["plan", "--json"]).arg(&dir).ran().json();
    let cost = foreseen["totals"]["cost_bytes"].as_u64().unwrap();
    let ran = indef().args(["run", "--json"]).arg(&dir).ran();
    assert_eq!(ran.status, 0, "{ran:?}");
    let document = ran.json();
    let of = |name: &str| {
        let files = document["files"].as_array().unwrap();
        let found = files.iter().find(|file| {
            let path = file["path"].as_str().unwrap();
            path.ends_with(name)
        });
        found.unwrap_or_else(|| panic!("{name}: {document}"))
    };
    assert_eq!(of("/alone")["engine"], "btrfs-share-range");
    assert_eq!(of("/alone")["holders"], 1);
    assert_eq!(of("/later")["engine"], "btrfs-defrag-range");
    let moved = document["totals"]["bytes_relocated"].as_u64().unwrap();
    assert_eq!(
        moved,
        28 << 20,
        "what two files share moves once: {document}"
    );
    assert!(moved <= cost, "{foreseen}");
    tells_what_moved_along(&document, &["/a", "/b"]);

    scratch.remount().unwrap();
    assert_eq!(hashes(scratch.path()), contents);
    let now = scratch.used().unwrap();
    assert!(now <= used + Bytes::mib(1), "{used} used before, {now} now");
    assert_eq!(exclusive(&snap), 0);
    let left = [&files[0], &files[1], &snap.join("a"), &snap.join("b")].map(|file| fragments(file));
    assert!(left.iter().all(|left| *left < 3072 / 8), "{left:?}");
    if left[0] <= 24 {
        let again = indef().args(["run", "--json"]).arg(&dir).ran().json();
        assert_eq!(again["totals"]["bytes_relocated"], 0, "{again}");
    }
    scratch.fsck().unwrap();
    left.into_iter().max()
}

/// Used bytes of metadata, with all copies, after a commit.
fn metadata(root: &Path) -> u64 {
    btrfs_progs(&["filesystem", "sync"], &[root]);
    let usage = Command::new("btrfs")
        .args(["filesystem", "usage", "-b"])
        .arg(root)
        .output()
        .unwrap();
    let text = String::from_utf8(usage.stdout).unwrap();
    let line = text
        .lines()
        .find(|line| line.starts_with("Metadata,"))
        .unwrap();
    let used = line.split("Used:").nth(1).unwrap();
    let used: u64 = used.split_whitespace().next().unwrap().parse().unwrap();
    used * if line.starts_with("Metadata,DUP") {
        2
    } else {
        1
    }
}

/// Small files of which each snapshot would get leaves of its own stay: that would take many times what moves.
#[test]
fn loop_snapshots_of_many_small_files_get_no_metadata_of_their_own() {
    const FILES: u64 = 1000;
    const SNAPSHOTS: u64 = 50;
    let made = ScratchFs::builder("btrfs", Bytes::gib(2)).build();
    let Some(scratch) = require(made) else {
        return;
    };
    let dir = scratch.path().join("sub");
    btrfs_progs(&["-q", "subvolume", "create"], &[&dir]);
    let open = |n: u64| {
        let mut options = fs::OpenOptions::new();
        options
            .create(true)
            .append(true)
            .open(dir.join(format!("{n}")))
            .unwrap()
    };
    // The second half of each file is written after the first halves of all.
    for half in 0..2 {
        (0..FILES).for_each(|n| open(n).write_all(&[half; 8 << 10]).unwrap());
        scratch.sync().unwrap();
    }
    make(&dir.join("large"), Bytes::mib(8), Bytes::kib(8));
    for n in 0..SNAPSHOTS {
        let snap = scratch.path().join(format!("snap{n}"));
        btrfs_progs(&["-q", "subvolume", "snapshot", "-r"], &[&dir, &snap]);
    }
    let before = metadata(scratch.path());
    let ran = indef()
        .args(["run", "--json", "--policy", "whole"])
        .arg(&dir)
        .ran();
    assert_eq!(ran.status, 0, "{ran:?}");
    let document = ran.json();
    let files = document["files"].as_array().unwrap();
    let stayed = files
        .iter()
        .filter(|file| file["reason"] == "metadata-cost");
    let (stayed, after) = (stayed.count() as u64, metadata(scratch.path()));
    eprintln!("{stayed} of {FILES} stayed, {before} B of metadata before, {after} B after");
    assert!(stayed > FILES * 9 / 10, "{stayed}: {document}");
    let large = files
        .iter()
        .find(|file| file["path"].as_str().unwrap().ends_with("large"));
    assert_eq!(large.unwrap()["status"], "moved");
    // Less than the large file has.
    assert!(after < before + (8 << 20), "{before}, then {after}");
}

/// A subvolume with one file, and snapshots of it, every other one read-only.
fn with_snapshots(scratch: &ScratchFs, size: Bytes, snapshots: usize) -> PathBuf {
    let dir = scratch.path().join("sub");
    btrfs_progs(&["-q", "subvolume", "create"], &[&dir]);
    make(&dir.join("file"), size, Bytes::kib(8));
    for n in 0..snapshots {
        let snap = scratch.path().join(format!("snap{n}"));
        let how: &[&str] = match n % 2 {
            0 => &["-q", "subvolume", "snapshot", "-r"],
            _ => &["-q", "subvolume", "snapshot"],
        };
        btrfs_progs(how, &[&dir, &snap]);
    }
    scratch.sync().unwrap();
    dir
}

/// The sum of a plan or run by this name.
fn total(document: &Value, name: &str) -> u64 {
    let sum = document["totals"][name].as_u64();
    sum.unwrap_or_else(|| panic!("{name}: {document}"))
}

/// What a plan says is what a run does: the same ranges, and no more metadata.
#[test]
fn loop_a_plan_tells_the_price_of_what_is_shared_and_a_run_keeps_to_it() {
    for (snapshots, size) in [(1, 24), (10, 16), (100, 8)] {
        let Some(mut scratch) = scratch("btrfs") else {
            return;
        };
        let dir = with_snapshots(&scratch, Bytes::mib(size), snapshots);
        let contents = hashes(scratch.path());
        let before = metadata(scratch.path());
        let folder = tempfile::tempdir().unwrap();
        let kept = folder.path().join("night.plan");
        let planned = indef()
            .args(["plan", "--json", "-o"])
            .args([&kept, &dir])
            .ran();
        assert_eq!(planned.status, 0, "{planned:?}");
        let plan = planned.json();
        let price = total(&plan, "metadata_bytes");
        let data = total(&plan, "cost_bytes") - price;
        assert!(price > 0 && price <= data, "{snapshots}: {price}");
        assert_eq!(data, size << 20, "{snapshots}");
        let chunks = plan["chunks"].as_array().unwrap();
        assert!(chunks.iter().all(|chunk| chunk["holders"] == snapshots));
        let ran = indef().args(["run", "--json", "--plan"]).arg(&kept).ran();
        assert_eq!(ran.status, 0, "{ran:?}");
        let result = ran.json();
        assert_eq!(total(&result, "bytes_relocated"), data, "{result}");
        assert_eq!(
            result["files"][0]["engine"], "btrfs-share-range",
            "{result}"
        );
        assert_eq!(result["files"][0]["holders"], snapshots, "{result}");
        scratch.remount().unwrap();
        let grown = metadata(scratch.path()).saturating_sub(before);
        eprintln!("{snapshots} snapshots: {price} B of metadata planned, {grown} B grown");
        assert!(
            grown <= price,
            "{snapshots}: {grown} B, {price} B were planned"
        );
        assert_eq!(hashes(scratch.path()), contents, "{snapshots}");
        assert_eq!(exclusive(&dir), 0, "{snapshots}");
        let again = indef().args(["plan", "--json"]).arg(&dir).ran().json();
        assert_eq!(total(&again, "cost_bytes"), 0, "{snapshots}: {again}");
        scratch.fsck().unwrap();
    }
}

/// Snapshots that are made after the plan would get metadata that it does not know of: a run writes no more than it said.
#[test]
fn loop_holders_that_a_plan_does_not_know_of_get_no_more_than_it_said() {
    let Some(scratch) = scratch("btrfs") else {
        return;
    };
    let dir = with_snapshots(&scratch, Bytes::mib(8), 1);
    let folder = tempfile::tempdir().unwrap();
    let kept = folder.path().join("night.plan");
    let planned = indef()
        .args(["plan", "--json", "-o"])
        .args([&kept, &dir])
        .ran();
    assert!(
        total(&planned.json(), "cost_bytes") > 8 << 20,
        "{planned:?}"
    );
    for n in 0..40 {
        let snap = scratch.path().join(format!("later{n}"));
        btrfs_progs(&["-q", "subvolume", "snapshot", "-r"], &[&dir, &snap]);
    }
    let many = fragments(&dir.join("file"));
    let result = indef().args(["run", "--json", "--plan"]).arg(&kept).ran();
    let result = result.json();
    assert_eq!(result["files"][0]["reason"], "beyond-plan", "{result}");
    assert_eq!(total(&result, "bytes_host_written"), 0, "{result}");
    assert_eq!(fragments(&dir.join("file")), many);
}

/// A file of which parts are shared and others are not moves as a whole; and where the shared ones have to stay, the
/// others move all the same, also in files without copy-on-write.
#[test]
fn loop_parts_that_nobody_shares_move_with_those_that_are_shared() {
    let Some(mut scratch) = scratch("btrfs") else {
        return;
    };
    let dir = scratch.path().join("sub");
    btrfs_progs(&["-q", "subvolume", "create"], &[&dir]);
    // Files there are written in place, and share with such files only.
    let places = [dir.join("nocow"), scratch.path().join("nocow")];
    for place in &places {
        fs::create_dir(place).unwrap();
        let flags = rustix::fs::IFlags::NOCOW;
        rustix::fs::ioctl_setflags(File::open(place).unwrap(), flags).unwrap();
    }
    let [plain, pinned] = ["plain", "pinned"].map(|name| dir.join(name));
    let in_place = places[0].join("in-place");
    let clones = [("a", &plain), ("b", &pinned), ("nocow/c", &in_place)];
    for (name, path) in clones {
        make(path, Bytes::mib(8), Bytes::kib(8));
        let clone = scratch.path().join(name);
        reflink(path, &clone).unwrap();
        // The other half is the file's own.
        let clone = File::options().write(true).open(&clone).unwrap();
        clone.set_len(4 << 20).unwrap();
    }
    let holder = File::open(scratch.path().join("b")).unwrap();
    rustix::fs::ioctl_setflags(&holder, rustix::fs::IFlags::IMMUTABLE).unwrap();
    drop(holder);
    scratch.sync().unwrap();
    let contents = hashes(scratch.path());
    let plan = indef().args(["plan", "--json"]).arg(&dir).ran().json();
    let planned = |path: &Path, reason: Option<&str>| -> u64 {
        let chunks = plan["chunks"].as_array().unwrap().iter();
        let of = chunks.filter(|chunk| {
            chunk["path"] == path.to_str().unwrap() && chunk["reason"].as_str() == reason
        });
        of.map(|chunk| chunk["len_bytes"].as_u64().unwrap()).sum()
    };
    assert_eq!(planned(&plain, None), 8 << 20, "{plan}");
    for (path, reason) in [(&pinned, "holders-unreachable"), (&in_place, "shared")] {
        assert_eq!(planned(path, None), 4 << 20, "{plan}");
        assert_eq!(planned(path, Some(reason)), 4 << 20, "{plan}");
    }
    let ran = indef().args(["run", "--json"]).arg(&dir).ran();
    assert_eq!(ran.status, 0, "{ran:?}");
    let result = ran.json();
    assert_eq!(total(&result, "bytes_relocated"), 16 << 20, "{result}");
    scratch.remount().unwrap();
    assert_eq!(hashes(scratch.path()), contents);
    assert!(fragments(&plain) <= 64, "{}", fragments(&plain));
    for path in [&pinned, &in_place] {
        let left = fragments(path);
        assert!((512..640).contains(&left), "{}: {left}", path.display());
    }
    for name in ["a", "b"] {
        assert_eq!(exclusive(&scratch.path().join(name)), 0, "{name}");
    }
    let again = indef().args(["run", "--json"]).arg(&dir).ran().json();
    assert_eq!(total(&again, "bytes_relocated"), 0, "{again}");
    let holder = File::open(scratch.path().join("b")).unwrap();
    rustix::fs::ioctl_setflags(&holder, rustix::fs::IFlags::empty()).unwrap();
    drop(holder);
    scratch.fsck().unwrap();
}

/// `--allow-unshare` moves the file alone, as it says.
#[test]
fn loop_sharing_is_given_up_on_request_only() {
    let Some(mut scratch) = scratch("btrfs") else {
        return;
    };
    let dir = with_snapshots(&scratch, Bytes::mib(4), 2);
    let snapshot = scratch.path().join("snap0/file");
    let many = fragments(&snapshot);
    let ran = indef()
        .args(["run", "--json", "--allow-unshare"])
        .arg(&dir)
        .ran();
    let result = ran.json();
    assert_eq!(
        result["files"][0]["engine"], "btrfs-defrag-range",
        "{result}"
    );
    assert_eq!(total(&result, "bytes_relocated"), 4 << 20, "{result}");
    scratch.remount().unwrap();
    assert_eq!(exclusive(&dir), 4 << 20);
    assert_eq!(fragments(&snapshot), many);
}

/// The files of a snapshot that is read-only move with others, and are not planned by themselves.
#[test]
fn loop_a_plan_of_a_read_only_snapshot_says_that_it_is() {
    let Some(scratch) = scratch("btrfs") else {
        return;
    };
    with_snapshots(&scratch, Bytes::mib(2), 1);
    let snapshot = scratch.path().join("snap0");
    let plan = indef().args(["plan", "--json"]).arg(&snapshot).ran().json();
    assert_eq!(total(&plan, "cost_bytes"), 0, "{plan}");
    assert_eq!(plan["chunks"][0]["reason"], "read-only-mount", "{plan}");
}

/// Where a file lies.
fn layout(path: &Path) -> Layout {
    let (file, all) = (File::open(path).unwrap(), FileRange::new(0, u64::MAX));
    map(&file, path, all, true, &mut Mapper::default()).unwrap()
}

/// Whether others share all of a file.
fn is_shared(layout: &Layout) -> bool {
    let shared = |flags: ExtentFlags| flags.contains(ExtentFlags::SHARED);
    layout.extents().iter().all(|extent| shared(extent.flags))
}

/// Times and size.
fn facts(path: &Path) -> [i64; 7] {
    let status = fs::symlink_metadata(path).unwrap();
    [
        status.size() as i64,
        status.atime(),
        status.atime_nsec(),
        status.mtime(),
        status.mtime_nsec(),
        status.ctime(),
        status.ctime_nsec(),
    ]
}

/// The result of the file with this name.
fn of<'a>(document: &'a Value, name: &str) -> &'a Value {
    let files = document["files"].as_array().unwrap();
    let found = (files.iter()).find(|file| file["path"].as_str().unwrap().ends_with(name));
    found.unwrap_or_else(|| panic!("{name}: {document}"))
}

/// Reflinks on XFS, also such that the run is not told of, get the blocks of one copy. A plan says so, and what nobody
/// shares moves as ever.
#[test]
fn loop_what_files_of_xfs_share_moves_once_and_stays_shared() {
    let Some(mut scratch) = scratch("xfs") else {
        return;
    };
    let dir = scratch.path().join("data");
    fs::create_dir(&dir).unwrap();
    let files = [
        dir.join("a"),
        dir.join("b"),
        scratch.path().join("elsewhere"),
    ];
    make(&files[0], Bytes(24 << 20 | 1234), Bytes::kib(8));
    reflink(&files[0], &files[1]).unwrap();
    reflink(&files[0], &files[2]).unwrap();
    // One has a block of its own in the midst, and is longer.
    let other = scratch.path().join("other");
    reflink(&files[0], &other).unwrap();
    let written = File::options().write(true).open(&other).unwrap();
    written.write_all_at(&[7; 4096], 5 << 20).unwrap();
    written.write_all_at(&[8; 100], 24 << 20 | 4096).unwrap();
    drop(written);
    make(&dir.join("later"), Bytes::mib(2), Bytes::kib(8));
    scratch.remount().unwrap();
    let contents = hashes(scratch.path());
    let all = [&files[0], &files[1], &files[2], &other];
    let before = all.map(|path| facts(path));
    let free = scratch.free().unwrap().get();

    let scanned = indef().args(["scan", "--json"]).arg(&dir).ran().json();
    assert_eq!(scanned["verdict"]["kind"], "worth-moving", "{scanned}");
    let foreseen = indef().args(["plan", "--json"]).arg(&dir).ran().json();
    let cost = total(&foreseen, "cost_bytes");
    assert_eq!(total(&foreseen, "metadata_bytes"), 0, "{foreseen}");
    let chunks = foreseen["chunks"].as_array().unwrap();
    let shared = chunks.iter().filter(|chunk| !chunk["holders"].is_null());
    assert!(shared.clone().count() > 0, "{foreseen}");
    assert!(
        shared.into_iter().all(|chunk| chunk["holders"] == 3),
        "{foreseen}"
    );
    let ran = indef().args(["run", "--json"]).arg(&dir).ran();
    assert_eq!(ran.status, 0, "{ran:?}");
    let document = ran.json();
    let engines = [of(&document, "/a"), of(&document, "/b")].map(|file| file["engine"].as_str());
    assert!(engines.contains(&Some("xfs-share-range")), "{document}");
    assert_eq!(
        of(&document, "/later")["engine"],
        "xfs-dedupe-range",
        "{document}"
    );
    let holders = ["/a", "/b"].map(|name| of(&document, name)["holders"].as_u64());
    assert!(holders.contains(&Some(3)), "{document}");
    let moved = total(&document, "bytes_relocated");
    // The last block counts as a whole, and that of the longer file is no longer shared.
    let size = (26 << 20) + 4096;
    assert!(
        (size - 8192..=size).contains(&moved),
        "what two files share moves once: {document}"
    );
    assert!(moved <= cost, "{foreseen}");

    assert_eq!(all.map(|path| facts(path)), before, "times and sizes");
    scratch.remount().unwrap();
    assert_eq!(hashes(scratch.path()), contents);
    let now = scratch.free().unwrap().get();
    assert!(now + (1 << 20) >= free, "{free} free before, {now} now");
    let layouts = all.map(|path| layout(path));
    assert_eq!(layouts[0], layouts[1]);
    assert_eq!(layouts[0], layouts[2]);
    assert!(is_shared(&layouts[0]), "{:?}", layouts[0]);
    for layout in &layouts {
        assert!(layout.fragments() <= 24, "{}", layout.fragments());
    }
    let again = indef().args(["run", "--json"]).arg(&dir).ran().json();
    assert_eq!(total(&again, "bytes_relocated"), 0, "{again}");
    scratch.fsck().unwrap();
}

/// kill -9 while reflinks move, then the file that moves last is written at once, and the power is cut: XFS writes a block
/// in place that only one file has, also if it is not durable yet that the other one has gone.
#[test]
fn loop_a_kill_and_a_power_cut_mix_no_files_of_xfs() {
    let Some(mut scratch) = scratch("xfs") else {
        return;
    };
    let (file, clone) = (scratch.path().join("file"), scratch.path().join("clone"));
    let mut numbers = Numbers::new(7);
    let mut early = 0;
    for _ in 0..8 {
        make(&file, Bytes::mib(4), Bytes::kib(4));
        reflink(&file, &clone).unwrap();
        scratch.sync().unwrap();
        let before = fs::read(&file).unwrap();
        let (looked_at, all) = (File::open(&clone).unwrap(), FileRange::new(0, u64::MAX));
        let many = || {
            // Nothing may be written back for it.
            let now = map(&looked_at, &clone, all, false, &mut Mapper::default());
            now.unwrap().fragments()
        };
        let at_first = many();
        let mut child = indef().args(["run", "--quiet"]).arg(&file).spawn().unwrap();
        // The first unit of the clone has moved, or is moving.
        while many() == at_first && child.try_wait().unwrap().is_none() {
            thread::sleep(Duration::from_millis(1));
        }
        thread::sleep(Duration::from_micros(numbers.below(60_000_u64)));
        early += u64::from(child.try_wait().unwrap().is_none());
        child.kill().unwrap();
        child.wait().unwrap();
        drop(looked_at);
        // In which what a process had open is given back.
        thread::sleep(Duration::from_millis(300));
        write_directly(&file, before.len());
        cut(&mut scratch);
        let after = fs::read(&clone).unwrap();
        let wrong = (0..after.len()).filter(|at| after[*at] != before[*at]);
        assert_eq!(wrong.count(), 0, "bytes of the file, after {early} kills");
        fs::remove_file(&file).unwrap();
        fs::remove_file(&clone).unwrap();
    }
    eprintln!("{early} runs killed");
    assert!(early > 0, "no run was hit");
    scratch.fsck().unwrap();
}

/// An XFS that does not tell who shares.
fn untold() -> Option<ScratchFs> {
    let made = ScratchFs::builder("xfs", Bytes::gib(1)).mkfs_args(["-m", "reflink=1,rmapbt=0"]);
    require(made.build())
}

/// kill -9 while reflinks of which somebody else has the blocks, too, move and go back, then one of them is written at
/// once, and the power is cut.
#[test]
fn loop_a_kill_and_a_power_cut_while_files_of_xfs_go_back_mix_none() {
    let Some(mut scratch) = untold() else {
        return;
    };
    let all = ["file", "clone", "other"].map(|name| scratch.path().join(name));
    let mut numbers = Numbers::new(11);
    let (mut early, mut whole) = (0, Duration::ZERO);
    for round in 0..8 {
        make(&all[0], Bytes::mib(2), Bytes::kib(4));
        reflink(&all[0], &all[1]).unwrap();
        reflink(&all[0], &all[2]).unwrap();
        scratch.sync().unwrap();
        let before = fs::read(&all[0]).unwrap();
        let begun = Instant::now();
        let mut child = indef()
            .args(["run", "--quiet", "--shared-among-paths"])
            .args(&all[..2])
            .spawn()
            .unwrap();
        if round == 0 {
            child.wait().unwrap();
            whole = begun.elapsed();
        } else {
            thread::sleep(Duration::from_micros(
                numbers.below(whole.as_micros() as u64),
            ));
            early += u64::from(child.try_wait().unwrap().is_none());
            child.kill().unwrap();
            child.wait().unwrap();
        }
        // In which what a process had open is given back.
        thread::sleep(Duration::from_millis(200));
        let written = numbers.below(3_u64) as usize;
        write_directly(&all[written], before.len());
        cut(&mut scratch);
        for (number, path) in all.iter().enumerate() {
            let now = fs::read(path).unwrap();
            let wrong = (0..now.len()).filter(|at| now[*at] != before[*at]);
            assert!(
                number == written || wrong.count() == 0,
                "{} has bytes of {}, after {early} kills",
                path.display(),
                all[written].display()
            );
            fs::remove_file(path).unwrap();
        }
    }
    assert!(early > 0, "no run was hit");
    scratch.fsck().unwrap();
}

/// Write a file anew, past the page cache.
fn write_directly(path: &Path, len: usize) {
    let mut memory = vec![0_u8; len + 4096];
    let start = memory.as_ptr().align_offset(4096);
    memory[start..][..len].fill(0x5a);
    let direct = File::options()
        .write(true)
        .custom_flags(rustix::fs::OFlags::DIRECT.bits().cast_signed())
        .open(path)
        .unwrap();
    direct.write_all_at(&memory[start..][..len], 0).unwrap();
}

/// What a power cut leaves.
fn cut(scratch: &mut ScratchFs) {
    let root = File::open(scratch.path()).unwrap();
    linux_abi::shutdown::without_flush(&root).unwrap();
    drop(root);
    scratch.remount().unwrap();
}

/// Where the file system does not tell who shares, files move together that share with nobody but with each other: all of
/// them have to be given. A plan says so.
#[test]
fn loop_what_is_shared_among_the_given_files_moves_on_any_xfs() {
    let Some(mut scratch) = untold() else {
        return;
    };
    let dir = scratch.path().join("data");
    fs::create_dir(&dir).unwrap();
    let elsewhere = scratch.path().join("elsewhere");
    let all = [dir.join("a"), dir.join("b"), elsewhere.clone()];
    make(&all[0], Bytes(6 << 20 | 1234), Bytes::kib(8));
    reflink(&all[0], &all[1]).unwrap();
    reflink(&all[0], &all[2]).unwrap();
    // A file that has one block of it, and nothing else.
    let small = dir.join("small");
    let mut block = [0; 4096];
    let from = File::open(&all[0]).unwrap();
    from.read_exact_at(&mut block, 1 << 20).unwrap();
    fs::write(&small, block).unwrap();
    let to = File::options().read(true).write(true).open(&small).unwrap();
    to.sync_all().unwrap();
    let compared = dedupe_range(&from, 1 << 20, &to, 0, 4096).unwrap();
    assert_eq!(compared, Compared::Shared);
    drop((from, to));
    make(&dir.join("later"), Bytes::mib(2), Bytes::kib(8));
    scratch.remount().unwrap();
    let contents = hashes(scratch.path());
    let (before, places) = (all.clone().map(|path| facts(&path)), layout(&all[0]));
    let free = scratch.free().unwrap().get();
    let run = |options: &[&str], paths: &[&Path]| {
        let command = ["run", "--json"];
        let ran = indef().args(command).args(options).args(paths).ran();
        assert_eq!(ran.status, 0, "{ran:?}");
        ran.json()
    };
    let named = ["--shared-among-paths"];

    // It has to be said.
    let plan = |options: &[&str]| {
        let plan = { indef() }.args(["plan", "--json"]).args(options).ran();
        assert_eq!(plan.status, 0, "{plan:?}");
        plan.json()
    };
    let (given, other) = (dir.to_str().unwrap(), elsewhere.to_str().unwrap());
    let usual = plan(&[given, other]);
    let chunks = usual["chunks"].as_array().unwrap().iter();
    let moving = chunks.filter(|chunk| chunk["decision"] == "migrate");
    let moving: Vec<_> = moving.map(|chunk| chunk["path"].as_str()).collect();
    let later = dir.join("later");
    assert!(!moving.is_empty(), "{usual}");
    assert!(moving.iter().all(|path| *path == later.to_str()), "{usual}");
    assert!(usual["totals"]["skipped"]["shared"] == 3, "{usual}");
    let both = { indef() }
        .args(["run", "--allow-unshare"])
        .args(named)
        .arg(&dir)
        .ran();
    assert_eq!(both.status, 2, "{both:?}");

    // Somebody else has it, too: all stays.
    let vain = run(&named, &[&dir]);
    assert_eq!(total(&vain, "bytes_relocated"), 2 << 20, "{vain}");
    let reasons = ["/a", "/b"].map(|name| of(&vain, name)["reason"].as_str());
    assert!(reasons.contains(&Some("holders-unknown")), "{vain}");
    // What nobody shares, and one try for each file.
    assert!(total(&vain, "bytes_host_written") <= 6 << 20, "{vain}");
    for path in &all {
        assert_eq!(layout(path), places, "{}", path.display());
    }
    assert_eq!(
        all.clone().map(|path| facts(&path)),
        before,
        "times and sizes"
    );

    // Nobody else has it.
    let stored = scratch.path().join("plan");
    let stored = stored.to_str().unwrap();
    let foreseen = plan(&[named[0], given, other, "-o", stored]);
    let cost = total(&foreseen, "cost_bytes");
    let chunks = foreseen["chunks"].as_array().unwrap();
    let holders = chunks.iter().filter_map(|chunk| chunk["holders"].as_u64());
    assert_eq!(holders.max(), Some(3), "{foreseen}");
    // It does not know whether these are all.
    let told = { indef() }
        .args(["plan", given, other])
        .args(named)
        .ran()
        .err;
    let expected = "does not tell who shares: 3 files are planned to move with what the given files share, and \
                    nothing where others have the blocks, too";
    assert!(told.contains(expected), "{told}");
    let moved = run(&["--plan", stored], &[]);
    let engines = ["/a", "/b", "/elsewhere"].map(|name| of(&moved, name)["engine"].as_str());
    assert!(engines.contains(&Some("xfs-share-range")), "{moved}");
    tells_what_moved_along(&moved, &["/a", "/b", "/elsewhere"]);
    let relocated = total(&moved, "bytes_relocated");
    let size = (6 << 20) + 4096;
    assert!((size - 8192..=size).contains(&relocated), "once: {moved}");
    assert!(total(&moved, "bytes_host_written") <= cost, "{moved}");
    fs::remove_file(stored).unwrap();

    let now = all.clone().map(|path| layout(&path));
    assert!(is_shared(&now[0]), "{:?}", now[0]);
    assert!(now[1] == now[0] && now[2] == now[0], "{now:?}");
    assert!(now[0].fragments() <= 6, "{}", now[0].fragments());
    assert!(is_shared(&layout(&small)));
    assert_eq!(
        all.clone().map(|path| facts(&path)),
        before,
        "times and sizes"
    );
    let again = run(&named, &[&dir, &elsewhere]);
    assert_eq!(total(&again, "bytes_host_written"), 0, "{again}");
    scratch.remount().unwrap();
    assert_eq!(hashes(scratch.path()), contents);
    let left = scratch.free().unwrap().get();
    assert!(left + (1 << 20) >= free, "{free} free before, {left} now");
    scratch.fsck().unwrap();
}

/// Where the file system does not tell who shares, or sharing is to be given up, all stays as it was.
#[test]
fn loop_what_xfs_cannot_move_together_stays() {
    let (Some(untold), Some(mut told)) = (untold(), scratch("xfs")) else {
        return;
    };
    for scratch in [&untold, &told] {
        make(&scratch.path().join("file"), Bytes::mib(4), Bytes::kib(8));
        let clone = scratch.path().join("clone");
        reflink(&scratch.path().join("file"), &clone).unwrap();
        // The other half is the file's own.
        let clone = File::options().write(true).open(&clone).unwrap();
        clone.set_len(2 << 20).unwrap();
        scratch.sync().unwrap();
    }
    let run = |scratch: &ScratchFs, options: &[&str]| {
        let file = scratch.path().join("file");
        indef()
            .args(["run", "--json"])
            .args(options)
            .arg(file)
            .ran()
            .json()
    };
    let by_name = run(&untold, &["--engine", "xfs-share-range"]);
    assert_eq!(
        by_name["files"][0]["reason"], "holders-unknown",
        "{by_name}"
    );
    let usual = run(&untold, &[]);
    assert_eq!(usual["files"][0]["engine"], "xfs-dedupe-range", "{usual}");
    let given_up = run(&told, &["--allow-unshare", "--policy", "whole"]);
    assert_eq!(
        given_up["files"][0]["reason"], "keeps-sharing",
        "{given_up}"
    );
    // A holder that cannot be changed: the other half moves.
    let clone = File::open(told.path().join("clone")).unwrap();
    rustix::fs::ioctl_setflags(&clone, rustix::fs::IFlags::IMMUTABLE).unwrap();
    let contents = hashes(told.path());
    let plan = { indef() }
        .args(["plan", "--json"])
        .arg(told.path().join("file"))
        .ran()
        .json();
    let staying = plan["chunks"].as_array().unwrap().iter();
    let staying = staying.filter(|chunk| chunk["reason"] == "holders-unreachable");
    let staying: u64 = staying
        .map(|chunk| chunk["len_bytes"].as_u64().unwrap())
        .sum();
    assert_eq!(staying, 2 << 20, "{plan}");
    let half = run(&told, &[]);
    assert_eq!(total(&half, "bytes_relocated"), 2 << 20, "{half}");
    rustix::fs::ioctl_setflags(&clone, rustix::fs::IFlags::empty()).unwrap();
    drop(clone);
    assert_eq!(hashes(told.path()), contents);
    let left = fragments(&told.path().join("file"));
    assert!((256..300).contains(&left), "{left}");
    // Now it can.
    let rest = run(&told, &[]);
    assert_eq!(total(&rest, "bytes_relocated"), 2 << 20, "{rest}");
    assert!(fragments(&told.path().join("clone")) <= 8);
    assert_eq!(hashes(told.path()), contents);
    told.fsck().unwrap();
}

/// Each holder is read to be compared, which counts like what is written.
#[test]
fn loop_what_is_read_of_holders_counts_in_budget_and_rate() {
    what_is_read_of_holders_counts("btrfs");
}

#[test]
fn loop_what_is_read_of_holders_counts_on_xfs() {
    what_is_read_of_holders_counts("xfs");
}

fn what_is_read_of_holders_counts(kind: &str) {
    let Some(scratch) = scratch(kind) else {
        return;
    };
    let dir = scratch.path().join("data");
    fs::create_dir(&dir).unwrap();
    let path = dir.join("file");
    make(&path, Bytes::mib(8), Bytes::kib(8));
    for n in 0..9 {
        reflink(&path, &scratch.path().join(format!("clone{n}"))).unwrap();
    }
    scratch.sync().unwrap();
    let run = |limit: [&str; 2]| {
        let ran = indef().args(["run", "--json"]).args(limit).arg(&dir).ran();
        assert_eq!(ran.status, 0, "{ran:?}");
        ran.json()
    };
    let limited = run(["--budget", "48MiB"]);
    let moved = limited["totals"]["bytes_relocated"].as_u64().unwrap();
    // 8 MiB for the copy, nine times what moves for the holders.
    assert!((2 << 20..=40 << 20).contains(&(9 * moved)), "{limited}");
    assert_eq!(limited["files"][0]["reason"], "over-budget", "{limited}");
    let begun = Instant::now();
    let paced = run(["--rate", "16MiB"]);
    let rest = paced["totals"]["bytes_relocated"].as_u64().unwrap();
    assert_eq!(rest + moved, 8 << 20, "{paced}");
    let least = Duration::from_secs_f64(10.0 * rest as f64 / f64::from(16 << 20) * 0.8);
    assert!(
        begun.elapsed() > least,
        "{:?} for {rest} B",
        begun.elapsed()
    );
}

#[test]
fn loop_without_root_what_is_shared_stays() {
    ["btrfs", "xfs"]
        .into_iter()
        .for_each(without_root_what_is_shared_stays);
}

fn without_root_what_is_shared_stays(kind: &str) {
    let made = match kind {
        "xfs" => untold(),
        kind => scratch(kind),
    };
    let Some(scratch) = made else {
        return;
    };
    let (file, clone) = (scratch.path().join("file"), scratch.path().join("clone"));
    make(&file, Bytes::mib(2), Bytes::kib(4));
    reflink(&file, &clone).unwrap();
    for path in [&file, &clone, scratch.path()] {
        chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
    }
    let above = scratch.path().parent().unwrap();
    fs::set_permissions(above, fs::Permissions::from_mode(0o755)).unwrap();
    scratch.sync().unwrap();
    let many = fragments(&file);
    for options in [&["--json"][..], &["--json", "--shared-among-paths"][..]] {
        let anybody = ForAnybody::new();
        let mut command = anybody.indef();
        let ran = command.arg("run").args(options).args([&file, &clone]).ran();
        assert_eq!(ran.status, 0, "{ran:?}");
        let document = ran.json();
        assert_eq!(document["files"][0]["status"], "skipped", "{document}");
        assert_eq!(document["files"][0]["reason"], "shared", "{document}");
        assert_eq!(fragments(&file), many);
    }
}
