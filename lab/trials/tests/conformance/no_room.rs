//! Nearly full file systems, and quotas.

use std::{
    fs::{self, File, Permissions},
    os::unix::fs::{MetadataExt, PermissionsExt, chown},
    path::Path,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use indef_core::{SkipReason, plan::Policy};
use indef_fs::{EngineKind, Refusal};
use linux_abi::fsxattr::{Attributes, Flags};
use scratch_fs::{ScratchError, Segment, Shape, require_program, skip};
use units::Bytes;

use crate::{
    at_rest::{finish, make},
    harness::{Bench, builder},
    state::State,
};

/// Fill the file system so that only about `left` bytes stay free, in small pieces.
fn fill(bench: &Bench, left: Bytes) {
    bench.fs.sync().unwrap();
    let mut round = 0;
    loop {
        let free = bench.fs.free().unwrap();
        if free <= left || round > 20 {
            return;
        }
        let len = Bytes((free - left).get() / if round == 0 { 4 } else { 1 });
        let piece = if round < 2 {
            Bytes::mib(4)
        } else {
            Bytes::mib(1)
        };
        // Every second piece belongs to the dummy, which is deleted: the free space is in pieces.
        let made = Shape::new(round)
            .with(Segment::Unwritten {
                len: Bytes(len.get().min(64 << 30) / if round == 0 { 1 } else { 2 }),
                piece,
            })
            .roughly()
            .make(&bench.path(&format!("fill-{round}")));
        if made.is_err() {
            return;
        }
        bench.fs.sync().unwrap();
        round += 1;
    }
}

pub(crate) fn nearly_full(kind: EngineKind) {
    let Some(bench) = Bench::small(kind) else {
        return;
    };
    let mut states = Vec::new();
    for (name, piece) in [("small", 4), ("middle", 32), ("large", 256)] {
        let path = bench.path(name);
        make(&path, Bytes::mib(8), Bytes::kib(piece));
        states.push((path.clone(), State::of(&path)));
    }
    for left in [24, 8, 1] {
        fill(&bench, Bytes::mib(left));
        for (path, state) in &mut states {
            for policy in [Policy::Sequential, Policy::Whole] {
                match bench.relocate(path, policy) {
                    Ok(_) | Err(Refusal::Skip(_)) => {}
                    Err(refusal) => panic!("{}: {refusal}", kind.name()),
                }
            }
            *state = state.check();
        }
    }
    let states: Vec<_> = states.into_iter().map(|(_, state)| state).collect();
    finish(bench, &states);
}

/// What the program says.
fn run(program: &str, arguments: &[&str]) -> String {
    let path = std::env::var("PATH").unwrap_or_default();
    let output = Command::new(program)
        .args(arguments)
        .env("PATH", format!("{path}:/usr/sbin:/sbin"))
        .output()
        .unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(
        output.status.success(),
        "{program} {arguments:?}: {}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Of the user, the group and the project.
const OWNER: u32 = 12_345;

/// Quotas that a file fills. The file moves all the same, nobody else is charged for it, and the file system's own check
/// agrees with what is counted.
pub(crate) fn quota(kind: EngineKind) {
    match kind {
        EngineKind::BtrfsShareRange | EngineKind::BtrfsDefragRange => quota_of_subvolume(kind),
        _ => quota_of_owners(kind),
    }
}

/// Limits of a user, a group and a project for the file's folder and all that is made in it.
fn quota_of_owners(kind: EngineKind) {
    let is_xfs = !matches!(
        kind,
        EngineKind::Ext4MoveExtent | EngineKind::F2fsDefragment
    );
    let (programs, kernel_file): (&[&str], _) = match is_xfs {
        true => (&["xfs_quota"], "/proc/fs/xfs/xqmstat"),
        false => (&["setquota", "repquota"], "/proc/sys/fs/quota"),
    };
    if !programs.iter().all(|program| require_program(program)) {
        return;
    }
    if !Path::new(kernel_file).exists() {
        skip(&format!("this kernel has no quotas for {}", kind.name()));
        return;
    }
    let builder = builder(kind, Bytes::mib(640));
    let made = match kind {
        EngineKind::Ext4MoveExtent => builder
            .mkfs_args(["-O", "quota,project"])
            .mkfs_args(["-E", "quotatype=usrquota:grpquota:prjquota"])
            .mount_options("usrquota,grpquota,prjquota"),
        EngineKind::F2fsDefragment => builder
            .mkfs_args(["-O", "extra_attr,quota,project_quota"])
            .mount_options("usrquota,grpquota,prjquota"),
        _ => builder.mount_options("uquota,gquota,pquota"),
    };
    let made = match made.build() {
        // Quotas may be available without the format that ext4 and F2FS use (CONFIG_QFMT_V2).
        Err(ScratchError::Command { command, .. }) if command.contains("usrquota") => {
            skip("this kernel cannot mount such quotas");
            return;
        }
        made => made,
    };
    let Some(bench) = Bench::on(kind, made) else {
        return;
    };
    let (folder, path) = (bench.path("ours"), bench.path("ours/mine"));
    fs::create_dir(&folder).unwrap();
    chown(&folder, None, Some(OWNER)).unwrap();
    fs::set_permissions(&folder, Permissions::from_mode(0o2755)).unwrap();
    let opened = File::open(&folder).unwrap();
    let is = Attributes::get(&opened).unwrap();
    // FS_XFLAG_PROJINHERIT (linux/fs.h)
    let with = is.with_flags(is.flags() | Flags::from_bits_retain(0x200));
    with.with_project(OWNER).set(&opened).unwrap();
    drop(opened);
    make(&path, Bytes::mib(8), Bytes::kib(32));
    chown(&path, Some(OWNER), None).unwrap();
    if kind == EngineKind::XfsShareRange {
        let file = File::create(bench.path("other")).unwrap();
        let of = File::open(&path).unwrap();
        linux_abi::share::clone_range(&of, &file, 0, 8 << 20).unwrap();
    }
    bench.fs.sync().unwrap();
    let root = bench.fs.path().to_str().unwrap().to_owned();
    let counts = || ["-u", "-g", "-p"].map(|of| counted(is_xfs, of, &root));
    let first = counts();
    let has = || {
        let blocks = |path: &Path| fs::metadata(path).unwrap().blocks() / 2;
        let of_all = blocks(&path) + blocks(&folder);
        match kind {
            // It counts no blocks of inodes, which belong to the blocks of a file all the same.
            EngineKind::F2fsDefragment => first,
            _ => [blocks(&path), of_all, of_all],
        }
    };
    let begun = Instant::now();
    // XFS frees in the background what `make` has deleted.
    while counts() != has() && begun.elapsed() < Duration::from_secs(30) {
        thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(counts(), has(), "{}", kind.name());
    let of = ["-u", "-g", "-p"];
    // At the limit itself. XFS reserves room for the file's own metadata before it changes its blocks, also for root.
    for (of, limit) in of.into_iter().zip(counts()) {
        limit_to(is_xfs, of, &limit.to_string(), &root);
    }
    let state = State::of(&path);
    let free = bench.fs.free().unwrap();
    match bench.relocate(&path, Policy::Whole) {
        Ok(done) if !is_xfs => assert!(!done.moved.relocated.is_zero(), "{}", kind.name()),
        Err(Refusal::Skip(SkipReason::QuotaExceeded)) if is_xfs => {}
        other => panic!("{}: {other:?}", kind.name()),
    }
    bench.fs.sync().unwrap();
    assert_eq!(counts(), has(), "{}", kind.name());
    let left = bench.fs.free().unwrap();
    assert!(left + Bytes::mib(1) >= free, "{free} were free, now {left}");
    let state = state.check();

    let limit = (counts()[0] + 512).to_string();
    for of in of {
        limit_to(is_xfs, of, &limit, &root);
    }
    if is_xfs {
        bench.must_relocate(&path, Policy::Whole);
    }
    bench.fs.sync().unwrap();
    assert_eq!(counts(), has(), "{}", kind.name());
    let state = state.check();
    finish(bench, &[state]);
}

/// Set a hard limit (KiB).
fn limit_to(is_xfs: bool, of: &str, limit: &str, root: &str) {
    let id = OWNER.to_string();
    match is_xfs {
        true => {
            let limit = format!("limit {of} bhard={limit}k {id}");
            run("xfs_quota", &["-x", "-c", &limit, root])
        }
        false => {
            let of = of.replace('p', "P");
            run("setquota", &[&of, &id, limit, limit, "0", "0", root])
        }
    };
}

/// What is counted of a user (`-u`), a group (`-g`) or a project (`-p`), in KiB.
fn counted(is_xfs: bool, of: &str, root: &str) -> u64 {
    let told = match is_xfs {
        true => {
            let report = format!("report {of} -b -N -n");
            run("xfs_quota", &["-x", "-c", &report, root])
        }
        false => run("repquota", &[&of.replace('p', "P"), "-n", root]),
    };
    let id = format!("#{OWNER}");
    let line = told
        .lines()
        .find(|line| line.split_whitespace().next() == Some(&*id));
    let line = line.unwrap_or_else(|| panic!("{of}: {told}"));
    let mut numbers = line.split_whitespace().filter_map(|word| word.parse().ok());
    numbers.next().unwrap_or_else(|| panic!("{line}"))
}

/// Btrfs counts by subvolume, and a move needs room within its limit: it reports if there is none.
fn quota_of_subvolume(kind: EngineKind) {
    if !require_program("btrfs") {
        return;
    }
    let Some(bench) = Bench::small(kind) else {
        return;
    };
    let root = bench.fs.path().to_str().unwrap().to_owned();
    let subvolume = format!("{root}/sub");
    run("btrfs", &["quota", "enable", &root]);
    run("btrfs", &["subvolume", "create", &subvolume]);
    let path = Path::new(&subvolume).join("mine");
    make(&path, Bytes::mib(8), Bytes::kib(4));
    bench.fs.sync().unwrap();
    run("btrfs", &["quota", "rescan", "-w", &root]);
    run("btrfs", &["qgroup", "limit", "8600K", &subvolume]);
    bench.fs.sync().unwrap();
    let state = State::of(&path);
    match bench.relocate(&path, Policy::Whole) {
        Ok(_) | Err(Refusal::Skip(SkipReason::QuotaExceeded | SkipReason::NoSpace)) => {}
        other => panic!("{}: {other:?}", kind.name()),
    }
    let state = state.check();
    finish(bench, &[state]);
}
