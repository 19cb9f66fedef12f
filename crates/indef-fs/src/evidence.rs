//! Evidence of a file's layout, got without opening the file: where it is the same again, so is the layout.
//!
//! A change time is no such evidence. The kernel sets it when a write begins, not when its blocks get their
//! place; and whoever moves blocks (`EXT4_IOC_MOVE_EXT`, `XFS_IOC_SWAPEXT`, `FIDEDUPERANGE`) leaves it as it is.
//! So evidence is of the layout itself, or of everything that can change it:
//!
//! - **ext4: the bytes of the inode and of all nodes of its extent tree**, as ext4 last put them into the page
//!   cache of its device (`ext4/inode_table.rs` has why these are current). The layout is a function of
//!   them, whatever happened meanwhile: clocks, restarts, restored images, other defragmenters, reused numbers. Only
//!   data without a place is not in them: `statx` counts its blocks and the inode does not, so that
//!   there is no evidence then, and a layout with such data has none.
//! - **Nothing else.** On XFS and Btrfs a clone, a snapshot or a deduplication made or removed elsewhere decides
//!   what of a file is shared, hence worth moving, and leaves no trace in the file's own metadata; nor do
//!   XFS's bulk statistics show an exchange of extents that leaves as many.

use sha2::{Digest, Sha256};

/// A digest of evidence. Nobody can make two files with the same one, so that it needs no further
/// identity of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Evidence([u8; Self::LEN]);

impl Evidence {
    /// Bytes of a digest.
    pub const LEN: usize = 16;

    /// The digest with these bytes.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; Self::LEN]) -> Self {
        Self(bytes)
    }

    /// Its bytes.
    #[must_use]
    pub const fn bytes(&self) -> [u8; Self::LEN] {
        self.0
    }
}

/// Evidence that is being gathered.
#[derive(Default)]
pub(crate) struct Gathered(Sha256);

impl Gathered {
    pub(crate) fn number(&mut self, number: u64) {
        self.0.update(number.to_le_bytes());
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.0.update(bytes);
    }

    pub(crate) fn finish(self) -> Evidence {
        let digest = self.0.finalize();
        let mut short = [0; Evidence::LEN];
        short.copy_from_slice(&digest[..Evidence::LEN]);
        Evidence(short)
    }
}
