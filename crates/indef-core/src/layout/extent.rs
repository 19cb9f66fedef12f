//! Extents and the layout that they form.

use units::{Bytes, FileOffset, FileRange, PhysOffset};

bitflags::bitflags! {
    /// Properties of an extent beside its place.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct ExtentFlags: u8 {
        /// Allocated, never written.
        const UNWRITTEN = 1;
        /// Shared with another file (reflink, snapshot).
        const SHARED = 2;
        /// Compressed or otherwise encoded: `phys` and `len` do not map byte to byte.
        const ENCODED = 4;
        /// Data in the inode or metadata.
        const INLINE = 8;
        /// The place is not known (yet): delayed allocation, or the file system does not report it.
        const UNPLACED = 16;
    }
}

/// A run of file bytes in one piece on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Its first offset in the file.
    pub file: FileOffset,
    /// Its first offset on the device.
    pub phys: PhysOffset,
    /// Its length.
    pub len: Bytes,
    /// Its properties.
    pub flags: ExtentFlags,
}

impl Extent {
    /// Its range in the file.
    #[must_use]
    pub const fn range(&self) -> FileRange {
        FileRange {
            start: self.file,
            len: self.len,
        }
    }

    /// The first file offset past it.
    #[must_use]
    pub const fn file_end(&self) -> FileOffset {
        self.range().end()
    }

    /// Whether `next` continues it without a gap in the file and on the device, so that both are
    /// one fragment. Encoded extents never continue each other byte by byte, but compressed
    /// neighbours whose blocks touch are still read in one go: the caller's file system layer
    /// reports their place so that they touch.
    #[must_use]
    pub fn touches(&self, next: &Self) -> bool {
        self.file_end() == next.file
            && self.phys.0.checked_add(self.len.0) == Some(next.phys.0)
            && !(self.flags | next.flags).intersects(ExtentFlags::INLINE | ExtentFlags::UNPLACED)
    }

    /// The part of it inside `range`, if any.
    #[must_use]
    pub fn clip(&self, range: FileRange) -> Option<Self> {
        let part = self.range().intersect(range);
        (!part.is_empty()).then(|| Self {
            file: part.start,
            phys: self.phys + (part.start - self.file),
            len: part.len,
            flags: self.flags,
        })
    }
}

/// All extents of a file, ordered by file offset, without overlap. Holes are the offsets without an
/// extent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    extents: Vec<Extent>,
}

impl Layout {
    /// A layout from extents in any order. Extents that continue each other and have the same flags
    /// become one; empty ones disappear; of two that overlap, the first is cut at the beginning of
    /// the second.
    ///
    /// Works in place, and costs nothing beside one pass where the extents are ordered already, as a
    /// file system reports them: a file may have millions.
    #[must_use]
    pub fn new(mut extents: Vec<Extent>) -> Self {
        extents.retain(|e| !e.len.is_zero());
        if !extents.is_sorted_by_key(|e| e.file) {
            extents.sort_by_key(|e| e.file);
        }
        extents.dedup_by(|next, last| {
            if last.file_end() > next.file {
                last.len = next.file - last.file;
            }
            if last.len.is_zero() {
                *last = *next;
                return true;
            }
            let continued = last.flags == next.flags && last.touches(next);
            if continued {
                last.len += next.len;
            }
            continued
        });
        extents.shrink_to_fit();
        Self { extents }
    }

    /// The extents, ordered.
    #[must_use]
    pub fn extents(&self) -> &[Extent] {
        &self.extents
    }

    /// The extents inside `range`, cut to it.
    pub fn clipped(&self, range: FileRange) -> impl Iterator<Item = Extent> + '_ {
        let first = self
            .extents
            .partition_point(|e| e.file_end() <= range.start);
        self.extents[first..]
            .iter()
            .take_while(move |e| e.file < range.end())
            .filter_map(move |e| e.clip(range))
    }

    /// Allocated bytes.
    #[must_use]
    pub fn allocated(&self) -> Bytes {
        self.extents.iter().map(|e| e.len).sum()
    }

    /// Number of fragments of the whole file.
    #[must_use]
    pub fn fragments(&self) -> u64 {
        count_fragments(self.extents.iter().copied())
    }

    /// Number of fragments inside `range`.
    #[must_use]
    pub fn fragments_in(&self, range: FileRange) -> u64 {
        count_fragments(self.clipped(range))
    }

    /// The layout after the bytes of `range` were moved to the places in `new`. `new` must cover no
    /// more than `range`; bytes that it does not cover become a hole.
    #[must_use]
    pub fn replaced(&self, range: FileRange, new: &Layout) -> Self {
        let before = FileRange::between(FileOffset(0), range.start);
        let behind = FileRange::between(range.end(), FileOffset(u64::MAX));
        Self::new(
            self.clipped(before)
                .chain(new.clipped(range))
                .chain(self.clipped(behind))
                .collect(),
        )
    }
}

/// Number of fragments in a run of ordered extents.
fn count_fragments(extents: impl Iterator<Item = Extent>) -> u64 {
    let mut last: Option<Extent> = None;
    let mut fragments = 0;
    for extent in extents {
        if !last.is_some_and(|l| l.touches(&extent)) {
            fragments += 1;
        }
        last = Some(extent);
    }
    fragments
}
