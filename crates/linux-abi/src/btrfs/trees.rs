//! The trees of subvolumes as a whole (`struct btrfs_root_item`), and how often metadata is stored
//! (`struct btrfs_chunk`; linux/btrfs_tree.h, v6.1). Needs `CAP_SYS_ADMIN`.

use std::{io, os::fd::AsFd};

use super::{
    SearchKey,
    chunks::{BlockGroupKind, chunks},
    disk_u64_at, search,
};
use crate::abi::AbiItem;

/// `BTRFS_ROOT_TREE_OBJECTID`.
const ROOT_TREE: u64 = 1;
/// `BTRFS_ROOT_ITEM_KEY`.
const ROOT_ITEM: u32 = 132;
/// Offset of `generation` in `struct btrfs_root_item`, after an inode.
const GENERATION: usize = 160;
/// Offset of `bytes_used` in `struct btrfs_root_item`.
const BYTES_USED: usize = 192;
/// Offset of `last_snapshot` there.
const LAST_SNAPSHOT: usize = 200;
/// Offset of `level` there.
const LEVEL: usize = 238;
/// Offset of `uuid` there.
const UUID: usize = 247;
/// Offset of `parent_uuid` there.
const PARENT_UUID: usize = 263;
/// `BTRFS_ROOT_REF_KEY`.
const ROOT_REF: u32 = 156;
/// Structures and numbers of this module, for `cargo xtask abi-check`.
pub(crate) const ABI: &[AbiItem] = &[AbiItem {
    header: "linux/btrfs_tree.h",
    c_type: "struct btrfs_root_item",
    size: 439,
    fields: &[
        ("generation", GENERATION),
        ("bytes_used", BYTES_USED),
        ("last_snapshot", LAST_SNAPSHOT),
        ("level", LEVEL),
        ("uuid", UUID),
        ("parent_uuid", PARENT_UUID),
    ],
    requests: &[
        ("BTRFS_ROOT_ITEM_KEY", ROOT_ITEM),
        ("BTRFS_ROOT_REF_KEY", ROOT_REF),
        ("BTRFS_ROOT_TREE_OBJECTID", ROOT_TREE as u32),
    ],
}];

/// The tree of a subvolume, as of the last commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreeFacts {
    /// Levels above its leaves. Blocks of the others may be shared with snapshots; the root never is.
    pub levels: u8,
    /// Bytes of all its blocks, each counted once.
    pub bytes: u64,
}

/// The facts of a subvolume's tree; `None` if there is no such subvolume.
///
/// # Errors
///
/// `EPERM` without `CAP_SYS_ADMIN`, `ENOTTY` where it is not Btrfs.
pub fn tree_facts(file: impl AsFd, subvolume: u64) -> io::Result<Option<TreeFacts>> {
    let mut facts = None;
    search(file, root_item(subvolume), |found| {
        let (level, bytes) = (found.item.get(LEVEL), disk_u64_at(found.item, BYTES_USED));
        facts = level.zip(bytes).map(|(level, bytes)| TreeFacts {
            levels: *level,
            bytes,
        });
        true
    })?;
    Ok(facts)
}

/// The transaction of the last snapshot of a subvolume, or that made it one: what its tree got in newer ones is in no
/// other tree. `None` if there is no such subvolume.
///
/// # Errors
///
/// Those of [`tree_facts`].
pub fn last_snapshot(file: impl AsFd, subvolume: u64) -> io::Result<Option<u64>> {
    number(file, subvolume, LAST_SNAPSHOT)
}

/// The transaction of the last commit that found a subvolume's tree changed: what is written into it from now on is of a
/// newer one, as a commit puts this number down when nobody may write into the tree in its transaction any more
/// (fs/btrfs/transaction.c, `commit_fs_roots`, v6.18). `None` if there is no such subvolume.
///
/// # Errors
///
/// Those of [`tree_facts`].
pub fn committed(file: impl AsFd, subvolume: u64) -> io::Result<Option<u64>> {
    number(file, subvolume, GENERATION)
}

/// Where a subvolume comes from, and what is in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Its UUID; zeroes for one that older programs made.
    pub uuid: [u8; 16],
    /// It was made as a snapshot of another one.
    pub is_snapshot: bool,
    /// The subvolumes that have a name in it.
    pub subvolumes: u64,
}

/// The origin of a subvolume; `None` if there is no such one.
///
/// # Errors
///
/// Those of [`tree_facts`].
pub fn origin(file: impl AsFd, subvolume: u64) -> io::Result<Option<Origin>> {
    let (file, mut uuids) = (file.as_fd(), None);
    search(file, root_item(subvolume), |found| {
        let at = |at: usize| -> Option<[u8; 16]> { found.item.get(at..at + 16)?.try_into().ok() };
        uuids = at(UUID).zip(at(PARENT_UUID));
        true
    })?;
    let Some((uuid, parent)) = uuids else {
        return Ok(None);
    };
    let mut subvolumes = 0;
    let names = SearchKey {
        min_type: ROOT_REF,
        max_type: ROOT_REF,
        ..root_item(subvolume)
    };
    search(file, names, |_| {
        subvolumes += 1;
        true
    })?;
    Ok(Some(Origin {
        uuid,
        is_snapshot: parent != [0; 16],
        subvolumes,
    }))
}

/// A number in the item of a subvolume's tree, of which there is one.
fn number(file: impl AsFd, subvolume: u64, at: usize) -> io::Result<Option<u64>> {
    let mut largest = None;
    search(file, root_item(subvolume), |found| {
        largest = largest.max(disk_u64_at(found.item, at));
        true
    })?;
    Ok(largest)
}

fn root_item(subvolume: u64) -> SearchKey {
    SearchKey {
        tree_id: ROOT_TREE,
        min_objectid: subvolume,
        max_objectid: subvolume,
        min_type: ROOT_ITEM,
        max_type: ROOT_ITEM,
        max_offset: u64::MAX,
        ..SearchKey::default()
    }
}

/// How often each block of metadata is stored, where it is stored most often.
///
/// # Errors
///
/// Those of [`tree_facts`].
pub fn metadata_copies(file: impl AsFd) -> io::Result<u64> {
    let chunks = chunks(file)?;
    let metadata = chunks
        .iter()
        .filter(|chunk| chunk.kind.contains(BlockGroupKind::METADATA));
    Ok(metadata.map(|chunk| chunk.kind.copies()).max().unwrap_or(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_file_system_has_no_such_trees() {
        let file = std::fs::File::open("/proc/self/stat").unwrap();
        assert!(tree_facts(&file, 5).is_err() && metadata_copies(&file).is_err());
        assert!(origin(&file, 5).is_err());
    }
}
