//! FIEMAP into a [`Layout`]: where a file's bytes lie.
//!
//! The kernel's reports are taken with care, since they go into arithmetic: an extent that
//! overflows is cut or has no place, one without length is passed over, and a kernel that reports
//! the same place for ever ends the mapping.
//!
//! Compressed extents (Btrfs) have the length of the file range, but only the beginning of their
//! place: their length on the device is not reported (fs/btrfs/extent_io.c, v6.1). One that begins
//! inside the span that its neighbour would have if it were uncompressed follows that directly or
//! nearly so, is read in the same go, and so is reported as touching it.

use std::{fs::File, io, path::Path};

use indef_core::{
    SkipReason,
    layout::{Extent, ExtentFlags, Layout},
};
use linux_abi::fiemap::{self, Mapper, RawExtent};
use units::{Bytes, FileOffset, FileRange, PhysOffset};

use crate::{FsError, Refusal};

/// File offsets are signed 64-bit numbers in the kernel.
const MAX_OFFSET: u64 = i64::MAX as u64;

/// The extents of `range`. With `sync`, data that is only in memory is written back before, so that
/// every byte has a place.
///
/// # Errors
///
/// [`SkipReason::NoEngine`] where the file system has no FIEMAP, else the failure.
pub fn map(
    file: &File,
    path: &Path,
    range: FileRange,
    sync: bool,
    into: &mut Mapper,
) -> Result<Layout, Refusal> {
    let mut extents = Vec::new();
    for_each_batch(file, path, range, sync, into, |batch| {
        extents.extend_from_slice(batch)
    })?;
    join_encoded(&mut extents);
    Ok(Layout::new(extents))
}

/// As [`map`], for ranges of which not everything shall be kept: `visit` gets the extents in
/// order, a batch at a time, clipped to `range`, not joined.
pub(crate) fn for_each_batch(
    file: &File,
    path: &Path,
    range: FileRange,
    sync: bool,
    mapper: &mut Mapper,
    mut visit: impl FnMut(&[Extent]),
) -> Result<(), Refusal> {
    let mut rest = range;
    let mut sync = sync;
    let mut batch = Vec::new();
    while !rest.is_empty() {
        let more = next_batch(file, path, rest, sync, mapper, &mut batch)?;
        sync = false;
        visit(&batch);
        match more {
            Some(behind) => rest = FileRange::between(behind, range.end()),
            None => break,
        }
    }
    Ok(())
}

/// The first extents of `range`, at most [`fiemap::BATCH`], into `batch`. Returns where to go on,
/// if there may be more.
pub(crate) fn next_batch(
    file: &File,
    path: &Path,
    range: FileRange,
    sync: bool,
    mapper: &mut Mapper,
    batch: &mut Vec<Extent>,
) -> Result<Option<FileOffset>, Refusal> {
    batch.clear();
    let offset = range.start.get();
    let end = range.end().get().min(MAX_OFFSET);
    if offset >= end {
        return Ok(None);
    }
    let flags = if sync { fiemap::FLAG_SYNC } else { 0 };
    let raws = mapper
        .batch(file, offset, end - offset, flags)
        .map_err(|source| refuse(path, offset, source))?;
    let inside = FileRange::between(range.start, FileOffset(end));
    batch.extend(raws.iter().filter_map(|raw| sanitize(raw)?.clip(inside)));
    Ok(raws.last().and_then(|last| {
        let behind = last.logical.saturating_add(last.length);
        let more = behind > offset && last.flags & fiemap::ExtentFlags::LAST.bits() == 0;
        more.then_some(FileOffset(behind))
    }))
}

fn refuse(path: &Path, offset: u64, source: io::Error) -> Refusal {
    match rustix::io::Errno::from_io_error(&source) {
        Some(
            rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOTTY | rustix::io::Errno::NOSYS,
        ) => Refusal::Skip(SkipReason::NoEngine),
        _ => Refusal::Failed(FsError {
            path: path.to_owned(),
            operation: "map extents",
            offset: Some(FileOffset(offset)),
            source,
        }),
    }
}

/// An extent that arithmetic can rely on.
fn sanitize(raw: &RawExtent) -> Option<Extent> {
    let len = raw.length.min(MAX_OFFSET.checked_sub(raw.logical)?);
    let mut flags = extent_flags(raw.flags);
    let mut phys = raw.physical;
    if phys.checked_add(len).is_none() {
        flags |= ExtentFlags::UNPLACED;
    }
    if flags.contains(ExtentFlags::UNPLACED) {
        phys = 0;
    }
    (len > 0).then_some(Extent {
        file: FileOffset(raw.logical),
        phys: PhysOffset(phys),
        len: Bytes(len),
        flags,
    })
}

fn extent_flags(raw: u32) -> ExtentFlags {
    use fiemap::ExtentFlags as Raw;
    let raw = Raw::from_bits_retain(raw);
    let mut flags = ExtentFlags::empty();
    flags.set(ExtentFlags::UNWRITTEN, raw.contains(Raw::UNWRITTEN));
    flags.set(ExtentFlags::SHARED, raw.contains(Raw::SHARED));
    flags.set(ExtentFlags::ENCODED, raw.contains(Raw::ENCODED));
    flags.set(
        ExtentFlags::INLINE,
        raw.intersects(Raw::DATA_INLINE | Raw::DATA_TAIL),
    );
    flags.set(
        ExtentFlags::UNPLACED,
        raw.intersects(Raw::UNKNOWN | Raw::DELALLOC),
    );
    flags
}

/// Let compressed neighbours touch that are read in one go (see the module's text).
pub(crate) fn join_encoded(extents: &mut [Extent]) {
    let mut previous: Option<(Extent, PhysOffset)> = None;
    for extent in extents {
        let reported = extent.phys;
        if let Some((last, last_reported)) = previous {
            let both = last.flags & extent.flags;
            let distance = reported.get().wrapping_sub(last_reported.get());
            if both.contains(ExtentFlags::ENCODED)
                && last.file_end() == extent.file
                && (1..=last.len.get()).contains(&distance)
                && let Some(place) = last.phys.get().checked_add(last.len.get())
                && place.checked_add(extent.len.get()).is_some()
            {
                extent.phys = PhysOffset(place);
            }
        }
        previous = Some((*extent, reported));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn flags_of_the_kernel_become_ours() {
        for (raw_flags, flags) in [
            (0x800, ExtentFlags::UNWRITTEN),
            (0x2000, ExtentFlags::SHARED),
            (0x8, ExtentFlags::ENCODED),
            (0x200 | 0x100, ExtentFlags::INLINE),
            (0x2 | 0x4, ExtentFlags::UNPLACED),
            (0x2, ExtentFlags::UNPLACED),
            (0x1 | 0x1000, ExtentFlags::empty()),
        ] {
            assert_eq!(extent_flags(raw_flags), flags, "{raw_flags:#x}");
        }
    }

    #[test]
    fn compressed_neighbours_are_one_fragment_and_distant_ones_are_not() {
        let encoded = |file, phys| sanitize(&RawExtent::new(file, phys, 131_072, 0x8)).unwrap();
        let mut extents = vec![
            encoded(0, 1_000_000),
            encoded(131_072, 1_040_960),
            encoded(262_144, 1_081_920),
            encoded(393_216, 9_000_000),
            encoded(524_288, 9_000_000),
        ];
        join_encoded(&mut extents);
        assert_eq!(Layout::new(extents).fragments(), 3);
    }

    proptest! {
        #[test]
        fn nothing_that_a_kernel_could_report_overflows(
            raws in prop::collection::vec((any::<u64>(), any::<u64>(), any::<u64>(), any::<u32>()), 0..8),
        ) {
            let mut extents: Vec<_> = raws
                .into_iter()
                .filter_map(|(l, p, n, f)| sanitize(&RawExtent::new(l, p, n, f)))
                .collect();
            for e in &extents {
                prop_assert!(e.phys.get().checked_add(e.len.get()).is_some());
                prop_assert!(e.file.get() + e.len.get() <= MAX_OFFSET);
            }
            join_encoded(&mut extents);
            let _ = Layout::new(extents).fragments();
        }
    }
}
