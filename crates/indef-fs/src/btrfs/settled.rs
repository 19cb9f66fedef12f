//! Whether a Btrfs keeps nothing of its files from its trees.
//!
//! It gives data its place later (delayed allocation), and puts changed inodes and changed counts of references
//! into the trees later (fs/btrfs/delayed-inode.c and delayed-ref.c). For each of these it holds space until it
//! is done: what data may take (`bytes_may_use`), or what metadata may take beyond the reserve for emergencies
//! (fs/btrfs/delayed-inode.c, `btrfs_delayed_inode_reserve_metadata`; delayed-ref.c, `btrfs_update_delayed_refs_rsv`;
//! delalloc-space.c, `btrfs_delalloc_reserve_metadata`, v6.18). Where nothing is held, nothing waits. A change that goes
//! on right now holds space, too, so that the answer is also no for a moment where it could be yes.

use std::{
    fs::File,
    os::{fd::AsFd, unix::fs::FileExt},
    path::{Path, PathBuf},
};

use linux_abi::btrfs::fsid;

/// The space that a file system holds.
#[derive(Debug)]
pub(super) struct Held {
    data: File,
    metadata: File,
    reserve: File,
}

impl Held {
    /// `None` where the kernel does not tell, as for data and metadata in the same block groups.
    pub(super) fn open(file: impl AsFd) -> Option<Self> {
        let folder = folder(&fsid(file).ok()?).join("allocation");
        let open = |name: &str| File::open(folder.join(name)).ok();
        Some(Self {
            data: open("data/bytes_may_use")?,
            metadata: open("metadata/bytes_may_use")?,
            reserve: open("global_rsv_reserved")?,
        })
    }

    /// Bytes of data that may wait for their place.
    pub(super) fn data_bytes(&self) -> Option<u64> {
        number(&self.data)
    }

    /// Whether nothing waits right now.
    pub(super) fn is_nothing(&self) -> bool {
        let reserve = number(&self.reserve);
        number(&self.data) == Some(0) && reserve.is_some() && number(&self.metadata) == reserve
    }
}

/// The folder of a mounted file system in sysfs.
pub(super) fn folder(fsid: &[u8; 16]) -> PathBuf {
    let hex = hex(fsid);
    let name = [
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..],
    ]
    .join("-");
    Path::new("/sys/fs/btrfs").join(name)
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The number in a file of sysfs, which is made anew for each read from its beginning.
fn number(file: &File) -> Option<u64> {
    let mut text = [0; 32];
    let length = file.read_at(&mut text, 0).ok()?;
    str::from_utf8(&text[..length]).ok()?.trim().parse().ok()
}
