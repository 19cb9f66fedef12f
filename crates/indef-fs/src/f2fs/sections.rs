//! Sections: what is valid in each, and how one is emptied.
//!
//! F2FS writes to free sections, and frees one by moving what is valid in it to its logs (garbage collection). Which one
//! its collector takes when is its own choice, by what is valid and how old that is; `F2FS_IOC_GARBAGE_COLLECT_RANGE` names
//! one. It moves nodes as well as data, block by block in the order of their places, and writes a checkpoint: until then
//! the old blocks stay. What moves takes space in other free sections, wherever these are, so what can be won is the rest
//! of a section, and sections side by side cannot be kept free. What is valid in each segment is told in `/proc/fs/f2fs/DEVICE/segment_info`
//! (fs/f2fs/sysfs.c, `segment_info_seq_show`, v6.12).

use std::{
    fs::{self, File},
    io,
    path::PathBuf,
};

use indef_core::SkipReason;
use linux_abi::f2fs::collect_section;
use rustix::io::Errno;
use units::{Bytes, PhysRange};

use super::Superblock;
use crate::{
    Filesystem, SpaceMap,
    device::{f2fs_folder, f2fs_superblock},
    emptier::{Emptier, Emptying, NoEmptier, NotEmptied, Part, PartKind, PartMap},
};

/// The sections of a file system.
pub(crate) struct Sections {
    root: File,
    told: Told,
}

impl Sections {
    /// Of a file system that tells of its segments.
    pub(crate) fn of(fs: &Filesystem) -> io::Result<Result<Self, NoEmptier>> {
        let mount = fs.mount.as_ref().ok_or(Errno::OPNOTSUPP)?;
        let root = mount.open(fs.dev)?;
        Ok(match Told::of(fs) {
            Some(told) if told.segments()?.is_some() => Ok(Self { root, told }),
            _ => Err(NoEmptier::Untold),
        })
    }
}

impl Emptier for Sections {
    fn kind(&self) -> PartKind {
        PartKind::Section
    }

    fn look(&self) -> io::Result<PartMap> {
        let segments = self.told.segments()?.ok_or(Errno::OPNOTSUPP)?;
        Ok(map(&self.told.superblock, &segments))
    }

    fn pieces(&self, _: &Part) -> io::Result<Vec<Bytes>> {
        Ok(Vec::new())
    }

    fn empty(&self, part: &Part, _: &dyn Fn() -> bool) -> Emptying {
        let collected = collect_section(&self.root, part.address);
        let Err(error) = collected else {
            return Emptying::whole(part);
        };
        Emptying::nothing(match Errno::from_io_error(&error) {
            // Somebody else was faster.
            Some(Errno::NODATA) => return Emptying::whole(part),
            // It has an open log, or a file that is pinned.
            Some(Errno::AGAIN | Errno::BUSY) => NotEmptied::Stays(SkipReason::Changed),
            Some(Errno::NOSPC) => NotEmptied::Stays(SkipReason::NoPlace),
            _ => NotEmptied::Failed(error),
        })
    }
}

/// The free sections of a file system; `None` where it does not tell.
pub(crate) fn space_map(fs: &Filesystem) -> io::Result<Option<SpaceMap>> {
    let Some(told) = Told::of(fs) else {
        return Ok(None);
    };
    let segments = told.segments()?;
    Ok(segments.map(|segments| map(&told.superblock, &segments).space))
}

/// What a file system tells of its segments.
struct Told {
    superblock: Superblock,
    file: PathBuf,
}

impl Told {
    fn of(fs: &Filesystem) -> Option<Self> {
        let folder = f2fs_folder(fs)?;
        let name = folder.file_name()?;
        Some(Self {
            superblock: f2fs_superblock(fs)?,
            file: PathBuf::from("/proc/fs/f2fs")
                .join(name)
                .join("segment_info"),
        })
    }

    /// The valid blocks of each segment; `None` where it does not tell.
    fn segments(&self) -> io::Result<Option<Vec<u64>>> {
        match fs::read_to_string(&self.file) {
            Ok(text) => Ok(parse(&text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Lines of ten segments: the number of the first, and the type and the valid blocks of each (`0  3|0  3|17 …`), after
/// two lines of heading.
fn parse(text: &str) -> Option<Vec<u64>> {
    let mut segments = Vec::new();
    for line in text.lines().skip(2) {
        let mut words = line.split_whitespace();
        let first: usize = words.next()?.parse().ok()?;
        if first != segments.len() {
            return None;
        }
        for word in words {
            segments.push(word.split_once('|')?.1.parse().ok()?);
        }
    }
    (!segments.is_empty()).then_some(segments)
}

/// The sections. As they need not lie side by side, those that are free come first, as one run, and then the others, with
/// what can be won of each, the cheapest first.
fn map(superblock: &Superblock, segments: &[u64]) -> PartMap {
    let mut map = PartMap::default();
    let (section, block) = (superblock.section, superblock.block);
    let of_section = superblock.segments_per_section.max(1) as usize;
    map.space.is_one_run = true;
    map.space.metadata = Bytes(superblock.main.saturating_mul(block.get()));
    let mut start = map.space.metadata.get();
    // The last ones are no whole section, and not used.
    for segments in segments.chunks_exact(of_section) {
        let place = PhysRange::new(start, section.get());
        let used = Bytes(segments.iter().sum::<u64>().saturating_mul(block.get()));
        if used.is_zero() {
            match map.space.free.last_mut() {
                Some(last) if last.end() == place.start => last.len += section,
                _ => map.space.free.push(place),
            }
        } else if used < section {
            map.parts.push(Part {
                address: start / block.get().max(1),
                place: PhysRange::new(0, (section - used).get()),
                used,
            });
        }
        map.space.used += used;
        start = place.end().get();
    }
    map.vacant = vec![PhysRange::new(0, map.space.total().get())];
    map.parts.sort_by_key(|part| part.used);
    map.parts = map.parts_without(|_| false);
    map
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "format: segment_type|valid_blocks\n\
        segment_type(0:HD, 1:WD, 2:CD, 3:HN, 4:WN, 5:CN)\n\
        0         3|0   4|512 1|7   0|0   0|0   0|0   0|0   0|1   0|0   0|0  \n\
        10        0|0   0|2  \n";

    #[test]
    fn segments_are_read() {
        let segments = parse(TEXT).unwrap();
        assert_eq!(segments, [0, 512, 7, 0, 0, 0, 0, 1, 0, 0, 0, 2]);
        for broken in [
            "",
            "a\nb\n",
            "a\nb\n10 0|0\n",
            "a\nb\n0 0|x\n",
            "a\nb\n0 0\n",
        ] {
            assert_eq!(parse(broken), None, "{broken:?}");
        }
    }

    #[test]
    fn sections_are_free_as_a_whole() {
        let superblock = |segments_per_section: u32| Superblock {
            section: Bytes::mib(2 * u64::from(segments_per_section)),
            segments_per_section,
            block: Bytes::kib(4),
            main: 1024,
            members: Vec::new(),
        };
        let segments = parse(TEXT).unwrap();
        let mib = |start: u64, len: u64| PhysRange::new(start << 20, len << 20);
        let found = map(&superblock(1), &segments);
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
        let found = map(&superblock(2), &segments[..11]);
        assert_eq!(found.space.free, [mib(12, 4), mib(20, 4)]);
        assert_eq!(found.space.used, Bytes::kib(4 * 520));
    }
}
