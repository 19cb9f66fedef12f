//! The target, as the engines see it: whether it can be moved, and the refusal that a failure on
//! it means.

use std::{fs::File, io, os::fd::AsRawFd, path::PathBuf};

use indef_core::{SkipReason, layout::Layout};
use linux_abi::{
    fiemap::Mapper,
    fsxattr::{self, Flags},
    xfs::{XfsGeometry, geometry},
};
use rustix::{
    fs::{Mode, OFlags, open},
    io::Errno,
};
use units::{Bytes, FileOffset, FileRange};

use crate::{Attributes, Refusal, Target, map};

/// The file system's geometry, or why no engine moves the file.
pub(super) fn admit(target: &Target) -> Result<XfsGeometry, Refusal> {
    if target.attributes.contains(Attributes::DAX) {
        return Err(SkipReason::Dax.into());
    }
    if target
        .attributes
        .intersects(Attributes::VERITY | Attributes::ENCRYPTED)
    {
        return Err(SkipReason::Unsupported.into());
    }
    if target.size.is_zero() {
        return Err(SkipReason::Empty.into());
    }
    // Reading would change the access time.
    if !target.noatime {
        return Err(SkipReason::NotPermitted.into());
    }
    let attributes = fsxattr::Attributes::get(&target.file)
        .map_err(|error| refuse(target, "look at the inode", None, error))?;
    // `nodefrag` is the owner's wish, which XFS's own defragmenter follows, too.
    if attributes
        .flags()
        .intersects(Flags::REALTIME | Flags::NODEFRAG)
    {
        return Err(SkipReason::Unsupported.into());
    }
    geometry(&target.file).map_err(|error| refuse(target, "look at the file system", None, error))
}

/// Open the target again, for direct reads that leave its access time alone.
pub(super) fn open_direct(target: &Target) -> Result<File, Refusal> {
    // Not by its name, which may belong to another file by now.
    let path = PathBuf::from(format!("/proc/self/fd/{}", target.file.as_raw_fd()));
    let flags = OFlags::RDONLY | OFlags::DIRECT | OFlags::NOATIME | OFlags::CLOEXEC;
    open(path, flags, Mode::empty())
        .map(File::from)
        .map_err(|errno| refuse(target, "open for direct reading", None, errno.into()))
}

/// The target's layout in a range, written back before if `sync`.
pub(super) fn map_file(target: &Target, range: FileRange, sync: bool) -> Result<Layout, Refusal> {
    map(
        &target.file,
        &target.path,
        range,
        sync,
        &mut Mapper::default(),
    )
}

/// The refusal that a failure means.
pub(super) fn refuse(
    target: &Target,
    operation: &'static str,
    offset: Option<FileOffset>,
    error: io::Error,
) -> Refusal {
    match Errno::from_io_error(&error) {
        Some(Errno::NOSPC) => SkipReason::NoSpace.into(),
        Some(Errno::DQUOT) => SkipReason::QuotaExceeded.into(),
        Some(Errno::ACCESS | Errno::PERM) => SkipReason::NotPermitted.into(),
        Some(Errno::ROFS) => SkipReason::ReadOnlyMount.into(),
        Some(Errno::BUSY) => SkipReason::Changed.into(),
        Some(Errno::TXTBSY) => SkipReason::SwapFile.into(),
        Some(Errno::OPNOTSUPP) => SkipReason::Unsupported.into(),
        // A kernel without this call.
        Some(Errno::NOTTY) => SkipReason::NoEngine.into(),
        _ => target.error(operation, offset, error).into(),
    }
}

/// The refusal that a failure to copy to blocks of the donor means.
pub(super) fn refuse_data(target: &Target, ranges: &[FileRange], error: io::Error) -> Refusal {
    let offset = ranges.first().map(|range| range.start);
    match Errno::from_io_error(&error) {
        Some(Errno::NOSPC) => target.unwritten("copy", offset, error).into(),
        _ => refuse(target, "copy", offset, error),
    }
}

/// The whole file in whole blocks.
pub(super) fn whole(size: Bytes, block_size: Bytes) -> FileRange {
    FileRange::new(0, size.get()).align_outward(block_size)
}

/// How long `work` took: it holds the file's locks.
pub(super) fn timed<T>(work: impl FnOnce() -> T) -> (T, units::Nanos) {
    let begin = std::time::Instant::now();
    let result = work();
    (result, begin.elapsed().into())
}
