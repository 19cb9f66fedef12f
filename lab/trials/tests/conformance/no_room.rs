//! Nearly full file systems, and quotas.

use std::{path::Path, process::Command};

use indef_core::{SkipReason, plan::Policy};
use indef_fs::{EngineKind, Refusal};
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

fn run(program: &str, arguments: &[&str]) {
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
}

/// A user whose quota the file fills: a mover, as that user or as root, must not exceed it
/// permanently, and reports if the move is impossible.
pub(crate) fn quota(kind: EngineKind) {
    const OWNER: u32 = 12_345;
    let needed = match kind {
        EngineKind::Ext4MoveExtent => "setquota",
        EngineKind::BtrfsShareRange | EngineKind::BtrfsDefragRange => "btrfs",
        _ => "xfs_quota",
    };
    if !require_program(needed) {
        return;
    }
    let kernel_file = match kind {
        EngineKind::Ext4MoveExtent => "/proc/sys/fs/quota",
        EngineKind::BtrfsShareRange | EngineKind::BtrfsDefragRange => "/proc/self",
        _ => "/proc/fs/xfs/xqmstat",
    };
    if !Path::new(kernel_file).exists() {
        skip(&format!("this kernel has no quotas for {}", kind.name()));
        return;
    }
    let made = match kind {
        EngineKind::Ext4MoveExtent => builder(kind, Bytes::mib(640))
            .mkfs_args(["-O", "quota", "-E", "quotatype=usrquota"])
            .mount_options("usrquota"),
        EngineKind::BtrfsShareRange | EngineKind::BtrfsDefragRange => {
            builder(kind, Bytes::mib(640))
        }
        _ => builder(kind, Bytes::mib(640)).mount_options("uquota"),
    };
    let made = match made.build() {
        // Quotas may be available without the format that ext4 uses (CONFIG_QFMT_V2).
        Err(ScratchError::Command { command, .. }) if command.contains("usrquota") => {
            skip("this kernel cannot mount ext4 with quotas");
            return;
        }
        made => made,
    };
    let Some(bench) = Bench::on(kind, made) else {
        return;
    };
    let root = bench.fs.path().to_str().unwrap().to_owned();
    let is_btrfs = matches!(
        kind,
        EngineKind::BtrfsShareRange | EngineKind::BtrfsDefragRange
    );
    let directory = if is_btrfs {
        let subvolume = format!("{root}/sub");
        run("btrfs", &["quota", "enable", &root]);
        run("btrfs", &["subvolume", "create", &subvolume]);
        subvolume
    } else {
        root.clone()
    };
    let path = Path::new(&directory).join("mine");
    make(&path, Bytes::mib(8), Bytes::kib(4));
    std::os::unix::fs::chown(&path, Some(OWNER), None).unwrap();
    bench.fs.sync().unwrap();
    let owner = OWNER.to_string();
    match kind {
        EngineKind::Ext4MoveExtent => {
            run("setquota", &["-u", &owner, "8400", "8400", "0", "0", &root]);
        }
        EngineKind::BtrfsShareRange | EngineKind::BtrfsDefragRange => {
            run("btrfs", &["quota", "rescan", "-w", &root]);
            run("btrfs", &["qgroup", "limit", "8600K", &directory]);
        }
        _ => {
            let limit = format!("limit -u bhard=8400k {owner}");
            run("xfs_quota", &["-x", "-c", &limit, &root]);
        }
    }
    bench.fs.sync().unwrap();
    let state = State::of(&path);
    // Root may exceed a user's quota on ext4 and XFS, and returns the blocks that it took.
    match bench.relocate(&path, Policy::Whole) {
        Ok(_) | Err(Refusal::Skip(SkipReason::QuotaExceeded | SkipReason::NoSpace)) => {}
        other => panic!("{}: {other:?}", kind.name()),
    }
    let state = state.check();
    finish(bench, &[state]);
}
