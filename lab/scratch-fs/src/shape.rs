//! Files made of data in pieces, holes and unwritten ranges.

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::FileExt,
    path::Path,
};

use linux_abi::{
    cache::start_writeback,
    fiemap::{ExtentFlags, FLAG_SYNC, Mapper},
};
use rustix::fs::{FallocateFlags, fallocate};
use units::{Bytes, FileOffset, FileRange};

use crate::{content, nameless::nameless};

/// `EXT4_SUPER_MAGIC` (linux/magic.h, v6.1).
const EXT4: i64 = 0xEF53;
/// `F2FS_SUPER_MAGIC` (linux/magic.h, v6.1).
const F2FS: i64 = 0xF2F5_2010;
/// F2FS knows no other.
const BLOCK: u64 = 4096;
/// Dummies kept before giving up.
const TRIES: usize = 24;
/// Holes from this length on are never allocated.
const LONG_HOLE: Bytes = Bytes::mib(4);
/// Pieces by which small free spaces are used up in a second attempt; more in later ones.
const FILL: u64 = 64;

/// A part of a file.
#[derive(Clone, Copy, Debug)]
pub enum Segment {
    /// Written bytes in fragments of `piece`.
    Data {
        /// Length of the segment.
        len: Bytes,
        /// Length of each fragment.
        piece: Bytes,
    },
    /// No blocks.
    Hole(Bytes),
    /// Allocated, never written, in fragments of `piece`.
    Unwritten {
        /// Length of the segment.
        len: Bytes,
        /// Length of each fragment.
        piece: Bytes,
    },
}

impl Segment {
    const fn len(self) -> Bytes {
        match self {
            Self::Data { len, .. } | Self::Unwritten { len, .. } | Self::Hole(len) => len,
        }
    }

    /// Length of its fragments; none for a hole.
    const fn piece(self) -> Option<u64> {
        match self {
            Self::Data { piece, .. } | Self::Unwritten { piece, .. } => {
                Some(if piece.0 == 0 { 1 } else { piece.0 })
            }
            Self::Hole(_) => None,
        }
    }
}

/// The wanted state of a file, segment by segment.
#[derive(Clone, Debug, Default)]
pub struct Shape {
    seed: u64,
    segments: Vec<Segment>,
    exact: bool,
}

impl Shape {
    /// An empty file; its content will come from `seed` (see [`content`]).
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            segments: Vec::new(),
            exact: true,
        }
    }

    /// With one more segment at the end.
    #[must_use]
    pub fn with(mut self, segment: Segment) -> Self {
        self.segments.push(segment);
        self
    }

    /// The segments so far, `times` over.
    #[must_use]
    pub fn repeated(mut self, times: usize) -> Self {
        self.segments = self.segments.repeat(times);
        self
    }

    /// Do not insist on the number of fragments: for nearly full file systems, where the free
    /// space decides.
    #[must_use]
    pub fn roughly(mut self) -> Self {
        self.exact = false;
        self
    }

    /// 32 fragments of 4 KiB and then one of 128 KiB, over and over, up to about `size`: half of it
    /// is worth moving for a reader that reads 128 KiB at a time.
    #[must_use]
    pub fn half_contiguous(seed: u64, size: Bytes) -> Self {
        let (small, large) = (Bytes::kib(4), Bytes::kib(128));
        Self::new(seed)
            .with(Segment::Data {
                len: large,
                piece: small,
            })
            .with(Segment::Data {
                len: large,
                piece: large,
            })
            .repeated(size.div_ceil(large * 2) as usize)
    }

    /// Size of the file.
    #[must_use]
    pub fn size(&self) -> Bytes {
        self.segments.iter().map(|segment| segment.len()).sum()
    }

    /// Number of fragments that the file shall have.
    #[must_use]
    pub fn fragments(&self) -> u64 {
        let pieces = |segment: &Segment| {
            let piece = segment.piece()?;
            Some(segment.len().div_ceil(Bytes(piece)))
        };
        self.segments.iter().filter_map(pieces).sum()
    }

    /// Whether the file has the fragments asked for; on F2FS more will do, as a section may end in the midst
    /// of a piece.
    fn is_as_wanted(&self, file: &File) -> io::Result<bool> {
        let (is, wanted) = (fragments(file)?, self.fragments());
        Ok(is == wanted || (is > wanted && is_on_f2fs(file)?))
    }

    /// Make it, replacing what is at `path`.
    ///
    /// Every piece is allocated in turn with one of a nameless dummy file, which separates it from
    /// the next piece; data is written into the allocated blocks afterwards, in large requests.
    /// Whether it worked is seen before anything is written, and tried again elsewhere if not. F2FS gives
    /// blocks their place when they are written, so there the pieces are written in turn; unwritten ranges
    /// have no place there, and no number of fragments is insisted on where there are some.
    ///
    /// # Errors
    ///
    /// The kernel's error, or that the file did not get the fragments asked for.
    pub fn make(&self, path: &Path) -> io::Result<()> {
        let mut dummies = Vec::new();
        let mut exact = self.exact;
        let file = loop {
            // A new inode each time: what was allocated in vain stays so, and is out of the way.
            match std::fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            let file = OpenOptions::new()
                .read(true)
                .write(true)
                .create_new(true)
                .open(path)?;
            if is_on_f2fs(&file)? {
                exact &= !self.has_unwritten();
                dummies.push(self.write_in_turn(&file, path)?);
                self.settle(&file)?;
            } else {
                self.allocate(&file, path, &mut dummies)?;
            }
            if !exact || self.is_as_wanted(&file)? || dummies.len() > TRIES {
                break file;
            }
            dummies.push(file);
        };
        if !is_on_f2fs(&file)? {
            self.write(&file)?;
            self.settle(&file)?;
        }
        drop(dummies);
        if exact && !self.is_as_wanted(&file)? {
            let made = fragments(&file)?;
            return Err(io::Error::other(format!(
                "{}: {made} fragments came out instead of {}",
                path.display(),
                self.fragments()
            )));
        }
        Ok(())
    }

    fn settle(&self, file: &File) -> io::Result<()> {
        file.set_len(self.size().get())?;
        file.sync_all()
    }

    fn has_unwritten(&self) -> bool {
        let unwritten = |segment: &Segment| matches!(segment, Segment::Unwritten { .. });
        self.segments.iter().any(unwritten)
    }

    /// Write every piece, and after each as much of a dummy, which comes back.
    fn write_in_turn(&self, file: &File, path: &Path) -> io::Result<File> {
        let dummy = nameless(path)?;
        let mut between = 0;
        let mut buffer = Vec::new();
        for (start, segment) in self.placed() {
            let end = start + segment.len().get();
            let piece = match segment {
                Segment::Data { .. } => segment.piece().unwrap_or(1),
                Segment::Unwritten { len, .. } => {
                    fallocate(file, FallocateFlags::empty(), start, len.get())?;
                    continue;
                }
                Segment::Hole(_) => continue,
            };
            for offset in (start..end).step_by(piece as usize) {
                let length = piece.min(end - offset);
                buffer.resize(length as usize, 0);
                content(&mut buffer, self.seed, FileOffset(offset));
                file.write_all_at(&buffer, offset)?;
                // Each block gets its place here; nobody has to wait for the device.
                start_writeback(file, offset, length)?;
                // As much: up to 16 blocks at a time go to another log (`min_hot_blocks`).
                let apart = length.next_multiple_of(BLOCK);
                dummy.write_all_at(&vec![0; apart as usize], between)?;
                start_writeback(&dummy, between, apart)?;
                between += apart;
            }
        }
        Ok(dummy)
    }

    /// Each segment with its offset.
    fn placed(&self) -> impl Iterator<Item = (u64, Segment)> + '_ {
        let mut offset = 0;
        self.segments.iter().map(move |segment| {
            let start = offset;
            offset += segment.len().get();
            (start, *segment)
        })
    }

    /// Each fragment that the file shall have, and each hole as one.
    fn pieces(&self) -> impl Iterator<Item = FileRange> + '_ {
        self.placed().flat_map(|(start, segment)| {
            let end = start + segment.len().get();
            let step = segment.piece().unwrap_or(segment.len().get().max(1));
            (start..end)
                .step_by(step as usize)
                .map(move |offset| FileRange::new(offset, step.min(end - offset)))
        })
    }

    /// Allocate every piece, and a piece of a dummy after each. Short holes are punched afterwards:
    /// XFS leaves a gap on the device for one in the file, where the dummy would go instead.
    fn allocate(&self, file: &File, path: &Path, dummies: &mut Vec<File>) -> io::Result<()> {
        let allocate = |file, offset, len| fallocate(file, FallocateFlags::empty(), offset, len);
        if !dummies.is_empty() {
            self.fill_small_spaces(path, dummies)?;
        }
        let dummy = nameless(path)?;
        let mut offset = 0;
        let long = |piece: &FileRange| piece.len > LONG_HOLE && self.is_hole(piece.start);
        let pieces: Vec<FileRange> = self.pieces().filter(|piece| !long(piece)).collect();
        for piece in &pieces {
            allocate(file, piece.start.get(), piece.len.get())?;
            allocate(&dummy, offset, piece.len.get())?;
            offset += piece.len.get();
        }
        dummies.push(dummy);
        if self.exact && rustix::fs::fstatfs(file)?.f_type == EXT4 {
            crate::ext4::separate(file, path, &pieces, dummies)?;
        }
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        for (start, segment) in self.placed() {
            if let Segment::Hole(len) = segment
                && !len.is_zero()
            {
                fallocate(file, punch, start, len.get())?;
            }
        }
        Ok(())
    }

    fn is_hole(&self, at: FileOffset) -> bool {
        self.placed()
            .any(|(start, segment)| start == at.get() && matches!(segment, Segment::Hole(_)))
    }

    /// Use up free space in small pieces, where a dummy would find a place of its own; at most a quarter of what is free, as the
    /// next try needs space too.
    fn fill_small_spaces(&self, path: &Path, dummies: &mut Vec<File>) -> io::Result<()> {
        let Some(len) = self.pieces().map(|piece| piece.len.get()).min() else {
            return Ok(());
        };
        let fill = nameless(path)?;
        let free = rustix::fs::fstatvfs(&fill)?;
        let most = free.f_bavail * free.f_frsize / 4 / len.max(1);
        for i in 0..most.min(FILL << dummies.len().min(8)) {
            fallocate(&fill, FallocateFlags::empty(), i * len, len)?;
        }
        dummies.push(fill);
        Ok(())
    }

    fn write(&self, file: &File) -> io::Result<()> {
        let mut buffer = vec![0; 1 << 20];
        for (start, segment) in self.placed() {
            let Segment::Data { len, .. } = segment else {
                continue;
            };
            let end = start + len.get();
            let mut offset = start;
            while offset < end {
                let length = (end - offset).min(1 << 20) as usize;
                content(&mut buffer[..length], self.seed, FileOffset(offset));
                file.write_all_at(&buffer[..length], offset)?;
                offset += length as u64;
            }
        }
        Ok(())
    }
}

/// Number of fragments of `file` after writing it back: extents that touch in the file and on the
/// device count once, whatever their flags.
///
/// # Errors
///
/// The error of FIEMAP.
pub fn fragments(file: &File) -> io::Result<u64> {
    let mut mapper = Mapper::default();
    let (mut start, mut count) = (0, 0);
    let mut end_of_last = None;
    loop {
        let batch = mapper.batch(file, start, u64::MAX - start, FLAG_SYNC)?;
        let Some(last) = batch.last() else {
            return Ok(count);
        };
        for extent in batch {
            if end_of_last != Some((extent.logical, extent.physical)) {
                count += 1;
            }
            end_of_last = Some((
                extent.logical + extent.length,
                extent.physical + extent.length,
            ));
        }
        start = last.logical + last.length;
        if ExtentFlags::from_bits_retain(last.flags).contains(ExtentFlags::LAST) {
            return Ok(count);
        }
    }
}

/// The most fragments that may be left of `len` bytes that `BTRFS_IOC_DEFRAG_RANGE` has rewritten, of which it leaves `usual` where
/// nobody else works. It makes 256 KiB dirty at a time. Whoever writes that back before the next comes cuts the file there,
/// and the kernel does when much is dirty on the machine.
#[must_use]
pub fn most_left_by_btrfs(len: Bytes, usual: u64) -> u64 {
    usual.max(len.div_ceil(Bytes::kib(256)))
}

fn is_on_f2fs(file: &File) -> io::Result<bool> {
    Ok(rustix::fs::fstatfs(file)?.f_type == F2FS)
}

/// Make `to` a reflink copy of `from`: all extents shared.
///
/// # Errors
///
/// The error of `FICLONE`: `EOPNOTSUPP` where the file system cannot share.
pub fn reflink(from: &Path, to: &Path) -> io::Result<()> {
    let target = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .open(to)?;
    rustix::fs::ioctl_ficlone(&target, File::open(from)?)?;
    target.sync_all()
}
