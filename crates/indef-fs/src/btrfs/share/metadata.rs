//! The cost of metadata that snapshots get for themselves.
//!
//! A snapshot shares the blocks of its tree with its origin until one of them changes. A move changes the items of the
//! file in each subvolume that holds it, and so each of them but one gets blocks of its own, which stay. Reckoned for
//! each of them but the target's, as an upper bound:
//!
//! - one leaf for each [`NEIGHBOURS`] inodes, since the items of small files stand together in one;
//! - one more for each [`ITEMS`] items that the file has afterwards;
//! - with the first leaf of a subvolume, those blocks above it that may be shared: all levels but the root;
//! - in all no more than its whole tree has;
//! - each as often as metadata is stored (twice by default).
//!
//! The extent tree's growth by references of new leaves is not reckoned, nor the room that the file's items give back.

use std::{
    collections::{HashMap, HashSet, hash_map::Entry},
    io,
    sync::{Mutex, OnceLock, PoisonError},
};

use linux_abi::btrfs::{TreeFacts, metadata_copies, tree_facts};
use units::Bytes;

use crate::{Target, share::holder::HolderId};

/// Size of a block of a tree: mkfs's default, and hardly anybody's choice is another.
const LEAF: u64 = 16 << 10;
/// Items of extents in a leaf: of 78 B with their headers (`struct btrfs_item`, `btrfs_file_extent_item`).
const ITEMS: u64 = 200;
/// Inodes of small files whose items have a leaf together: 400 B each (inode, reference, extent; names are elsewhere).
const NEIGHBOURS: u64 = 32;
/// Leaves that are remembered, of 16 B each. Further ones are reckoned again.
const REMEMBERED: usize = 1 << 20;

/// The leaves that were reckoned already.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    copies: OnceLock<u64>,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    subvolumes: HashMap<u64, Subvolume>,
    /// Subvolume, and inodes that are neighbours.
    leaves: HashSet<(u64, u64)>,
}

#[derive(Clone, Copy, Debug)]
struct Subvolume {
    tree: TreeFacts,
    /// Blocks that it got.
    blocks: u64,
}

/// Cost of a window, by blocks of each subvolume.
#[derive(Debug, Default)]
pub(super) struct Price {
    blocks: HashMap<u64, u64>,
    leaves: HashSet<(u64, u64)>,
    copies: u64,
}

impl Price {
    /// Bytes on the device.
    pub(super) fn bytes(&self) -> Bytes {
        let blocks: u64 = self.blocks.values().sum();
        Bytes(blocks.saturating_mul(LEAF).saturating_mul(self.copies))
    }
}

/// Leaves that so many items of a file fill.
pub(super) const fn leaves(items: u64) -> u64 {
    items / ITEMS
}

impl Ledger {
    /// The price of a move for `holders` of a target in the subvolume `own`, each of which gets so many leaves for its
    /// items beside the first.
    pub(super) fn price(
        &self,
        target: &Target,
        own: u64,
        holders: impl Iterator<Item = (HolderId, u64)>,
    ) -> io::Result<Price> {
        let copies = match self.copies.get() {
            Some(copies) => *copies,
            None => {
                let copies = metadata_copies(&target.file)?;
                *self.copies.get_or_init(|| copies)
            }
        };
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let others: Vec<_> = holders.filter(|(id, _)| id.subvolume != own).collect();
        for (id, _) in &others {
            if let Entry::Vacant(entry) = known.subvolumes.entry(id.subvolume) {
                let facts = tree_facts(&target.file, id.subvolume)?;
                // One that is gone by now gets nothing.
                let tree = facts.unwrap_or(TreeFacts {
                    levels: 0,
                    bytes: 0,
                });
                entry.insert(Subvolume { tree, blocks: 0 });
            }
        }
        Ok(known.price(&others, copies))
    }

    /// The window moves.
    pub(super) fn charge(&self, price: Price) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        for (subvolume, blocks) in price.blocks {
            if let Some(subvolume) = known.subvolumes.get_mut(&subvolume) {
                subvolume.blocks += blocks;
            }
        }
        if known.leaves.len() + price.leaves.len() <= REMEMBERED {
            known.leaves.extend(price.leaves);
        }
    }
}

impl Known {
    fn price(&self, others: &[(HolderId, u64)], copies: u64) -> Price {
        let mut price = Price {
            copies,
            ..Price::default()
        };
        for (id, leaves) in others {
            let Some(subvolume) = self.subvolumes.get(&id.subvolume) else {
                continue;
            };
            let leaf = (id.subvolume, id.inode / NEIGHBOURS);
            let is_new = !self.leaves.contains(&leaf) && price.leaves.insert(leaf);
            let blocks = price.blocks.entry(id.subvolume).or_default();
            if subvolume.blocks + *blocks == 0 {
                *blocks += u64::from(subvolume.tree.levels).saturating_sub(1);
            }
            *blocks += u64::from(is_new) + leaves;
            // A tree of one block is its root, which is its own.
            let most = match subvolume.tree.levels {
                0 => 0,
                _ => (subvolume.tree.bytes / LEAF).saturating_sub(subvolume.blocks),
            };
            *blocks = (*blocks).min(most);
        }
        price
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(levels: u8, blocks: u64) -> Known {
        let tree = TreeFacts {
            levels,
            bytes: blocks * LEAF,
        };
        let subvolume = Subvolume { tree, blocks: 0 };
        Known {
            subvolumes: [(300, subvolume), (301, subvolume)].into(),
            ..Known::default()
        }
    }

    fn holder(subvolume: u64, inode: u64) -> HolderId {
        HolderId { subvolume, inode }
    }

    #[test]
    fn neighbours_share_leaves_and_large_files_have_more() {
        let ledger = Ledger {
            copies: OnceLock::from(2),
            known: Mutex::new(known(2, 1000)),
        };
        let blocks = |holders: &[(HolderId, u64)]| {
            let price = ledger.known.lock().unwrap().price(holders, 2);
            let bytes = price.bytes();
            ledger.charge(price);
            bytes.get() / LEAF
        };
        let both = |inode, items| [300, 301].map(|one| (holder(one, inode), leaves(items)));
        // In each a leaf and a block above it, twice.
        assert_eq!(blocks(&both(320, 1)), 8);
        assert_eq!(blocks(&both(351, 1)), 0);
        assert_eq!(blocks(&both(352, 1)), 4);
        assert_eq!(blocks(&both(352, 450)), 8);
        // Two files of a subvolume.
        assert_eq!(blocks(&[(holder(300, 1000), 0), (holder(300, 1001), 0)]), 2);
    }

    #[test]
    fn no_tree_gets_more_than_it_has() {
        let all = [(holder(300, 7), leaves(100_000)), (holder(301, 7), 0)];
        assert_eq!(known(1, 12).price(&all, 1).bytes(), Bytes((12 + 1) * LEAF));
        assert_eq!(known(0, 1).price(&all, 1).bytes(), Bytes::ZERO);
    }
}
