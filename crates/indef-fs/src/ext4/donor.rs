//! The unlinked file whose blocks are swapped in.
//!
//! Where the device's rows are known, a donor in one piece is lengthened until a part of it begins with
//! a row, and what lies before that is given back before anything is moved. Nothing more is written for
//! it.

use std::{fs::File, path::PathBuf};

use indef_core::{SkipReason, layout::Row};
use linux_abi::fiemap::Mapper;
use rustix::{
    fs::{FallocateFlags, OFlags, fallocate},
    io::Errno,
};
use units::{Bytes, FileOffset, FileRange};

use crate::{
    Refusal, Space, Target,
    aim::{Aim, Kept, LANDINGS},
    cache::page,
    map,
    root::trusted_directory,
    target::unnamed_in,
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

    /// Allocate `len` bytes in `most` pieces outside of the region that is vacated. Blocks inside that the kernel
    /// gives first stay with the donor, before its base, and the donor is kept: nobody else gets them, and the
    /// kernel does not give them again.
    pub(super) fn allocate_outside(
        target: &Target,
        fallbacks: &[PathBuf],
        (aim, kept): (Aim, &Kept),
        (len, most): (Bytes, u64),
        mapper: &mut Mapper,
    ) -> Result<Self, Refusal> {
        let file = create(target, fallbacks)?;
        if !kept.keep(&file) {
            return Err(SkipReason::NoPlace.into());
        }
        let mut part = FileRange::new(0, len.get());
        let mut elsewhere = Vec::new();
        let mut found = Err(SkipReason::NoPlace.into());
        for _ in 0..LANDINGS {
            let FileRange { start, len } = part;
            if let Err(errno) = fallocate(&file, FallocateFlags::empty(), start.get(), len.get()) {
                found = Err(refuse(target, "allocate new blocks", errno));
                break;
            }
            let layout = map(&file, &target.path, part, false, mapper)?;
            if aim.allows(layout.clipped(part)) {
                if layout.fragments() <= most {
                    found = Ok((start - FileOffset(0), layout.fragments()));
                    break;
                }
                elsewhere.push(part);
                if elsewhere.len() == TRIES {
                    break;
                }
            }
            part.start = part.end().align_up(page());
        }
        let punch = FallocateFlags::KEEP_SIZE | FallocateFlags::PUNCH_HOLE;
        for part in elsewhere {
            fallocate(&file, punch, part.start.get(), part.len.get())
                .map_err(|errno| refuse(target, "give back new blocks", errno))?;
        }
        found.map(|(base, fragments)| Self {
            file,
            fragments,
            base,
        })
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

    /// Shorten the donor to `len` bytes.
    pub(super) fn shorten(
        &mut self,
        target: &Target,
        len: Bytes,
        mapper: &mut Mapper,
    ) -> Result<(), Refusal> {
        self.resize(target, len)?;
        let whole = FileRange::new(0, len.get());
        self.fragments = map(&self.file, &target.path, whole, false, mapper)?.fragments();
        Ok(())
    }

    /// Let a donor in one piece begin with a row: allocate as much after it as lies before that, and
    /// give the first bytes back. `false` where the blocks after it are not to be had; it is as before
    /// then, and only blocks that lie after it were freed.
    pub(super) fn shift_to(
        &mut self,
        row: Row,
        target: &Target,
        mapper: &mut Mapper,
    ) -> Result<bool, Refusal> {
        let len = self.len(target)?;
        let mut look = |len: Bytes| {
            let whole = FileRange::new(0, len.get());
            map(&self.file, &target.path, whole, false, mapper)
        };
        let Some(first) = look(len)?.extents().first().map(|extent| extent.phys) else {
            return Ok(false);
        };
        let base = row.shift(first, FileOffset(0));
        if base.is_zero() {
            return Ok(true);
        }
        // The kernel swaps blocks that lie alike in their pages.
        if !base.get().is_multiple_of(page().get()) || !has_plenty(&self.file, base) {
            return Ok(false);
        }
        let grown = fallocate(&self.file, FallocateFlags::empty(), len.get(), base.get());
        if grown.is_err() || look(len + base)?.fragments() != 1 {
            self.resize(target, len)?;
            return Ok(false);
        }
        let flags = FallocateFlags::KEEP_SIZE | FallocateFlags::PUNCH_HOLE;
        fallocate(&self.file, flags, 0, base.get())
            .map_err(|errno| refuse(target, "give back new blocks", errno))?;
        self.base = base;
        Ok(true)
    }

    /// Bytes from its beginning to its end.
    pub(super) fn len(&self, target: &Target) -> Result<Bytes, Refusal> {
        let fail = |error| target.error("look at a donor", None, error);
        Ok(Bytes(self.file.metadata().map_err(fail)?.len()))
    }

    fn resize(&self, target: &Target, len: Bytes) -> Result<(), Refusal> {
        let fail = |error| target.error("give back new blocks", None, error);
        Ok(self.file.set_len(len.get()).map_err(fail)?)
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
