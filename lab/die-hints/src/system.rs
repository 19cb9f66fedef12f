//! The file systems of the guest, and the shell commands that make and check them.

use std::fmt;

/// The size in blocks to which ext4 may grow. Nothing grows; but room for 8 more blocks of group descriptors has
/// data begin with a granule on devices of 2, 4 and 8 GiB (with mke2fs 1.47's usual size, one block before it). The
/// flash pages of a file that begins within a granule are cut, and the contiguous file that all are
/// compared with is not on all dies alike then.
const GROWN: u64 = 9 * 64 * 32768;

/// A file system of the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileSystem {
    /// ext4 with its journal on a device of its own, as in the paper.
    Ext4JournalApart,
    /// ext4 as usual: the journal is in it.
    Ext4,
    /// F2FS.
    F2fs,
}

impl FileSystem {
    /// Shell commands that make it. Where the device is to stay full, nothing is discarded.
    pub(crate) fn make(self, full: bool) -> String {
        let [keep_ext4, keep_f2fs] = match full {
            true => [",nodiscard", "-t 0"],
            false => ["", ""],
        };
        // Nothing is initialized later on, between the writes.
        let ext4 = format!(
            "mkfs.ext4 -q -F -b 4096 -N 4096 \
               -E lazy_itable_init=0,lazy_journal_init=0,resize={GROWN}{keep_ext4}"
        );
        match self {
            Self::Ext4JournalApart => format!(
                "mkfs.ext4 -q -F -b 4096 -O journal_dev /dev/ssd2
                 {ext4} -J device=/dev/ssd2 /dev/ssd1"
            ),
            Self::Ext4 => format!("{ext4} /dev/ssd1"),
            Self::F2fs => format!("mkfs.f2fs -q -f {keep_f2fs} /dev/ssd1"),
        }
    }

    /// A shell command that fails if it is not clean.
    pub(crate) fn check(self) -> &'static str {
        match self {
            Self::Ext4JournalApart => "e2fsck -fn -j /dev/ssd2 /dev/ssd1",
            Self::Ext4 => "e2fsck -fn /dev/ssd1",
            Self::F2fs => "fsck.f2fs --dry-run /dev/ssd1",
        }
    }

    /// The kernel's name of it.
    pub(crate) fn kind(self) -> &'static str {
        match self {
            Self::Ext4JournalApart | Self::Ext4 => "ext4",
            Self::F2fs => "f2fs",
        }
    }
}

impl fmt::Display for FileSystem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ext4JournalApart => "journal apart",
            Self::Ext4 => "journal within",
            Self::F2fs => "F2FS",
        })
    }
}
