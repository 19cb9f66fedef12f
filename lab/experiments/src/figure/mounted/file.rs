//! The paper's file, made as the paper made it (§5.2): in pieces, with others' data between them.
//!
//! XFS and Btrfs get direct writes of the file and of a dummy in turn. ext4's allocator looks for places near each file's
//! own and would join the pieces, so there the blocks of a dummy in one piece are swapped in, while there are no data. The
//! dummy stays, and has all that lies between.

use std::{
    fs::File,
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use lfs_sim::BLOCK;
use linux_abi::ext4::move_extents;
use rustix::fs::{FallocateFlags, fallocate};
use scratch_fs::AlignedBuffer;
use stage::Fs;
use units::Bytes;

use super::super::workload::Workload;
use crate::pieces;

/// Bytes of a write that fills what is allocated.
const FILL: Bytes = Bytes::mib(1);

/// A file, and its contents.
pub(super) struct Laid {
    pub(super) path: PathBuf,
    pub(super) file: File,
    /// Of the whole file.
    pub(super) contents: AlignedBuffer,
    /// Its extents when it was made.
    pub(super) extents: u64,
}

impl Laid {
    /// Make it in `folder`.
    pub(super) fn new(kind: Fs, folder: &Path, workload: &Workload) -> io::Result<Self> {
        let path = folder.join("file");
        let (file, dummy) = (
            pieces::create(&path)?,
            pieces::create(&folder.join("dummy"))?,
        );
        let mut contents = pieces::contents(workload.size);
        match kind {
            Fs::Ext4 => {
                swap_in(&file, &dummy, &workload.pieces)?;
                let parts = contents.slice().chunks(FILL.0 as usize);
                for (number, part) in (0..).zip(parts) {
                    let len = workload.size.0 - number * FILL.0;
                    file.write_all_at(&part[..part.len().min(len as usize)], number * FILL.0)?;
                }
            }
            Fs::Xfs | Fs::Btrfs => {
                pieces::write_in_turn(&file, &dummy, &workload.pieces, contents.slice())?;
            }
        }
        for file in [&file, &dummy] {
            file.sync_all()?;
        }
        let laid = Self {
            extents: scratch_fs::fragments(&file)?,
            path,
            file,
            contents,
        };
        laid.ensure_fragmented(workload.pieces.len() as u64)?;
        Ok(laid)
    }

    /// An easier file would be another figure. XFS may cut a piece once more, and join a few.
    fn ensure_fragmented(&self, wanted: u64) -> io::Result<()> {
        let near = wanted * 95 / 100..=wanted * 105 / 100;
        if near.contains(&self.extents) {
            return Ok(());
        }
        Err(io::Error::other(format!(
            "the file has {} extents instead of {wanted}",
            self.extents
        )))
    }

    /// Compare what the device has with the contents, and leave nothing in the page cache.
    pub(super) fn verify(&self) -> io::Result<()> {
        pieces::verify(&self.path)
    }
}

/// Allocate both, and give each piece of the file the blocks of the dummy that lie after the gap before it.
fn swap_in(file: &File, dummy: &File, pieces: &[(Bytes, Bytes)]) -> io::Result<()> {
    let blocks = |bytes: u64| bytes / BLOCK.0;
    let size: Bytes = pieces.iter().map(|it| it.1).sum();
    let all = size + pieces.iter().map(|it| it.0).sum();
    for (file, size) in [(dummy, all), (file, size)] {
        fallocate(file, FallocateFlags::empty(), 0, size.0)?;
    }
    let (mut at, mut of_dummy) = (0, 0);
    for (gap, piece) in pieces {
        of_dummy += gap.0;
        let wanted = blocks(piece.0);
        let swapped = move_extents(file, dummy, blocks(at), blocks(of_dummy), wanted);
        swapped.result?;
        if swapped.moved_blocks != wanted {
            let moved = swapped.moved_blocks;
            return Err(io::Error::other(format!(
                "swapped {moved} of {wanted} blocks"
            )));
        }
        at += piece.0;
        of_dummy += piece.0;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use scratch_fs::{ScratchFs, require};

    use super::{super::super::source::Figure, *};

    #[test]
    fn loop_the_file_lies_in_its_pieces_on_every_file_system() {
        let figure = Figure::load(source_tree::root(), "fragpicker/fig08-mounted").unwrap();
        let workload = Workload::new(&figure.parameters).unwrap();
        for kind in Fs::ALL {
            let scratch = ScratchFs::builder(kind.name(), Bytes::mib(512)).build();
            let Some(scratch) = require(scratch) else {
                return;
            };
            let laid = Laid::new(kind, scratch.path(), &workload).unwrap();
            scratch.sync().unwrap();
            laid.verify().unwrap();
            // What was read cannot be mistaken for something else.
            let at = workload.size.0 - 4096;
            let mut other = AlignedBuffer::new(4096);
            laid.file.write_all_at(other.slice(), at).unwrap();
            assert!(laid.verify().is_err(), "{}", kind.name());
        }
    }
}
