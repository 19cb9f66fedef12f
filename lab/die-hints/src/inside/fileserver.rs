//! Files to which ten threads append at random (FAST'24 §5.2: 10,000 files of 128 KiB, appends of 32 KB
//! or 16 KB for a minute, after which they had 600 KB in the mean).

use std::{
    fs::{self, File},
    path::Path,
    sync::{Mutex, PoisonError},
    thread,
};

use anyhow::{Context, Result, bail, ensure};
use rustix::fs::{Advice, fadvise};
use workloads::Numbers;

use super::{
    extents::{Written, extents},
    writer::{Way, Writer, fill},
};

const THREADS: u64 = 10;
/// The length of a file before the appends.
const FIRST: u64 = 128 << 10;
/// The unit of contents.
const BLOCK: u64 = 4096;

/// A file, and where it ends.
struct Open {
    writer: Writer,
    end: u64,
}

/// Each of `files` gets so many appends of `bytes` in the mean, each with `fdatasync`; or it is written
/// at once with the length that they would have given it.
pub(super) fn run(
    folder: &Path,
    files: u64,
    bytes: u64,
    appends: u64,
    how: &str,
) -> Result<Vec<Written>> {
    let at_once = match how {
        "appended" => false,
        "whole" => true,
        other => bail!("{other} is no way to write them"),
    };
    ensure!(bytes.is_multiple_of(BLOCK), "{bytes} are no whole blocks");
    let folder = folder.join("fileserver");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir(&folder)?;
    let path = |file: u64| folder.join(file.to_string());
    let turns: Vec<Vec<u64>> = (0..THREADS)
        .map(|thread| {
            let mut numbers = Numbers::stream(1, thread);
            (0..files * appends / THREADS)
                .map(|_| numbers.below(files))
                .collect()
        })
        .collect();
    let mut lengths = vec![FIRST; files as usize];
    for file in turns.iter().flatten() {
        lengths[*file as usize] += bytes;
    }
    let mut open = Vec::new();
    for (file, length) in (0..).zip(&lengths) {
        let mut writer = Writer::create(&path(file), Way::Fdatasync)?;
        let end = if at_once { *length } else { FIRST };
        writer.write_blocks(0, end / BLOCK, BLOCK, 1 + file)?;
        open.push(Mutex::new(Open { writer, end }));
    }
    rustix::fs::sync();
    if !at_once {
        append(&open, &turns, bytes)?;
    }
    rustix::fs::sync();
    let found = (0..).zip(&lengths);
    found
        .map(|(file, length)| {
            verify(&path(file), 1 + file, *length)?;
            extents(&path(file))
        })
        .collect()
}

/// Each thread appends to its files in turn.
fn append(open: &[Mutex<Open>], turns: &[Vec<u64>], bytes: u64) -> Result<()> {
    thread::scope(|scope| {
        let threads = turns.iter().map(|turns| {
            scope.spawn(move || {
                turns.iter().try_for_each(|number| {
                    let file = &open[*number as usize];
                    let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
                    let end = file.end;
                    (file.writer).write_blocks(end, bytes / BLOCK, BLOCK, 1 + number)?;
                    file.end += bytes;
                    anyhow::Ok(())
                })
            })
        });
        let threads: Vec<_> = threads.collect();
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().ok().context("a thread panicked")?)
    })
}

/// Compares a file, read from the device, with what was written.
fn verify(path: &Path, version: u64, length: u64) -> Result<()> {
    fadvise(&File::open(path)?, 0, None, Advice::DontNeed)?;
    let found = fs::read(path)?;
    let mut wanted = vec![0; length as usize];
    let blocks = wanted.chunks_mut(BLOCK as usize);
    for (start, block) in (0..).step_by(BLOCK as usize).zip(blocks) {
        fill(block, start, version);
    }
    ensure!(
        found == wanted,
        "{} has other content than was written",
        path.display()
    );
    Ok(())
}
