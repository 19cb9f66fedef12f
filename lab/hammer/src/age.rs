//! Fragmented files at the beginning of a round, among them some that nobody will write.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt},
    path::Path,
    process::Command,
};

use linux_abi::{
    cache::start_writeback,
    fiemap::{ExtentFlags, FLAG_SYNC, Mapper},
};
use rustix::fs::{FallocateFlags, OFlags, XattrFlags, fallocate};
use scratch_fs::AlignedBuffer;
use workloads::Numbers;

use crate::{
    actor::{ATTRIBUTE, nameless, put},
    fray::occupy,
    program::run,
    script::{ACTORS, MAIN_BLOCKS, MOST_BLOCKS, SIDE_BLOCKS},
    shared::Shared,
    stamp::{BLOCK, BlockValue},
    volume::VolumeKind,
};

/// Files that nobody writes.
pub(crate) const STILL: [&str; 4] = [
    "still/plain",
    "still/holes",
    "still/shared",
    "still/sharing",
];
/// Blocks of each of them.
const STILL_BLOCKS: u32 = 384;
/// Blocks of the swap file.
const SWAP_BLOCKS: u32 = 64;

/// Everything that must stay as it is on a file that nobody writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) lasting: Lasting,
    atime: (i64, i64),
    /// Allocated ranges, and whether they are unwritten.
    allocated: Vec<(u64, u64, bool)>,
    pub(crate) shared_bytes: u64,
    pub(crate) fragments: u64,
}

/// The part that a cut must not change, either.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lasting {
    size: u64,
    mode: u32,
    links: u64,
    mtime: (i64, i64),
    ctime: (i64, i64),
    attribute: Vec<u8>,
}

impl Lasting {
    pub(crate) fn of(path: &Path) -> io::Result<Self> {
        let meta = fs::symlink_metadata(path)?;
        let mut value = [0; 64];
        let len = rustix::fs::getxattr(path, ATTRIBUTE, &mut value[..])?;
        Ok(Self {
            size: meta.size(),
            mode: meta.mode(),
            links: meta.nlink(),
            mtime: (meta.mtime(), meta.mtime_nsec()),
            ctime: (meta.ctime(), meta.ctime_nsec()),
            attribute: value[..len].to_vec(),
        })
    }
}

impl Facts {
    /// Read it without changing its access time.
    pub(crate) fn of(path: &Path) -> io::Result<Self> {
        let meta = fs::symlink_metadata(path)?;
        let file = open_unnoticed(path)?;
        let mut facts = Self {
            lasting: Lasting::of(path)?,
            atime: (meta.atime(), meta.atime_nsec()),
            allocated: Vec::new(),
            shared_bytes: 0,
            fragments: scratch_fs::fragments(&file)?,
        };
        let mut mapper = Mapper::default();
        let mut start = 0;
        loop {
            let batch = mapper.batch(&file, start, u64::MAX - start, FLAG_SYNC)?;
            let Some(last) = batch.last() else {
                return Ok(facts);
            };
            for extent in batch {
                let flags = ExtentFlags::from_bits_retain(extent.flags);
                let unwritten = flags.contains(ExtentFlags::UNWRITTEN);
                if flags.contains(ExtentFlags::SHARED) {
                    facts.shared_bytes += extent.length;
                }
                let end = extent.logical + extent.length;
                match facts.allocated.last_mut() {
                    Some(before) if before.1 == extent.logical && before.2 == unwritten => {
                        before.1 = end;
                    }
                    _ => facts.allocated.push((extent.logical, end, unwritten)),
                }
            }
            start = last.logical + last.length;
        }
    }
}

/// Open for reading, without changing the access time.
pub(crate) fn open_unnoticed(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .custom_flags(OFlags::NOATIME.bits().cast_signed())
        .open(path)
}

/// Make all files, known to the model and durable. Returns the facts of the still ones.
pub(crate) fn make_files(shared: &Shared, rng: &mut Numbers) -> io::Result<Vec<(String, Facts)>> {
    for actor in 0..ACTORS {
        fs::create_dir(shared.path(&format!("a{actor}")))?;
        for (base, blocks) in [("main", MAIN_BLOCKS), ("side", SIDE_BLOCKS)] {
            make(shared, &format!("a{actor}/{base}"), blocks, rng)?;
        }
    }
    fs::create_dir(shared.path("still"))?;
    for name in STILL {
        if name == "still/sharing" {
            share(shared)?;
            continue;
        }
        make(shared, name, STILL_BLOCKS, rng)?;
        let file = OpenOptions::new().write(true).open(shared.path(name))?;
        rustix::fs::fsetxattr(&file, ATTRIBUTE, name.as_bytes(), XattrFlags::empty())?;
    }
    let file = OpenOptions::new()
        .write(true)
        .open(shared.path("still/holes"))?;
    let (id, at) = (shared.model().named("still/holes"), STILL_BLOCKS / 2);
    if let Some(id) = id {
        let (offset, len) = (u64::from(at) * BLOCK as u64, 32 * BLOCK as u64);
        shared.model().zero(id, at..at + 64);
        let keep = FallocateFlags::KEEP_SIZE;
        fallocate(&file, FallocateFlags::PUNCH_HOLE | keep, offset, 2 * len)?;
        fallocate(&file, keep, offset + len, len)?;
    }
    drop(file);
    make_swap_file(shared)?;
    if shared.volume.compacts {
        occupy(shared)?;
    }
    rustix::fs::syncfs(File::open(&shared.root)?)?;
    shared.model().all_synced(0);
    let facts = |name: &&str| Ok(((*name).to_owned(), Facts::of(&shared.path(name))?));
    let exists = |name: &&&str| shared.path(name).exists();
    STILL.iter().filter(exists).map(facts).collect()
}

/// A file of `blocks` blocks in fragments of one to three.
fn make(shared: &Shared, name: &str, blocks: u32, rng: &mut Numbers) -> io::Result<()> {
    let path = shared.path(name);
    // F2FS waits for the device after each write past the cache, which on zones goes through it all the same.
    let direct = match shared.volume.kind {
        VolumeKind::Ext4 | VolumeKind::F2fs => OFlags::empty(),
        VolumeKind::Xfs | VolumeKind::Btrfs => OFlags::DIRECT,
    };
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .custom_flags(direct.bits().cast_signed())
        .open(&path)?;
    let between = nameless(path.parent().unwrap_or(&path))?;
    rustix::fs::fcntl_setfl(&between, direct)?;
    let mut model = shared.model();
    let id = model.add_file(file.metadata()?.ino(), MOST_BLOCKS);
    model.set_name(name, Some(id));
    let values = model.write(id, 0..blocks);
    drop(model);
    let mut zeroes = AlignedBuffer::new(3 * BLOCK);
    let mut at = 0;
    while at < blocks {
        let count = rng.between(1, 4).min(blocks - at);
        let (offset, len) = (u64::from(at) * BLOCK as u64, count as usize * BLOCK);
        if shared.volume.kind == VolumeKind::Ext4 {
            fallocate(&file, FallocateFlags::empty(), offset, len as u64)?;
            fallocate(&between, FallocateFlags::empty(), offset, len as u64)?;
        } else {
            put(&file, &values[at as usize..(at + count) as usize], at)?;
            between.write_all_at(&zeroes.slice()[..len], offset)?;
            // F2FS gives blocks their places here.
            for file in [&file, &between] {
                start_writeback(file, offset, len as u64)?;
            }
        }
        at += count;
    }
    if shared.volume.kind == VolumeKind::Ext4 {
        put(&file, &values, 0)?;
    }
    file.sync_all()
}

/// Make `still/sharing`, which shares the blocks of `still/shared` if the file system can.
fn share(shared: &Shared) -> io::Result<()> {
    if !shared.volume.shares() {
        return Ok(());
    }
    let from = shared.path("still/shared");
    let to = File::create_new(shared.path("still/sharing"))?;
    rustix::fs::ioctl_ficlone(&to, File::open(from)?)?;
    rustix::fs::fsetxattr(&to, ATTRIBUTE, b"still/sharing", XattrFlags::empty())?;
    let mut model = shared.model();
    let id = model.add_file(to.metadata()?.ino(), MOST_BLOCKS);
    model.set_name("still/sharing", Some(id));
    if let Some(original) = model.named("still/shared") {
        let blocks = 0..STILL_BLOCKS;
        let values: Vec<BlockValue> = { blocks }
            .map(|block| model.file(original).live(block))
            .collect();
        model.share(id, 0, &values);
    }
    Ok(())
}

/// A swap file that is not yet in use. Its content belongs to the kernel.
fn make_swap_file(shared: &Shared) -> io::Result<()> {
    let path = shared.path("swap");
    let file = File::create_new(&path)?;
    if shared.volume.kind == VolumeKind::Btrfs {
        let _ = run(Command::new("chattr").arg("+C").arg(&path));
    }
    let mut zeroes = AlignedBuffer::new(SWAP_BLOCKS as usize * BLOCK);
    file.write_all_at(zeroes.slice(), 0)?;
    file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
    file.sync_all()?;
    run(Command::new("mkswap").arg("-q").arg(&path))
        .map(drop)
        .map_err(io::Error::other)
}
