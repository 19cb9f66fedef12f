//! The numbers of references to extents on the device, many in one call, from the extent tree (`struct
//! btrfs_extent_item`, linux/btrfs_tree.h, v6.1). References that the kernel has not put into the tree yet
//! (fs/btrfs/delayed-ref.c) are not seen. Needs `CAP_SYS_ADMIN`.

use std::{io, os::fd::AsFd};

use super::{SearchArgs, SearchKey, disk_u64_at};
use crate::abi::AbiItem;

/// `BTRFS_EXTENT_TREE_OBJECTID`.
const EXTENT_TREE: u64 = 2;
/// `BTRFS_EXTENT_ITEM_KEY`.
const EXTENT_ITEM: u32 = 168;
/// Offset of `refs` in `struct btrfs_extent_item`.
const REFS: usize = 0;

/// The structure of this module, for `cargo xtask abi-check`.
pub(crate) const ABI: &[AbiItem] = &[AbiItem {
    header: "linux/btrfs_tree.h",
    c_type: "struct btrfs_extent_item",
    size: 24,
    fields: &[("refs", REFS)],
    requests: &[
        ("BTRFS_EXTENT_ITEM_KEY", EXTENT_ITEM),
        ("BTRFS_EXTENT_TREE_OBJECTID", EXTENT_TREE as u32),
    ],
}];

/// A reusable buffer for references to extents.
pub struct ExtentRefs(Box<SearchArgs>);

impl ExtentRefs {
    /// An empty buffer.
    #[must_use]
    pub fn new() -> Self {
        Self(SearchArgs::new())
    }

    /// Look at `items` items of the extent tree, or as many as the buffer holds, from address `from` on.
    /// `visit` gets address and number of references of the extents among them, in order. Returns the address
    /// of the last item: all extents before it were looked at.
    ///
    /// # Errors
    ///
    /// `EPERM` without `CAP_SYS_ADMIN`, `ENOTTY` where it is not Btrfs.
    pub fn read(
        &mut self,
        fd: impl AsFd,
        from: u64,
        items: u32,
        mut visit: impl FnMut(u64, u64),
    ) -> io::Result<Option<u64>> {
        let key = SearchKey {
            tree_id: EXTENT_TREE,
            min_objectid: from,
            max_objectid: u64::MAX,
            max_type: u32::from(u8::MAX),
            max_offset: u64::MAX,
            nr_items: items,
            ..SearchKey::default()
        };
        let mut last = None;
        for found in self.0.ask(fd, key)? {
            last = Some(found.objectid);
            if let (EXTENT_ITEM, Some(refs)) = (found.kind, disk_u64_at(found.item, REFS)) {
                visit(found.objectid, refs);
            }
        }
        Ok(last)
    }
}

impl Default for ExtentRefs {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_file_system_has_no_such_tree() {
        let file = std::fs::File::open("/proc/self/stat").unwrap();
        let nothing = |_, _| unreachable!("there are none");
        assert!(ExtentRefs::new().read(&file, 0, 1, nothing).is_err());
    }
}
