//! DoLF over a whole file, as sequential reads of one size would meet it.

use units::Bytes;

use super::Layout;

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
    }
}
