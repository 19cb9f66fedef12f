//! An actor: a thread that works on two files.

use std::{
    fs::{self, File, OpenOptions},
    io,
    ops::Range,
    os::{
        fd::AsRawFd,
        unix::fs::{FileExt, MetadataExt, OpenOptionsExt},
    },
    path::{Path, PathBuf},
    sync::{PoisonError, atomic::Ordering},
    thread,
    time::{Duration, Instant},
};

use linux_abi::{
    cache::start_writeback,
    fsxattr::{Attributes, Flags},
    mapping::SharedBytes,
    share::{clone_range, dedupe_range},
};
use rustix::fs::{AtFlags, CWD, FallocateFlags, OFlags, XattrFlags, fallocate};
use scratch_fs::AlignedBuffer;

use crate::{
    fray::has_room_for_mapped,
    front::front,
    lock::lock,
    model::Findings,
    script::{How, MOST_BLOCKS, Place, Step, What, Where},
    shared::{FAILS_AFTER, Shared},
    stamp::{BLOCK, BlockValue},
};

/// The attribute that is set.
pub(crate) const ATTRIBUTE: &str = "user.hammer";
/// `O_DSYNC` (asm-generic/fcntl.h, v6.1). rustix 1.1 uses the value of `O_SYNC` for it, which commits
/// more than `O_DSYNC`.
const DSYNC: OFlags = OFlags::from_bits_retain(0o10000);
/// Blocks of a file that replaces another one.
const REPLACEMENT: u32 = 256;
/// Largest number of bytes between the blocks of scattered files.
const BETWEEN: u64 = 16 << 20;

const fn bytes(blocks: u32) -> u64 {
    blocks as u64 * BLOCK as u64
}

/// One of the files, in its current state.
struct Subject {
    id: u32,
    name: String,
    path: PathBuf,
}

/// See the module.
pub(crate) struct Actor<'a> {
    shared: &'a Shared,
    number: u32,
    /// A file without a name, whose blocks are allocated between those of others.
    between: Option<(File, u64)>,
}

/// Run all steps, until the round stops.
pub(crate) fn act(shared: &Shared, number: u32, steps: &[Step]) {
    let mut actor = Actor {
        shared,
        number,
        between: None,
    };
    for step in steps {
        if shared.stopped() {
            return;
        }
        if let What::Rest(ms) = step.what {
            lock(&shared.held[number as usize]).clear();
            thread::sleep(Duration::from_millis(ms.into()));
        } else {
            let _under_way = shared.gate.read().unwrap_or_else(PoisonError::into_inner);
            if shared.stopped() {
                return;
            }
            actor.perform(step);
        }
        thread::sleep(Duration::from_micros(step.pause_us.into()));
    }
}

/// The blocks that a step was to change, and their file.
struct Changed {
    file: u32,
    path: PathBuf,
    blocks: Range<u32>,
}

impl Actor<'_> {
    fn directory(&self) -> String {
        format!("a{}", self.number)
    }

    /// The main file or the second one, under its current name.
    fn subject(&self, side: bool) -> Option<Subject> {
        let base = if side { "side" } else { "main" };
        let model = self.shared.model();
        ["", ".moved"].iter().find_map(|suffix| {
            let name = format!("{}/{base}{suffix}", self.directory());
            let id = model.named(&name)?;
            let path = self.shared.path(&name);
            Some(Subject { id, name, path })
        })
    }

    fn perform(&mut self, step: &Step) {
        let (Some(subject), Some(other)) = (self.subject(step.side), self.subject(!step.side))
        else {
            return;
        };
        let what = format!("{:?}", step.what);
        let mut changed = Changed {
            file: subject.id,
            path: subject.path.clone(),
            blocks: 0..0,
        };
        if self.shared.unreadable.load(Ordering::Relaxed) && step.what.reads() {
            return;
        }
        let line = format!("a{} {} {what}", self.number, subject.name);
        let result = self.try_to(step.what, &subject, &other, &mut changed);
        self.shared.operations.fetch_add(1, Ordering::Relaxed);
        let blocks = &changed.blocks;
        match result {
            Ok(()) => self.shared.note(format!("{line} {blocks:?}")),
            Err(error) => {
                self.shared.note(format!("{line} {blocks:?}: {error}"));
                self.shared.failed(&what, &error);
                if let Err(error) = self.settle(&changed) {
                    self.shared.failed("looking after a refusal", &error);
                }
            }
        }
    }

    /// After a call that failed half way: read the current content, which must be one of the allowed
    /// values.
    fn settle(&self, changed: &Changed) -> io::Result<()> {
        let file = File::open(&changed.path)?;
        let size = file.metadata()?.len();
        let mut found = vec![0; changed.blocks.len() * BLOCK];
        read_up_to(&file, &mut found, bytes(changed.blocks.start))?;
        let mut model = self.shared.model();
        let mut findings = Findings::default();
        model.judge_size(changed.file, size, Default::default(), &mut findings);
        model.found_size(changed.file, size);
        for (block, found) in changed.blocks.clone().zip(found.chunks_exact(BLOCK)) {
            model.judge_block(
                changed.file,
                block,
                found,
                Default::default(),
                &mut findings,
            );
            if let Some(value) = BlockValue::of(found) {
                model.found(changed.file, block, value);
            }
        }
        drop(model);
        self.shared.found(findings);
        Ok(())
    }

    fn place(&self, path: &Path, place: Place) -> io::Result<Range<u32>> {
        let start = match place.at {
            Where::Block(block) => block,
            Where::Front(delta) => front(&File::open(path)?)?.saturating_add_signed(delta),
        };
        let start = start.min(MOST_BLOCKS - place.blocks);
        Ok(start..start + place.blocks)
    }

    /// The part of it that is inside of the file.
    fn inside(&self, subject: &Subject, place: Place) -> io::Result<Range<u32>> {
        let range = self.place(&subject.path, place)?;
        let len = self.shared.model().file(subject.id).len_blocks();
        Ok(range.start.min(len)..range.end.min(len))
    }

    fn try_to(
        &mut self,
        what: What,
        subject: &Subject,
        other: &Subject,
        changed: &mut Changed,
    ) -> io::Result<()> {
        let (id, path) = (subject.id, &subject.path);
        let shared = self.shared;
        let open = || open(path, OFlags::empty());
        let begun_ms = shared.now_ms();
        match what {
            What::Write(place, how) | What::Overwrite(place, how) => {
                let inside = matches!(how, How::Mapped) || matches!(what, What::Overwrite(..));
                changed.blocks = if inside {
                    self.inside(subject, place)?
                } else {
                    self.place(path, place)?
                };
                return self.write(subject, how, changed.blocks.clone());
            }
            What::Read(place, direct) => return self.read(subject, place, direct),
            What::Fsync => {
                open()?.sync_all()?;
                shared.model().fsynced(id, begun_ms);
            }
            What::Fdatasync => return self.sync_data(&open()?, id),
            What::FlushRange(place) => {
                let range = self.place(path, place)?;
                start_writeback(open()?, bytes(range.start), bytes(place.blocks))?;
            }
            What::Truncate(blocks) => {
                let file = open()?;
                changed.blocks = 0..MOST_BLOCKS;
                shared.model().resize(id, blocks);
                file.set_len(bytes(blocks))?;
            }
            What::Allocate(place, keep) => {
                changed.blocks = self.place(path, place)?;
                let mut flags = FallocateFlags::empty();
                if keep {
                    flags |= FallocateFlags::KEEP_SIZE;
                } else {
                    shared.model().grow(id, changed.blocks.end);
                }
                allocate(&open()?, flags, &changed.blocks)?;
            }
            What::Punch(place) | What::Zero(place) => {
                changed.blocks = self.place(path, place)?;
                let file = open()?;
                shared.model().zero(id, changed.blocks.clone());
                let mode = match what {
                    What::Punch(_) => FallocateFlags::PUNCH_HOLE,
                    _ => FallocateFlags::ZERO_RANGE,
                };
                allocate(&file, mode | FallocateFlags::KEEP_SIZE, &changed.blocks)?;
            }
            What::Collapse(place) => return self.shift(subject, place, true, changed),
            What::Insert(place) => return self.shift(subject, place, false, changed),
            What::Unshare(place) => {
                changed.blocks = self.inside(subject, place)?;
                if !changed.blocks.is_empty() {
                    let file = open()?;
                    shared.model().unshare(id, changed.blocks.clone());
                    allocate(&file, FallocateFlags::UNSHARE_RANGE, &changed.blocks)?;
                }
            }
            What::Scatter(place) => {
                changed.blocks = self.place(path, place)?;
                return self.scatter(subject, changed.blocks.clone());
            }
            What::CloneFile | What::CloneRange(_) | What::Copy(_) | What::Dedupe(_) => {
                let range = match what {
                    What::CloneRange(place) | What::Copy(place) | What::Dedupe(place) => {
                        self.inside(subject, place)?
                    }
                    _ => 0..shared.model().file(id).len_blocks(),
                };
                *changed = Changed {
                    file: other.id,
                    path: other.path.clone(),
                    blocks: range,
                };
                return self.share(what, subject, other, changed.blocks.clone());
            }
            What::Rename | What::Link | What::Replace => {
                return self.change_names(what, subject);
            }
            What::DirectorySync => {
                let directory = self.directory();
                File::open(shared.path(&directory))?.sync_all()?;
                shared.model().directory_synced(&directory, begun_ms);
            }
            What::Attribute(value) => {
                let file = open()?;
                let old = shared.model().attribute(id);
                shared.model().set_attribute(id, value);
                let bytes = value.to_le_bytes();
                let set = rustix::fs::fsetxattr(file, ATTRIBUTE, &bytes, XattrFlags::empty());
                if let Err(error) = set {
                    // A call that failed changed nothing.
                    shared.model().set_attribute(id, old);
                    return Err(error.into());
                }
            }
            What::Immutable => {
                let file = open()?;
                let attributes = Attributes::get(&file)?;
                let flags = attributes.flags() | Flags::IMMUTABLE;
                attributes.with_flags(flags).set(&file)?;
                thread::sleep(Duration::from_millis(3));
                attributes.set(&file)?;
            }
            What::Hold(hold) => {
                let mut held = lock(&shared.held[self.number as usize]);
                held.clear();
                if hold {
                    held.push(open()?);
                    held.push(self::open(&other.path, OFlags::empty())?);
                }
            }
            What::Rest(_) => {}
        }
        Ok(())
    }

    fn sync_data(&self, file: &File, id: u32) -> io::Result<()> {
        let begun = Instant::now();
        file.sync_data()?;
        self.shared.model().data_synced(id);
        if self.shared.unreadable.load(Ordering::Relaxed) && begun.elapsed() > FAILS_AFTER / 2 {
            // It has waited for a step that failed.
            self.shared.have_it_cut();
        }
        Ok(())
    }

    fn write(&self, subject: &Subject, how: How, range: Range<u32>) -> io::Result<()> {
        if range.is_empty() {
            return Ok(());
        }
        let shared = self.shared;
        let unreadable = shared.unreadable.load(Ordering::Relaxed);
        let (how, then_sync) = match how {
            // A page that cannot be read is a SIGBUS.
            How::Mapped if unreadable => (How::Buffered, false),
            // The time of the write itself, which waits for locks, tells nothing.
            How::Dsync | How::DirectDsync if unreadable => (How::Buffered, true),
            how => (how, false),
        };
        let flags = match how {
            How::Buffered | How::Mapped => OFlags::empty(),
            How::Direct => OFlags::DIRECT,
            How::Dsync => DSYNC,
            How::Sync => OFlags::SYNC,
            How::DirectDsync => OFlags::DIRECT | DSYNC,
        };
        let file = open(&subject.path, flags)?;
        let begun_ms = shared.now_ms();
        let mapped = matches!(how, How::Mapped)
            && !shared.filling.load(Ordering::Relaxed)
            && has_room_for_mapped(shared);
        let map = mapped.then(|| SharedBytes::map(&file, bytes(range.end) as usize));
        let map = map.transpose()?;
        let values = shared.model().write(subject.id, range.clone());
        if let Some(map) = map {
            for (value, block) in values.iter().zip(range.clone()) {
                for (i, byte) in value.bytes().iter().enumerate() {
                    map.store(bytes(block) as usize + i, *byte);
                }
            }
        } else {
            put(&file, &values, range.start)?;
        }
        match how {
            How::DirectDsync if shared.volume.forgets_size_of_direct_writes() => {
                shared.model().blocks_synced(subject.id, range);
            }
            How::Dsync | How::DirectDsync => shared.model().range_synced(subject.id, range),
            How::Sync => shared.model().range_fsynced(subject.id, range, begun_ms),
            How::Buffered if then_sync => {
                // A step takes the pages over only before they are synced; the next one begins about now.
                std::thread::sleep(FAILS_AFTER / 5);
                self.sync_data(&file, subject.id)?;
            }
            How::Buffered | How::Mapped | How::Direct => {}
        }
        Ok(())
    }

    fn read(&self, subject: &Subject, place: Place, direct: bool) -> io::Result<()> {
        let range = self.inside(subject, place)?;
        let flags = if direct {
            OFlags::DIRECT
        } else {
            OFlags::empty()
        };
        let file = open(&subject.path, flags)?;
        let mut buffer = AlignedBuffer::new(range.len().max(1) * BLOCK);
        let found = &mut buffer.slice()[..range.len() * BLOCK];
        let read = read_up_to(&file, found, bytes(range.start))?;
        let mut findings = Findings::default();
        if read != found.len() {
            let name = &subject.name;
            findings.violation(format!("{name}: read {read} bytes of {range:?}"));
        }
        let model = self.shared.model();
        for (block, found) in range.zip(found.chunks_exact(BLOCK)) {
            model.judge_live(subject.id, block, found, &mut findings);
        }
        drop(model);
        self.shared.found(findings);
        Ok(())
    }

    /// Collapse or insert between two fsyncs, so that no earlier write can show up in another place.
    fn shift(
        &self,
        subject: &Subject,
        place: Place,
        collapse: bool,
        changed: &mut Changed,
    ) -> io::Result<()> {
        let range = self.inside(subject, place)?;
        let shared = self.shared;
        let len = shared.model().file(subject.id).len_blocks();
        let count = range.end - range.start;
        // The last block must not be collapsed, and nothing may be inserted at the end.
        if range.is_empty() || range.end >= len || (!collapse && len + count > MOST_BLOCKS) {
            return Ok(());
        }
        let file = open(&subject.path, OFlags::empty())?;
        let fsync = || {
            let begun_ms = shared.now_ms();
            file.sync_all()?;
            shared.model().fsynced(subject.id, begun_ms);
            io::Result::Ok(())
        };
        fsync()?;
        changed.blocks = 0..MOST_BLOCKS;
        shared.model().shift(subject.id, range.clone(), collapse);
        let mode = if collapse {
            FallocateFlags::COLLAPSE_RANGE
        } else {
            FallocateFlags::INSERT_RANGE
        };
        allocate(&file, mode, &range)?;
        fsync()
    }

    fn scatter(&mut self, subject: &Subject, range: Range<u32>) -> io::Result<()> {
        let shared = self.shared;
        let directory = shared.path(&self.directory());
        let file = open(&subject.path, OFlags::DIRECT)?;
        let mut zeroes = AlignedBuffer::new(BLOCK);
        let (between, used) = match &mut self.between {
            Some((between, used)) if *used < BETWEEN => (between, used),
            none => {
                let (file, used) = none.insert((nameless(&directory)?, 0));
                rustix::fs::fcntl_setfl(&*file, OFlags::DIRECT)?;
                (file, used)
            }
        };
        let mut model = shared.model();
        model.zero(subject.id, range.clone());
        let values = model.write(subject.id, range.clone());
        drop(model);
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        allocate(&file, punch, &range)?;
        for (block, value) in range.zip(values) {
            if shared.volume.places_when_allocating() {
                fallocate(&*between, FallocateFlags::empty(), *used, BLOCK as u64)?;
            } else {
                between.write_all_at(zeroes.slice(), *used)?;
            }
            *used += BLOCK as u64;
            put(&file, &[value], block)?;
        }
        Ok(())
    }

    fn share(
        &self,
        what: What,
        subject: &Subject,
        other: &Subject,
        range: Range<u32>,
    ) -> io::Result<()> {
        if range.is_empty() {
            return Ok(());
        }
        let (start, len) = (bytes(range.start), bytes(range.end - range.start));
        let from = open(&subject.path, OFlags::empty())?;
        let to = open(&other.path, OFlags::empty())?;
        let mut model = self.shared.model();
        let values: Vec<BlockValue> = { range.clone() }
            .map(|block| model.file(subject.id).live(block))
            .collect();
        match what {
            What::Dedupe(_) => model.put(other.id, range.start, &values),
            _ => model.share(other.id, range.start, &values),
        }
        drop(model);
        match what {
            What::CloneFile => rustix::fs::ioctl_ficlone(&to, &from)?,
            What::CloneRange(_) => clone_range(&from, &to, start, len)?,
            What::Dedupe(_) => {
                put(&to, &values, range.start)?;
                // The kernel decides whether they are equal; the contents do not change.
                dedupe_range(&from, start, &to, start, len)?;
            }
            _ => {
                let (mut at, mut to_at) = (start, start);
                while at < start + len {
                    let rest = (start + len - at) as usize;
                    let (i, o) = (Some(&mut at), Some(&mut to_at));
                    if rustix::fs::copy_file_range(&from, i, &to, o, rest)? == 0 {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
            }
        }
        Ok(())
    }

    fn change_names(&self, what: What, subject: &Subject) -> io::Result<()> {
        let shared = self.shared;
        let Subject { id, name, path } = subject;
        match what {
            What::Rename => {
                let new = match name.strip_suffix(".moved") {
                    Some(base) => base.to_owned(),
                    None => format!("{name}.moved"),
                };
                let mut model = shared.model();
                model.set_name(&new, Some(*id));
                model.set_name(name, None);
                drop(model);
                fs::rename(path, shared.path(&new)).inspect_err(|_| {
                    let mut model = shared.model();
                    model.set_name(&new, None);
                    model.set_name(name, Some(*id));
                })
            }
            What::Link => {
                let link = format!("{}/link", self.directory());
                let old = shared.model().named(&link);
                let new = if old.is_some() { None } else { Some(*id) };
                shared.model().set_name(&link, new);
                let link_path = shared.path(&link);
                if new.is_some() {
                    fs::hard_link(path, link_path)
                } else {
                    fs::remove_file(link_path)
                }
                .inspect_err(|_| shared.model().set_name(&link, old))
            }
            _ => self.replace(subject),
        }
    }

    fn replace(&self, subject: &Subject) -> io::Result<()> {
        let shared = self.shared;
        let file = nameless(&shared.path(&self.directory()))?;
        let inode = file.metadata()?.ino();
        let mut model = shared.model();
        let new = model.add_file(inode, MOST_BLOCKS);
        let values = model.write(new, 0..REPLACEMENT);
        drop(model);
        put(&file, &values, 0)?;
        let begun_ms = shared.now_ms();
        file.sync_all()?;
        shared.model().fsynced(new, begun_ms);
        let name = format!("{}.new", subject.name);
        let set = |name: &str, file| shared.model().set_name(name, file);
        set(&name, Some(new));
        let handle = format!("/proc/self/fd/{}", file.as_raw_fd());
        let path = shared.path(&name);
        if let Err(error) = rustix::fs::linkat(CWD, handle, CWD, &path, AtFlags::SYMLINK_FOLLOW) {
            set(&name, None);
            return Err(error.into());
        }
        let mut model = shared.model();
        model.set_name(&subject.name, Some(new));
        model.set_name(&name, None);
        drop(model);
        fs::rename(&path, &subject.path).inspect_err(|_| {
            set(&subject.name, Some(subject.id));
            let left = fs::remove_file(&path).err().map(|_| new);
            set(&name, left);
        })
    }
}

fn open(path: &Path, flags: OFlags) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(flags.bits().cast_signed())
        .open(path)
}

/// A file without a name that may get one.
pub(crate) fn nameless(directory: &Path) -> io::Result<File> {
    open(directory, OFlags::TMPFILE)
}

fn allocate(file: &File, mode: FallocateFlags, range: &Range<u32>) -> io::Result<()> {
    let len = bytes(range.end - range.start);
    Ok(fallocate(file, mode, bytes(range.start), len)?)
}

/// Write values from a block on, with one call.
pub(crate) fn put(file: &File, values: &[BlockValue], start: u32) -> io::Result<()> {
    let mut buffer = AlignedBuffer::new(values.len() * BLOCK);
    for (bytes, value) in buffer.slice().chunks_exact_mut(BLOCK).zip(values) {
        bytes.copy_from_slice(&value.bytes());
    }
    file.write_all_at(buffer.slice(), bytes(start))
}

/// Read up to the end of the file; the rest of `buffer` stays as it is.
pub(crate) fn read_up_to(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut done = 0;
    while done < buffer.len() {
        match file.read_at(&mut buffer[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}
