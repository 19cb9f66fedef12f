//! File systems on loop files, and files in a wanted state.
//!
//! For demos, tests and benchmarks. [`ScratchFs`] is undone in `Drop`, in the right order (unmount,
//! detach, delete), also when a test panics. It needs root and the file system's mkfs; what is
//! missing is said in the error, and [`require`] turns that into a skip that is reported.
//!
//! [`fragment`] and [`Shape`] make files that have exactly the wanted fragments (checked by FIEMAP:
//! a state that did not come out is an error, never a silently easier test), holes and unwritten
//! ranges, with [`content`] that can be told again from seed and offset.
//!
//! They ignore what no test needs: real-time XFS, several devices (but F2FS's zones), other block sizes than 4 KiB
//! where a piece is smaller than a block.

#![forbid(unsafe_code)]

mod aligned;
mod check;
mod content;
mod ext4;
mod fragment;
mod mount;
mod shape;
mod skip;

pub use aligned::AlignedBuffer;
pub use check::fsck_f2fs_found;
pub use content::{content, verify};
pub use fragment::{FragmentOptions, fragment};
pub use mount::{DeviceBytes, ScratchError, ScratchFs, ScratchFsBuilder};
pub use shape::{Segment, Shape, fragments, reflink};
pub use skip::{require, require_program, skip};
