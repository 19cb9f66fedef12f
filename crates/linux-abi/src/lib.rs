//! Kernel structures and ioctls that a defragmenter needs, with all their unsafe code.
//!
//! Each structure is `repr(C)`, names the header and kernel version that it comes from, and asserts
//! its size and offsets at compile time; `cargo xtask abi-check` holds them against the installed
//! headers. Functions take borrowed descriptors and plain values and return `io::Result`. Other crates
//! decide which call to make, and when, and how to take a refusal.

#[macro_use]
mod wire;

pub mod abi;
pub mod barrier;
pub mod bpf;
pub mod btrfs;
pub mod cache;
pub mod everything;
pub mod ext4;
pub mod f2fs;
pub mod fiemap;
pub mod fsmap;
pub mod fsuuid;
pub mod fsxattr;
pub mod handle;
pub mod ioctl;
pub mod ioprio;
pub mod keeper;
pub mod lease;
pub mod local_time;
pub mod mapping;
pub mod nvme;
pub mod peer;
pub mod schedule;
pub mod share;
pub mod shutdown;
pub mod usage;
pub mod xfs;
pub mod xfs_handle;

/// Convert the result of a call that returns 0 on success, and else has just set `errno`.
fn check(result: impl Into<i64>) -> std::io::Result<()> {
    match result.into() {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}
