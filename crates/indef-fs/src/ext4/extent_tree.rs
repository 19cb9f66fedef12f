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

use std::{fs::File, num::NonZero, os::unix::fs::FileExt};

use indef_core::layout::{Extent, ExtentFlags};
use linux_abi::{
    cache::cachestat,
    ext4::disk::{ExtentEntry, ExtentNode, Incompat, Inode, RoCompat, SuperBlock},
};
use rustix::fs::{Advice, fadvise};
use units::{Bytes, FileOffset, PhysOffset};

/// Nodes of an extent tree: of some 80,000 extents with blocks of 4 KiB. Larger ones are mapped.
const MOST_NODES: usize = 256;
/// Fewer are read as they are needed.
const FEW: usize = 8;
/// Of so many it is asked whether they are in memory.
const SAMPLES: usize = 16;

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

/// Have the device read these blocks, unless all that are looked at are in memory.
pub(super) fn prefetch(device: &File, block_size: u64, mut blocks: Vec<u64>) {
    let in_memory = |block: &u64| is_in_memory(device, block_size, *block);
    let step = blocks.len().div_ceil(SAMPLES).max(1);
    if blocks.len() < FEW || blocks.iter().step_by(step).all(in_memory) {
        return;
    }
    blocks.sort_unstable();
    for run in blocks.chunk_by(|one, next| next - one <= 1) {
        if let (Some(first), Some(last)) = (run.first(), run.last()) {
            let length = (last - first + 1).saturating_mul(block_size);
            let place = first.saturating_mul(block_size);
            let _ = fadvise(device, place, NonZero::new(length), Advice::WillNeed);
        }
    }
}

/// Whether a block is in memory, where the kernel tells (since Linux 6.5).
fn is_in_memory(device: &File, block_size: u64, block: u64) -> bool {
    let found = cachestat(device, block.saturating_mul(block_size), 1);
    found.is_ok_and(|found| found.nr_cache > 0)
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
    fn loop_blocks_that_are_apart_are_read_together() {
        scratch_fs::undisturbed(blocks_that_are_apart_are_read_together);
    }

    fn blocks_that_are_apart_are_read_together() {
        let made = scratch_fs::ScratchFs::builder("ext4", Bytes::mib(64)).build();
        let Some(scratch) = scratch_fs::require(made) else {
            return;
        };
        let root = File::open(scratch.path()).unwrap();
        let fs = crate::detect(&root, scratch.path()).unwrap();
        let device = File::open(fs.mount.unwrap().source).unwrap();
        if cachestat(&device, 0, 1).is_err() {
            scratch_fs::skip("the kernel does not tell what is in memory");
            return;
        }
        let blocks: Vec<u64> = (8000..).step_by(100).take(40).collect();
        let are_there = |blocks: &[u64]| {
            let there = |block: &&u64| is_in_memory(&device, 4096, **block);
            blocks.iter().filter(there).count()
        };
        assert_eq!(are_there(&blocks), 0);
        // A few are read when they are needed.
        prefetch(&device, 4096, blocks[..FEW - 1].to_vec());
        assert_eq!(are_there(&blocks), 0);
        prefetch(&device, 4096, blocks.clone());
        assert_eq!(are_there(&blocks), blocks.len());
        let between: Vec<u64> = blocks.iter().map(|block| block + 50).collect();
        assert_eq!(are_there(&between), 0);
    }

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
