//! Files without any other user during the move.

use std::{
    ffi::OsStr,
    fs::{File, FileTimes},
    os::unix::{ffi::OsStrExt, fs::FileExt},
    path::Path,
    time::{Duration, SystemTime},
};

use indef_core::{SkipReason, plan::Policy};
use indef_fs::{EngineKind, Refusal, Target};
use rustix::fs::XattrFlags;
use scratch_fs::{
    CacheChange, FragmentOptions, Segment, Shape, cached_pages_after, fragment, reflink,
    settled_cache_change, uncut, undisturbed,
};
use units::{Bytes, FileRange};

use crate::{
    harness::{Bench, ROW, builder, most_left},
    state::State,
};

/// The permitted growth of the file system's own structures in a move of a few MiB.
const METADATA: Bytes = Bytes::mib(3);

pub(crate) fn make(path: &Path, size: Bytes, piece: Bytes) {
    let options = FragmentOptions {
        size,
        piece,
        seed: size.get(),
    };
    fragment(path, options).unwrap_or_else(|error| panic!("{error}"));
}

/// Compare every state with the file again, read from the device; and check the file system.
#[track_caller]
pub(crate) fn finish(mut bench: Bench, states: &[State]) {
    bench.fs.remount().unwrap();
    for state in states {
        state.check();
    }
    let kind = bench.kind.name();
    bench
        .fs
        .fsck()
        .unwrap_or_else(|error| panic!("{kind}: {error}"));
}

pub(crate) fn dense(kind: EngineKind) {
    const USUAL: u64 = 4;
    uncut(|| dense_leaves(kind, USUAL).is_none_or(|left| left <= USUAL));
}

/// The fragments that are left, of which there are `usual` at most where nobody else works; none where this is skipped.
fn dense_leaves(kind: EngineKind, usual: u64) -> Option<u64> {
    let bench = Bench::new(kind)?;
    let path = bench.path("dense");
    let size = Bytes::mib(16);
    make(&path, size, Bytes::kib(4));
    // Times that are not now, and attributes.
    let old = SystemTime::UNIX_EPOCH + Duration::new(1_000_000_000, 123_456_789);
    File::options()
        .write(true)
        .open(&path)
        .unwrap()
        .set_times(FileTimes::new().set_accessed(old).set_modified(old))
        .unwrap();
    rustix::fs::setxattr(&path, "user.test", b"value\0\xff", XattrFlags::empty()).unwrap();
    let state = State::of(&path);
    assert_eq!(state.fragments, 4096);
    let names = bench.names();
    let done = bench.must_relocate(&path, Policy::Whole);
    assert!(done.moved.relocated <= done.planned, "{done:?}");
    let now = state.check();
    let left = now.fragments;
    assert!(left <= most_left(kind, size, usual), "{left} left");
    assert_eq!(bench.names(), names);
    // A second run finds nothing to do.
    match bench.relocate(&path, Policy::Sequential) {
        Err(Refusal::Skip(_)) => {}
        other => panic!("the second run: {other:?}"),
    }
    finish(bench, &[now]);
    Some(left)
}

pub(crate) fn only_the_bad_half(kind: EngineKind) {
    let Some(bench) = Bench::new(kind) else {
        return;
    };
    let path = bench.path("half");
    Shape::half_contiguous(1, Bytes::mib(16))
        .make(&path)
        .unwrap();
    let state = State::of(&path);
    bench.fs.sync().unwrap();
    let before = bench.fs.device_bytes().unwrap();
    let done = bench.must_relocate(&path, Policy::Sequential);
    bench.fs.sync().unwrap();
    let written = (bench.fs.device_bytes().unwrap() - before).written;
    let now = state.check();
    // Each window of 128 KiB is contiguous now, and windows that were contiguous before have
    // not moved.
    for window in 0..128 {
        let range = FileRange::new(window * 131_072, 131_072);
        assert_eq!(now.layout.fragments_in(range), 1, "window {window}");
        if window % 2 == 1 {
            let place = |state: &State| state.layout.clipped(range).next().unwrap().phys;
            assert_eq!(place(&now), place(&state), "window {window}");
        }
    }
    assert!(done.moved.relocated <= Bytes::mib(8), "{done:?}");
    assert!(done.moved.host_written <= Bytes::mib(8), "{done:?}");
    // With what the file system writes of its own, twice on Btrfs, whose trees are written for each sync of anybody.
    // All of the file would be 16 MiB without that.
    let own = match kind {
        EngineKind::BtrfsShareRange | EngineKind::BtrfsDefragRange => Bytes::mib(8),
        _ => Bytes::mib(3),
    };
    assert!(
        written < Bytes::mib(8) + own,
        "{written} written for 8 MiB: {done:?}"
    );
    finish(bench, &[now]);
}

pub(crate) fn holes_and_unwritten(kind: EngineKind) {
    let Some(bench) = Bench::new(kind) else {
        return;
    };
    let path = bench.path("sparse");
    let data = Segment::Data {
        len: Bytes::kib(96),
        piece: Bytes::kib(4),
    };
    let unwritten = |piece| Segment::Unwritten {
        len: Bytes::kib(64),
        piece,
    };
    Shape::new(2)
        .with(data)
        .with(Segment::Hole(Bytes::kib(40)))
        .with(data)
        .with(unwritten(Bytes::kib(4)))
        .with(data)
        .with(unwritten(Bytes::kib(16)))
        .with(Segment::Hole(Bytes::kib(4)))
        .repeated(12)
        .make(&path)
        .unwrap();
    let only_unwritten = bench.path("unwritten");
    Shape::new(3)
        .with(unwritten(Bytes::kib(4)))
        .repeated(16)
        .make(&only_unwritten)
        .unwrap();
    let state = State::of(&path);
    let other = State::of(&only_unwritten);
    bench.must_relocate(&path, Policy::Whole);
    let now = state.check();
    assert!(now.fragments < state.fragments / 2);
    // Whether a file without any data is moved is the engine's choice; that it stays without
    // data is not.
    let _ = bench.relocate(&only_unwritten, Policy::Whole);
    let sequential = bench.path("sequential");
    Shape::new(4)
        .with(data)
        .with(Segment::Hole(Bytes::kib(32)))
        .with(unwritten(Bytes::kib(4)))
        .repeated(16)
        .make(&sequential)
        .unwrap();
    let third = State::of(&sequential);
    bench.must_relocate(&sequential, Policy::Sequential);
    let third = third.check();
    finish(bench, &[now, other.check(), third]);
}

pub(crate) fn reflinked(kind: EngineKind) {
    if kind == EngineKind::Ext4MoveExtent {
        // It cannot share blocks.
        return;
    }
    let untold = (kind == EngineKind::XfsShareRange).then(Bench::untold);
    let benches = [Bench::new(kind), untold.flatten()];
    benches.into_iter().flatten().for_each(reflinked_on);
}

fn reflinked_on(mut bench: Bench) {
    let kind = bench.kind;
    let (path, copy) = (bench.path("file"), bench.path("copy"));
    make(&path, Bytes::mib(4), Bytes::kib(4));
    reflink(&path, &copy).unwrap();
    // The second half of the file is unshared again.
    make(&bench.path("other"), Bytes::mib(4), Bytes::kib(4));
    let partly = bench.path("partly");
    reflink(&bench.path("other"), &partly).unwrap();
    File::options()
        .write(true)
        .open(bench.path("other"))
        .unwrap()
        .set_len(2 << 20)
        .unwrap();
    let states = [&path, &copy, &partly].map(|path| State::of(path));
    if kind.keeps_sharing() {
        bench.must_relocate(&path, Policy::Whole);
        bench.must_relocate(&partly, Policy::Whole);
        let states = states.map(|state| state.check());
        let [file, copied, partly] = [0, 1, 2].map(|index| &states[index]);
        assert!(file.fragments <= 4 && partly.fragments <= 4, "{partly:?}");
        assert_eq!(file.layout, copied.layout);
        return finish(bench, &states);
    }
    match bench.relocate(&path, Policy::Whole) {
        Err(Refusal::Skip(SkipReason::Shared | SkipReason::Contiguous)) => {}
        other => panic!("a shared file: {other:?}"),
    }
    let _ = bench.relocate(&partly, Policy::Whole);
    let _ = bench.relocate(&partly, Policy::Sequential);
    let [state, copied, partly] = states.map(|state| state.check());
    bench.allow_unshare = true;
    if matches!(
        kind,
        EngineKind::XfsSwapExtents | EngineKind::XfsDedupeRange
    ) {
        match bench.relocate(&path, Policy::Whole) {
            Err(Refusal::Skip(SkipReason::KeepsSharing)) => {}
            other => panic!("a shared file: {other:?}"),
        }
        return finish(bench, &[state, copied, partly]);
    }
    // On request sharing is given up; the other file is not affected.
    bench.must_relocate(&path, Policy::Whole);
    let state = state.check_unshared();
    let most = most_left(kind, Bytes::mib(4), 4);
    assert!(state.fragments <= most, "{}", state.fragments);
    finish(bench, &[state, copied.check_unshared(), partly]);
}

pub(crate) fn hard_linked(kind: EngineKind) {
    let Some(bench) = Bench::new(kind) else {
        return;
    };
    let (path, link) = (bench.path("first"), bench.path("second"));
    make(&path, Bytes::mib(1), Bytes::kib(4));
    std::fs::hard_link(&path, &link).unwrap();
    let states = [State::of(&path), State::of(&link)];
    bench.must_relocate(&link, Policy::Whole);
    let states = states.map(|state| state.check());
    assert!(states[0].fragments <= most_left(kind, Bytes::mib(1), 2));
    finish(bench, &states);
}

pub(crate) fn small_and_odd_sizes(kind: EngineKind) {
    let Some(bench) = Bench::new(kind) else {
        return;
    };
    let mut states = Vec::new();
    for (size, piece) in [
        (0, 4096),
        (1, 4096),
        (4096, 4096),
        (4097, 4096),
        (8192, 4096),
        (100_001, 4096),
        (131_072 + 1, 8192),
        (1_048_575, 65_536),
        (266_240, 4096),
    ] {
        let path = bench.path(&format!("of-{size}"));
        make(&path, Bytes(size), Bytes(piece));
        let state = State::of(&path);
        let result = bench.relocate(&path, Policy::Whole);
        let now = state.check();
        if state.fragments > 1 {
            assert!(result.is_ok(), "{size} bytes: {result:?}");
            let most = most_left(kind, Bytes(size), 1);
            assert!(now.fragments <= most, "{size} bytes: {}", now.fragments);
        } else {
            assert!(
                matches!(result, Err(Refusal::Skip(_))),
                "{size}: {result:?}"
            );
        }
        states.push(now);
    }
    finish(bench, &states);
}

pub(crate) fn huge_sparse(kind: EngineKind) {
    let Some(bench) = Bench::new(kind) else {
        return;
    };
    let path = bench.path("huge");
    // A file of F2FS has less than 4 TiB.
    let far = match kind {
        EngineKind::F2fsDefragment | EngineKind::F2fsOffload => Bytes::gib(2 << 10),
        _ => Bytes::gib(3 << 10),
    };
    let data = Segment::Data {
        len: Bytes::kib(512),
        piece: Bytes::kib(4),
    };
    Shape::new(5)
        .with(data)
        .with(Segment::Hole(Bytes::gib(1 << 10)))
        .with(data)
        .with(Segment::Hole(far))
        .with(data)
        .make(&path)
        .unwrap();
    let state = State::of(&path);
    bench.must_relocate(&path, Policy::Whole);
    let now = state.check();
    assert!(now.fragments <= 9, "{}", now.fragments);
    finish(bench, &[now]);
}

pub(crate) fn many_extents(kind: EngineKind) {
    let Some(bench) = Bench::on(kind, builder(kind, Bytes::mib(1536)).build()) else {
        return;
    };
    let path = bench.path("many");
    // In a guest each piece is a request of some hundred microseconds.
    let size = match kind {
        EngineKind::F2fsDefragment | EngineKind::F2fsOffload => Bytes::mib(24),
        _ => Bytes::mib(64),
    };
    make(&path, size, Bytes::kib(4));
    let state = State::of(&path);
    assert_eq!(state.fragments, size.div_ceil(Bytes::kib(4)));
    bench.fs.sync().unwrap();
    let before = bench.fs.device_bytes().unwrap();
    bench.must_relocate(&path, Policy::Whole);
    bench.fs.sync().unwrap();
    let written = (bench.fs.device_bytes().unwrap() - before).written;
    let now = state.check();
    let (left, most) = (now.fragments, most_left(kind, size, 32));
    assert!(left <= most, "{left} fragments left");
    eprintln!("{}: {written} written for {size}, {left} left", kind.name());
    assert!(written <= size + Bytes::mib(32), "{written} for {size}");
    finish(bench, &[now]);
}

pub(crate) fn odd_names(kind: EngineKind) {
    let Some(bench) = Bench::new(kind) else {
        return;
    };
    let long = "l".repeat(255);
    let mut states = Vec::new();
    for name in [
        b" with space \t".as_slice(),
        b"new\nline",
        b"-rf",
        b"\xff\xfe\x80not utf-8",
        "\u{fc}ml\u{e4}ut \u{1f980}".as_bytes(),
        b"..dots..",
        long.as_bytes(),
    ] {
        let path = bench.fs.path().join(OsStr::from_bytes(name));
        // Made under a plain name: the neighbouring dummy has none in any case.
        make(&bench.path("plain"), Bytes::kib(128), Bytes::kib(4));
        std::fs::rename(bench.path("plain"), &path).unwrap();
        let state = State::of(&path);
        bench.must_relocate(&path, Policy::Whole);
        states.push(state.check());
    }
    let names = bench.names();
    assert_eq!(
        names.iter().filter(|n| *n != "lost+found").count(),
        7,
        "{names:?}"
    );
    finish(bench, &states);
}

/// Ranges that begin and end inside of extents: the remainders must not make more fragments.
pub(crate) fn ranges_that_cut(kind: EngineKind) {
    let Some(bench) = Bench::new(kind) else {
        return;
    };
    let path = bench.path("cut");
    make(&path, Bytes::mib(6), Bytes::kib(192));
    let state = State::of(&path);
    let _ = bench.relocate(&path, Policy::Sequential);
    let now = state.check();
    // Requested directly, which no plan would do.
    let target = Target::open(&path).unwrap();
    let ranges: Vec<_> = (0..15)
        .map(|i| FileRange::new(i * 393_216 + 131_072, 131_072))
        .collect();
    let _ = bench.relocate_ranges(&target, &ranges, Bytes::mib(1), usize::MAX);
    drop(target);
    let now = now.check();
    finish(bench, &[now]);
}

/// A relocation that is dropped at any step leaves a whole file, and no leftovers.
pub(crate) fn dropped_midway(kind: EngineKind) {
    let Some(mut bench) = Bench::new(kind) else {
        return;
    };
    let path = bench.path("dropped");
    make(&path, Bytes::mib(8), Bytes::kib(4));
    let mut state = State::of(&path);
    let names = bench.names();
    let used = bench.settled_used();
    for steps in [0, 1, 2, 5, 9, 20] {
        let target = Target::open(&path).unwrap();
        let Ok(ranges) = bench.plan(&target, Policy::Sequential) else {
            break;
        };
        if !ranges.is_empty() {
            bench
                .relocate_ranges(&target, &ranges, Bytes::kib(256), steps)
                .unwrap();
        }
        drop(target);
        state = state.check();
        assert_eq!(bench.names(), names);
    }
    let now = bench.settled_used();
    assert!(now <= used + METADATA, "used: {used} before, {now} now");
    finish(bench, &[state]);
}

/// Cached blocks are cached afterwards, others are not.
pub(crate) fn page_cache(kind: EngineKind) {
    undisturbed(|| page_cache_stays(kind));
}

fn page_cache_stays(kind: EngineKind) {
    let Some(bench) = Bench::new(kind) else {
        return;
    };
    let size = Bytes::mib(4);
    let (warm, cold) = (bench.path("warm"), bench.path("cold"));
    for path in [&warm, &cold] {
        make(path, size, Bytes::kib(4));
    }
    bench.fs.sync().unwrap();
    let [was_warm, was_cold] = [(&warm, size), (&cold, Bytes(0))].map(|(path, read)| {
        let file = crate::state::open(path);
        let mut bytes = vec![0; read.get() as usize];
        cached_pages_after(&file, || file.read_exact_at(&mut bytes, 0)).unwrap()
    });
    assert_eq!(was_warm, [true; 1024]);
    assert_eq!(was_cold, [false; 1024]);
    for path in [&warm, &cold] {
        bench.must_relocate(path, Policy::Whole);
    }
    let change = |path, before| settled_cache_change(&crate::state::open(path), before).unwrap();
    let CacheChange { dropped, .. } = change(&warm, &was_warm);
    assert!(dropped.len() <= 24, "dropped: {dropped:?}");
    let CacheChange { added, .. } = change(&cold, &was_cold);
    assert!(added.len() <= 24, "added: {added:?}");
}

/// Ranges lie in the device's rows as they do in the file, where the engine says so.
pub(crate) fn rows(kind: EngineKind) {
    let Some(mut bench) = Bench::new(kind) else {
        return;
    };
    let path = bench.path("rows");
    make(&path, Bytes::mib(8), Bytes::kib(4));
    // What that removed is given back in the background, and rows are kept where free space lets them.
    bench.fs.remount().unwrap();
    // Free space that begins in the middle of a row.
    let beside = File::create(bench.path("beside")).unwrap();
    let flags = rustix::fs::FallocateFlags::empty();
    rustix::fs::fallocate(&beside, flags, 0, (1 << 20) + 36_864).unwrap();
    let state = State::of(&path);
    let (long, short) = (256 << 10, 32 << 10);
    let ranges = [
        FileRange::new(0, long),
        FileRange::new(512 << 10, short),
        FileRange::new(576 << 10, short),
        FileRange::new((768 << 10) + 4096, short),
        FileRange::new(1 << 20, long),
        FileRange::new((2 << 20) + 20_480, 300 << 10),
        FileRange::new(4 << 20, 1 << 20),
    ];
    let target = Target::open(&path).unwrap();
    let done = bench
        .relocate_ranges(&target, &ranges, Bytes::kib(100), usize::MAX)
        .unwrap();
    let asked: Bytes = ranges.iter().map(|range| range.len).sum();
    // One that moves whole files moves all.
    let all = done.moved.relocated > asked;
    assert!(done.moved.relocated >= asked, "{done:?}");
    let now = state.check();
    for range in ranges {
        assert_eq!(now.layout.fragments_in(range), 1, "{range:?}");
        let first = now.layout.clipped(range).next().unwrap();
        let place = Bytes((first.phys.0 - ROW.origin.0) % ROW.bytes.0);
        if !kind.keeps_rows() || all {
            continue;
        }
        if range.len >= ROW.bytes {
            assert_eq!(place.0, range.start.0 % ROW.bytes.0, "{range:?}");
        } else {
            assert!(place + range.len <= ROW.bytes, "{range:?} at {place:?}");
        }
    }
    drop((target, beside));
    finish(bench, &[now]);
}
