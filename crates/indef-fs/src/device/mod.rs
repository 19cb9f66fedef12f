//! The block device below a file system, and its reports about its parallel flash units.
//!
//! A zoned NVMe device may have a log page (DBh, `linux_abi::nvme::geometry`) that says how zones lie on its
//! dies. With the device's place among the file system's addresses that makes a
//! [`Geometry::Zoned`]. Nothing is sent to devices without zones: where their data lies follows from
//! the order in which it was written, not from addresses. Other vendors have other things in page
//! DBh, so it counts only with its magic number.
//!
//! Not looked through: device mapper, md, loop, and partitions of zoned devices.

mod block;
mod drive;
mod page;

use std::{fs::File, io, path::PathBuf};

use indef_core::layout::Geometry;
use linux_abi::nvme::{
    self, Answer,
    geometry::{GEOMETRY_PAGE, GeometryLog},
};

pub(crate) use self::block::BlockDevice;
pub use self::{block::Layer, drive::Drive, page::PageError};
use crate::{Filesystem, Finding, FsKind, f2fs::Superblock};

/// The longest log page that is read; one of 4096 dies and some namespaces has a tenth of it.
const PAGE_MAX: usize = 1 << 20;

/// A geometry that a device reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceGeometry {
    /// With the device's place among the file system's addresses.
    pub geometry: Geometry,
    /// The device.
    pub device: PathBuf,
}

/// Why nothing is known about the device's inside.
#[derive(Debug, thiserror::Error)]
pub enum NoGeometry {
    /// Overlay, network or memory file systems, or an unusual `/sys`.
    #[error("its file system ({0}) is not on a block device that can be found")]
    NoDevice(FsKind),
    /// Btrfs.
    #[error("{0} tells addresses of its own, not those of its devices")]
    OwnAddresses(FsKind),
    /// An ordinary device.
    #[error("{device} has no zones, so where its data lies does not follow from addresses", device = device.display())]
    NotZoned {
        /// The device.
        device: PathBuf,
    },
    /// More than one zoned device.
    #[error("it is on several zoned devices ({devices}); a geometry describes one")]
    Several {
        /// Their names.
        devices: String,
    },
    /// The zoned device is one that the kernel puts together, or a part of one.
    #[error("{device} is {layer}; only whole NVMe namespaces are asked", device = device.display())]
    Layered {
        /// The device.
        device: PathBuf,
        /// Its kind.
        layer: Layer,
    },
    /// The zoned device has another protocol.
    #[error("{device} is no NVMe device, and no other can be asked; --geometry describes it", device = device.display())]
    NotNvme {
        /// The device.
        device: PathBuf,
    },
    /// A privilege is missing.
    #[error("asking {device} needs root (CAP_SYS_ADMIN)", device = device.display())]
    NotPermitted {
        /// The device.
        device: PathBuf,
    },
    /// The device does not have the page.
    #[error("{device} has no log page DBh with its geometry ({why}); --geometry describes it", device = device.display())]
    NoPage {
        /// The device.
        device: PathBuf,
        /// The device's answer, or the mistake in its page.
        why: PageError,
    },
    /// Something failed.
    #[error("{device}: {operation} failed: {source}", device = device.display())]
    Failed {
        /// The device.
        device: PathBuf,
        /// The operation.
        operation: &'static str,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
}

impl NoGeometry {
    /// Whether there is nothing that anybody could ask, as on an ordinary SSD.
    #[must_use]
    pub fn is_ordinary(&self) -> bool {
        matches!(
            self,
            Self::NoDevice(_) | Self::OwnAddresses(_) | Self::NotZoned { .. }
        )
    }
}

/// Ask the device below a file system for its geometry. Reads sysfs; of zoned devices also F2FS's
/// superblock, and the log page with `CAP_SYS_ADMIN`.
///
/// # Errors
///
/// Why there is none.
pub fn device_geometry(fs: &Filesystem) -> Result<DeviceGeometry, NoGeometry> {
    if fs.kind == FsKind::Btrfs {
        return Err(NoGeometry::OwnAddresses(fs.kind));
    }
    let mounted = BlockDevice::by_number(fs.dev).ok_or(NoGeometry::NoDevice(fs.kind))?;
    let (device, start) = zoned_member(fs, mounted)?;
    if let Some(layer) = device.layer() {
        let device = device.path;
        return Err(NoGeometry::Layered { device, layer });
    }
    let (log, nsid) = read_page(&device)?;
    let no_page = |why| NoGeometry::NoPage {
        device: device.path.clone(),
        why,
    };
    let geometry = page::zoned_geometry(&log, nsid, start).map_err(no_page)?;
    Ok(DeviceGeometry {
        geometry,
        device: device.path,
    })
}

/// The superblock of an F2FS, where it can be read.
pub(crate) fn f2fs_superblock(fs: &Filesystem) -> Option<Superblock> {
    superblock(&BlockDevice::by_number(fs.dev)?).ok()
}

/// What an F2FS tells of itself in sysfs.
pub(crate) fn f2fs_folder(fs: &Filesystem) -> Option<std::path::PathBuf> {
    Some(BlockDevice::by_number(fs.dev)?.f2fs_folder())
}

/// The one zoned device of the file system, and where its addresses begin.
fn zoned_member(
    fs: &Filesystem,
    mounted: BlockDevice,
) -> Result<(BlockDevice, units::Bytes), NoGeometry> {
    let not_zoned = |device: &BlockDevice| NoGeometry::NotZoned {
        device: device.path.clone(),
    };
    if fs.kind != FsKind::F2fs {
        return match mounted.is_zoned() {
            true => Ok((mounted, units::Bytes::ZERO)),
            false => Err(not_zoned(&mounted)),
        };
    }
    if mounted.f2fs_has_feature("blkzoned") == Some(false) {
        return Err(not_zoned(&mounted));
    }
    let mut zoned = Vec::new();
    for member in superblock(&mounted)?.members {
        let device = match member.path {
            None => mounted.clone(),
            Some(path) => BlockDevice::by_path(&path).map_err(|source| NoGeometry::Failed {
                device: path,
                operation: "look at the device",
                source,
            })?,
        };
        if device.is_zoned() {
            zoned.push((device, member.start));
        }
    }
    if zoned.len() > 1 {
        let names = zoned.iter().map(|(device, _)| device.path.display());
        let names: Vec<_> = names.map(|name| name.to_string()).collect();
        return Err(NoGeometry::Several {
            devices: names.join(", "),
        });
    }
    zoned.pop().ok_or_else(|| not_zoned(&mounted))
}

fn superblock(mounted: &BlockDevice) -> Result<Superblock, NoGeometry> {
    let fail = |operation| failed(mounted, operation);
    let file = File::open(&mounted.path).map_err(fail("open the device"))?;
    let found = Superblock::read(&file).map_err(fail("read the superblock"))?;
    let none = || io::Error::from(Finding::NoF2fs);
    found.ok_or_else(|| fail("read the superblock")(none()))
}

/// The log page, and the number of the namespace that the device is.
fn read_page(device: &BlockDevice) -> Result<(Vec<u8>, u32), NoGeometry> {
    let file = File::open(&device.path).map_err(failed(device, "open the device"))?;
    let nsid = nvme::namespace_id(&file).map_err(failed(device, "ask for the namespace"))?;
    let get = |data: &mut [u8]| {
        // Of the controller, as other vendors have their page DBh.
        let answer = nvme::get_log_page(&file, GEOMETRY_PAGE, u32::MAX, 0, data);
        match answer.map_err(failed(device, "read log page DBh"))? {
            Answer::Success => Ok(()),
            Answer::Status(status) => Err(NoGeometry::NoPage {
                device: device.path.clone(),
                why: PageError::Status(status & 0x7FF),
            }),
        }
    };
    let mut log = vec![0; GeometryLog::LEN];
    get(&mut log)?;
    let len = page::length(&log).map_err(|why| NoGeometry::NoPage {
        device: device.path.clone(),
        why,
    })?;
    log.resize(len.clamp(GeometryLog::LEN, PAGE_MAX).next_multiple_of(4), 0);
    get(&mut log)?;
    Ok((log, nsid))
}

/// Sort the kernel's errors.
fn failed(device: &BlockDevice, operation: &'static str) -> impl Fn(io::Error) -> NoGeometry {
    use rustix::io::Errno;
    let device = device.path.clone();
    move |source| {
        let device = device.clone();
        match Errno::from_io_error(&source) {
            Some(Errno::ACCESS | Errno::PERM) => NoGeometry::NotPermitted { device },
            Some(Errno::NOTTY | Errno::OPNOTSUPP) => NoGeometry::NotNvme { device },
            _ => NoGeometry::Failed {
                device,
                operation,
                source,
            },
        }
    }
}
