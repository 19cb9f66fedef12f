//! DoLF and DoPF over a whole file, as sequential reads of one size would meet them.

use units::Bytes;

use super::{
    Geometry, Layout,
    measure::is_placed,
    spread::{Spread, gcd},
};

/// DoLF of all I/O-sized windows of a file that hold extents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WindowedDolf {
    /// Windows that hold extents.
    pub windows: u64,
    /// Sum of their fragments.
    pub fragments: u64,
    /// The most fragments in one of them.
    pub max: u64,
}

impl WindowedDolf {
    /// The mean; 0 without windows.
    #[must_use]
    pub fn mean(&self) -> f64 {
        match self.windows {
            0 => 0.0,
            windows => self.fragments as f64 / windows as f64,
        }
    }
}

impl Layout {
    /// Fragments inside each window of `io_size` bytes from offset 0, in a time that depends on the
    /// number of extents only. Unlike [`super::Fragmentation::dolf`], unwritten fragments count.
    #[must_use]
    pub fn windowed_dolf(&self, io_size: Bytes) -> WindowedDolf {
        let size = io_size.0.max(1);
        let mut sum = WindowedDolf::default();
        // The window that the last extent ended in, and its fragments so far.
        let mut open: Option<(u64, u64)> = None;
        let mut previous = None;
        for extent in self.extents().iter().filter(|e| !e.len.is_zero()) {
            let (first, last) = (extent.file.0 / size, (extent.file_end().0 - 1) / size);
            let continues = previous.is_some_and(|p: super::Extent| p.touches(extent));
            previous = Some(*extent);
            match open {
                Some((window, count)) if window == first => {
                    // A fragment that begins in an earlier window is one of this window, too.
                    let count = count + u64::from(!continues);
                    if first == last {
                        open = Some((window, count));
                        continue;
                    }
                    sum.add(1, count);
                }
                _ => {
                    if let Some((_, count)) = open {
                        sum.add(1, count);
                    }
                    if first == last {
                        open = Some((first, 1));
                        continue;
                    }
                    sum.add(1, 1);
                }
            }
            sum.add(last - first - 1, 1);
            open = Some((last, 1));
        }
        if let Some((_, count)) = open {
            sum.add(1, count);
        }
        sum
    }
}

impl WindowedDolf {
    fn add(&mut self, windows: u64, fragments: u64) {
        if windows > 0 {
            self.windows += windows;
            self.fragments += windows * fragments;
            self.max = self.max.max(fragments);
        }
    }
}

/// DoPF of all I/O-sized windows of a file that hold data at a known place.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct WindowedDopf {
    /// Windows that hold such data; 0 where the geometry is unknown.
    pub windows: u64,
    /// Sum of their DoPF, in blocks².
    pub sum: f64,
    /// The greatest DoPF of one of them.
    pub max: f64,
}

impl WindowedDopf {
    /// The mean; `None` where nothing is known.
    #[must_use]
    pub fn mean(&self) -> Option<f64> {
        (self.windows > 0).then(|| self.sum / self.windows as f64)
    }

    fn add(&mut self, windows: u64, dopf: f64) {
        if windows > 0 {
            self.windows += windows;
            self.sum += windows as f64 * dopf;
            self.max = self.max.max(dopf);
        }
    }
}

impl Layout {
    /// DoPF inside each window of `io_size` bytes from offset 0. Its time depends on the number of
    /// extents, and for long ones on how many places windows have in a segment of the geometry.
    #[must_use]
    pub fn windowed_dopf(&self, io_size: Bytes, geometry: &Geometry) -> WindowedDopf {
        let size = io_size.0.max(1);
        let mut sum = WindowedDopf::default();
        let mut spread = geometry.spread();
        if spread.is_empty() {
            return sum;
        }
        // Windows within one extent have as many different places.
        let places = spread.period / gcd(spread.period, size);
        // The window that is being counted, once it holds something.
        let mut open = None;
        for extent in self.extents().iter().filter(|extent| is_placed(extent)) {
            let unknown = spread.origin.saturating_sub(extent.phys.0);
            let Some(len) = extent.len.0.checked_sub(unknown).filter(|len| *len > 0) else {
                continue;
            };
            let (file, phys) = (extent.file.0 + unknown, extent.phys.0 + unknown);
            let (first, last) = (file / size, (file + len - 1) / size);
            if open != Some(first) {
                sum.close(open.take(), &mut spread);
            }
            let head = len.min((first + 1) * size - file);
            spread.add(phys, head);
            open = Some(first);
            if first == last {
                continue;
            }
            sum.close(open, &mut spread);
            let inside = last - first - 1;
            for place in 0..inside.min(places) {
                spread.add(phys + head + place * size, size);
                let times = inside / places + u64::from(place < inside % places);
                sum.add(times, spread.dopf());
                spread.clear();
            }
            let tail = head + inside * size;
            spread.add(phys + tail, len - tail);
            open = Some(last);
        }
        sum.close(open, &mut spread);
        sum
    }
}

impl WindowedDopf {
    /// The window under way ends.
    fn close(&mut self, open: Option<u64>, spread: &mut Spread) {
        if open.is_some() {
            self.add(1, spread.dopf());
            spread.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use units::{FileOffset, FileRange, PhysOffset};

    use super::*;
    use crate::layout::{Extent, ExtentFlags};

    proptest! {
        #[test]
        fn it_is_the_count_of_every_window(
            pieces in prop::collection::vec((0u64..3, 1u64..40, any::<bool>()), 0..30),
            size in 1u64..20,
        ) {
            let (mut file, mut phys) = (0, 1000);
            let mut extents = Vec::new();
            for (hole, len, jump) in pieces {
                file += hole;
                phys += if jump { 500 } else { 0 };
                extents.push(Extent {
                    file: FileOffset(file),
                    phys: PhysOffset(phys),
                    len: Bytes(len),
                    // Touching neighbours with different flags stay two extents of one fragment.
                    flags: if len % 2 == 0 { ExtentFlags::UNWRITTEN } else { ExtentFlags::empty() },
                });
                file += len;
                phys += len;
            }
            let layout = Layout::new(extents);
            let mut expected = WindowedDolf::default();
            for n in 0..=file / size {
                match layout.fragments_in(FileRange::new(n * size, size)) {
                    0 => {}
                    fragments => expected.add(1, fragments),
                }
            }
            prop_assert_eq!(layout.windowed_dolf(Bytes(size)), expected);
        }

        #[test]
        fn dopf_is_that_of_every_window(
            pieces in prop::collection::vec((0u64..3, 1u64..200, 0u64..400), 0..20),
            size in 1u64..20,
            (chips, span, blocks, offset) in (1u32..9, 1u32..9, 1u64..40, 0u64..300),
        ) {
            let geometry = Geometry::Zoned {
                chips,
                block: Bytes(512),
                segment: Bytes(blocks * 512),
                segment_chips: span.min(chips),
                offset: Bytes(offset * 512),
            };
            let (mut file, mut phys) = (0, 0);
            let mut extents = Vec::new();
            for (hole, len, jump) in pieces {
                file += hole;
                phys += jump;
                extents.push(Extent {
                    file: FileOffset(file * 512),
                    phys: PhysOffset(phys * 512),
                    len: Bytes(len * 512),
                    flags: if len % 5 == 0 { ExtentFlags::UNWRITTEN } else { ExtentFlags::empty() },
                });
                file += len;
                phys += len;
            }
            let layout = Layout::new(extents);
            let mut expected = WindowedDopf::default();
            for n in 0..=file / size {
                let range = FileRange::new(n * size * 512, size * 512);
                let scan = layout.scan(range, &geometry, Bytes(u64::MAX));
                expected.add(u64::from(scan.placed > Bytes::ZERO), scan.dopf);
            }
            let found = layout.windowed_dopf(Bytes(size * 512), &geometry);
            prop_assert_eq!(found.windows, expected.windows);
            prop_assert!((found.sum - expected.sum).abs() < 1e-6 * expected.sum.max(1.0));
            prop_assert!((found.max - expected.max).abs() < 1e-9 * expected.max.max(1.0));
            prop_assert_eq!(layout.windowed_dopf(Bytes(size), &Geometry::Unknown).mean(), None);
        }
    }
}
