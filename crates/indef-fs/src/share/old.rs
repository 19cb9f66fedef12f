//! The old blocks of a unit: kept until all files have moved for good, and given back where one of them could not follow.

use std::{fs::File, time::Instant};

use indef_core::{SkipReason, layout::Layout};
use linux_abi::{fiemap::Mapper, share::clone_range};
use rustix::{
    fs::{Mode, fchmod, fsync},
    io::Errno,
};
use units::{Bytes, FileRange};

use super::{
    lying::places,
    place::{HolderFinder, Place},
    select::{Segment, placed},
    take::{Taker, reason, still_there, take},
};
use crate::{Moved, map};

/// Where old blocks have to be kept: let that file share those of a unit. Why the unit stays, if these are not the
/// blocks of its `layout`.
pub(super) fn keep_old(
    place: Place<'_>,
    unit: FileRange,
    layout: &Layout,
    mapper: &mut Mapper,
    moved: &mut Moved,
) -> Option<SkipReason> {
    let (target, old) = (place.target, place.old?);
    let inside = unit.intersect(FileRange::new(0, target.size.get()));
    let begun = Instant::now();
    let cloned = clone_range(&target.file, old, inside.start.get(), inside.len.get());
    moved.note_lock(begun.elapsed().into(), unit.len);
    match cloned {
        Ok(()) => {}
        // It ends before by now.
        Err(error) if Errno::from_io_error(&error) == Some(Errno::INVAL) => {
            return Some(SkipReason::Changed);
        }
        Err(error) => return Some(reason(&error)),
    }
    let same = map(old, &target.path, unit, false, mapper)
        .is_ok_and(|kept| places(&kept, unit) == places(layout, unit));
    (!same).then_some(SkipReason::Changed)
}

/// Let a file have the old blocks again, where it has those of the copy, which lies as in `copied`. Returns the bytes of
/// which it keeps these.
pub(super) fn go_back<F: HolderFinder>(
    place: Place<'_>,
    file: &Taker<'_>,
    segments: &[Segment],
    copied: &Layout,
    mapper: &mut Mapper,
    moved: &mut Moved,
) -> Bytes {
    let everything = FileRange::new(0, u64::MAX);
    let layout = placed(file.layout, segments, copied, everything);
    let file = Taker {
        layout: &layout,
        ..*file
    };
    // Whoever keeps them has them surely; the target may have been written.
    let from = place.old.unwrap_or(&place.target.file);
    match take::<F>(from, place, &file, segments, mapper, moved) {
        Ok(()) => Bytes::ZERO,
        Err(_) => {
            let parts = segments
                .iter()
                .flat_map(|one| still_there(place.target, &file, one, mapper));
            parts.map(|part| part.len).sum()
        }
    }
}

/// Wait until everything that changed in the file system's metadata before is durable. The file changes itself for
/// that: its own last change is waited for, and with it all that were before.
pub(super) fn flush(file: &File) -> rustix::io::Result<()> {
    fchmod(file, Mode::RUSR)?;
    fsync(file)
}
