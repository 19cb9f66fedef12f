//! A file system on a loop file, for `indef demo`, and for the tests and benchmarks of the laboratory.
//!
//! [`ScratchFs`] is undone in `Drop`, in the right order (unmount, detach, delete), also when a test
//! panics. It needs root and the file system's mkfs; the error says what is missing.
//!
//! It knows nothing of files and of fragments, and ignores what nobody needs: real-time XFS, several
//! devices (but F2FS's zones).

#![forbid(unsafe_code)]

mod aligned;
mod check;
mod command;
mod error;
mod mount;

pub use aligned::AlignedBuffer;
pub use check::fsck_f2fs_found;
pub use error::{Lack, ScratchError};
pub use mount::{DeviceBytes, ScratchFs, ScratchFsBuilder};
