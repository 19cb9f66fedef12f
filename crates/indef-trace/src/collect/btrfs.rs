//! The block devices of mounted Btrfs file systems: `/sys/fs/btrfs/UUID/devices`.
//!
//! A Btrfs file does not know its device, and bios of the same pages may be queued again on the
//! devices below a device mapper or a loop device. Only bios to Btrfs' own devices count.

use std::{fs, path::Path};

/// The kernel's numbers of all their devices.
pub(super) fn devices() -> Vec<u32> {
    file_systems().flatten().collect()
}

/// All devices of the file system that has this one; for a device without Btrfs, it alone.
pub(super) fn siblings(device: u32) -> Vec<u32> {
    file_systems()
        .find(|devices| devices.contains(&device))
        .unwrap_or_else(|| vec![device])
}

/// The devices of each file system.
fn file_systems() -> impl Iterator<Item = Vec<u32>> {
    let folders = fs::read_dir("/sys/fs/btrfs")
        .into_iter()
        .flatten()
        .flatten();
    folders.map(|folder| {
        let devices = fs::read_dir(folder.path().join("devices"));
        let devices = devices.into_iter().flatten().flatten();
        devices
            .filter_map(|device| number(&device.path()))
            .collect()
    })
}

/// The number in `dev` of a device's folder: `7:3`.
fn number(device: &Path) -> Option<u32> {
    let text = fs::read_to_string(device.join("dev")).ok()?;
    let (major, minor) = text.trim().split_once(':')?;
    Some(major.parse::<u32>().ok()? << 20 | minor.parse::<u32>().ok()?)
}
