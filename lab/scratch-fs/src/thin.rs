//! A thin volume whose pool is full: nothing can be written where nothing was written before.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::FileExt,
    path::PathBuf,
};

use loop_fs::{ScratchError, ScratchFs};
use rustix::fs::{FallocateFlags, fallocate};
use units::Bytes;

const BLOCK: usize = 4096;
/// The blocks of a balloon begin with it.
const MARK: [u8; 16] = *b"free, and mapped";

/// Take all free space of a file system out of its image, which lies in the folder of a `pool`, and leave so much `room`
/// there. Returns a file to be deleted for more room. Nothing may be open in the file system: it is mounted anew.
///
/// # Errors
///
/// The kernel's, or that there was hardly any free space.
pub fn fill_pool(
    fs: &mut ScratchFs,
    pool: &ScratchFs,
    room: Bytes,
) -> Result<PathBuf, ScratchError> {
    // F2FS keeps some for itself, but not the same each time.
    let rounds = if fs.kind() == "f2fs" { 3 } else { 1 };
    for _ in 0..rounds {
        let balloon = fs.path().join("balloon");
        write_until_full(&File::create(&balloon)?, &marked())?;
        fs::remove_file(&balloon)?;
        fs.sync()?;
    }
    fs.unmount()?;
    punch_marked(&File::options().read(true).write(true).open(fs.image())?)?;
    let path = pool.path().join("full");
    let filler = File::create(&path)?;
    write_until_full(&filler, &vec![1; 1 << 20])?;
    let len = filler.metadata()?.len();
    filler.set_len(len.saturating_sub(room.get()))?;
    filler.sync_all()?;
    fs.mount()?;
    Ok(path)
}

fn punch_marked(image: &File) -> io::Result<()> {
    let len = image.metadata()?.len();
    let mut bytes = vec![0; 1 << 20];
    let mut punched = 0;
    for start in (0..len).step_by(bytes.len()) {
        let read = image.read_at(&mut bytes, start)?;
        let blocks: Vec<bool> = { bytes[..read].chunks(BLOCK) }
            .map(|block| block.starts_with(&MARK))
            .collect();
        let mut at = start;
        for run in blocks.chunk_by(|a, b| a == b) {
            let len = (run.len() * BLOCK) as u64;
            if run[0] {
                let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                fallocate(image, punch, at, len)?;
                punched += len;
            }
            at += len;
        }
    }
    match punched >= len / 4 {
        true => image.sync_all(),
        false => Err(io::Error::other(format!(
            "of {len} bytes {punched} are free"
        ))),
    }
}

fn marked() -> Vec<u8> {
    let mut bytes = vec![0x5A; 1 << 20];
    for block in bytes.chunks_mut(BLOCK) {
        block[..MARK.len()].copy_from_slice(&MARK);
    }
    bytes
}

/// Write the same again and again, until there is no room for a block.
fn write_until_full(file: &File, bytes: &[u8]) -> io::Result<()> {
    let mut at = 0;
    for len in [bytes.len(), BLOCK] {
        loop {
            match file.write_at(&bytes[..len], at) {
                Ok(written) => at += written as u64,
                Err(error) if error.kind() == io::ErrorKind::StorageFull => break,
                Err(error) => return Err(error),
            }
        }
        // What waits for its place may need less room than is set aside for it.
        file.sync_all()?;
    }
    Ok(())
}
