//! File systems on loop files, and files fragmented on purpose.
//!
//! For demos, tests and benchmarks. Everything is undone in `Drop`, in the right order (unmount,
//! detach, delete), also when a test panics. Needs root and the file system's mkfs; what is missing
//! is said in the error, so that a test can report itself as skipped.

#![forbid(unsafe_code)]

mod fragment;
mod mount;

pub use fragment::{FragmentOptions, fragment};
pub use mount::{ScratchError, ScratchFs, ScratchFsBuilder};
