//! The demo's measurements of its files: contents, extents, requests, and the time of a cold
//! read.

use std::{
    fs::File,
    io::Read,
    path::{Path, PathBuf},
    time::Instant,
};

use anyhow::{Context, Result};
use indef_core::layout::Geometry;
use indef_engine::Cancel;
use indef_fs::{Mapper, map};
use rustix::fs::{Advice, fadvise};
use sha2::{Digest, Sha256};
use units::{Bytes, FileRange, Nanos};

use super::end::stop_if;
use crate::output::Name;

/// Number of cold reads; the result is their median.
const READS: usize = 5;
/// The longest request of a usual block device.
const MAX_REQUEST: Bytes = Bytes::kib(256);

/// The measurements over all files.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DemoRead {
    /// Median time of a cold sequential read.
    pub(super) read: Nanos,
    pub(super) size: Bytes,
    pub(super) extents: u64,
    /// Requests of such a read, computed from the extents.
    pub(super) requests: u64,
    /// Requests of such a read, counted by the device itself.
    pub(super) device_reads: Option<u64>,
}

/// Read everything cold, several times, and count. `device_reads` returns the device's own count.
pub(super) fn measure(
    files: &[PathBuf],
    device_reads: &dyn Fn() -> Option<u64>,
    cancel: &Cancel,
) -> Result<DemoRead> {
    let mut measured = DemoRead::default();
    let mut mapper = Mapper::default();
    for path in files {
        let file = open(path)?;
        let size = Bytes(file.metadata()?.len());
        let range = FileRange::new(0, size.get());
        let layout = map(&file, path, range, true, &mut mapper)?;
        measured.size += size;
        measured.extents += layout.fragments();
        measured.requests += layout
            .measure(range, &Geometry::Unknown, MAX_REQUEST)
            .requests;
    }
    let mut times = Vec::with_capacity(READS);
    for _ in 0..READS {
        stop_if(cancel)?;
        forget(files)?;
        let reads = device_reads();
        let begun = Instant::now();
        for path in files {
            read(path, |_| {})?;
        }
        times.push(Nanos::from(begun.elapsed()));
        measured.device_reads = device_reads()
            .zip(reads)
            .map(|(now, then)| now.saturating_sub(then));
    }
    times.sort_unstable();
    measured.read = times[READS / 2];
    Ok(measured)
}

/// Drop the files from the page cache.
pub(super) fn forget(files: &[PathBuf]) -> Result<()> {
    for path in files {
        let file = open(path)?;
        // Dirty pages cannot be dropped.
        file.sync_data()?;
        fadvise(&file, 0, None, Advice::DontNeed)?;
    }
    Ok(())
}

/// The SHA-256 of each file.
pub(super) fn hashes(files: &[PathBuf], cancel: &Cancel) -> Result<Vec<[u8; 32]>> {
    let hash = |path: &PathBuf| {
        stop_if(cancel)?;
        let mut hasher = Sha256::new();
        read(path, |data| hasher.update(data))?;
        Ok(hasher.finalize().into())
    };
    files.iter().map(hash).collect()
}

fn open(path: &Path) -> Result<File> {
    File::open(path).with_context(|| format!("{}: cannot open it", Name(path)))
}

/// Read a whole file as most programs do.
pub(super) fn read(path: &Path, mut take: impl FnMut(&[u8])) -> Result<()> {
    let mut file = open(path)?;
    let mut buffer = vec![0; 128 << 10];
    loop {
        let n = file
            .read(&mut buffer)
            .with_context(|| format!("{}: cannot read it", Name(path)))?;
        if n == 0 {
            return Ok(());
        }
        take(&buffer[..n]);
    }
}
