//! A file whose every block is known.

use std::{
    fs::{File, OpenOptions},
    io,
    os::{fd::AsFd, unix::fs::FileExt},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, ensure};
use linux_abi::{
    cache,
    f2fs::offload::{Flags, Range, RangeOutcome, Report, Status, offload},
    fiemap::{ExtentFlags, Mapper},
};
use rustix::fs::Advice;

/// Size of a block of F2FS.
pub(crate) const BLOCK: u64 = 4096;

/// The content of a block: unlike that of any other block of any other file at any other time.
pub(crate) fn content(file: u64, block: u64, version: u64) -> Vec<u8> {
    let mut word = (file << 48 ^ version << 32 ^ block).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut bytes = Vec::with_capacity(BLOCK as usize);
    for _ in 0..BLOCK / 8 {
        bytes.extend_from_slice(&word.to_le_bytes());
        word = word.rotate_left(7).wrapping_add(0xD1B5_4A32_D192_ED03);
    }
    bytes
}

/// A file with its expected content.
pub(crate) struct Known {
    pub(crate) path: PathBuf,
    pub(crate) file: File,
    number: u64,
    /// The version of each block; 0 is a block of zeroes.
    versions: Vec<u64>,
}

impl Known {
    /// Create a new, empty one.
    pub(crate) fn create(folder: &Path, number: u64) -> Result<Self> {
        Self::open(folder, number, File::options().create_new(true), Vec::new())
    }

    /// An existing one of this many blocks, all in their first version.
    pub(crate) fn existing(folder: &Path, number: u64, blocks: u64) -> Result<Self> {
        let versions = vec![1; blocks as usize];
        Self::open(folder, number, &mut File::options(), versions)
    }

    fn open(folder: &Path, number: u64, how: &mut OpenOptions, versions: Vec<u64>) -> Result<Self> {
        let path = folder.join(format!("file{number}"));
        let file = how
            .read(true)
            .write(true)
            .open(&path)
            .with_context(|| path.display().to_string())?;
        Ok(Self {
            path,
            file,
            number,
            versions,
        })
    }

    /// The same, open for reading only.
    pub(crate) fn for_reading(mut self) -> Result<Self> {
        self.file = File::open(&self.path)?;
        Ok(self)
    }

    /// Change it by a descriptor that is open for writing only that long.
    pub(crate) fn change(&mut self, change: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        let writer = File::options().read(true).write(true).open(&self.path)?;
        let reader = std::mem::replace(&mut self.file, writer);
        let changed = change(self);
        self.file = reader;
        changed
    }

    /// Make a hole of these blocks.
    pub(crate) fn punch(&mut self, block: u64, count: u64) -> Result<()> {
        rustix::fs::fallocate(
            &self.file,
            rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE,
            block * BLOCK,
            count * BLOCK,
        )?;
        let end = self.blocks().min(block + count);
        if block < end {
            self.versions[block as usize..end as usize].fill(0);
        }
        Ok(())
    }

    /// Two of them, of this many blocks, in pieces of `piece` blocks each: written by turns.
    pub(crate) fn fragmented(
        folder: &Path,
        numbers: [u64; 2],
        blocks: u64,
        piece: u64,
    ) -> Result<[Self; 2]> {
        let mut files = [
            Self::create(folder, numbers[0])?,
            Self::create(folder, numbers[1])?,
        ];
        for start in (0..blocks).step_by(piece as usize) {
            for file in &mut files {
                file.write(start, piece.min(blocks - start), 1)?;
                // Blocks get their places here; nobody has to wait for the device.
                cache::start_writeback(&file.file, 0, 0)?;
            }
        }
        for file in &files {
            file.file.sync_all()?;
        }
        Ok(files)
    }

    /// Write blocks, in this version.
    pub(crate) fn write(&mut self, block: u64, count: u64, version: u64) -> Result<()> {
        let end = block + count;
        if self.versions.len() < end as usize {
            self.versions.resize(end as usize, 0);
        }
        let bytes: Vec<u8> = (block..end)
            .flat_map(|block| content(self.number, block, version))
            .collect();
        self.file.write_all_at(&bytes, block * BLOCK)?;
        self.versions[block as usize..end as usize].fill(version);
        Ok(())
    }

    /// Record that another writer has written this block in this version.
    pub(crate) fn note(&mut self, block: u64, version: u64) {
        self.versions[block as usize] = version;
    }

    /// Make it this many blocks long, with holes at the end if it was shorter.
    pub(crate) fn set_blocks(&mut self, blocks: u64) -> Result<()> {
        self.file.set_len(blocks * BLOCK)?;
        self.versions.resize(blocks as usize, 0);
        Ok(())
    }

    /// Write back its dirty blocks, so that they get their places on the device.
    pub(crate) fn write_back(&self) -> Result<()> {
        Ok(cache::write_and_wait(&self.file, 0, 0)?)
    }

    /// Drop it from the cache, as far as it is clean.
    pub(crate) fn drop_cache(&self) -> Result<()> {
        Ok(rustix::fs::fadvise(&self.file, 0, None, Advice::DontNeed)?)
    }

    pub(crate) fn blocks(&self) -> u64 {
        self.versions.len() as u64
    }

    /// Check that its content is as written.
    pub(crate) fn check(&self) -> Result<()> {
        let len = self.file.metadata()?.len();
        ensure!(
            len == self.blocks() * BLOCK,
            "{}: {len} bytes, not {} blocks",
            self.path.display(),
            self.blocks()
        );
        (0..self.blocks()).try_for_each(|block| self.check_block(block))
    }

    /// Check that this block is as written.
    pub(crate) fn check_block(&self, block: u64) -> Result<()> {
        let mut bytes = vec![0; BLOCK as usize];
        self.file
            .read_exact_at(&mut bytes, block * BLOCK)
            .with_context(|| format!("{} block {block}", self.path.display()))?;
        ensure!(
            self.is_right(block, &bytes),
            "{}: block {block} is not what was written (version {}), but begins with {:?}",
            self.path.display(),
            self.versions[block as usize],
            &bytes[..16]
        );
        Ok(())
    }

    /// Whether these bytes are the data written to this block.
    pub(crate) fn is_right(&self, block: u64, bytes: &[u8]) -> bool {
        match self.versions[block as usize] {
            0 => bytes.iter().all(|&byte| byte == 0),
            version => bytes == content(self.number, block, version),
        }
    }

    /// The same, from the device.
    pub(crate) fn check_on_device(&self) -> Result<()> {
        self.check().context("as cached")?;
        self.write_back()?;
        self.drop_cache()?;
        self.check().context("as on the device")
    }

    /// The place of its first block on the device.
    pub(crate) fn place(&self) -> io::Result<Option<u64>> {
        self.place_of(0)
    }

    /// The place of this block on the device.
    pub(crate) fn place_of(&self, block: u64) -> io::Result<Option<u64>> {
        let start = block * BLOCK;
        let mut mapper = Mapper::default();
        let extents = mapper.batch(&self.file, start, BLOCK, 0)?;
        Ok(extents
            .first()
            .map(|extent| extent.physical + (start - extent.logical)))
    }

    /// Runs of blocks that follow each other on the device, holes left out.
    pub(crate) fn fragments(&self) -> io::Result<u64> {
        let mut mapper = Mapper::default();
        let (mut start, mut fragments, mut next) = (0, 0, None);
        loop {
            let extents = mapper.batch(&self.file, start, u64::MAX - start, 0)?;
            let Some(last) = extents.last() else {
                return Ok(fragments);
            };
            start = last.logical + last.length;
            for extent in extents {
                let flags = ExtentFlags::from_bits_retain(extent.flags);
                if flags.intersects(ExtentFlags::UNWRITTEN | ExtentFlags::UNKNOWN) {
                    continue;
                }
                fragments += u64::from(next != Some(extent.physical));
                next = Some(extent.physical + extent.length);
            }
        }
    }

    /// The whole file as a range.
    pub(crate) fn whole(&self) -> Range<'_> {
        self.range(0, self.blocks())
    }

    /// The whole of it as a range by another descriptor.
    pub(crate) fn whole_of<'a>(&self, descriptor: &'a File) -> Range<'a> {
        Range {
            file: descriptor.as_fd(),
            start: 0,
            len: self.blocks() * BLOCK,
        }
    }

    pub(crate) fn range(&self, block: u64, count: u64) -> Range<'_> {
        Range {
            file: self.file.as_fd(),
            start: block * BLOCK,
            len: count * BLOCK,
        }
    }

    /// Move the whole file.
    pub(crate) fn relocate(&self, flags: Flags) -> Result<Report> {
        Ok(offload(&self.file, &[self.whole()], flags)?)
    }

    /// Move the whole file: this many blocks have to be moved, and be one piece.
    pub(crate) fn relocate_all(&self, flags: Flags, blocks: u64) -> Result<Report> {
        let report = self.relocate(flags)?;
        let wanted = RangeOutcome {
            status: Status::Done,
            moved: blocks * BLOCK,
        };
        ensure!(
            report.ranges == [wanted],
            "{}: {report:?} instead of {blocks} blocks",
            self.path.display()
        );
        Ok(report)
    }
}
