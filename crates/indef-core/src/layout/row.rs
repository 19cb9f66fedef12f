//! Rows: the pages that a device senses together.
//!
//! A row is the same page of every parallel unit. A read of one row's length that begins where a row
//! does costs each unit one sense; one that begins elsewhere costs most of them two. So a file that is
//! read in aligned pieces is best placed *congruently*: each byte as far into a row as it is into the
//! row's length in the file.
//!
//! ```text
//! file    |   A   |   B   |        read of B: one row, one sense on each unit
//! device  |   A   |   B   |
//! device      |   A   |   B   |    the same read: two rows
//! ```

use units::{Bytes, FileOffset, PhysOffset};

use super::Geometry;

/// Rows of a device, as its geometry and the size of its pages tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Length of a row.
    pub bytes: Bytes,
    /// The file system's address at which the first row begins.
    pub origin: PhysOffset,
}

impl Row {
    /// Longer rows are not aligned to: a move allocates up to a row more than it needs for a moment.
    pub const LONGEST: Bytes = Bytes::mib(4);

    /// The rows of a device with this geometry and pages of `page` bytes; `None` where the geometry is
    /// unknown, where a segment is not a whole number of rows, or where rows are longer than
    /// [`LONGEST`](Self::LONGEST).
    #[must_use]
    pub fn of(geometry: &Geometry, page: Bytes) -> Option<Self> {
        let map = geometry.spread();
        // A granule holds whole pages, or a page whole granules; the mapping of a stripe begins again
        // after one granule on each die.
        let on_unit = match geometry {
            Geometry::Unknown => return None,
            Geometry::Striped { .. } => map.granule,
            Geometry::Zoned { .. } => map.granule.max(page.0),
        };
        let bytes = on_unit.checked_mul(map.lanes)?;
        let whole_pages = on_unit.is_multiple_of(map.granule)
            && (on_unit.is_multiple_of(page.0.max(1)) || page.0.is_multiple_of(on_unit));
        let is_usable = (1..=Self::LONGEST.0).contains(&bytes);
        (is_usable && whole_pages && map.period.is_multiple_of(bytes)).then_some(Self {
            bytes: Bytes(bytes),
            origin: PhysOffset(map.origin),
        })
    }

    /// How far after `phys` the first place is that is congruent to `file`: as far into a row as `file`
    /// is in the file.
    #[must_use]
    pub fn shift(&self, phys: PhysOffset, file: FileOffset) -> Bytes {
        let row = self.bytes.0;
        let on_device = (phys.0 % row + row - self.origin.0 % row) % row;
        Bytes((file.0 % row + row - on_device) % row)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(geometry: &str, page_kib: u64) -> Option<u64> {
        let row = Row::of(&geometry.parse().unwrap(), Bytes::kib(page_kib))?;
        Some(row.bytes.0 >> 10)
    }

    #[test]
    fn a_row_is_the_same_page_of_every_unit() {
        assert_eq!(row("unknown", 16), None);
        // InDeF's device: four blocks of 4 KiB are a page of 16 KiB.
        assert_eq!(row("zoned:chips=16,block=4KiB", 16), Some(256));
        assert_eq!(row("zoned:chips=16,block=16KiB", 16), Some(256));
        assert_eq!(row("zoned:chips=4,block=32KiB", 16), Some(128));
        assert_eq!(row("zoned:chips=16,segment-chips=8", 16), Some(128));
        assert_eq!(row("striped:granule=32KiB,dies=8", 16), Some(256));
        assert_eq!(row("striped:granule=4KiB,dies=8", 16), Some(32));
        // Pages that end in the middle of a granule, or rows in the middle of a segment.
        assert_eq!(row("zoned:chips=4,block=24KiB,segment=96KiB", 16), None);
        assert_eq!(row("zoned:chips=16,block=4KiB,segment=64KiB", 16), None);
        assert_eq!(row("striped:granule=64KiB,dies=64", 16), Some(4096));
        assert_eq!(row("striped:granule=64KiB,dies=65", 16), None);
    }

    #[test]
    fn the_shift_leads_to_a_congruent_place() {
        let rows = Row {
            bytes: Bytes(100),
            origin: PhysOffset(30),
        };
        for phys in [0, 29, 30, 31, 130, 777] {
            for file in [0, 1, 99, 100, 250] {
                let shift = rows.shift(PhysOffset(phys), FileOffset(file)).0;
                assert!(shift < 100);
                assert_eq!(
                    (phys + shift + 1000 - 30) % 100,
                    file % 100,
                    "{phys} {file}"
                );
            }
        }
    }
}
