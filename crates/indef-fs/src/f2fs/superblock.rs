//! The part of F2FS's superblock that says which devices a file system is on, and how large its
//! sections are (include/linux/f2fs_fs.h, `struct f2fs_super_block`, v6.1).
//!
//! Block addresses of F2FS, and so those that FIEMAP reports, count through all its devices: those
//! of the first one, the blocks before segment 0 and its segments, then the segments of the second,
//! and so on (fs/f2fs/super.c, `f2fs_scan_devices`, v6.1). A list without names means one device.

use std::{
    ffi::OsStr, fs::File, io, os::unix::ffi::OsStrExt, os::unix::fs::FileExt, path::PathBuf,
};

use linux_abi::f2fs::disk;
use units::Bytes;

/// The sizes of blocks, by their logarithms: F2FS mounts only with blocks as large as the kernel's pages.
const BLOCKS: std::ops::RangeInclusive<u32> = 12..=16;

/// A device of a file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    /// The path given to mkfs; `None` for the device that is mounted.
    pub(crate) path: Option<PathBuf>,
    /// Where its addresses begin.
    pub(crate) start: Bytes,
}

/// The facts of a superblock that matter here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Superblock {
    /// The unit that F2FS allocates and frees as a whole; on a zoned device it is a zone.
    pub(crate) section: Bytes,
    /// Segments, the unit of its logs, of which a section is made.
    pub(crate) segments_per_section: u32,
    /// The unit of its addresses.
    pub(crate) block: Bytes,
    /// The block at which its segments of data and nodes begin.
    pub(crate) main: u64,
    /// In the order of their addresses; the first is the one that is mounted.
    pub(crate) members: Vec<Member>,
}

impl Superblock {
    /// The superblock of the file system on an open device; `None` where there is none.
    ///
    /// # Errors
    ///
    /// The device cannot be read.
    pub(crate) fn read(device: &File) -> io::Result<Option<Self>> {
        let mut bytes = [0; size_of::<disk::SuperBlock>()];
        for place in disk::SuperBlock::OFFSETS {
            device.read_exact_at(&mut bytes, place)?;
            let found = disk::SuperBlock::first_of(&bytes).and_then(Self::understand);
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    fn understand(found: &disk::SuperBlock) -> Option<Self> {
        let log_block = found.log_blocksize.get();
        if found.magic != disk::SuperBlock::MAGIC || !BLOCKS.contains(&log_block) {
            return None;
        }
        let block = 1u64 << log_block;
        let log_blocks_per_segment = found.log_blocks_per_seg.get();
        let segment = block.checked_shl(log_blocks_per_segment)?;
        if segment < block || log_blocks_per_segment > 32 {
            return None;
        }
        let section = segment.checked_mul(found.segs_per_sec.get().into())?;
        let mut start = 0u64;
        let mut members = Vec::new();
        for (n, device) in found.devs.iter().enumerate() {
            let name = device.path.split(|byte| *byte == 0).next()?;
            if name.is_empty() {
                break;
            }
            members.push(Member {
                path: (n > 0).then(|| PathBuf::from(OsStr::from_bytes(name))),
                start: Bytes(start),
            });
            let before = match n {
                0 => u64::from(found.segment0_blkaddr) * block,
                _ => 0,
            };
            let segments = u64::from(device.total_segments).checked_mul(segment)?;
            start = start.checked_add(before)?.checked_add(segments)?;
        }
        if members.is_empty() {
            members.push(Member {
                path: None,
                start: Bytes::ZERO,
            });
        }
        Some(Self {
            section: Bytes(section),
            segments_per_section: found.segs_per_sec.get(),
            block: Bytes(block),
            main: found.main_blkaddr.get().into(),
            members,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use zerocopy::{FromZeros, IntoBytes};

    use super::*;

    /// As `mkfs.f2fs -m -c` makes it with a conventional disk of 64 MiB: zones of 32 MiB.
    fn zoned() -> disk::SuperBlock {
        let mut block = disk::SuperBlock::new_zeroed();
        block.magic = disk::SuperBlock::MAGIC.into();
        block.log_blocksize = 12.into();
        block.log_blocks_per_seg = 9.into();
        block.segs_per_sec = 16.into();
        block.segment0_blkaddr = 8192.into();
        for (device, (path, segments)) in block
            .devs
            .iter_mut()
            .zip([("/dev/vda", 16), ("/dev/nvme0n1", 1024)])
        {
            device.path[..path.len()].copy_from_slice(path.as_bytes());
            device.total_segments = segments.into();
        }
        block
    }

    #[test]
    fn devices_follow_each_other() {
        let found = Superblock::understand(&zoned()).unwrap();
        assert_eq!(found.section, Bytes::mib(32));
        assert_eq!(found.segments_per_section, 16);
        let member = |path: Option<&str>, start| Member {
            path: path.map(PathBuf::from),
            start,
        };
        assert_eq!(
            found.members,
            [
                member(None, Bytes::ZERO),
                member(Some("/dev/nvme0n1"), Bytes::mib(64))
            ]
        );
    }

    #[test]
    fn one_device_needs_no_list() {
        let mut block = zoned();
        block.devs.zero();
        let found = Superblock::understand(&block).unwrap();
        assert_eq!(found.members.len(), 1);
        block.log_blocksize = 14.into();
        let of_pages = Superblock::understand(&block).unwrap();
        assert_eq!(of_pages.section, found.section * 4);
        assert_eq!(of_pages.segments_per_section, found.segments_per_section);
        block.magic = 0.into();
        assert_eq!(Superblock::understand(&block), None);
    }

    proptest! {
        #[test]
        fn no_superblock_panics(at in prop::collection::vec((0usize..3068, any::<u32>()), 0..12)) {
            let mut block = zoned();
            for (place, value) in at {
                block.as_mut_bytes()[place..place + 4].copy_from_slice(&value.to_le_bytes());
            }
            block.magic = disk::SuperBlock::MAGIC.into();
            let _ = Superblock::understand(&block);
        }
    }
}
