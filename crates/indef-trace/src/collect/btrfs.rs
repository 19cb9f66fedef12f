//! Which block devices belong to mounted Btrfs file systems: `/sys/fs/btrfs/UUID/devices`.
//!
//! A Btrfs file does not know its device, and bios of the same pages may be queued again below, on
//! the parts of a device mapper or a loop device. Those of Btrfs' own devices count.

use std::{fs, path::Path};

/// The kernel's numbers of the devices.
pub(super) fn devices() -> Vec<u32> {
    let file_systems = fs::read_dir("/sys/fs/btrfs")
        .into_iter()
        .flatten()
        .flatten();
    file_systems
        .flat_map(|fs_dir| {
            fs::read_dir(fs_dir.path().join("devices"))
                .into_iter()
                .flatten()
        })
        .flatten()
        .filter_map(|device| number(&device.path()))
        .collect()
}

/// `dev` of a device's folder: `7:3`.
fn number(device: &Path) -> Option<u32> {
    let text = fs::read_to_string(device.join("dev")).ok()?;
    let (major, minor) = text.trim().split_once(':')?;
    Some(major.parse::<u32>().ok()? << 20 | minor.parse::<u32>().ok()?)
}
