//! The unlinked file whose blocks are swapped in.
//!
//! Where the device's rows are known, a donor in one piece is lengthened until a part of it begins with
//! a row, and what lies before and behind that is given back before anything is moved. Nothing more is
//! written for it.

use std::{fs::File, path::PathBuf};

use indef_core::{
    SkipReason,
    layout::{ExtentFlags, Layout, Row},
};
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
    own::make_own,
    root::trusted_directory,
    target::unnamed_in,
};

/// A file without a name (`O_TMPFILE`) that holds blocks in as few pieces as could be had. Nobody
/// else can ever open it, and it is gone when it is closed, also by a crash.
#[derive(Debug)]
pub(super) struct Donor {
    pub(super) file: File,
    /// Where its blocks were before anything was moved.
    layout: Layout,
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
        while best.fragments() > 1 && worse.len() + 1 < TRIES {
            if !has_plenty(&best.file, len) {
                break;
            }
            let Ok(next) = Self::try_once(target, fallbacks, len, mapper) else {
                break;
            };
            let hopeless = next.fragments() > best.fragments() * 4;
            if next.fragments() < best.fragments() {
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
    /// kernel does not give them again. Those outside that are no good are given back.
    ///
    /// As the donor stays long, it is root's own, whoever owns the directory: no group and no project is charged for
    /// it. And the last free blocks are left to others: an allocation that fails for want of space has taken all that
    /// there was (`ext4_alloc_file_blocks`, fs/ext4/extents.c, v6.18).
    pub(super) fn allocate_outside(
        target: &Target,
        fallbacks: &[PathBuf],
        (aim, kept): (Aim, &Kept),
        (len, most): (Bytes, u64),
        mapper: &mut Mapper,
    ) -> Result<Self, Refusal> {
        let file = create(target, fallbacks)?;
        make_own(&file).map_err(|error| target.error("prepare a donor", None, error))?;
        if !kept.keep(&file) {
            return Err(SkipReason::NoPlace.into());
        }
        let mut part = FileRange::new(0, len.get());
        // Blocks outside that are no good: kept until the end, as they would be found again.
        let (mut elsewhere, mut tries) = (Vec::new(), 0);
        let mut found = Err(SkipReason::NoPlace.into());
        for _ in 0..LANDINGS {
            let FileRange { start, len } = part;
            if !leaves_some(&file, len) {
                found = Err(SkipReason::NoSpace.into());
                break;
            }
            if let Err(errno) = fallocate(&file, FallocateFlags::empty(), start.get(), len.get()) {
                elsewhere.push(part);
                found = Err(refuse(target, "allocate new blocks", errno));
                break;
            }
            let layout = map(&file, &target.path, part, false, mapper)?;
            if aim.allows(layout.clipped(part)) {
                if layout.fragments() <= most {
                    found = Ok((start - FileOffset(0), layout));
                    break;
                }
                elsewhere.push(part);
                tries += 1;
                if tries == TRIES {
                    break;
                }
            } else {
                let outside = layout.clipped(part).filter(|extent| aim.allows([*extent]));
                elsewhere.extend(outside.map(|extent| extent.range()));
            }
            part.start = part.end().align_up(page());
        }
        let punch = FallocateFlags::KEEP_SIZE | FallocateFlags::PUNCH_HOLE;
        for part in elsewhere {
            fallocate(&file, punch, part.start.get(), part.len.get())
                .map_err(|errno| refuse(target, "give back new blocks", errno))?;
        }
        found.map(|(base, layout)| Self { file, layout, base })
    }

    fn try_once(
        target: &Target,
        fallbacks: &[PathBuf],
        len: Bytes,
        mapper: &mut Mapper,
    ) -> Result<Self, Refusal> {
        let file = create(target, fallbacks)?;
        // Who works in a group or a project near its limits could write nothing meanwhile. Users cannot make it root's.
        if let Err(error) = make_own(&file) {
            tracing::debug!(%error, "the donor counts in the quotas of its directory");
        }
        fallocate(&file, FallocateFlags::empty(), 0, len.get())
            .map_err(|errno| refuse(target, "allocate new blocks", errno))?;
        let layout = map(&file, &target.path, whole(len), false, mapper)?;
        Ok(Self {
            file,
            layout,
            base: Bytes::ZERO,
        })
    }

    /// Fragments of its blocks.
    pub(super) fn fragments(&self) -> u64 {
        self.layout.fragments()
    }

    /// The parts of `range` of the file that lie in the blocks which the donor had for them, from `place` on.
    pub(super) fn given(
        &self,
        target: &Target,
        range: FileRange,
        place: FileOffset,
        mapper: &mut Mapper,
    ) -> Result<Vec<FileRange>, Refusal> {
        let layout = map(&target.file, &target.path, range, false, mapper)?;
        Ok(given(&self.layout, place + self.base, &layout, range))
    }

    /// Shorten the donor to `len` bytes.
    pub(super) fn shorten(
        &mut self,
        target: &Target,
        len: Bytes,
        mapper: &mut Mapper,
    ) -> Result<(), Refusal> {
        self.resize(target, len)?;
        self.layout = map(&self.file, &target.path, whole(len), false, mapper)?;
        Ok(())
    }

    /// Let a donor in one piece begin with a row: allocate as much after it as lies before that, and give the first
    /// bytes back. Where the blocks after it are not to be had, another one is allocated that is longer by a row, and
    /// cut at both ends. `false` where that is not in one piece either; it is as before then, and only blocks that
    /// others can have were freed.
    pub(super) fn shift_to(
        &mut self,
        row: Row,
        target: &Target,
        fallbacks: &[PathBuf],
        mapper: &mut Mapper,
    ) -> Result<bool, Refusal> {
        let len = self.len(target)?;
        let Some(base) = self.before_row(row, target, mapper)? else {
            return Ok(false);
        };
        if base.is_zero() {
            return Ok(true);
        }
        if !has_plenty(&self.file, base) {
            return Ok(false);
        }
        let grown = fallocate(&self.file, FallocateFlags::empty(), len.get(), base.get());
        if grown.is_ok() {
            let layout = map(&self.file, &target.path, whole(len + base), false, mapper)?;
            if layout.fragments() == 1 {
                self.layout = layout;
                self.start_at(base, target)?;
                return Ok(true);
            }
        }
        self.resize(target, len)?;
        if !has_plenty(&self.file, len + row.bytes) {
            return Ok(false);
        }
        // The blocks of this one stay taken meanwhile: they would be found again.
        let mut longer = match Self::try_once(target, fallbacks, len + row.bytes, mapper) {
            Ok(longer) if longer.fragments() == 1 => longer,
            Ok(_) | Err(Refusal::Skip(_)) => return Ok(false),
            Err(failed) => return Err(failed),
        };
        let Some(base) = longer.before_row(row, target, mapper)? else {
            return Ok(false);
        };
        longer.start_at(base, target)?;
        longer.resize(target, base + len)?;
        *self = longer;
        Ok(true)
    }

    /// Bytes of a donor in one piece before the first place that begins with a row. `None` where there is none.
    fn before_row(
        &self,
        row: Row,
        target: &Target,
        mapper: &mut Mapper,
    ) -> Result<Option<Bytes>, Refusal> {
        let layout = map(
            &self.file,
            &target.path,
            whole(self.len(target)?),
            false,
            mapper,
        )?;
        let first = layout.extents().first().map(|extent| extent.phys);
        let base = first.map(|first| row.shift(first, FileOffset(0)));
        // The kernel swaps blocks that lie alike in their pages.
        Ok(base.filter(|base| base.get().is_multiple_of(page().get())))
    }

    /// Give back the first `base` bytes.
    fn start_at(&mut self, base: Bytes, target: &Target) -> Result<(), Refusal> {
        if !base.is_zero() {
            let flags = FallocateFlags::KEEP_SIZE | FallocateFlags::PUNCH_HOLE;
            fallocate(&self.file, flags, 0, base.get())
                .map_err(|errno| refuse(target, "give back new blocks", errno))?;
        }
        self.base = base;
        Ok(())
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

fn whole(len: Bytes) -> FileRange {
    FileRange::new(0, len.get())
}

/// The parts of `range` of a file that lie where a donor had its blocks from `place` on.
fn given(donor: &Layout, place: FileOffset, file: &Layout, range: FileRange) -> Vec<FileRange> {
    let mut given = Vec::new();
    let len = range.len;
    for had in donor.clipped(FileRange { start: place, len }) {
        let there = FileRange {
            start: range.start + (had.file - place),
            len: had.len,
        };
        let same = file.clipped(there).filter(|extent| {
            !extent.flags.contains(ExtentFlags::UNPLACED)
                && extent.phys == had.phys + (extent.file - there.start)
        });
        given.extend(same.map(|extent| extent.range()));
    }
    given
}

/// Whether there is so much free space that the allocator may be asked for `len` bytes more than are
/// needed.
fn has_plenty(file: &File, len: Bytes) -> bool {
    Space::of(file)
        .is_ok_and(|space| space.free.get() / 2 > len.get().saturating_add(space.total.get() / 20))
}

/// Whether enough is left to others when `len` bytes are taken for a moment.
fn leaves_some(file: &File, len: Bytes) -> bool {
    const LEAST_PCT: f64 = 2.5;
    Space::of(file).is_ok_and(|space| space.allows(len, LEAST_PCT))
}

/// Create a donor in the file's own directory, so that it is allocated near it; else in any of `fallbacks` on the same file
/// system where the user may.
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

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::MetadataExt};

    use linux_abi::{
        ext4::move_extents,
        fsxattr::{Attributes, Flags},
    };
    use rustix::fs::{Gid, Mode, fchmod, fchown, fstat};
    use scratch_fs::{ScratchFs, require};
    use units::PhysRange;

    use super::*;
    use crate::test_layout::{NONE, layout};

    #[test]
    fn what_lies_in_the_donors_blocks_is_found() {
        const UNPLACED: ExtentFlags = ExtentFlags::UNPLACED;
        let donor = layout(&[(0, 5000, 100, NONE), (100, 9000, 100, NONE)]);
        let find = |file: &[(u64, u64, u64, ExtentFlags)]| {
            let found = given(
                &donor,
                FileOffset(40),
                &layout(file),
                FileRange::new(1000, 120),
            );
            let found = found.iter().map(|range| (range.start.0, range.len.0));
            found.collect::<Vec<_>>()
        };
        // All of it, in both fragments of the donor.
        let all = [(1000, 5040, 60, NONE), (1060, 9000, 60, NONE)];
        assert_eq!(find(&all), [(1000, 60), (1060, 60)]);
        // A beginning, a hole, and a part after it.
        let some = [
            (900, 100, 100, NONE),
            (1000, 5040, 20, NONE),
            (1020, 300, 20, NONE),
            (1070, 9010, 30, NONE),
            (1100, 9100, 20, NONE),
        ];
        assert_eq!(find(&some), [(1000, 20), (1070, 30)]);
        // Somewhere in the donor's blocks, but not in its own, and nowhere yet.
        assert_eq!(find(&[(1000, 5041, 50, NONE)]), []);
        assert_eq!(find(&[(1000, 5040, 50, UNPLACED)]), []);
        assert_eq!(find(&[]), []);
    }

    /// A file system that can be filled up.
    fn small() -> Option<ScratchFs> {
        let builder = ScratchFs::builder("ext4", Bytes::mib(64));
        require(builder.mkfs_args(["-m", "0"]).build())
    }

    fn target_in(scratch: &ScratchFs) -> Target {
        let path = scratch.path().join("file");
        fs::write(&path, vec![1; 64 << 10]).unwrap();
        scratch.sync().unwrap();
        Target::open(&path).unwrap()
    }

    /// A donor is kept, whatever became of it: what it holds outside of the region is missing elsewhere for nothing.
    #[test]
    fn loop_a_donor_that_found_no_place_holds_nothing() {
        let Some(scratch) = small() else {
            return;
        };
        let target = target_in(&scratch);
        // What is free lies in holes of 16 KiB.
        let (full, hole) = (File::create(scratch.path().join("full")).unwrap(), 16 << 10);
        let size = scratch.free().unwrap().get() / hole * hole;
        let size = size - (1 << 20);
        fallocate(&full, FallocateFlags::empty(), 0, size).unwrap();
        let punch = FallocateFlags::KEEP_SIZE | FallocateFlags::PUNCH_HOLE;
        for at in (0..size).step_by(2 * hole as usize) {
            fallocate(&full, punch, at, hole).unwrap();
        }
        scratch.sync().unwrap();
        let root = File::open(scratch.path()).unwrap();
        let fs = crate::detect(&root, scratch.path()).unwrap();
        let holes = crate::space_map(&fs).unwrap().free;
        let middle = holes[holes.len() / 2].start;
        let free = scratch.free().unwrap().get();
        let region = PhysRange::between(middle, middle + Bytes::mib(8));
        let nowhere = PhysRange::new(1 << 50, 1 << 20);
        // More than a hole, most of what there is, so that a second try gets no more, and more than there is.
        for len in [2 << 20, free / 4 * 3, free + (1 << 20)] {
            for region in [region, nowhere] {
                let (aim, kept) = (Aim::new(Some(region)), Kept::default());
                let none = Donor::allocate_outside(
                    &target,
                    &[],
                    (aim, &kept),
                    (Bytes(len & !4095), 1),
                    &mut Mapper::default(),
                );
                assert!(matches!(none, Err(Refusal::Skip(_))), "{len}: {none:?}");
                scratch.sync().unwrap();
                let now = crate::space_map(&fs).unwrap().free;
                let outside = |free: &[PhysRange]| -> Bytes {
                    let outside = free.iter().filter(|run| !region.overlaps(**run));
                    outside.map(|run| run.len).sum()
                };
                let (was, is) = (outside(&holes), outside(&now));
                assert!(is + Bytes::kib(128) >= was, "{len}: {was} free, now {is}");
                drop(kept);
                scratch.sync().unwrap();
            }
        }
    }

    /// Free space as long as the donor, with used blocks behind it, and more of it elsewhere.
    #[test]
    fn loop_a_donor_that_cannot_grow_begins_with_a_row_elsewhere() {
        let Some(scratch) = small() else {
            return;
        };
        let target = target_in(&scratch);
        let full = File::create(scratch.path().join("full")).unwrap();
        let size = scratch.free().unwrap().get() - (1 << 20);
        fallocate(&full, FallocateFlags::empty(), 0, size).unwrap();
        let rest = File::create(scratch.path().join("rest")).unwrap();
        let punch = |at: u64, len: u64| {
            let punch = FallocateFlags::KEEP_SIZE | FallocateFlags::PUNCH_HOLE;
            fallocate(&full, punch, at, len).unwrap();
            scratch.sync().unwrap();
        };
        // All that is free but one hole.
        let mut end = 0;
        while fallocate(&rest, FallocateFlags::empty(), end, 4096).is_ok() {
            end += 4096;
        }
        let len = Bytes(257 << 12);
        punch(8 << 20, len.get());
        let mapper = &mut Mapper::default();
        let donor = Donor::try_once(&target, &[], len, mapper).unwrap();
        assert_eq!(donor.fragments(), 1);
        punch(16 << 20, 32 << 20);
        for row in [64 << 10, 256 << 10, 1 << 20] {
            // Never where the donor is: that is in no row's beginning, whatever the file system put first.
            let layout = map(&donor.file, &target.path, whole(len), false, mapper).unwrap();
            let first = layout.extents()[0].phys;
            let row = Row {
                bytes: Bytes(row),
                origin: first + Bytes(8192),
            };
            let mut moved = Donor {
                file: donor.file.try_clone().unwrap(),
                layout: donor.layout.clone(),
                ..donor
            };
            assert!(
                moved.shift_to(row, &target, &[], mapper).unwrap(),
                "{row:?}"
            );
            let part = FileRange::new(moved.base.get(), len.get());
            let layout = map(&moved.file, &target.path, part, false, mapper).unwrap();
            assert_eq!(layout.fragments_in(part), 1);
            let first = layout.clipped(part).next().unwrap();
            assert_eq!(first.file, part.start);
            assert_eq!(row.shift(first.phys, FileOffset(0)), Bytes::ZERO);
            // No more is held than is needed.
            let held = moved.file.metadata().unwrap();
            assert_eq!((held.blocks() * 512, held.len()), (len.get(), part.end().0));
            assert_eq!(donor.len(&target).unwrap(), len);
        }
    }

    /// A directory whose group, and project, whatever is made in it belongs to.
    #[test]
    fn loop_a_donor_is_charged_to_nobody() {
        let builder = ScratchFs::builder("ext4", Bytes::mib(64));
        let projects = builder.clone().mkfs_args(["-O", "project,quota"]);
        // Not every kernel has quotas.
        let built = projects.build().or_else(|_| builder.build());
        let Some(scratch) = require(built) else {
            return;
        };
        let root = File::open(scratch.path()).unwrap();
        let is = Attributes::get(&root).unwrap();
        // FS_XFLAG_PROJINHERIT (linux/fs.h)
        let inherits = Flags::from_bits_retain(0x200);
        let of_project = is.with_flags(is.flags() | inherits).with_project(7);
        let project = if of_project.set(&root).is_ok() { 7 } else { 0 };
        fchown(&root, None, Some(Gid::from_raw(1000))).unwrap();
        fchmod(&root, Mode::from_raw_mode(0o2755)).unwrap();
        let target = target_in(&scratch);
        assert_eq!(target.gid, 1000);
        assert_eq!(Attributes::get(&target.file).unwrap().project(), project);
        let (aim, kept) = (
            Aim::new(Some(PhysRange::new(1 << 50, 1 << 20))),
            Kept::default(),
        );
        let len = Bytes::kib(64);
        let mapper = &mut Mapper::default();
        let outside = Donor::allocate_outside(&target, &[], (aim, &kept), (len, 1), mapper);
        let donors = [Donor::allocate(&target, &[], len, mapper), outside];
        for donor in donors.map(Result::unwrap) {
            assert_eq!(Attributes::get(&donor.file).unwrap().project(), 0);
            assert_eq!(fstat(&donor.file).unwrap().st_gid, 0);
            // The kernel swaps blocks with it all the same.
            let block = target.block_size.get();
            let base = donor.base.get() / block;
            let moved = move_extents(&target.file, &donor.file, 0, base, len.get() / block);
            assert!(moved.result.is_ok(), "{moved:?}");
        }
        assert_eq!(Attributes::get(&target.file).unwrap().project(), project);
    }
}
