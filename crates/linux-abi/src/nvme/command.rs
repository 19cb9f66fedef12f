//! Copy and Flush, passed through to an NVMe namespace.
//!
//! Copy writes below the file system, which does not know of it: the caller decides which blocks may be
//! written, and keeps others from using them for as long as needed.
//!
//! The calls wait until the command is over, and no signal ends that wait (`blk_execute_rq`,
//! block/blk-mq.c, v6.12): a killed process ends only after its command, and all its files stay open
//! until then. `io_uring` commands are not used: when a process is killed, the kernel goes on with them
//! after the files were closed.

use std::{
    fmt, io,
    os::fd::{AsFd, AsRawFd},
};

use zerocopy::little_endian::{U16, U32, U64};

use super::PassthroughCommand;
use crate::{
    abi::AbiItem,
    ioctl::{self, IoctlArgument, READ, WRITE},
};

/// Opcode of Flush (NVMe Base §7.1).
pub const FLUSH: u8 = 0x00;
/// Opcode of Copy (NVM §3.2.2).
pub const COPY: u8 = 0x19;
/// Source ranges are counted in 8 bits, zero-based.
const MOST_RANGES: usize = 256;
/// Status code type 3h: errors of the path, among them those that the host generates itself
/// (Base §3.3.3.2.1).
const PATH_RELATED: u16 = 3;

wire! {
    /// The first bytes of a source range of Copy (NVM §3.2.2), which all descriptor formats share.
    pub struct SourceHead [24] {
        /// SNSID: namespace, in formats 2h and 3h.
        pub nsid: U32,
        reserved4: [u8; 4],
        /// SLBA.
        pub start: U64,
        /// NLB: blocks, zero-based.
        pub blocks: U16,
        /// Reserved, in formats 2h and 3h CETYPE.
        pub extension: U16,
        reserved20: [u8; 2],
        /// SOPT in formats 2h and 3h: only a fast copy will do (15).
        pub options: U16,
    }
}

impl SourceHead {
    /// These blocks, whose number has to be 1 to 65536.
    #[must_use]
    pub fn new(start: u64, blocks: u32) -> Self {
        let mut head = Self::zeroed();
        head.start = U64::new(start);
        head.blocks = U16::new(blocks.saturating_sub(1) as u16);
        head
    }
}

wire! {
    /// A source range of Copy in descriptor format 0h: blocks of the same namespace.
    pub struct SourceRange [32] {
        /// The blocks.
        pub head: SourceHead,
        reserved24: [u8; 8],
    }
}

impl SourceRange {
    /// These blocks, whose number has to be 1 to 65536.
    #[must_use]
    pub fn new(start: u64, blocks: u32) -> Self {
        let mut range = Self::zeroed();
        range.head = SourceHead::new(start, blocks);
        range
    }
}

/// `struct nvme_passthru_cmd` for an I/O command.
#[repr(transparent)]
struct IoCommand(PassthroughCommand);

// SAFETY: NVME_IOCTL_IO_CMD is _IOWR('N', 0x43, struct nvme_passthru_cmd), 72 bytes of plain
// integers. For the commands of this module the kernel only reads the `data_len` bytes at `addr`,
// which the callers of `send` borrow for the call.
unsafe impl IoctlArgument for IoCommand {
    const REQUEST: u32 = ioctl::request(READ | WRITE, b'N', 0x43, size_of::<PassthroughCommand>());
}

const _: () = assert!(IoCommand::REQUEST == 0xC048_4E43);

/// Structures and numbers of this module, for `cargo xtask abi-check`.
pub const ABI: &[AbiItem] = &[AbiItem {
    header: "linux/nvme_ioctl.h",
    c_type: "",
    size: 0,
    fields: &[],
    requests: &[("NVME_IOCTL_IO_CMD", IoCommand::REQUEST)],
}];

/// The end of a command that was given to the driver.
#[derive(Debug)]
pub enum Fate {
    /// It is done.
    Done,
    /// The device ended it with this status: code (bits 7:0), code type (10:8), and flags. It may have
    /// written a part of the data.
    Refused(u16),
    /// The device gave no answer: a timeout, a reset, a lost connection. Over a network the device may
    /// go on with the command for a while.
    Unknown(io::Error),
}

/// A status that tells of the way to the device, not of the device; the source of an [`io::Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OnTheWay(pub u16);

impl fmt::Display for OnTheWay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let status = self.0;
        write!(
            f,
            "NVMe status {status:#x}: an error on the way to the device"
        )
    }
}

impl std::error::Error for OnTheWay {}

/// Copy blocks inside a namespace: those of `sources`, 1 to 256, one after the other, to `destination` and
/// on. The copy is in the device's volatile cache, as after a write.
///
/// # Errors
///
/// The command was not sent: `EACCES` or `EPERM` without `CAP_SYS_ADMIN`, `ENOTTY` where the device
/// is not NVMe, `EINVAL` for a namespace that `device` is not or a wrong number of sources.
pub fn copy(
    device: impl AsFd,
    nsid: u32,
    destination: u64,
    sources: &[SourceRange],
) -> io::Result<Fate> {
    if !(1..=MOST_RANGES).contains(&sources.len()) {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    send(
        device,
        PassthroughCommand {
            opcode: COPY,
            nsid,
            addr: sources.as_ptr() as u64,
            data_len: size_of_val(sources) as u32,
            cdw10: destination as u32,
            cdw11: (destination >> 32) as u32,
            cdw12: (sources.len() - 1) as u32,
            ..PassthroughCommand::default()
        },
    )
}

/// Make the content of the namespace's volatile cache durable.
///
/// # Errors
///
/// As for [`copy`].
pub fn flush(device: impl AsFd, nsid: u32) -> io::Result<Fate> {
    send(
        device,
        PassthroughCommand {
            opcode: FLUSH,
            nsid,
            ..PassthroughCommand::default()
        },
    )
}

/// Send the command once: [`ioctl::call`] would send a cancelled command again.
fn send(device: impl AsFd, command: PassthroughCommand) -> io::Result<Fate> {
    let mut command = IoCommand(command);
    let device = device.as_fd().as_raw_fd();
    // SAFETY: by the implementation of `IoctlArgument` the request takes this structure; the
    // memory at `addr` is borrowed by the caller, and the call returns after the command's end.
    let result =
        unsafe { libc::ioctl(device, IoCommand::REQUEST as libc::Ioctl, &raw mut command) };
    if result < 0 {
        return fate_of(io::Error::last_os_error());
    }
    let status = result as u16 & 0x7FFF;
    Ok(match (status, status >> 8 & 7) {
        (0, _) => Fate::Done,
        (_, PATH_RELATED) => Fate::Unknown(io::Error::other(OnTheWay(status))),
        _ => Fate::Refused(status),
    })
}

/// Errors of the checks before a command is sent are errors; after any other error the outcome is
/// unknown.
fn fate_of(error: io::Error) -> io::Result<Fate> {
    match error.raw_os_error() {
        Some(
            libc::EACCES
            | libc::EPERM
            | libc::EINVAL
            | libc::EFAULT
            | libc::EBADF
            | libc::ENOTTY
            | libc::EOPNOTSUPP
            | libc::ENOMEM,
        ) => Err(error),
        _ => Ok(Fate::Unknown(error)),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn what_is_not_nvme_says_so() {
        let file = File::open("/proc/self/exe").unwrap();
        let source = SourceRange::new(0, 1);
        for result in [flush(&file, 1), copy(&file, 1, 0, &[source])] {
            let errno = result.unwrap_err().raw_os_error();
            assert!(matches!(errno, Some(libc::ENOTTY | libc::EOPNOTSUPP)));
        }
    }

    #[test]
    fn no_command_without_sources_or_with_too_many() {
        let file = File::open("/proc/self/exe").unwrap();
        for ranges in [0, MOST_RANGES + 1] {
            let sources = vec![SourceRange::new(0, 1); ranges];
            let error = copy(&file, 1, 0, &sources).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::EINVAL), "{ranges}");
        }
    }

    #[test]
    fn a_command_that_was_cancelled_may_still_be_going_on() {
        for errno in [libc::EINTR, libc::EIO, libc::ENODEV, libc::ETIMEDOUT] {
            let fate = fate_of(io::Error::from_raw_os_error(errno)).unwrap();
            assert!(matches!(fate, Fate::Unknown(_)), "{errno}");
        }
        assert!(fate_of(io::Error::from_raw_os_error(libc::EACCES)).is_err());
    }
}
