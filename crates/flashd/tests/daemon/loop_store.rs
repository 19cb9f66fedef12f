//! The file system below the store: full, at start and later; and gone with its host, but for what its disk has.

use std::{
    fs::{self, File},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use crate::harness::{Fs, Loop, can_make, can_mount, mkfs, run, text};
use flash_model::{NamespaceKind, Placement, Profile, ZoneAction, ZoneState};
use flashd::{
    device::{
        Device, DeviceOptions, Failure, NamespaceOptions, Request, RequestResult, StoreOptions,
    },
    store::FileOptions,
};
use scratch_fs::skip;
use units::Bytes;

const BLOCK: usize = 4096;

/// A small file system in memory.
struct Tmpfs(tempfile::TempDir);

impl Tmpfs {
    fn new(size: &str) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path().to_str().unwrap();
        let output = run(
            "mount",
            &["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs", at],
        );
        if !output.status.success() {
            skip(&format!("no tmpfs can be mounted: {}", text(&output)));
            return None;
        }
        Some(Self(folder))
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = run("umount", &[self.0.path().to_str().unwrap()]);
    }
}

fn options(folder: &Path, sparse: bool) -> DeviceOptions {
    let namespace = NamespaceOptions {
        kind: NamespaceKind::Conventional,
        size: Bytes::mib(32),
    };
    let profile = Profile::builtin("zero").unwrap();
    let mut options = DeviceOptions::in_memory(profile, &[namespace, namespace]);
    options.store = StoreOptions::File(FileOptions {
        path: folder.join("store"),
        sparse,
        host_sync: false,
    });
    options.write_cache = Some(Bytes::mib(2));
    options
}

fn write(device: &Arc<Device>, namespace: usize, block: u64, byte: u8) -> RequestResult {
    let request = Request::Write {
        offset: block * BLOCK as u64,
        data: &[byte; BLOCK],
        fua: false,
        placement: Placement::RoundRobin,
    };
    device.account(namespace, &request)
}

fn flush(device: &Arc<Device>, namespace: usize) -> RequestResult {
    device.account(namespace, &Request::Flush)
}

fn byte(device: &Device, namespace: usize, block: u64) -> u8 {
    let mut bytes = [0; BLOCK];
    device
        .read_into(namespace, block * BLOCK as u64, &mut bytes)
        .unwrap();
    bytes[0]
}

/// A device with two zones.
fn zoned(path: PathBuf, sparse: bool, host_sync: bool, write_cache: Bytes) -> Arc<Device> {
    let profile = Profile::builtin("zero").unwrap();
    let namespace = NamespaceOptions::zones(&profile, 2);
    let mut options = DeviceOptions::in_memory(profile, &[namespace]);
    options.store = StoreOptions::File(FileOptions {
        path,
        sparse,
        host_sync,
    });
    options.write_cache = Some(write_cache);
    Device::open(&options).unwrap()
}

fn manage(device: &Arc<Device>, zone: usize, action: ZoneAction) {
    let start = device.zones(0)[zone].start;
    let all = false;
    let request = Request::Zone { start, all, action };
    device.account(0, &request).unwrap();
}

#[test]
fn loop_a_full_disk_is_told_at_start() {
    let Some(tmpfs) = Tmpfs::new("20m") else {
        return;
    };
    let error = Device::open(&options(tmpfs.0.path(), false)).unwrap_err();
    assert!(error.to_string().contains("make room"), "{error}");
    // The file that was begun takes no space and is no obstacle.
    let left = fs::metadata(tmpfs.0.path().join("store")).map_or(0, |file| file.len());
    assert_eq!(left, 0);
    Device::open(&options(tmpfs.0.path(), true)).unwrap();
}

#[test]
fn loop_a_disk_that_fills_up_is_told_and_nothing_accepted_is_lost() {
    let Some(tmpfs) = Tmpfs::new("24m") else {
        return;
    };
    let ballast = tmpfs.0.path().join("ballast");
    let device = Device::open(&options(tmpfs.0.path(), true)).unwrap();
    let folder = tempfile::tempdir().unwrap();
    device.record_to(&folder.path().join("log")).unwrap();
    for block in 0..256 {
        write(&device, 1, block, 200).unwrap();
    }
    flush(&device, 1).unwrap();
    fs::write(&ballast, vec![1; 12 << 20]).unwrap();

    let blocks = (32 << 20) / BLOCK as u64;
    let accepted = (0..blocks)
        .find(|block| write(&device, 0, *block, *block as u8 | 1).is_err())
        .unwrap();
    assert!(accepted > 1000, "{accepted}");
    let refused = write(&device, 0, accepted, 1).unwrap_err();
    assert!(matches!(refused, Failure::NoSpace(_)), "{refused}");
    assert!(refused.to_string().contains("make room"), "{refused}");
    // A part of such a write may be there, which a recording cannot say.
    let recording = device.recording().state();
    assert_eq!(recording.path, None);
    assert!(recording.failed.unwrap().contains("a write that failed"));
    let refused = flush(&device, 0).unwrap_err();
    assert!(matches!(refused, Failure::NoSpace(_)), "{refused}");
    assert!(!device.health(0).is_healthy());
    // All that was accepted can be read, and the other namespace goes on.
    assert!((0..accepted).all(|block| byte(&device, 0, block) == block as u8 | 1));
    assert!(device.health(1).is_healthy());
    write(&device, 1, 7, 201).unwrap();
    flush(&device, 1).unwrap();

    // With room again, the next flush makes all of it durable.
    fs::remove_file(&ballast).unwrap();
    flush(&device, 0).unwrap();
    assert!(device.health(0).is_healthy());
    device.power_cut();
    assert!((0..accepted).all(|block| byte(&device, 0, block) == block as u8 | 1));
    assert_eq!((byte(&device, 1, 7), byte(&device, 1, 8)), (201, 200));
}

#[test]
fn loop_a_write_that_fails_closes_no_other_zone() {
    let Some(tmpfs) = Tmpfs::new("4m") else {
        return;
    };
    let device = zoned(tmpfs.0.path().join("store"), true, false, Bytes::ZERO);
    manage(&device, 1, ZoneAction::Open);
    let accepted = (0..).find(|block| write(&device, 0, *block, 1).is_err());
    let zones = device.zones(0);
    let written = zones[0].write_pointer / BLOCK as u64;
    assert_eq!(
        (zones[0].state, Some(written)),
        (ZoneState::Closed, accepted)
    );
    assert_eq!(zones[1].state, ZoneState::ExplicitlyOpen);
}

/// A host's disk with a file system.
struct HostDisk {
    mounted: Fs,
    _device: Loop,
    folder: tempfile::TempDir,
}

impl HostDisk {
    fn new() -> Option<Self> {
        if !can_mount() || !can_make("ext4") {
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let image = File::create(folder.path().join("image")).unwrap();
        image.set_len(192 << 20).unwrap();
        Some(Self::attached(folder, true))
    }

    fn attached(folder: tempfile::TempDir, is_new: bool) -> Self {
        let device = Loop::attach(&folder.path().join("image"));
        if is_new {
            mkfs("ext4", &device.0);
        }
        Self {
            mounted: Fs::mount(&device.0, "ext4", &folder.path().join("fs")),
            _device: device,
            folder,
        }
    }

    /// What is left when the host has no power any more: the file system had sent this much to its disk.
    fn after_a_crash(&self) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let image = |of: &tempfile::TempDir| of.path().join("image");
        fs::copy(image(&self.folder), image(&folder)).unwrap();
        Self::attached(folder, false)
    }

    /// A device on it, all of which is to outlive the host.
    fn device(&self, sparse: bool) -> Arc<Device> {
        zoned(self.path(), sparse, true, Bytes((16 * BLOCK) as u64))
    }

    fn path(&self) -> PathBuf {
        self.mounted.root.join("store")
    }
}

#[test]
fn loop_zone_management_outlives_the_host() {
    let Some(host) = HostDisk::new() else {
        return;
    };
    let device = host.device(true);
    let blocks = device.zones(0)[1].start / BLOCK as u64;
    write(&device, 0, 0, 1).unwrap();
    manage(&device, 0, ZoneAction::Finish);
    let crashed = host.after_a_crash();
    let left = crashed.device(true);
    assert_eq!(left.zones(0)[0].state, ZoneState::Full);
    assert_eq!(byte(&left, 0, 0), 1);

    write(&device, 0, blocks, 2).unwrap();
    flush(&device, 0).unwrap();
    manage(&device, 1, ZoneAction::Reset);
    drop((left, crashed));
    let crashed = host.after_a_crash();
    assert_eq!(crashed.device(true).zones(0)[1].state, ZoneState::Empty);
}

/// The host may write the pages of a file in any order: here it begins with the records of zones.
#[test]
fn loop_a_zone_has_no_hole_when_the_host_is_gone() {
    let Some(host) = HostDisk::new() else {
        return;
    };
    // All blocks of the file are written once, so that pages go to the disk without metadata.
    drop(host.device(false));
    let content = fs::read(host.path()).unwrap();
    let file = File::options().write(true).open(host.path()).unwrap();
    file.write_all_at(&content, 0).unwrap();
    file.sync_all().unwrap();
    let device = host.device(false);
    // More than the cache takes: the oldest leave it.
    for block in 0..17 {
        write(&device, 0, block, 7).unwrap();
    }
    let records = 128 << 10;
    let page = std::num::NonZeroU64::new(4096);
    rustix::fs::fadvise(&file, records, page, rustix::fs::Advice::DontNeed).unwrap();
    let patience = Instant::now() + Duration::from_secs(20);
    loop {
        let crashed = host.after_a_crash();
        let left = crashed.device(false);
        let written = left.zones(0)[0].write_pointer / BLOCK as u64;
        assert!((0..written).all(|block| byte(&left, 0, block) == 7));
        if written > 0 {
            return;
        }
        assert!(Instant::now() < patience, "no record reaches the disk");
        std::thread::sleep(Duration::from_millis(200));
    }
}
