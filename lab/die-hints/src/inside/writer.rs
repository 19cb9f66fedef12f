//! Writes whose content can be told again.

use std::{
    fs::{File, OpenOptions},
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::Path,
};

use anyhow::{Context, Result};
use rustix::fs::OFlags;
use workloads::Numbers;

/// Die allocation granularity of the paper's devices, and the size of a piece.
pub const GRANULE: u64 = 32 << 10;
/// Alignment of memory for direct writes.
const ALIGNMENT: usize = 4096;

/// How a write gets to the device.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// Through the page cache, each with `fdatasync`: blocks are allocated when it is written back.
    Fdatasync,
    /// Around the page cache.
    Direct,
}

pub(super) struct Writer {
    file: File,
    way: Way,
    memory: Vec<u8>,
}

impl Writer {
    pub(super) fn create(path: &Path, way: Way) -> Result<Self> {
        let flags = match way {
            Way::Fdatasync => OFlags::empty(),
            Way::Direct => OFlags::DIRECT,
        };
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .custom_flags(flags.bits() as i32)
            .open(path)
            .with_context(|| path.display().to_string())?;
        Ok(Self {
            file,
            way,
            memory: Vec::new(),
        })
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// Write this version of a range, and have it on the device afterwards. Nobody reads version 0: it
    /// may have any content.
    pub(super) fn write(&mut self, start: u64, len: u64, version: u64) -> Result<()> {
        self.put(start, len, GRANULE, version)
    }

    /// The same, with content that can be told for each block of `block` bytes.
    pub(super) fn write_blocks(
        &mut self,
        start: u64,
        blocks: u64,
        block: u64,
        version: u64,
    ) -> Result<()> {
        self.put(start, blocks * block, block, version)
    }

    fn put(&mut self, start: u64, len: u64, unit: u64, version: u64) -> Result<()> {
        let len = len as usize;
        self.memory.resize(len + ALIGNMENT, 0);
        let at = self.memory.as_ptr().align_offset(ALIGNMENT);
        let aligned = &mut self.memory[at..][..len];
        if version > 0 {
            let units = aligned.chunks_mut(unit as usize);
            for (at, memory) in (start..).step_by(unit as usize).zip(units) {
                fill(memory, at, version);
            }
        }
        self.file.write_all_at(aligned, start)?;
        if self.way == Way::Fdatasync {
            self.file.sync_data()?;
        }
        Ok(())
    }
}

/// The content of a version of what begins at `start`.
pub(super) fn fill(memory: &mut [u8], start: u64, version: u64) {
    Numbers::stream(version, start).fill(memory);
}
