//! Files to which ten threads append at random (FAST'24 §5.2: 10,000 files of 128 KiB, appends of 32 KB
//! or 16 KB for a minute, after which they had 600 KB in the mean).

use std::{
    fs,
    path::Path,
    sync::{Mutex, PoisonError},
    thread,
};

use anyhow::{Context, Result};
use workloads::Numbers;

use super::{
    writer::{Way, Writer},
    written::Written,
};

const THREADS: u64 = 10;
/// The length of a file before the appends.
const FIRST: u64 = 128 << 10;

/// A file, and where it ends.
struct Open {
    writer: Writer,
    end: u64,
}

/// Each of `files` gets so many appends of `bytes` in the mean, each with `fdatasync`; none at all for
/// 0 `bytes`, and then it is written at once with the length that appends of 32 KiB would have given it.
pub(super) fn run(folder: &Path, files: u64, bytes: u64, appends: u64) -> Result<Vec<Written>> {
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
    let mut open = Vec::new();
    for file in 0..files {
        let mut writer = Writer::create(&path(file), Way::Fdatasync)?;
        let end = match bytes {
            0 => {
                let turns = turns.iter().flatten().filter(|turn| **turn == file);
                FIRST + turns.count() as u64 * (32 << 10)
            }
            _ => FIRST,
        };
        writer.write(0, end, 1)?;
        open.push(Mutex::new(Open { writer, end }));
    }
    rustix::fs::sync();
    if bytes > 0 {
        thread::scope(|scope| {
            let open = &open;
            let threads = turns.iter().map(|turns| {
                scope.spawn(move || {
                    turns.iter().try_for_each(|file| {
                        let file = &open[*file as usize];
                        let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
                        let end = file.end;
                        file.writer.write(end, bytes, 1)?;
                        file.end += bytes;
                        anyhow::Ok(())
                    })
                })
            });
            let threads: Vec<_> = threads.collect();
            threads
                .into_iter()
                .try_for_each(|thread| thread.join().ok().context("a thread panicked")?)
        })?;
    }
    rustix::fs::sync();
    (0..files).map(|file| Written::of(&path(file))).collect()
}
