//! F2FS: `F2FS_IOC_OFFLOAD` of a patched kernel (`kernel/f2fs`), which has the device copy.
//!
//! The kernel allocates a contiguous place in a log that nothing else writes to, has the data
//! copied there (In_Device_Defragment, NVMe Copy, or a copy by the host, as the device allows; data
//! that is dirty in the page cache is written from memory), and then lets the file point to it.
//! Until a checkpoint, which comes at the end of a run or when F2FS makes one, the old blocks stay
//! as they are, and a power cut brings them back: contents are the same before and after.
//!
//! The page cache is not touched, except where the host has to copy.
//!
//! Needs `CAP_SYS_ADMIN`, and F2FS on a zoned device (`mode=lfs`). Where the kernel or the device
//! cannot, [`F2fsDefragment`](super::F2fsDefragment) is the engine to fall back to.

use std::{
    collections::BTreeSet,
    fs::File,
    io,
    os::fd::AsFd,
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use indef_core::SkipReason;
use linux_abi::f2fs::offload::{
    Capability, Flags, MAX_RANGES, MAX_STEP_BLOCKS, Range, RangeOutcome, Report, Status, Steps,
    Way, offload, offload_in_steps,
};
use rustix::io::Errno;
use units::{Bytes, FileRange};

use super::{
    BLOCK, admit,
    batch::{Answer, Batches, Request, step_of},
    checkpoint, has_none,
    parts::{Part, Parts},
    volume::Volume,
    without_checkpoint,
};
use crate::{
    CacheRecord, CountedRange, EngineKind, EngineOptions, Filesystem, Finding, FsError, Moved,
    RangeCopier, Refusal, Relocation, Relocator, Settler, Step, StepLimit, Target, error::finding,
};

/// Host copies that wait for their writeback.
const SETTLING: Bytes = Bytes::mib(32);
/// The least that a step moves, however short it is to be: below that the time of a call hardly
/// depends on the bytes, and a part so short that it holds no two fragments would stay as it is.
const LEAST: Bytes = Bytes::mib(1);
/// Relocations that make a call together: between two commands the device has nothing to do, and
/// files are small.
const GATHERED: usize = 32;
/// Parts of one file in one call.
const PARTS: usize = MAX_RANGES / 4;

/// The engine for F2FS on zoned devices.
pub(crate) struct F2fsOffload {
    way: Way,
    section: Bytes,
    /// Locks that are held longer are counted.
    stall_ns: u64,
    batches: Batches,
    settler: Settler,
    relocations: AtomicU64,
    /// What is durable with the next checkpoint.
    moved: Mutex<Uncommitted>,
}

/// Files that have moved, and the last one of them: through it the file system is told to write a checkpoint.
#[derive(Default)]
struct Uncommitted {
    last: Option<Arc<File>>,
    paths: BTreeSet<PathBuf>,
}

impl F2fsOffload {
    /// Find out whether kernel and device can offload.
    ///
    /// # Errors
    ///
    /// [`SkipReason::NoOffload`] where they cannot, or a missing privilege.
    pub(crate) fn new(fs: &Filesystem, options: &EngineOptions) -> Result<Self, Refusal> {
        let Capability { way, logs, .. } = capability(fs)?;
        tracing::info!(?way, logs, "data of F2FS is moved by its offload");
        Ok(Self {
            way,
            section: Volume::of(fs).section(),
            stall_ns: u64::try_from(options.max_stall.as_nanos()).unwrap_or(u64::MAX),
            batches: Batches::new(logs),
            settler: Settler::new(SETTLING),
            relocations: AtomicU64::new(0),
            moved: Mutex::default(),
        })
    }

    /// Make one call for all of these requests. Where there was no room, make another one after a
    /// checkpoint: that frees the old places of data that was moved before.
    fn call(&self, requests: &[Request], log: u32) -> io::Result<Report> {
        let ranges: Vec<Range<'_>> = requests
            .iter()
            .flat_map(|request| {
                let file = request.file.as_fd();
                request.parts.iter().map(move |part| Range {
                    file,
                    start: part.range.start.get(),
                    len: part.range.len.get(),
                })
            })
            .collect();
        let Some(first) = requests.first() else {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        };
        let steps = Steps {
            blocks: blocks_of(step_of(requests)),
            stall_ns: self.stall_ns,
            log,
        };
        let call = |ranges| offload_in_steps(&first.file, ranges, Flags::empty(), steps);
        let mut report = call(&ranges)?;
        let left = left(&report);
        if left.is_empty() {
            return Ok(report);
        }
        if log > 0 {
            // A section of the first log may have room.
            self.batches.close(log);
            for at in left {
                report.ranges[at].status = Status::NotReached;
            }
            return Ok(report);
        }
        // The data moved by the first call counts, however the second one ends.
        let rest: Vec<Range<'_>> = left.iter().map(|&at| ranges[at]).collect();
        let again = self.commit_all(&first.file).and_then(|()| call(&rest));
        Ok(match again {
            Ok(rest) => join(report, &left, rest),
            Err(error) => {
                tracing::warn!(%error, "no room, and none after a checkpoint");
                report
            }
        })
    }

    fn note_moved(&self, file: &Arc<File>, target: &Target) {
        let mut moved = self.moved.lock().unwrap_or_else(PoisonError::into_inner);
        moved.last = Some(Arc::clone(file));
        if !moved.paths.contains(&target.path) {
            moved.paths.insert(target.path.clone());
        }
    }

    /// Make all that has moved so far durable.
    fn commit_all(&self, file: &File) -> io::Result<()> {
        let moved = || self.moved.lock().unwrap_or_else(PoisonError::into_inner);
        let paths = std::mem::take(&mut moved().paths);
        commit(file).inspect_err(|_| moved().paths.extend(paths))
    }
}

/// The ranges that are to be tried again as there was no room for one of them: those for which there was
/// none, and those that were not reached.
fn left(report: &Report) -> Vec<usize> {
    let is = |wanted: fn(&Status) -> bool| {
        let ranges = report.ranges.iter().enumerate();
        ranges.filter(move |(_, range)| wanted(&range.status))
    };
    if is(|status| *status == Status::NoSection).next().is_none() {
        return Vec::new();
    }
    is(|status| matches!(status, Status::NoSection | Status::NotReached))
        .map(|(at, _)| at)
        .collect()
}

/// Join two reports, the second one of these ranges of the first.
fn join(mut first: Report, left: &[usize], second: Report) -> Report {
    for (&at, again) in left.iter().zip(second.ranges) {
        let range = &mut first.ranges[at];
        let before = range.moved;
        *range = RangeOutcome {
            moved: before + again.moved,
            // The first call may have done all there was to do.
            status: match again.status {
                Status::Contiguous if before > 0 => Status::Done,
                status => status,
            },
        };
    }
    first.bytes_in_device += second.bytes_in_device;
    first.bytes_copied += second.bytes_copied;
    first.bytes_host += second.bytes_host;
    first.bytes_from_memory += second.bytes_from_memory;
    first.commands += second.commands;
    first.bus_bytes += second.bus_bytes;
    first.steps += second.steps;
    if second.locked_ns > first.locked_ns {
        (first.locked_ns, first.locked_blocks) = (second.locked_ns, second.locked_blocks);
    }
    first.stalls += second.stalls;
    first
}

/// The blocks of a step that moves at most this many bytes.
fn blocks_of(bytes: Bytes) -> u32 {
    (bytes.get() / BLOCK.get()).clamp(1, MAX_STEP_BLOCKS.into()) as u32
}

/// Make moved data durable, and the old places free.
fn commit(file: &File) -> io::Result<()> {
    let Err(error) = offload(file, &[], Flags::CHECKPOINT) else {
        return Ok(());
    };
    match Errno::from_io_error(&error) {
        // This kernel wants ranges, or checkpoints are off: a sync writes all of the file system, and the other call tells.
        Some(Errno::INVAL | Errno::OPNOTSUPP) => {
            rustix::fs::syncfs(file)?;
            checkpoint(file)
        }
        Some(Errno::ROFS) => Err(Finding::ReadOnlyNow.into()),
        _ => Err(error),
    }
}

/// How data would be moved on this file system: not by [`Way::None`].
fn capability(fs: &Filesystem) -> Result<Capability, Refusal> {
    let Some(mount) = &fs.mount else {
        return Err(SkipReason::NoOffload.into());
    };
    let fail = |error| FsError::new(&mount.point, "ask for the offload of F2FS", error);
    let root = match mount.open(fs.dev) {
        Ok(root) => root,
        // Something else is mounted over it.
        Err(Errno::XDEV) => return Err(SkipReason::NoOffload.into()),
        Err(errno) => return Err(fail(errno.into()).into()),
    };
    // With all that calls have: a module that is older than that refuses both.
    let steps = Steps {
        blocks: 1,
        stall_ns: 1,
        log: 0,
    };
    let query = offload_in_steps(&root, &[], Flags::QUERY, steps);
    match query.map(|report| report.capability) {
        Ok(capability) if capability.way == Way::None => Err(SkipReason::NoOffload.into()),
        Ok(capability) => Ok(capability),
        Err(error) => Err(match Errno::from_io_error(&error) {
            Some(Errno::NOTTY | Errno::OPNOTSUPP | Errno::INVAL | Errno::TOOBIG) => {
                SkipReason::NoOffload.into()
            }
            Some(Errno::PERM | Errno::ACCESS) => SkipReason::NotPermitted.into(),
            Some(Errno::ROFS) => SkipReason::ReadOnlyMount.into(),
            _ => fail(error).into(),
        }),
    }
}

impl Relocator for F2fsOffload {
    fn name(&self) -> &'static str {
        EngineKind::F2fsOffload.name()
    }

    fn admit(&self, target: &Target) -> Result<(), Refusal> {
        admit(target)
    }

    fn gathers(&self) -> usize {
        GATHERED
    }

    fn begin<'a>(
        &'a self,
        target: &'a Target,
        ranges: &[CountedRange],
        _copier: &'a dyn RangeCopier,
    ) -> Result<Box<dyn Relocation + 'a>, Refusal> {
        let fail = |error| target.error("look at the file", None, error);
        let file = Arc::new(target.file.try_clone().map_err(fail)?);
        let parts = Parts::of(target, ranges, self.section)?;
        self.batches.enter();
        Ok(Box::new(OffloadRelocation {
            engine: self,
            target,
            file,
            parts,
            id: self.relocations.fetch_add(1, Ordering::Relaxed),
            moved: false,
            refused: None,
        }))
    }

    fn settle(&self) -> Vec<FsError> {
        let mut failed = self.settler.finish();
        let mut moved = self.moved.lock().unwrap_or_else(PoisonError::into_inner);
        let Uncommitted { last, paths } = std::mem::take(&mut *moved);
        drop(moved);
        if let Some(file) = last
            && let Err(error) = commit(&file)
        {
            failed.extend(uncommitted(paths, error));
        }
        failed
    }
}

/// The failure to write a checkpoint, for each file that it concerns.
fn uncommitted(paths: BTreeSet<PathBuf>, error: io::Error) -> impl Iterator<Item = FsError> {
    let finding = finding(&error);
    let again = move || match (finding, error.raw_os_error()) {
        (Some(finding), _) => Finding::into(finding),
        (None, Some(number)) => io::Error::from_raw_os_error(number),
        (None, None) => error.kind().into(),
    };
    let failed =
        move |path: PathBuf| FsError::new(path, "write a checkpoint", without_checkpoint(again()));
    paths.into_iter().map(failed)
}

struct OffloadRelocation<'a> {
    engine: &'a F2fsOffload,
    target: &'a Target,
    file: Arc<File>,
    parts: Parts,
    /// Its number.
    id: u64,
    moved: bool,
    /// Why nothing more is moved; reported once the data moved before is accounted for.
    refused: Option<Refusal>,
}

impl OffloadRelocation<'_> {
    /// The parts that the next call moves: one that has to be cut, or as many as fit uncut.
    fn next(&mut self, limit: Bytes) -> Result<Vec<Part>, Refusal> {
        let mut parts: Vec<Part> = self.parts.next(self.target, limit)?.into_iter().collect();
        let Some(Part {
            continues: false,
            range,
        }) = parts.first().copied()
        else {
            return Ok(parts);
        };
        let mut left = limit.saturating_sub(range.len);
        while parts.len() < PARTS {
            let Some(part) = self.parts.next_whole(self.target, left)? else {
                break;
            };
            left = left.saturating_sub(part.range.len);
            parts.push(part);
            if part.continues {
                break;
            }
        }
        Ok(parts)
    }

    fn offload(&mut self, parts: Vec<Part>, limit: Bytes) -> Result<Moved, Refusal> {
        // Only the host's copies go through the page cache.
        let records: Vec<CacheRecord> = match self.engine.way {
            Way::Host => parts
                .iter()
                .map(|part| CacheRecord::of(self.target, part.range))
                .collect(),
            _ => Vec::new(),
        };
        let request = Request {
            relocation: self.id,
            file: Arc::clone(&self.file),
            parts: parts.clone(),
            limit,
        };
        let answer = self
            .engine
            .batches
            .submit(request, &|requests, log| self.engine.call(requests, log));
        for record in records {
            let path = self.target.path.clone();
            self.engine.settler.push(&self.file, path, record);
        }
        let Answer { outcomes, moved } = answer.map_err(|error| self.call_failed(error))?;
        // From the last to the first, so that parts that are put back are in order again.
        for (part, outcome) in parts.into_iter().zip(&outcomes).rev() {
            match self.refusal(part.range, outcome.status) {
                Ok(true) => {}
                Ok(false) => self.parts.put_back(part),
                Err(refusal) => self.refused = Some(refusal),
            }
        }
        if !moved.relocated.is_zero() {
            self.moved = true;
            self.engine.note_moved(&self.file, self.target);
        }
        Ok(moved)
    }

    /// `true` where the part is dealt with, `false` where it is to be tried again; else why it
    /// cannot be moved.
    fn refusal(&self, part: FileRange, status: Status) -> Result<bool, Refusal> {
        let skip = |reason: SkipReason| Err(reason.into());
        match status {
            Status::Done | Status::Contiguous | Status::Hole => Ok(true),
            Status::NotReached | Status::Interrupted => Ok(false),
            Status::NotRegular => skip(SkipReason::NotRegular),
            // The file is shorter than a moment ago.
            Status::Range | Status::Changed => skip(SkipReason::Changed),
            Status::Pinned => skip(SkipReason::Pinned),
            Status::Compressed => skip(SkipReason::Compressed),
            Status::Atomic => skip(SkipReason::AtomicWrite),
            Status::Verity => skip(SkipReason::Verity),
            Status::Swap => skip(SkipReason::SwapFile),
            Status::Inline => skip(SkipReason::Inline),
            Status::NoSection => skip(SkipReason::NoSpace),
            Status::Device(number) => match io::Error::from_raw_os_error(number) {
                error if self.is_off(&error) => skip(SkipReason::CheckpointsOff),
                error => Err(self.failed(part, error)),
            },
            Status::OtherFs => Err(self.failed(part, Finding::OtherDevice.into())),
            Status::Unknown(number) => {
                Err(self.failed(part, Finding::UnknownStatus(number).into()))
            }
        }
    }

    fn failed(&self, part: FileRange, error: io::Error) -> Refusal {
        let operation = "have the device move a range";
        self.target.error(operation, Some(part.start), error).into()
    }

    /// Whether the kernel refuses it because the file system was mounted with `checkpoint=disable` meanwhile.
    fn is_off(&self, error: &io::Error) -> bool {
        Errno::from_io_error(error) == Some(Errno::OPNOTSUPP)
            && checkpoint(&self.file).is_err_and(|error| has_none(&error))
    }

    fn call_failed(&self, error: io::Error) -> Refusal {
        match Errno::from_io_error(&error) {
            Some(Errno::PERM | Errno::ACCESS) => SkipReason::NotPermitted.into(),
            Some(Errno::ROFS) => SkipReason::ReadOnlyMount.into(),
            Some(Errno::OPNOTSUPP) if self.is_off(&error) => SkipReason::CheckpointsOff.into(),
            Some(Errno::NOTTY | Errno::OPNOTSUPP) => SkipReason::NoOffload.into(),
            _ => self.target.error("move ranges", None, error).into(),
        }
    }
}

impl Relocation for OffloadRelocation<'_> {
    fn step(&mut self, limit: StepLimit) -> Result<Step, Refusal> {
        if let Some(refused) = self.refused.take() {
            return Err(refused);
        }
        let limit = limit.bytes.max(LEAST);
        let parts = self.next(limit)?;
        if parts.is_empty() {
            return match self.moved {
                true => Ok(Step::Done(Moved::default())),
                false => Err(SkipReason::NoGain.into()),
            };
        }
        let moved = self.offload(parts, limit)?;
        match self.refused.take() {
            Some(refused) if moved == Moved::default() => Err(refused),
            refused => {
                self.refused = refused;
                Ok(Step::Working(moved))
            }
        }
    }
}

impl Drop for OffloadRelocation<'_> {
    fn drop(&mut self) {
        self.engine.batches.release(self.id);
    }
}

#[cfg(test)]
mod tests;
