//! A thin volume whose pool is full: nothing can be written where nothing was written before.

use std::{fs, os::unix::fs::FileExt};

use indef_core::plan::Policy;
use indef_fs::{EngineKind, Finding, Refusal, Target};
use rustix::{
    fs::{Advice, fadvise},
    io::Errno,
};
use scratch_fs::{ScratchFs, fill_pool, reflink, require};
use units::Bytes;

use crate::{
    at_rest::{finish, make},
    harness::{Bench, builder, in_memory},
    state::{State, open},
};

const LEN: Bytes = Bytes::mib(8);
const STEP: Bytes = Bytes::kib(64);

/// What cannot be written to its new place is whole where it was, however much could be written before the pool was full,
/// and of all moves that are tried.
pub(crate) fn full_pool(kind: EngineKind) {
    if kind == EngineKind::F2fsOffload {
        // Zones are no thin volume.
        return;
    }
    full_pool_but_for(kind, Bytes::ZERO);
    // The log of F2FS has some room of its own.
    if kind != EngineKind::F2fsDefragment {
        full_pool_but_for(kind, Bytes::mib(3));
    }
}

fn full_pool_but_for(kind: EngineKind, room: Bytes) {
    let size = match kind {
        EngineKind::BtrfsShareRange | EngineKind::BtrfsDefragRange => Bytes::mib(512),
        EngineKind::F2fsDefragment => Bytes::mib(128),
        _ => Bytes::mib(320),
    };
    let pool = in_memory(ScratchFs::builder("ext4", size + Bytes::mib(64)));
    let Some(pool) = require(pool.build()) else {
        return;
    };
    let built = builder(kind, size).folder(pool.path()).build();
    let Some(mut bench) = Bench::on(kind, built) else {
        return;
    };
    let (path, copy) = (bench.path("file"), bench.path("copy"));
    make(&path, LEN, Bytes::kib(4));
    let mut paths = vec![path.clone()];
    if kind.keeps_sharing() {
        reflink(&path, &copy).unwrap();
        paths.push(copy);
    }
    let states: Vec<_> = paths.iter().map(|path| State::of(path)).collect();
    let filler = fill_pool(&mut bench.fs, &pool, room).unwrap();
    // Of each step something is cached, and something is not.
    let file = open(&path);
    fadvise(&file, 0, None, Advice::Random).unwrap();
    for at in (0..LEN.get()).step_by(32 << 10) {
        file.read_exact_at(&mut [0; 16 << 10], at).unwrap();
    }
    drop(file);
    // What the kernel tells of the first try, it does not tell of the second one.
    for turn in 0..2 {
        let target = Target::open(&path).unwrap();
        let ranges = bench.plan(&target, Policy::Whole).unwrap();
        match bench.relocate_ranges(&target, &ranges, STEP, usize::MAX) {
            Err(Refusal::Failed(error)) => {
                let is_told = match kind {
                    // F2FS says that there was an error, and changes nothing any more.
                    EngineKind::F2fsDefragment => {
                        let operation = ["write back moved data", "rewrite a range"][turn];
                        let errno = error.source.raw_os_error();
                        (error.operation, errno) == (operation, Some(Errno::IO.raw_os_error()))
                    }
                    _ => error.finding() == Some(Finding::DeviceFull),
                };
                assert!(is_told, "{}, {turn}: {error}", kind.name());
            }
            other => panic!("{}: {other:?}", kind.name()),
        }
        for state in &states {
            state.check_contents();
        }
    }
    if kind == EngineKind::Ext4MoveExtent && room.is_zero() {
        let now = State::of(&path).fragments;
        assert_eq!(now, states[0].fragments, "not all was taken back");
    }
    // XFS repeats what it could not write of its own; no file system does that with data.
    fs::remove_file(filler).unwrap();
    pool.sync().unwrap();
    finish(bench, &states);
}
