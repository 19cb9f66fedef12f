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

use indef_core::SkipReason;
use rustix::thread::{CapabilitySet, capabilities};
use units::Bytes;

pub use collected::blocks_collected;

pub(crate) use self::{
    defragment::F2fsDefragment,
    offload::F2fsOffload,
    sections::{Sections, space_map},
    superblock::Superblock,
};
use crate::{Attributes, Refusal, Target};

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

/// Whether we have `CAP_SYS_ADMIN`. Where the capabilities cannot be read, `true`: the kernel's
/// answer to the ioctl will tell.
fn is_privileged() -> bool {
    capabilities(None).map_or(true, |sets| {
        sets.effective.contains(CapabilitySet::SYS_ADMIN)
    })
}
