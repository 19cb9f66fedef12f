//! The donor: an unlinked file whose blocks an engine exchanges for the target's.

use std::{fs::File, io};

use indef_core::{
    SkipReason,
    layout::{ExtentFlags, Layout, Row},
};
use linux_abi::{
    fiemap::Mapper,
    fsxattr::Attributes,
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
    own::{make_own, make_plain},
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

/// A donor for one target. It never has a name, so nothing of it remains.
///
/// It is root's own, where we are root: what it holds counts in nobody's quotas, so that the owners of the target can go
/// on writing, and no limit of theirs is in the way of a move. The kernel counts the blocks that change their owner in an
/// exchange or when they are shared (`xfs_exchmaps_update_quota`, fs/xfs/libxfs/xfs_exchmaps.c;
/// `xfs_reflink_remap_extent`, fs/xfs/xfs_reflink.c, v6.12). Only SWAPEXT demands equal owners: see [`lend`](Self::lend).
#[derive(Debug)]
pub(super) struct Donor<'a> {
    pub(super) file: File,
    target: &'a Target,
    is_kept: bool,
}

/// A donor that has the owners of its target; it is root's own again when this is dropped.
#[derive(Debug)]
pub(super) struct Lent<'a>(&'a File);

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        belong_to_nobody(self.0);
    }
}

/// A file without a name beside the target that counts in nobody's quotas, as far as we may see to that.
pub(super) fn unnamed(target: &Target, flags: OFlags) -> Result<File, Refusal> {
    let fail = |error: io::Error| refuse(target, "make a temporary file", None, error);
    let file = target.unnamed_beside(flags).map_err(|errno| match errno {
        Errno::NOENT | Errno::NOTDIR => SkipReason::Gone.into(),
        // A single file can be mounted into a directory of another file system.
        Errno::XDEV => SkipReason::Unsupported.into(),
        errno => fail(errno.into()),
    })?;
    make_plain(&file).map_err(fail)?;
    belong_to_nobody(&file);
    Ok(file)
}

fn belong_to_nobody(file: &File) {
    // Users cannot make it root's.
    if let Err(error) = make_own(file) {
        tracing::debug!(%error, "a temporary file counts in the quotas of others");
    }
}

impl<'a> Donor<'a> {
    /// Make one, and open it with `flags`.
    pub(super) fn new(target: &'a Target, flags: OFlags) -> Result<Self, Refusal> {
        Ok(Self {
            file: unnamed(target, flags)?,
            target,
            is_kept: false,
        })
    }

    /// Give it the owners of the target for the moment of a SWAPEXT, which refuses others where quotas are on
    /// (`xfs_swap_extents_check_format`, fs/xfs/xfs_bmap_util.c, v6.1 and v6.12). For root no limit is in the way of that
    /// (`xfs_trans_alloc_ichange`, fs/xfs/xfs_trans.c), so for this moment they may have more than they are allowed.
    pub(super) fn lend(&self, geometry: &XfsGeometry) -> Result<Option<Lent<'_>>, Refusal> {
        if !geometry.features.contains(Features::QUOTA) {
            return Ok(None);
        }
        let fail = |error: io::Error| self.refuse("lend the donor to the owners", None, error);
        let lent = Lent(&self.file);
        let status = fstat(&self.file).map_err(|errno| fail(errno.into()))?;
        let (uid, gid) = (self.target.uid, self.target.gid);
        if (status.st_uid, status.st_gid) != (uid, gid) {
            let owner = (Uid::from_raw(uid), Gid::from_raw(gid));
            fchown(&self.file, Some(owner.0), Some(owner.1)).map_err(|errno| fail(errno.into()))?;
        }
        let project = |file| Attributes::get(file).map_err(fail);
        let (wanted, is) = (project(&self.target.file)?.project(), project(&self.file)?);
        if is.project() != wanted {
            is.with_project(wanted).set(&self.file).map_err(fail)?;
        }
        Ok(Some(lent))
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
    ///
    /// An exchange changes both inodes, and the donor has no data to write: what others have written to the file since, and
    /// the device refuses, would end a sync of the file before that of the log (`xfs_file_fsync`, fs/xfs/xfs_file.c, v6.12).
    pub(super) fn settle(&self, span: FileRange) -> Result<(), Refusal> {
        if is_shared(&self.layout(span)?, span) {
            let operation = "make an exchange durable";
            fsync(&self.file).map_err(|errno| self.target.error(operation, None, errno))?;
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
    use std::{
        io::Write,
        os::unix::fs::{FileExt, MetadataExt, chown},
    };

    use linux_abi::{fsxattr::Flags, shutdown, xfs::swap_extents};
    use rustix::fs::{Mode, fchmod, ioctl_ficlone};
    use scratch_fs::{ScratchFs, fill_pool, require};

    use super::*;
    use crate::xfs::{file::map_file, freshness::Sample};

    const OWNER: u32 = 1000;
    const PROJECT: u32 = 7;
    const LEN: u64 = 64 << 10;

    /// In a folder whose group and project whatever is made in it has. The file's owners have the donor for a moment only.
    #[test]
    fn loop_a_donor_is_charged_to_nobody() {
        let Some(scratch) = require(ScratchFs::builder("xfs", Bytes::mib(320)).build()) else {
            return;
        };
        let root = File::open(scratch.path()).unwrap();
        // FS_XFLAG_PROJINHERIT (linux/fs.h)
        let inherits = Flags::from_bits_retain(0x200);
        let is = Attributes::get(&root).unwrap();
        let with = is.with_flags(is.flags() | inherits).with_project(PROJECT);
        with.set(&root).unwrap();
        fchown(&root, None, Some(Gid::from_raw(OWNER))).unwrap();
        fchmod(&root, Mode::from_raw_mode(0o2755)).unwrap();
        let path = scratch.path().join("file");
        std::fs::write(&path, vec![1; LEN as usize]).unwrap();
        chown(&path, Some(OWNER), Some(OWNER)).unwrap();
        scratch.sync().unwrap();
        let target = Target::open(&path).unwrap();
        let mut geometry = linux_abi::xfs::geometry(&target.file).unwrap();
        let donor = Donor::new(&target, OFlags::empty()).unwrap();
        donor.allocate(FileRange::new(0, LEN)).unwrap();
        let owned = || {
            let m = donor.file.metadata().unwrap();
            assert!(m.blocks() * 512 >= LEN, "{} blocks", m.blocks());
            let project = Attributes::get(&donor.file).unwrap().project();
            (m.uid(), m.gid(), project)
        };
        assert_eq!(owned(), (0, 0, 0));
        let flags = Attributes::get(&donor.file).unwrap().flags();
        assert!(flags.contains(Flags::NODEFRAG), "{flags:?}");
        // Who has no quotas does not ask.
        geometry.features.remove(Features::QUOTA);
        assert!(donor.lend(&geometry).unwrap().is_none());
        geometry.features.insert(Features::QUOTA);
        let lent = donor.lend(&geometry).unwrap();
        assert_eq!(owned(), (OWNER, OWNER, PROJECT));
        drop(lent);
        assert_eq!(owned(), (0, 0, 0));
    }

    /// Who shares the old blocks with the donor may write to them once it has gone.
    #[test]
    fn loop_an_exchange_that_is_settled_survives_a_cut() {
        // With reverse mapping the kernel exchanges one extent after the other.
        for features in ["rmapbt=0,reflink=1", "rmapbt=1,reflink=1"] {
            survives_a_cut(features);
        }
    }

    fn survives_a_cut(features: &str) {
        let builder = ScratchFs::builder("xfs", Bytes::mib(320));
        let Some(mut scratch) = require(builder.mkfs_args(["-m", features]).build()) else {
            return;
        };
        let path = scratch.path().join("file");
        let (bytes, whole) = (vec![1; LEN as usize], FileRange::new(0, LEN));
        std::fs::write(&path, &bytes).unwrap();
        let target = Target::open(&path).unwrap();
        let donor = Donor::new(&target, OFlags::empty()).unwrap();
        donor.file.write_all_at(&bytes, 0).unwrap();
        donor.sync().unwrap();
        let copy = File::create(scratch.path().join("copy")).unwrap();
        ioctl_ficlone(&copy, &target.file).unwrap();
        drop(copy);
        scratch.sync().unwrap();
        let new = donor.layout(whole).unwrap();
        let sample = Sample::take(&target).unwrap();
        let (modified, changed) = (sample.modified, sample.changed);
        swap_extents(&target.file, &donor.file, LEN, modified, changed).unwrap();
        donor.settle(whole).unwrap();
        shutdown::without_flush(&target.file).unwrap();
        drop(donor);
        drop(target);
        scratch.remount().unwrap();
        let target = Target::open(&path).unwrap();
        let now = map_file(&target, whole, false).unwrap();
        assert_eq!(now.extents(), new.extents());
        assert_eq!(std::fs::read(&path).unwrap(), bytes);
    }

    /// It makes an exchange durable, and none of what others write to the file.
    #[test]
    fn loop_an_exchange_is_settled_though_the_pool_is_full() {
        let size = Bytes::mib(320);
        let pool = ScratchFs::builder("ext4", size + Bytes::mib(128)).build();
        let Some(pool) = require(pool) else {
            return;
        };
        let thin = ScratchFs::builder("xfs", size).folder(pool.path());
        let Some(mut scratch) = require(thin.build()) else {
            return;
        };
        let path = scratch.path().join("file");
        std::fs::write(&path, vec![1; LEN as usize]).unwrap();
        scratch.sync().unwrap();
        let filler = fill_pool(&mut scratch, &pool, Bytes::ZERO).unwrap();
        let target = Target::open(&path).unwrap();
        let donor = Donor::new(&target, OFlags::empty()).unwrap();
        ioctl_ficlone(&donor.file, &target.file).unwrap();
        let mut other = File::options().append(true).open(&path).unwrap();
        other.write_all(&[2; LEN as usize]).unwrap();
        donor.settle(FileRange::new(0, LEN)).unwrap();
        other.sync_all().unwrap_err();
        std::fs::remove_file(filler).unwrap();
        pool.sync().unwrap();
    }
}
