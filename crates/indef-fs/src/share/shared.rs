//! Whether a file shares anything.

use indef_core::layout::ExtentFlags;
use linux_abi::fiemap::Mapper;
use units::{FileOffset, FileRange};

use crate::{Refusal, Target, map::next_batch};

/// Whether anybody else has any extent of the file.
pub(crate) fn has_shared(target: &Target) -> Result<bool, Refusal> {
    if let Some(is_shared) = target.is_shared {
        return Ok(is_shared);
    }
    let end = FileOffset(target.size.get()).align_up(target.block_size);
    let mut rest = FileRange::between(FileOffset(0), end);
    let (mut mapper, mut batch) = (Mapper::default(), Vec::new());
    loop {
        let (file, path) = (&target.file, &target.path);
        let more = next_batch(file, path, rest, false, &mut mapper, &mut batch)?;
        if batch
            .iter()
            .any(|extent| extent.flags.contains(ExtentFlags::SHARED))
        {
            return Ok(true);
        }
        match more {
            Some(next) => rest = FileRange::between(next, end),
            None => return Ok(false),
        }
    }
}
