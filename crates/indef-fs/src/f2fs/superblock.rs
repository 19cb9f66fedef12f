//! The part of F2FS's superblock that says which devices a file system is on, and how large its
//! sections are (include/linux/f2fs_fs.h, `struct f2fs_super_block`, v6.1).
//!
//! Block addresses of F2FS, and so those that FIEMAP reports, count through all its devices: those
//! of the first one, the blocks before segment 0 and its segments, then the segments of the second,
//! and so on (fs/f2fs/super.c, `f2fs_scan_devices`, v6.1). A list without names means one device.

use std::{
    ffi::OsStr, fs::File, io, os::unix::ffi::OsStrExt, os::unix::fs::FileExt, path::PathBuf,
};

use units::Bytes;

const MAGIC: u32 = 0xF2F5_2010;
/// The superblock's place in each of the first two blocks of the device (`F2FS_SUPER_OFFSET`).
const PLACES: [u64; 2] = [1024, 4096 + 1024];
/// `sizeof(struct f2fs_super_block)`.
const LEN: usize = 3072;
/// `devs`: `DEVICES` entries, each a path and a number of segments.
const DEVICES_AT: usize = 2201;
const DEVICES: usize = 8;
const PATH_LEN: usize = 64;
const DEVICE_LEN: usize = PATH_LEN + 4;
const BLOCK: u64 = 4096;

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
        let mut bytes = [0; LEN];
        for place in PLACES {
            device.read_exact_at(&mut bytes, place)?;
            if let Some(found) = Self::parse(&bytes) {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    fn parse(bytes: &[u8; LEN]) -> Option<Self> {
        let number = |at: usize| {
            let field = bytes.get(at..at + 4)?;
            Some(u64::from(u32::from_le_bytes(field.try_into().ok()?)))
        };
        let (log_block, log_blocks_per_segment) = (number(16)?, number(20)?);
        if number(0)? != u64::from(MAGIC) || log_block != u64::from(BLOCK.ilog2()) {
            return None;
        }
        let segment = BLOCK.checked_shl(u32::try_from(log_blocks_per_segment).ok()?)?;
        if segment < BLOCK || log_blocks_per_segment > 32 {
            return None;
        }
        let section = segment.checked_mul(number(24)?)?;
        let mut start = 0u64;
        let mut members = Vec::new();
        for n in 0..DEVICES {
            let at = DEVICES_AT + n * DEVICE_LEN;
            let name = bytes[at..at + PATH_LEN].split(|byte| *byte == 0).next()?;
            if name.is_empty() {
                break;
            }
            members.push(Member {
                path: (n > 0).then(|| PathBuf::from(OsStr::from_bytes(name))),
                start: Bytes(start),
            });
            let before = if n == 0 { number(72)? * BLOCK } else { 0 };
            let segments = number(at + PATH_LEN)?.checked_mul(segment)?;
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
            members,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn put(bytes: &mut [u8], at: usize, value: u32) {
        bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }

    /// As `mkfs.f2fs -m -c` makes it with a conventional disk of 64 MiB: zones of 32 MiB.
    fn zoned() -> [u8; LEN] {
        let mut bytes = [0; LEN];
        put(&mut bytes, 0, MAGIC);
        put(&mut bytes, 16, 12);
        put(&mut bytes, 20, 9);
        put(&mut bytes, 24, 16);
        put(&mut bytes, 72, 8192);
        for (n, (path, segments)) in [("/dev/vda", 16), ("/dev/nvme0n1", 1024)]
            .iter()
            .enumerate()
        {
            let at = DEVICES_AT + n * DEVICE_LEN;
            bytes[at..at + path.len()].copy_from_slice(path.as_bytes());
            put(&mut bytes, at + PATH_LEN, *segments);
        }
        bytes
    }

    #[test]
    fn devices_follow_each_other() {
        let found = Superblock::parse(&zoned()).unwrap();
        assert_eq!(found.section, Bytes::mib(32));
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
        let mut bytes = zoned();
        bytes[DEVICES_AT..].fill(0);
        let found = Superblock::parse(&bytes).unwrap();
        assert_eq!(found.members.len(), 1);
        bytes[0] = 0;
        assert_eq!(Superblock::parse(&bytes), None);
    }

    proptest! {
        #[test]
        fn no_superblock_panics(at in prop::collection::vec((0usize..LEN - 4, any::<u32>()), 0..12)) {
            let mut bytes = zoned();
            for (place, value) in at {
                put(&mut bytes, place, value);
            }
            put(&mut bytes, 0, MAGIC);
            let _ = Superblock::parse(&bytes);
        }
    }
}
