//! Sums over files in one piece, of which nothing else is to be told.

use indef_fs::Nature;
use units::Bytes;

/// Sums over files without data, and files with one extent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PlainSums {
    /// Files without an extent.
    pub(super) without: u64,
    /// Files with one.
    pub(super) with: u64,
    /// Their sizes.
    pub(super) size: u64,
    /// Their allocated bytes.
    pub(super) allocated: u64,
    /// Windows that hold some of them ([`WindowedDolf`](indef_core::layout::WindowedDolf)).
    pub(super) windows: u64,
}

impl PlainSums {
    /// One file of this size.
    fn of(size: Bytes, allocated: Bytes, io_size: Bytes) -> Self {
        let has_data = !size.is_zero() && !allocated.is_zero();
        Self {
            without: u64::from(!has_data),
            with: u64::from(has_data),
            size: size.get(),
            allocated: allocated.get(),
            windows: match has_data {
                true => allocated.get().div_ceil(io_size.get().max(1)),
                false => 0,
            },
        }
    }

    /// Files.
    pub(super) const fn files(&self) -> u64 {
        self.without + self.with
    }
}

/// Numbers of inodes by what they are, and sums over those of which a number is enough.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// Inodes.
    pub(super) inodes: u64,
    /// Directories.
    pub(super) directories: u64,
    /// Further names of regular files.
    pub(super) hard_links: u64,
    /// Names of what is neither.
    pub(super) others: u64,
    /// Files in one piece.
    pub(super) plain: PlainSums,
}

impl Counts {
    /// Numbers of a count in a file.
    pub(super) const FIELDS: usize = 9;

    /// The counts of one inode with so many names.
    pub(super) fn of(links: u32, nature: &Nature, io_size: Bytes) -> Self {
        let one = Self {
            inodes: 1,
            ..Self::default()
        };
        let further = u64::from(links.saturating_sub(1));
        match *nature {
            Nature::Directory => Self {
                directories: 1,
                ..one
            },
            Nature::Plain { size, allocated } => Self {
                hard_links: further,
                plain: PlainSums::of(size, allocated, io_size),
                ..one
            },
            Nature::Notable => Self {
                hard_links: further,
                ..one
            },
            Nature::Other => Self {
                others: links.into(),
                ..one
            },
        }
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.join(other, u64::wrapping_add);
    }

    /// Take away what was added before. Sums wrap, so that this is exact in any order.
    pub(super) fn take(&mut self, other: &Self) {
        self.join(other, u64::wrapping_sub);
    }

    fn join(&mut self, other: &Self, join: impl Fn(u64, u64) -> u64) {
        let (mine, others) = (self.fields(), other.fields());
        *self = Self::from_fields(std::array::from_fn(|at| join(mine[at], others[at])));
    }

    pub(super) const fn fields(&self) -> [u64; Self::FIELDS] {
        let plain = &self.plain;
        [
            self.inodes,
            self.directories,
            self.hard_links,
            self.others,
            plain.without,
            plain.with,
            plain.size,
            plain.allocated,
            plain.windows,
        ]
    }

    pub(super) const fn from_fields(fields: [u64; Self::FIELDS]) -> Self {
        let [
            inodes,
            directories,
            hard_links,
            others,
            without,
            with,
            size,
            allocated,
            windows,
        ] = fields;
        Self {
            inodes,
            directories,
            hard_links,
            others,
            plain: PlainSums {
                without,
                with,
                size,
                allocated,
                windows,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use indef_core::layout::{Extent, ExtentFlags, Layout};
    use proptest::prelude::*;
    use units::{FileOffset, PhysOffset};

    use super::*;

    proptest! {
        /// The sums of a file are those of its layout.
        #[test]
        fn a_file_counts_as_its_layout(blocks in 0_u64..5000, shift in 12_u32..20) {
            let (len, io_size) = (Bytes(blocks * 4096), Bytes(1 << shift));
            let layout = Layout::new(match blocks {
                0 => Vec::new(),
                _ => vec![Extent {
                    file: FileOffset(0),
                    phys: PhysOffset(0),
                    len,
                    flags: ExtentFlags::UNPLACED,
                }],
            });
            let sums = PlainSums::of(len, len, io_size);
            let dolf = layout.windowed_dolf(io_size);
            prop_assert_eq!(sums.with, layout.fragments());
            prop_assert_eq!(sums.with, layout.ideal_fragments());
            prop_assert_eq!((sums.windows, sums.windows), (dolf.windows, dolf.fragments));
            prop_assert_eq!(dolf.max, sums.with);
        }

        /// What is added and taken away in any order leaves the rest.
        #[test]
        fn counts_are_taken_away_exactly(all in prop::collection::vec(inode(), 1..50), at: prop::sample::Index) {
            let mut counts = Counts::default();
            let of = |(links, nature): &(u32, Nature)| Counts::of(*links, nature, Bytes::kib(128));
            all.iter().for_each(|it| counts.add(&of(it)));
            let gone = at.get(&all);
            counts.take(&of(gone));
            let mut rest = Counts::from_fields(counts.fields());
            rest.add(&of(gone));
            for it in &all {
                rest.take(&of(it));
            }
            prop_assert_eq!(rest, Counts::default());
        }
    }

    fn inode() -> impl Strategy<Value = (u32, Nature)> {
        let plain = (any::<u64>(), any::<u64>()).prop_map(|(size, allocated)| Nature::Plain {
            size: Bytes(size),
            allocated: Bytes(allocated),
        });
        let nature = prop_oneof![
            plain,
            Just(Nature::Directory),
            Just(Nature::Notable),
            Just(Nature::Other)
        ];
        (any::<u32>(), nature)
    }
}
