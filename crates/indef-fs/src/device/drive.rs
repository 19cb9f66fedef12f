//! The drive below a file system: its name that outlives a restart, and what the kernel counts of it.

use std::{fs, io, os::unix::fs::MetadataExt, path::Path, path::PathBuf};

use super::{BlockDevice, Layer, block};
use crate::Filesystem;

/// A whole block device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drive {
    /// Below `/dev`.
    pub path: PathBuf,
    /// A name of the medium that no other one has, where the kernel tells one: its WWID, model and serial
    /// number, the UUID of a device mapper's device, or the backing file of a loop device (until the next
    /// restart).
    pub key: Option<String>,
    /// The maker's name of it.
    pub model: Option<String>,
    /// The kind, where it is made from others.
    pub layer: Option<Layer>,
    device: BlockDevice,
}

impl Drive {
    /// The drive that a file system is on; `None` where it is on none that can be found.
    #[must_use]
    pub fn of(fs: &Filesystem) -> Option<Self> {
        let mounted = BlockDevice::by_number(fs.dev).or_else(|| {
            // Btrfs: a number of no device; the mount table names one of its devices.
            let source = &fs.mount.as_ref()?.source;
            BlockDevice::by_path(Path::new(source)).ok()
        })?;
        Self::whole(&mounted)
    }

    /// The drive that a device node stands for.
    ///
    /// # Errors
    ///
    /// It is none of a block device.
    pub fn at(path: &Path) -> io::Result<Self> {
        let device = BlockDevice::by_path(path)?;
        Self::whole(&device).ok_or_else(|| io::Error::from(crate::Finding::NoBlockDevice))
    }

    fn whole(device: &BlockDevice) -> Option<Self> {
        let (device, _) = device.whole()?;
        let model = ["device/model", "device/name"]
            .into_iter()
            .find_map(|file| device.text(file));
        Some(Self {
            path: device.path.clone(),
            key: key(&device, model.as_deref()),
            model,
            layer: device.layer(),
            device,
        })
    }

    /// Bytes written to it since the system began, by anybody.
    #[must_use]
    pub fn written(&self) -> Option<u64> {
        // Documentation/block/stat.rst, v6.1: the seventh is "write sectors".
        let text = self.device.text("stat")?;
        let sectors: u64 = text.split_whitespace().nth(6)?.parse().ok()?;
        sectors.checked_mul(block::SECTOR)
    }

    /// Whether the kernel takes it for a spinning disk.
    #[must_use]
    pub fn is_rotational(&self) -> bool {
        self.device.number("queue/rotational") == Some(1)
    }
}

fn key(device: &BlockDevice, model: Option<&str>) -> Option<String> {
    if let Some(backing) = device.text("loop/backing_file") {
        // Another file may have the name after a restart, or another one the number.
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        let status = fs::metadata(&backing).ok()?;
        let (dev, inode) = (status.dev(), status.ino());
        return Some(format!("loop:{}:{dev}:{inode}:{backing}", boot.trim()));
    }
    let wwid = ["wwid", "device/wwid"]
        .into_iter()
        .find_map(|file| device.text(file));
    let uuid = ["dm/uuid", "md/uuid"]
        .into_iter()
        .find_map(|file| device.text(file));
    let serial = ["device/serial", "serial"]
        .into_iter()
        .find_map(|file| device.text(file));
    match (wwid, uuid, serial) {
        (Some(wwid), ..) => Some(format!("wwid:{wwid}")),
        (None, Some(uuid), _) => Some(format!("uuid:{uuid}")),
        (None, None, Some(serial)) => Some(format!("serial:{}:{serial}", model.unwrap_or(""))),
        (None, None, None) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_drives_of_this_machine_have_one_key() {
        let mut keys = Vec::new();
        for entry in fs::read_dir("/sys/block").into_iter().flatten().flatten() {
            let name = entry.file_name();
            let Ok(drive) = Drive::at(&Path::new("/dev").join(name)) else {
                continue;
            };
            assert!(drive.written().is_some(), "{}", drive.path.display());
            keys.extend(drive.key.filter(|key| !key.starts_with("loop:")));
        }
        let all = keys.len();
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), all);
        assert!(Drive::at(Path::new("/dev/null")).is_err());
    }
}
