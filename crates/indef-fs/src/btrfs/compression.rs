//! Keeping data compressed as it is, and uncompressed data uncompressed.
//!
//! Whether rewritten data is compressed depends on the settings of *now*: the mount options
//! `compress` and `compress-force`, the property `btrfs.compression`, the inode's flags, and the
//! ioctl's own flags, which come first (`inode_need_compress` in fs/btrfs/inode.c, v6.18). So:
//!
//! - Compressed data is rewritten with the flag that compresses and with its own algorithm, which
//!   root can read in the tree. Without root it is the one that the property or the mount option
//!   names; where neither names one, compressed data stays where it is. The level is not stored
//!   with the data: it is the mount option's where that names the same algorithm (6.15), else the
//!   default.
//! - Plain data on an inode that would be compressed is rewritten with the flag against it (6.17).
//!   On older kernels it stays where it is.
//! - Compressed extents that are as long as they can be (128 KiB of data) stay, since each gets a
//!   place of its own, near the last or not.
//! - Both flags hold while the ioctl runs, so writeback has to begin before it returns. They are
//!   the inode's: data that an application writes to the same file in these milliseconds is treated
//!   the same way.

use indef_core::SkipReason;
use linux_abi::btrfs::{Compression, DefragFlags, MAX_UNCOMPRESSED, compressions};
use rustix::fs::{fgetxattr, ioctl_getflags};
use units::{Bytes, FileRange};

use crate::{Filesystem, Target};

/// Compressed data gets a place for each extent of this length, which may lie anywhere: a piece is
/// only certain to end with fewer fragments than it had if it has more than that.
pub(super) const MAX_COMPRESSED: Bytes = Bytes(MAX_UNCOMPRESSED);

/// How a piece is rewritten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CompressionWay {
    /// Without flags: before 6.17.
    Plain,
    /// Every extent of the range, with the flag against compression, which changes nothing else.
    Every,
    /// As before, where the flag matters.
    Uncompressed,
    /// With this algorithm and, if known, level.
    Compressed(Compression, Option<i8>),
}

impl CompressionWay {
    /// The way of a call that more of the same follow, all of small extents: the kernel leaves none of these out, and where
    /// the flag against compression changes nothing it is not worth its price, as a call with it writes back (6.18).
    pub(super) const fn with_more_to_come(self) -> Self {
        match self {
            Self::Every => Self::Plain,
            way => way,
        }
    }

    /// The ioctl's flags.
    pub(super) fn flags(self) -> DefragFlags {
        match self {
            Self::Plain => DefragFlags::empty(),
            Self::Every => DefragFlags::NOCOMPRESS,
            Self::Uncompressed => DefragFlags::NOCOMPRESS | DefragFlags::START_IO,
            Self::Compressed(_, None) => DefragFlags::COMPRESS | DefragFlags::START_IO,
            Self::Compressed(_, Some(_)) => {
                DefragFlags::COMPRESS | DefragFlags::COMPRESS_LEVEL | DefragFlags::START_IO
            }
        }
    }

    /// The ioctl's algorithm and level.
    pub(super) fn compression(self) -> Option<(Compression, i8)> {
        match self {
            Self::Compressed(kind, level) => Some((kind, level.unwrap_or(0))),
            Self::Plain | Self::Every | Self::Uncompressed => None,
        }
    }
}

/// `FS_NOCOMP_FL` (linux/fs.h, v6.1), which rustix does not name.
const FS_NOCOMP_FL: u32 = 0x400;
/// The rules for the compression of a file's data when it is rewritten.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    /// New data may be compressed.
    compresses: bool,
    /// By which algorithm and level, if the mount options name one.
    mount: Option<(Compression, Option<i8>)>,
    /// By which algorithm, if the file's property names one.
    property: Option<Compression>,
    /// The ioctl knows `COMPRESS_LEVEL`.
    has_level: bool,
    /// The ioctl knows `NOCOMPRESS`.
    has_nocompress: bool,
    /// The algorithm of compressed extents can be read.
    may_search: bool,
}

impl Rules {
    pub(super) fn of(fs: &Filesystem, target: &Target) -> Self {
        let flags = ioctl_getflags(&target.file).map_or(0, |flags| flags.bits());
        let has = |flag: u32| flags & flag != 0;
        let options = fs.mount.as_ref().map(|mount| mount.options.as_slice());
        let mount = options.unwrap_or_default().iter().find_map(|option| {
            let (name, value) = option.split_once('=')?;
            matches!(name, "compress" | "compress-force").then(|| (name, parse(value)))
        });
        let mut value = [0; 16];
        let property = fgetxattr(&target.file, "btrfs.compression", &mut value[..])
            .ok()
            .and_then(|len| std::str::from_utf8(&value[..len]).ok())
            .and_then(|name| parse(name).map(|(kind, _)| kind));
        let forced = mount.is_some_and(|(name, _)| name == "compress-force");
        let asked = mount.is_some()
            || options.is_none()
            || property.is_some()
            || has(rustix::fs::IFlags::COMPRESSED.bits());
        Self {
            // Data without checksums, as all NOCOW data is, is never compressed.
            compresses: !has(rustix::fs::IFlags::NOCOW.bits())
                && (forced || (asked && !has(FS_NOCOMP_FL))),
            mount: mount.and_then(|(_, kind)| kind),
            property,
            has_level: fs.kernel_at_least(6, 15),
            has_nocompress: fs.kernel_at_least(6, 17),
            may_search: true,
        }
    }

    /// How to rewrite a range of compressed or plain data.
    pub(super) fn way(
        &mut self,
        target: &Target,
        range: FileRange,
        encoded: bool,
    ) -> Result<CompressionWay, SkipReason> {
        match (encoded, self.compresses, self.has_nocompress) {
            (true, _, _) => self.compressed(target, range),
            (false, true, true) => Ok(CompressionWay::Uncompressed),
            (false, true, false) => Err(SkipReason::Compressed),
            (false, false, true) => Ok(CompressionWay::Every),
            (false, false, false) => Ok(CompressionWay::Plain),
        }
    }

    fn compressed(
        &mut self,
        target: &Target,
        range: FileRange,
    ) -> Result<CompressionWay, SkipReason> {
        let kind = match self.stored(target, range) {
            Some(kinds) => match kinds.as_slice() {
                [Some(kind)] => Some(*kind),
                // Several in one range, or one that is not known.
                _ => None,
            },
            None => self.property.or(self.mount.map(|(kind, _)| kind)),
        };
        let kind = kind.ok_or(SkipReason::Compressed)?;
        let level = self.mount.filter(|(of, _)| *of == kind && self.has_level);
        Ok(CompressionWay::Compressed(
            kind,
            level.and_then(|(_, level)| level),
        ))
    }

    /// The algorithms that the tree has for the range; `None` without the privilege to look.
    fn stored(&mut self, target: &Target, range: FileRange) -> Option<Vec<Option<Compression>>> {
        if !self.may_search {
            return None;
        }
        let (start, end) = (range.start.get(), range.end().get());
        let found = compressions(&target.file, target.id.inode, start, end);
        self.may_search = found.is_ok();
        found.ok()
    }
}

/// `zstd:3`: as in the mount option and, without a level, in the property.
fn parse(value: &str) -> Option<(Compression, Option<i8>)> {
    let (name, level) = value.split_once(':').unwrap_or((value, ""));
    let kind = match name {
        "zlib" => Compression::Zlib,
        "lzo" => Compression::Lzo,
        "zstd" => Compression::Zstd,
        _ => return None,
    };
    Some((kind, level.parse().ok()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_levels() {
        assert_eq!(parse("zstd:3"), Some((Compression::Zstd, Some(3))));
        assert_eq!(parse("zstd:-5"), Some((Compression::Zstd, Some(-5))));
        assert_eq!(parse("lzo"), Some((Compression::Lzo, None)));
        assert_eq!(parse("none"), None);
    }

    #[test]
    fn a_flag_that_ends_with_the_ioctl_comes_with_writeback() {
        let level = CompressionWay::Compressed(Compression::Zstd, Some(3));
        let default = CompressionWay::Compressed(Compression::Zlib, None);
        for way in [CompressionWay::Uncompressed, level, default] {
            assert!(way.flags().contains(DefragFlags::START_IO), "{way:?}");
        }
        assert_eq!(level.compression(), Some((Compression::Zstd, 3)));
        // Also where more is to come.
        for way in [CompressionWay::Uncompressed, level, default] {
            assert_eq!(way.with_more_to_come(), way);
        }
        let more = CompressionWay::Every.with_more_to_come();
        assert_eq!(more, CompressionWay::Plain);
        assert!(!default.flags().contains(DefragFlags::COMPRESS_LEVEL));
    }
}
