//! One file of a walk: is it worth opening, and if so, where does its data lie?

use std::{ffi::CStr, fs::File, path::Path, sync::Arc};

use indef_core::{
    SkipReason,
    layout::{Extent, ExtentFlags, HeldExtent, Layout},
    plan::BirthTime,
};
use indef_fs::{
    Expected, Filesystem, FsKind, InodePlace, Inodes, Mapper, Refusal, RootEntry, TargetId, map,
    partly_reached,
};
use rustix::{
    fs::{AtFlags, FileType, Statx, StatxFlags, statx},
    io::Errno,
};
use units::{Bytes, FileOffset, FileRange, PhysOffset};

use super::{
    counts::count,
    directory::{Directory, KnownFs, Prefix, RootedPath},
    names::NamesBuilder,
    seen::{CollectOptions, FoundFile},
    walker::{LOOKED_AT, WalkTask, Walker, identity, is_mount_root, look_at},
};

/// `stx_blocks` counts these.
const SECTOR: u64 = 512;

impl Walker<'_, '_> {
    /// Look at an entry that the directory calls a regular file, by its inode alone. Returns
    /// `false` if that is not enough.
    pub(super) fn by_inode(
        &mut self,
        directory: &Directory,
        prefix: Prefix<'_>,
        name: &CStr,
        inode: u64,
        inodes: &Inodes,
    ) -> bool {
        let walk = self.walk;
        let id = TargetId {
            dev: directory.node.dev,
            inode,
        };
        let fs = &directory.tree.known.fs;
        match walk.listed((id.dev, inode)) {
            Some(None) => return true,
            Some(Some(generation)) => {
                return self.by_handle(inodes, (inode, generation), fs, prefix.join(name));
            }
            None => {}
        }
        self.use_chunk_of(id.dev);
        let Some(known) = inodes.file(inode, &mut self.chunk) else {
            return false;
        };
        if walk.options.held && inodes.reaches_all(inode, &mut self.chunk) != Some(true) {
            return false;
        }
        let facts = Facts {
            id,
            born: None,
            size: known.size,
            allocated: known.allocated,
        };
        let (layout, mapped) = match known.place {
            InodePlace::Known(layout) => (layout, inodes.have_places()),
            InodePlace::Unknown => match facts.evident_layout(fs.block_size, walk.options.blocks) {
                Some(layout) => (layout, false),
                None => return false,
            },
            InodePlace::InFile(generation) => {
                return self.by_handle(inodes, (inode, generation), fs, prefix.join(name));
            }
        };
        if self.passes(id, known.links, known.size) {
            let held = walk.options.held.then(Vec::new);
            walk.see_file(facts.found(prefix.join(name), fs, mapped, held, Ok(layout)));
        }
        true
    }

    /// Open a file by its number and generation, and map it. Returns `false` if it is not there. All that is told is of
    /// the file that was opened: its size is true now, that of its inode may be of before.
    fn by_handle(
        &mut self,
        inodes: &Inodes,
        (inode, generation): (u64, u32),
        fs: &Arc<Filesystem>,
        place: RootedPath,
    ) -> bool {
        let walk = self.walk;
        let opened = inodes.open_file(inode, generation).map(File::from);
        let look = |file| Some((statx(&file, "", AtFlags::EMPTY_PATH, LOOKED_AT).ok()?, file));
        let Some((status, file)) = opened.and_then(look) else {
            return false;
        };
        let facts = Facts::of(&status);
        if self.passes(facts.id, status.stx_nlink, facts.size) {
            let whole = facts.whole(fs.block_size);
            let result = map(&file, &place.path, whole, false, &mut self.mapper);
            let held = walk.options.held.then(Vec::new);
            walk.see_file(facts.found(place, fs, true, held, result));
        }
        true
    }

    /// Whether a file that was found by its inode is to be told; counts what is left out.
    fn passes(&self, id: TargetId, links: u32, size: Bytes) -> bool {
        let walk = self.walk;
        if walk.given.contains(&(id.dev, id.inode)) {
            return false;
        }
        if links > 1 && !walk.is_first((id.dev, id.inode)) {
            count(&walk.counts.hard_links);
            return false;
        }
        if walk.options.select.is_too_small(size) {
            count(&walk.counts.small);
            return false;
        }
        true
    }

    pub(super) fn use_chunk_of(&mut self, dev: u64) {
        if self.chunk_dev != dev {
            self.chunk.clear();
            self.chunk_dev = dev;
        }
    }

    /// Look at an entry of a directory that is, or may be, a regular file. `kind` is what the directory calls it.
    pub(super) fn entry(
        &mut self,
        directory: &Arc<Directory>,
        prefix: Prefix<'_>,
        name: &CStr,
        kind: FileType,
    ) {
        let walk = self.walk;
        let status = match look_at(directory, name) {
            Ok(status) => status,
            Err(Errno::NOENT) => return count(&walk.counts.vanished),
            Err(errno) => {
                return walk.failed(prefix.join(name).path, "look at the file", errno);
            }
        };
        match FileType::from_raw_mode(status.stx_mode.into()) {
            FileType::RegularFile => {}
            FileType::Directory => {
                let mut names = NamesBuilder::default();
                names.push(name, status.stx_ino, FileType::Directory);
                let work = WalkTask::Enter(Arc::clone(directory), names.finish());
                return walk.pending.push([work]);
            }
            _ => return count(&walk.counts.others),
        }
        if kind == FileType::Unknown && walk.leaves_file(directory, prefix, name) {
            return;
        }
        let id = identity(&status);
        let elsewhere = id.0 != directory.node.dev || is_mount_root(&status);
        if elsewhere && walk.options.one_file_system {
            return count(&walk.counts.other_file_systems);
        }
        if walk.given.contains(&id) || walk.listed(id) == Some(None) {
            return;
        }
        if status.stx_nlink > 1 && !walk.is_first(id) {
            return count(&walk.counts.hard_links);
        }
        let facts = Facts::of(&status);
        if walk.options.select.is_too_small(facts.size) {
            return count(&walk.counts.small);
        }
        let known = (id.0 == directory.node.dev).then_some(&directory.tree.known);
        if let Some(known) = known
            && let Some((layout, mapped)) = self.without_opening(&facts, &status, known)
        {
            let place = prefix.join(name);
            let held = walk.options.held.then(Vec::new);
            return walk.see_file(facts.found(place, &known.fs, mapped, held, Ok(layout)));
        }
        let place = prefix.join(name);
        match RootEntry::beside(directory, name, &place.path) {
            Ok(entry) if (entry.id().dev, entry.id().inode) == id => {
                self.file(entry, place, &status, known);
            }
            // Gone, or replaced by something that was not looked at.
            Ok(_) | Err(Refusal::Skip(SkipReason::Gone)) => count(&walk.counts.vanished),
            Err(refusal) => walk.problem(place.path, refusal),
        }
    }

    /// Map a regular file that was found.
    pub(super) fn file(
        &mut self,
        entry: RootEntry,
        place: RootedPath,
        status: &Statx,
        known: Option<&Arc<KnownFs>>,
    ) {
        let walk = self.walk;
        let facts = Facts::of(status);
        let path = entry.path();
        let file = match entry.open_to_map() {
            Ok(file) => File::from(file),
            Err(refusal) => {
                return match known {
                    Some(known) => {
                        walk.see_file(facts.found(place, &known.fs, false, None, Err(refusal)));
                    }
                    None => walk.problem(place.path, refusal),
                };
            }
        };
        let looked_up;
        let fs = match known {
            Some(known) => &known.fs,
            None => match walk.file_system(facts.id.dev, &file, path) {
                Ok(known) => {
                    looked_up = known;
                    &looked_up.fs
                }
                Err(error) => return walk.problem(place.path, error.into()),
            },
        };
        walk.see_file(facts.look_into(&file, place, fs, walk.options, &mut self.mapper));
    }

    /// The layout if it is known from `facts`, or from the inode; and whether the places in it are
    /// real. Where extents are asked for that the file does not reach all of, it has none.
    fn without_opening(
        &mut self,
        facts: &Facts,
        status: &Statx,
        known: &KnownFs,
    ) -> Option<(Layout, bool)> {
        if self.walk.options.held && !self.reaches_all(facts, known) {
            return None;
        }
        if let Some(layout) = facts.evident_layout(known.fs.block_size, self.walk.options.blocks) {
            return Some((layout, false));
        }
        let inodes = known.inodes.as_ref()?;
        self.use_chunk_of(facts.id.dev);
        let layout = inodes.layout(&facts.expected(status), &mut self.chunk)?;
        Some((layout, inodes.have_places()))
    }

    /// Whether it is known without a look at the file that it reaches all of its extents.
    fn reaches_all(&mut self, facts: &Facts, known: &KnownFs) -> bool {
        if facts.allocated.is_zero() {
            return true;
        }
        match (&known.inodes, known.fs.kind) {
            (Some(inodes), _) => {
                self.use_chunk_of(facts.id.dev);
                inodes.reaches_all(facts.id.inode, &mut self.chunk) == Some(true)
            }
            (None, FsKind::Ext4 | FsKind::Xfs | FsKind::F2fs) => true,
            (None, FsKind::Btrfs | FsKind::Other(_)) => false,
        }
    }
}

/// Parts past the end of a file are not in its map: whether others hold them is asked for by itself.
fn note_shared_past(
    held: &mut [HeldExtent],
    end: FileOffset,
    file: &File,
    path: &Path,
    mapper: &mut Mapper,
) -> Result<(), Refusal> {
    let parts = held.iter().flat_map(|extent| &extent.parts);
    let last = parts.map(|part| part.end()).max();
    let past = FileRange::between(end, last.unwrap_or(end));
    if !past.is_empty() {
        let further = map(file, path, past, false, mapper)?;
        held.iter_mut().for_each(|held| held.note_shared(&further));
    }
    Ok(())
}

/// The facts that are known of a file before it is opened.
pub(super) struct Facts {
    pub(super) id: TargetId,
    pub(super) born: Option<BirthTime>,
    pub(super) size: Bytes,
    pub(super) allocated: Bytes,
}

impl Facts {
    /// Look into a file that is open.
    pub(super) fn look_into(
        &self,
        file: &File,
        place: RootedPath,
        fs: &Arc<Filesystem>,
        options: &CollectOptions,
        mapper: &mut Mapper,
    ) -> FoundFile {
        let whole = self.whole(fs.block_size);
        let look = || partly_reached(fs.kind, file, self.id.inode).ok();
        let mut held = options.held.then(look).flatten();
        if let Some(held) = &mut held
            && let Err(refusal) = note_shared_past(held, whole.end(), file, &place.path, mapper)
        {
            return self.found(place, fs, false, None, Err(refusal));
        }
        if let Some(layout) = self.evident_layout(fs.block_size, options.blocks)
            && held.as_ref().is_none_or(Vec::is_empty)
        {
            return self.found(place, fs, false, held, Ok(layout));
        }
        // Blocks that are allocated past the end are never read.
        let result = map(file, &place.path, whole, options.sync, mapper);
        self.found(place, fs, true, held, result)
    }

    pub(super) fn of(status: &Statx) -> Self {
        let (dev, inode) = identity(status);
        Self {
            id: TargetId { dev, inode },
            born: (status.stx_mask & StatxFlags::BTIME.bits() != 0).then_some(BirthTime {
                seconds: status.stx_btime.tv_sec,
                nanos: status.stx_btime.tv_nsec,
            }),
            size: Bytes(status.stx_size),
            allocated: Bytes(status.stx_blocks.saturating_mul(SECTOR)),
        }
    }

    /// Its range, in whole blocks.
    fn whole(&self, block_size: Bytes) -> FileRange {
        FileRange::new(0, self.size.get()).align_outward(block_size)
    }

    /// With which its inode must agree.
    fn expected(&self, status: &Statx) -> Expected {
        Expected {
            inode: self.id.inode,
            size: self.size,
            allocated: self.allocated,
            ctime: (status.stx_ctime.tv_sec, status.stx_ctime.tv_nsec),
        }
    }

    pub(super) fn found(
        &self,
        place: RootedPath,
        fs: &Arc<Filesystem>,
        mapped: bool,
        held: Option<Vec<HeldExtent>>,
        result: Result<Layout, Refusal>,
    ) -> FoundFile {
        FoundFile {
            path: place.path,
            root_len: place.root_len,
            id: self.id,
            born: self.born,
            size: self.size,
            allocated: self.allocated,
            block_size: fs.block_size,
            fs: Arc::clone(fs),
            mapped,
            held,
            result,
        }
    }

    /// The layout of a file that has at most one block, which needs no look.
    fn evident_layout(&self, block_size: Bytes, blocks: bool) -> Option<Layout> {
        if self.size.is_zero() || self.allocated.is_zero() {
            // Nothing, only holes, or data inside the inode.
            return Some(Layout::default());
        }
        (self.allocated <= block_size && !blocks).then(|| {
            Layout::new(vec![Extent {
                file: FileOffset(0),
                phys: PhysOffset(0),
                len: block_size,
                flags: ExtentFlags::UNPLACED,
            }])
        })
    }
}
