//! The closed sets: file systems, and engines.

use std::{fmt, str::FromStr};

use units::Bytes;

/// A file system, as far as an engine cares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FsKind {
    /// ext4 (an ext2 or ext3 file system has no extents to move: it is [`Self::Other`]).
    Ext4,
    /// XFS.
    Xfs,
    /// Btrfs.
    Btrfs,
    /// F2FS.
    F2fs,
    /// None of these; `statfs` calls it by this number.
    Other(i64),
}

/// `f_type` of ext2, ext3 and ext4 alike (linux/magic.h, v6.1; the other numbers, too).
const EXT_MAGIC: i64 = 0xEF53;
const XFS_MAGIC: i64 = 0x5846_5342;
const BTRFS_MAGIC: i64 = 0x9123_683E;
const F2FS_MAGIC: i64 = 0xF2F5_2010;

/// The least that `btrfs-defrag-range` writes back together, if there is as much.
pub(crate) const BTRFS_BATCH: Bytes = Bytes::mib(16);

impl FsKind {
    /// From `statfs`'s `f_type` and, where the mount table could be read, the type's name in it.
    #[must_use]
    pub fn from_magic(magic: i64, name: Option<&str>) -> Self {
        // The field is a signed long: 32-bit kernels sign-extend the larger numbers.
        match magic & 0xFFFF_FFFF {
            EXT_MAGIC if name.is_none_or(|name| name == "ext4") => Self::Ext4,
            XFS_MAGIC => Self::Xfs,
            BTRFS_MAGIC => Self::Btrfs,
            F2FS_MAGIC => Self::F2fs,
            other => Self::Other(other),
        }
    }
}

impl fmt::Display for FsKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
            Self::Btrfs => "btrfs",
            Self::F2fs => "f2fs",
            Self::Other(EXT_MAGIC) => "ext2/ext3",
            Self::Other(0x0102_1994) => "tmpfs",
            Self::Other(0x794C_7630) => "overlayfs",
            Self::Other(0x6969) => "nfs",
            Self::Other(0x6573_5546) => "fuse",
            Self::Other(0x4D44) => "vfat",
            Self::Other(0x2011_BAB0) => "exfat",
            Self::Other(0x2FC1_2FC1) => "zfs",
            Self::Other(0xCA45_1A4E) => "bcachefs",
            Self::Other(0x7366_746E) => "ntfs",
            Self::Other(magic) => return f.pad(&format!("type 0x{magic:x}")),
        };
        f.pad(name)
    }
}

/// How ranges get new blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EngineKind {
    /// ext4: the kernel copies page by page into a donor's blocks.
    Ext4MoveExtent,
    /// XFS: we copy, the kernel exchanges ranges if the file has not changed meanwhile.
    XfsCommitRange,
    /// XFS: the device copies, the kernel exchanges ranges as with [`Self::XfsCommitRange`].
    XfsOffload,
    /// XFS: we copy, the kernel compares and lets the file have the blocks of the copy.
    XfsDedupeRange,
    /// XFS: we copy, the kernel exchanges whole files.
    XfsSwapExtents,
    /// XFS: we copy, the kernel compares and lets all files that share a range have the blocks of the copy. Without
    /// reverse mapping these are looked for among those that were named.
    XfsShareRange,
    /// Btrfs: we copy, the kernel compares and lets all files that share a range have the blocks of the copy.
    BtrfsShareRange,
    /// Btrfs: the kernel rewrites ranges.
    BtrfsDefragRange,
    /// F2FS on a zoned device, with a patched kernel: the device copies.
    F2fsOffload,
    /// F2FS: the kernel rewrites ranges.
    F2fsDefragment,
}

impl EngineKind {
    /// Every engine there is.
    pub const ALL: [Self; 10] = [
        Self::Ext4MoveExtent,
        Self::XfsCommitRange,
        Self::XfsOffload,
        Self::XfsDedupeRange,
        Self::XfsSwapExtents,
        Self::XfsShareRange,
        Self::BtrfsShareRange,
        Self::BtrfsDefragRange,
        Self::F2fsOffload,
        Self::F2fsDefragment,
    ];

    /// The name in options, plans and results.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ext4MoveExtent => "ext4-move-extent",
            Self::XfsCommitRange => "xfs-commit-range",
            Self::XfsOffload => "xfs-offload",
            Self::XfsDedupeRange => "xfs-dedupe-range",
            Self::XfsSwapExtents => "xfs-swap-extents",
            Self::XfsShareRange => "xfs-share-range",
            Self::BtrfsShareRange => "btrfs-share-range",
            Self::BtrfsDefragRange => "btrfs-defrag-range",
            Self::F2fsOffload => "f2fs-offload",
            Self::F2fsDefragment => "f2fs-defragment",
        }
    }

    /// The engine that serves instead where this one was asked for and the device lacks something
    /// that it needs.
    #[must_use]
    pub const fn instead(self) -> Option<Self> {
        match self {
            Self::XfsOffload => Some(Self::XfsCommitRange),
            Self::Ext4MoveExtent
            | Self::XfsCommitRange
            | Self::XfsDedupeRange
            | Self::XfsSwapExtents
            | Self::XfsShareRange
            | Self::BtrfsShareRange
            | Self::BtrfsDefragRange
            | Self::F2fsOffload
            | Self::F2fsDefragment => None,
        }
    }

    /// Whether it moves ranges that are shared with reflinks and snapshots, together with these.
    #[must_use]
    pub const fn keeps_sharing(self) -> bool {
        matches!(self, Self::XfsShareRange | Self::BtrfsShareRange)
    }

    /// Whether it can move ranges out of a region of the device
    /// ([`EngineOptions::vacate`](crate::EngineOptions::vacate)).
    #[must_use]
    pub const fn can_vacate(self) -> bool {
        matches!(
            self,
            Self::Ext4MoveExtent | Self::XfsCommitRange | Self::XfsDedupeRange
        )
    }

    /// Whether it places moved data in the device's rows as it lies in those of the file, where the
    /// rows are known and there is room.
    #[must_use]
    pub const fn keeps_rows(self) -> bool {
        match self {
            Self::Ext4MoveExtent
            | Self::XfsCommitRange
            | Self::XfsDedupeRange
            | Self::XfsSwapExtents => true,
            // The kernel chooses the place of all of these, or the device's zone does.
            Self::XfsOffload
            | Self::XfsShareRange
            | Self::BtrfsShareRange
            | Self::BtrfsDefragRange
            | Self::F2fsOffload
            | Self::F2fsDefragment => false,
        }
    }

    /// The bytes that it writes in one go, if there are as many, however short a step is to be, and why; `None` where that is
    /// 1 MiB or less. A rate then holds on average only: after each go there is a pause.
    #[must_use]
    pub const fn in_one_go(self) -> Option<(Bytes, &'static str)> {
        match self {
            Self::BtrfsDefragRange => Some((
                BTRFS_BATCH,
                "only what is written back together gets one place on Btrfs",
            )),
            Self::Ext4MoveExtent
            | Self::XfsCommitRange
            | Self::XfsOffload
            | Self::XfsDedupeRange
            | Self::XfsSwapExtents
            | Self::XfsShareRange
            | Self::BtrfsShareRange
            | Self::F2fsOffload
            | Self::F2fsDefragment => None,
        }
    }

    /// How many bytes are written at most for each one that is moved: plans reckon with it.
    #[must_use]
    pub const fn writes_per_byte(self) -> u64 {
        match self {
            // Zeros by the host, and the data that the device copies over them.
            Self::XfsOffload => 2,
            Self::Ext4MoveExtent
            | Self::XfsCommitRange
            | Self::XfsDedupeRange
            | Self::XfsSwapExtents
            | Self::XfsShareRange
            | Self::BtrfsShareRange
            | Self::BtrfsDefragRange
            | Self::F2fsOffload
            | Self::F2fsDefragment => 1,
        }
    }
}

impl fmt::Display for EngineKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// No engine of this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{name}' is not an engine; the engines are {}", EngineKind::ALL.map(EngineKind::name).join(", "))]
pub struct UnknownEngine {
    name: String,
}

impl FromStr for EngineKind {
    type Err = UnknownEngine;

    fn from_str(name: &str) -> Result<Self, UnknownEngine> {
        Self::ALL
            .into_iter()
            .find(|kind| kind.name() == name)
            .ok_or_else(|| UnknownEngine {
                name: name.to_owned(),
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engine_names_come_back() {
        for kind in EngineKind::ALL {
            assert_eq!(kind.to_string().parse(), Ok(kind));
        }
        let error = "ext5".parse::<EngineKind>().unwrap_err().to_string();
        assert!(
            error.contains("'ext5'") && error.contains("f2fs-defragment"),
            "{error}"
        );
    }

    #[test]
    fn ext2_and_ext3_are_not_ext4() {
        assert_eq!(FsKind::from_magic(0xEF53, Some("ext4")), FsKind::Ext4);
        assert_eq!(FsKind::from_magic(0xEF53, None), FsKind::Ext4);
        assert_eq!(
            FsKind::from_magic(0xEF53, Some("ext3")).to_string(),
            "ext2/ext3"
        );
    }

    #[test]
    fn a_sign_extended_magic_is_recognised() {
        assert_eq!(
            FsKind::from_magic(i64::from(0x9123_683E_u32 as i32), None),
            FsKind::Btrfs
        );
        assert_eq!(FsKind::from_magic(42, None).to_string(), "type 0x2a");
    }
}
