//! The limit: the same bytes, read with many requests in flight and written in one piece. No
//! program that moves data through the host can be much faster, so the distance to it is the
//! possible further gain.
//!
//! Reads and writes bypass the page cache. Where the state under test is "file in the page cache",
//! they are buffered reads, as a program would then do.

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use rustix::fs::{FallocateFlags, OFlags, fallocate};

/// Requests in flight; each of the fragmented ones becomes many at the device.
const THREADS: usize = 16;
/// Bytes in each.
const REQUEST: usize = 1 << 20;

/// Copy all `files` into one new, contiguous file `to`, durably.
pub(super) fn copy(files: &[PathBuf], to: &Path, cached: bool) -> io::Result<()> {
    let total = files
        .iter()
        .map(|path| Ok(path.metadata()?.len().next_multiple_of(4096)))
        .sum::<io::Result<u64>>()?;
    let output = OpenOptions::new()
        .write(true)
        .create_new(true)
        .custom_flags(OFlags::DIRECT.bits() as i32)
        .open(to)?;
    fallocate(&output, FallocateFlags::empty(), 0, total)?;

    let requests = Mutex::new(requests(files));
    let written = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..THREADS)
            .map(|_| scope.spawn(|| work(&requests, &output, &written, cached)))
            .collect();
        workers
            .into_iter()
            .try_for_each(|worker| worker.join().expect("a worker does not panic"))
    })?;
    output.sync_data()
}

type ReadRequest<'a> = (&'a Path, u64);

/// Every megabyte of every file, lazily: a million files are not listed in memory twice.
fn requests(files: &[PathBuf]) -> impl Iterator<Item = ReadRequest<'_>> + Send {
    files.iter().flat_map(|path| {
        let length = path.metadata().map_or(0, |metadata| metadata.len());
        (0..length)
            .step_by(REQUEST)
            .map(move |offset| (path.as_path(), offset))
    })
}

fn work<'a>(
    requests: &Mutex<impl Iterator<Item = ReadRequest<'a>>>,
    output: &File,
    written: &AtomicU64,
    cached: bool,
) -> io::Result<()> {
    let mut memory = vec![0; REQUEST + 4096];
    let aligned = memory.as_ptr().align_offset(4096);
    let buffer = &mut memory[aligned..aligned + REQUEST];
    let mut open: Option<(&Path, File)> = None;
    loop {
        let Some((path, offset)) = requests.lock().expect("no worker panics").next() else {
            return Ok(());
        };
        if open.as_ref().is_none_or(|(opened, _)| *opened != path) {
            let flags = if cached {
                OFlags::empty()
            } else {
                OFlags::DIRECT
            };
            let file = OpenOptions::new()
                .read(true)
                .custom_flags(flags.bits() as i32)
                .open(path)?;
            open = Some((path, file));
        }
        let Some((_, file)) = &open else { continue };
        let mut read = 0;
        while read < REQUEST {
            match file.read_at(&mut buffer[read..], offset + read as u64)? {
                0 => break,
                length => read += length,
            }
        }
        // Direct writes are whole blocks; the bytes past the end in the last one do not matter
        // here.
        let length = read.next_multiple_of(4096);
        let place = written.fetch_add(length as u64, Ordering::Relaxed);
        output.write_all_at(&buffer[..length], place)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_copied() {
        let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let files: Vec<PathBuf> = (0..3).map(|i| folder.path().join(format!("{i}"))).collect();
        for (i, path) in files.iter().enumerate() {
            std::fs::write(path, vec![i as u8 + 1; (3 << 20) + 4096 * i]).unwrap();
        }
        let to = folder.path().join("to");
        copy(&files, &to, true).unwrap();
        let copied = std::fs::read(&to).unwrap();
        for i in 0..3_u8 {
            let wanted = (3 << 20) + 4096 * usize::from(i);
            let found = copied.iter().filter(|byte| **byte == i + 1).count();
            assert_eq!(found, wanted);
        }
    }
}
