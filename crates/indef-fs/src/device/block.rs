//! Block devices as `/sys` shows them.

use std::{
    borrow::Cow,
    fs, io,
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::{Path, PathBuf},
};

use rustix::fs::{major, minor};
use units::Bytes;

use crate::Finding;

/// Sysfs counts in these.
pub(super) const SECTOR: u64 = 512;

/// A kind of device on which addresses are not those of a whole device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Layer {
    /// A part of a device.
    #[error("a partition")]
    Partition,
    /// dm: LVM, encryption …
    #[error("made by device mapper")]
    DeviceMapper,
    /// md.
    #[error("an array of devices")]
    Array,
    /// A file as a device.
    #[error("a loop device")]
    Loop,
}

/// A block device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BlockDevice {
    /// Below `/dev`.
    pub(crate) path: PathBuf,
    /// Its folder below `/sys/devices`.
    sysfs: PathBuf,
}

impl BlockDevice {
    /// The device of this number; `None` where it is none of a block device.
    pub(crate) fn by_number(dev: u64) -> Option<Self> {
        let link = format!("/sys/dev/block/{}:{}", major(dev), minor(dev));
        Self::at(fs::canonicalize(link).ok()?)
    }

    fn at(sysfs: PathBuf) -> Option<Self> {
        // A name with a `!` stands for a `/`; DEVNAME has it as it is below /dev.
        let uevent = fs::read_to_string(sysfs.join("uevent")).ok()?;
        let name = uevent
            .lines()
            .find_map(|line| line.strip_prefix("DEVNAME="));
        Some(Self {
            path: Path::new("/dev").join(name?),
            sysfs,
        })
    }

    /// The device of a node in the file system.
    pub(crate) fn by_path(path: &Path) -> io::Result<Self> {
        let status = fs::metadata(path)?;
        let none = || io::Error::from(Finding::NoBlockDevice);
        if !status.file_type().is_block_device() {
            return Err(none());
        }
        Self::by_number(status.rdev()).ok_or_else(none)
    }

    /// Whether it has zones, by itself or as a partition of a device that has.
    pub(crate) fn is_zoned(&self) -> bool {
        let zoned = self.whole_sysfs().join("queue/zoned");
        let model = fs::read_to_string(zoned).unwrap_or_default();
        !matches!(model.trim(), "" | "none")
    }

    /// Whether it takes hints for the die of a write (`kernel/die-hints`).
    pub(crate) fn takes_die_hints(&self) -> bool {
        let takes = self.whole_sysfs().join("queue/die_hints");
        fs::read_to_string(takes).is_ok_and(|flag| flag.trim() == "1")
    }

    /// The device that it is or is a partition of, and the place on that where it begins.
    pub(crate) fn whole(&self) -> Option<(Self, Bytes)> {
        let start = match self.is_partition() {
            true => self.number("start")?.checked_mul(SECTOR)?,
            false => 0,
        };
        Some((Self::at(self.whole_sysfs().to_owned())?, Bytes(start)))
    }

    /// The kernel's name of it, which is that of its files below `/sys/fs/ext4` and the like.
    pub(crate) fn name(&self) -> Cow<'_, str> {
        self.sysfs.file_name().unwrap_or_default().to_string_lossy()
    }

    /// The number in one of its files in sysfs.
    pub(crate) fn number(&self, file: &str) -> Option<u64> {
        let text = fs::read_to_string(self.sysfs.join(file)).ok()?;
        text.trim().parse().ok()
    }

    /// The text in one of its files in sysfs, where there is one.
    pub(crate) fn text(&self, file: &str) -> Option<String> {
        let text = fs::read_to_string(self.sysfs.join(file)).ok()?;
        let text = text.trim();
        (!text.is_empty()).then(|| text.to_owned())
    }

    /// Whether the way to it leads over a bus of this name: `usb1` is one of `usb`.
    pub(crate) fn is_behind(&self, bus: &str) -> bool {
        self.sysfs.components().any(|part| {
            let part = part.as_os_str().to_string_lossy();
            let number = part.strip_prefix(bus).unwrap_or_default();
            !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit())
        })
    }

    fn whole_sysfs(&self) -> &Path {
        match self.is_partition() {
            true => self.sysfs.parent().unwrap_or(&self.sysfs),
            false => &self.sysfs,
        }
    }

    fn is_partition(&self) -> bool {
        self.sysfs.join("partition").exists()
    }

    /// The kind of device, where addresses on it are not those of a whole device.
    pub(crate) fn layer(&self) -> Option<Layer> {
        let has = |name| self.sysfs.join(name).exists();
        match () {
            () if self.is_partition() => Some(Layer::Partition),
            () if has("dm") => Some(Layer::DeviceMapper),
            () if has("md") => Some(Layer::Array),
            () if has("loop") => Some(Layer::Loop),
            () => None,
        }
    }

    /// What the F2FS that is mounted from it tells of itself.
    pub(crate) fn f2fs_folder(&self) -> PathBuf {
        Path::new("/sys/fs/f2fs").join(&*self.name())
    }

    /// Whether the F2FS that is mounted from it has a feature; `None` where that cannot be seen.
    pub(crate) fn f2fs_has_feature(&self, feature: &str) -> Option<bool> {
        let features = fs::read_to_string(self.f2fs_folder().join("features")).ok()?;
        Some(features.split(',').any(|name| name.trim() == feature))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bus_is_told_by_the_way_to_a_device() {
        let behind = |sysfs: &str| {
            let device = BlockDevice {
                path: "/dev/sda".into(),
                sysfs: sysfs.into(),
            };
            device.is_behind("usb")
        };
        let pci = "/sys/devices/pci0000:00/0000:00:14.0";
        assert!(behind(&format!(
            "{pci}/usb2/2-1/2-1:1.0/host4/target4:0:0/4:0:0:0/block/sda"
        )));
        assert!(!behind(&format!(
            "{pci}/ata1/host0/target0:0:0/0:0:0:0/block/sda"
        )));
        assert!(!behind("/sys/devices/usb/block/sda") && !behind("/sys/devices/usbx1/sda"));
    }

    #[test]
    fn what_is_no_block_device_is_not_found() {
        assert!(BlockDevice::by_path(Path::new("/dev/null")).is_err());
        assert!(BlockDevice::by_path(Path::new("/nowhere")).is_err());
        let proc = fs::metadata("/proc").unwrap().dev();
        assert!(BlockDevice::by_number(proc).is_none());
    }

    #[test]
    fn the_devices_of_this_machine_are_found_by_number_and_path() {
        for entry in fs::read_dir("/sys/class/block")
            .into_iter()
            .flatten()
            .flatten()
        {
            let number = fs::read_to_string(entry.path().join("dev")).unwrap_or_default();
            let Some((major, minor)) = number.trim().split_once(':') else {
                continue;
            };
            let dev = rustix::fs::makedev(major.parse().unwrap(), minor.parse().unwrap());
            let found = BlockDevice::by_number(dev).unwrap();
            let (whole, _) = found.whole().unwrap();
            assert_eq!(whole != found, found.is_partition());
            if found.path.exists() {
                assert_eq!(
                    BlockDevice::by_path(&found.path).unwrap().sysfs,
                    found.sysfs
                );
            }
        }
    }
}
