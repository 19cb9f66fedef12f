//! Guests with Debian's kernels, for tests that the running kernel does not allow.
//!
//! A [`Guest`] is a machine in QEMU that boots one of Debian's kernels ([`Release`]) in a few
//! seconds, runs one command, and ends: nothing is installed on the host, no image is kept, and two
//! guests know nothing of each other. Its whole file system is an archive in memory, made for the
//! run from
//!
//! - Debian's busybox and the kernel's modules (those of [`modules::KEPT`] and what they need),
//! - the command and the requested files, each at the same path as on the host, with the shared
//!   libraries that it needs.
//!
//! Kernels come from the archive of Debian that this machine's apt uses, checked with its keys, and
//! stay in a cache folder (see [`Cache`]).
//!
//! A guest can have a zoned SSD ([`Zns`]): one that this process serves (flashd), or QEMU's own.
//!
//! A guest that stays, for many commands, is in [`standing`]; one that several processes use, one
//! after the other, in [`shared`].
//!
//! Invariants: a QEMU ends with the [`Guest`] that started it, also when the process is killed; a
//! command's exit status and output are the guest's own, never a guess: a guest that dies, hangs or
//! panics is an error.
//!
//! It ignores: other machines than x86-64, networks (except the one to a served SSD), firmware, and
//! everything that wants an init system.

#![forbid(unsafe_code)]

mod archive;
mod built;
mod cache;
mod debian;
mod debug;
mod die_hints;
mod error;
mod ext4;
mod f2fs;
mod faults;
mod guest;
mod image;
mod job;
mod kernel;
mod machine;
pub mod modules;
mod outcome;
mod parsers;
mod patched;
mod programs;
mod recipe;
mod scratch;
pub mod shared;
mod skip;
pub mod standing;
mod upstream;
mod zns;

pub use cache::Cache;
pub use error::LabError;
pub use faults::KERNEL_FAULTS;
pub use guest::Guest;
pub use kernel::{Kernel, Release};
pub use machine::Accelerator;
pub use outcome::{Outcome, Output};
pub use patched::Patched;
pub use skip::require;
pub use upstream::upstream_source;
pub use zns::{Zns, ZnsDevice, ZnsOptions, ZnsSetup};
