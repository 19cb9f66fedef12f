//! F2FS: `F2FS_IOC_DEFRAGMENT`, a bounded part of a range at a time.
//!
//! The kernel reads the part into the page cache, makes it dirty and writes it to the end of its
//! log, in one piece as far as free segments are (fs/f2fs/file.c, `f2fs_defragment_range`, v6.1). It
//! holds the inode's lock for the whole call, so a call must be short; it leaves a part alone that
//! is in one piece already, so a call must also be long enough to hold fragments to join. Contents
//! are as safe as with any ordinary overwrite on a log-structured file system: the old blocks stay
//! until a checkpoint or an fsync has the new ones.
//!
//! There is no donor to look at beforehand. A part is given to the kernel only if joining its
//! fragments outweighs the fragments that its two ends would cut, so that the file never has more.
//!
//! Needs `CAP_SYS_ADMIN`. Refused by the kernel: atomic and pinned files, compressed ones whose
//! blocks were released, in-place-update mounts.

use std::{collections::VecDeque, fs::File, sync::Arc, time::Instant};

use indef_core::{
    SkipReason,
    layout::{Extent, ExtentFlags},
};
use linux_abi::{cache::start_writeback, f2fs::defragment, fiemap::Mapper};
use rustix::{
    io::Errno,
    thread::{CapabilitySet, capabilities},
};
use units::{Bytes, FileOffset, FileRange, Nanos};

use crate::{
    Attributes, CacheRecord, EngineKind, FsError, Moved, RangeCopier, Refusal, Relocation,
    Relocator, Settler, Step, StepLimit, Target,
    map::{for_each_batch, next_batch},
    survey::{Cursor, Survey, is_written},
};

/// F2FS knows no other block size, and the ioctl no other alignment (`F2FS_BLKSIZE`).
const BLOCK: Bytes = Bytes::kib(4);
/// Moved data of all files that waits for its writeback.
const SETTLING: Bytes = Bytes::mib(32);

/// The engine for F2FS.
pub(crate) struct F2fsDefragment {
    settler: Settler,
}

impl Default for F2fsDefragment {
    fn default() -> Self {
        Self {
            settler: Settler::new(SETTLING),
        }
    }
}

impl Relocator for F2fsDefragment {
    fn name(&self) -> &'static str {
        EngineKind::F2fsDefragment.name()
    }

    fn admit(&self, target: &Target) -> Result<(), Refusal> {
        if target.size.is_zero() {
            return Err(SkipReason::Empty.into());
        }
        if target.attributes.contains(Attributes::VERITY) {
            return Err(SkipReason::Unsupported.into());
        }
        if may_defragment() {
            Ok(())
        } else {
            Err(SkipReason::NotPermitted.into())
        }
    }

    fn cost(&self, target: &Target, ranges: &[FileRange]) -> Bytes {
        let mut mapper = Mapper::default();
        let mut cost = Bytes::ZERO;
        for range in ranges {
            let mut count = |batch: &[Extent]| {
                let written = batch.iter().filter(|extent| is_written(extent));
                cost += written.map(|extent| extent.len).sum();
            };
            let (file, path) = (&target.file, &target.path);
            if for_each_batch(file, path, *range, false, &mut mapper, &mut count).is_err() {
                cost += range.len;
            }
        }
        cost
    }

    fn begin<'a>(
        &'a self,
        target: &'a Target,
        ranges: &[FileRange],
        _copier: &'a dyn RangeCopier,
    ) -> Result<Box<dyn Relocation + 'a>, Refusal> {
        let fail = |error| target.error("look at the file", None, error);
        let size = target.file.metadata().map_err(fail)?.len();
        let ranges = inside(ranges, size);
        if ranges.is_empty() {
            return Err(SkipReason::OutOfRange.into());
        }
        let mut relocation = F2fsRelocation {
            engine: self,
            target,
            file: Arc::new(target.file.try_clone().map_err(fail)?),
            ranges,
            mapper: Mapper::default(),
            moved: false,
        };
        relocation.refuse_contiguous()?;
        Ok(Box::new(relocation))
    }

    fn settle(&self) -> Result<(), FsError> {
        self.settler.finish()
    }
}

/// Where the capabilities cannot be read, the kernel's answer to the ioctl will tell.
fn may_defragment() -> bool {
    capabilities(None).map_or(true, |sets| {
        sets.effective.contains(CapabilitySet::SYS_ADMIN)
    })
}

/// Block-aligned, and not behind the end of a file of `size` bytes.
fn inside(ranges: &[FileRange], size: u64) -> VecDeque<FileRange> {
    let end = FileOffset(size).align_up(BLOCK);
    let file = FileRange::between(FileOffset(0), end);
    let aligned = ranges.iter().map(|range| range.align_outward(BLOCK));
    aligned
        .map(|range| range.intersect(file))
        .filter(|range| !range.is_empty())
        .collect()
}

/// The next part of `range` to be rewritten by one call: `limit` at most, and if possible up to where
/// a fragment begins, so that none is cut. `extents` are the first ones of the range.
fn next_part(range: FileRange, extents: &[Extent], limit: Bytes) -> FileRange {
    let most = (range.start + limit).align_down(BLOCK).min(range.end());
    let most = most.max((range.start + BLOCK).min(range.end()));
    if most == range.end() {
        return range;
    }
    let borders = extents.windows(2).filter(|pair| !pair[0].touches(&pair[1]));
    let border = borders
        .map(|pair| pair[1].file)
        .take_while(|border| *border <= most)
        .last();
    match border {
        Some(border) if border > range.start => FileRange::between(range.start, border),
        _ => FileRange::between(range.start, most),
    }
}

struct F2fsRelocation<'a> {
    engine: &'a F2fsDefragment,
    target: &'a Target,
    file: Arc<File>,
    ranges: VecDeque<FileRange>,
    mapper: Mapper,
    moved: bool,
}

impl F2fsRelocation<'_> {
    /// Leave ranges out that hold nothing to join.
    fn refuse_contiguous(&mut self) -> Result<(), Refusal> {
        let mut reason = SkipReason::Empty;
        let mut fragmented = VecDeque::new();
        for range in &self.ranges {
            let survey = Survey::of(
                self.target,
                *range,
                Cursor::default(),
                true,
                &mut self.mapper,
            )?;
            if survey.is_improved_by(1) {
                fragmented.push_back(*range);
            } else if survey.stretches > 0 {
                reason = SkipReason::Contiguous;
            } else if self.is_inline(*range)? {
                reason = SkipReason::Inline;
            }
        }
        self.ranges = fragmented;
        if self.ranges.is_empty() {
            return Err(reason.into());
        }
        Ok(())
    }

    fn is_inline(&self, range: FileRange) -> Result<bool, Refusal> {
        let (file, path) = (&self.target.file, &self.target.path);
        let mut batch = Vec::new();
        next_batch(file, path, range, false, &mut Mapper::default(), &mut batch)?;
        Ok(batch.iter().any(|e| e.flags.contains(ExtentFlags::INLINE)))
    }

    /// The next part that is worth a call; `None` where there is none left.
    fn next(&mut self, limit: Bytes) -> Result<Option<FileRange>, Refusal> {
        let (file, path) = (&self.target.file, &self.target.path);
        let mut batch = Vec::new();
        while let Some(range) = self.ranges.front().copied() {
            let more = next_batch(file, path, range, false, &mut self.mapper, &mut batch)?;
            let Some(first) = batch.first() else {
                self.pass(more.unwrap_or(range.end()));
                continue;
            };
            let from_data = FileRange::between(first.file, range.end());
            let part = next_part(from_data, &batch, limit);
            self.pass(part.end());
            let survey = Survey::of(
                self.target,
                part,
                Cursor::default(),
                false,
                &mut self.mapper,
            )?;
            if survey.is_improved_by(1) {
                return Ok(Some(part));
            }
        }
        Ok(None)
    }

    fn pass(&mut self, end: FileOffset) {
        if let Some(range) = self.ranges.front_mut() {
            *range = FileRange::between(end, range.end());
            if range.is_empty() {
                self.ranges.pop_front();
            }
        }
    }

    fn rewrite(&mut self, part: FileRange) -> Result<Moved, Refusal> {
        let record = CacheRecord::of(self.target, part);
        let (start, len) = (part.start.get(), part.len.get());
        let began = Instant::now();
        let rewritten = defragment(&self.target.file, start, len);
        let locked = Nanos::from(began.elapsed());
        // An error is reported by whoever waits for it.
        let _ = start_writeback(&self.target.file, start, len);
        let path = self.target.path.clone();
        self.engine.settler.push(&self.file, path, record);
        let bytes = Bytes(rewritten.map_err(|error| self.refuse(part, error))?).min(part.len);
        Ok(Moved {
            relocated: bytes,
            host_read: bytes,
            host_written: bytes,
            offloaded: Bytes::ZERO,
            locked,
            locked_bytes: part.len,
        })
    }

    fn refuse(&self, part: FileRange, error: std::io::Error) -> Refusal {
        match Errno::from_io_error(&error) {
            // Too few free sections to write it in one piece.
            Some(Errno::AGAIN | Errno::NOSPC) => SkipReason::NoSpace.into(),
            Some(Errno::PERM | Errno::ACCESS) => SkipReason::NotPermitted.into(),
            Some(Errno::ROFS) => SkipReason::ReadOnlyMount.into(),
            Some(Errno::TXTBSY) => SkipReason::SwapFile.into(),
            Some(Errno::INVAL | Errno::OPNOTSUPP | Errno::NOTTY) => SkipReason::Unsupported.into(),
            _ => self
                .target
                .error("rewrite a range", Some(part.start), error)
                .into(),
        }
    }

    /// The new places are only found again after a crash once the file's nodes are written.
    fn finish(&self) -> Result<(), Refusal> {
        self.target
            .file
            .sync_data()
            .map_err(|error| self.target.error("fsync", None, error).into())
    }
}

impl Relocation for F2fsRelocation<'_> {
    fn step(&mut self, limit: StepLimit) -> Result<Step, Refusal> {
        match self.next(limit.bytes)? {
            Some(part) => {
                let moved = self.rewrite(part)?;
                self.moved |= !moved.relocated.is_zero();
                Ok(Step::Working(moved))
            }
            None if self.moved => {
                self.finish()?;
                Ok(Step::Done(Moved::default()))
            }
            None => Err(SkipReason::NoGain.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use units::PhysOffset;

    use super::*;

    fn extent(file: u64, phys: u64, len: u64) -> Extent {
        Extent {
            file: FileOffset(file),
            phys: PhysOffset(phys),
            len: Bytes(len),
            flags: ExtentFlags::empty(),
        }
    }

    #[test]
    fn ranges_are_aligned_and_end_with_the_file() {
        let ranges = [
            FileRange::new(5000, 10),
            FileRange::new(8192, 1 << 40),
            FileRange::new(1 << 30, 4096),
        ];
        assert_eq!(
            inside(&ranges, 10_000),
            [FileRange::new(4096, 4096), FileRange::new(8192, 4096)]
        );
        assert!(inside(&ranges, 0).is_empty());
    }

    #[test]
    fn a_part_ends_where_a_fragment_begins() {
        let extents = [
            extent(0, 1 << 20, 8192),
            extent(8192, 9 << 20, 8192),
            extent(16_384, (9 << 20) + 8192, 4096),
            extent(20_480, 5 << 20, 1 << 20),
        ];
        let range = FileRange::new(0, 20_480 + (1 << 20));
        let part = |limit| next_part(range, &extents, Bytes(limit)).len.get();
        assert_eq!(part(12_288), 8192);
        assert_eq!(part(20_480), 20_480);
        assert_eq!(part(1 << 20), 20_480);
        assert_eq!(part(4096), 4096);
        assert_eq!(part(0), 4096, "at least one block");
        assert_eq!(part(1 << 30), range.len.get());
    }

    proptest! {
        #[test]
        fn parts_cover_a_range_without_overlap(
            lens in prop::collection::vec(1u64..40, 1..20),
            limit in 0u64..400_000,
        ) {
            let mut extents = Vec::new();
            let mut at = 0;
            for (i, len) in lens.iter().enumerate() {
                extents.push(extent(at, (i as u64 * 7 % 5) << 30, len * 4096));
                at += len * 4096;
            }
            let mut rest = FileRange::new(0, at);
            while !rest.is_empty() {
                let part = next_part(rest, &extents, Bytes(limit));
                prop_assert_eq!(part.start, rest.start);
                prop_assert!(!part.is_empty() && part.end() <= rest.end());
                prop_assert!(part.len.get() <= limit.max(4096));
                prop_assert_eq!(part.len.get() % 4096, 0);
                rest = FileRange::between(part.end(), rest.end());
                extents.retain(|e| e.file_end() > rest.start);
            }
        }
    }
}
