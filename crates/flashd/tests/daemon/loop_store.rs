//! A file system below the store that is full, at start and later.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::harness::{run, text};
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
    let namespace = NamespaceOptions {
        kind: NamespaceKind::Zoned,
        size: Bytes(2 * profile.geometry().zone.size.get()),
    };
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
