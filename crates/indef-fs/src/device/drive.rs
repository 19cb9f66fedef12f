//! The drive below a file system: its name that outlives a restart, and what the kernel counts of it.

use std::{fs, io, os::unix::fs::MetadataExt, path::Path, path::PathBuf};

use rustix::fs::makedev;

use super::{BlockDevice, Layer, block};
use crate::{Filesystem, FsKind};

/// A whole block device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drive {
    /// Below `/dev`.
    pub path: PathBuf,
    /// A name of the medium that no other one has, where the kernel tells one: its WWID, or model and
    /// serial number; the UUID of a device that the kernel puts together, with the names of its parts; the
    /// number of a loop device's attachment (until the next restart). Its size is a part of it.
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
            // Btrfs: a number of no device; the mount table names one of its devices. Others may name
            // whatever they were told.
            let mount = fs.mount.as_ref().filter(|_| fs.kind == FsKind::Btrfs)?;
            BlockDevice::by_path(&mount.source).ok()
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

    /// Bytes read from it since the system began, by anybody; `None` where nobody counts them.
    #[must_use]
    pub fn read(&self) -> Option<u64> {
        // Documentation/block/stat.rst, v6.1: the third is "read sectors".
        self.counted(2)
    }

    /// Bytes written to it since the system began, by anybody; `None` where nobody counts them.
    #[must_use]
    pub fn written(&self) -> Option<u64> {
        // The seventh is "write sectors".
        self.counted(6)
    }

    fn counted(&self, nth: usize) -> Option<u64> {
        if self.device.number("queue/iostats") == Some(0) {
            return None;
        }
        let text = self.device.text("stat")?;
        let sectors: u64 = text.split_whitespace().nth(nth)?.parse().ok()?;
        // Some drivers without a request queue of their own never count.
        let sectors = (sectors > 0).then_some(sectors)?;
        sectors.checked_mul(block::SECTOR)
    }

    /// The kernel's name of it, as below `/sys/class/block`: `sda`, `nvme0n1`.
    #[must_use]
    pub fn name(&self) -> String {
        self.device.name().into_owned()
    }

    /// Whether somebody may unplug it: a removable medium, a drive behind USB, an SD card.
    #[must_use]
    pub fn is_removable(&self) -> bool {
        self.device.number("removable") == Some(1)
            || self.device.text("device/type").as_deref() == Some("SD")
            || self.device.is_behind("usb")
    }

    /// Whether the kernel takes it for a spinning disk.
    #[must_use]
    pub fn is_rotational(&self) -> bool {
        self.device.number("queue/rotational") == Some(1)
    }
}

fn key(device: &BlockDevice, model: Option<&str>) -> Option<String> {
    let name = match device.layer() {
        Some(Layer::Loop) => attachment(device)?,
        Some(Layer::DeviceMapper | Layer::Array) => assembly(device)?,
        Some(Layer::Partition) | None => medium(device, model)?,
    };
    Some(format!("{name}:{}", device.number("size")?))
}

/// The name of a loop device, as long as it is attached to its file.
fn attachment(device: &BlockDevice) -> Option<String> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let boot = boot.trim();
    let backing = device.text("loop/backing_file")?;
    // Since 5.15: no two attachments have one.
    if let Some(number) = device.number("diskseq") {
        return Some(format!("loop:{boot}:{number}"));
    }
    // Another file may have the name after a restart, or another one the number.
    let status = fs::metadata(&backing).ok()?;
    let (dev, inode) = (status.dev(), status.ino());
    Some(format!("loop:{boot}:{dev}:{inode}:{backing}"))
}

/// The name of a device that is put together, with those of its parts: the UUID stays when its data moves
/// to others.
fn assembly(device: &BlockDevice) -> Option<String> {
    let uuid = ["dm/uuid", "md/uuid"]
        .into_iter()
        .find_map(|file| device.text(file))?;
    let slaves = Path::new("/sys/class/block")
        .join(&*device.name())
        .join("slaves");
    let part = |slave: fs::DirEntry| {
        let number = fs::read_to_string(slave.path().join("dev")).ok()?;
        let (major, minor) = number.trim().split_once(':')?;
        let number = makedev(major.parse().ok()?, minor.parse().ok()?);
        Drive::whole(&BlockDevice::by_number(number)?)?.key
    };
    let slaves = fs::read_dir(slaves).ok()?.flatten();
    let mut parts: Vec<String> = slaves.map(part).collect::<Option<_>>()?;
    parts.sort();
    (!parts.is_empty()).then(|| format!("uuid:{uuid}:[{}]", parts.join(",")))
}

fn medium(device: &BlockDevice, model: Option<&str>) -> Option<String> {
    let wwid = ["wwid", "device/wwid"]
        .into_iter()
        .find_map(|file| device.text(file));
    let serial = ["device/serial", "serial"]
        .into_iter()
        .find_map(|file| device.text(file));
    match (wwid, serial) {
        (Some(wwid), _) => Some(format!("wwid:{wwid}")),
        (None, Some(serial)) => Some(format!("serial:{}:{serial}", model.unwrap_or(""))),
        (None, None) => None,
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
            keys.extend(drive.key.filter(|key| !key.starts_with("loop:")));
        }
        let all = keys.len();
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), all);
        assert!(Drive::at(Path::new("/dev/null")).is_err());
    }

    #[test]
    fn the_source_of_a_mount_names_the_drive_of_btrfs_alone() {
        let disks = fs::read_dir("/sys/block").into_iter().flatten().flatten();
        let Some(disk) = disks
            .map(|entry| Path::new("/dev").join(entry.file_name()))
            .find(|path| Drive::at(path).is_ok())
        else {
            return;
        };
        let proc = fs::File::open("/proc").unwrap();
        let mut found = crate::detect(&proc, Path::new("/proc")).unwrap();
        let mount = found.mount.as_mut().expect("it is mounted");
        mount.source = disk.clone();
        assert_eq!(Drive::of(&found), None);
        found.kind = FsKind::Btrfs;
        assert_eq!(Drive::of(&found).map(|drive| drive.path), Some(disk));
    }

    #[test]
    fn a_drive_that_does_not_count_tells_no_bytes() {
        for entry in fs::read_dir("/sys/block").into_iter().flatten().flatten() {
            let Ok(drive) = Drive::at(&Path::new("/dev").join(entry.file_name())) else {
                continue;
            };
            let counts = drive.device.number("queue/iostats") != Some(0);
            for told in [drive.read(), drive.written()] {
                assert!(told.is_none_or(|bytes| counts && bytes > 0 && bytes % block::SECTOR == 0));
            }
        }
    }
}
