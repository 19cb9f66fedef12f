//! The page cache of the target: an exchange drops it, also one that is refused in the end.

use indef_core::layout::Layout;
use linux_abi::cache::cachestat;
use units::{Bytes, FileOffset, FileRange};

use crate::{CacheRecord, Target, cache::cached_pages};

/// Records are made for windows of this size, so that parts that are not cached take no memory.
const WINDOW: Bytes = Bytes::mib(16);

/// The cached parts of a range.
#[derive(Debug)]
pub(super) struct Cached(Vec<CacheRecord>);

impl Cached {
    /// Look, before anything is dropped, at the parts that have blocks, as they lie in `layout`.
    pub(super) fn of(target: &Target, layout: &Layout, range: FileRange) -> Self {
        if cached_pages(&target.file, range) == Some(0) {
            return Self(Vec::new());
        }
        let windows = windows(layout, range).into_iter();
        let records = windows.map(|window| CacheRecord::of(target, window));
        Self(records.filter(CacheRecord::any).collect())
    }

    /// Begin to read back the parts that are not cached any more.
    pub(super) fn restore(&self, target: &Target) {
        for record in &self.0 {
            record.restore(&target.file);
        }
    }
}

/// Windows with all that has blocks. Holes may be much longer than the data, up to 8 EiB, and are passed over: reading their
/// zeros back takes nothing from the device.
fn windows(layout: &Layout, range: FileRange) -> Vec<FileRange> {
    let (mut windows, mut place) = (Vec::new(), range.start);
    for extent in layout.clipped(range) {
        place = place.max(extent.file);
        while place < extent.file_end() {
            let next = FileOffset(place.get().saturating_add(WINDOW.get())).min(range.end());
            windows.push(FileRange::between(place, next));
            place = next;
        }
    }
    windows
}

/// Whether the range has pages that are to be written back; `None` where the kernel does not say
/// (before Linux 6.5).
pub(super) fn is_dirty(target: &Target, range: FileRange) -> Option<bool> {
    cachestat(&target.file, range.start.get(), range.len.get())
        .ok()
        .map(|pages| pages.nr_dirty + pages.nr_writeback > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_layout::{NONE, layout};

    #[test]
    fn windows_are_where_blocks_are() {
        let (mib, far) = (1 << 20, 1 << 62);
        let file = layout(&[
            (0, 0, mib, NONE),
            (2 * mib, 9 * mib, 30 * mib, NONE),
            (far, 50 * mib, mib, NONE),
        ]);
        let window = |start, len| FileRange::new(start, len);
        let all = FileRange::new(0, far + mib);
        let expected = [
            window(0, 16 * mib),
            window(16 * mib, 16 * mib),
            window(far, mib),
        ];
        assert_eq!(windows(&file, all), expected);
        let part = FileRange::new(3 * mib, 4 * mib);
        assert_eq!(windows(&file, part), [part]);
        assert_eq!(windows(&file, FileRange::new(40 * mib, mib)), []);
    }
}
