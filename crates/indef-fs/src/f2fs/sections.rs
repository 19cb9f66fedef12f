//! Sections: what is valid in each, and how one is emptied.
//!
//! F2FS writes to free sections, and frees one by moving what is valid in it to its logs (garbage collection). Which one
//! its collector takes when is its own choice, by what is valid and how old that is; `F2FS_IOC_GARBAGE_COLLECT_RANGE` names
//! one. It moves nodes as well as data, block by block in the order of their places; the old blocks stay until a checkpoint.
//! What moves takes space in other free sections, wherever these are, so what can be won is the rest
//! of a section, and sections side by side cannot be kept free. What is valid in each segment is told in `/proc/fs/f2fs/DEVICE/segment_info`
//! (fs/f2fs/sysfs.c, `segment_info_seq_show`, v6.12).
//!
//! Where a section has several segments, the call begins at the one that is named, refuses it if nothing is valid in it
//! (gc.c, `f2fs_get_victim`, v6.12), and fails unless it has freed all segments of a section (`f2fs_gc`). So the
//! first segment with anything valid is named, and where the call fails, the list tells what became of the section.

use std::{fs::File, io};

use indef_core::SkipReason;
use linux_abi::f2fs::collect_section;
use rustix::io::Errno;
use units::{Bytes, PhysRange};

use super::{Superblock, checkpoint, volume::Volume};
use crate::{
    Filesystem, Finding, Space, SpaceMap,
    emptier::{Emptier, Emptying, NoEmptier, NotEmptied, Part, PartKind, PartMap},
    error::finding,
};

/// The sections of a file system.
pub(crate) struct Sections {
    root: File,
    volume: Volume,
}

impl Sections {
    /// Of a file system that tells of its segments.
    pub(crate) fn of(fs: &Filesystem) -> io::Result<Result<Self, NoEmptier>> {
        let mount = fs.mount.as_ref().ok_or(Errno::OPNOTSUPP)?;
        let sections = Self {
            root: mount.open(fs.dev)?,
            volume: Volume::of(fs),
        };
        Ok(match sections.told()? {
            Some(_) => Ok(sections),
            None => Err(NoEmptier::Untold),
        })
    }

    /// The superblock, and the valid blocks of each segment.
    fn told(&self) -> io::Result<Option<(&Superblock, Vec<u64>)>> {
        let valid = self.volume.valid_blocks()?;
        Ok(self.volume.superblock.as_ref().zip(valid))
    }

    fn map(&self) -> io::Result<PartMap> {
        let (superblock, valid) = self.told()?.ok_or(Errno::OPNOTSUPP)?;
        let most = Space::of(&self.root)?.free;
        Ok(map(&self.volume, superblock, &valid, most))
    }

    /// What is valid in a part now.
    fn now(&self, part: &Part) -> io::Result<Option<Valid>> {
        let (superblock, valid) = self.told()?.ok_or(Errno::OPNOTSUPP)?;
        Ok(Valid::of(superblock, &valid, part))
    }
}

/// What is valid in a section that is not empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Valid {
    bytes: Bytes,
    /// The block at which the first segment begins that has any of it.
    first: u64,
}

impl Valid {
    fn of(superblock: &Superblock, valid: &[u64], part: &Part) -> Option<Self> {
        let of_section = superblock.segments_per_section.max(1);
        let of_segment = superblock.section.get() / superblock.block.get() / u64::from(of_section);
        let segment = part.address.checked_sub(superblock.main)? / of_segment.max(1);
        let valid = valid.iter().skip(usize::try_from(segment).ok()?);
        let valid = valid.take(of_section as usize);
        let used = valid.clone().position(|blocks| *blocks > 0)?;
        Some(Self {
            bytes: superblock.block * valid.sum::<u64>(),
            first: part.address + used as u64 * of_segment,
        })
    }
}

impl Emptier for Sections {
    fn kind(&self) -> PartKind {
        PartKind::Section
    }

    fn look(&self) -> io::Result<PartMap> {
        self.map()
    }

    fn pieces(&self, _: &Part) -> io::Result<Vec<Bytes>> {
        Ok(Vec::new())
    }

    fn empty(&self, part: &Part, _: &dyn Fn() -> bool) -> Emptying {
        let emptying = self.collect(part);
        if emptying.written.is_zero() {
            return emptying;
        }
        // The collector's own checkpoint says nothing if there are none.
        match checkpoint(&self.root) {
            Ok(()) => emptying,
            Err(error) => Emptying {
                moved: Bytes::ZERO,
                left: Some(not_durable(error)),
                ..emptying
            },
        }
    }
}

impl Sections {
    /// Have the kernel move what is valid in a section.
    fn collect(&self, part: &Part) -> Emptying {
        let mut moved = Bytes::ZERO;
        let ends = |moved, left| Emptying {
            moved,
            written: moved,
            left,
        };
        let mut now = match self.volume.segments_per_section() {
            // As seen a moment ago: there is but one segment to name.
            1 => Ok(Some(Valid {
                bytes: part.used,
                first: part.address,
            })),
            _ => self.now(part),
        };
        loop {
            let valid = match now {
                Ok(Some(valid)) => valid,
                Ok(None) => return ends(moved, None),
                Err(error) => return ends(moved, Some(NotEmptied::Failed(error))),
            };
            let Err(error) = collect_section(&self.root, valid.first) else {
                return ends(moved + valid.bytes, None);
            };
            now = self.now(part);
            let left = match &now {
                Ok(now) => now.map_or(Bytes::ZERO, |valid| valid.bytes),
                Err(_) => valid.bytes,
            };
            if left >= valid.bytes {
                return ends(moved, Some(why_not(error)));
            }
            // Else somebody else has deleted it.
            if Errno::from_io_error(&error) != Some(Errno::NODATA) {
                moved += valid.bytes - left;
            }
        }
    }
}

/// Why it is not known to stay empty.
fn not_durable(error: io::Error) -> NotEmptied {
    match finding(&error) {
        Some(Finding::CheckpointsOff) => NotEmptied::Refused(SkipReason::CheckpointsOff),
        Some(Finding::ReadOnlyNow) => NotEmptied::Refused(SkipReason::ReadOnlyMount),
        _ => NotEmptied::Failed(error),
    }
}

fn why_not(error: io::Error) -> NotEmptied {
    match Errno::from_io_error(&error) {
        // It has an open log, or a file that is pinned.
        Some(Errno::AGAIN | Errno::BUSY | Errno::NODATA) => NotEmptied::Stays(SkipReason::Changed),
        Some(Errno::NOSPC) => NotEmptied::Stays(SkipReason::NoPlace),
        Some(Errno::ROFS) => NotEmptied::Refused(SkipReason::ReadOnlyMount),
        _ => NotEmptied::Failed(error),
    }
}

/// The free sections of a file system that files can have; `None` where it does not tell.
pub(crate) fn space_map(fs: &Filesystem) -> io::Result<Option<SpaceMap>> {
    match Sections::of(fs)? {
        Ok(sections) => Ok(Some(sections.map()?.space)),
        Err(_) => Ok(None),
    }
}

/// The sections. As they need not lie side by side, those that are free come first, as one run, and then the others, with
/// what can be won of each, the cheapest first. No more than `most` is free for files.
fn map(volume: &Volume, superblock: &Superblock, valid: &[u64], most: Bytes) -> PartMap {
    let mut map = PartMap::default();
    let (section, block) = (superblock.section, superblock.block);
    let capacity = block * volume.usable_blocks();
    let of_section = superblock.segments_per_section.max(1) as usize;
    map.space.unit = Some(capacity);
    map.space.metadata = Bytes(superblock.main.saturating_mul(block.get()));
    let mut start = map.space.metadata.get();
    // The last ones are no whole section, and not used.
    for segments in valid.chunks_exact(of_section) {
        let used = Bytes(segments.iter().sum::<u64>().saturating_mul(block.get()));
        if used.is_zero() {
            let place = PhysRange::new(start, capacity.get());
            match map.space.free.last_mut() {
                Some(last) if last.end() == place.start => last.len += capacity,
                _ => map.space.free.push(place),
            }
        } else if used < capacity {
            map.parts.push(Part {
                address: start / block.get().max(1),
                place: PhysRange::new(0, (capacity - used).get()),
                used,
            });
        }
        map.space.used += used;
        start += section.get();
    }
    let free = capacity * volume.free_sections(valid);
    map.vacant = vec![PhysRange::new(0, free.get())];
    map.kept = capacity * volume.kept_sections().unwrap_or(0);
    map.space.limit_to(free.saturating_sub(map.kept).min(most));
    map.parts.sort_by_key(|part| part.used);
    map.parts = map.parts_without(|_| false);
    map
}

#[cfg(test)]
mod tests {
    use super::{super::volume::tests::Told, *};

    const VALID: [u64; 12] = [0, 512, 7, 0, 0, 0, 0, 1, 0, 0, 0, 2];

    fn map_of(volume: &Volume, valid: &[u64], most: Bytes) -> PartMap {
        map(volume, volume.superblock.as_ref().unwrap(), valid, most)
    }

    fn mib(start: u64, len: u64) -> PhysRange {
        PhysRange::new(start << 20, len << 20)
    }

    #[test]
    fn sections_are_free_as_a_whole() {
        let told = Told::default();
        let all = Bytes::gib(1);
        let found = map_of(&told.volume(1), &VALID, all);
        assert_eq!(found.space.free, [mib(4, 2), mib(10, 8), mib(20, 6)]);
        assert_eq!(found.space.largest(), Bytes::mib(8));
        assert_eq!(found.space.longest(), Bytes::mib(16), "wherever they are");
        // One after the other: what is free, and what can be won. A full section is none.
        let kib = |blocks: u64| blocks << 12;
        assert_eq!(found.vacant, [mib(0, 16)]);
        let parts: Vec<_> = { found.parts.iter() }
            .map(|part| (part.address, part.used.get() >> 12))
            .collect();
        assert_eq!(parts, [(4608, 1), (6656, 2), (2048, 7)]);
        let won = PhysRange::new((16 << 20) + kib(511), kib(510));
        assert_eq!(found.parts[1].place, won);
        let found = map_of(&told.volume(2), &VALID[..11], all);
        assert_eq!(found.space.free, [mib(12, 4), mib(20, 4)]);
        assert_eq!(found.space.used, Bytes::kib(4 * 520));
    }

    #[test]
    fn what_f2fs_keeps_is_not_free() {
        let told = Told::default();
        let volume = told.volume(1);
        let found = |most| map_of(&volume, &VALID, Bytes::mib(most));
        told.number("free_segments", 8);
        assert_eq!(found(100).space.longest(), Bytes::mib(16));
        // A log begins in one of them.
        told.number("free_segments", 7);
        assert_eq!(found(100).space.longest(), Bytes::mib(14));
        // The reserve, those for which F2FS would rather fill holes, and four for what is dirty.
        told.number("min_ssr_sections", 1);
        told.number("reserved_segments", 0);
        let kept = found(100);
        assert_eq!(kept.space.longest(), Bytes::mib(4));
        assert_eq!(kept.space.free, [mib(10, 4)], "the longest");
        assert_eq!(
            (&kept.vacant[..], kept.kept),
            (&[mib(0, 14)][..], Bytes::mib(10))
        );
        // Users get no more than that, wherever it lies.
        assert_eq!(found(3).space.longest(), Bytes::mib(3));
        // What is kept is short.
        told.number("reserved_segments", 9);
        let short = found(100);
        assert_eq!(short.space.longest(), Bytes::ZERO);
        assert!(short.space.free.is_empty());
        assert_eq!(
            (&short.vacant[..], short.kept),
            (&[mib(0, 14)][..], Bytes::mib(28))
        );
    }

    #[test]
    fn zones_are_no_longer_than_what_can_be_written() {
        let told = Told::default();
        told.number("unusable_blocks_per_sec", 256);
        let found = map_of(&told.volume(2), &VALID, Bytes::gib(1));
        assert_eq!(found.space.free, [mib(12, 3), mib(20, 3)]);
        assert_eq!(
            found.parts[0].place.len,
            Bytes::mib(3) - found.parts[0].used
        );
    }

    #[test]
    fn the_first_segment_in_use_is_named() {
        let told = Told::default();
        let volume = told.volume(4);
        let part = |section: u64| Part {
            address: 1024 + section * 2048,
            place: PhysRange::default(),
            used: Bytes(1),
        };
        let superblock = volume.superblock.as_ref().unwrap();
        let valid = |section| Valid::of(superblock, &VALID, &part(section));
        let used = |blocks, first| {
            Some(Valid {
                bytes: Bytes::kib(4) * blocks,
                first,
            })
        };
        assert_eq!(valid(0), used(519, 1024 + 512));
        assert_eq!(valid(1), used(1, 1024 + 7 * 512));
        assert_eq!(valid(2), used(2, 1024 + 11 * 512));
        assert_eq!(valid(3), None);
    }
}
