//! Little free space, in many pieces: so that there is something to make whole, again and again.
//!
//! One large file, the hog, takes most of the volume, and stays where it is. What the other files leave free is filled
//! by another one, and every other piece of that is punched out again.
//!
//! On F2FS there is no hog: its kernel would move it, too. The other file is written as a whole before it is punched, as blocks get
//! their place when they are written. One of eight pieces stays, so no section is free: F2FS keeps more for itself than are free
//! then, and with half of each section used it would cost more than two bytes to win one.
//!
//! On Btrfs the hog stays since its extents find no place elsewhere. Each piece is an extent there, as a hole in one frees
//! nothing, and they lie in a subvolume, as a snapshot would keep what is given up.

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::Ordering,
};

use rustix::{
    fs::{FallocateFlags, OFlags, fallocate, statvfs, syncfs},
    io::Errno,
};
use scratch_fs::AlignedBuffer;

use crate::{program::run, shared::Shared, volume::VolumeKind};

/// The file that stays.
pub(crate) const HOG: &str = "hog";
/// The file whose holes are free; on Btrfs the subvolume that it is in.
pub(crate) const FRAY: &str = "fray";

/// Free beside the hog and the files of a round; half of it is left when all has been filled. Actors' files grow, and a
/// mapped write that gets no space is a SIGBUS: there is enough for them and for a region.
const BESIDE_HOG: u64 = 144 << 20;
/// The same on Btrfs, where snapshots and extents that are reached in part hold more, and what is free in a chunk that is
/// being emptied cannot be had.
const BESIDE_HOG_ON_BTRFS: u64 = 256 << 20;
/// A mapped write there needs as much, of which a part may lie in such a chunk.
const FOR_MAPPED: u64 = 96 << 20;
/// Still free where all else is filled.
const LEFT: u64 = 2 << 20;
/// Bytes of a piece, and of a hole.
const PIECE: u64 = 64 << 10;

/// Make the hog.
pub(crate) fn occupy(shared: &Shared) -> io::Result<()> {
    const MOST: u64 = 64 << 20;
    let root = &shared.root;
    let is_btrfs = shared.volume.kind == VolumeKind::Btrfs;
    if shared.volume.kind == VolumeKind::F2fs {
        return Ok(());
    }
    let beside = if is_btrfs {
        let mut create = Command::new("btrfs");
        create.args(["--quiet", "subvolume", "create"]);
        run(create.arg(shared.path(FRAY))).map_err(io::Error::other)?;
        BESIDE_HOG_ON_BTRFS
    } else {
        BESIDE_HOG
    };
    let file = File::create(root.join(HOG))?;
    let mut at = 0;
    loop {
        if is_btrfs {
            // It tells what is allocated a while after.
            syncfs(&file)?;
        }
        let more = free(root)?.saturating_sub(beside).min(MOST) / PIECE * PIECE;
        if more == 0 {
            return file.sync_all();
        }
        fallocate(&file, FallocateFlags::empty(), at, more)?;
        at += more;
    }
}

/// Whether a mapped write gets the space that it may need.
pub(crate) fn has_room_for_mapped(shared: &Shared) -> bool {
    let needs_some = shared.volume.compacts && shared.volume.kind == VolumeKind::Btrfs;
    !needs_some || free(&shared.root).is_ok_and(|free| free >= FOR_MAPPED)
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
    let (root, path) = (&shared.root, place(shared));
    match OpenOptions::new().write(true).open(&path) {
        // Blocks past the end, and those of a file that is removed, come free a while after.
        Ok(old) => {
            old.set_len(0)?;
            // There with the next commit, or checkpoint.
            if shared.volume.empties_parts() {
                syncfs(&old)?;
            }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let mut anew = OpenOptions::new();
    anew.create(true).truncate(true).write(true);
    anew.custom_flags(OFlags::DIRECT.bits().cast_signed());
    let file = anew.open(&path)?;
    let kind = shared.volume.kind;
    let (at_first, most) = match kind == VolumeKind::Btrfs {
        true => (Some(free(root)?), PIECE),
        false => (None, 64 << 20),
    };
    let (mut end, mut len) = (0, most);
    while len >= PIECE {
        let left = match at_first {
            Some(free) => free.saturating_sub(end),
            None => free(root)?,
        };
        let more = left.saturating_sub(LEFT).min(len) / PIECE * PIECE;
        match fallocate(&file, FallocateFlags::empty(), end, more.max(PIECE)) {
            Ok(()) if more == 0 => break,
            Ok(()) => end += more,
            Err(Errno::NOSPC) => len /= 4,
            Err(errno) => return Err(errno.into()),
        }
    }
    let mut bytes = AlignedBuffer::new(PIECE as usize);
    bytes.slice().fill(0xA5);
    let pieces = || (0..end).step_by(PIECE as usize);
    if kind == VolumeKind::F2fs {
        for at in pieces() {
            file.write_all_at(bytes.slice(), at)?;
        }
    }
    let is_hole = |piece: u64| match kind {
        VolumeKind::F2fs => !piece.is_multiple_of(8),
        _ => piece.is_multiple_of(2),
    };
    for at in pieces() {
        if is_hole(at / PIECE) {
            let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            fallocate(&file, punch, at, PIECE)?;
        } else if kind == VolumeKind::Xfs {
            // There blocks that were never written move, too.
            file.write_all_at(bytes.slice(), at)?;
        }
    }
    if shared.volume.empties_parts() {
        syncfs(&file)?;
    }
    Ok(())
}

fn place(shared: &Shared) -> PathBuf {
    let place = shared.path(FRAY);
    match shared.volume.kind == VolumeKind::Btrfs {
        true => place.join("pieces"),
        false => place,
    }
}

fn free(root: &Path) -> Result<u64, Errno> {
    let space = statvfs(root)?;
    Ok(space.f_bavail * space.f_frsize)
}
