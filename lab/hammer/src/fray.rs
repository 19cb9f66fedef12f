//! Little free space, in many pieces: so that there is something to make whole, again and again.
//!
//! One large file, the hog, takes most of the volume, and stays where it is. What the other files leave free is filled
//! by another one, and every other piece of that is punched out again.

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::Path,
    sync::atomic::Ordering,
};

use rustix::{
    fs::{FallocateFlags, OFlags, fallocate, statvfs},
    io::Errno,
};
use scratch_fs::AlignedBuffer;

use crate::{shared::Shared, volume::VolumeKind};

/// The file that stays.
pub(crate) const HOG: &str = "hog";
/// The file whose holes are free.
pub(crate) const FRAY: &str = "fray";

/// Free beside the hog and the files of a round; half of it is left when all has been filled. Actors' files grow, and a
/// mapped write that gets no space is a SIGBUS: there is enough for them and for a region.
const BESIDE_HOG: u64 = 144 << 20;
/// Still free where all else is filled.
const LEFT: u64 = 2 << 20;
/// Bytes of a piece, and of a hole.
const PIECE: u64 = 64 << 10;

/// Make the hog.
pub(crate) fn occupy(root: &Path) -> io::Result<()> {
    const MOST: u64 = 64 << 20;
    let file = File::create(root.join(HOG))?;
    let mut at = 0;
    loop {
        let more = free(root)?.saturating_sub(BESIDE_HOG).min(MOST) / PIECE * PIECE;
        if more == 0 {
            return file.sync_all();
        }
        fallocate(&file, FallocateFlags::empty(), at, more)?;
        at += more;
    }
}

/// Let what is free lie in holes again.
pub(crate) fn fray(shared: &Shared) {
    let _nobody = shared.nobody();
    let full = shared.filling.load(Ordering::Relaxed);
    if full || shared.stopped() {
        return;
    }
    if let Err(error) = try_fray(shared) {
        shared.failed("fray", &error);
    }
}

fn try_fray(shared: &Shared) -> io::Result<()> {
    let (root, path) = (&shared.root, shared.path(FRAY));
    match OpenOptions::new().write(true).open(&path) {
        // Blocks past the end, and those of a file that is removed, come free a while after.
        Ok(old) => old.set_len(0)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let mut anew = OpenOptions::new();
    anew.create(true).truncate(true).write(true);
    anew.custom_flags(OFlags::DIRECT.bits().cast_signed());
    let file = anew.open(&path)?;
    let (mut end, mut len) = (0, 64 << 20);
    while len >= PIECE {
        let more = free(root)?.saturating_sub(LEFT).min(len) / PIECE * PIECE;
        match fallocate(&file, FallocateFlags::empty(), end, more.max(PIECE)) {
            Ok(()) if more == 0 => break,
            Ok(()) => end += more,
            Err(Errno::NOSPC) => len /= 4,
            Err(errno) => return Err(errno.into()),
        }
    }
    let mut bytes = AlignedBuffer::new(PIECE as usize);
    bytes.slice().fill(0xA5);
    for at in (0..end).step_by(PIECE as usize) {
        if (at / PIECE).is_multiple_of(2) {
            let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            fallocate(&file, punch, at, PIECE)?;
        } else if shared.volume.kind != VolumeKind::Ext4 {
            // On ext4 blocks that were never written move, too.
            file.write_all_at(bytes.slice(), at)?;
        }
    }
    Ok(())
}

fn free(root: &Path) -> Result<u64, Errno> {
    let space = statvfs(root)?;
    Ok(space.f_bavail * space.f_frsize)
}
