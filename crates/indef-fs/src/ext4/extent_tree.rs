//! The extents of files with more of them than an inode holds, read from the device like the inode.
//!
//! A node is current in the device's page cache just as an inode is: there ext4 changes it. But it is changed
//! in place, and freed and used for something else, while it is read. So a node is believed only with its
//! checksum, which ext4 renews with each change (fs/ext4/extents.c, `__ext4_ext_dirty`, v6.18) and which is of
//! the file's number and generation, too: not half changed, not of another file, not data. Without
//! `metadata_csum` there is no answer, and the file has to be mapped.
//!
//! Nodes that are read while extents move between them could still tell different moments. So their extents
//! must be in order; and a scan's answer is of some moment of the scan in any case.

use std::{fs::File, os::unix::fs::FileExt};

use indef_core::layout::{Extent, ExtentFlags};
use linux_abi::ext4::disk::{ExtentEntry, ExtentNode, Incompat, Inode, RoCompat, SuperBlock};
use units::{Bytes, FileOffset, PhysOffset};

/// Nodes of an extent tree: of some 80,000 extents with blocks of 4 KiB. Larger ones are mapped.
const MOST_NODES: usize = 256;

/// The seed of a file system's checksums; `None` if its metadata has none.
pub(super) fn checksum_seed(superblock: &SuperBlock) -> Option<u32> {
    let has_checksums = superblock.ro_compat().contains(RoCompat::METADATA_CSUM);
    has_checksums.then(
        || match superblock.incompat().contains(Incompat::CSUM_SEED) {
            true => superblock.checksum_seed.get(),
            false => checksum(!0, &superblock.uuid),
        },
    )
}

/// CRC-32C as ext4 has it: neither begun nor ended with an inversion.
fn checksum(seed: u32, bytes: &[u8]) -> u32 {
    !crc32c::crc32c_append(!seed, bytes)
}

/// Reads nodes of extent trees.
pub(super) struct TreeReader<'a> {
    pub(super) device: &'a File,
    pub(super) block_size: u64,
    /// Of the file system.
    pub(super) seed: Option<u32>,
    /// For a node.
    pub(super) buffer: &'a mut Vec<u8>,
}

impl TreeReader<'_> {
    /// All extents of a file, in order; `None` if the tree cannot be believed.
    pub(super) fn extents(&mut self, number: u64, inode: &Inode) -> Option<Vec<Extent>> {
        let root = inode.extents.node()?;
        let mut extents = Vec::new();
        if let Some(leaf) = root.leaf() {
            self.add(leaf, &mut extents)?;
        } else {
            let seed = self.seed_of(number, inode)?;
            let mut level: Vec<u64> = root.children().collect();
            let mut read = 0;
            for depth in (0..root.depth).rev() {
                let mut next = Vec::new();
                for block in level {
                    read += 1;
                    if read > MOST_NODES {
                        return None;
                    }
                    let place = block.checked_mul(self.block_size)?;
                    self.buffer.resize(self.block_size as usize, 0);
                    self.device.read_exact_at(self.buffer, place).ok()?;
                    let node = ExtentNode::first_of(self.buffer)?;
                    let (covered, expected) = node.checksum(self.buffer)?;
                    if node.depth != depth || checksum(seed, covered) != expected {
                        return None;
                    }
                    match node.leaf() {
                        Some(leaf) => self.add(leaf, &mut extents)?,
                        None => next.extend(node.children()),
                    }
                }
                level = next;
            }
        }
        let in_order = extents.is_sorted_by(|one, next| one.file_end() <= next.file);
        in_order.then_some(extents)
    }

    /// The seed of the checksums of a file's metadata (`ext4_inode_csum_set`, fs/ext4/inode.c, v6.18).
    fn seed_of(&self, number: u64, inode: &Inode) -> Option<u32> {
        let number = u32::try_from(number).ok()?.to_le_bytes();
        let generation = inode.generation.get().to_le_bytes();
        Some(checksum(checksum(self.seed?, &number), &generation))
    }

    fn add(&self, leaf: &[ExtentEntry], extents: &mut Vec<Extent>) -> Option<()> {
        for entry in leaf {
            let extent = Extent {
                file: FileOffset(u64::from(entry.block.get()) * self.block_size),
                phys: PhysOffset(entry.start().checked_mul(self.block_size)?),
                len: Bytes(u64::from(entry.blocks()) * self.block_size),
                flags: match entry.is_unwritten() {
                    true => ExtentFlags::UNWRITTEN,
                    false => ExtentFlags::empty(),
                },
            };
            // None that arithmetic cannot rely on.
            extent.phys.get().checked_add(extent.len.get())?;
            if !extent.len.is_zero() {
                extents.push(extent);
            }
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_those_of_ext4() {
        // The check value of CRC-32C is of its inverted form.
        assert_eq!(checksum(!0, b"123456789"), !0xE306_9283);
        assert_eq!(
            checksum(checksum(!0, b"1234"), b"56789"),
            checksum(!0, b"123456789")
        );
    }
}
