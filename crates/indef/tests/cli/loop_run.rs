//! The whole procedure on real file systems: scan, plan, run, report; contents equal, metadata as
//! before, file system clean, a second run writes next to nothing.

use std::{
    ffi::OsString,
    fs,
    os::unix::{ffi::OsStringExt, fs::MetadataExt},
    path::Path,
    process::Command,
};

use crate::common::{
    ForAnybody, NOBODY, Ran, Run, fragments, hashes, indef, is_root, make, make_several, run,
    scratch,
};
use indef_fs::Mapper;
use scratch_fs::{ScratchFs, Shape, most_left_by_btrfs, reflink};
use units::{Bytes, FileRange};

fn command(arguments: &[&str], path: &Path) -> Ran {
    indef().args(arguments).arg(path).ran()
}

/// Size, the three times and the owner.
fn metadata(path: &Path) -> impl PartialEq + std::fmt::Debug {
    let m = fs::metadata(path).unwrap();
    (
        (m.size(), m.mode(), m.uid(), m.nlink()),
        (m.atime(), m.atime_nsec()),
        (m.mtime(), m.mtime_nsec()),
        (m.ctime(), m.ctime_nsec()),
    )
}

fn whole_way(kind: &str) {
    let Some(mut scratch) = scratch(kind) else {
        return;
    };
    let dir = scratch.path().join("data");
    fs::create_dir(&dir).unwrap();
    let odd = dir.join(OsString::from_vec(b"odd \n\xff name".to_vec()));
    make(&dir.join("large"), Bytes::mib(16), Bytes::kib(4));
    make(&dir.join("x"), Bytes::mib(2), Bytes::kib(16));
    fs::rename(dir.join("x"), &odd).unwrap();
    fs::write(dir.join("fine"), vec![3; 1 << 20]).unwrap();
    fs::write(dir.join("empty"), "").unwrap();
    scratch.remount().unwrap();
    let contents = hashes(&dir);
    let extents = fragments(&dir.join("large"));
    assert!(extents >= 4000, "{extents}");

    let scanned = command(&["scan", "--json"], &dir).json();
    assert_eq!(scanned["totals"]["files"], 4);
    assert_eq!(scanned["totals"]["files_fragmented"], 2);
    let planned = command(&["plan", "--json"], &dir).json();
    for key in [
        "path",
        "start_bytes",
        "len_bytes",
        "reads",
        "writes",
        "dolf",
        "dopf",
        "iodp",
        "decision",
        "reason",
        "cost_bytes",
    ] {
        assert!(
            planned["chunks"][0].get(key).is_some(),
            "{key}: {}",
            planned["chunks"][0]
        );
    }
    let dry = command(&["run", "--json", "--dry-run"], &dir).json();
    assert_eq!(
        (&dry["dry_run"], &dry["totals"]["bytes_relocated"]),
        (&true.into(), &0.into())
    );
    assert_eq!(fragments(&dir.join("large")), extents);

    let ran = command(&["run", "--json"], &dir);
    assert_eq!((ran.status, ran.err.as_str()), (0, ""), "{ran:?}");
    let document = ran.json();
    check_contract(&document);
    assert_eq!(document["totals"]["files_moved"], 2, "{document}");
    assert_eq!(document["totals"]["files_skipped"], 2);
    let relocated = document["totals"]["bytes_relocated"].as_u64().unwrap();
    assert!((18 << 20..=19 << 20).contains(&relocated), "{relocated}");
    assert!(relocated <= planned["totals"]["cost_bytes"].as_u64().unwrap());
    for (file, len, usual) in [(&dir.join("large"), 16, 7), (&odd, 2, 3)] {
        let most = match kind {
            "btrfs" => most_left_by_btrfs(Bytes::mib(len), usual),
            _ => usual,
        };
        let left = fragments(file);
        assert!(left <= most, "{}: {left}", file.display());
    }

    let again = command(&["run", "--json"], &dir).json();
    let second = again["totals"]["bytes_relocated"].as_u64().unwrap();
    assert!(second <= relocated / 100, "a second run writes {second}");

    scratch.fsck().unwrap();
    assert_eq!(hashes(&dir), contents);
}

/// Check every field that scripts read.
fn check_contract(document: &serde_json::Value) {
    assert_eq!(document["schema"], 1);
    let numbers = [
        "bytes_relocated",
        "bytes_host_read",
        "bytes_host_written",
        "bytes_offloaded",
    ];
    for file in document["files"].as_array().unwrap() {
        for key in ["path", "fs", "engine", "status", "reason"] {
            assert!(file.get(key).is_some(), "{key}: {file}");
        }
        for key in numbers.iter().chain(&["extents_before", "extents_after"]) {
            assert!(file[key].is_u64(), "{key}: {file}");
        }
        assert!(["moved", "skipped", "failed"].contains(&file["status"].as_str().unwrap()));
    }
    for key in numbers.iter().chain(&[
        "files_moved",
        "files_skipped",
        "files_failed",
        "duration_ns",
    ]) {
        assert!(
            document["totals"][key].is_u64(),
            "{key}: {}",
            document["totals"]
        );
    }
}

/// With a geometry, data is placed in the device's rows as it lies in the file.
#[test]
fn loop_moved_data_lies_in_the_rows_of_the_geometry() {
    const ROW: u64 = 256 << 10;
    let Some(mut scratch) = scratch("ext4") else {
        return;
    };
    let dir = scratch.path().join("data");
    fs::create_dir(&dir).unwrap();
    // Free space begins in the middle of a row.
    fs::write(dir.join("beside"), vec![7; 36_864]).unwrap();
    make(&dir.join("file"), Bytes::mib(4), Bytes::kib(4));
    let contents = hashes(&dir);
    let geometry = "--geometry=striped:granule=32KiB,dies=8";
    let planned = command(&["plan", geometry], &dir);
    assert!(
        planned.out.contains("rows") && planned.out.contains("256 KiB; data is placed"),
        "{planned:?}"
    );
    let unknown = command(&["plan"], &dir);
    assert!(!unknown.out.contains("rows"), "{unknown:?}");
    let ran = command(&["run", "--json", geometry], &dir).json();
    assert_eq!(ran["totals"]["bytes_relocated"], 4 << 20, "{ran}");
    let path = dir.join("file");
    let file = fs::File::open(&path).unwrap();
    let whole = FileRange::new(0, u64::MAX);
    let layout = indef_fs::map(&file, &path, whole, true, &mut Mapper::default()).unwrap();
    for extent in layout.extents() {
        assert_eq!(extent.phys.0 % ROW, extent.file.0 % ROW, "{extent:?}");
    }
    drop(file);
    scratch.fsck().unwrap();
    assert_eq!(hashes(&dir), contents);
}

/// Nobody but the kernel chooses the place on Btrfs, or of what files share.
#[test]
fn loop_no_rows_are_told_where_the_kernel_chooses_the_place() {
    for kind in ["xfs", "btrfs"] {
        let Some(scratch) = scratch(kind) else {
            return;
        };
        let file = scratch.path().join("file");
        make(&file, Bytes::mib(2), Bytes::kib(4));
        let are_told = || {
            let geometry = "--geometry=striped:granule=32KiB,dies=8";
            let planned = command(&["plan", geometry], scratch.path());
            assert!(!planned.out.contains(" 0 B to write"), "{planned:?}");
            planned.out.contains("data is placed")
        };
        assert_eq!(are_told(), kind == "xfs", "{kind}");
        reflink(&file, &scratch.path().join("clone")).unwrap();
        assert!(!are_told(), "{kind}");
    }
}

#[test]
fn loop_the_whole_way_on_ext4() {
    whole_way("ext4");
}

#[test]
fn loop_the_whole_way_on_xfs() {
    whole_way("xfs");
}

#[test]
fn loop_the_whole_way_on_btrfs() {
    whole_way("btrfs");
}

#[test]
fn loop_the_generic_call_keeps_hashes_and_times() {
    for kind in ["ext4", "xfs", "btrfs"] {
        let Some(mut scratch) = scratch(kind) else {
            return;
        };
        let file = scratch.path().join("file");
        make(&file, Bytes::mib(4), Bytes::kib(4));
        let contents = hashes(scratch.path());
        scratch.remount().unwrap();
        let before = metadata(&file);
        let many = fragments(&file);
        let ran = command(&["run", "-v"], &file);
        assert_eq!(ran.status, 0, "{kind}: {ran:?}");
        scratch.remount().unwrap();
        assert_eq!(metadata(&file), before, "{kind}");
        assert!(
            fragments(&file) < many / 100,
            "{kind}: {} of {many}",
            fragments(&file)
        );
        assert_eq!(hashes(scratch.path()), contents, "{kind}");
    }
}

#[test]
fn loop_a_plan_is_run_later_and_what_changed_is_left_alone() {
    let Some(mut scratch) = scratch("ext4") else {
        return;
    };
    let root = scratch.path().to_owned();
    for name in ["kept", "grown", "replaced", "gone"] {
        make(&root.join(name), Bytes::mib(2), Bytes::kib(4));
    }
    let elsewhere = tempfile::tempdir().unwrap();
    let plan = elsewhere.path().join("the.plan");
    // Relative paths: the plan must work from anywhere.
    let ran = indef()
        .current_dir(&root)
        .args(["plan", ".", "-o"])
        .arg(&plan)
        .ran();
    assert_eq!(ran.status, 0, "{ran:?}");
    fs::write(root.join("new"), vec![9; 1 << 20]).unwrap();
    fs::rename(root.join("new"), root.join("replaced")).unwrap();
    fs::remove_file(root.join("gone")).unwrap();
    fs::OpenOptions::new()
        .write(true)
        .open(root.join("grown"))
        .unwrap()
        .set_len(4096)
        .unwrap();
    let contents = hashes(&root);
    let ran = indef()
        .current_dir("/")
        .args(["run", "--json", "--plan"])
        .arg(&plan)
        .ran();
    assert_eq!(ran.status, 0, "{ran:?}");
    let document = ran.json();
    for file in document["files"].as_array().unwrap() {
        let path = file["path"].as_str().unwrap();
        let name = path.rsplit('/').next().unwrap();
        let expected = if name == "kept" { "moved" } else { "skipped" };
        assert_eq!(file["status"], expected, "{file}");
    }
    assert_eq!(document["files"].as_array().map(Vec::len), Some(4));
    assert_eq!(fragments(&root.join("kept")), 1);
    assert_eq!(hashes(&root), contents);
    scratch.fsck().unwrap();
}

#[test]
fn loop_a_profile_decides_what_moves() {
    let Some(scratch) = scratch("ext4") else {
        return;
    };
    let (hot, cold) = (scratch.path().join("hot"), scratch.path().join("cold"));
    make(&hot, Bytes::mib(4), Bytes::kib(4));
    make(&cold, Bytes::mib(4), Bytes::kib(4));
    let profile = scratch.path().join("a.profile");
    let id = fs::metadata(&hot).unwrap();
    fs::write(
        &profile,
        format!(
            "indef-profile 1\nfile 1 {} {} {}\nread 1 0 1048576 direct\nread 1 0 1048576 direct\n",
            id.dev(),
            id.ino(),
            hot.display()
        ),
    )
    .unwrap();
    let ran = indef()
        .args(["run", "--json", "--truncate", "0", "--profile"])
        .args([&profile, &hot, &cold])
        .ran();
    assert_eq!(ran.status, 0, "{ran:?}");
    let document = ran.json();
    assert_eq!(document["totals"]["bytes_relocated"], 1 << 20, "{document}");
    assert_eq!(fragments(&cold), 1024);
    let left = fragments(&hot);
    assert!((768..=770).contains(&left), "{left}");
}

#[test]
fn loop_a_budget_is_kept() {
    let Some(scratch) = scratch("ext4") else {
        return;
    };
    make_several(scratch.path(), 4, Bytes::mib(2), Bytes::kib(4));
    let planned = command(&["plan", "--json", "--budget", "3MiB"], scratch.path()).json();
    let totals = &planned["totals"];
    let number = |value: &serde_json::Value| value.as_u64().unwrap();
    let skipped = totals["skipped"].as_object().unwrap();
    assert!(number(&skipped["over-budget"]) >= 2, "{totals}");
    let skipped: u64 = skipped.values().map(number).sum();
    let moves = number(&totals["files_to_move"]);
    assert_eq!(number(&totals["files"]), moves + skipped, "{totals}");
    let ran = command(&["run", "--json", "--budget", "3MiB"], scratch.path());
    assert_eq!(ran.status, 0, "{ran:?}");
    let relocated = ran.json()["totals"]["bytes_relocated"].as_u64().unwrap();
    assert!((2 << 20..=3 << 20).contains(&relocated), "{relocated}");
}

/// What writes more in one go than the rate allows in a second is told.
#[test]
fn loop_a_rate_that_holds_on_average_is_told() {
    for kind in ["btrfs", "ext4"] {
        let Some(scratch) = scratch(kind) else {
            continue;
        };
        let file = scratch.path().join("file");
        make(&file, Bytes::mib(4), Bytes::kib(16));
        let says = |rate: &str| {
            let ran = command(&["run", "--json", "--rate", rate], &file);
            assert_eq!(ran.status, 0, "{ran:?}");
            ran.err.contains("16 MiB and more in one go") && ran.err.contains("on average")
        };
        assert_eq!(says("8MiB"), kind == "btrfs");
        assert!(!says("1GiB"));
    }
}

#[test]
fn loop_a_read_only_mount_is_left_alone() {
    let Some(mut scratch) = scratch("ext4") else {
        return;
    };
    make(&scratch.path().join("file"), Bytes::mib(1), Bytes::kib(4));
    scratch.unmount().unwrap();
    run_program(
        Command::new("mount")
            .args(["-o", "ro"])
            .args([scratch.device().as_ref(), scratch.path()]),
    );
    let ran = command(&["run", "--json"], &scratch.path().join("file"));
    assert_eq!(ran.status, 0, "{ran:?}");
    assert_eq!(ran.json()["files"][0]["reason"], "read-only-mount");
    assert!(ran.error_line("/file").contains("read-only"), "{ran:?}");
    run_program(Command::new("umount").arg(scratch.path()));
    scratch.mount().unwrap();
}

#[test]
fn loop_a_scan_tells_what_extents_cost_beyond_reads() {
    for fs in ["xfs", "ext4"] {
        let Some(scratch) = scratch(fs) else {
            continue;
        };
        make(&scratch.path().join("file"), Bytes::mib(48), Bytes::kib(4));
        let scanned = command(&["scan", "--json"], scratch.path()).json();
        let extra = &scanned["files"][0]["reflink_extra_ns"];
        assert_eq!(*extra, scanned["totals"]["reflink_extra_ns"], "{scanned}");
        let text = command(&["scan"], scratch.path()).out;
        assert_eq!(text.contains("beyond reads"), fs == "xfs", "{text}");
        match fs {
            "xfs" => assert!(extra.as_u64() > Some(12_000 * 23_000), "{scanned}"),
            _ => assert!(extra.is_null(), "{scanned}"),
        }
    }
}

/// The requirements of an engine are checked before anything is promised.
#[test]
fn loop_scan_and_plan_know_what_the_engine_refuses() {
    for (feature, reason) in [
        ("^has_journal", "no-journal"),
        ("fast_commit", "fast-commit"),
        ("bigalloc", "unsupported"),
    ] {
        let built = ScratchFs::builder("ext4", Bytes::mib(64))
            .mkfs_args(["-O", feature])
            .build();
        let Some(scratch) = scratch_fs::require(built) else {
            return;
        };
        let path = scratch.path().join("file");
        // Clusters of bigalloc are of 64 KiB.
        make(&path, Bytes::mib(4), Bytes::kib(64));
        assert!(fragments(&path) > 8, "{feature}");
        let scanned = command(&["scan", "--json"], scratch.path()).json();
        assert_eq!(scanned["files"][0]["skip"], reason, "{scanned}");
        assert_eq!(scanned["verdict"]["kind"], "no-engine", "{scanned}");
        assert_eq!(scanned["totals"]["worth_moving_bytes"], 0, "{scanned}");
        let planned = command(&["plan", "--json"], scratch.path()).json();
        assert_eq!(planned["totals"]["cost_bytes"], 0, "{planned}");
        let ran = command(&["run", "--json"], scratch.path()).json();
        assert_eq!(ran["files"][0]["reason"], reason, "{ran}");
        assert_eq!(ran["totals"]["bytes_relocated"], 0, "{ran}");
    }
}

/// After an exchange without reverse mapping, a power cut leaves a file system that does not mount; and
/// without reflink there is no other engine.
#[test]
fn loop_xfs_without_rmapbt_is_left_alone_unless_asked_for_by_name() {
    let built = ScratchFs::builder("xfs", Bytes::mib(512))
        .mkfs_args(["-m", "rmapbt=0,reflink=0"])
        .build();
    let Some(mut scratch) = scratch_fs::require(built) else {
        return;
    };
    let path = scratch.path().join("file");
    make(&path, Bytes::mib(2), Bytes::kib(4));
    let scanned = command(&["scan", "--json"], scratch.path()).json();
    assert_eq!(scanned["files"][0]["skip"], "no-rmapbt", "{scanned}");
    let ran = command(&["run", "--json"], &path).json();
    assert_eq!(ran["files"][0]["reason"], "no-rmapbt", "{ran}");
    let named = ["run", "--json", "--engine", "xfs-swap-extents"];
    let ran = command(&named, &path).json();
    assert_eq!(ran["files"][0]["status"], "moved", "{ran}");
    scratch.fsck().unwrap();
}

/// Without reflink nothing of a file can stay where it is: the plan says what that costs.
#[test]
fn loop_xfs_without_reflink_writes_no_more_than_the_plan_said() {
    let built = ScratchFs::builder("xfs", Bytes::mib(512))
        .mkfs_args(["-m", "reflink=0"])
        .build();
    let Some(scratch) = scratch_fs::require(built) else {
        return;
    };
    let path = scratch.path().join("half");
    Shape::half_contiguous(7, Bytes::mib(32))
        .make(&path)
        .unwrap();
    scratch.sync().unwrap();
    let planned = command(&["plan", "--json"], &path).json();
    let said = planned["totals"]["cost_bytes"].as_u64().unwrap();
    let ran = command(&["run", "--json"], &path).json();
    let written = ran["totals"]["bytes_host_written"].as_u64().unwrap();
    assert_eq!(ran["files"][0]["status"], "moved", "{ran}");
    assert!(written <= said, "{written} of {said}: {ran}");
    assert_eq!(written, 32 << 20, "{ran}");
}

fn run_program(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
}

#[test]
fn loop_without_root_it_works_on_own_files_and_says_what_needs_more() {
    if !is_root() {
        return;
    }
    let Some(scratch) = scratch("ext4") else {
        return;
    };
    let (own, foreign) = (scratch.path().join("own"), scratch.path().join("foreign"));
    make(&own, Bytes::mib(2), Bytes::kib(4));
    make(&foreign, Bytes::mib(2), Bytes::kib(4));
    reachable(&scratch);
    std::os::unix::fs::chown(&own, Some(NOBODY), Some(NOBODY)).unwrap();
    std::os::unix::fs::chown(scratch.path(), Some(NOBODY), Some(NOBODY)).unwrap();
    let anybody = ForAnybody::new();
    let ran = anybody
        .indef()
        .args(["run", "--json"])
        .args([&own, &foreign])
        .ran();
    assert_eq!(ran.status, 0, "{ran:?}");
    let document = ran.json();
    let of = |name: &str| {
        let files = document["files"].as_array().unwrap();
        files
            .iter()
            .find(|f| f["path"].as_str().unwrap().ends_with(name))
            .unwrap()
            .clone()
    };
    assert_eq!(of("/own")["status"], "moved", "{document}");
    assert_eq!(
        (
            of("/foreign")["status"].as_str(),
            of("/foreign")["reason"].as_str()
        ),
        (Some("skipped"), Some("not-permitted")),
        "{document}"
    );
    assert_eq!(fragments(&own), 1);
    let ran = anybody.indef().arg("run").arg(&foreign).ran();
    assert_eq!(ran.status, 0, "{ran:?}");
    assert!(ran.out.contains("try as root"), "{ran:?}");
}

/// Open the temporary directory of a scratch file system to every user.
fn reachable(scratch: &ScratchFs) {
    use std::os::unix::fs::PermissionsExt;
    let above = scratch.path().parent().unwrap();
    fs::set_permissions(above, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn loop_a_damaged_plan_moves_nothing() {
    let Some(scratch) = scratch("ext4") else {
        return;
    };
    let file = scratch.path().join("file");
    make(&file, Bytes::mib(1), Bytes::kib(4));
    let plan = scratch.path().join("plan");
    assert_eq!(
        run([
            "plan".as_ref(),
            file.as_os_str(),
            "-o".as_ref(),
            plan.as_os_str()
        ])
        .status,
        0
    );
    let text = fs::read_to_string(&plan).unwrap();
    // The file's line is whole, the totals are not: nothing may be moved.
    fs::write(&plan, &text[..text.len() - 20]).unwrap();
    let ran = run(["run".as_ref(), "--plan".as_ref(), plan.as_os_str()]);
    assert_eq!(ran.status, 1, "{ran:?}");
    assert_eq!(fragments(&file), 256);
}
