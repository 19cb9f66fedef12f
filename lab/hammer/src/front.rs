//! The position of the mover in a file.

use std::{fs::File, io};

use linux_abi::fiemap::{ExtentFlags, Mapper, RawExtent};

use crate::stamp::BLOCK;

/// The place of a block on the file system's disks, in bytes, if it has one.
pub(crate) fn place_of(file: &File, block: u32) -> io::Result<Option<u64>> {
    let start = u64::from(block) * BLOCK as u64;
    let mut mapper = Mapper::default();
    let extents = mapper.batch(file, start, BLOCK as u64, 0)?;
    let written = |extent: &&RawExtent| {
        let flags = ExtentFlags::from_bits_retain(extent.flags);
        !flags.intersects(ExtentFlags::UNWRITTEN | ExtentFlags::DELALLOC | ExtentFlags::UNKNOWN)
    };
    let extent = extents.first().filter(written);
    Ok(extent.map(|extent| extent.physical + (start - extent.logical)))
}

/// The first block whose place on the device does not follow its predecessor's: the mover goes
/// through a file from its beginning, so it works about here next. 0 if the file is in one piece.
pub(crate) fn front(file: &File) -> io::Result<u32> {
    let mut mapper = Mapper::default();
    let mut end: Option<(u64, u64)> = None;
    for extent in mapper.batch(file, 0, u64::MAX, 0)? {
        if end.is_some_and(|end| end != (extent.logical, extent.physical)) {
            return Ok((extent.logical / BLOCK as u64) as u32);
        }
        end = Some((
            extent.logical + extent.length,
            extent.physical + extent.length,
        ));
    }
    Ok(0)
}
