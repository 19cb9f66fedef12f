//! Ranges that are shared move together with all files that share them.

use std::{
    fs::File,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
};

use indef_core::{SkipReason, layout::ExtentFlags, plan::Policy};
use indef_fs::{
    EngineKind, EngineOptions, RangeCopier, Refusal, Step, StepLimit, Target, count_ranges,
    relocator,
};
use scratch_fs::{cached_pages_after, settled_cache_change, uncut, undisturbed};
use units::{Bytes, FileRange};

use crate::{
    btrfs, fragmented,
    harness::{Bench, Done, PlainCopier, builder},
    state::State,
};

const KIND: EngineKind = EngineKind::BtrfsShareRange;

fn bench(options: &str) -> Option<Bench> {
    let made = builder(KIND, Bytes::gib(2)).mount_options(options);
    Bench::on(KIND, made.build())
}

/// A subvolume with a fragmented file, `snapshots` of it, every other one read-only, and as many reflinks.
struct Family {
    path: PathBuf,
    holders: Vec<PathBuf>,
}

impl Family {
    fn new(bench: &Bench, size: Bytes, snapshots: usize, reflinks: usize) -> Self {
        let root = bench.fs.path().to_str().unwrap().to_owned();
        let sub = format!("{root}/sub");
        btrfs(&["subvolume", "create", &sub]);
        let path = Path::new(&sub).join("file");
        fragmented(&path, size);
        let mut holders = Vec::new();
        for number in 0..snapshots {
            let snap = format!("{root}/snap{number}");
            match number % 2 {
                0 => btrfs(&["subvolume", "snapshot", "-r", &sub, &snap]),
                _ => btrfs(&["subvolume", "snapshot", &sub, &snap]),
            }
            holders.push(Path::new(&snap).join("file"));
        }
        for number in 0..reflinks {
            let clone = bench.path(&format!("clone{number}"));
            scratch_fs::reflink(&path, &clone).unwrap();
            holders.push(clone);
        }
        bench.fs.sync().unwrap();
        Self { path, holders }
    }

    fn all(&self) -> impl Iterator<Item = &PathBuf> {
        std::iter::once(&self.path).chain(&self.holders)
    }

    fn states(&self) -> Vec<State> {
        self.all().map(|path| State::of(path)).collect()
    }
}

/// Used bytes once deleted files and old blocks are gone.
fn used(bench: &mut Bench) -> u64 {
    bench.fs.remount().unwrap();
    bench.fs.sync().unwrap();
    bench.fs.used().unwrap().get()
}

/// `btrfs filesystem du`: bytes that the file has alone, and those that it shares.
fn exclusive_and_shared(path: &Path) -> (u64, u64) {
    let output = std::process::Command::new("btrfs")
        .args(["filesystem", "du", "--raw", "-s"])
        .arg(path)
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let numbers: Vec<u64> = text
        .lines()
        .last()
        .unwrap()
        .split_whitespace()
        .take(3)
        .map(|word| word.parse().unwrap())
        .collect();
    (numbers[1], numbers[2])
}

fn together(snapshots: usize, reflinks: usize, size: Bytes) {
    uncut(|| together_leaves(snapshots, reflinks, size).is_none_or(|left| left <= 4));
}

/// The fragments that each is left in.
fn together_leaves(snapshots: usize, reflinks: usize, size: Bytes) -> Option<u64> {
    let mut bench = bench("")?;
    let family = Family::new(&bench, size, snapshots, reflinks);
    let states = family.states();
    let before = used(&mut bench);
    let held: Vec<(u64, u64)> = family
        .all()
        .map(|path| exclusive_and_shared(path))
        .collect();
    let names = bench.names();
    let begun = std::time::Instant::now();
    let done = bench.must_relocate(&family.path, Policy::Whole);
    eprintln!("{snapshots} + {reflinks}: {:?}, {done:?}", begun.elapsed());
    let blocks = FileRange::new(0, size.get()).align_outward(Bytes::kib(4));
    assert_eq!(done.moved.relocated, blocks.len);
    assert_eq!(done.moved.host_written, size, "the copy is written once");
    assert_eq!(bench.names(), names);
    let after = used(&mut bench);
    assert!(
        after <= before + (1 << 20),
        "{before} bytes used before, {after} after"
    );
    let now: Vec<State> = states.iter().map(State::check).collect();
    let left = now[0].fragments;
    assert!(left < states[0].fragments / 8, "{left} fragments");
    for state in &now {
        assert_eq!(state.layout, now[0].layout, "they share the same blocks");
    }
    let holds: Vec<(u64, u64)> = family
        .all()
        .map(|path| exclusive_and_shared(path))
        .collect();
    assert_eq!(holds, held, "exclusive and shared bytes of all");
    assert!(holds.iter().all(|(exclusive, _)| *exclusive == 0));
    // A second run finds nothing to do.
    match bench.relocate(&family.path, Policy::Sequential) {
        Err(Refusal::Skip(SkipReason::Contiguous)) => {}
        _ if left > 4 => {}
        other => panic!("the second run: {other:?}"),
    }
    bench.fs.fsck().unwrap();
    Some(left)
}

#[test]
fn loop_a_snapshot_or_reflink_moves_along() {
    together(1, 0, Bytes::mib(40));
    together(0, 1, Bytes(9_000_001));
}

#[test]
fn loop_ten_snapshots_and_ten_reflinks_move_along() {
    together(10, 10, Bytes::mib(16));
}

#[test]
fn loop_a_hundred_snapshots_move_along() {
    together(100, 3, Bytes::mib(8));
}

/// What each subvolume refers to, and what it has alone, as its quota group counts it.
fn quota_groups(root: &Path) -> Vec<(String, u64, u64)> {
    let output = std::process::Command::new("btrfs")
        .args(["qgroup", "show", "--raw", "--sync"])
        .arg(root)
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let rows = text.lines().filter(|line| line.starts_with("0/"));
    let parsed = rows.map(|line| {
        let mut words = line.split_whitespace();
        let mut next = || words.next().unwrap();
        let name = next().to_owned();
        (name, next().parse().unwrap(), next().parse().unwrap())
    });
    parsed.collect()
}

/// Quota groups count the same as before, but for the metadata.
#[test]
fn loop_quota_groups_count_what_is_shared_as_before() {
    let Some(mut bench) = bench("") else { return };
    let root = bench.fs.path().to_str().unwrap().to_owned();
    btrfs(&["quota", "enable", &root]);
    let family = Family::new(&bench, Bytes::mib(16), 4, 2);
    btrfs(&["quota", "rescan", "-w", &root]);
    let states = family.states();
    let before = quota_groups(bench.fs.path());
    assert_eq!(before.len(), 1 + 1 + 4, "{before:?}");
    bench.must_relocate(&family.path, Policy::Whole);
    // Until deleted files and old blocks are gone.
    used(&mut bench);
    let after = quota_groups(bench.fs.path());
    for (old, new) in before.iter().zip(&after) {
        assert_eq!(old.0, new.0);
        let changed = old.1.abs_diff(new.1).max(old.2.abs_diff(new.2));
        assert!(changed < 1 << 20, "{old:?}, then {new:?}");
    }
    assert_eq!(before.len(), after.len());
    let now: Vec<State> = states.iter().map(State::check).collect();
    for state in &now {
        assert_eq!(state.layout, now[0].layout);
    }
    // It counts the groups, too.
    bench.fs.fsck().unwrap();
}

/// Reflinks of parts, at other places.
#[test]
fn loop_parts_that_are_shared_elsewhere_move_along() {
    let Some(mut bench) = bench("") else { return };
    let path = bench.path("file");
    fragmented(&path, Bytes::mib(8));
    let other = bench.path("other");
    fragmented(&other, Bytes::mib(2));
    // Each second piece of 64 KiB, in reverse order, and the end of the file.
    let file = File::open(&path).unwrap();
    let clone = File::options().write(true).open(&other).unwrap();
    for number in 0..16 {
        let (from, to) = ((2 * number) << 16, (15 - number) << 16);
        clone_part(&file, from, &clone, to, 1 << 16);
    }
    clone_part(&file, 7 << 20, &clone, 2 << 20, 1 << 20);
    drop((file, clone));
    bench.fs.sync().unwrap();
    let states = [&path, &other].map(|path| State::of(path));
    let before = used(&mut bench);
    bench.must_relocate(&path, Policy::Whole);
    let after = used(&mut bench);
    assert!(after <= before + (1 << 20), "{before}, then {after} used");
    let [path, other] = states.map(|state| state.check());
    assert!(path.fragments <= 4, "{}", path.fragments);
    // Its own MiB stays as it is: 256 pieces.
    assert!(other.fragments <= 256 + 20, "{}", other.fragments);
    bench.fs.fsck().unwrap();
}

fn clone_part(from: &File, at: u64, to: &File, to_at: u64, len: u64) {
    // Through a file of its own, since a range is cloned to the same place only.
    let mut bytes = vec![0; len as usize];
    from.read_exact_at(&mut bytes, at).unwrap();
    to.write_all_at(&bytes, to_at).unwrap();
    to.sync_all().unwrap();
    let compared = linux_abi::share::dedupe_range(from, at, to, to_at, len).unwrap();
    assert_eq!(compared, linux_abi::share::Compared::Shared);
}

/// A holder that has an old version of some blocks keeps the extents of these, so they stay.
#[test]
fn loop_what_others_would_keep_stays() {
    let Some(mut bench) = bench("") else { return };
    let family = Family::new(&bench, Bytes::mib(8), 1, 0);
    // One large extent of both, of which the file has written some blocks anew.
    let large = family.path.with_file_name("large");
    std::fs::write(&large, vec![7; 4 << 20]).unwrap();
    bench.fs.sync().unwrap();
    let root = bench.fs.path().to_str().unwrap().to_owned();
    let sub = family.path.parent().unwrap().to_str().unwrap();
    btrfs(&["subvolume", "snapshot", sub, &format!("{root}/later")]);
    let file = File::options().write(true).open(&large).unwrap();
    for number in 0..64 {
        file.write_all_at(&[number; 4096], u64::from(number) << 16)
            .unwrap();
        file.sync_all().unwrap();
    }
    drop(file);
    let old = Path::new(&root).join("later/large");
    let states = [&large, &old].map(|path| State::of(path));
    assert!(states[0].fragments > 64);
    let before = used(&mut bench);
    match bench.relocate(&large, Policy::Whole) {
        Err(Refusal::Skip(SkipReason::HoldersDiffer)) => {}
        other => panic!("{other:?}"),
    }
    assert!(used(&mut bench) <= before + (256 << 10));
    for state in &states {
        state.check();
    }
    bench.fs.fsck().unwrap();
}

/// A file of which a part is shared, and another part is not.
#[test]
fn loop_a_file_that_is_half_shared_moves_as_a_whole() {
    uncut(half_is_shared);
}

fn half_is_shared() -> bool {
    let Some(mut bench) = bench("") else {
        return true;
    };
    let (path, half) = (bench.path("file"), bench.path("half"));
    fragmented(&path, Bytes::mib(8));
    scratch_fs::reflink(&path, &half).unwrap();
    File::options()
        .write(true)
        .open(&half)
        .unwrap()
        .set_len(4 << 20)
        .unwrap();
    bench.fs.sync().unwrap();
    let states = [&path, &half].map(|path| State::of(path));
    // Not asked for by name: as in a run.
    let options = EngineOptions::default();
    let engine = relocator(KIND, &bench.detected, &options).unwrap();
    let target = Target::open(&path).unwrap();
    engine.admit(&target).unwrap();
    let counted = count_ranges(&target, &[FileRange::new(0, 8 << 20)]).unwrap();
    let mut relocation = engine.begin(&target, &counted, &PlainCopier).unwrap();
    let mut written = Bytes::ZERO;
    loop {
        let limit = StepLimit {
            bytes: Bytes::mib(1),
        };
        let (moved, done) = match relocation.step(limit).unwrap() {
            Step::Working(moved) => (moved, false),
            Step::Done(moved) => (moved, true),
        };
        written += moved.host_written;
        if done {
            break;
        }
    }
    drop(relocation);
    assert_eq!(written, Bytes::mib(8));
    let [path, half] = states.map(|state| state.check());
    let left = [path.fragments, half.fragments];
    // What nobody shares is for the other engine.
    let alone = bench.path("alone");
    fragmented(&alone, Bytes::mib(1));
    let target_alone = Target::open(&alone).unwrap();
    let refused = engine.admit(&target_alone);
    assert!(matches!(refused, Err(Refusal::Skip(SkipReason::NoEngine))));
    drop((target, target_alone, engine));
    bench.fs.fsck().unwrap();
    left == [1, 1]
}

#[test]
fn loop_holders_that_cannot_be_changed_keep_the_file_where_it_is() {
    let Some(mut bench) = bench("") else { return };
    let family = Family::new(&bench, Bytes::mib(2), 0, 1);
    let states = family.states();
    let flags = rustix::fs::IFlags::IMMUTABLE;
    let holder = File::open(&family.holders[0]).unwrap();
    rustix::fs::ioctl_setflags(&holder, flags).unwrap();
    let states_now = family.states();
    match bench.relocate(&family.path, Policy::Whole) {
        Err(Refusal::Skip(SkipReason::HoldersUnreachable)) => {}
        other => panic!("{other:?}"),
    }
    states_now.iter().for_each(|state| drop(state.check()));
    rustix::fs::ioctl_setflags(&holder, rustix::fs::IFlags::empty()).unwrap();
    drop((holder, states));
    bench.must_relocate(&family.path, Policy::Whole);
    bench.fs.fsck().unwrap();
}

#[test]
fn loop_files_without_copy_on_write_are_not_taken() {
    for options in ["", "nodatacow"] {
        let Some(bench) = bench("") else { return };
        let mut bench = bench;
        let directory = bench.path("nocow");
        std::fs::create_dir(&directory).unwrap();
        let flags = rustix::fs::IFlags::NOCOW;
        rustix::fs::ioctl_setflags(File::open(&directory).unwrap(), flags).unwrap();
        let path = directory.join("file");
        fragmented(&path, Bytes::mib(1));
        scratch_fs::reflink(&path, &directory.join("clone")).unwrap();
        bench.fs.sync().unwrap();
        let state = State::of(&path);
        match options {
            "" => match bench.relocate(&path, Policy::Whole) {
                Err(Refusal::Skip(SkipReason::Unsupported)) => {}
                other => panic!("{other:?}"),
            },
            options => {
                bench.fs.set_mount_options(options);
                bench.fs.remount().unwrap();
                let root = File::open(bench.fs.path()).unwrap();
                bench.detected = indef_fs::detect(&root, bench.fs.path()).unwrap();
                let refused = bench.engine().map(drop);
                assert!(matches!(refused, Err(Refusal::Skip(SkipReason::NoEngine))));
            }
        }
        // A file with it, in a directory of files without.
        let plain = bench.path("plain");
        if options.is_empty() {
            fragmented(&plain, Bytes::mib(1));
            let moved = directory.join("plain");
            std::fs::rename(&plain, &moved).unwrap();
            scratch_fs::reflink(&moved, &bench.path("clone")).unwrap();
            bench.fs.sync().unwrap();
            bench.must_relocate(&moved, Policy::Whole);
        }
        state.check();
        bench.fs.fsck().unwrap();
    }
}

/// Step until something has moved; then `meanwhile`, and to the end.
fn interrupted(bench: &Bench, path: &Path, meanwhile: impl FnOnce()) -> Result<Done, Refusal> {
    let target = Target::open(path).unwrap();
    let engine = bench.engine().unwrap();
    let whole = [FileRange::new(0, target.size.get())];
    let counted = count_ranges(&target, &whole).unwrap();
    let mut relocation = engine.begin(&target, &counted, &PlainCopier)?;
    let mut done = Done::default();
    let mut meanwhile = Some(meanwhile);
    let limit = StepLimit {
        bytes: Bytes::kib(512),
    };
    loop {
        let (moved, is_last) = match relocation.step(limit)? {
            Step::Working(moved) => (moved, false),
            Step::Done(moved) => (moved, true),
        };
        done.moved += moved;
        if !done.moved.relocated.is_zero()
            && let Some(meanwhile) = meanwhile.take()
        {
            meanwhile();
        }
        if is_last {
            return Ok(done);
        }
    }
}

/// Its holders are looked for in its tree, which ends for those who look before it does for those who have it open.
#[test]
fn loop_a_file_whose_subvolume_is_deleted_meanwhile_is_gone() {
    // In the midst of a move, and before it is begun.
    for is_begun in [true, false] {
        let Some(mut bench) = bench("") else { return };
        let family = Family::new(&bench, Bytes::mib(64), 1, 0);
        let snapshot = State::of(&family.holders[0]);
        let sub = family.path.parent().unwrap().to_str().unwrap();
        let delete = || btrfs(&["subvolume", "delete", sub]);
        let refused = match is_begun {
            true => interrupted(&bench, &family.path, delete).map(drop),
            false => {
                let target = Target::open(&family.path).unwrap();
                delete();
                bench.engine().unwrap().admit(&target)
            }
        };
        match refused {
            Err(Refusal::Skip(SkipReason::Gone)) => {}
            // What had moved.
            Ok(()) if is_begun => {}
            other => panic!("{is_begun}: {other:?}"),
        }
        snapshot.check();
        bench.fs.fsck().unwrap();
    }
}

/// Nobody can make a file in it any more, and those that are open for writing stay so.
#[test]
fn loop_a_subvolume_that_is_made_read_only_meanwhile_is_named() {
    let Some(mut bench) = bench("") else { return };
    let family = Family::new(&bench, Bytes::mib(2), 1, 0);
    let sub = family.path.parent().unwrap().to_str().unwrap().to_owned();
    let target = Target::open(&family.path).unwrap();
    let engine = bench.engine().unwrap();
    engine.admit(&target).unwrap();
    let whole = [FileRange::new(0, target.size.get())];
    let whole = count_ranges(&target, &whole).unwrap();
    btrfs(&["property", "set", &sub, "ro", "true"]);
    let states = family.states();
    match engine.begin(&target, &whole, &PlainCopier).map(drop) {
        Err(Refusal::Skip(SkipReason::ReadOnlyMount)) => {}
        other => panic!("{other:?}"),
    }
    states.iter().for_each(|state| drop(state.check()));
    drop((target, engine));
    bench.fs.fsck().unwrap();
}

/// A read that ends early: of this file, which is cut, and has all of its size again at once, or of one that nobody changes.
struct Short<'a>(Option<&'a Path>);

impl RangeCopier for Short<'_> {
    fn copy(&self, _: &File, _: &File, _: &[FileRange]) -> std::io::Result<()> {
        if let Some(path) = self.0 {
            let file = File::options().write(true).open(path)?;
            let len = file.metadata()?.len();
            file.set_len(0)?;
            file.set_len(len)?;
        }
        Err(std::io::ErrorKind::UnexpectedEof.into())
    }
}

#[test]
fn loop_a_target_that_ends_where_it_is_read_has_changed() {
    let Some(bench) = bench("") else { return };
    let family = Family::new(&bench, Bytes::mib(2), 1, 0);
    let engine = bench.engine().unwrap();
    let refusal = |cut| {
        let target = Target::open(&family.path).unwrap();
        let whole = [FileRange::new(0, target.size.get())];
        let whole = count_ranges(&target, &whole).unwrap();
        let copier = Short(cut);
        let mut relocation = engine.begin(&target, &whole, &copier).unwrap();
        let limit = StepLimit {
            bytes: Bytes::mib(1),
        };
        let mut steps = std::iter::repeat_with(|| relocation.step(limit)).take(100);
        steps.find_map(Result::err)
    };
    match refusal(None) {
        Some(Refusal::Failed(_)) => {}
        other => panic!("{other:?}"),
    }
    match refusal(Some(&family.path)) {
        Some(Refusal::Skip(SkipReason::Changed)) => {}
        other => panic!("{other:?}"),
    }
}

/// A run that is to end after so many questions.
struct Ending(AtomicU32);

impl RangeCopier for Ending {
    fn copy(&self, from: &File, to: &File, ranges: &[FileRange]) -> std::io::Result<()> {
        PlainCopier.copy(from, to, ranges)
    }

    fn is_stopping(&self) -> bool {
        let left = |left: u32| left.checked_sub(1);
        (self.0)
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, left)
            .is_err()
    }
}

/// A look at many holders is not waited for when the run is to end, and more than are kept are not looked at.
#[test]
fn loop_a_look_at_very_many_holders_ends() {
    let Some(bench) = bench("") else { return };
    let path = bench.path("file");
    fragmented(&path, Bytes::kib(256));
    for number in 0..260 {
        scratch_fs::reflink(&path, &bench.path(&format!("clone{number}"))).unwrap();
    }
    bench.fs.sync().unwrap();
    let state = State::of(&path);
    let (target, engine) = (Target::open(&path).unwrap(), bench.engine().unwrap());
    let counted = count_ranges(&target, &[FileRange::new(0, 256 << 10)]).unwrap();
    let begun = |run: &dyn RangeCopier| match engine.begin(&target, &counted, run) {
        Ok(_) => None,
        Err(Refusal::Skip(reason)) => Some(reason),
        Err(failed) => panic!("{failed}"),
    };
    assert_eq!(begun(&PlainCopier), Some(SkipReason::ManyHolders));
    for number in 0..8 {
        std::fs::remove_file(bench.path(&format!("clone{number}"))).unwrap();
    }
    rustix::fs::syncfs(&target.file).unwrap();
    assert_eq!(begun(&PlainCopier), None, "252 of them");
    // In the midst of the extents, and of the holders.
    for questions in [0, 40, 100] {
        let run = Ending(AtomicU32::new(questions));
        assert_eq!(begun(&run), Some(SkipReason::Stopped), "{questions}");
        assert_eq!(run.0.load(Ordering::Relaxed), 0, "it ends at once");
    }
    state.check();
}

fn shared_bytes(state: &State) -> u64 {
    let extents = state.layout.extents().iter();
    let shared = extents.filter(|extent| extent.flags.contains(ExtentFlags::SHARED));
    shared.map(|extent| extent.len.get()).sum()
}

#[test]
fn loop_a_holder_that_is_written_meanwhile_keeps_what_was_written() {
    uncut(a_holder_is_written_meanwhile);
}

fn a_holder_is_written_meanwhile() -> bool {
    let Some(mut bench) = bench("") else {
        return true;
    };
    let family = Family::new(&bench, Bytes::mib(16), 2, 1);
    let state = State::of(&family.path);
    let written = family.holders[1].clone();
    let done = interrupted(&bench, &family.path, || {
        // In windows that are copied already, and in the page cache only.
        let file = File::options().write(true).open(&written).unwrap();
        for block in (0..4096_u64).step_by(100) {
            file.write_all_at(&[b'!'; 4096], block * 4096).unwrap();
        }
    })
    .unwrap();
    assert_eq!(done.moved.relocated, Bytes::mib(16));
    assert!(done.moved.unshared.is_zero());
    let now = state.check();
    // The clone, and the snapshot that nobody wrote, share everything with it.
    for holder in [&family.holders[0], &family.holders[2]] {
        assert_eq!(State::of(holder).layout, now.layout);
    }
    let mut content = vec![0; 16 << 20];
    File::open(&family.path)
        .unwrap()
        .read_exact_at(&mut content, 0)
        .unwrap();
    for block in (0..4096_usize).step_by(100) {
        content[block * 4096..][..4096].fill(b'!');
    }
    assert!(std::fs::read(&written).unwrap() == content);
    let written = State::of(&written);
    assert_eq!(shared_bytes(&written), (16 << 20) - 41 * 4096);
    let used_now = used(&mut bench);
    assert!(used_now < 16 << 20 | 41 << 12 | 8 << 20, "{used_now}");
    bench.fs.fsck().unwrap();
    // The copy, and what was written in it.
    (now.fragments, written.fragments) == (1, 2 * 41)
}

#[test]
fn loop_a_target_that_is_written_meanwhile_keeps_what_was_written() {
    uncut(a_target_is_written_meanwhile);
}

fn a_target_is_written_meanwhile() -> bool {
    let Some(mut bench) = bench("") else {
        return true;
    };
    // Two, so that everything that they have stays shared.
    let family = Family::new(&bench, Bytes::mib(16), 2, 0);
    let states = family.states();
    let path = family.path.clone();
    interrupted(&bench, &path, || {
        let file = File::options().write(true).open(&path).unwrap();
        for block in (0..4096_u64).step_by(100) {
            file.write_all_at(&[b'!'; 4096], block * 4096).unwrap();
        }
    })
    .unwrap();
    let holders = states[1..].iter().map(|state| state.check().fragments);
    let holders: Vec<u64> = holders.collect();
    let now = State::of(&path);
    assert_eq!(shared_bytes(&now), (16 << 20) - 41 * 4096);
    bench.fs.fsck().unwrap();
    // The copy, and what was written in it.
    holders == [1, 1] && now.fragments == 2 * 41
}

/// Data that the target wrote before its copy was made is in the copy and in no holder: these keep sharing with each other.
#[test]
fn loop_a_target_that_is_written_before_it_is_copied_takes_nothing_from_others() {
    let Some(mut bench) = bench("") else { return };
    let family = Family::new(&bench, Bytes::mib(16), 2, 0);
    let states = family.states();
    let before = used(&mut bench);
    // In the page cache only, in one unit of each four.
    let path = family.path.clone();
    let file = File::options().write(true).open(&path).unwrap();
    for block in (0..4096_u64).step_by(2048) {
        file.write_all_at(&[b'!'; 4096], block * 4096).unwrap();
    }
    drop(file);
    interrupted(&bench, &path, || {}).unwrap();
    let holders: Vec<State> = states[1..].iter().map(State::check).collect();
    assert_eq!(holders[0].layout, holders[1].layout);
    assert_eq!(shared_bytes(&holders[0]), 16 << 20);
    let now = State::of(&family.path);
    assert_eq!(shared_bytes(&now), (16 << 20) - 2 * 4096);
    let after = used(&mut bench);
    assert!(after < before + (2 << 12) + (1 << 20), "{before}, {after}");
    bench.fs.fsck().unwrap();
}

#[test]
fn loop_a_snapshot_that_is_deleted_meanwhile_is_left_out() {
    uncut(a_snapshot_is_deleted_meanwhile);
}

fn a_snapshot_is_deleted_meanwhile() -> bool {
    let Some(mut bench) = bench("") else {
        return true;
    };
    let family = Family::new(&bench, Bytes::mib(24), 3, 0);
    let states = family.states();
    let snap = family.holders[1]
        .parent()
        .unwrap()
        .to_str()
        .unwrap()
        .to_owned();
    let root = bench.fs.path().to_str().unwrap().to_owned();
    let done = interrupted(&bench, &family.path, || {
        btrfs(&["subvolume", "delete", "-c", &snap]);
        // Until it is cleaned up, it keeps what is looked at from now on where it is.
        btrfs(&["subvolume", "sync", &root]);
    })
    .unwrap();
    assert_eq!(done.moved.relocated, Bytes::mib(24));
    let now = states[0].check();
    for index in [1, 3] {
        assert_eq!(states[index].check().layout, now.layout);
    }
    let used_now = used(&mut bench);
    assert!(used_now < 32 << 20, "{used_now}");
    bench.fs.fsck().unwrap();
    now.fragments == 1
}

/// Data under way stays for a snapshot that is made meanwhile, and the rest moves with it: it keeps nothing alone.
#[test]
fn loop_a_snapshot_that_is_made_meanwhile_keeps_sharing() {
    let Some(mut bench) = bench("") else { return };
    let family = Family::new(&bench, Bytes::mib(64), 1, 0);
    let states = family.states();
    let before = used(&mut bench);
    let root = bench.fs.path().to_str().unwrap().to_owned();
    let sub = family.path.parent().unwrap().to_str().unwrap();
    let done = interrupted(&bench, &family.path, || {
        btrfs(&[
            "subvolume",
            "snapshot",
            "-r",
            sub,
            &format!("{root}/meanwhile"),
        ]);
    })
    .unwrap();
    assert!(done.moved.relocated >= Bytes::mib(16), "{done:?}");
    assert!(done.moved.relocated < Bytes::mib(64), "{done:?}");
    let after = used(&mut bench);
    assert!(
        after <= before + (1 << 20),
        "{before} bytes used before, {after} after"
    );
    let new = Path::new(&root).join("meanwhile/file");
    for path in family.all().chain([&new]) {
        assert_eq!(exclusive_and_shared(path).0, 0, "{}", path.display());
    }
    let layouts: Vec<_> = states.iter().map(|state| state.check().layout).collect();
    assert_eq!(State::of(&new).layout, layouts[0]);
    assert_eq!(layouts[1], layouts[0]);
    // The rest moves with the next run.
    bench.must_relocate(&family.path, Policy::Whole);
    assert!(State::of(&new).fragments <= 4);
    assert_eq!(exclusive_and_shared(&new).0, 0);
    bench.fs.fsck().unwrap();
}

/// Only a subvolume is mounted; the snapshots are not below it.
#[test]
fn loop_holders_that_no_path_leads_to_move_along() {
    uncut(no_path_leads_to_holders);
}

fn no_path_leads_to_holders() -> bool {
    let Some(mut bench) = bench("") else {
        return true;
    };
    let family = Family::new(&bench, Bytes::mib(4), 2, 1);
    let states = family.states();
    bench.fs.set_mount_options("subvol=/sub");
    bench.fs.remount().unwrap();
    let root = File::open(bench.fs.path()).unwrap();
    bench.detected = indef_fs::detect(&root, bench.fs.path()).unwrap();
    drop(root);
    bench.must_relocate(&bench.path("file"), Policy::Whole);
    bench.fs.set_mount_options("");
    bench.fs.remount().unwrap();
    let now: Vec<State> = states.iter().map(State::check).collect();
    for state in &now {
        assert_eq!(state.layout, now[0].layout);
    }
    bench.fs.fsck().unwrap();
    now[0].fragments == 1
}

/// Without room for the copy nothing moves, and nothing is lost.
#[test]
fn loop_a_full_file_system_leaves_shared_files_alone() {
    let Some(mut bench) = Bench::small(KIND) else {
        return;
    };
    let family = Family::new(&bench, Bytes::mib(32), 2, 1);
    let states = family.states();
    for left in [24_u64, 12, 1] {
        bench.fs.sync().unwrap();
        let free = bench.fs.free().unwrap().get();
        let file = File::create(bench.path(&format!("fill{left}"))).unwrap();
        let len = free.saturating_sub(left << 20);
        let flags = rustix::fs::FallocateFlags::empty();
        let _ = rustix::fs::fallocate(&file, flags, 0, len.max(4096));
        drop(file);
        bench.fs.sync().unwrap();
        match bench.relocate(&family.path, Policy::Whole) {
            Ok(_) | Err(Refusal::Skip(SkipReason::NoSpace | SkipReason::Contiguous)) => {}
            other => panic!("{left} MiB left: {other:?}"),
        }
        for state in &states {
            state.check();
        }
    }
    bench.fs.fsck().unwrap();
}

/// Comparing reads all of a holder: what was cached of it stays, and nothing more.
#[test]
fn loop_the_page_cache_of_holders_is_left_as_it_was() {
    undisturbed(page_cache_of_holders_stays);
}

fn page_cache_of_holders_stays() {
    let Some(mut bench) = bench("") else { return };
    let family = Family::new(&bench, Bytes::mib(4), 2, 0);
    bench.fs.remount().unwrap();
    let [warm, cold] = [0, 1].map(|index| family.holders[index].as_path());
    let pages = |path: &Path, read: usize| {
        let file = crate::state::open(path);
        let mut bytes = vec![0; read];
        cached_pages_after(&file, || file.read_exact_at(&mut bytes, 0)).unwrap()
    };
    let (was_warm, was_cold) = (pages(warm, 4 << 20), pages(cold, 0));
    assert_eq!(
        (was_warm, was_cold.clone()),
        (vec![true; 1024], vec![false; 1024])
    );
    bench.must_relocate(&family.path, Policy::Whole);
    let change = |path: &Path, before: &[bool]| {
        settled_cache_change(&crate::state::open(path), before).unwrap()
    };
    let dropped = change(warm, &[true; 1024]).dropped;
    assert!(dropped.len() <= 24, "dropped: {dropped:?}");
    let added = change(cold, &was_cold).added;
    assert!(added.len() <= 24, "added: {added:?}");
}
