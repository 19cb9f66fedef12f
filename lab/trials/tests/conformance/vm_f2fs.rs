//! The suite for F2FS's engines, in guests.
//!
//! Each test has two sides, and is started twice: on the host, where it boots a guest, and in that guest,
//! where it runs every case, one after the other: on a loop file, or for `f2fs-offload` on an SSD with
//! zones.

use std::{
    env, fs,
    panic::catch_unwind,
    time::{Duration, Instant},
};

use guest::{Guest, LabError, Release, Zns, ZnsOptions, ZnsSetup, require};
use indef_core::{SkipReason, plan::Policy};
use indef_fs::{EngineKind, Refusal};
use units::{Bytes, FileRange};

use crate::{
    CASES,
    at_rest::{finish, make},
    harness::{Bench, builder},
    in_guest::{of_suite, pass},
    in_use::SHORT,
    state::State,
};

/// F2FS shares no blocks, and the quotas of the suite are those of other file systems.
const NOT_OF_F2FS: [&str; 2] = ["loop_reflinked", "loop_quota"];

/// The cases that take longest where a processor is emulated. With `INDEF_WHOLE_SUITE` they run,
/// too, and those with a user in their long form (`make proof`).
const LONG: [&str; 7] = [
    "loop_dense",
    "loop_many_extents",
    "loop_dropped_midway",
    "loop_page_cache",
    "loop_mapped",
    "loop_written_directly",
    "loop_nearly_full",
];

const WHOLE: &str = "INDEF_WHOLE_SUITE";

/// Set in the environment of the guest's side.
const IN_GUEST: &str = "INDEF_CONFORMANCE_IN_GUEST";

/// Loop files lie on a disk: in memory they cannot be opened for direct I/O.
const SCRIPT: &str = r#"
mkfs.ext4 -q /dev/$1 && mount -t ext4 /dev/$1 /mnt || exit 2
export INDEF_CONFORMANCE_IN_GUEST=1 INDEF_SKIP_LOG=/mnt/skips TMPDIR=/mnt $4
touch $INDEF_SKIP_LOG
"$2" --exact "$3" --nocapture
status=$?
sed 's/^/skipped: /' $INDEF_SKIP_LOG
if dmesg | grep -E 'KERNEL_FAULTS|F2FS-fs .*[Ii]nconsistent'; then exit 9; fi
exit $status
"#;

/// The half of the suite: a guest needs minutes for all of it.
#[derive(Clone, Copy, Debug)]
enum Half {
    AtRest,
    InUse,
}

/// The case with which the second half begins.
const FIRST_IN_USE: &str = "loop_written";

fn conforms(kind: EngineKind, half: Half) {
    if env::var_os(IN_GUEST).is_some() {
        return all(kind, half);
    }
    // The name of the test that calls us; a check below shows that it exists.
    let half = match half {
        Half::AtRest => "at_rest",
        Half::InUse => "in_use",
    };
    in_guest(kind, &format!("{}_{half}", kind.name().replace('-', "_")));
}

/// Runs the test of this name, which is that of an engine, in a guest.
fn in_guest(kind: EngineKind, name: &str) {
    if !["mkfs.f2fs", "fsck.f2fs", "mkfs.ext4"]
        .iter()
        .all(|program| scratch_fs::require_program(program))
    {
        return;
    }
    let zns = Zns::new(ZnsOptions::default()).unwrap();
    let Some(guest) = require(guest(Release::Linux6_12, kind, &zns)) else {
        return;
    };
    let program = env::current_exe().unwrap();
    let test = format!("vm_f2fs::vm_6_12_{name}");
    let script = SCRIPT.replace("KERNEL_FAULTS", guest::KERNEL_FAULTS);
    let command = [
        "sh",
        "-c",
        &script,
        "sh",
        "vda",
        program.to_str().unwrap(),
        &test,
        &env::var(WHOLE).map_or_else(|_| format!("{SHORT}=1"), |is| format!("{WHOLE}={is}")),
    ];
    pass(guest, &command, 1);
}

fn guest(release: Release, kind: EngineKind, zns: &Zns) -> Result<Guest, LabError> {
    let mut guest = Guest::with(release)?;
    if kind == EngineKind::F2fsOffload {
        guest = guest
            .with_patched(guest::Patched::F2fs)?
            .zns(zns, ZnsSetup::Attached)?;
    }
    Ok(of_suite(guest)
        .copy(env::current_exe().unwrap())
        .load("f2fs")
        .load("loop")
        .timeout(Duration::from_secs(560)))
}

/// Run every case of a half, and report the result of each.
fn all(kind: EngineKind, half: Half) {
    let first = CASES.iter().position(|(name, _)| *name == FIRST_IN_USE);
    let (at_rest, in_use) = CASES.split_at(first.expect("it is one of the suite"));
    let cases = match half {
        Half::AtRest => at_rest,
        Half::InUse => in_use,
    };
    let whole = env::var_os(WHOLE).is_some();
    let mut failed = Vec::new();
    for (name, case) in cases {
        if NOT_OF_F2FS.contains(name) || (!whole && LONG.contains(name)) {
            continue;
        }
        // So that the console of a dying guest names the case.
        let note = |what: &str| {
            let _ = fs::write("/dev/kmsg", format!("<4>{name}: {what}"));
        };
        note("begins");
        let begun = Instant::now();
        let passed = catch_unwind(|| case(kind)).is_ok();
        let outcome = if passed { "ok" } else { "FAILED" };
        eprintln!("{}: {name}: {outcome}, {:?}", kind.name(), begun.elapsed());
        note(outcome);
        if !passed {
            failed.push(*name);
        }
    }
    assert!(failed.is_empty(), "{}: {failed:?}", kind.name());
}

#[test]
fn vm_6_12_f2fs_defragment_at_rest() {
    conforms(EngineKind::F2fsDefragment, Half::AtRest);
}

#[test]
fn vm_6_12_f2fs_defragment_in_use() {
    conforms(EngineKind::F2fsDefragment, Half::InUse);
}

#[test]
fn vm_6_12_f2fs_offload_at_rest() {
    conforms(EngineKind::F2fsOffload, Half::AtRest);
}

#[test]
fn vm_6_12_f2fs_offload_in_use() {
    conforms(EngineKind::F2fsOffload, Half::InUse);
}

/// Where F2FS fills the holes of old segments, its ioctl leaves a file in more pieces than it was in. The engine leaves it alone,
/// and moves it when there are free segments again.
#[test]
fn vm_6_12_f2fs_defragment_keeps_out_of_holes() {
    let kind = EngineKind::F2fsDefragment;
    match env::var_os(IN_GUEST) {
        Some(_) => out_of_holes(kind),
        None => in_guest(kind, "f2fs_defragment_keeps_out_of_holes"),
    }
}

fn out_of_holes(kind: EngineKind) {
    // F2FS would clean in the background. A small file system is soon full.
    let fs = builder(kind, Bytes::mib(256)).mount_options("background_gc=off");
    let bench = Bench::on(kind, fs.build()).unwrap();
    let name = bench.fs.device().rsplit('/').next().unwrap();
    let number = |of: &str| -> u64 {
        let file = format!("/sys/fs/f2fs/{name}/{of}");
        fs::read_to_string(file).unwrap().trim().parse().unwrap()
    };
    let reserve = number("reserved_segments");
    let [first, ours, kernels] = ["first", "ours", "kernels"].map(|name| bench.path(name));
    // More than the rest of the segment that F2FS has open for what is moved.
    for path in [&first, &ours, &kernels] {
        make(path, Bytes::mib(8), Bytes::kib(256));
    }
    bench.must_relocate(&first, Policy::Whole);
    let states = [State::of(&first), State::of(&ours)];
    // Files with holes between their pieces, until F2FS fills them.
    let mut fillers = Vec::new();
    while number("free_segments") > reserve + number("min_ssr_sections") {
        assert!(fillers.len() < 100, "the file system does not fill");
        let path = bench.path(&format!("fill-{}", fillers.len()));
        make(&path, Bytes::mib(8), Bytes::kib(64));
        bench.fs.sync().unwrap();
        fillers.push(path);
    }
    let free = number("free_segments");
    assert!(free > reserve + 8, "{free} free, {reserve} reserved");
    match bench.relocate(&ours, Policy::Whole) {
        Err(Refusal::Skip(SkipReason::NoSpace)) => {}
        other => panic!("{other:?}"),
    }

    let pieces = || {
        let file = fs::File::open(&kernels).unwrap();
        let whole = FileRange::new(0, u64::MAX);
        let map = indef_fs::map(
            &file,
            &kernels,
            whole,
            true,
            &mut indef_fs::Mapper::default(),
        );
        map.unwrap().fragments()
    };
    let before = pieces();
    let file = (fs::OpenOptions::new().read(true).write(true)).open(&kernels);
    linux_abi::f2fs::defragment(file.unwrap(), 0, 8 << 20).unwrap();
    bench.fs.sync().unwrap();
    let after = pieces();
    eprintln!("{free} free segments, {reserve} reserved: from {before} pieces to {after}");
    assert!(after > before, "{before} {after}");

    for path in &fillers {
        fs::remove_file(path).unwrap();
    }
    bench.fs.sync().unwrap();
    let free = number("free_segments");
    eprintln!("{free} free segments without {} files", fillers.len());
    bench.must_relocate(&ours, Policy::Whole);
    finish(bench, &states);
}

/// Where sections have several segments, free segments of sections in use are no room: F2FS fills holes all the same, and the
/// engine leaves the file alone. What is free the kernel tells in debugfs.
#[test]
fn vm_6_12_f2fs_defragment_counts_free_sections() {
    let kind = EngineKind::F2fsDefragment;
    match env::var_os(IN_GUEST) {
        Some(_) => counts_sections(kind),
        None => in_guest(kind, "f2fs_defragment_counts_free_sections"),
    }
}

fn counts_sections(kind: EngineKind) {
    const OF_SECTION: u64 = 4;
    let fs = builder(kind, Bytes::mib(640)).mkfs_args(["-s", &OF_SECTION.to_string()]);
    let bench = Bench::on(kind, fs.mount_options("background_gc=off").build()).unwrap();
    let debugfs = tempfile::tempdir().unwrap();
    let mut mount = std::process::Command::new("mount");
    mount.args(["-t", "debugfs", "none"]).arg(debugfs.path());
    assert!(mount.status().unwrap().success());
    // "  - Free: SEGMENTS (SECTIONS)"
    let free = || -> [u64; 2] {
        let text = fs::read_to_string(debugfs.path().join("f2fs/status")).unwrap();
        let line = text
            .lines()
            .find_map(|line| line.trim().strip_prefix("- Free: "));
        let words = line.unwrap_or_else(|| panic!("{text}")).split_whitespace();
        let numbers: Vec<u64> = { words.take(2) }
            .map(|word| word.trim_matches(['(', ')']).parse().unwrap())
            .collect();
        numbers.try_into().unwrap()
    };
    let name = bench.fs.device().rsplit('/').next().unwrap();
    let number = |of: &str| -> u64 {
        let file = format!("/sys/fs/f2fs/{name}/{of}");
        fs::read_to_string(file).unwrap().trim().parse().unwrap()
    };
    let kept = number("reserved_segments") / OF_SECTION + number("min_ssr_sections");
    let file = bench.path("file");
    make(&file, Bytes::mib(8), Bytes::kib(256));
    let states = [State::of(&file)];
    // About a segment each.
    let mut fillers = Vec::new();
    while free()[1] > kept {
        assert!(fillers.len() < 400, "the file system does not fill");
        let path = bench.path(&format!("fill-{}", fillers.len()));
        fs::write(&path, vec![0x5A; 2 << 20]).unwrap();
        bench.fs.sync().unwrap();
        fillers.push(path);
    }
    for (_, path) in { fillers.iter().enumerate() }.filter(|(number, _)| number % 4 > 0) {
        fs::remove_file(path).unwrap();
    }
    bench.fs.sync().unwrap();
    let [segments, sections] = free();
    eprintln!("{segments} segments free, {sections} sections, of which F2FS keeps {kept}");
    assert!(sections <= kept, "what was removed freed sections");
    assert!(
        segments > (kept + 4) * OF_SECTION,
        "no free segment is left in a section in use"
    );
    match bench.relocate(&file, Policy::Whole) {
        Err(Refusal::Skip(SkipReason::NoSpace)) => {}
        other => panic!("{other:?}"),
    }
    for path in fillers.iter().step_by(4) {
        fs::remove_file(path).unwrap();
    }
    bench.fs.sync().unwrap();
    eprintln!("{:?} free without the others", free());
    bench.must_relocate(&file, Policy::Whole);
    let mut unmount = std::process::Command::new("umount");
    assert!(unmount.arg(debugfs.path()).status().unwrap().success());
    finish(bench, &states);
}
