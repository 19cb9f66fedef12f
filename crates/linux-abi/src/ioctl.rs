//! Ioctls as types: a marker binds a request number to its argument, so that neither can be used
//! with the other's.

use std::{
    io,
    os::fd::{AsFd, AsRawFd},
};

/// An ioctl whose argument is a pointer to `Self`.
///
/// # Safety
///
/// `REQUEST` must be an ioctl that takes a pointer to a structure with exactly the layout of `Self`,
/// reads and writes nothing outside of it, and leaves it valid for every bit pattern that the kernel
/// may write. A structure that points at further memory must make sure itself that this memory is
/// valid for the call.
pub unsafe trait IoctlArgument {
    /// The request number as in the header.
    const REQUEST: u32;
}

/// Direction: the kernel reads the argument (`_IOC_WRITE`, asm-generic/ioctl.h, v6.1).
pub const WRITE: u32 = 1;
/// Direction: the kernel writes the argument (`_IOC_READ`).
pub const READ: u32 = 2;

/// A request number (`_IOC`, asm-generic/ioctl.h, v6.1; the layout of x86, Arm, RISC-V, s390).
#[must_use]
pub const fn request(direction: u32, kind: u8, number: u8, size: usize) -> u32 {
    assert!(size < 1 << 14);
    direction << 30 | (size as u32) << 16 | (kind as u32) << 8 | number as u32
}

/// An ioctl whose argument is a number.
///
/// # Safety
///
/// `REQUEST` must be an ioctl that takes a number, not a pointer.
pub unsafe trait IoctlNumber {
    /// The request number as in the header.
    const REQUEST: u32;
}

/// Issue an ioctl with this number.
///
/// # Errors
///
/// The kernel's errno, as an [`io::Error`].
pub fn call_number<A: IoctlNumber>(fd: impl AsFd, number: libc::c_int) -> io::Result<()> {
    let raw = fd.as_fd().as_raw_fd();
    // SAFETY: the trait's contract: the kernel takes the number for no pointer.
    match unsafe { libc::ioctl(raw, A::REQUEST as libc::Ioctl, number) } {
        0.. => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Issue the ioctl and return its non-negative result.
///
/// # Errors
///
/// The kernel's errno, as an [`io::Error`]. After `EINTR` the call is repeated.
pub fn call<A: IoctlArgument>(fd: impl AsFd, argument: &mut A) -> io::Result<u32> {
    let raw = fd.as_fd().as_raw_fd();
    loop {
        // SAFETY: the trait's contract ties the request number to the layout of `A`; the reference
        // is valid and exclusive for the call, and the descriptor is borrowed for its duration.
        let result =
            unsafe { libc::ioctl(raw, A::REQUEST as libc::Ioctl, std::ptr::from_mut(argument)) };
        if result >= 0 {
            return Ok(result as u32);
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}
