//! `BTRFS_IOC_FS_INFO` and `BTRFS_IOC_DEV_INFO`: the devices of a file system, the space of them that it has not
//! given to any block group yet, its UUID, and the sizes of its blocks.

use std::{
    io,
    mem::{offset_of, size_of},
    os::fd::AsFd,
};

use crate::{abi::AbiItem, ioctl};

/// `struct btrfs_ioctl_fs_info_args`, as far as it is used.
#[repr(C)]
struct FsInfo {
    max_id: u64,
    num_devices: u64,
    fsid: [u8; 16],
    node_size: u32,
    sector_size: u32,
    rest: [u64; 123],
}

// SAFETY: BTRFS_IOC_FS_INFO is _IOR(0x94, 31, struct btrfs_ioctl_fs_info_args); the kernel reads
// and writes these 1024 bytes, all of which are integers.
unsafe impl ioctl::IoctlArgument for FsInfo {
    const REQUEST: u32 = ioctl::request(ioctl::READ, super::MAGIC, 31, size_of::<FsInfo>());
}

/// `struct btrfs_ioctl_dev_info_args`, as far as it is used.
#[repr(C)]
struct DevInfo {
    devid: u64,
    uuid: [u8; 16],
    bytes_used: u64,
    total_bytes: u64,
    rest: [u64; 507],
}

// SAFETY: BTRFS_IOC_DEV_INFO is _IOWR(0x94, 30, struct btrfs_ioctl_dev_info_args); the kernel reads
// and writes these 4096 bytes, all of which are integers.
unsafe impl ioctl::IoctlArgument for DevInfo {
    const REQUEST: u32 = ioctl::request(
        ioctl::READ | ioctl::WRITE,
        super::MAGIC,
        30,
        size_of::<DevInfo>(),
    );
}

const _: () = {
    assert!(size_of::<FsInfo>() == 1024);
    assert!(offset_of!(FsInfo, fsid) == 16);
    assert!(offset_of!(FsInfo, node_size) == 32);
    assert!(size_of::<DevInfo>() == 4096);
    assert!(offset_of!(DevInfo, bytes_used) == 24);
};

/// Structures and numbers of this module, for `cargo xtask abi-check`.
pub(crate) const ABI: &[AbiItem] = &[FS_INFO, DEV_INFO];

const FS_INFO: AbiItem = AbiItem {
    header: "linux/btrfs.h",
    c_type: "struct btrfs_ioctl_fs_info_args",
    size: size_of::<FsInfo>(),
    fields: &[
        ("max_id", offset_of!(FsInfo, max_id)),
        ("num_devices", offset_of!(FsInfo, num_devices)),
        ("fsid", offset_of!(FsInfo, fsid)),
        ("nodesize", offset_of!(FsInfo, node_size)),
        ("sectorsize", offset_of!(FsInfo, sector_size)),
    ],
    requests: &[(
        "BTRFS_IOC_FS_INFO",
        <FsInfo as ioctl::IoctlArgument>::REQUEST,
    )],
};

const DEV_INFO: AbiItem = AbiItem {
    header: "linux/btrfs.h",
    c_type: "struct btrfs_ioctl_dev_info_args",
    size: size_of::<DevInfo>(),
    fields: &[
        ("devid", offset_of!(DevInfo, devid)),
        ("bytes_used", offset_of!(DevInfo, bytes_used)),
        ("total_bytes", offset_of!(DevInfo, total_bytes)),
    ],
    requests: &[(
        "BTRFS_IOC_DEV_INFO",
        <DevInfo as ioctl::IoctlArgument>::REQUEST,
    )],
};

/// Device numbers to ask for; numbers of removed devices are not used again.
const MAX_DEVICES: u64 = 256;

/// The UUID of a file system, which `FS_IOC_GETFSUUID` does not tell of Btrfs.
///
/// # Errors
///
/// The kernel's errno: `ENOTTY` on other file systems.
pub fn fsid(file: impl AsFd) -> io::Result<[u8; 16]> {
    Ok(fs_info(file)?.fsid)
}

/// The size of a block of a tree.
///
/// # Errors
///
/// The kernel's errno: `ENOTTY` on other file systems.
pub fn node_size(file: impl AsFd) -> io::Result<u32> {
    Ok(fs_info(file)?.node_size)
}

fn fs_info(file: impl AsFd) -> io::Result<Box<FsInfo>> {
    let mut info = Box::new(FsInfo {
        max_id: 0,
        num_devices: 0,
        fsid: [0; 16],
        node_size: 0,
        sector_size: 0,
        rest: [0; 123],
    });
    ioctl::call(file, &mut *info)?;
    Ok(info)
}

/// The size of a block of data.
///
/// # Errors
///
/// The kernel's errno: `ENOTTY` on other file systems.
pub fn sector_size(file: impl AsFd) -> io::Result<u32> {
    Ok(fs_info(file)?.sector_size)
}

/// A device of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Device {
    /// Its number in the file system.
    pub number: u64,
    /// Its size in bytes, as far as the file system may use it.
    pub size: u64,
    /// Bytes of it that belong to a block group.
    pub allocated: u64,
}

/// The devices of a file system.
///
/// # Errors
///
/// The kernel's errno: `ENOTTY` on other file systems.
pub fn devices(file: impl AsFd) -> io::Result<Vec<Device>> {
    let file = file.as_fd();
    let info = fs_info(file)?;
    let mut devices = Vec::new();
    for devid in 1..=info.max_id.min(MAX_DEVICES) {
        let mut device = Box::new(DevInfo {
            devid,
            uuid: [0; 16],
            bytes_used: 0,
            total_bytes: 0,
            rest: [0; 507],
        });
        match ioctl::call(file, &mut *device) {
            Ok(_) => devices.push(Device {
                number: devid,
                size: device.total_bytes,
                allocated: device.bytes_used,
            }),
            // A number that is not in use.
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(devices)
}

/// Bytes that belong to no block group, on the device that has most of them.
///
/// # Errors
///
/// The kernel's errno: `ENOTTY` on other file systems.
pub fn unallocated(file: impl AsFd) -> io::Result<u64> {
    let devices = devices(file)?;
    let free = devices
        .iter()
        .map(|it| it.size.saturating_sub(it.allocated));
    Ok(free.max().unwrap_or(0))
}
