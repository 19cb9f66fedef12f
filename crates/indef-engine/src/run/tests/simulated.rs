//! A file system that exists in memory only, with an engine: real (small) files to be opened, made
//! up maps and moves. The name of each file tells what it does wrong. Those whose names begin with `other`
//! are on another file system, which moves no files together.

use std::{
    collections::HashMap,
    ffi::OsStr,
    fs::File,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::Duration,
};

use indef_core::{
    layout::{Extent, ExtentFlags, HeldExtent, Layout},
    plan::{FileFacts, PlanOptions, Policy, plan_file},
};
use indef_fs::{
    Beyond, CountedRange, EngineOptions, Filesystem, Finding, FsError, FsKind, Mapper, Moved,
    NoCheckpoint, NotTakenBack, Refusal, Relocation, Relocator, Space, Step, StepLimit, Target,
    TargetId,
};
use indef_fs::{EngineKind, RangeCopier};
use units::{FileOffset, FileRange, PhysOffset};

use super::super::{backend::Backend, job::FileJob, *};

pub(super) const BLOCK: u64 = 4096;
/// The block size that the other file system tells; nothing else comes of it.
const OTHERS_BLOCK: Bytes = Bytes(1024);

#[derive(Default)]
pub(super) struct SimulatedDisk {
    layouts: HashMap<u64, Layout>,
    /// Blocks that the file system has moved by itself.
    collected: u64,
    next_phys: u64,
    /// Steps in the order in which they were done: inode and bytes.
    pub(super) steps: Vec<(u64, u64)>,
    pub(super) begun: Vec<u64>,
    /// Maps that were asked for, and whether the file was to be written back before.
    pub(super) maps: Vec<bool>,
    pub(super) free: u64,
    pub(super) commits_fail: bool,
    taken: u64,
    pub(super) most_taken: u64,
    /// Relocations under way on the other file system, and the most that were.
    others: usize,
    pub(super) most_others: usize,
    /// How long a step holds the locks: for each, and for each MiB.
    pub(super) fixed: Duration,
    pub(super) per_mib: Duration,
    pub(super) sleeps: bool,
    /// The engine copies through the host.
    pub(super) copies: bool,
    /// Bytes that it copied.
    pub(super) copied: u64,
    pub(super) splits: bool,
    pub(super) gathers: usize,
    /// The engine takes only files that others share.
    pub(super) keeps_sharing: bool,
    /// Further locks of each step that were held for too long.
    pub(super) further_stalls: u64,
    /// Files of which the device does not take what was moved.
    pub(super) unwritten: Vec<PathBuf>,
    /// Files that move along with one: by its inode number.
    pub(super) sharers: HashMap<u64, Vec<TargetId>>,
}

fn is_other(path: &Path) -> bool {
    path.file_name()
        .unwrap()
        .as_encoded_bytes()
        .starts_with(b"other")
}

pub(super) struct Simulated {
    pub(super) state: Arc<Mutex<SimulatedDisk>>,
    directory: tempfile::TempDir,
}

impl Simulated {
    pub(super) fn new() -> Self {
        let state = SimulatedDisk {
            next_phys: 1 << 50,
            free: 1 << 50,
            splits: true,
            fixed: Duration::from_micros(10),
            per_mib: Duration::from_micros(100),
            ..SimulatedDisk::default()
        };
        Self {
            state: Arc::new(Mutex::new(state)),
            directory: tempfile::tempdir().unwrap(),
        }
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// A file of so many fragments of `fragment` bytes, sparse in truth, and a plan to move all.
    pub(super) fn file(&self, name: &str, fragments: u64, fragment: u64) -> FilePlan {
        use std::os::unix::fs::MetadataExt;
        let path = self.path(name);
        let file = File::create(&path).unwrap();
        file.set_len(fragments * fragment).unwrap();
        let status = file.metadata().unwrap();
        let mut state = self.state.lock().unwrap();
        let extents = (0..fragments)
            .map(|n| {
                state.next_phys += fragment + BLOCK;
                Extent {
                    file: FileOffset(n * fragment),
                    phys: PhysOffset(state.next_phys),
                    len: Bytes(fragment),
                    flags: ExtentFlags::empty(),
                }
            })
            .collect();
        let layout = Layout::new(extents);
        let facts = FileFacts {
            size: Bytes(fragments * fragment),
            block_size: Bytes(BLOCK),
            layout: &layout,
            accesses: None,
        };
        let options = PlanOptions {
            policy: Policy::Whole,
            ..PlanOptions::default()
        };
        let plan = FilePlan {
            path,
            root_len: None,
            born: None,
            dev: status.dev() + u64::from(is_other(&self.path(name))),
            inode: status.ino(),
            size: facts.size,
            block_size: facts.block_size,
            fs: "simulated".into(),
            engine: None,
            extents_before: fragments,
            named: None,
            skip: None,
            chunks: plan_file(&options, &facts),
        };
        state.layouts.insert(status.ino(), layout);
        plan
    }

    /// As if an earlier run had moved this part of the file.
    pub(super) fn contiguous(&self, name: &str, range: FileRange) {
        use std::os::unix::fs::MetadataExt;
        let inode = std::fs::metadata(self.path(name)).unwrap().ino();
        relocated(&mut self.state.lock().unwrap(), inode, &[range], 1);
    }

    pub(super) fn run(&self, plans: Vec<FilePlan>, options: &RunOptions) -> RunResult {
        self.run_until(plans, options, &Cancel::new(), &())
    }

    pub(super) fn run_until(
        &self,
        plans: Vec<FilePlan>,
        options: &RunOptions,
        cancel: &Cancel,
        observer: &dyn Observer,
    ) -> RunResult {
        run_with(self, plans, options, cancel, observer)
    }
}

impl Backend for Simulated {
    fn open(&self, job: &FileJob) -> Result<Target, Refusal> {
        if job.path.ends_with("panics-at-open") {
            panic!("as it was told");
        }
        let mut target = Target::open(&job.path)?;
        target.block_size = Bytes(BLOCK);
        target.id.dev += u64::from(is_other(&job.path));
        Ok(target)
    }

    fn file_system(&self, target: &Target) -> Result<Filesystem, FsError> {
        let mut fs = indef_fs::detect(&target.file, &target.path)?;
        fs.kind = match self.state.lock().unwrap().keeps_sharing {
            true => FsKind::Btrfs,
            false => FsKind::Ext4,
        };
        fs.block_size = match is_other(&target.path) {
            true => OTHERS_BLOCK,
            false => Bytes(BLOCK),
        };
        Ok(fs)
    }

    fn relocator(
        &self,
        kind: EngineKind,
        fs: &Filesystem,
        _: &EngineOptions,
    ) -> Result<Box<dyn Relocator>, Refusal> {
        let state = Arc::clone(&self.state);
        let gathers = match fs.block_size {
            OTHERS_BLOCK => 0,
            _ => state.lock().unwrap().gathers,
        };
        match kind {
            EngineKind::Ext4MoveExtent | EngineKind::BtrfsShareRange => {
                Ok(Box::new(Engine { state, gathers }))
            }
            _ => Err(SkipReason::NoEngine.into()),
        }
    }

    fn held(&self, _: &Target) -> Result<Vec<HeldExtent>, Refusal> {
        Ok(Vec::new())
    }

    fn map(
        &self,
        target: &Target,
        range: FileRange,
        sync: bool,
        _: &mut Mapper,
    ) -> Result<Layout, Refusal> {
        let mut state = self.state.lock().unwrap();
        state.maps.push(sync);
        let layout = &state.layouts[&target.id.inode];
        Ok(Layout::new(layout.clipped(range).collect()))
    }

    fn space(&self, _: &Target) -> std::io::Result<Space> {
        let state = self.state.lock().unwrap();
        Ok(Space {
            free: Bytes(state.free - state.taken),
            total: Bytes(state.free),
        })
    }

    fn collected(&self, _: &Filesystem) -> Option<u64> {
        Some(self.state.lock().unwrap().collected)
    }

    fn commit(&self, _: &Target) -> std::io::Result<()> {
        match self.state.lock().unwrap().commits_fail {
            true => Err(std::io::Error::from_raw_os_error(28)),
            false => Ok(()),
        }
    }

    fn copier(&self, _: u32) -> Box<dyn RangeCopier> {
        struct Counter(Arc<Mutex<SimulatedDisk>>);
        impl RangeCopier for Counter {
            fn copy(&self, _: &File, _: &File, ranges: &[FileRange]) -> std::io::Result<()> {
                let copied: u64 = ranges.iter().map(|range| range.len.get()).sum();
                self.0.lock().unwrap().copied += copied;
                Ok(())
            }
        }
        Box::new(Counter(Arc::clone(&self.state)))
    }
}

struct Engine {
    state: Arc<Mutex<SimulatedDisk>>,
    gathers: usize,
}

impl Relocator for Engine {
    fn name(&self) -> &'static str {
        "simulated"
    }

    fn admit(&self, target: &Target) -> Result<(), Refusal> {
        match target.path.ends_with("swap") {
            true => Err(SkipReason::SwapFile.into()),
            false => Ok(()),
        }
    }

    fn splits(&self) -> bool {
        self.state.lock().unwrap().splits
    }

    fn gathers(&self) -> usize {
        self.gathers
    }

    fn moves_whole_files(&self) -> bool {
        !self.splits()
    }

    fn settle(&self) -> Vec<FsError> {
        let unwritten = std::mem::take(&mut self.state.lock().unwrap().unwritten);
        let error = |path: PathBuf| {
            let source = std::io::Error::from_raw_os_error(5);
            match path.file_name().and_then(OsStr::to_str) {
                Some("checkpoints-off") => {
                    FsError::new(path, "write a checkpoint", Finding::CheckpointsOff)
                }
                Some("no-checkpoint") => {
                    FsError::new(path, "write a checkpoint", NoCheckpoint { source })
                }
                _ => FsError::new(path, "write back moved data", source),
            }
        };
        unwritten.into_iter().map(error).collect()
    }

    fn begin<'a>(
        &'a self,
        target: &'a Target,
        ranges: &[CountedRange],
        copier: &'a dyn RangeCopier,
    ) -> Result<Box<dyn Relocation + 'a>, Refusal> {
        let ranges: Vec<_> = ranges.iter().map(|counted| counted.range).collect();
        let name = target.path.file_name().unwrap().to_str().unwrap();
        if name.starts_with("no-better-place") {
            return Err(SkipReason::NoGain.into());
        }
        let again = u64::from(name.starts_with("changes"));
        let copies = u64::from(self.state.lock().unwrap().copies);
        for _ in 0..copies + again {
            copier
                .copy(&target.file, &target.file, &ranges)
                .map_err(|error| target.error("copy", None, error))?;
        }
        let mut state = self.state.lock().unwrap();
        state.begun.push(target.id.inode);
        let bytes = ranges.iter().map(|r| r.len.get()).sum();
        state.taken += bytes;
        state.most_taken = state.most_taken.max(state.taken);
        state.others += usize::from(is_other(&target.path));
        state.most_others = state.most_others.max(state.others);
        Ok(Box::new(Move {
            state: Arc::clone(&self.state),
            target,
            copier,
            ranges,
            moved: 0,
            bytes,
        }))
    }
}

struct Move<'a> {
    state: Arc<Mutex<SimulatedDisk>>,
    target: &'a Target,
    copier: &'a dyn RangeCopier,
    ranges: Vec<FileRange>,
    moved: u64,
    bytes: u64,
}

impl Relocation for Move<'_> {
    fn step(&mut self, limit: StepLimit) -> Result<Step, Refusal> {
        let name = self.target.path.file_name().unwrap().to_str().unwrap();
        if name.starts_with("panics-in-step") {
            panic!("as it was told");
        }
        if name.starts_with("fails-in-step") && self.moved > 0 {
            let error = std::io::Error::from_raw_os_error(5);
            return Err(self.target.error("move extents", None, error).into());
        }
        if name.starts_with("device-is-full") {
            let mut state = self.state.lock().unwrap();
            if name.ends_with("becomes-worse") {
                relocated(&mut state, self.target.id.inode, &self.ranges, 1000);
            }
            if name.ends_with("is-crowded") {
                state.taken = state.free;
            }
            let source = Finding::DeviceFull.into();
            let lost = NotTakenBack {
                bytes: Bytes(BLOCK),
                source,
            };
            return Err(self
                .target
                .error("write back moved data", None, lost)
                .into());
        }
        if name.starts_with("goes-back") {
            self.copier.spent(Beyond {
                read: Bytes::mib(8),
                ..Beyond::default()
            });
            return Err(SkipReason::HoldersUnknown.into());
        }
        let bytes = limit.bytes.get().min(self.bytes - self.moved);
        self.moved += bytes;
        if name.starts_with("is-deleted") {
            let _ = std::fs::remove_file(&self.target.path);
        }
        if name.ends_with("written-with-old-times") {
            let file = File::options().write(true).open(&self.target.path).unwrap();
            let before = file.metadata().unwrap().modified().unwrap();
            file.write_all_at(b"written", 0).unwrap();
            file.set_modified(before).unwrap();
        }
        let mut state = self.state.lock().unwrap();
        if name.starts_with("is-crowded") {
            state.taken = state.free / 100 * 98;
        }
        state.steps.push((self.target.id.inode, bytes));
        let locked = state.fixed + state.per_mib.mul_f64(bytes as f64 / f64::from(1 << 20));
        let done = self.moved == self.bytes;
        if done {
            state.collected += u64::from(name.ends_with("garbage-collected"));
            let pieces = if name.starts_with("becomes-worse") {
                1000
            } else {
                1
            };
            relocated(&mut state, self.target.id.inode, &self.ranges, pieces);
            let sharers = state.sharers.get(&self.target.id.inode).cloned();
            let sharers = sharers.unwrap_or_default();
            for sharer in &sharers {
                relocated(&mut state, sharer.inode, &self.ranges, 1);
            }
            self.copier.moved_along(&sharers);
        }
        let host = if state.copies { bytes } else { 0 };
        let offloaded = if name.starts_with("writes-twice") {
            2 * bytes
        } else {
            0
        };
        let relocated = match name.starts_with("tells-late") {
            true => 0,
            false => bytes,
        };
        let (sleeps, further_stalls) = (state.sleeps, state.further_stalls);
        drop(state);
        if sleeps {
            std::thread::sleep(locked);
        }
        let moved = Moved {
            relocated: Bytes(relocated),
            host_read: Bytes(host),
            host_written: Bytes(host),
            offloaded: Bytes(offloaded),
            locked: locked.into(),
            locked_bytes: Bytes(bytes),
            further_stalls,
            ..Moved::default()
        };
        Ok(if done {
            Step::Done(moved)
        } else {
            Step::Working(moved)
        })
    }

    fn end(&mut self) -> Result<Moved, Refusal> {
        let name = self.target.path.file_name().unwrap().to_str().unwrap();
        let untold = match name.starts_with("tells-late") {
            true => Bytes(self.moved),
            false => Bytes::ZERO,
        };
        Ok(Moved {
            relocated: untold,
            host_written: untold,
            ..Moved::default()
        })
    }
}

impl Drop for Move<'_> {
    fn drop(&mut self) {
        let mut state = self.state.lock().unwrap();
        state.taken -= self.bytes;
        state.others -= usize::from(is_other(&self.target.path));
    }
}

/// Give each range new blocks, in one piece (or in as many as possible up to `pieces`).
fn relocated(state: &mut SimulatedDisk, inode: u64, ranges: &[FileRange], pieces: u64) {
    for range in ranges {
        let pieces = pieces.min(range.len.get() / BLOCK);
        let len = range.len.get() / pieces;
        let extents = (0..pieces)
            .map(|n| {
                state.next_phys += len + BLOCK;
                Extent {
                    file: range.start + Bytes(n * len),
                    phys: PhysOffset(state.next_phys),
                    len: Bytes(len),
                    flags: ExtentFlags::empty(),
                }
            })
            .collect();
        let layout = state.layouts[&inode].replaced(*range, &Layout::new(extents));
        state.layouts.insert(inode, layout);
    }
}
