//! The position of the mover in a file.

use std::{fs::File, io};

use linux_abi::fiemap::Mapper;

use crate::stamp::BLOCK;

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
