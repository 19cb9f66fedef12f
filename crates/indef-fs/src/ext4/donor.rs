//! The unlinked file whose blocks are swapped in.
//!
//! Where the device's rows are known, the donor is allocated a row longer than it needs to be, the part
//! of it that begins with a row is used, and the rest is given back before anything is moved. Nothing
//! more is written for it.

use std::{fs::File, path::PathBuf};

use indef_core::{SkipReason, layout::Row};
use linux_abi::fiemap::Mapper;
use rustix::{
    fs::{FallocateFlags, OFlags, fallocate},
    io::Errno,
};
use units::{Bytes, FileOffset, FileRange};

use crate::{
    Refusal, Space, Target, cache::page, map, root::trusted_directory, target::unnamed_in,
};

/// A file without a name (`O_TMPFILE`) that holds blocks in as few pieces as could be had. Nobody
/// else can ever open it, and it is gone when it is closed, also by a crash.
#[derive(Debug)]
pub(super) struct Donor {
    pub(super) file: File,
    /// Fragments of its blocks.
    pub(super) fragments: u64,
    /// Where the part of it begins that is used.
    pub(super) base: Bytes,
}

/// The allocator does not always find a single piece at once though there is one, since it runs
/// into the superblock copies that lie in some block groups: when it has to leave out the blocks
/// that the last try got, it looks past them.
const TRIES: usize = 6;

impl Donor {
    /// Allocate `len` bytes.
    pub(super) fn allocate(
        target: &Target,
        fallbacks: &[PathBuf],
        len: Bytes,
        mapper: &mut Mapper,
    ) -> Result<Self, Refusal> {
        let mut best = Self::try_once(target, fallbacks, len, mapper)?;
        // Kept until the end: blocks that are freed would be found again.
        let mut worse = Vec::new();
        while best.fragments > 1 && worse.len() + 1 < TRIES {
            if !has_plenty(&best.file, len) {
                break;
            }
            let Ok(next) = Self::try_once(target, fallbacks, len, mapper) else {
                break;
            };
            let hopeless = next.fragments > best.fragments * 4;
            if next.fragments < best.fragments {
                worse.push(std::mem::replace(&mut best, next));
            } else {
                worse.push(next);
            }
            if hopeless {
                break;
            }
        }
        Ok(best)
    }

    fn try_once(
        target: &Target,
        fallbacks: &[PathBuf],
        len: Bytes,
        mapper: &mut Mapper,
    ) -> Result<Self, Refusal> {
        let file = create(target, fallbacks)?;
        fallocate(&file, FallocateFlags::empty(), 0, len.get())
            .map_err(|errno| refuse(target, "allocate new blocks", errno))?;
        let whole = FileRange::new(0, len.get());
        let fragments = map(&file, &target.path, whole, false, mapper)?.fragments();
        Ok(Self {
            file,
            fragments,
            base: Bytes::ZERO,
        })
    }

    /// Allocate `len` bytes in one piece that begins with a row. `None` where the file system does not
    /// have it, or has little space.
    pub(super) fn allocate_on_row(
        target: &Target,
        fallbacks: &[PathBuf],
        len: Bytes,
        row: Row,
        mapper: &mut Mapper,
    ) -> Result<Option<Self>, Refusal> {
        let padded = len + row.bytes;
        let file = create(target, fallbacks)?;
        if !has_plenty(&file, padded)
            || fallocate(&file, FallocateFlags::empty(), 0, padded.get()).is_err()
        {
            return Ok(None);
        }
        let whole = FileRange::new(0, padded.get());
        let layout = map(&file, &target.path, whole, false, mapper)?;
        let Some(first) = layout.extents().first().filter(|_| layout.fragments() == 1) else {
            return Ok(None);
        };
        let base = row.shift(first.phys, FileOffset(0));
        // The kernel swaps blocks that lie alike in their pages.
        if !base.get().is_multiple_of(page().get()) {
            return Ok(None);
        }
        let used = FileRange::new(base.get(), len.get());
        for rest in [
            FileRange::between(FileOffset(0), used.start),
            FileRange::between(used.end(), whole.end()),
        ] {
            if !rest.is_empty() {
                let flags = FallocateFlags::KEEP_SIZE | FallocateFlags::PUNCH_HOLE;
                fallocate(&file, flags, rest.start.get(), rest.len.get())
                    .map_err(|errno| refuse(target, "give back new blocks", errno))?;
            }
        }
        Ok(Some(Self {
            file,
            fragments: 1,
            base,
        }))
    }
}

/// Whether there is so much free space that the allocator may be asked for `len` bytes more than are
/// needed.
fn has_plenty(file: &File, len: Bytes) -> bool {
    Space::of(file)
        .is_ok_and(|space| space.free.get() / 2 > len.get().saturating_add(space.total.get() / 20))
}

/// Create a donor in the file's own directory, so that it is allocated near it and inherits the
/// same project; else in any of `fallbacks` on the same file system where the user may.
pub(super) fn create(target: &Target, fallbacks: &[PathBuf]) -> Result<File, Refusal> {
    let mut refusal = None;
    let own = std::iter::once_with(|| target.unnamed_beside(OFlags::empty()));
    let others = fallbacks.iter().map(|path| {
        let directory = trusted_directory(path, target.id.dev)?;
        unnamed_in(directory, OFlags::empty())
    });
    for made in own.chain(others) {
        match made {
            Ok(file) => return Ok(file),
            Err(Errno::XDEV) => {}
            Err(errno) => {
                refusal.get_or_insert(errno);
            }
        }
    }
    let errno = refusal.unwrap_or(Errno::XDEV);
    Err(match errno {
        // The directory was renamed, is another by now, or cannot be written.
        Errno::NOENT | Errno::NOTDIR | Errno::XDEV | Errno::OPNOTSUPP | Errno::ISDIR => {
            SkipReason::NotPermitted.into()
        }
        errno => refuse(target, "create a donor", errno),
    })
}

/// The refusal that an errno about the donor means for the file.
pub(super) fn refuse(target: &Target, operation: &'static str, errno: Errno) -> Refusal {
    match errno {
        Errno::NOSPC => SkipReason::NoSpace.into(),
        Errno::DQUOT => SkipReason::QuotaExceeded.into(),
        Errno::ACCESS | Errno::PERM => SkipReason::NotPermitted.into(),
        Errno::ROFS => SkipReason::ReadOnlyMount.into(),
        Errno::OPNOTSUPP => SkipReason::Unsupported.into(),
        Errno::TXTBSY => SkipReason::SwapFile.into(),
        errno => target.error(operation, None, errno).into(),
    }
}
