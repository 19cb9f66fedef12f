//! A file takes blocks of another one that have the same bytes, by a comparison of the kernel.

use std::{fs::File, io, time::Instant};

use indef_core::{SkipReason, layout::Layout};
use linux_abi::{
    fiemap::Mapper,
    share::{Compared, dedupe_range},
};
use rustix::io::Errno;
use units::Bytes;

use super::{
    place::{HolderFinder, Place},
    select::Segment,
};
use crate::{CacheRecord, Moved, Refusal, Target, TargetId, cache::read_ahead, map};

/// How often a file is compared again that was written meanwhile.
const TRIES: u32 = 4;

/// A holder that is being read ahead; its page cache is restored in the end.
pub(super) struct Reading {
    pub(super) file: File,
    pub(super) id: TargetId,
    cached: Vec<CacheRecord>,
}

impl Reading {
    pub(super) fn new(file: File, id: TargetId, segments: &[Segment]) -> Self {
        let records = (segments.iter()).map(|one| CacheRecord::of_file(&file, true, one.range()));
        let cached = records.collect();
        for segment in segments {
            read_ahead(&file, segment.range());
        }
        Self { file, id, cached }
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        for cached in &self.cached {
            cached.restore(&self.file);
        }
    }
}

/// A file that takes blocks of the copy, or its old ones again.
#[derive(Clone, Copy)]
pub(super) struct Taker<'a> {
    pub(super) file: &'a File,
    pub(super) size: Bytes,
    /// As it lies before.
    pub(super) layout: &'a Layout,
}

/// Let a file have blocks of another one, in which the data is where it is in the copy, as far as it still has the old
/// ones. Parts that it has written meanwhile have blocks of their own by then, and keep them.
pub(super) fn take<F: HolderFinder>(
    giver: &File,
    place: Place<'_>,
    file: &Taker<'_>,
    segments: &[Segment],
    mapper: &mut Mapper,
    moved: &mut Moved,
) -> Result<(), SkipReason> {
    let mut left = segments.to_vec();
    for _ in 0..TRIES {
        let mut again = Vec::new();
        for segment in left {
            let len = segment.compared(file.size);
            let (from, to) = (segment.copy.get(), segment.file.get());
            let apart = F::apart();
            let begun = Instant::now();
            let compared = dedupe_range(giver, from, file.file, to, len.get());
            moved.note_lock(begun.elapsed().into(), len);
            drop(apart);
            match compared {
                Ok(Compared::Shared) => {}
                Ok(Compared::Different) => again.push(segment),
                // It ends before by now.
                Err(error) if Errno::from_io_error(&error) == Some(Errno::INVAL) => {
                    again.push(segment);
                }
                Err(error) => return Err(reason(&error)),
            }
        }
        if again.is_empty() {
            return Ok(());
        }
        left = again
            .iter()
            .flat_map(|segment| still_there(place.target, file, segment, mapper))
            .collect();
        if left.is_empty() {
            return Ok(());
        }
    }
    Err(SkipReason::Changed)
}

/// The parts of a segment that have the blocks of before.
pub(super) fn still_there(
    target: &Target,
    file: &Taker<'_>,
    segment: &Segment,
    mapper: &mut Mapper,
) -> Vec<Segment> {
    let Ok(now) = map(file.file, &target.path, segment.range(), true, mapper) else {
        return vec![*segment];
    };
    let mut parts = Vec::new();
    for old in file.layout.clipped(segment.range()) {
        for new in now.clipped(old.range()) {
            if old.phys + (new.file - old.file) == new.phys {
                parts.extend(segment.clip_in_file(new.range()));
            }
        }
    }
    parts
}

/// Why a file does not take blocks.
pub(super) fn reason(error: &io::Error) -> SkipReason {
    match Errno::from_io_error(error) {
        Some(Errno::NOSPC) => SkipReason::NoSpace,
        Some(Errno::DQUOT) => SkipReason::QuotaExceeded,
        Some(Errno::ROFS) => SkipReason::ReadOnlyMount,
        // Its subvolume is being sent.
        Some(Errno::AGAIN) => SkipReason::InUse,
        _ => SkipReason::HoldersUnreachable,
    }
}

/// The refusal that an errno means.
pub(crate) fn refuse(target: &Target, operation: &'static str, error: io::Error) -> Refusal {
    match Errno::from_io_error(&error) {
        Some(Errno::NOSPC) => SkipReason::NoSpace.into(),
        Some(Errno::DQUOT) => SkipReason::QuotaExceeded.into(),
        Some(Errno::ROFS) => SkipReason::ReadOnlyMount.into(),
        // It was cut where it is read, and grown again before a look at its size.
        None if error.kind() == io::ErrorKind::UnexpectedEof && !target.is_as_opened() => {
            SkipReason::Changed.into()
        }
        _ => target.error(operation, None, error).into(),
    }
}
