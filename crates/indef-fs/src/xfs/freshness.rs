//! Has a file changed since we looked? The measures that make the kernel's check of its times
//! sufficient; the numbers are those of the [module](super).

use std::{
    fs::File,
    hash::{BuildHasher, Hasher, RandomState},
    io,
    os::unix::fs::FileExt,
    thread,
    time::Duration,
};

use indef_core::SkipReason;
use linux_abi::{
    lease::is_sole_opener,
    share::dedupe_range,
    xfs::{Features, Time, XfsGeometry},
};
use rustix::{
    fs::{AtFlags, OFlags, StatxFlags, statx},
    io::Errno,
    time::{ClockId, clock_gettime},
};
use units::Bytes;

use super::{donor::unnamed, file::refuse};
use crate::{Finding, FsError, Refusal, Target, swap::is_swap_file_now};

/// A tick is 10 ms at most (100 Hz). A time stamp that has not passed after several of them lies in
/// the future, and no write of now can repeat it.
const LONGEST_WAIT: Duration = Duration::from_millis(50);

/// The times and the size of a file at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sample {
    pub(super) modified: Time,
    pub(super) changed: Time,
    pub(super) size: Bytes,
}

impl Sample {
    /// Look. Since Linux 6.13 looking also makes the next change get a time of its own.
    pub(super) fn take(target: &Target) -> Result<Self, Refusal> {
        let status = statx(
            &target.file,
            "",
            AtFlags::EMPTY_PATH,
            StatxFlags::BASIC_STATS,
        )
        .map_err(|errno| refuse(target, "look at the file", None, errno.into()))?;
        let time = |t: rustix::fs::StatxTimestamp| Time::new(t.tv_sec, t.tv_nsec);
        Ok(Self {
            modified: time(status.stx_mtime),
            changed: time(status.stx_ctime),
            size: Bytes(status.stx_size),
        })
    }

    /// Wait until a change would get another time than the last one (1). Returns at once if the
    /// last change is not of this very tick.
    pub(super) fn settle(&self) {
        let mut waited = Duration::ZERO;
        let nap = Duration::from_millis(1);
        while waited < LONGEST_WAIT {
            let now = clock_gettime(ClockId::RealtimeCoarse);
            let changed = (self.changed.seconds, i64::from(self.changed.nanos));
            if (now.tv_sec, now.tv_nsec) > changed {
                return;
            }
            thread::sleep(nap);
            waited += nap;
        }
    }

    /// The refusal to report: where the file has changed since a sample that has [settled](Self::settle), that is the reason
    /// of what may be of a change. The times tell it although the file may be as large as before by now: a range past the end
    /// is refused as invalid, before anything else is checked. SWAPEXT tells of a swap file as of inodes that do not fit
    /// (`xfs_ioc_swapext`, fs/xfs/xfs_ioctl.c, v6.12).
    pub(super) fn explain(&self, target: &Target, refusal: Refusal) -> Refusal {
        let may_be_of_change = match &refusal {
            Refusal::Failed(error) => may_be_of_change(error),
            Refusal::Skip(reason) => *reason == SkipReason::Unsupported,
        };
        if !may_be_of_change {
            return refusal;
        }
        match self.verify(target) {
            Err(changed) => changed,
            Ok(()) if is_swap_file_now(target.id) => SkipReason::SwapFile.into(),
            Ok(()) => refusal,
        }
    }

    /// Give up early on a file that has changed.
    pub(super) fn verify(&self, target: &Target) -> Result<(), Refusal> {
        if Self::take(target)? == *self {
            Ok(())
        } else {
            Err(SkipReason::Changed.into())
        }
    }
}

/// Whether it may have failed since the file has a range no more, or a donor does not fit it any more. What a device says
/// counts whatever has become of the file.
fn may_be_of_change(error: &FsError) -> bool {
    match Errno::from_io_error(&error.source) {
        Some(errno) => errno == Errno::INVAL,
        None => {
            error.source.kind() == io::ErrorKind::UnexpectedEof
                || error.finding() == Some(Finding::OtherRanges)
        }
    }
}

/// Whether nobody else has the file open; `false` also where that cannot be found out. Asks more
/// than once: some programs only look at a file, and a process that is just being started holds all
/// files that its parent had open.
pub(super) fn is_sole(target: &Target) -> bool {
    for nap in [0, 1, 2, 4, 8] {
        thread::sleep(Duration::from_millis(nap));
        match is_sole_opener(&target.file) {
            Ok(true) => return true,
            Ok(false) => {}
            Err(error) => {
                tracing::debug!(path = %target.path.display(), %error, "cannot ask for a lease");
                return false;
            }
        }
    }
    false
}

/// Wait for all direct I/O on the file that began before now (3).
///
/// The only operation that does so, changes nothing and needs no privilege is a comparison for
/// deduplication (`generic_remap_file_range_prep`, fs/remap_range.c, v6.1), here with a block of
/// random bytes, so that the two never are equal.
pub(super) fn barrier(target: &Target, geometry: &XfsGeometry) -> Result<(), Refusal> {
    if !geometry.features.contains(Features::REFLINK) || target.size < target.block_size {
        return Err(SkipReason::InUse.into());
    }
    let other = unnamed(target, OFlags::empty())?;
    fill(&other, target.block_size)
        .and_then(|()| dedupe_range(&target.file, 0, &other, 0, target.block_size.get()))
        .map(drop)
        .map_err(|error| refuse(target, "wait for direct I/O", None, error))
}

/// One block that no file has.
fn fill(file: &File, block_size: Bytes) -> io::Result<()> {
    let mut block = vec![0; block_size.get() as usize];
    for word in block.chunks_exact_mut(8).take(4) {
        // Seeded by the system anew for each `RandomState`.
        word.copy_from_slice(&RandomState::new().build_hasher().finish().to_ne_bytes());
    }
    file.write_all_at(&block, 0)
}
