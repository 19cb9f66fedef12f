//! Fragments on ext4, whose allocator does not always let two files that grow in turn separate each
//! other: for larger pieces it has reason to keep each in a place of its own.

use std::{fs::File, io, path::Path};

use linux_abi::{ext4::move_extents, fiemap::Mapper};
use rustix::fs::{FallocateFlags, fallocate};
use units::{Bytes, FileRange};

use crate::nameless::nameless;

/// Donors tried for one piece; each stays allocated, so that the next lies elsewhere.
const TRIES: usize = 16;

/// Give every piece that touches its predecessor, or is not in one piece itself, other blocks:
/// those of a donor, swapped before anything is written, when it is a mere change of the map. The
/// donors are kept in `dummies`, or freed blocks would be used for the next one.
pub(crate) fn separate(
    file: &File,
    path: &Path,
    pieces: &[FileRange],
    dummies: &mut Vec<File>,
) -> io::Result<()> {
    let block = Bytes(rustix::fs::fstatvfs(file)?.f_bsize);
    let mut mapper = Mapper::default();
    // Where the blocks of the piece before end, in the file and on the device.
    let mut before = None;
    for piece in pieces {
        let piece = piece.align_outward(block);
        let mut place = single(&mut mapper, file, piece)?;
        let mut tries = 0;
        while place.is_none() || (before.is_some() && before == place.map(|p| (piece.start, p))) {
            tries += 1;
            if tries > TRIES {
                return Err(io::Error::other(format!(
                    "{}: no separate place of {} found for a fragment",
                    path.display(),
                    piece.len
                )));
            }
            let donor = nameless(path)?;
            fallocate(&donor, FallocateFlags::empty(), 0, piece.len.get())?;
            let blocks = piece.len.get() / block.get();
            let start = piece.start.get() / block.get();
            if single(&mut mapper, &donor, FileRange::new(0, piece.len.get()))?.is_some() {
                let swapped = move_extents(file, &donor, start, 0, blocks);
                swapped.result?;
                let moved = swapped.moved_blocks;
                if moved != blocks {
                    return Err(io::Error::other(format!(
                        "swapped {moved} of {blocks} blocks"
                    )));
                }
                place = single(&mut mapper, file, piece)?;
            }
            dummies.push(donor);
        }
        before = place.map(|p| (piece.end(), p + piece.len.get()));
    }
    Ok(())
}

/// The device offset of `range`, if it is in one piece.
fn single(mapper: &mut Mapper, file: &File, range: FileRange) -> io::Result<Option<u64>> {
    let (start, end) = (range.start.get(), range.end().get());
    let mut first = None;
    let mut next = None;
    for extent in mapper.batch(file, start, end - start, 0)? {
        if next.is_some_and(|next| next != (extent.logical, extent.physical)) {
            return Ok(None);
        }
        first = first.or_else(|| Some(extent.physical + start.checked_sub(extent.logical)?));
        next = Some((
            extent.logical + extent.length,
            extent.physical + extent.length,
        ));
    }
    let whole = next.is_some_and(|(logical, _)| logical >= end);
    Ok(first.filter(|_| whole))
}
