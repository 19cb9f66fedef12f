//! Files that are written, cut, mapped, read around the cache or deleted while they are moved.
//! Afterwards the file must hold the data that its user wrote.

use std::{
    env,
    fs::File,
    os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt},
    sync::atomic::{AtomicBool, Ordering},
};

use indef_core::{SkipReason, plan::Policy};
use indef_fs::{EngineKind, Refusal, Target};
use linux_abi::mapping::SharedBytes;
use units::{Bytes, FileOffset};
use workloads::Numbers;

use crate::{
    at_rest::{finish, make},
    harness::Bench,
};

const SIZE: usize = 8 << 20;
/// Set in the environment for the short form of these cases.
pub(crate) const SHORT: &str = "INDEF_CONFORMANCE_SHORT";

/// The extent of a case.
struct Effort {
    /// Number of times that the file is fragmented and moved: each is a chance for a race.
    rounds: u64,
    /// Size of its fragments: F2FS needs two synchronous writes for each.
    piece: Bytes,
}

fn effort() -> Effort {
    let (rounds, kib) = match env::var_os(SHORT) {
        Some(_) => (2, 16),
        None => (6, 4),
    };
    Effort {
        rounds,
        piece: Bytes::kib(kib),
    }
}

/// What a file may be refused for that is written, besides what any file in use may be refused for.
///
/// The engines that keep sharing move extents as a whole only. What was written since the plan was made may have begun one
/// in a planned range that ends behind it.
fn as_written(kind: EngineKind) -> Vec<SkipReason> {
    match kind.keeps_sharing() {
        true => vec![SkipReason::HoldersDiffer],
        false => Vec::new(),
    }
}

/// Move the file over and over while `user` runs, which gets the file's content, a random source
/// and a function that tells whether to go on, and keeps the content up to date. Then compare. A
/// move may be refused for `also`, besides what any file in use may be refused for.
fn while_used(
    kind: EngineKind,
    also: &[SkipReason],
    user: impl Fn(&std::path::Path, &mut Vec<u8>, &mut Numbers, &dyn Fn() -> bool) + Sync,
) {
    let Some(bench) = Bench::new(kind) else {
        return;
    };
    let path = bench.path("used");
    let mut moved = Bytes::ZERO;
    let Effort { rounds, piece } = effort();
    for round in 0..rounds {
        make(&path, Bytes(SIZE as u64), piece);
        let mut content = vec![0; SIZE];
        scratch_fs::content(&mut content, SIZE as u64, FileOffset(0));
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (user, stop, file) = (&user, &stop, path.as_path());
            let content = &mut content;
            scope.spawn(move || {
                let mut numbers = Numbers::new(round);
                user(file, content, &mut numbers, &|| {
                    !stop.load(Ordering::Relaxed)
                });
            });
            // Several attempts: data that changes meanwhile may be refused, but never damaged.
            for policy in [Policy::Whole, Policy::Sequential, Policy::Sequential] {
                let result = Target::open(&path).and_then(|target| {
                    let ranges = bench.plan(&target, policy)?;
                    bench.relocate_ranges(&target, &ranges, Bytes::kib(256), usize::MAX)
                });
                match result {
                    Ok(done) => moved += done.moved.relocated,
                    Err(Refusal::Skip(
                        SkipReason::Changed
                        | SkipReason::InUse
                        | SkipReason::NoGain
                        | SkipReason::Contiguous
                        | SkipReason::Gone
                        | SkipReason::NoSpace,
                    )) => {}
                    Err(Refusal::Skip(reason)) if also.contains(&reason) => {}
                    Err(refusal) => {
                        stop.store(true, Ordering::Relaxed);
                        panic!("{}: {refusal}", kind.name());
                    }
                }
            }
            stop.store(true, Ordering::Relaxed);
        });
        compare(&path, &content, &format!("{}, round {round}", kind.name()));
    }
    eprintln!("{}: {moved} moved under use", kind.name());
    finish(bench, &[]);
}

#[track_caller]
fn compare(path: &std::path::Path, content: &[u8], what: &str) {
    // Read from the cache, and from the device.
    for drop_cache in [false, true] {
        let file = File::open(path).unwrap();
        if drop_cache {
            file.sync_all().unwrap();
            rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        }
        assert_eq!(
            file.metadata().unwrap().size(),
            content.len() as u64,
            "{what}: size"
        );
        let mut now = vec![0; content.len()];
        file.read_exact_at(&mut now, 0).unwrap();
        if now != content {
            let at = (0..now.len()).find(|&i| now[i] != content[i]).unwrap();
            let run = (at..now.len())
                .take_while(|&i| now[i] != content[i])
                .count();
            panic!(
                "{what}: {run} bytes from {at} of {} differ (cache dropped: {drop_cache}): {:?} instead of {:?}",
                now.len(),
                &now[at..at + run.min(8)],
                &content[at..at + run.min(8)],
            );
        }
    }
}

pub(crate) fn written(kind: EngineKind) {
    while_used(kind, &as_written(kind), |path, content, numbers, go_on| {
        let file = File::options().write(true).open(path).unwrap();
        let mut value = 0_u8;
        while go_on() {
            let at = numbers.below(SIZE - 20_000);
            let len = 1 + numbers.below(20_000_usize);
            value = value.wrapping_add(1);
            content[at..at + len].fill(value);
            file.write_all_at(&content[at..at + len], at as u64)
                .unwrap();
            match numbers.below(64_usize) {
                0 => file.sync_data().unwrap(),
                1 => std::thread::sleep(std::time::Duration::from_millis(1)),
                _ => {}
            }
        }
    });
}

/// What a file may be that was cut to a few bytes and grown again: also all space that XFS gave it in
/// advance, to write to later.
const CUT: [SkipReason; 4] = [
    SkipReason::Empty,
    SkipReason::Inline,
    SkipReason::OutOfRange,
    SkipReason::Unwritten,
];

pub(crate) fn truncated(kind: EngineKind) {
    let also = [&CUT[..], &as_written(kind)].concat();
    while_used(kind, &also, |path, content, numbers, go_on| {
        let file = File::options().write(true).open(path).unwrap();
        let mut value = 0_u8;
        while go_on() {
            let len = numbers.below(SIZE);
            file.set_len(len as u64).unwrap();
            content.resize(len, 0);
            let more = numbers.below(200_000_usize);
            value = value.wrapping_add(1);
            content.resize(len + more, value);
            file.write_all_at(&content[len..], len as u64).unwrap();
            // Also grow it by a hole.
            let size = content.len() + numbers.below(100_000_usize);
            file.set_len(size as u64).unwrap();
            content.resize(size, 0);
            std::thread::sleep(std::time::Duration::from_micros(500));
        }
    });
}

pub(crate) fn mapped(kind: EngineKind) {
    while_used(kind, &as_written(kind), |path, content, numbers, go_on| {
        let file = File::options().read(true).write(true).open(path).unwrap();
        let map = SharedBytes::map(&file, SIZE).unwrap();
        let mut value = 0_u8;
        while go_on() {
            let at = numbers.below(SIZE);
            value = value.wrapping_add(1);
            assert_eq!(map.load(at), content[at], "byte {at} while mapped");
            map.store(at, value);
            content[at] = value;
            if numbers.below(4096_usize) == 0 {
                file.sync_data().unwrap();
            }
        }
    });
}

pub(crate) fn read_directly(kind: EngineKind) {
    while_used(kind, &[], |path, content, numbers, go_on| {
        direct(path, content, numbers, go_on, false);
    });
}

pub(crate) fn written_directly(kind: EngineKind) {
    while_used(kind, &as_written(kind), |path, content, numbers, go_on| {
        direct(path, content, numbers, go_on, true);
    });
}

fn direct(
    path: &std::path::Path,
    content: &mut [u8],
    numbers: &mut Numbers,
    go_on: &dyn Fn() -> bool,
    write: bool,
) {
    const BLOCK: usize = 4096;
    let file = File::options()
        .read(true)
        .write(write)
        .custom_flags(rustix::fs::OFlags::DIRECT.bits() as i32)
        .open(path)
        .unwrap();
    let mut memory = vec![0; 17 * BLOCK];
    let start = memory.as_ptr().align_offset(BLOCK);
    let mut value = 0_u8;
    while go_on() {
        let blocks = 1 + numbers.below(16_usize);
        let at = numbers.below(SIZE / BLOCK - blocks) * BLOCK;
        let buffer = &mut memory[start..start + blocks * BLOCK];
        let expected = &mut content[at..at + blocks * BLOCK];
        if write && numbers.below(2_usize) == 0 {
            value = value.wrapping_add(1);
            expected.fill(value);
            buffer.fill(value);
            file.write_all_at(buffer, at as u64).unwrap();
        } else {
            file.read_exact_at(buffer, at as u64).unwrap();
            assert!(buffer == expected, "direct read at {at} differs");
        }
    }
}

pub(crate) fn deleted(kind: EngineKind) {
    let Some(mut bench) = Bench::new(kind) else {
        return;
    };
    let used = bench.settled_used();
    for steps in 0..5 {
        let path = bench.path("deleted");
        make(&path, Bytes::mib(4), effort().piece);
        let target = Target::open(&path).unwrap();
        let ranges = bench.plan(&target, Policy::Whole).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(std::time::Duration::from_millis(steps * 4));
                std::fs::remove_file(&path).unwrap();
            });
            match bench.relocate_ranges(&target, &ranges, Bytes::kib(256), usize::MAX) {
                Ok(_) | Err(Refusal::Skip(SkipReason::Gone | SkipReason::Changed)) => {}
                Err(refusal) => panic!("{}: {refusal}", kind.name()),
            }
        });
        // It is still open, and still whole.
        let whole = units::FileRange::new(0, 4 << 20);
        scratch_fs::verify(&target.file, 4 << 20, whole).unwrap();
    }
    let now = bench.settled_used();
    assert!(
        now <= used + Bytes::mib(3),
        "used: {used} before, {now} now"
    );
    finish(bench, &[]);
}
