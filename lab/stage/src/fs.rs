//! File systems that bring a defragmenter along.

use clap::ValueEnum;

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Fs {
    /// With `e4defrag`.
    Ext4,
    /// With `xfs_fsr`.
    Xfs,
    /// With `btrfs filesystem defragment`.
    Btrfs,
}

impl Fs {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Ext4, Self::Xfs, Self::Btrfs];

    /// Its name, as mount(8) has it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
            Self::Btrfs => "btrfs",
        }
    }

    /// The conventional tool, called for a file as in its manual (e4defrag: or a folder).
    #[must_use]
    pub const fn peer(self) -> &'static [&'static str] {
        match self {
            Self::Ext4 => &["e4defrag"],
            Self::Xfs => &["xfs_fsr"],
            Self::Btrfs => &["btrfs", "filesystem", "defragment"],
        }
    }

    /// Arguments of its mkfs that make it on a device at once, without writing or discarding more than it must.
    pub(crate) const fn mkfs(self) -> &'static [&'static str] {
        match self {
            Self::Ext4 => &["-q", "-E", "nodiscard,lazy_itable_init=0"],
            // As newer tools do by themselves; so do the file systems of loop-fs.
            Self::Xfs => &["-q", "-f", "-K", "-m", "rmapbt=1"],
            Self::Btrfs => &["-q", "-f", "-K"],
        }
    }
}
