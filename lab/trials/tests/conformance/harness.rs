//! One engine on a scratch file system of its own, and the procedure from a file to its relocation.

use std::{
    collections::BTreeSet,
    ffi::OsString,
    fs::File,
    io,
    os::unix::fs::{DirEntryExt, FileExt},
    path::{Path, PathBuf},
};

use indef_core::{
    SkipReason,
    layout::Row,
    plan::{FileFacts, FilePlan, PlanOptions, Policy, plan_file},
};
use indef_fs::{
    EngineKind, EngineOptions, Filesystem, Mapper, Moved, RangeCopier, Refusal, Relocator, Step,
    StepLimit, Target, count_ranges, detect, map, relocator,
};
use scratch_fs::{ScratchError, ScratchFs, require, skip};
use units::{Bytes, FileRange, PhysOffset};

/// A plain copier: the engines' own part is under test here, not the speed of copying.
pub(crate) struct PlainCopier;

impl RangeCopier for PlainCopier {
    fn copy(&self, from: &File, to: &File, ranges: &[FileRange]) -> io::Result<()> {
        const CHUNK: u64 = 1 << 20;
        // Aligned for direct I/O: a slice inside of a larger vector.
        let mut memory = vec![0; CHUNK as usize + 4096];
        let start = memory.as_ptr().align_offset(4096);
        let buffer = &mut memory[start..start + CHUNK as usize];
        for range in ranges {
            let mut at = range.start.get();
            while at < range.end().get() {
                let length = CHUNK.min(range.end().get() - at) as usize;
                let mut filled = 0;
                while filled < length {
                    match from.read_at(&mut buffer[filled..length], at + filled as u64)? {
                        0 => break,
                        count => filled += count,
                    }
                }
                // Past the end of the source there are zeros.
                buffer[filled..length].fill(0);
                to.write_all_at(&buffer[..length], at)?;
                at += length as u64;
            }
        }
        Ok(())
    }
}

/// The rows that engines are told of.
pub(crate) const ROW: Row = Row {
    bytes: Bytes::kib(256),
    origin: PhysOffset(20 << 10),
};

/// The most fragments that may be left of `len` bytes, of which an engine leaves `usual` where nobody else works.
pub(crate) fn most_left(kind: EngineKind, len: Bytes, usual: u64) -> u64 {
    match kind {
        EngineKind::BtrfsDefragRange => scratch_fs::most_left_by_btrfs(len, usual),
        _ => usual,
    }
}

/// The results of a relocation.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Done {
    pub(crate) moved: Moved,
    pub(crate) planned: Bytes,
    pub(crate) steps: usize,
}

/// One engine on one file system.
pub(crate) struct Bench {
    pub(crate) kind: EngineKind,
    pub(crate) fs: ScratchFs,
    pub(crate) detected: Filesystem,
    pub(crate) allow_unshare: bool,
    /// All files in the root folder are named with each other.
    pub(crate) names: bool,
}

/// The file system that an engine needs, not made yet: mkfs and mount options can be added.
pub(crate) fn builder(kind: EngineKind, size: Bytes) -> scratch_fs::ScratchFsBuilder {
    let builder = match kind {
        EngineKind::Ext4MoveExtent => ScratchFs::builder("ext4", size),
        // The kernel exchanges more at once then; with `rmapbt`, see tests/xfs.
        EngineKind::XfsSwapExtents | EngineKind::XfsDedupeRange => {
            ScratchFs::builder("xfs", size).mkfs_args(["-m", "rmapbt=0"])
        }
        // It asks the reverse mapping for holders.
        EngineKind::XfsShareRange => {
            ScratchFs::builder("xfs", size).mkfs_args(["-m", "reflink=1,rmapbt=1"])
        }
        // Moves like xfs-commit-range where no device copies.
        EngineKind::XfsCommitRange | EngineKind::XfsOffload => {
            let builder = ScratchFs::builder("xfs", size).mkfs_args(["-i", "exchange=1"]);
            match scratch_fs::xfsprogs() {
                Some(folder) => builder.tools(&folder),
                None => builder,
            }
        }
        EngineKind::BtrfsShareRange | EngineKind::BtrfsDefragRange => {
            ScratchFs::builder("btrfs", size)
        }
        EngineKind::F2fsDefragment => ScratchFs::builder("f2fs", size),
        EngineKind::F2fsOffload => {
            let builder = ScratchFs::builder("f2fs", size);
            match zones() {
                Some((conventional, zoned)) => builder.on_zones(&conventional, &zoned),
                None => builder,
            }
        }
    };
    in_memory(builder)
}

pub(crate) fn in_memory(builder: scratch_fs::ScratchFsBuilder) -> scratch_fs::ScratchFsBuilder {
    match memory_folder() {
        Some(folder) => builder.folder(folder),
        None => builder,
    }
}

/// The disks of the zoned SSD in a guest of the lab: the one without zones, and the one with zones.
fn zones() -> Option<(String, String)> {
    let disk = |name| std::env::var(name).ok();
    Some((disk("ZNS_CONVENTIONAL")?, disk("ZNS_ZONED")?))
}

/// A folder in memory, if there is plenty: the disk's speed is not under test, and a hundred file
/// systems are made.
fn memory_folder() -> Option<&'static Path> {
    let folder = Path::new("/dev/shm");
    let free = rustix::fs::statvfs(folder).ok()?;
    let available = std::fs::read_to_string("/proc/meminfo").ok()?;
    let available: u64 = available
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?
        .trim()
        .trim_end_matches(" kB")
        .parse()
        .ok()?;
    let enough = Bytes::gib(6);
    // Direct I/O on tmpfs came with 6.6; before, a loop device cannot use it.
    let direct = indef_fs::detect(File::open("/proc").ok()?, Path::new("/proc"))
        .is_ok_and(|fs| fs.kernel_at_least(6, 6));
    let free = Bytes(free.f_bavail * free.f_frsize);
    (direct && free > enough && Bytes::kib(available) > enough).then_some(folder)
}

impl Bench {
    /// A bench with an XFS that does not tell who has a block, for the engine that moves files together.
    pub(crate) fn untold() -> Option<Self> {
        let kind = EngineKind::XfsShareRange;
        let args = ["-m", "reflink=1,rmapbt=0"];
        let builder = ScratchFs::builder("xfs", Bytes::mib(640)).mkfs_args(args);
        let bench = Self::on(kind, in_memory(builder).build())?;
        Some(Self {
            names: true,
            ..bench
        })
    }

    /// A bench with the usual file system; `None` (and a reported skip) where this machine cannot
    /// have it.
    pub(crate) fn new(kind: EngineKind) -> Option<Self> {
        // A small Btrfs has so little room for metadata that writers wait for seconds.
        let size = match kind {
            EngineKind::BtrfsShareRange | EngineKind::BtrfsDefragRange => Bytes::gib(4),
            _ => Bytes::mib(640),
        };
        Self::on(kind, builder(kind, size).build())
    }

    /// A bench with a small file system, to be filled.
    pub(crate) fn small(kind: EngineKind) -> Option<Self> {
        Self::on(kind, builder(kind, Bytes::mib(640)).build())
    }

    pub(crate) fn on(kind: EngineKind, made: Result<ScratchFs, ScratchError>) -> Option<Self> {
        let exchange = kind == EngineKind::XfsCommitRange;
        let fs = match made {
            // mkfs.xfs before 6.10 does not know the feature; a kernel before 6.10 cannot mount it.
            Err(ScratchError::Command { output, .. }) if exchange => {
                let why = output.lines().find(|line| !line.trim().is_empty());
                skip(&format!(
                    "no XFS with the exchange feature here: {}",
                    why.unwrap_or("mkfs or mount failed")
                ));
                return None;
            }
            made => require(made)?,
        };
        let root = File::open(fs.path()).unwrap();
        let detected = detect(&root, fs.path()).unwrap();
        let bench = Self {
            kind,
            fs,
            detected,
            allow_unshare: false,
            names: false,
        };
        match bench.engine() {
            Ok(_) => Some(bench),
            Err(refusal) => {
                skip(&format!("{} cannot work here: {refusal}", kind.name()));
                None
            }
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.fs.path().join(name)
    }

    pub(crate) fn engine(&self) -> Result<Box<dyn Relocator>, Refusal> {
        let options = EngineOptions {
            allow_unshare: self.allow_unshare,
            by_name: true,
            // Not every engine keeps to it.
            row: Some(ROW),
            ..EngineOptions::default()
        };
        relocator(self.kind, &self.detected, &options)
    }

    /// The ranges that a policy would move.
    pub(crate) fn plan(&self, target: &Target, policy: Policy) -> Result<Vec<FileRange>, Refusal> {
        let mut mapper = Mapper::default();
        let whole = FileRange::new(0, u64::MAX);
        let layout = map(&target.file, &target.path, whole, true, &mut mapper)?;
        let options = PlanOptions {
            policy,
            allow_unshare: self.allow_unshare,
            keeps_sharing: self.kind.keeps_sharing(),
            ..PlanOptions::default()
        };
        let facts = FileFacts {
            size: target.size,
            block_size: target.block_size,
            layout: &layout,
            accesses: None,
        };
        let chunks = plan_file(&options, &facts);
        let plan = FilePlan {
            path: target.path.clone(),
            root_len: None,
            born: target.born,
            dev: target.id.dev,
            inode: target.id.inode,
            size: target.size,
            block_size: target.block_size,
            fs: self.fs.kind().into(),
            engine: None,
            extents_before: layout.fragments(),
            named: None,
            skip: None,
            chunks,
        };
        Ok(plan.runs())
    }

    /// Open, plan, move. If nothing is to be moved, the result is [`SkipReason::Contiguous`].
    pub(crate) fn relocate(&self, path: &Path, policy: Policy) -> Result<Done, Refusal> {
        let mut target = Target::open(path)?;
        if self.names {
            let inode = |entry: std::io::Result<std::fs::DirEntry>| entry.unwrap().ino();
            let files = std::fs::read_dir(self.fs.path()).unwrap();
            target.named = Some(files.map(inode).collect());
        }
        let ranges = self.plan(&target, policy)?;
        self.relocate_ranges(&target, &ranges, Bytes::mib(1), usize::MAX)
    }

    /// Move ranges in steps, and stop (dropping the relocation) after `steps` of them.
    pub(crate) fn relocate_ranges(
        &self,
        target: &Target,
        ranges: &[FileRange],
        step: Bytes,
        steps: usize,
    ) -> Result<Done, Refusal> {
        if ranges.is_empty() {
            return Err(SkipReason::Contiguous.into());
        }
        let engine = self.engine()?;
        engine.admit(target)?;
        let ranges = count_ranges(target, ranges)?;
        let asked = ranges.iter().map(|counted| counted.written).sum();
        let mut done = Done {
            planned: engine.cost(asked, target.allocated),
            ..Done::default()
        };
        let mut relocation = engine.begin(target, &ranges, &PlainCopier)?;
        while done.steps < steps {
            done.steps += 1;
            let (moved, finished) = match relocation.step(StepLimit { bytes: step })? {
                Step::Working(moved) => (moved, false),
                Step::Done(moved) => (moved, true),
            };
            done.moved += moved;
            if finished {
                break;
            }
            assert!(done.steps < 1_000_000, "the relocation does not end");
        }
        drop(relocation);
        match engine.settle().pop() {
            Some(error) => Err(error.into()),
            None => Ok(done),
        }
    }

    /// Move a file that must be movable.
    #[track_caller]
    pub(crate) fn must_relocate(&self, path: &Path, policy: Policy) -> Done {
        let name = self.kind.name();
        match self.relocate(path, policy) {
            Ok(done) => {
                assert!(
                    !done.moved.relocated.is_zero(),
                    "{name}: {} was not moved: {done:?}",
                    path.display()
                );
                done
            }
            Err(refusal) => panic!("{name}: {}: {refusal}", path.display()),
        }
    }

    /// Every name in the file system.
    pub(crate) fn names(&self) -> BTreeSet<OsString> {
        std::fs::read_dir(self.fs.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect()
    }

    /// Used space once everything is on the device and deleted inodes are gone.
    pub(crate) fn settled_used(&mut self) -> Bytes {
        self.fs.remount().unwrap();
        self.fs.sync().unwrap();
        self.fs.used().unwrap()
    }
}
