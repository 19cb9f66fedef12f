//! Each refusal, by name, and that refusing changes nothing.

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
    sync::Mutex,
};

use indef_core::SkipReason;
use indef_engine::{
    Cancel, Copier,
    run::{Observer, RunEvent, RunOptions, Status, run},
};
use indef_fs::{
    EngineKind, EngineOptions, Moved, RangeCopier, Refusal, Step, StepLimit, Target, count_ranges,
    detect, relocator,
};
use linux_abi::fsxattr::{Attributes, Flags};
use rustix::{
    fs::{FallocateFlags, XattrFlags, fallocate, setxattr},
    io::Errno,
};
use scratch_fs::{
    CacheChange, Segment, Shape, cached_pages_after, settled_cache_change, undisturbed,
};
use units::{Bytes, FileRange};

use crate::flavour::*;

fn fragmented(fs: &scratch_fs::ScratchFs, len: Bytes) -> PathBuf {
    let path = fs.path().join("file");
    Shape::new(11)
        .with(Segment::Data {
            len,
            piece: Bytes::kib(16),
        })
        .make(&path)
        .unwrap();
    path
}

fn assert_refused(result: Result<Moved, Refusal>, reason: SkipReason) {
    match result {
        Err(Refusal::Skip(found)) => assert_eq!(found, reason),
        other => panic!("{other:?} instead of {reason}"),
    }
}

#[test]
fn loop_the_owner_can_forbid_it() {
    each(&ALL, Bytes::mib(512), |flavour, fs| {
        let path = fragmented(fs, Bytes::mib(1));
        let file = File::open(&path).unwrap();
        let attributes = Attributes::get(&file).unwrap();
        attributes
            .with_flags(attributes.flags() | Flags::NODEFRAG)
            .set(&file)
            .unwrap();
        drop(file);
        let before = FileState::of(&path);
        assert_refused(Move::with(flavour).whole(&path), SkipReason::Unsupported);
        assert_eq!(FileState::of(&path), before);
    });
}

#[test]
fn loop_capabilities_are_not_lost() {
    // cap_net_raw=ep, as setcap writes it.
    let value: Vec<u8> = [0x0200_0001_u32, 1 << 13, 0, 0, 0]
        .iter()
        .flat_map(|word| word.to_le_bytes())
        .collect();
    each(&ALL, Bytes::mib(512), |flavour, fs| {
        let path = fragmented(fs, Bytes::mib(1));
        let name = "security.capability";
        setxattr(&path, name, &value, XattrFlags::empty()).unwrap();
        let before = FileState::of(&path);
        match Move::with(flavour).whole(&path) {
            Ok(_) => assert_ne!(flavour.engine, COMMIT.engine),
            Err(error) => {
                assert_eq!(flavour.engine, COMMIT.engine, "{error}");
                assert_refused(Err(error), SkipReason::Unsupported);
            }
        }
        assert_eq!(FileState::of(&path), before);
        let mut read = [0; 64];
        let length = rustix::fs::getxattr(&path, name, &mut read[..]).unwrap();
        assert_eq!(read[..length], value);
    });
}

#[test]
fn loop_set_user_id_stays() {
    use std::os::unix::fs::PermissionsExt;
    each(&ALL, Bytes::mib(512), |flavour, fs| {
        let path = fragmented(fs, Bytes::mib(1));
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o6755)).unwrap();
        let before = FileState::of(&path);
        Move::with(flavour).whole(&path).unwrap();
        assert_eq!(FileState::of(&path), before);
    });
}

#[test]
fn loop_a_file_that_is_open_elsewhere_is_not_shared_in_part() {
    each(&ALL, Bytes::mib(512), |flavour, fs| {
        let path = fragmented(fs, Bytes::mib(4));
        let before = FileState::of(&path);
        let other = OpenOptions::new()
            .read(true)
            .write(true)
            .open(&path)
            .unwrap();
        let half = [FileRange::new(0, 2 << 20)];
        let moved = Move::with(flavour).ranges(&path, &half);
        if flavour.engine == SWAP.engine {
            assert_refused(moved, SkipReason::InUse);
        } else {
            moved.unwrap();
        }
        assert_eq!(FileState::of(&path), before);
        let whole = Move::with(flavour).whole(&path);
        if flavour.name == SWAP_NO_REFLINK.name {
            assert_refused(whole, SkipReason::InUse);
        } else {
            whole.unwrap();
            assert_eq!(fragments(&path), 1);
        }
        drop(other);
        assert_eq!(FileState::of(&path), before);
        fs.fsck().unwrap();
    });
}

/// Swapped to when an engine is at it already.
#[test]
fn loop_a_swap_file_of_meanwhile_is_named() {
    each(&ALL, Bytes::mib(512), |flavour, fs| {
        let path = fragmented(fs, Bytes::mib(4));
        let program = |name: &str| {
            let ran = Command::new(name).arg(&path).output();
            let ran = ran.unwrap_or_else(|error| panic!("{name}: {error}"));
            ran.status.success()
        };
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        assert!(program("mkswap"));
        fs.sync().unwrap();
        let before = FileState::of(&path);
        let target = Target::open(&path).unwrap();
        let ranges = count_ranges(&target, &[FileRange::new(0, 4 << 20)]).unwrap();
        let engine = Move::with(flavour).relocator(&path);
        let copier = Copier::new(32);
        let mut relocation = engine.begin(&target, &ranges, &copier).unwrap();
        let limit = StepLimit {
            bytes: Bytes::mib(1),
        };
        relocation.step(limit).unwrap();
        if !program("swapon") {
            scratch_fs::skip("this kernel has no swap");
            return;
        }
        let ended = std::iter::repeat_with(|| relocation.step(limit)).find_map(|step| match step {
            Ok(Step::Working(_)) => None,
            Ok(Step::Done(moved)) => Some(Ok(moved)),
            Err(refusal) => Some(Err(refusal)),
        });
        drop(relocation);
        drop((engine, target));
        assert!(program("swapoff"));
        assert_refused(ended.unwrap(), SkipReason::SwapFile);
        assert!(FileState::of(&path).has_content_of(&before));
        fs.fsck().unwrap();
    });
}

/// A copy that fails as calls do, of a file that somebody cuts off meanwhile, and grows again to `size`.
struct CutMeanwhile {
    path: PathBuf,
    size: u64,
    fail: fn() -> io::Error,
}

impl RangeCopier for CutMeanwhile {
    fn copy(&self, _: &File, _: &File, _: &[FileRange]) -> io::Result<()> {
        let file = OpenOptions::new().write(true).open(&self.path)?;
        file.set_len(0)?;
        file.set_len(self.size)?;
        Err((self.fail)())
    }
}

impl CutMeanwhile {
    /// Move a file of some MiB that is cut when it is copied for the first time, and has `percent` of its size afterwards.
    fn meet(flavour: Flavour, path: &Path, percent: u64, fail: fn() -> io::Error) -> Refusal {
        let engine = Move::with(flavour).relocator(path);
        let target = Target::open(path).unwrap();
        let run = Self {
            path: path.to_owned(),
            size: target.size.get() / 100 * percent,
            fail,
        };
        let whole = [FileRange::new(0, target.size.get())];
        let whole = count_ranges(&target, &whole).unwrap();
        let mut relocation = engine.begin(&target, &whole, &run).unwrap();
        let limit = StepLimit {
            bytes: Bytes::mib(1),
        };
        let mut steps = std::iter::repeat_with(|| relocation.step(limit)).take(100);
        steps.find_map(Result::err).unwrap()
    }
}

/// The kernel refuses a range past the end as invalid, and a read ends there. By the time of a look at its size a file may
/// have all of it again.
#[test]
fn loop_a_file_that_is_cut_and_grown_around_a_call_has_changed() {
    let as_calls_fail: [fn() -> io::Error; 2] = [
        || Errno::INVAL.into(),
        || io::ErrorKind::UnexpectedEof.into(),
    ];
    each(&ALL, Bytes::mib(512), |flavour, fs| {
        for fail in as_calls_fail {
            let path = fragmented(fs, Bytes(4_000_000));
            let refusal = CutMeanwhile::meet(flavour, &path, 100, fail);
            assert_refused(Err(refusal), SkipReason::Changed);
            fs.fsck().unwrap();
        }
    });
}

/// Whatever becomes of the file: its data may be lost.
#[test]
fn loop_a_device_that_fails_is_told_of_a_file_that_changes_too() {
    each(&ALL, Bytes::mib(512), |flavour, fs| {
        for percent in [50, 100] {
            let path = fragmented(fs, Bytes(4_000_000));
            match CutMeanwhile::meet(flavour, &path, percent, || Errno::IO.into()) {
                Refusal::Failed(error) => {
                    let errno = Errno::from_io_error(&error.source);
                    assert_eq!(errno, Some(Errno::IO), "{error}");
                }
                Refusal::Skip(reason) => panic!("{}: {reason}", flavour.name),
            }
        }
    });
}

#[test]
fn loop_a_full_file_system_is_named() {
    each(&ALL, Bytes::mib(512), |flavour, fs| {
        let path = fragmented(fs, Bytes::mib(16));
        // XFS frees the space of deleted files in the background: not while we fill it.
        fs.remount().unwrap();
        let before = FileState::of(&path);
        let filler = File::create(fs.path().join("filler")).unwrap();
        let mut at = 0;
        for piece in [64 << 20, 4 << 20, 1 << 20] {
            while fs.free().unwrap() > Bytes::mib(6)
                && fallocate(&filler, FallocateFlags::empty(), at, piece).is_ok()
            {
                at += piece;
            }
        }
        let free = fs.free().unwrap();
        assert_refused(Move::with(flavour).whole(&path), SkipReason::NoSpace);
        assert_eq!(FileState::of(&path), before);
        drop(filler);
        fs.remount().unwrap();
        assert!(fs.free().unwrap() + Bytes::mib(1) >= free);
        fs.fsck().unwrap();
    });
}

#[test]
fn loop_the_page_cache_stays_as_it_was() {
    undisturbed(page_cache_stays);
}

fn page_cache_stays() {
    use std::os::unix::fs::FileExt;
    each(&ALL, Bytes::mib(512), |flavour, fs| {
        let path = fragmented(fs, Bytes::mib(8));
        fs.remount().unwrap();
        let open = || {
            OpenOptions::new()
                .read(true)
                .write(true)
                .open(&path)
                .unwrap()
        };
        let file = open();
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random).unwrap();
        let mut bytes = vec![0; 1 << 20];
        let before = cached_pages_after(&file, || {
            file.read_exact_at(&mut bytes, 0)?;
            file.read_exact_at(&mut bytes, 5 << 20)
        })
        .unwrap();
        drop(file);
        assert_eq!(before.iter().filter(|cached| **cached).count(), 512);
        Move::with(flavour).whole(&path).unwrap();
        let change = settled_cache_change(&open(), &before).unwrap();
        assert_eq!(change, CacheChange::default(), "{}", flavour.name);
    });
}

/// The pages of the file that are in the page cache, once none is being read in any more.
fn cached(path: &Path, len: Bytes) -> usize {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .unwrap();
    let pages = linux_abi::cache::resident_pages(&file, 0, len.get() as usize).unwrap();
    pages.iter().filter(|cached| **cached).count()
}

#[test]
fn loop_a_move_that_is_dropped_leaves_nothing_in_the_page_cache() {
    each(&ALL, Bytes::mib(512), |flavour, fs| {
        let path = fragmented(fs, Bytes::mib(32));
        fs.remount().unwrap();
        let relocator = Move::with(flavour).relocator(&path);
        let target = Target::open(&path).unwrap();
        let copier = Copier::new(32);
        let whole = [FileRange::new(0, 32 << 20)];
        let whole = count_ranges(&target, &whole).unwrap();
        let mut relocation = relocator.begin(&target, &whole, &copier).unwrap();
        let limit = StepLimit {
            bytes: Bytes::kib(256),
        };
        assert!(matches!(relocation.step(limit), Ok(Step::Working(_))));
        drop(relocation);
        drop(target);
        let mut left = cached(&path, Bytes::mib(32));
        // Pages that are still being read in cannot be dropped.
        for _ in 0..1000 {
            if left == 0 {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
            left = cached(&path, Bytes::mib(32));
        }
        assert_eq!(left, 0, "{}", flavour.name);
    });
}

/// A comparison of all their bytes would hold the file's locks for long.
#[test]
fn loop_two_very_long_extents_are_not_joined_by_comparing_them() {
    each(&[DEDUPE], Bytes::gib(1), |flavour, fs| {
        let path = fs.path().join("file");
        let len = Bytes::mib(144);
        Shape::new(12)
            .with(Segment::Data {
                len,
                piece: Bytes::mib(72),
            })
            .make(&path)
            .unwrap();
        fs.remount().unwrap();
        let before = FileState::of(&path);
        assert_eq!(fragments(&path), 2);
        fs.remount().unwrap();
        assert_refused(Move::with(flavour).whole(&path), SkipReason::NoGain);
        let after = FileState::of(&path);
        assert_eq!(fragments(&path), 2);
        assert_eq!(after, before);
        fs.fsck().unwrap();
    });
}

/// A loop device is no NVMe namespace.
#[test]
fn loop_without_a_device_that_copies_the_host_does() {
    each(&[COMMIT], Bytes::mib(512), |_, fs| {
        let path = fragmented(fs, Bytes::mib(1));
        let before = FileState::of(&path);
        let mounted = detect(File::open(&path).unwrap(), &path).unwrap();
        let options = EngineOptions::default();
        let refusal = relocator(EngineKind::XfsOffload, &mounted, &options)
            .err()
            .unwrap();
        assert!(
            refusal.to_string().contains("not on an NVMe namespace"),
            "{refusal}"
        );

        let said = Said::default();
        let options = RunOptions {
            engine: Some(EngineKind::XfsOffload),
            ..RunOptions::default()
        };
        let plan = plan_of(&path, EngineKind::XfsOffload);
        let result = run(vec![plan], &options, &Cancel::new(), &said);
        let file = &result.files[0];
        assert_eq!(
            (file.status, file.engine),
            (Status::Moved, Some("xfs-commit-range"))
        );
        assert_eq!(
            (file.bytes_offloaded, file.bytes_host_read),
            (Bytes::ZERO, Bytes::mib(1))
        );
        assert_eq!(FileState::of(&path), before);
        assert_eq!(fragments(&path), 1);
        let said = said.0.into_inner().unwrap();
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(
            said[0].contains("xfs-offload") && said[0].contains("NVMe"),
            "{said:?}"
        );
    });
}

/// The messages of a run about engines that are not used.
#[derive(Default)]
struct Said(Mutex<Vec<String>>);

impl Observer for Said {
    fn on(&self, event: RunEvent<'_>) {
        if let RunEvent::Fallback { engine, reason, .. } = event {
            let mut said = self.0.lock().unwrap();
            said.push(format!("{engine}: {reason}"));
        }
    }
}
