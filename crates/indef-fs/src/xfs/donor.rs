//! The donor: an unlinked file whose blocks an engine exchanges for the target's.

use std::{fs::File, io};

use indef_core::{
    SkipReason,
    layout::{ExtentFlags, Layout, Row},
};
use linux_abi::{
    fiemap::Mapper,
    fsxattr::{Attributes, Flags},
    xfs::{Features, XfsGeometry, fork_offset},
};
use rustix::{
    fs::{
        FallocateFlags, Gid, OFlags, Uid, XattrFlags, fallocate, fchown, fdatasync, fsetxattr,
        fstat, fsync,
    },
    io::Errno,
};
use units::{Bytes, FileOffset, FileRange, PhysOffset};

use super::{
    file::{refuse, whole},
    select::others,
};
use crate::{
    Refusal, Target,
    aim::{Aim, Kept},
    map,
    own::make_own,
    survey::Cursor,
};

/// `sizeof(struct xfs_dinode)`: the part of an inode before extents and attributes
/// (fs/xfs/libxfs/xfs_format.h, v6.1).
const INODE_CORE: u32 = 176;

/// Room for extents in an inode that was created with attributes (`xfs_default_attroffset`,
/// fs/xfs/libxfs/xfs_bmap.c, v6.1).
const USUAL_ROOM: u16 = 192;

/// `xfs_attr_sf_hdr` and the fixed part of `xfs_attr_sf_entry`.
const ATTRIBUTE_HEADERS: usize = 4 + 3;

const ATTRIBUTE: &str = "user.r";

/// A donor for one target: the same owner and project (quotas demand it). It
/// never has a name, so nothing of it remains.
///
/// One that is [kept](Self::keep) holds the blocks that its file has left. While the file moves, its owner is charged
/// for both, as for any move. After that the donor is made root's own, or all that moves would count twice in its
/// owners' quotas until a whole region is empty, and they could write nothing for as long.
#[derive(Debug)]
pub(super) struct Donor<'a> {
    pub(super) file: File,
    target: &'a Target,
    is_kept: bool,
}

impl Drop for Donor<'_> {
    fn drop(&mut self) {
        if self.is_kept
            && let Err(error) = make_own(&self.file)
        {
            tracing::debug!(%error, "the owner stays charged for a donor that is kept");
        }
    }
}

impl<'a> Donor<'a> {
    /// Make one, and open it with `flags`.
    pub(super) fn new(
        target: &'a Target,
        geometry: &XfsGeometry,
        flags: OFlags,
    ) -> Result<Self, Refusal> {
        let fail = |error: io::Error| refuse(target, "make a donor", None, error);
        let file = target.unnamed_beside(flags).map_err(|errno| match errno {
            Errno::NOENT | Errno::NOTDIR => SkipReason::Gone.into(),
            // A single file can be mounted into a directory of another file system.
            Errno::XDEV => SkipReason::Unsupported.into(),
            errno => fail(errno.into()),
        })?;
        let status = fstat(&file).map_err(|errno| fail(errno.into()))?;
        if (status.st_uid, status.st_gid) != (target.uid, target.gid) {
            let owner = (Uid::from_raw(target.uid), Gid::from_raw(target.gid));
            match fchown(&file, Some(owner.0), Some(owner.1)) {
                // It matters to quotas only.
                Err(Errno::PERM) if !geometry.features.contains(Features::QUOTA) => {}
                result => result.map_err(|errno| fail(errno.into()))?,
            }
        }
        like(&file, &target.file).map_err(fail)?;
        Ok(Self {
            file,
            target,
            is_kept: false,
        })
    }

    /// Keep the blocks that it has now and gets later. `false` where that is not possible.
    pub(super) fn keep(&mut self, kept: &Kept) -> bool {
        self.is_kept = self.is_kept || kept.keep(&self.file);
        self.is_kept
    }

    /// Leave the donor's inode as much room for extents as the target's has. Without reverse
    /// mapping the kernel exchanges the contents of the inodes as they are, which must fit; where a
    /// file has (or once had) extended attributes, these begin somewhere in the inode, and end that
    /// room.
    ///
    /// An attribute that is set first gets the bytes that it needs, and leaves the rest to the
    /// extents (`xfs_attr_shortform_bytesfit`, fs/xfs/libxfs/xfs_attr_leaf.c, v6.1).
    pub(super) fn match_room(&self, geometry: &XfsGeometry) {
        // Only root may ask; most files have the room that the kernel gives to new ones.
        let room = fork_offset(&self.target.file, self.target.id.inode).unwrap_or(USUAL_ROOM);
        let literal = geometry.inode_size.saturating_sub(INODE_CORE);
        let around = ATTRIBUTE_HEADERS + ATTRIBUTE.len() - "user.".len();
        let length = (literal as usize).saturating_sub(room as usize + around);
        // Best effort: if the inodes do not fit, the exchange is refused and nothing is lost.
        let set = fsetxattr(
            &self.file,
            ATTRIBUTE,
            &vec![0; length.min(255)],
            XattrFlags::empty(),
        );
        tracing::debug!(room, length, ?set, "the donor gets room for extents");
    }

    /// Set the size for the time in which the donor is filled: that of the target in whole blocks.
    pub(super) fn open_up(&self, size: Bytes) -> Result<(), Refusal> {
        self.set_size(whole(size, self.target.block_size).len)
    }

    /// Set the size of the donor.
    pub(super) fn set_size(&self, size: Bytes) -> Result<(), Refusal> {
        self.file
            .set_len(size.get())
            .map_err(|error| self.refuse("resize the donor", None, error))
    }

    /// Allocate `range`, in one piece if the file system has one.
    pub(super) fn allocate(&self, range: FileRange) -> Result<(), Refusal> {
        self.fallocate(FallocateFlags::KEEP_SIZE, range)
    }

    /// Allocate `range`; congruently to the `row`s of the device, where these are known and there is room.
    ///
    /// XFS aligns no allocation to a row (an extent size hint aligns to the file: `xfs_bmap_extsize_align`,
    /// fs/xfs/libxfs/xfs_bmap.c, v6.18). So as much is allocated after the range as lies before a congruent
    /// place, and that is taken out of the donor: what lies after it moves up. Only where nothing past the
    /// range is allocated yet, as that would move, too.
    pub(super) fn allocate_in_row(
        &self,
        range: FileRange,
        row: Option<Row>,
    ) -> Result<(), Refusal> {
        self.allocate(range)?;
        let Some(row) = row else {
            return Ok(());
        };
        // Its place, if it lies in one piece and is the last one.
        let place = |range: FileRange| -> Result<Option<PhysOffset>, Refusal> {
            let rest = FileRange::between(range.start, FileOffset(u64::MAX));
            let layout = self.layout(rest)?;
            let allocated = allocated_runs(&layout, rest) == [range];
            let is_one = allocated && layout.fragments_in(rest) == 1;
            let first = layout.clipped(rest).next();
            Ok(first.filter(|_| is_one).map(|extent| extent.phys))
        };
        let Some(first) = place(range)? else {
            return Ok(());
        };
        let here = row.bytes - row.shift(first, FileOffset(0));
        let gap = Cursor::in_rows(here, range, row.bytes).donor_len() - here;
        if gap.is_zero() || !gap.get().is_multiple_of(self.target.block_size.get()) {
            return Ok(());
        }
        let more = FileRange {
            start: range.end(),
            len: gap,
        };
        let longer = FileRange {
            len: range.len + gap,
            ..range
        };
        let is_longer = self.allocate(more).is_ok() && place(longer)?.is_some();
        if !is_longer || !self.take_out(longer, gap)? {
            self.release(more)?;
        }
        Ok(())
    }

    /// Take the first `gap` bytes of `range` out of the donor, so that the others move up; `false` where the
    /// kernel cannot.
    fn take_out(&self, range: FileRange, gap: Bytes) -> Result<bool, Refusal> {
        let fail = |error| self.refuse("look at the donor", None, error);
        let size = Bytes(self.file.metadata().map_err(fail)?.len());
        // Blocks past the end would be given back (`xfs_prepare_shift`, fs/xfs/xfs_bmap_util.c, v6.18).
        self.set_size(size.max(Bytes(range.end().get())))?;
        let first = FileRange { len: gap, ..range };
        let done = self.fallocate(FallocateFlags::COLLAPSE_RANGE, first);
        if let Err(refusal) = &done {
            tracing::debug!(%refusal, "the donor stays off the device's rows");
        }
        self.set_size(size)?;
        Ok(done.is_ok())
    }

    /// Allocate `range` so that it reads as zeros because the device holds zeros, which the device
    /// has written itself; `false` where the file system, the kernel (`FALLOC_FL_WRITE_ZEROES`, Linux
    /// 6.17) or the device cannot.
    pub(super) fn allocate_written(&self, range: FileRange) -> bool {
        let write_zeroes = FallocateFlags::from_bits_retain(0x80);
        let done = self.fallocate(write_zeroes, range);
        if let Err(refusal) = &done {
            tracing::debug!(%refusal, "the device does not write zeros for the file system");
        }
        done.is_ok()
    }

    /// Where a region is vacated and some of `runs` lie in it: keep these blocks, so that the next donor gets
    /// others, and give all others back. `false` where there is nothing to keep, or it cannot be kept.
    pub(super) fn keep_landed(
        &mut self,
        runs: &[FileRange],
        new: &Layout,
        aim: Aim,
        kept: &Kept,
    ) -> Result<bool, Refusal> {
        let (outside, landed): (Vec<&FileRange>, Vec<_>) =
            runs.iter().partition(|run| aim.allows(new.clipped(**run)));
        if landed.is_empty() || !self.keep(kept) {
            return Ok(false);
        }
        for run in outside {
            self.release(*run)?;
        }
        Ok(true)
    }

    /// Tell other defragmenters to leave it alone: they find files by their numbers, too.
    pub(super) fn leave_alone(&self) -> Result<(), Refusal> {
        Attributes::get(&self.file)
            .and_then(|is| is.with_flags(is.flags() | Flags::NODEFRAG).set(&self.file))
            .map_err(|error| self.refuse("protect the donor", None, error))
    }

    /// Give the blocks of `range` back.
    pub(super) fn release(&self, range: FileRange) -> Result<(), Refusal> {
        self.fallocate(
            FallocateFlags::KEEP_SIZE | FallocateFlags::PUNCH_HOLE,
            range,
        )
    }

    /// After an exchange that is durable where it has to be, give back the blocks that it got, in our
    /// turn: the kernel would do it in the background, beside the next exchange. If it fails, they go
    /// with the donor.
    pub(super) fn give_back(&self, range: FileRange) {
        if let Err(refusal) = self.release(range) {
            tracing::debug!(%refusal, "the donor keeps its blocks for a while");
        }
    }

    /// Give back the blocks that are written inside `span` and in none of `wanted` (ordered,
    /// disjoint): an earlier try copied them.
    pub(super) fn keep_written(
        &self,
        span: FileRange,
        wanted: &[FileRange],
    ) -> Result<(), Refusal> {
        let layout = self.layout(span)?;
        for gap in others(wanted, span) {
            for stale in runs(&layout, gap, true) {
                self.release(stale)?;
            }
        }
        Ok(())
    }

    fn fallocate(&self, flags: FallocateFlags, range: FileRange) -> Result<(), Refusal> {
        fallocate(&self.file, flags, range.start.get(), range.len.get())
            .map_err(|errno| self.refuse("allocate the donor", Some(range.start), errno.into()))
    }

    /// Where its blocks are.
    pub(super) fn layout(&self, range: FileRange) -> Result<Layout, Refusal> {
        map(
            &self.file,
            &self.target.path,
            range,
            true,
            &mut Mapper::default(),
        )
    }

    /// Wait until its data is on the device.
    pub(super) fn sync(&self) -> Result<(), Refusal> {
        let unwritten = |errno: Errno| self.target.unwritten("sync the donor", None, errno.into());
        Ok(fdatasync(&self.file).map_err(unwritten)?)
    }

    /// After an exchange of `span`, before the donor gives back the blocks that it got: make the
    /// exchange durable where they are shared with somebody else. See (5) in the module.
    pub(super) fn settle(&self, span: FileRange) -> Result<(), Refusal> {
        if is_shared(&self.layout(span)?, span) {
            fsync(&self.target.file)
                .map_err(|errno| self.refuse("make an exchange durable", None, errno.into()))?;
        }
        Ok(())
    }

    /// The refusal that a failure on the donor means.
    pub(super) fn refuse(
        &self,
        operation: &'static str,
        offset: Option<FileOffset>,
        error: io::Error,
    ) -> Refusal {
        refuse(self.target, operation, offset, error)
    }
}

/// Give the new file the project of the target, and take away the properties that it inherits from
/// its directory and that an exchange would trip over: real-time data, extent size hints.
fn like(donor: &File, target: &File) -> io::Result<()> {
    let (wanted, is) = (Attributes::get(target)?, Attributes::get(donor)?);
    let inherited = Flags::REALTIME | Flags::EXTSIZE | Flags::COWEXTSIZE;
    if is.project() == wanted.project() && !is.flags().intersects(inherited) {
        return Ok(());
    }
    is.with_flags(is.flags() - inherited)
        .without_hints()
        .with_project(wanted.project())
        .set(donor)
}

/// The runs of bytes inside `range` that are all written, or all unwritten, ordered.
pub(super) fn runs(layout: &Layout, range: FileRange, written: bool) -> Vec<FileRange> {
    join(layout, range, |flags| {
        flags.contains(ExtentFlags::UNWRITTEN) != written
    })
}

/// The runs of allocated bytes inside `range`, ordered.
pub(super) fn allocated_runs(layout: &Layout, range: FileRange) -> Vec<FileRange> {
    join(layout, range, |_| true)
}

/// Whether somebody else shares some of it.
pub(super) fn is_shared(layout: &Layout, range: FileRange) -> bool {
    let mut extents = layout.clipped(range);
    extents.any(|extent| extent.flags.contains(ExtentFlags::SHARED))
}

fn join(layout: &Layout, range: FileRange, wanted: impl Fn(ExtentFlags) -> bool) -> Vec<FileRange> {
    let mut runs: Vec<FileRange> = Vec::new();
    for extent in layout.clipped(range).filter(|e| wanted(e.flags)) {
        match runs.last_mut() {
            Some(last) if last.end() == extent.file => last.len += extent.len,
            _ => runs.push(extent.range()),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, chown};

    use scratch_fs::{ScratchFs, require};

    use super::*;

    const OWNER: u32 = 1000;
    const PROJECT: u32 = 7;
    const LEN: u64 = 64 << 10;

    /// While its file moves, a donor has the file's owner; what is kept of it afterwards is root's.
    #[test]
    fn loop_a_donor_that_is_kept_is_charged_to_nobody() {
        let Some(scratch) = require(ScratchFs::builder("xfs", Bytes::mib(320)).build()) else {
            return;
        };
        let path = scratch.path().join("file");
        std::fs::write(&path, vec![1; LEN as usize]).unwrap();
        chown(&path, Some(OWNER), Some(OWNER)).unwrap();
        let file = File::open(&path).unwrap();
        let of_project = Attributes::get(&file).unwrap().with_project(PROJECT);
        of_project.set(&file).unwrap();
        scratch.sync().unwrap();
        let target = Target::open(&path).unwrap();
        let geometry = linux_abi::xfs::geometry(&file).unwrap();
        let owned = |file: &File| {
            let m = file.metadata().unwrap();
            assert!(m.blocks() * 512 >= LEN, "{} blocks", m.blocks());
            let project = Attributes::get(file).unwrap().project();
            (m.uid(), m.gid(), project)
        };
        for is_kept in [false, true] {
            let mut donor = Donor::new(&target, &geometry, OFlags::empty()).unwrap();
            donor.allocate(FileRange::new(0, LEN)).unwrap();
            let held = donor.file.try_clone().unwrap();
            if is_kept {
                assert!(donor.keep(&Kept::default()));
            }
            assert_eq!(owned(&held), (OWNER, OWNER, PROJECT));
            drop(donor);
            let then = match is_kept {
                true => (0, 0, 0),
                false => (OWNER, OWNER, PROJECT),
            };
            assert_eq!(owned(&held), then);
        }
    }
}
