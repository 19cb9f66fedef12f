//! Features that only Btrfs has: compression, files without copy-on-write, snapshots, read-only
//! subvolumes, inline data; and a comparison with `btrfs filesystem defragment` in bytes.

#[path = "conformance/harness.rs"]
#[allow(dead_code)]
mod harness;
#[path = "btrfs/share.rs"]
mod share;
#[path = "conformance/state.rs"]
#[allow(dead_code)]
mod state;

use std::{
    fs::File,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use indef_core::{SkipReason, layout::ExtentFlags, plan::Policy};
use indef_fs::{EngineKind, Refusal, StepLimit, Target, count_ranges};
use linux_abi::{
    btrfs::{Compression, committed, compressions},
    handle::{self, FileHandle},
};
use scratch_fs::{FragmentOptions, ScratchFs, Segment, Shape, fill_pool, fragment, require};
use units::{Bytes, FileRange};
use workloads::Numbers;

use harness::Bench;
use state::State;

const KIND: EngineKind = EngineKind::BtrfsDefragRange;

fn bench(options: &str) -> Option<Bench> {
    let made = harness::builder(KIND, Bytes::gib(2)).mount_options(options);
    Bench::on(KIND, made.build())
}

fn btrfs(arguments: &[&str]) {
    let output = Command::new("btrfs").args(arguments).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "btrfs {arguments:?}: {said}");
}

fn fragmented(path: &Path, size: Bytes) {
    let options = FragmentOptions {
        size,
        piece: Bytes::kib(4),
        seed: 9,
    };
    fragment(path, options).unwrap();
}

/// 16 KiB pieces of text, each written back before any other data, so that the compressed extents
/// lie apart.
fn compressed_file(bench: &Bench, name: &str) -> PathBuf {
    let (path, other) = (bench.path(name), bench.path(&format!("beside-{name}")));
    let [file, between] = [&path, &other].map(|path| {
        File::options()
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .unwrap()
    });
    let mut noise = vec![0; 16 << 10];
    for i in 0..256_u64 {
        let text: Vec<u8> = (0..16 << 10)
            .map(|j: u64| b"compressible text "[(j % 18) as usize] ^ (i as u8 & 7))
            .collect();
        file.write_all_at(&text, i << 14).unwrap();
        file.sync_all().unwrap();
        scratch_fs::content(&mut noise, i, units::FileOffset(0));
        between.write_all_at(&noise, i << 14).unwrap();
        between.sync_all().unwrap();
    }
    path
}

/// Move without a plan, which would not request compressed extents that are as long as they can be.
fn move_all(bench: &Bench, path: &Path) -> Result<harness::Done, Refusal> {
    let target = Target::open(path)?;
    let whole = [FileRange::new(0, target.size.get())];
    bench.relocate_ranges(&target, &whole, Bytes::mib(1), usize::MAX)
}

fn algorithms(path: &Path) -> Vec<Option<Compression>> {
    let target = Target::open(path).unwrap();
    compressions(&target.file, target.id.inode, 0, u64::MAX).unwrap()
}

#[test]
fn loop_compressed_data_stays_compressed_the_same_way() {
    for (mount, algorithm) in [
        ("compress=zstd:5", Compression::Zstd),
        ("compress=lzo", Compression::Lzo),
        ("compress-force=zlib", Compression::Zlib),
    ] {
        let Some(mut bench) = bench(mount) else {
            return;
        };
        let path = compressed_file(&bench, "text");
        let state = State::of(&path);
        assert!(
            state
                .layout
                .extents()
                .iter()
                .all(|e| e.flags.contains(ExtentFlags::ENCODED))
        );
        assert_eq!(algorithms(&path), [Some(algorithm)], "{mount}");
        let done = move_all(&bench, &path).unwrap();
        let now = state.check();
        assert!(
            now.fragments < state.fragments / 4,
            "{mount}: {} of {} left, {done:?}",
            now.fragments,
            state.fragments
        );
        assert_eq!(algorithms(&path), [Some(algorithm)], "{mount}");
        bench.fs.fsck().unwrap();
    }
}

#[test]
fn loop_compressed_data_keeps_its_algorithm_where_the_mount_has_another_or_none() {
    let Some(mut bench) = bench("compress=lzo") else {
        return;
    };
    let files = ["first", "second"].map(|name| compressed_file(&bench, name));
    for (path, options) in files.iter().zip(["compress-force=zstd", ""]) {
        bench.fs.set_mount_options(options);
        bench.fs.remount().unwrap();
        let root = File::open(bench.fs.path()).unwrap();
        bench.detected = indef_fs::detect(&root, bench.fs.path()).unwrap();
        drop(root);
        let state = State::of(path);
        move_all(&bench, path).unwrap();
        state.check();
        assert_eq!(algorithms(path), [Some(Compression::Lzo)], "{options}");
    }
    bench.fs.fsck().unwrap();
}

#[test]
fn loop_plain_data_is_not_compressed_by_us() {
    let Some(mut bench) = bench("") else { return };
    let path = bench.path("plain");
    // Compressible, and fragmented without compression.
    std::fs::rename(compressed_file(&bench, "first"), &path).unwrap();
    let mixed = bench.path("mixed");
    std::fs::rename(compressed_file(&bench, "second"), &mixed).unwrap();
    bench.fs.set_mount_options("compress-force=zstd");
    bench.fs.remount().unwrap();
    let root = File::open(bench.fs.path()).unwrap();
    bench.detected = indef_fs::detect(&root, bench.fs.path()).unwrap();
    drop(root);
    let state = State::of(&path);
    let other = State::of(&mixed);
    let result = bench.relocate(&path, Policy::Whole);
    if bench.detected.kernel_at_least(6, 17) {
        assert!(result.is_ok(), "{result:?}");
    }
    let now = state.check();
    assert!(algorithms(&path).is_empty());
    if result.is_ok() {
        let most = harness::most_left(KIND, Bytes::mib(4), 2);
        assert!(now.fragments <= most, "{}", now.fragments);
    }
    // Some of it is compressed afterwards: each part keeps its kind.
    let file = File::options().write(true).open(&mixed).unwrap();
    file.write_all_at(&[b'y'; 256 << 10], 256 << 10).unwrap();
    file.sync_all().unwrap();
    drop((file, other));
    let state = State::of(&mixed);
    assert!(
        state
            .layout
            .extents()
            .iter()
            .any(|e| e.flags.contains(ExtentFlags::ENCODED))
    );
    move_all(&bench, &mixed).unwrap();
    let now = state.check();
    assert!(now.fragments < state.fragments, "{}", now.fragments);
    bench.fs.fsck().unwrap();
}

#[test]
fn loop_files_without_copy_on_write_move_and_stay_so() {
    let Some(mut bench) = bench("") else { return };
    let directory = bench.path("nocow");
    std::fs::create_dir(&directory).unwrap();
    let flags = rustix::fs::IFlags::NOCOW;
    rustix::fs::ioctl_setflags(File::open(&directory).unwrap(), flags).unwrap();
    let path = directory.join("file");
    fragmented(&path, Bytes::mib(4));
    let state = State::of(&path);
    assert_eq!(state.fragments, 1024);
    bench.must_relocate(&path, Policy::Whole);
    let now = state.check();
    let most = harness::most_left(KIND, Bytes::mib(4), 2);
    assert!(now.fragments <= most, "{}", now.fragments);
    let target = Target::open(&path).unwrap();
    assert!(
        rustix::fs::ioctl_getflags(&target.file)
            .unwrap()
            .contains(flags)
    );
    drop(target);
    bench.fs.fsck().unwrap();
}

#[test]
fn loop_snapshots_share_and_read_only_ones_refuse() {
    let Some(mut bench) = bench("") else { return };
    let root = bench.fs.path().to_str().unwrap().to_owned();
    let (sub, snap) = (format!("{root}/sub"), format!("{root}/snap"));
    btrfs(&["subvolume", "create", &sub]);
    let path = Path::new(&sub).join("file");
    fragmented(&path, Bytes::mib(4));
    btrfs(&["subvolume", "snapshot", "-r", &sub, &snap]);
    let old = Path::new(&snap).join("file");
    let states = [State::of(&path), State::of(&old)];
    for (path, reasons) in [
        (&path, [SkipReason::Shared, SkipReason::Contiguous]),
        (&old, [SkipReason::ReadOnlyMount, SkipReason::NotPermitted]),
    ] {
        match bench.relocate(path, Policy::Whole) {
            Err(Refusal::Skip(reason)) if reasons.contains(&reason) => {}
            other => panic!("{}: {other:?}", path.display()),
        }
    }
    for state in states {
        state.check();
    }
    bench.fs.fsck().unwrap();
}

/// A snapshot made while the file moves: ranges that were not moved yet stay shared.
#[test]
fn loop_a_snapshot_meanwhile_ends_the_relocation() {
    let Some(mut bench) = bench("") else { return };
    let root = bench.fs.path().to_str().unwrap().to_owned();
    let path = bench.path("file");
    fragmented(&path, Bytes::mib(64));
    let state = State::of(&path);
    let target = Target::open(&path).unwrap();
    let engine = bench.engine().unwrap();
    let whole = count_ranges(&target, &[FileRange::new(0, 64 << 20)]).unwrap();
    let mut relocation = engine
        .begin(&target, &whole, &harness::PlainCopier)
        .unwrap();
    let limit = indef_fs::StepLimit {
        bytes: Bytes::mib(1),
    };
    relocation.step(limit).unwrap();
    btrfs(&["subvolume", "snapshot", &root, &format!("{root}/snap")]);
    let result = loop {
        match relocation.step(limit) {
            Ok(indef_fs::Step::Working(_)) => {}
            other => break other,
        }
    };
    assert!(
        matches!(result, Ok(_) | Err(Refusal::Skip(SkipReason::Shared))),
        "{result:?}"
    );
    drop(relocation);
    drop(target);
    let now = State::of(&path);
    let shared: u64 = now
        .layout
        .extents()
        .iter()
        .filter(|e| e.flags.contains(ExtentFlags::SHARED))
        .map(|e| e.len.get())
        .sum();
    assert!(shared >= 24 << 20, "{shared} bytes still shared");
    assert!(now.fragments <= state.fragments);
    drop(engine);
    bench.fs.fsck().unwrap();
}

#[test]
fn loop_inline_data_stays_inline() {
    let Some(mut bench) = bench("") else { return };
    let path = bench.path("tiny");
    std::fs::write(&path, b"a few bytes").unwrap();
    bench.fs.sync().unwrap();
    let state = State::of(&path);
    let target = Target::open(&path).unwrap();
    let result = bench.relocate_ranges(&target, &[FileRange::new(0, 4096)], Bytes::mib(1), 99);
    assert!(
        matches!(result, Err(Refusal::Skip(SkipReason::Inline))),
        "{result:?}"
    );
    drop(target);
    state.check();
    bench.fs.fsck().unwrap();
}

/// Half of a file is worth moving: only that half is written.
#[test]
fn loop_fewer_bytes_than_btrfs_filesystem_defragment() {
    let written = |by_us: bool| {
        let mut bench = bench("")?;
        let path = bench.path("half");
        Shape::half_contiguous(3, Bytes::mib(64))
            .make(&path)
            .unwrap();
        bench.fs.remount().unwrap();
        let before = bench.fs.device_bytes().unwrap();
        if by_us {
            bench.must_relocate(&path, Policy::Sequential);
        } else {
            btrfs(&["filesystem", "defragment", path.to_str().unwrap()]);
        }
        bench.fs.sync().unwrap();
        Some((bench.fs.device_bytes().unwrap() - before).written)
    };
    // Usually 47 to 49 percent fewer; where another program on this machine syncs in between,
    // metadata is written twice, so the least of three counts.
    let least = |by_us| (0..3).map_while(|_| written(by_us)).min();
    let (Some(ours), Some(theirs)) = (least(true), least(false)) else {
        return;
    };
    eprintln!("{ours} instead of {theirs}");
    assert!(
        ours.get() as f64 <= 0.6 * theirs.get() as f64,
        "{ours} instead of {theirs}"
    );
}

/// Whoever syncs after a move of many extents does not wait for all that they cost the trees.
#[test]
fn loop_commits_begin_while_many_extents_move() {
    // By itself the kernel commits every 300 seconds then.
    let Some(bench) = bench("commit=300") else {
        return;
    };
    let path = bench.path("file");
    fragmented(&path, Bytes::mib(64));
    bench.fs.sync().unwrap();
    let file = File::open(&path).unwrap();
    let Ok(FileHandle::Btrfs { subvolume, .. }) = handle::of(&file) else {
        panic!("no handle of Btrfs");
    };
    let transaction = || committed(&file, subvolume).unwrap().unwrap();
    let before = transaction();
    bench.must_relocate(&path, Policy::Whole);
    let begun = Instant::now();
    while transaction() == before {
        assert!(begun.elapsed() < Duration::from_secs(60), "no commit");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Without contiguous free space nothing gets worse.
#[test]
fn loop_large_extents_do_not_move_into_small_spaces() {
    let Some(mut bench) = Bench::small(KIND) else {
        return;
    };
    let path = bench.path("large");
    let data = Segment::Data {
        len: Bytes::mib(32),
        piece: Bytes::mib(4),
    };
    Shape::new(1).with(data).make(&path).unwrap();
    // Everything else is in pieces of 64 KiB, and every second one is freed.
    let rest = bench.fs.free().unwrap().get() - (8 << 20);
    let filler = Segment::Unwritten {
        len: Bytes(rest / 2),
        piece: Bytes::kib(64),
    };
    let _ = Shape::new(2)
        .with(filler)
        .roughly()
        .make(&bench.path("filler"));
    bench.fs.sync().unwrap();
    let state = State::of(&path);
    let result = bench.relocate(&path, Policy::Whole);
    eprintln!("{result:?}, {} free", bench.fs.free().unwrap());
    state.check();
    bench.fs.fsck().unwrap();
}

/// Calls its closure over and over in a thread, until it is dropped.
struct Beside<'scope> {
    stop: &'scope std::sync::atomic::AtomicBool,
}

impl Drop for Beside<'_> {
    fn drop(&mut self) {
        self.stop.store(true, std::sync::atomic::Ordering::SeqCst);
    }
}

/// Other programs write, sync and take snapshots: data that is being moved is then written back in
/// the middle of the move, in as many pieces as that happens.
#[test]
fn loop_files_that_nobody_writes_do_not_get_more_fragments_beside_writers() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let Some(bench) = bench("") else {
        return;
    };
    let shapes: Vec<(Bytes, Bytes)> = [
        (1024, 384),
        (4096, 224),
        (16384, 128),
        (2048, 16),
        (32768, 12288),
    ]
    .map(|(len, piece)| (Bytes::kib(len), Bytes::kib(piece)))
    .into();
    let mut files = Vec::new();
    for round in 0..6 {
        for (number, (len, piece)) in shapes.iter().enumerate() {
            let path = bench.path(&format!("file{round}-{number}"));
            let data = Segment::Data {
                len: *len,
                piece: *piece,
            };
            Shape::new(round).with(data).roughly().make(&path).unwrap();
            files.push(path);
        }
    }
    bench.fs.sync().unwrap();
    let fragments = |path: &Path| scratch_fs::fragments(&File::open(path).unwrap()).unwrap();
    let stop = AtomicBool::new(false);
    let (mut worse, mut better) = (Vec::new(), 0);
    std::thread::scope(|scope| {
        let _beside = Beside { stop: &stop };
        let running = || !stop.load(Ordering::SeqCst);
        for number in 0..2_u64 {
            let path = bench.path(&format!("writer{number}"));
            scope.spawn(move || {
                let file = File::create(path).unwrap();
                let mut numbers = Numbers::new(number);
                while running() {
                    let place = numbers.below(4096_u64) * 4096;
                    file.write_all_at(&[1; 4096], place).unwrap();
                    if numbers.below(8_u32) == 0 {
                        file.sync_data().unwrap();
                    }
                }
            });
        }
        let root = bench.fs.path();
        scope.spawn(move || {
            while running() {
                rustix::fs::syncfs(File::open(root).unwrap()).unwrap();
                std::thread::sleep(std::time::Duration::from_millis(3));
            }
        });
        for path in &files {
            let before = fragments(path);
            let done = move_all(&bench, path);
            let after = fragments(path);
            if after > before {
                worse.push((path.clone(), before, after, format!("{done:?}")));
            }
            better += u64::from(after < before);
        }
    });
    assert!(better >= 12, "{better} of {}", files.len());
    assert!(
        worse.is_empty(),
        "{} of {}: {worse:#?}",
        worse.len(),
        files.len()
    );
}

/// Without copy-on-write, the last owner of an extent writes it in place, even before the end of
/// the sharing is committed.
#[test]
fn loop_what_is_shared_stays_in_files_without_copy_on_write() {
    let Some(mut bench) = bench("nodatacow") else {
        return;
    };
    let (path, clone) = (bench.path("file"), bench.path("clone"));
    fragmented(&path, Bytes::mib(1));
    scratch_fs::reflink(&path, &clone).unwrap();
    let states = [&path, &clone].map(|path| State::of(path));
    bench.allow_unshare = true;
    match bench.relocate(&path, Policy::Whole) {
        Err(Refusal::Skip(SkipReason::KeepsSharing)) => {}
        other => panic!("{other:?}"),
    }
    for state in states {
        state.check();
    }
    bench.fs.fsck().unwrap();
}

/// The pool of a thin volume is full: somebody's data cannot be written, just as what moves. It can be read for as long as it
/// can be without a move, and the fsync of whoever has written it fails.
#[test]
fn loop_what_is_written_meanwhile_and_cannot_be_stays_readable() {
    let size = Bytes::mib(512);
    let Some(pool) = require(ScratchFs::builder("ext4", size + Bytes::mib(64)).build()) else {
        return;
    };
    let thin = ScratchFs::builder("btrfs", size).folder(pool.path());
    let Some(mut bench) = Bench::on(KIND, thin.build()) else {
        return;
    };
    let path = bench.path("file");
    let len = Bytes::mib(8);
    fragmented(&path, len);
    fill_pool(&mut bench.fs, &pool, Bytes::ZERO).unwrap();
    let engine = bench.engine().unwrap();
    let target = Target::open(&path).unwrap();
    let ranges = count_ranges(&target, &[FileRange::new(0, len.get())]).unwrap();
    let mut relocation = engine
        .begin(&target, &ranges, &harness::PlainCopier)
        .unwrap();
    let file = File::options().read(true).write(true).open(&path).unwrap();
    let limit = StepLimit {
        bytes: Bytes::mib(1),
    };
    // It is looked at what is cached, and a first part is rewritten.
    relocation.step(limit).unwrap();
    let (block, at) = ([7; 4096], len.get() - 4096);
    file.write_all_at(&block, at).unwrap();
    let failed = std::iter::repeat_with(|| relocation.step(limit)).find_map(Result::err);
    assert!(matches!(failed, Some(Refusal::Failed(_))), "{failed:?}");
    drop(relocation);
    let mut found = [0; 4096];
    file.read_exact_at(&mut found, at).unwrap();
    assert!(found == block, "it is lost");
    assert!(file.sync_all().is_err());
}
