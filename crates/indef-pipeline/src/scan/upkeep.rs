//! Costs of extents beyond reading: operations that walk all extents of a file take longer, the
//! more it has.
//!
//! The costs of an extent are the lowest that were measured: those of docs/figures.md (`indef-lab bench
//! upkeep`: Linux 6.18, a loop device, a file of 65,536 extents of 4 KiB against one of one or two), or less
//! where trials on other machines found less. They found a reflink copy of 13 to 29 µs on Btrfs and 24 to 39 µs
//! on XFS, deleting of 9 to 35 µs on Btrfs. Machines differ, so a sum is an order of magnitude, and rather too
//! small.
//!
//! Ignored: copying the data, whose cost is that of reading; deleting on ext4 (1.3 µs) and XFS (nothing:
//! the kernel does it later, in the background); F2FS, which has no reflink copies, and an address for each
//! block, however blocks lie: deleting looks at each (`f2fs_truncate_data_blocks_range`, fs/f2fs/file.c, v6.12).

use indef_fs::FsKind;
use units::Nanos;

/// The time that operations on a file take because it has more extents than it needs; none where
/// that was not measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Upkeep {
    /// Of a reflink copy.
    pub reflink: Option<Nanos>,
    /// Of deleting it.
    pub delete: Option<Nanos>,
}

impl Upkeep {
    /// The cost of this many extents more than needed.
    #[must_use]
    pub fn of(kind: FsKind, excess: u64) -> Self {
        let (reflink_ns, delete_ns) = match kind {
            FsKind::Btrfs => (Some(13_000), Some(8_900)),
            FsKind::Xfs => (Some(23_000), None),
            FsKind::Ext4 | FsKind::F2fs | FsKind::Other(_) => (None, None),
        };
        let all = |ns: u64| Nanos(ns.saturating_mul(excess));
        Self {
            reflink: reflink_ns.map(all),
            delete: delete_ns.map(all),
        }
    }

    /// Add the cost of another file.
    pub(super) fn add(&mut self, other: Self) {
        let sum = |a: Option<Nanos>, b: Option<Nanos>| match (a, b) {
            (Some(a), Some(b)) => Some(Nanos(a.0.saturating_add(b.0))),
            (one, other) => one.or(other),
        };
        self.reflink = sum(self.reflink, other.reflink);
        self.delete = sum(self.delete, other.delete);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_measured_file_costs_what_was_measured() {
        let excess = 65_535;
        let btrfs = Upkeep::of(FsKind::Btrfs, excess);
        let seconds = |time: Option<Nanos>| time.unwrap().0 as f64 / 1e9;
        assert!((0.8..=1.0).contains(&seconds(btrfs.reflink)), "{btrfs:?}");
        assert!((0.5..=0.6).contains(&seconds(btrfs.delete)), "{btrfs:?}");
        let xfs = Upkeep::of(FsKind::Xfs, excess);
        assert!((1.5..=1.6).contains(&seconds(xfs.reflink)), "{xfs:?}");
        assert_eq!(Upkeep::of(FsKind::Ext4, excess), Upkeep::default());
        let mut sum = xfs;
        sum.add(btrfs);
        assert_eq!(sum.delete, btrfs.delete);
        assert_eq!(
            sum.reflink.unwrap(),
            xfs.reflink.unwrap() + btrfs.reflink.unwrap()
        );
        let none = Upkeep::of(FsKind::Btrfs, 0);
        assert_eq!(none.delete, Some(Nanos(0)));
    }
}
