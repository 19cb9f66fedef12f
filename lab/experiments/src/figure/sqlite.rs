//! SQLite's table b-tree, as far as rows that are inserted one by one decide it (SQLite, "Database File Format", §1.6).

/// Bytes of a page: SQLite's default.
pub(super) const PAGE: u64 = 4096;
/// Most bytes of a row that its leaf holds, where it holds all of them.
const MOST_IN_LEAF: u64 = PAGE - 35;
/// Bytes of a row that its leaf holds at least, if the others do not fill pages of their own.
const LEAST_IN_LEAF: u64 = (PAGE - 12) * 32 / 255 - 23;
/// Bytes of a row in a page of its own; the first four name the next one.
const IN_OVERFLOW: u64 = PAGE - 4;
/// The record's header, as of one value beside its number.
const HEADER: u64 = 4;
/// In a leaf beside the row's bytes: its length and number, the page that continues it, and its entry in the leaf's list.
const CELL: u64 = 3 + 3 + 4 + 2;

/// The pages of rows of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rows {
    /// Pages of each row alone.
    pub(super) overflow: u64,
    /// Rows that share a leaf, which lies before the first one's own pages.
    pub(super) in_leaf: u64,
}

impl Rows {
    /// Rows with one value of so many bytes.
    pub(super) const fn of(value: u64) -> Self {
        let row = value + HEADER;
        let local = if row <= MOST_IN_LEAF {
            row
        } else {
            let last = LEAST_IN_LEAF + (row - LEAST_IN_LEAF) % IN_OVERFLOW;
            if last <= MOST_IN_LEAF {
                last
            } else {
                LEAST_IN_LEAF
            }
        };
        Self {
            overflow: (row - local).div_ceil(IN_OVERFLOW),
            in_leaf: (PAGE - 8) / (local + CELL),
        }
    }

    /// Pages of so many rows. Those with the schema and those above the leaves are left out.
    pub(super) const fn pages(self, rows: u64) -> u64 {
        rows * self.overflow + rows.div_ceil(self.in_leaf)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_the_papers() {
        // FAST'24's abstract: 162 MB for 10,000 rows of 16 KB.
        let rows = Rows::of(16 << 10);
        assert_eq!((rows.overflow, rows.in_leaf), (4, 8));
        let mib = (rows.pages(10_000) * PAGE) as f64 / f64::from(1 << 20);
        assert!((mib - 161.1).abs() < 0.2, "{mib}");
        let rows = Rows::of(4096);
        assert_eq!((rows.overflow, rows.in_leaf), (1, 8));
        assert_eq!(Rows::of(1000).overflow, 0);
    }
}
