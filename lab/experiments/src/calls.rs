//! Calls of the reader and of the updater, one after the other, past the page cache.

use std::{
    fs::File,
    io,
    os::unix::fs::FileExt,
    time::{Duration, Instant},
};

use scratch_fs::AlignedBuffer;
use units::FileRange;

/// The time to read these ranges `passes` times over.
pub(crate) fn read(file: &File, ranges: &[FileRange], passes: u64) -> io::Result<Duration> {
    let longest = ranges.iter().map(|it| it.len.0).max().unwrap_or_default();
    let mut buffer = AlignedBuffer::new(longest as usize);
    let begun = Instant::now();
    for _ in 0..passes {
        for range in ranges {
            let buffer = &mut buffer.slice()[..range.len.0 as usize];
            file.read_exact_at(buffer, range.start.0)?;
        }
    }
    Ok(begun.elapsed())
}

/// The time to write these ranges of `contents` `passes` times over, durably in the end.
pub(crate) fn update(
    file: &File,
    ranges: &[FileRange],
    contents: &[u8],
    passes: u64,
) -> io::Result<Duration> {
    let begun = Instant::now();
    for _ in 0..passes {
        for range in ranges {
            let at = range.start.0 as usize;
            file.write_all_at(&contents[at..at + range.len.0 as usize], range.start.0)?;
        }
    }
    file.sync_data()?;
    Ok(begun.elapsed())
}
