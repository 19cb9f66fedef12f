//! F2FS: two engines, and their common parts.
//!
//! [`defragment`] works with every kernel: the host rewrites ranges. [`offload`] needs a patched
//! kernel, and has the device copy. Both move a file part by part, each of which is chosen by
//! [`parts`]. [`sections`] are what the kernel empties as a whole, which makes free space whole.

mod batch;
mod collected;
mod defragment;
mod offload;
mod parts;
mod room;
mod sections;
mod superblock;
mod volume;

use std::{io, os::fd::AsFd};

use indef_core::SkipReason;
use linux_abi::f2fs::write_checkpoint;
use rustix::{
    io::Errno,
    thread::{CapabilitySet, capabilities},
};
use units::Bytes;

pub use collected::blocks_collected;

pub(crate) use self::{
    defragment::F2fsDefragment,
    offload::F2fsOffload,
    sections::{Sections, space_map},
    superblock::Superblock,
};
use crate::{Attributes, Finding, NoCheckpoint, Refusal, Target, error::finding};

/// F2FS's block on the machines that the patched kernels are for. It is as large as a page.
const BLOCK: Bytes = Bytes::kib(4);

/// Whether a file can be moved, as far as that can be seen before it is tried.
fn admit(target: &Target) -> Result<(), Refusal> {
    if target.size.is_zero() {
        return Err(SkipReason::Empty.into());
    }
    if target.attributes.contains(Attributes::VERITY) {
        return Err(SkipReason::Verity.into());
    }
    if is_privileged() {
        Ok(())
    } else {
        Err(SkipReason::NotPermitted.into())
    }
}

/// Write a checkpoint, with which moved data is durable. Who mounts the file system with `checkpoint=disable` meanwhile has the
/// last one written first (`f2fs_disable_checkpoint`, fs/f2fs/super.c, v6.12), and a sync succeeds from then on although it
/// writes none (`f2fs_write_checkpoint`, fs/f2fs/checkpoint.c): only this call tells.
fn checkpoint(on: impl AsFd) -> io::Result<()> {
    write_checkpoint(on).map_err(|error| match Errno::from_io_error(&error) {
        Some(Errno::INVAL) => Finding::CheckpointsOff.into(),
        Some(Errno::ROFS) => Finding::ReadOnlyNow.into(),
        _ => error,
    })
}

/// The source of the error of a file that has moved since the last checkpoint.
fn without_checkpoint(error: io::Error) -> io::Error {
    match finding(&error) {
        Some(_) => error,
        None => NoCheckpoint { source: error }.into(),
    }
}

/// Whether no checkpoint is written on this file system any more.
fn has_none(error: &io::Error) -> bool {
    finding(error) == Some(Finding::CheckpointsOff)
}

/// Whether we have `CAP_SYS_ADMIN`. Where the capabilities cannot be read, `true`: the kernel's
/// answer to the ioctl will tell.
fn is_privileged() -> bool {
    capabilities(None).map_or(true, |sets| {
        sets.effective.contains(CapabilitySet::SYS_ADMIN)
    })
}
