//! What moved and is perhaps not on the device yet, and its way back.
//!
//! The old blocks belong to the donor then, and have what they had. A move back gives them to the file again and has its pages
//! written to them; so these must have the contents of the file, and neither what the device happened to have at the new
//! place nor what the old blocks have: others may have written to the file meanwhile.

use linux_abi::{cache::write_and_wait, ext4::move_extents, fiemap::Mapper};
use rustix::io::Errno;
use units::{Bytes, FileOffset, FileRange};

use super::{donor::Donor, pins::Pins, shared::Shared};
use crate::{
    Target,
    cache::{cached_pages, page},
};

/// Calls in a row that find a page busy before it is left where it is.
pub(super) const MAX_BUSY: u32 = 8;

/// How sure it is that the page cache has what moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InMemory {
    /// Its pages were pinned before.
    Pinned,
    /// As long as the kernel does not need the memory.
    Perhaps,
    /// There was no data.
    Nothing,
}

#[derive(Debug)]
struct Part {
    range: FileRange,
    /// The place in the donor where its old blocks are now.
    donor: FileOffset,
    in_memory: InMemory,
    /// As many bytes of it count as moved.
    moved: Bytes,
}

/// Parts of a file, in the order in which they moved, and their pages.
#[derive(Debug, Default)]
pub(super) struct Unsure {
    parts: Vec<Part>,
    pub(super) pins: Pins,
}

/// The outcome of a way back.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TakenBack {
    /// Bytes that had counted as moved, and are not in their new blocks any more.
    pub(super) back: Bytes,
    /// Bytes of which it is not sure that the old blocks have them.
    pub(super) doubtful: Bytes,
}

impl Unsure {
    pub(super) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Note a part of which so much has moved.
    pub(super) fn note(
        &mut self,
        range: FileRange,
        donor: FileOffset,
        in_memory: InMemory,
        moved: Bytes,
    ) {
        self.parts.push(Part {
            range,
            donor,
            in_memory,
            moved,
        });
    }

    /// The lowest place.
    pub(super) fn start(&self) -> Option<FileOffset> {
        self.parts.iter().map(|part| part.range.start).min()
    }

    /// All of it is on the device.
    pub(super) fn forget(&mut self) {
        self.parts.clear();
        self.pins.clear();
    }

    /// What lies in `range` is on the device.
    pub(super) fn forget_in(&mut self, range: FileRange) {
        self.parts.retain(|part| !range.contains(part.range));
        self.pins.release(range);
    }

    /// All of it is on the device, as far as anybody was told: it may be reclaimed, and whether another worker was told
    /// otherwise comes out later.
    pub(super) fn unpin(&mut self) {
        self.pins.clear();
        for part in &mut self.parts {
            if part.in_memory == InMemory::Pinned {
                part.in_memory = InMemory::Perhaps;
            }
        }
    }

    /// Move everything back to where it was. `is_alone` says that nobody else can have written to the file until then.
    pub(super) fn take_back(
        &mut self,
        shared: &Shared,
        target: &Target,
        donor: &Donor,
        is_alone: &dyn Fn() -> bool,
    ) -> TakenBack {
        let (mut taken, mut mapper) = (TakenBack::default(), Mapper::default());
        for part in std::mem::take(&mut self.parts).into_iter().rev() {
            let range = part.range;
            // A page that was reclaimed is read from the new place, as is one that was pinned and that somebody took out of
            // the file.
            let is_cached = is_cached(target, range) == Some(true);
            let left = move_back(shared, target, donor, &part, &mut mapper);
            taken.back += part.moved.saturating_sub(left);
            // Of data that nobody changed, the old blocks have the same bytes, and an error changes nothing about that.
            let written = write_and_wait(&target.file, range.start.get(), range.len.get());
            // A lease may have been broken while the device did not answer.
            let is_alone = is_alone();
            let is_kept = match part.in_memory {
                InMemory::Pinned => is_alone || is_cached,
                InMemory::Perhaps => is_cached,
                InMemory::Nothing => true,
            };
            let doubtful = match part.in_memory {
                InMemory::Nothing => Bytes::ZERO,
                _ if is_kept && (is_alone || written.is_ok()) => left,
                _ => range.len,
            };
            // Behind the end there is nothing left to lose.
            taken.doubtful += doubtful.min(Bytes(size(target).saturating_sub(range.start.get())));
        }
        self.pins.clear();
        taken
    }
}

/// Whether all pages of a range are cached, up to the end of the file; `None` where the kernel does not say.
fn is_cached(target: &Target, range: FileRange) -> Option<bool> {
    let file = FileRange::new(0, size(target));
    let range = range.intersect(file).align_outward(page());
    let cached = cached_pages(&target.file, range)?;
    Some(cached == range.len.div_ceil(page()))
}

/// The bytes of a file; 0 where that cannot be told.
pub(super) fn size(target: &Target) -> u64 {
    target.file.metadata().map_or(0, |status| status.len())
}

/// Move what lies in the donor's blocks back to its old ones. A call swaps what it is asked for, so it is asked for nothing
/// else. Returns the bytes that are there still.
fn move_back(
    shared: &Shared,
    target: &Target,
    donor: &Donor,
    part: &Part,
    mapper: &mut Mapper,
) -> Bytes {
    let block = target.block_size.get();
    for _ in 0..=MAX_BUSY {
        let Ok(given) = donor.given(target, part.range, part.donor, mapper) else {
            break;
        };
        if given.is_empty() {
            return Bytes::ZERO;
        }
        let failed = given.iter().find_map(|range| {
            let place = part.donor + donor.base + (range.start - part.range.start);
            let outcome = move_extents(
                &target.file,
                &donor.file,
                range.start.get() / block,
                place.get() / block,
                range.len.get() / block,
            );
            outcome.result.err()
        });
        match failed.as_ref().map(Errno::from_io_error) {
            // Its pages are free for another move once the journal is committed.
            Some(Some(Errno::BUSY)) => {
                let _ = shared.commit(target);
            }
            // All of it; or something of it was cut off meanwhile.
            None | Some(Some(Errno::NODATA | Errno::INVAL)) => {}
            Some(_) => break,
        }
    }
    let left = donor.given(target, part.range, part.donor, mapper);
    left.map_or(part.range.len, |left| {
        left.iter().map(|range| range.len).sum()
    })
}
