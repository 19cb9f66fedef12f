//! The list of all structures: every module that has some, and nothing refers back to it.

use crate::abi::AbiItem;

/// Every structure of this crate.
#[must_use]
pub fn all() -> Vec<AbiItem> {
    [
        crate::bpf::ABI,
        crate::fiemap::ABI,
        crate::ext4::ABI,
        crate::ext4::disk::ABI,
        crate::btrfs::ABI,
        crate::btrfs::balance::ABI,
        crate::btrfs::chunks::ABI,
        crate::btrfs::commit::ABI,
        crate::btrfs::device::ABI,
        crate::btrfs::extent_refs::ABI,
        crate::btrfs::holders::ABI,
        crate::btrfs::inode_item::ABI,
        crate::btrfs::trees::ABI,
        crate::f2fs::ABI,
        crate::f2fs::offload::ABI,
        crate::cache::ABI,
        crate::fsmap::ABI,
        crate::fsxattr::ABI,
        crate::nvme::ABI,
        crate::nvme::command::ABI,
        crate::share::ABI,
        crate::shutdown::ABI,
        crate::xfs::ABI,
        crate::xfs::bulk::ABI,
        crate::xfs_handle::ABI,
    ]
    .concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_item_can_be_asserted_in_c() {
        for item in all() {
            assert!(item.header.ends_with(".h"), "{item:?}");
            assert!(!item.c_type.is_empty() || item.fields.is_empty());
            assert!(item.fields.iter().all(|(_, offset)| *offset < item.size));
            // An ioctl number contains the size of its argument; an item with only constants has none.
            for (name, request) in item.requests {
                if name.contains("_IOC") && !item.c_type.is_empty() {
                    assert_eq!((request >> 16 & 0x3FFF) as usize, item.size, "{name}");
                }
            }
        }
    }
}
