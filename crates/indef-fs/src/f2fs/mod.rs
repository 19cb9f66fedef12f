//! F2FS: two engines, and what they have in common.
//!
//! [`defragment`] is what every kernel has: the host rewrites ranges. [`offload`] needs a patched
//! kernel, and has the device copy. Both move a file part by part, each of which is chosen by
//! [`parts`].

mod batch;
mod defragment;
mod offload;
mod parts;
mod superblock;

use indef_core::{SkipReason, layout::Extent};
use linux_abi::fiemap::Mapper;
use rustix::thread::{CapabilitySet, capabilities};
use units::{Bytes, FileRange};

pub(crate) use self::{defragment::F2fsDefragment, offload::F2fsOffload, superblock::Superblock};
use crate::{Attributes, Refusal, Target, map::for_each_batch, survey::is_written};

/// F2FS knows no other block size, and its ioctls no other alignment (`F2FS_BLKSIZE`).
const BLOCK: Bytes = Bytes::kib(4);

/// What can be seen of a file before it is tried.
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

/// Where the capabilities cannot be read, the kernel's answer to the ioctl will tell.
fn is_privileged() -> bool {
    capabilities(None).map_or(true, |sets| {
        sets.effective.contains(CapabilitySet::SYS_ADMIN)
    })
}

/// What is written in the ranges.
fn cost(target: &Target, ranges: &[FileRange]) -> Bytes {
    let mut mapper = Mapper::default();
    let mut cost = Bytes::ZERO;
    for range in ranges {
        let mut count = |batch: &[Extent]| {
            let written = batch.iter().filter(|extent| is_written(extent));
            cost += written.map(|extent| extent.len).sum();
        };
        let (file, path) = (&target.file, &target.path);
        if for_each_batch(file, path, *range, false, &mut mapper, &mut count).is_err() {
            cost += range.len;
        }
    }
    cost
}
