//! F2FS: `F2FS_IOC_DEFRAGMENT`, a bounded part of a range at a time.
//!
//! The kernel reads the part into the page cache, makes it dirty and writes it to the end of its
//! log, in one piece as far as free segments are (fs/f2fs/file.c, `f2fs_defragment_range`, v6.1). It
//! holds the inode's lock for the whole call, so a call must be short; it leaves a part alone that
//! is in one piece already, so a call must also be long enough to hold fragments to join. Contents
//! are as safe as with any ordinary overwrite on a log-structured file system: the old blocks stay
//! until a checkpoint or an fsync has the new ones. F2FS flushes a device's volatile cache before a
//! checkpoint counts, but an fsync writes the nodes that point to the new blocks before it flushes
//! (`f2fs_do_sync_file`, fs/f2fs/file.c, v6.12): a power cut in between may lose the blocks and keep
//! the nodes. So a file's moves end with a checkpoint, also if they are stopped or fail in the middle.
//! (Not if this process is killed; then the next checkpoint of the kernel does it.) If one that
//! somebody else asked for has written the nodes, ours finds nothing to do, and that one may have
//! flushed before the blocks were there: an fdatasync follows, which flushes.
//!
//! All files go to the same log, and blocks that are written at the same time take turns in it: two
//! calls side by side would fragment what each of them joins. So there is one call at a time.
//!
//! There is no donor to look at beforehand. A part is given to the kernel only if joining its
//! fragments outweighs the fragments that its two ends would cut, and the ends of sections, wherever in one the log is, so
//! that the file never has more; and only while F2FS has free sections to put it into, as else it would fill holes with it ([`Room`]).
//!
//! A page has its new address before it is written there (`f2fs_do_write_data_page`,
//! fs/f2fs/data.c, v6.12), and a direct read asks only once, before it looks for the address,
//! whether anything is being written: one that comes in between reads the former contents of the
//! new place. So nobody else may have the file open: a lease is held until the moved data is on the
//! device. Whoever opens the file waits for that.
//!
//! Where a page cannot be written to its new place, F2FS writes no checkpoint any more, as for what its garbage collection moves
//! (`f2fs_defragment_range` marks pages like that, fs/f2fs/file.c; `f2fs_write_end_io`, fs/f2fs/data.c, v6.12): all further
//! changes fail, and the next mount finds the old blocks. Until then nothing but the page cache has such a page, so it stays.
//!
//! Needs `CAP_SYS_ADMIN`. Refused by the kernel: atomic and pinned files, compressed ones whose
//! blocks were released, in-place-update mounts.

use std::{
    fs::File,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

use indef_core::SkipReason;
use linux_abi::{cache::write_and_wait, f2fs::defragment};
use rustix::io::Errno;
use units::{Bytes, FileRange, Nanos};

use super::{
    admit, checkpoint, has_none, parts::Parts, room::Room, volume::Volume, without_checkpoint,
};
use crate::{
    CacheRecord, CountedRange, EngineKind, Filesystem, FsError, Moved, RangeCopier, Refusal,
    Relocation, Relocator, Settler, Step, StepLimit, Target,
    hold::{Holds, NAPS},
};

/// Moved data of all files that waits for its writeback.
const SETTLING: Bytes = Bytes::mib(32);

/// The engine for F2FS.
pub(crate) struct F2fsDefragment {
    settler: Settler,
    holds: Holds,
    room: Room,
    section: Bytes,
    /// Held by the one worker that adds to the log.
    log: Mutex<()>,
    /// A checkpoint was refused, as they are off: files stay until one is written again.
    is_off: AtomicBool,
    /// Files of which what had moved was not made durable when their moves were ended early.
    failed: Mutex<Vec<FsError>>,
}

impl F2fsDefragment {
    pub(crate) fn new(fs: &Filesystem) -> Self {
        let volume = Volume::of(fs);
        Self {
            section: volume.section(),
            room: Room::of(volume),
            settler: Settler::new(SETTLING),
            holds: Holds::default(),
            log: Mutex::default(),
            is_off: AtomicBool::new(false),
            failed: Mutex::default(),
        }
    }

    /// Refuse to move more where nothing of it would be durable.
    fn may_move(&self, target: &Target) -> Result<(), Refusal> {
        if !self.is_off.load(Ordering::Relaxed) {
            return Ok(());
        }
        match checkpoint(&target.file) {
            Err(error) if has_none(&error) => Err(SkipReason::CheckpointsOff.into()),
            _ => {
                self.is_off.store(false, Ordering::Relaxed);
                Ok(())
            }
        }
    }
}

impl Relocator for F2fsDefragment {
    fn name(&self) -> &'static str {
        EngineKind::F2fsDefragment.name()
    }

    fn admit(&self, target: &Target) -> Result<(), Refusal> {
        admit(target)
    }

    fn begin<'a>(
        &'a self,
        target: &'a Target,
        ranges: &[CountedRange],
        _copier: &'a dyn RangeCopier,
    ) -> Result<Box<dyn Relocation + 'a>, Refusal> {
        let fail = |error| target.error("look at the file", None, error);
        self.may_move(target)?;
        Ok(Box::new(F2fsRelocation {
            engine: self,
            target,
            file: Arc::new(target.file.try_clone().map_err(fail)?),
            parts: Parts::of(target, ranges, self.section)?,
            moved: false,
        }))
    }

    fn settle(&self) -> Vec<FsError> {
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        let mut failed = std::mem::take(&mut *failed);
        failed.extend(self.settler.finish());
        failed
    }
}

struct F2fsRelocation<'a> {
    engine: &'a F2fsDefragment,
    target: &'a Target,
    file: Arc<File>,
    parts: Parts,
    /// Something was moved, and no checkpoint has followed.
    moved: bool,
}

impl F2fsRelocation<'_> {
    fn rewrite(&mut self, part: FileRange) -> Result<Moved, Refusal> {
        let record = CacheRecord::of(self.target, part);
        let (start, len) = (part.start.get(), part.len.get());
        let turn = self.engine.log.lock();
        let turn = turn.unwrap_or_else(PoisonError::into_inner);
        if self.engine.room.is_short() {
            return Err(SkipReason::NoSpace.into());
        }
        let hold = self.engine.holds.take(self.target, NAPS);
        if !hold.is_leased() {
            return Err(SkipReason::InUse.into());
        }
        let began = Instant::now();
        let rewritten = defragment(&self.target.file, start, len);
        // A call that fails may have moved some of it.
        self.moved |= !matches!(rewritten, Ok(0));
        let written = write_and_wait(&self.target.file, start, len);
        let locked = Nanos::from(began.elapsed());
        drop(hold);
        drop(turn);
        if written.is_ok() {
            let path = self.target.path.clone();
            self.engine.settler.push(&self.file, path, record);
        }
        let bytes = Bytes(rewritten.map_err(|error| self.refuse(part, error))?).min(part.len);
        written.map_err(|error| {
            let place = Some(part.start);
            self.target.unwritten("write back moved data", place, error)
        })?;
        Ok(Moved {
            relocated: bytes,
            host_read: bytes,
            host_written: bytes,
            offloaded: Bytes::ZERO,
            locked,
            locked_bytes: part.len,
            ..Moved::default()
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

    /// Make the new places durable.
    fn finish(&self) -> Result<(), FsError> {
        checkpoint(&self.target.file).map_err(|error| {
            if has_none(&error) {
                self.engine.is_off.store(true, Ordering::Relaxed);
            }
            let source = without_checkpoint(error);
            self.target.error("write a checkpoint", None, source)
        })?;
        let flushed = self.target.file.sync_data();
        flushed.map_err(|error| self.target.error("flush moved data", None, error))
    }
}

impl Drop for F2fsRelocation<'_> {
    fn drop(&mut self) {
        if self.moved {
            // What ended the relocation is reported.
            if let Err(error) = self.finish() {
                let failed = self.engine.failed.lock();
                failed.unwrap_or_else(PoisonError::into_inner).push(error);
            }
        }
    }
}

impl Relocation for F2fsRelocation<'_> {
    fn step(&mut self, limit: StepLimit) -> Result<Step, Refusal> {
        match self.parts.next(self.target, limit.bytes)? {
            Some(part) => Ok(Step::Working(self.rewrite(part.range)?)),
            None if self.moved => {
                self.moved = false;
                self.finish()?;
                Ok(Step::Done(Moved::default()))
            }
            None => Err(SkipReason::NoGain.into()),
        }
    }
}
