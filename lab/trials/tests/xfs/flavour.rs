//! File systems on which the engines behave differently, and functions to move and compare a
//! file.

use std::{
    fs::File,
    io::Read,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use indef_core::{
    layout::{ExtentFlags, Layout},
    plan::{FileFacts, FilePlan, PlanOptions, Policy, plan_file},
};
use indef_engine::Copier;
use indef_fs::{
    EngineKind, EngineOptions, Mapper, Moved, Refusal, Relocator, Step, StepLimit, Target,
    count_ranges, detect, map, relocator,
};
use scratch_fs::{ScratchFs, require};
use sha2::{Digest, Sha256};
use units::{Bytes, FileRange};

/// An engine on a kind of XFS.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flavour {
    pub(crate) name: &'static str,
    pub(crate) engine: EngineKind,
    mkfs: &'static [&'static str],
    /// Needs newer tools than Debian 12's.
    new_tools: bool,
}

pub(crate) const SWAP: Flavour = Flavour {
    name: "swap",
    engine: EngineKind::XfsSwapExtents,
    mkfs: &["-m", "reflink=1,rmapbt=0"],
    new_tools: false,
};
pub(crate) const SWAP_RMAP: Flavour = Flavour {
    name: "swap with rmapbt",
    engine: EngineKind::XfsSwapExtents,
    mkfs: &["-m", "reflink=1,rmapbt=1"],
    new_tools: false,
};
pub(crate) const SWAP_NO_REFLINK: Flavour = Flavour {
    name: "swap without reflink",
    engine: EngineKind::XfsSwapExtents,
    mkfs: &["-m", "reflink=0"],
    new_tools: false,
};
pub(crate) const COMMIT: Flavour = Flavour {
    name: "commit",
    engine: EngineKind::XfsCommitRange,
    mkfs: &["-i", "exchange=1"],
    new_tools: true,
};
pub(crate) const DEDUPE: Flavour = Flavour {
    name: "dedupe",
    engine: EngineKind::XfsDedupeRange,
    mkfs: &["-m", "reflink=1,rmapbt=0"],
    new_tools: false,
};
pub(crate) const DEDUPE_RMAP: Flavour = Flavour {
    name: "dedupe with rmapbt",
    engine: EngineKind::XfsDedupeRange,
    mkfs: &["-m", "reflink=1,rmapbt=1"],
    new_tools: false,
};
/// For files that share, and so not one of [`ALL`].
pub(crate) const SHARE: Flavour = Flavour {
    name: "share",
    engine: EngineKind::XfsShareRange,
    mkfs: &["-m", "reflink=1,rmapbt=1"],
    new_tools: false,
};
/// Likewise; holders have to be named.
pub(crate) const NAMED: Flavour = Flavour {
    name: "share, without rmapbt",
    engine: EngineKind::XfsShareRange,
    mkfs: &["-m", "reflink=1,rmapbt=0"],
    new_tools: false,
};
pub(crate) const ALL: [Flavour; 6] = [
    SWAP,
    SWAP_RMAP,
    SWAP_NO_REFLINK,
    COMMIT,
    DEDUPE,
    DEDUPE_RMAP,
];

impl Flavour {
    /// Make a file system of it; `None` (reported) where this machine cannot.
    pub(crate) fn make(&self, size: Bytes, mount_options: &str) -> Option<ScratchFs> {
        let mut builder = ScratchFs::builder("xfs", size)
            .mkfs_args(self.mkfs.iter().copied())
            .mount_options(mount_options);
        if self.new_tools {
            builder = builder.tools(&scratch_fs::require_xfsprogs()?);
        }
        let made = require(builder.build())?;
        if self.engine == EngineKind::XfsCommitRange {
            let fs = detect(File::open(made.path()).unwrap(), made.path()).unwrap();
            if !fs.kernel_at_least(6, 12) {
                scratch_fs::skip("the kernel has no COMMIT_RANGE");
                return None;
            }
        }
        Some(made)
    }
}

/// Run `test` on each flavour that can be made.
pub(crate) fn each(flavours: &[Flavour], size: Bytes, test: impl Fn(Flavour, &mut ScratchFs)) {
    for flavour in flavours {
        if let Some(mut fs) = flavour.make(size, "") {
            eprintln!("flavour: {}", flavour.name);
            test(*flavour, &mut fs);
        }
    }
}

/// The properties that must not change.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct FileState {
    hash: Vec<u8>,
    size: u64,
    times: [(i64, i64); 3],
    mode: u32,
    links: u64,
    allocated: Vec<(FileRange, bool)>,
}

impl FileState {
    /// The ranges with blocks, and whether each is unwritten.
    pub(crate) fn allocated(&self) -> &[(FileRange, bool)] {
        &self.allocated
    }

    /// Whether both have the same content.
    pub(crate) fn has_content_of(&self, other: &Self) -> bool {
        self.hash == other.hash
    }

    pub(crate) fn of(path: &Path) -> Self {
        use std::os::unix::fs::OpenOptionsExt;
        let mut file = std::fs::OpenOptions::new()
            .read(true)
            .custom_flags(rustix::fs::OFlags::NOATIME.bits() as i32)
            .open(path)
            .unwrap();
        let meta = file.metadata().unwrap();
        let mut hash = Sha256::new();
        let mut buffer = vec![0; 1 << 20];
        loop {
            match file.read(&mut buffer).unwrap() {
                0 => break,
                got => hash.update(&buffer[..got]),
            }
        }
        let mut allocated: Vec<(FileRange, bool)> = Vec::new();
        for extent in layout(path).clipped(FileRange::new(0, meta.size())) {
            let unwritten = extent.flags.contains(ExtentFlags::UNWRITTEN);
            match allocated.last_mut() {
                Some((run, state)) if run.end() == extent.file && *state == unwritten => {
                    run.len += extent.len;
                }
                _ => allocated.push((extent.range(), unwritten)),
            }
        }
        Self {
            hash: hash.finalize().to_vec(),
            size: meta.size(),
            times: [
                (meta.atime(), meta.atime_nsec()),
                (meta.mtime(), meta.mtime_nsec()),
                (meta.ctime(), meta.ctime_nsec()),
            ],
            mode: meta.mode(),
            links: meta.nlink(),
            allocated,
        }
    }
}

pub(crate) fn layout(path: &Path) -> Layout {
    let everything = FileRange::new(0, u64::MAX);
    map(
        &File::open(path).unwrap(),
        path,
        everything,
        true,
        &mut Mapper::default(),
    )
    .unwrap()
}

pub(crate) fn fragments(path: &Path) -> u64 {
    layout(path).fragments()
}

/// The way to move a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Move {
    pub(crate) engine: EngineKind,
    pub allow_unshare: bool,
    pub(crate) limit: Bytes,
}

impl Move {
    pub(crate) fn with(flavour: Flavour) -> Self {
        Self {
            engine: flavour.engine,
            allow_unshare: false,
            limit: Bytes::mib(8),
        }
    }

    pub(crate) fn relocator(self, path: &Path) -> Box<dyn Relocator> {
        let fs = detect(File::open(path).unwrap(), path).unwrap();
        let options = EngineOptions {
            allow_unshare: self.allow_unshare,
            by_name: true,
            ..EngineOptions::default()
        };
        relocator(self.engine, &fs, &options).unwrap()
    }

    /// Move `ranges` of the file. Returns the sum of the work.
    pub(crate) fn ranges(self, path: &Path, ranges: &[FileRange]) -> Result<Moved, Refusal> {
        let relocator = self.relocator(path);
        let target = Target::open(path)?;
        relocator.admit(&target)?;
        let copier = Copier::new(32);
        let mut relocation = relocator.begin(&target, &count_ranges(&target, ranges)?, &copier)?;
        let mut sum = Moved::default();
        loop {
            let step = relocation.step(StepLimit { bytes: self.limit })?;
            let (Step::Working(moved) | Step::Done(moved)) = step;
            sum.relocated += moved.relocated;
            sum.host_read += moved.host_read;
            sum.host_written += moved.host_written;
            sum.offloaded += moved.offloaded;
            sum.locked = sum.locked.max(moved.locked);
            if matches!(step, Step::Done(_)) {
                return Ok(sum);
            }
        }
    }

    pub(crate) fn whole(self, path: &Path) -> Result<Moved, Refusal> {
        let size = std::fs::metadata(path).unwrap().len();
        self.ranges(path, &[FileRange::new(0, size)])
    }
}

/// The plan that `indef run --engine …` would make for a file.
pub(crate) fn plan_of(path: &Path, engine: EngineKind) -> FilePlan {
    let (file, layout) = (std::fs::metadata(path).unwrap(), layout(path));
    let facts = FileFacts {
        size: Bytes(file.len()),
        block_size: Bytes::kib(4),
        layout: &layout,
        accesses: None,
    };
    let options = PlanOptions {
        policy: Policy::Sequential,
        ..PlanOptions::default()
    };
    let mut chunks = plan_file(&options, &facts);
    for chunk in &mut chunks {
        chunk.cost = Bytes(chunk.cost.get() * engine.writes_per_byte());
    }
    FilePlan {
        path: path.to_owned(),
        root_len: None,
        born: None,
        dev: file.dev(),
        inode: file.ino(),
        size: facts.size,
        block_size: facts.block_size,
        fs: "xfs".into(),
        engine: Some(engine.name().into()),
        extents_before: layout.fragments(),
        named: None,
        skip: None,
        chunks,
    }
}

/// Check that only the given names exist.
pub(crate) fn assert_nothing_left(fs: &ScratchFs, known: &[&Path]) {
    let mut names: Vec<PathBuf> = std::fs::read_dir(fs.path())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    names.retain(|name| !known.contains(&name.as_path()));
    assert_eq!(names, Vec::<PathBuf>::new());
}
