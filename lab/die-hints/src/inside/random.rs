//! Files that several threads write at random, each in its own way, and compare afterwards: every
//! block has the content of its last write.

use std::{
    fs::{self, File},
    os::unix::fs::FileExt,
    path::Path,
    thread,
};

use anyhow::{Context, Result, ensure};
use rustix::fs::{Advice, FallocateFlags, fadvise, fallocate};
use workloads::Numbers;

use super::{
    extents::{Written, extents},
    writer::{Way, Writer, fill},
};

const FILE: u64 = 32 << 20;
const BLOCK: u64 = 4096;
/// The longest write, in blocks.
const MOST: u64 = 16;

/// A thread's way to write.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// At random, through the page cache, one fdatasync for each write.
    Synced,
    /// At random, around the page cache.
    Direct,
    /// One write after the other.
    Append,
    /// At random into blocks that are allocated already, and not written yet.
    Prepared,
}

/// Each thread does so many writes.
pub(super) fn run(folder: &Path, writes: u64) -> Result<Vec<Written>> {
    let kinds = [Kind::Synced, Kind::Direct, Kind::Append, Kind::Prepared];
    thread::scope(|scope| {
        let threads = kinds.map(|kind| scope.spawn(move || write(folder, kind, writes)));
        let mut found = Vec::new();
        for (kind, thread) in kinds.into_iter().zip(threads) {
            let written = thread.join().ok().context("a thread panicked")?;
            found.push(written.with_context(|| format!("{kind:?}"))?);
        }
        Ok(found)
    })
}

fn write(folder: &Path, kind: Kind, writes: u64) -> Result<Written> {
    let path = folder.join(format!("{kind:?}"));
    let _ = fs::remove_file(&path);
    let way = match kind {
        Kind::Direct => Way::Direct,
        Kind::Synced | Kind::Append | Kind::Prepared => Way::Fdatasync,
    };
    let mut writer = Writer::create(&path, way)?;
    if let Kind::Prepared = kind {
        fallocate(writer.file(), FallocateFlags::empty(), 0, FILE)?;
    }
    let mut numbers = Numbers::stream(2, kind as u64);
    // The last version of each block; 0: not written.
    let mut versions = vec![0; (FILE / BLOCK) as usize];
    let mut end = 0;
    for version in 1..=writes {
        let blocks = numbers.below(MOST) + 1;
        let first = match kind {
            Kind::Append if end + blocks > FILE / BLOCK => 0,
            Kind::Append => end,
            _ => numbers.below(FILE / BLOCK - blocks),
        };
        end = first + blocks;
        writer.write_blocks(first * BLOCK, blocks, BLOCK, version)?;
        versions[first as usize..end as usize].fill(version);
    }
    drop(writer);
    compare(&path, &versions)?;
    let holes = versions.contains(&0);
    match holes {
        // A map of a file with holes is of no use here.
        true => Ok(Written {
            bytes: 0,
            extents: Vec::new(),
        }),
        false => extents(&path),
    }
}

/// Compares the file, read from the device, with what was written last.
fn compare(path: &Path, versions: &[u64]) -> Result<()> {
    let file = File::open(path)?;
    file.sync_all()?;
    fadvise(&file, 0, None, Advice::DontNeed)?;
    let bytes = file.metadata()?.len();
    let (mut found, mut wanted) = ([0; BLOCK as usize], [0; BLOCK as usize]);
    for (at, version) in (0..bytes).step_by(BLOCK as usize).zip(versions) {
        file.read_exact_at(&mut found, at)?;
        match version {
            0 => wanted.fill(0),
            version => fill(&mut wanted, at, *version),
        }
        ensure!(
            found == wanted,
            "{}: at {at}, version {version} is not there",
            path.display()
        );
    }
    Ok(())
}
