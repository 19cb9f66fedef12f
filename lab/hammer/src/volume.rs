//! The kinds of file system that are hammered: one entry in [`VOLUMES`] for each.

use std::{fs, path::Path, process::Command};

use guest::Patched;

use crate::{
    medium::{FABRICS, MediumKind},
    program::run,
};

/// A kind of file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum VolumeKind {
    Ext4,
    Xfs,
    Btrfs,
    F2fs,
}

impl VolumeKind {
    /// The name for `mount -t`.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
            Self::Btrfs => "btrfs",
            Self::F2fs => "f2fs",
        }
    }
}

/// How a volume is made, and which operations it supports.
#[derive(Clone, Copy, Debug)]
pub struct Volume {
    /// Its name on the command line.
    pub name: &'static str,
    pub(crate) kind: VolumeKind,
    /// Bytes of all disks together.
    pub(crate) size: u64,
    pub(crate) mkfs: &'static [&'static str],
    pub(crate) mount: &'static str,
    /// Number of disks: loop devices of equal size in one image, or those of the medium.
    pub(crate) devices: u64,
    /// Actors share blocks between files that they write.
    pub(crate) clones: bool,
    /// The mover is told to give sharing up.
    pub(crate) unshares: bool,
    /// The mover is told that all files that share are among those that it is given.
    pub(crate) names: bool,
    /// The mover gives back what files hold and do not reach, and does not look at fragments.
    pub(crate) reclaims: bool,
    /// The mover makes free space whole (`indef compact`), of which there is little, in many pieces.
    pub(crate) compacts: bool,
    /// The mover leaves open files alone, so actors must close theirs.
    pub(crate) wants_closed_files: bool,
    /// Newer tools than Debian 12's are needed (`scripts/xfsprogs`).
    pub(crate) new_tools: bool,
    /// The only medium that it can use.
    pub(crate) medium: Option<MediumKind>,
    /// The engine to ask for where it is not the first one.
    pub(crate) engine: Option<&'static str>,
    /// The engine to ask for, in which the device copies. The device must have copied, or a round shows
    /// nothing.
    pub(crate) offload: Option<&'static str>,
    /// The project's patches (`kernel/`) that it needs, and a function that only the patched kernel has.
    patched: Option<(Patched, &'static str)>,
    /// It can hold a swap file.
    pub(crate) swaps: bool,
    /// Its device cannot read some blocks for a while.
    pub(crate) fails: bool,
}

const EXT4: Volume = Volume {
    name: "ext4",
    kind: VolumeKind::Ext4,
    size: 512 << 20,
    mkfs: &["-b", "4096"],
    mount: "commit=300",
    devices: 1,
    clones: false,
    unshares: false,
    names: false,
    reclaims: false,
    compacts: false,
    wants_closed_files: false,
    new_tools: false,
    medium: None,
    engine: None,
    offload: None,
    patched: None,
    swaps: true,
    fails: false,
};

const XFS: Volume = Volume {
    name: "xfs-swap",
    kind: VolumeKind::Xfs,
    mkfs: &["-m", "reflink=1,rmapbt=1"],
    mount: "",
    clones: true,
    wants_closed_files: true,
    engine: Some("xfs-swap-extents"),
    ..EXT4
};

const XFS_DEDUPE: Volume = Volume {
    name: "xfs-dedupe",
    mkfs: &["-m", "reflink=1,rmapbt=0"],
    wants_closed_files: false,
    engine: None,
    ..XFS
};

const XFS_COMMIT: Volume = Volume {
    name: "xfs-commit",
    mkfs: &["-i", "exchange=1"],
    wants_closed_files: false,
    new_tools: true,
    engine: None,
    ..XFS
};

/// What clones and snapshots share moves together.
const BTRFS: Volume = Volume {
    name: "btrfs",
    kind: VolumeKind::Btrfs,
    mkfs: &[],
    mount: "",
    clones: true,
    ..EXT4
};

const F2FS_OFFLOAD: Volume = Volume {
    name: "f2fs-offload",
    kind: VolumeKind::F2fs,
    mkfs: &["-m"],
    mount: "",
    devices: 2,
    medium: Some(MediumKind::NvmeZoned),
    offload: Some("f2fs-offload"),
    patched: Some((Patched::F2fs, "f2fs_ioc_offload")),
    // On zones, swapon fails on 6.1 and brings 6.12 down, with and without the patches.
    swaps: false,
    ..EXT4
};

/// All volumes.
pub const VOLUMES: &[Volume] = &[
    EXT4,
    Volume {
        name: "ext4-1k",
        mkfs: &["-b", "1024"],
        ..EXT4
    },
    Volume {
        name: "ext4-writeback",
        mount: "commit=300,data=writeback",
        ..EXT4
    },
    Volume {
        name: "ext4-5s",
        mount: "data=ordered",
        ..EXT4
    },
    Volume {
        name: "ext4-compact",
        // What is kept for root would stay in one piece.
        mkfs: &["-b", "4096", "-m", "0"],
        compacts: true,
        ..EXT4
    },
    XFS,
    XFS_DEDUPE,
    Volume {
        name: "xfs-compact-dedupe",
        compacts: true,
        ..XFS_DEDUPE
    },
    Volume {
        name: "xfs-dedupe-rmap",
        mkfs: &["-m", "reflink=1,rmapbt=1"],
        ..XFS_DEDUPE
    },
    // What nobody shares moves in the same way.
    Volume {
        name: "xfs-share",
        mkfs: &["-m", "reflink=1,rmapbt=1"],
        engine: Some("xfs-share-range"),
        ..XFS_DEDUPE
    },
    Volume {
        name: "xfs-share-named",
        mkfs: &["-m", "reflink=1,rmapbt=0"],
        engine: Some("xfs-share-range"),
        names: true,
        ..XFS_DEDUPE
    },
    XFS_COMMIT,
    Volume {
        name: "xfs-compact-commit",
        // New mkfs.xfs adds rmapbt, whose blocks lie amid the data and do not move: few runs of the wanted length can be had.
        mkfs: &["-i", "exchange=1", "-m", "reflink=1,rmapbt=0"],
        compacts: true,
        ..XFS_COMMIT
    },
    Volume {
        name: "xfs-offload",
        medium: Some(MediumKind::Nvme),
        offload: Some("xfs-offload"),
        ..XFS_COMMIT
    },
    Volume {
        name: "xfs-unshare",
        unshares: true,
        ..XFS_COMMIT
    },
    BTRFS,
    Volume {
        name: "btrfs-unshare",
        unshares: true,
        ..BTRFS
    },
    // What nobody shares moves in the same way.
    Volume {
        name: "btrfs-share",
        engine: Some("btrfs-share-range"),
        ..BTRFS
    },
    Volume {
        name: "btrfs-reclaim",
        reclaims: true,
        ..BTRFS
    },
    Volume {
        name: "btrfs-compact",
        compacts: true,
        ..BTRFS
    },
    Volume {
        name: "btrfs-zstd",
        mount: "compress-force=zstd",
        ..BTRFS
    },
    Volume {
        name: "btrfs-nodatacow",
        mount: "nodatacow",
        // A block that is no longer shared is written in place before that is committed: after a
        // cut the other file has the new content, with or without a mover (seen on 6.18).
        clones: false,
        ..BTRFS
    },
    Volume {
        name: "btrfs-raid1",
        mkfs: &["-d", "raid1", "-m", "dup"],
        devices: 2,
        ..BTRFS
    },
    Volume {
        name: "f2fs",
        kind: VolumeKind::F2fs,
        mkfs: &[],
        mount: "",
        wants_closed_files: true,
        ..EXT4
    },
    Volume {
        name: "f2fs-compact",
        kind: VolumeKind::F2fs,
        // All of it is written anew and again, for there to be something to empty.
        size: 256 << 20,
        mkfs: &[],
        mount: "",
        compacts: true,
        ..EXT4
    },
    F2FS_OFFLOAD,
    Volume {
        name: "f2fs-offload-failing",
        fails: true,
        ..F2FS_OFFLOAD
    },
];

impl Volume {
    /// The volume with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        VOLUMES.iter().find(|volume| volume.name == name)
    }

    /// Whether the running kernel has this file system, built in or as a module, and its medium.
    #[must_use]
    pub fn is_known_to_kernel(&self) -> bool {
        if self.medium.is_some_and(MediumKind::is_nvme) && !Path::new(FABRICS).exists() {
            return false;
        }
        let name = self.kind.as_str();
        let listed = || {
            let known = fs::read_to_string("/proc/filesystems").unwrap_or_default();
            known.lines().any(|line| line.trim() == name)
        };
        let known =
            listed() || (run(Command::new("modprobe").args(["-q", name])).is_ok() && listed());
        known && (self.patched).is_none_or(|(_, function)| has_function(function))
    }

    /// Whether Debian 12's tools cannot make it.
    #[must_use]
    pub fn needs_new_tools(&self) -> bool {
        self.new_tools
    }

    /// The project's patches that it needs.
    #[must_use]
    pub fn patched(&self) -> Option<Patched> {
        self.patched.map(|(patched, _)| patched)
    }

    /// Whether free space is made whole by the kernel, which empties parts (chunks of Btrfs, sections of F2FS) with all that lies
    /// in them.
    pub(crate) fn empties_parts(&self) -> bool {
        self.compacts && matches!(self.kind, VolumeKind::Btrfs | VolumeKind::F2fs)
    }

    /// Whether ranges can be collapsed and inserted.
    pub(crate) fn shifts(&self) -> bool {
        self.kind != VolumeKind::Btrfs
    }

    /// Whether it is made with reverse mapping, if it is XFS. (The tools that know `exchange` do that by themselves.)
    pub(crate) fn has_rmap(&self) -> bool {
        !self.mkfs.iter().any(|words| words.contains("rmapbt=0"))
    }

    /// Whether files can share blocks.
    pub(crate) fn shares(&self) -> bool {
        matches!(self.kind, VolumeKind::Xfs | VolumeKind::Btrfs)
    }

    /// Whether an allocation gives blocks their place; F2FS places blocks when they are written.
    pub(crate) fn places_when_allocating(&self) -> bool {
        self.kind != VolumeKind::F2fs
    }

    /// Whether a direct write with `O_DSYNC` is made durable before its new size is set
    /// (`f2fs_dio_write_iter`, fs/f2fs/file.c, v6.12: only after `iomap_dio_complete`).
    pub(crate) fn forgets_size_of_direct_writes(&self) -> bool {
        self.kind == VolumeKind::F2fs
    }

    /// Whether it has the ioctl that shuts it down without flushing the journal.
    pub(crate) fn shuts_down(&self) -> bool {
        self.kind != VolumeKind::Btrfs
    }
}

/// Whether the kernel or one of its modules has this function: before a mount, nothing else shows the
/// abilities of a file system.
fn has_function(name: &str) -> bool {
    // ADDRESS TYPE NAME, and the module's name.
    let symbols = fs::read_to_string("/proc/kallsyms").unwrap_or_default();
    { symbols.lines() }.any(|line| line.split_ascii_whitespace().nth(2) == Some(name))
}
