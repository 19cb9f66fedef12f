//! Which file lies where on which device, for traces of devices.

use std::path::{Path, PathBuf};

use units::{Bytes, FileOffset, FileRange, PhysOffset};

/// Which file lies where on which device.
#[derive(Clone, Debug, Default)]
pub struct BlockMap {
    files: Vec<PathBuf>,
    extents: Vec<MappedExtent>,
    sorted: bool,
}

#[derive(Clone, Copy, Debug)]
struct MappedExtent {
    /// Major and minor number.
    device: (u32, u32),
    phys: PhysOffset,
    len: Bytes,
    file: usize,
    offset: FileOffset,
}

impl MappedExtent {
    fn end(&self) -> u64 {
        self.phys.0.saturating_add(self.len.0)
    }
}

impl BlockMap {
    /// Add a file; returns the number for [`extent`](Self::extent).
    pub fn file(&mut self, path: PathBuf) -> usize {
        self.files.push(path);
        self.files.len() - 1
    }

    /// Add an extent of a file: where it begins on the device (of the given major and minor number),
    /// and which bytes of the file it holds.
    pub fn extent(&mut self, file: usize, device: (u32, u32), phys: PhysOffset, range: FileRange) {
        self.sorted = false;
        self.extents.push(MappedExtent {
            device,
            phys,
            len: range.len,
            file,
            offset: range.start,
        });
    }

    pub(super) fn sort(&mut self) {
        if !self.sorted {
            self.extents
                .sort_by_key(|extent| (extent.device, extent.phys));
            // From here on, each byte of a device belongs to one file.
            let mut taken = ((0, 0), 0);
            self.extents.retain_mut(|extent| {
                if taken.0 == extent.device {
                    let cut = taken.1.max(extent.phys.0) - extent.phys.0;
                    if cut >= extent.len.0 {
                        return false;
                    }
                    extent.phys = extent.phys + Bytes(cut);
                    extent.offset = extent.offset + Bytes(cut);
                    extent.len -= Bytes(cut);
                }
                taken = (extent.device, extent.end());
                true
            });
            self.sorted = true;
        }
    }

    /// Call `see` with each part of a file that lies there; `false` if none does. A shared extent
    /// counts for the first file.
    pub(super) fn find(
        &self,
        device: (u32, u32),
        start: u64,
        end: u64,
        mut see: impl FnMut(&Path, FileRange),
    ) -> bool {
        let first = self
            .extents
            .partition_point(|extent| (extent.device, extent.end()) <= (device, start));
        let mut from = start;
        let mut found = false;
        let here = |extent: &&MappedExtent| extent.device == device && extent.phys.0 < end;
        for extent in self.extents[first..].iter().take_while(here) {
            let begin = extent.phys.0.max(from);
            let stop = extent.end().min(end);
            if begin >= stop {
                continue;
            }
            let offset = extent.offset.0 + (begin - extent.phys.0);
            if let Some(path) = self.files.get(extent.file) {
                see(path, FileRange::new(offset, stop - begin));
            }
            from = stop;
            found = true;
        }
        found
    }
}
