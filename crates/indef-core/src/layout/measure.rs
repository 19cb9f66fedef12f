//! Degrees of fragmentation of a range: DoLF, DoPF, device requests; and DoF of a file.
//!
//! Definitions:
//! - A *fragment* is a run of extents that touch. Promise 3 of the project ("never more fragments")
//!   counts all of them.
//! - DoLF counts only those that a read fetches from the device: fragments of unwritten blocks and
//!   of inline data are left out.
//! - Encoded (compressed) extents are at most 128 KiB long on the file systems that have them, so for
//!   DoLF a full one counts as continued by the next extent: no relocation could join them. Only
//!   shorter ones are fragments. The fewest fragments of a piece with encoded bytes are counted
//!   accordingly.
//! - DoPF leaves out encoded and unplaced extents, whose bytes lie at unknown places, and bytes
//!   outside of the device that the geometry describes.

use units::{Bytes, FileOffset, FileRange};

use super::{
    Extent, ExtentFlags, FragmentCount, FragmentCounter, Geometry, Layout, count::ENCODED_MAX,
};

/// The degrees of fragmentation of a range.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Fragmentation {
    /// Degree of logical fragmentation: fragments inside the range (InDeF §II-A).
    pub dolf: u64,
    /// Degree of physical fragmentation (InDeF §II-A, eq. 1), in blocks²; 0 without a geometry.
    pub dopf: f64,
    /// Requests that the device gets for reading the range once.
    pub requests: u64,
}

impl Layout {
    /// Measure a range. A device request is never longer than `max_request`.
    #[must_use]
    pub fn measure(
        &self,
        range: FileRange,
        geometry: &Geometry,
        max_request: Bytes,
    ) -> Fragmentation {
        let scan = self.scan(range, geometry, max_request);
        Fragmentation {
            dolf: scan.dolf,
            dopf: scan.dopf,
            requests: scan.requests,
        }
    }

    /// The fewest fragments that the file can have: runs of extents without a hole between them, at
    /// least 1 if there is any. A run of encoded extents needs one for each 128 KiB.
    #[must_use]
    pub fn ideal_fragments(&self) -> u64 {
        let whole = FileRange::between(FileOffset(0), FileOffset(u64::MAX));
        self.count(whole).pieces
    }

    /// Degree of fragmentation of the file: its fragments ÷ the fewest possible; 1 if it has none.
    #[must_use]
    pub fn dof(&self) -> f64 {
        match self.ideal_fragments() {
            0 => 1.0,
            ideal => self.fragments() as f64 / ideal as f64,
        }
    }

    /// Everything that a decision about a range needs, in one pass over its extents.
    pub(crate) fn scan(&self, range: FileRange, geometry: &Geometry, max_request: Bytes) -> Scan {
        let mut pass = MeasurePass {
            scan: Scan::default(),
            max_request: max_request.0.max(1),
            previous: None,
            fragment_has_data: false,
            piece_has_data: false,
            request_bytes: 0,
        };
        let mut counter = FragmentCounter::new(range);
        let mut spread = geometry.spread();
        for (whole, before) in self.meeting(range) {
            counter.add(whole, before);
            let Some(part) = whole.clip(range) else {
                continue;
            };
            if is_placed(&part) {
                pass.scan.placed += Bytes(spread.add(part.phys.0, part.len.0));
            }
            pass.visit(whole, part);
        }
        pass.end_request();
        pass.scan.count = counter.count();
        pass.scan.dopf = spread.dopf();
        pass.scan
    }
}

const NOT_PLACED: ExtentFlags = ExtentFlags::ENCODED.union(ExtentFlags::UNPLACED);

/// Whether reading it reaches the device's data blocks.
fn is_data(extent: &Extent) -> bool {
    !extent
        .flags
        .intersects(ExtentFlags::UNWRITTEN | ExtentFlags::INLINE)
}

/// Whether it counts for DoPF.
pub(super) fn is_placed(extent: &Extent) -> bool {
    is_data(extent) && !extent.flags.intersects(NOT_PLACED)
}

impl Layout {
    /// The fragments of data inside `range` that lie on the device as they are: neighbours that touch are one.
    pub(crate) fn placed_fragments(&self, range: FileRange) -> impl Iterator<Item = Extent> + '_ {
        let mut parts = self.clipped(range).filter(is_placed).peekable();
        std::iter::from_fn(move || {
            let mut fragment = parts.next()?;
            while let Some(part) = parts.next_if(|part| fragment.touches(part)) {
                fragment.len += part.len;
            }
            Some(fragment)
        })
    }
}

/// The findings of one pass over a range.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Scan {
    /// All fragments.
    pub(crate) count: FragmentCount,
    /// Fragments that a read fetches.
    pub(crate) dolf: u64,
    /// The smallest possible DoLF.
    pub(crate) ideal_dolf: u64,
    /// DoPF.
    pub(crate) dopf: f64,
    /// Device requests.
    pub(crate) requests: u64,
    /// Written, allocated bytes.
    pub(crate) written: Bytes,
    /// Those of them that count for DoPF.
    pub(crate) placed: Bytes,
    /// All flags seen.
    pub(crate) flags: ExtentFlags,
    /// Whether full encoded extents were counted as continued.
    pub(crate) encoded_joints: bool,
}

struct MeasurePass<'a> {
    scan: Scan,
    max_request: u64,
    /// The previous extent, whole and clipped.
    previous: Option<(&'a Extent, Extent)>,
    /// Whether the fragment (for DoLF) and the hole-free piece under way have been counted.
    fragment_has_data: bool,
    piece_has_data: bool,
    request_bytes: u64,
}

impl<'a> MeasurePass<'a> {
    fn visit(&mut self, whole: &'a Extent, part: Extent) {
        let neighbour = self.previous.filter(|(_, p)| p.file_end() == part.file);
        let touches = neighbour.is_some_and(|(_, p)| p.touches(&part));
        let joint = neighbour
            .is_some_and(|(p, _)| p.flags.contains(ExtentFlags::ENCODED) && p.len >= ENCODED_MAX);
        if neighbour.is_none() {
            self.piece_has_data = false;
        }
        self.scan.flags |= part.flags;
        self.scan.encoded_joints |= joint && !touches;
        if !touches && !joint {
            self.fragment_has_data = false;
        }
        if is_data(&part) {
            self.scan.written += part.len;
            self.scan.dolf += u64::from(!self.fragment_has_data);
            self.scan.ideal_dolf += u64::from(!self.piece_has_data);
            self.fragment_has_data = true;
            self.piece_has_data = true;
            if !touches {
                self.end_request();
            }
            self.request_bytes += part.len.0;
        } else {
            self.end_request();
        }
        self.previous = Some((whole, part));
    }

    fn end_request(&mut self) {
        self.scan.requests += self.request_bytes.div_ceil(self.max_request);
        self.request_bytes = 0;
    }
}
