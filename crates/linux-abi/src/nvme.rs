//! Admin commands that only read, passed through to an NVMe device (linux/nvme_ioctl.h, v6.1).
//!
//! Their answers are in [`mod@identify`], [`geometry`] and [`smart`]; commands that could change anything are in
//! [`command`]. The kernel requires `CAP_SYS_ADMIN`, whatever
//! the mode in which the device is open.

pub mod command;
pub mod geometry;
pub mod identify;
pub mod smart;

use std::{
    io,
    mem::{offset_of, size_of},
    os::fd::AsFd,
};

use self::identify::IDENTIFY_LEN;
use crate::{abi::AbiItem, ioctl};

/// Time limit of a command: a device that does not answer must not hold anybody up.
const TIMEOUT_MS: u32 = 5_000;
/// Opcode of Get Log Page (NVMe Base §5.16).
pub const GET_LOG_PAGE: u8 = 0x02;
/// Opcode of Identify (NVMe Base §5.17).
pub const IDENTIFY: u8 = 0x06;
/// Get Log Page, dword 10: RAE, retain the event that the page reports.
const RETAIN_EVENT: u32 = 1 << 15;

/// `struct nvme_passthru_cmd`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct PassthroughCommand {
    opcode: u8,
    flags: u8,
    reserved: u16,
    nsid: u32,
    cdw2: u32,
    cdw3: u32,
    metadata: u64,
    addr: u64,
    metadata_len: u32,
    data_len: u32,
    cdw10: u32,
    cdw11: u32,
    cdw12: u32,
    cdw13: u32,
    cdw14: u32,
    cdw15: u32,
    timeout_ms: u32,
    result: u32,
}

/// `NVME_IOCTL_ID` takes nothing.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct NamespaceId;

const _: () = {
    assert!(size_of::<PassthroughCommand>() == 72);
    assert!(offset_of!(PassthroughCommand, addr) == 24);
    assert!(offset_of!(PassthroughCommand, cdw10) == 40);
    assert!(offset_of!(PassthroughCommand, result) == 68);
    assert!(<PassthroughCommand as ioctl::IoctlArgument>::REQUEST == 0xC048_4E41);
    assert!(<NamespaceId as ioctl::IoctlArgument>::REQUEST == 0x4E40);
};

/// Structures and numbers of this module, for `cargo xtask abi-check`.
pub const ABI: &[AbiItem] = &[
    AbiItem {
        header: "linux/nvme_ioctl.h",
        c_type: "struct nvme_passthru_cmd",
        size: size_of::<PassthroughCommand>(),
        fields: &[
            ("nsid", offset_of!(PassthroughCommand, nsid)),
            ("addr", offset_of!(PassthroughCommand, addr)),
            ("data_len", offset_of!(PassthroughCommand, data_len)),
            ("cdw10", offset_of!(PassthroughCommand, cdw10)),
            ("timeout_ms", offset_of!(PassthroughCommand, timeout_ms)),
            ("result", offset_of!(PassthroughCommand, result)),
        ],
        requests: &[(
            "NVME_IOCTL_ADMIN_CMD",
            <PassthroughCommand as ioctl::IoctlArgument>::REQUEST,
        )],
    },
    AbiItem {
        header: "linux/nvme_ioctl.h",
        c_type: "",
        size: 0,
        fields: &[],
        requests: &[(
            "NVME_IOCTL_ID",
            <NamespaceId as ioctl::IoctlArgument>::REQUEST,
        )],
    },
];

// SAFETY: NVME_IOCTL_ADMIN_CMD is _IOWR('N', 0x41, struct nvme_admin_cmd), these 72 bytes. The
// kernel writes `data_len` bytes at `addr` for the commands of this module, which `read` owns for the
// call, and nothing else. Every bit pattern is valid for plain integers.
unsafe impl ioctl::IoctlArgument for PassthroughCommand {
    const REQUEST: u32 = ioctl::request(
        ioctl::READ | ioctl::WRITE,
        b'N',
        0x41,
        size_of::<PassthroughCommand>(),
    );
}

// SAFETY: NVME_IOCTL_ID is _IO('N', 0x40): the kernel ignores its argument.
unsafe impl ioctl::IoctlArgument for NamespaceId {
    const REQUEST: u32 = ioctl::request(0, b'N', 0x40, 0);
}

/// The answer of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The data is there.
    Success,
    /// The device refused the command with this status: code (bits 7:0), code type (10:8), and flags, as in
    /// a completion's status field without the phase (Base §3.3.3.2.1).
    Status(u16),
}

/// The NSID of an open block device.
///
/// # Errors
///
/// The kernel's errno: `ENOTTY` where the device is not NVMe.
pub fn namespace_id(device: impl AsFd) -> io::Result<u32> {
    ioctl::call(device, &mut NamespaceId)
}

/// Read a part of a log page, from `offset` (a multiple of 4) on, as much as fits `data`, whose length
/// is a multiple of 4. Events that the page reports are retained.
///
/// # Errors
///
/// The kernel's errno: `EACCES` or `EPERM` without `CAP_SYS_ADMIN`, `ENOTTY` where the device is not
/// NVMe, `EINVAL` for a length that is 0 or no multiple of 4.
pub fn get_log_page(
    device: impl AsFd,
    page: u8,
    nsid: u32,
    offset: u64,
    data: &mut [u8],
) -> io::Result<Answer> {
    let dwords = u32::try_from(data.len() / 4).unwrap_or(u32::MAX);
    if dwords == 0 || !data.len().is_multiple_of(4) {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    let last = dwords - 1;
    let command = PassthroughCommand {
        opcode: GET_LOG_PAGE,
        nsid,
        cdw10: (last & 0xFFFF) << 16 | RETAIN_EVENT | u32::from(page),
        cdw11: last >> 16,
        cdw12: offset as u32,
        cdw13: (offset >> 32) as u32,
        ..PassthroughCommand::default()
    };
    read(device, command, data)
}

/// Identify: read the data structure `structure` (CNS) of the command set `command_set` (CSI); `nsid`
/// names the namespace for structures of a namespace.
///
/// # Errors
///
/// As for [`get_log_page`].
pub fn identify(
    device: impl AsFd,
    structure: u8,
    nsid: u32,
    command_set: u8,
    data: &mut [u8; IDENTIFY_LEN],
) -> io::Result<Answer> {
    let command = PassthroughCommand {
        opcode: IDENTIFY,
        nsid,
        cdw10: structure.into(),
        cdw11: u32::from(command_set) << 24,
        ..PassthroughCommand::default()
    };
    read(device, command, data)
}

fn read(device: impl AsFd, mut command: PassthroughCommand, data: &mut [u8]) -> io::Result<Answer> {
    let invalid = |_| io::Error::from_raw_os_error(libc::EINVAL);
    command.data_len = u32::try_from(data.len()).map_err(invalid)?;
    // Valid and exclusive until the ioctl returns.
    command.addr = data.as_mut_ptr() as u64;
    command.timeout_ms = TIMEOUT_MS;
    let status = ioctl::call(device, &mut command)?;
    Ok(match status as u16 & 0x7FFF {
        0 => Answer::Success,
        status => Answer::Status(status),
    })
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn what_is_not_nvme_says_so() {
        let file = File::open("/proc/self/exe").unwrap();
        let not_nvme = |error: io::Error| {
            matches!(error.raw_os_error(), Some(libc::ENOTTY | libc::EOPNOTSUPP))
        };
        assert!(not_nvme(namespace_id(&file).unwrap_err()));
        let mut data = [0; 4096];
        assert!(not_nvme(identify(&file, 1, 0, 0, &mut data).unwrap_err()));
        assert!(not_nvme(
            get_log_page(&file, 2, u32::MAX, 0, &mut data).unwrap_err()
        ));
    }

    #[test]
    fn no_length_that_a_device_cannot_answer() {
        let file = File::open("/proc/self/exe").unwrap();
        for len in [0, 1, 511] {
            let mut data = vec![0; len];
            let error = get_log_page(&file, 2, 0, 0, &mut data).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::EINVAL), "{len}");
        }
    }
}
