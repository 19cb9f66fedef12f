//! F2FS: `F2FS_IOC_DEFRAGMENT` rewrites a range of a file (linux/f2fs.h, v6.1); [`offload`] has the
//! device copy ranges, on a kernel with the patches of kernel/f2fs.

use std::{
    io,
    mem::{offset_of, size_of},
    os::fd::AsFd,
};

use crate::{abi::AbiItem, ioctl};

pub mod disk;
pub mod offload;

/// `struct f2fs_defragment`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct Defragment {
    start: u64,
    len: u64,
}

const _: () = {
    assert!(size_of::<Defragment>() == 16);
    assert!(offset_of!(Defragment, len) == 8);
    assert!(<Defragment as ioctl::IoctlArgument>::REQUEST == 0xC010_F508);
    assert!(<GcRange as ioctl::IoctlArgument>::REQUEST == 0x4018_F50B);
    assert!(<Resize as ioctl::IoctlArgument>::REQUEST == 0x4008_F510);
    assert!(<WriteCheckpoint as ioctl::IoctlArgument>::REQUEST == 0xF507);
};

/// Structures and numbers of this module, for `cargo xtask abi-check`.
pub const ABI: &[AbiItem] = &[
    AbiItem {
        header: "linux/f2fs.h",
        c_type: "struct f2fs_defragment",
        size: size_of::<Defragment>(),
        fields: &[
            ("start", offset_of!(Defragment, start)),
            ("len", offset_of!(Defragment, len)),
        ],
        requests: &[(
            "F2FS_IOC_DEFRAGMENT",
            <Defragment as ioctl::IoctlArgument>::REQUEST,
        )],
    },
    AbiItem {
        header: "linux/f2fs.h",
        c_type: "struct f2fs_gc_range",
        size: size_of::<GcRange>(),
        fields: &[
            ("sync", offset_of!(GcRange, sync)),
            ("start", offset_of!(GcRange, start)),
            ("len", offset_of!(GcRange, len)),
        ],
        requests: &[(
            "F2FS_IOC_GARBAGE_COLLECT_RANGE",
            <GcRange as ioctl::IoctlArgument>::REQUEST,
        )],
    },
];

// SAFETY: F2FS_IOC_DEFRAGMENT is _IOWR(0xf5, 8, struct f2fs_defragment); the kernel reads and
// writes these 16 bytes and nothing else, and every bit pattern is valid for plain integers.
unsafe impl ioctl::IoctlArgument for Defragment {
    const REQUEST: u32 =
        ioctl::request(ioctl::READ | ioctl::WRITE, 0xF5, 8, size_of::<Defragment>());
}

/// Rewrite `len` bytes from `start` on (both multiples of 4 KiB) in one piece, as far as free space
/// allows. Returns the bytes that were rewritten: 0 if the range was in one piece already.
///
/// # Errors
///
/// The kernel's errno: `EPERM` without `CAP_SYS_ADMIN`, `EAGAIN` where free sections are short.
pub fn defragment(file: impl AsFd, start: u64, len: u64) -> io::Result<u64> {
    let mut argument = Defragment { start, len };
    ioctl::call(file, &mut argument)?;
    Ok(argument.len)
}

/// `struct f2fs_gc_range`: in blocks.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct GcRange {
    sync: u32,
    padding: u32,
    start: u64,
    len: u64,
}

// SAFETY: F2FS_IOC_GARBAGE_COLLECT_RANGE is _IOW(0xf5, 11, struct f2fs_gc_range): the kernel reads these 24 bytes.
unsafe impl ioctl::IoctlArgument for GcRange {
    const REQUEST: u32 = ioctl::request(ioctl::WRITE, 0xF5, 11, size_of::<GcRange>());
}

/// Collect the garbage of the section that has this block: move all that is valid in it elsewhere, and free it with a
/// checkpoint. Returns when that is done.
///
/// # Errors
///
/// The kernel's errno: `EPERM` without `CAP_SYS_ADMIN`, `EAGAIN` where a log is in the section or something could not be
/// moved, `EINVAL` outside of the main area, `ENODATA` where nothing is valid, `EROFS`.
pub fn collect_section(on: impl AsFd, block: u64) -> io::Result<()> {
    let mut range = GcRange {
        sync: 1,
        start: block,
        ..GcRange::default()
    };
    ioctl::call(on, &mut range)?;
    Ok(())
}

/// The argument of ioctls that have none.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct StartAtomicWrite;

// SAFETY: F2FS_IOC_START_ATOMIC_WRITE is _IO(0xf5, 1): the kernel does not look at the argument.
unsafe impl ioctl::IoctlArgument for StartAtomicWrite {
    const REQUEST: u32 = ioctl::request(0, 0xF5, 1, 0);
}

/// Begin an atomic write: data written from now on becomes visible as a whole, by an ioctl, or not at
/// all (`F2FS_IOC_START_ATOMIC_WRITE`; closing the file ends it). For tests with such a file.
///
/// # Errors
///
/// The kernel's errno.
pub fn start_atomic_write(file: impl AsFd) -> io::Result<()> {
    ioctl::call(file, &mut StartAtomicWrite)?;
    Ok(())
}

/// The argument of `F2FS_IOC_RESIZE_FS`: the new size of the file system in blocks of 4 KiB.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, Default)]
struct Resize(u64);

// SAFETY: F2FS_IOC_RESIZE_FS is _IOW(0xf5, 16, __u64): the kernel reads 8 bytes.
unsafe impl ioctl::IoctlArgument for Resize {
    const REQUEST: u32 = ioctl::request(ioctl::WRITE, 0xF5, 16, size_of::<Resize>());
}

/// Shrink the file system to this many blocks of 4 KiB, a multiple of its sections. Data past the new
/// end is moved first.
///
/// # Errors
///
/// The kernel's errno: `EPERM` without `CAP_SYS_ADMIN`, `EINVAL` for an impossible number, `ENOSPC` if
/// the data would not fit, `EAGAIN` while garbage is being collected or if something could not be
/// moved.
pub fn resize(on: impl AsFd, blocks: u64) -> io::Result<()> {
    ioctl::call(on, &mut Resize(blocks))?;
    Ok(())
}

/// The argument of `F2FS_IOC_WRITE_CHECKPOINT`, which has none.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct WriteCheckpoint;

// SAFETY: F2FS_IOC_WRITE_CHECKPOINT is _IO(0xf5, 7): the kernel does not look at the argument.
unsafe impl ioctl::IoctlArgument for WriteCheckpoint {
    const REQUEST: u32 = ioctl::request(0, 0xF5, 7, 0);
}

/// Write a checkpoint now, without writing dirty pages of files first. If there is nothing to write,
/// as another checkpoint has done it, this waits for that one and does not flush.
///
/// # Errors
///
/// The kernel's errno: `EPERM` without `CAP_SYS_ADMIN`, `EROFS`, `EINVAL` with `checkpoint=disable`.
pub fn write_checkpoint(on: impl AsFd) -> io::Result<()> {
    ioctl::call(on, &mut WriteCheckpoint)?;
    Ok(())
}
