//! The cost of metadata that snapshots get for themselves.
//!
//! A snapshot shares the blocks of its tree with its origin until one of them changes. A move changes the items of the
//! file in each subvolume that holds it, and so each of them but one gets blocks of its own, which stay. Reckoned for
//! each of them but the target's, as an upper bound:
//!
//! - one leaf for each [`NEIGHBOURS`] inodes, since the items of small files stand together in one;
//! - one more for each [`ITEMS`] items that the file has afterwards (both so many in a leaf of the usual size);
//! - with the first leaf of a subvolume, those blocks above it that may be shared: all levels but the root;
//! - in all no more than its whole tree has;
//! - each as often as metadata is stored (twice by default).
//!
//! The extent tree's growth by references of new leaves is not reckoned, nor the room that the file's items give back.

use std::{
    collections::{HashMap, HashSet, hash_map::Entry},
    io,
    ops::Range,
    sync::{Mutex, OnceLock, PoisonError},
};

use linux_abi::btrfs::{TreeFacts, metadata_copies, node_size, tree_facts};
use units::Bytes;

use crate::{Target, share::holder::HolderId};

/// The usual size of a block of a tree, mkfs's default.
const USUAL: u64 = 16 << 10;
/// The smallest.
const LEAST: u64 = 4 << 10;
/// Items of extents in a leaf: of 78 B with their headers (`struct btrfs_item`, `btrfs_file_extent_item`).
const ITEMS: u64 = 200;
/// Inodes of small files whose items have a leaf together: 400 B each (inode, reference, extent; names are elsewhere).
const NEIGHBOURS: u64 = 32;
/// Leaves that are remembered, of 16 B each. Further ones are reckoned again.
const REMEMBERED: usize = 1 << 20;

/// How a file system stores its metadata.
#[derive(Clone, Copy, Debug)]
struct Storage {
    /// How often.
    copies: u64,
    /// Bytes of a block of a tree.
    block: u64,
}

impl Storage {
    fn of(target: &Target) -> io::Result<Self> {
        Ok(Self {
            copies: metadata_copies(&target.file)?,
            block: u64::from(node_size(&target.file)?).max(LEAST),
        })
    }

    /// How much a leaf has of what one of the usual size has so much of.
    fn holds(self, usual: u64) -> u64 {
        usual * self.block / USUAL
    }

    /// Leaves that so many items of a file fill.
    fn leaves(self, items: u64) -> u64 {
        items / self.holds(ITEMS)
    }
}

/// The leaves that were reckoned already.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    storage: OnceLock<Storage>,
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
#[derive(Debug)]
pub(super) struct Price {
    blocks: HashMap<u64, u64>,
    leaves: HashSet<(u64, u64)>,
    storage: Storage,
}

impl Price {
    /// Bytes on the device.
    pub(super) fn bytes(&self) -> Bytes {
        let blocks: u64 = self.blocks.values().sum();
        let Storage { copies, block } = self.storage;
        Bytes(blocks.saturating_mul(block).saturating_mul(copies))
    }
}

impl Ledger {
    /// The price of a move for `holders` of a target in the subvolume `own`, each of which gets these of its items.
    pub(super) fn price(
        &self,
        target: &Target,
        own: u64,
        holders: impl Iterator<Item = (HolderId, Range<u64>)>,
    ) -> io::Result<Price> {
        let storage = match self.storage.get() {
            Some(storage) => *storage,
            None => {
                let storage = Storage::of(target)?;
                *self.storage.get_or_init(|| storage)
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
        Ok(known.price(&others, storage))
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
    fn price(&self, others: &[(HolderId, Range<u64>)], storage: Storage) -> Price {
        let mut price = Price {
            blocks: HashMap::new(),
            leaves: HashSet::new(),
            storage,
        };
        for (id, items) in others {
            let Some(subvolume) = self.subvolumes.get(&id.subvolume) else {
                continue;
            };
            let leaves = storage.leaves(items.end) - storage.leaves(items.start);
            let leaf = (id.subvolume, id.inode / storage.holds(NEIGHBOURS));
            let is_new = !self.leaves.contains(&leaf) && price.leaves.insert(leaf);
            let blocks = price.blocks.entry(id.subvolume).or_default();
            if subvolume.blocks + *blocks == 0 {
                *blocks += u64::from(subvolume.tree.levels).saturating_sub(1);
            }
            *blocks += u64::from(is_new) + leaves;
            // A tree of one block is its root, which is its own.
            let most = match subvolume.tree.levels {
                0 => 0,
                _ => (subvolume.tree.bytes / storage.block).saturating_sub(subvolume.blocks),
            };
            *blocks = (*blocks).min(most);
        }
        price
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWICE: Storage = Storage {
        copies: 2,
        block: USUAL,
    };

    fn known(levels: u8, blocks: u64) -> Known {
        let tree = TreeFacts {
            levels,
            bytes: blocks * USUAL,
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

    fn both(inode: u64, items: u64) -> [(HolderId, Range<u64>); 2] {
        [300, 301].map(|one| (holder(one, inode), 0..items))
    }

    #[test]
    fn neighbours_share_leaves_and_large_files_have_more() {
        let ledger = Ledger {
            storage: OnceLock::from(TWICE),
            known: Mutex::new(known(2, 1000)),
        };
        let blocks = |holders: &[(HolderId, Range<u64>)]| {
            let price = ledger.known.lock().unwrap().price(holders, TWICE);
            let bytes = price.bytes();
            ledger.charge(price);
            bytes.get() / USUAL
        };
        // In each a leaf and a block above it, twice.
        assert_eq!(blocks(&both(320, 1)), 8);
        assert_eq!(blocks(&both(351, 1)), 0);
        assert_eq!(blocks(&both(352, 1)), 4);
        assert_eq!(blocks(&both(352, 450)), 8);
        // Two files of a subvolume.
        let two = [1000, 1001].map(|inode| (holder(300, inode), 0..0));
        assert_eq!(blocks(&two), 2);
    }

    #[test]
    fn larger_blocks_hold_and_cost_more() {
        let ledger = known(2, 4000);
        let large = Storage {
            block: 4 * USUAL,
            ..TWICE
        };
        let blocks = |inode, items| {
            let price = ledger.price(&both(inode, items), large);
            price.bytes().get() / large.block
        };
        assert_eq!(blocks(320, 1), 8);
        // 200 items fill a usual leaf, and 800 one of these.
        assert_eq!(blocks(320, 799), 8);
        assert_eq!(blocks(320, 800), 12);
    }

    #[test]
    fn no_tree_gets_more_than_it_has() {
        let once = Storage { copies: 1, ..TWICE };
        let all = [(holder(300, 7), 0..100_000), (holder(301, 7), 0..0)];
        assert_eq!(
            known(1, 12).price(&all, once).bytes(),
            Bytes((12 + 1) * USUAL)
        );
        assert_eq!(known(0, 1).price(&all, once).bytes(), Bytes::ZERO);
    }
}
