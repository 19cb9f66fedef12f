//! Reads of ranges of one file.

use std::{
    fs::{File, OpenOptions},
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use rustix::fs::OFlags;
use scratch_fs::AlignedBuffer;
use units::Bytes;

/// Bytes of one read.
pub(super) const READ: Bytes = Bytes::kib(128);

/// Reads ranges of a file, bypassing every cache of the system.
pub(super) struct DirectReader {
    file: File,
    buffer: AlignedBuffer,
}

impl DirectReader {
    pub(super) fn open(path: &Path) -> Result<Self> {
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(OFlags::DIRECT.bits() as i32)
            .open(path)
            .with_context(|| format!("cannot open {}", path.display()))?;
        Ok(Self {
            file,
            buffer: AlignedBuffer::new(READ.get() as usize),
        })
    }

    /// Read a range. Returns the time that it took.
    pub(super) fn read(&mut self, range: u32) -> Result<Duration> {
        let offset = u64::from(range) * READ.get();
        let started = Instant::now();
        self.file.read_exact_at(self.buffer.slice(), offset)?;
        Ok(started.elapsed())
    }
}
