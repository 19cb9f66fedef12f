//! The inode of a file in its subvolume's tree (`struct btrfs_inode_item`, linux/btrfs_tree.h, v6.1).

use super::disk_u64_at;
use crate::abi::AbiItem;

/// `BTRFS_INODE_ITEM_KEY`.
pub(super) const INODE_ITEM: u32 = 1;

// Offsets in `struct btrfs_inode_item`.
const GENERATION: usize = 0;
const TRANSID: usize = 8;
const SIZE: usize = 16;
const BYTES: usize = 24;
const LINKS: usize = 40;
const MODE: usize = 52;

/// The structure of this module, for `cargo xtask abi-check`.
pub(crate) const ABI: &[AbiItem] = &[AbiItem {
    header: "linux/btrfs_tree.h",
    c_type: "struct btrfs_inode_item",
    size: 160,
    fields: &[
        ("generation", GENERATION),
        ("transid", TRANSID),
        ("size", SIZE),
        ("nbytes", BYTES),
        ("nlink", LINKS),
        ("mode", MODE),
    ],
    requests: &[("BTRFS_INODE_ITEM_KEY", INODE_ITEM)],
}];

/// An inode, as its subvolume's tree has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InodeItem {
    /// Inode number in the subvolume.
    pub inode: u64,
    /// The transaction in which it was made.
    pub generation: u64,
    /// The transaction in which it last changed.
    pub changed: u64,
    /// Size in bytes.
    pub size: u64,
    /// Allocated bytes, not rounded.
    pub bytes: u64,
    /// Names.
    pub links: u32,
    /// Type and permissions, as in `st_mode`.
    pub mode: u32,
}

/// The inode in an item; `None` if the item is cut off.
pub(super) fn inode_item(inode: u64, item: &[u8]) -> Option<InodeItem> {
    // In disk order, unlike the headers of a search.
    let number = |at: usize| Some(u32::from_le_bytes(item.get(at..at + 4)?.try_into().ok()?));
    Some(InodeItem {
        inode,
        generation: disk_u64_at(item, GENERATION)?,
        changed: disk_u64_at(item, TRANSID)?,
        size: disk_u64_at(item, SIZE)?,
        bytes: disk_u64_at(item, BYTES)?,
        links: number(LINKS)?,
        mode: number(MODE)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_that_is_cut_off_is_none() {
        let mut item = vec![0; 160];
        item[GENERATION] = 5;
        item[TRANSID] = 6;
        item[SIZE] = 7;
        item[BYTES + 1] = 1;
        item[LINKS] = 2;
        item[MODE + 1] = 0x81;
        let expected = InodeItem {
            inode: 300,
            generation: 5,
            changed: 6,
            size: 7,
            bytes: 256,
            links: 2,
            mode: 0x8100,
        };
        assert_eq!(inode_item(300, &item), Some(expected));
        assert_eq!(inode_item(300, &item[..54]), None);
    }
}
