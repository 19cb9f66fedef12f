//! The probe's own file: without a name from the beginning, written in order of its place on the device.

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::Path,
    time::Instant,
};

use indef_core::{
    Draw,
    layout::{ExtentFlags, Layout},
    probe::Ground,
};
use indef_engine::Cancel;
use indef_fs::{Filesystem, Mapper, Refusal};
use rustix::{
    fs::{FallocateFlags, OFlags, fallocate, fsync},
    io::Errno,
    rand::{GetRandomFlags, getrandom},
};
use units::{Bytes, FileRange};

use super::{ProbeError, error::failed};

/// The smallest: a few stripes of a drive with many units.
pub const SMALLEST: Bytes = Bytes::mib(16);
/// Bytes of one write; it ends where the device's address is a multiple of this.
const WRITE: u64 = 1 << 20;
const ALIGNED: usize = 4096;

/// The probe's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileFacts {
    /// Bytes written to it.
    pub written: Bytes,
    /// Pieces that it was in.
    pub pieces: u64,
    /// Bytes in pieces that are long enough to be of use.
    pub usable: Bytes,
}

/// The file.
pub(super) struct Own {
    pub(super) file: File,
    written: Bytes,
    /// Pieces that are contiguous on the device and were written.
    pieces: Vec<FileRange>,
}

/// The reason for which there is no file.
pub(super) enum FileProblem {
    Stopped,
    NotDirect,
    Full,
    Failed(&'static str, io::Error),
}

impl FileProblem {
    pub(super) fn told(self, path: &Path, fs: &Filesystem) -> ProbeError {
        let path = path.to_owned();
        match self {
            Self::Stopped => ProbeError::Stopped,
            Self::NotDirect => ProbeError::NotDirect {
                path,
                kind: fs.kind.to_string(),
            },
            Self::Full => ProbeError::Full {
                path,
                free: fs.free,
                needed: SMALLEST,
            },
            Self::Failed(operation, source) => failed(&path, operation)(source),
        }
    }
}

/// Name the operation that failed.
fn at(operation: &'static str) -> impl Fn(io::Error) -> FileProblem {
    move |error| match Errno::from_io_error(&error) {
        Some(Errno::NOSPC | Errno::DQUOT) => FileProblem::Full,
        _ => FileProblem::Failed(operation, error),
    }
}

impl Own {
    /// Make it and write it, until it is full or time is up.
    pub(super) fn write(
        directory: &Path,
        size: Bytes,
        until: Instant,
        cancel: &Cancel,
        progress: &dyn Fn(Bytes),
    ) -> Result<Self, FileProblem> {
        let file = create(directory)?;
        match fallocate(&file, FallocateFlags::empty(), 0, size.0) {
            Ok(()) | Err(Errno::OPNOTSUPP) => {}
            Err(errno) => return Err(at("reserve room for the probe's file")(errno.into())),
        }
        // Where it will lie decides where writes begin and end.
        let planned = map(&file, directory, size)?;
        let mut random = Random::new().map_err(at("draw random numbers"))?;
        let mut written = 0;
        for part in parts(&planned, size) {
            if cancel.is_cancelled() {
                return Err(FileProblem::Stopped);
            }
            let data = random.next(part.len.0 as usize);
            file.write_all_at(data, part.start.0).map_err(|error| {
                match written == 0 && means_not_direct(&error) {
                    true => FileProblem::NotDirect,
                    false => at("write the probe's file")(error),
                }
            })?;
            written = part.end().0;
            progress(Bytes(written));
            if Instant::now() > until && written >= SMALLEST.0.min(size.0) {
                break;
            }
        }
        fsync(&file).map_err(|errno| at("flush the probe's file")(errno.into()))?;
        let layout = map(&file, directory, Bytes(written))?;
        Ok(Self {
            pieces: pieces(&layout),
            file,
            written: Bytes(written),
        })
    }

    /// The parts that can be read.
    pub(super) fn ground(&self) -> Ground {
        Ground::new(self.pieces.iter().copied())
    }

    pub(super) fn facts(&self) -> FileFacts {
        FileFacts {
            written: self.written,
            pieces: self.pieces.len() as u64,
            usable: self.ground().bytes(),
        }
    }

    /// The part of all bytes written to the drive that were not for this file. A few for metadata are its
    /// own.
    pub(super) fn part_of_others(&self, all: u64) -> f64 {
        let others = all.saturating_sub(self.written.0);
        others as f64 / all.max(1) as f64
    }

    /// The part of this file that was not written to the drive.
    pub(super) fn part_elsewhere(&self, all: u64) -> f64 {
        part_elsewhere(self.written, Bytes(all))
    }
}

/// The part of what was written that a drive did not count.
fn part_elsewhere(written: Bytes, counted: Bytes) -> f64 {
    let missing = written.0.saturating_sub(counted.0);
    missing as f64 / written.0.max(1) as f64
}

/// A file without a name, for direct I/O.
fn create(directory: &Path) -> Result<File, FileProblem> {
    let open = |flags: OFlags| {
        let mut options = OpenOptions::new();
        options.read(true).write(true).mode(0o600);
        options.custom_flags((flags | OFlags::TMPFILE).bits() as i32);
        options.open(directory)
    };
    match open(OFlags::DIRECT) {
        Ok(file) => Ok(file),
        Err(error) if means_not_direct(&error) => match open(OFlags::empty()) {
            Ok(_) => Err(FileProblem::NotDirect),
            Err(error) => Err(at("make a file without a name")(error)),
        },
        Err(error) => Err(at("make a file without a name")(error)),
    }
}

fn map(file: &File, path: &Path, size: Bytes) -> Result<Layout, FileProblem> {
    let range = FileRange::new(0, size.0);
    let layout = indef_fs::map(file, path, range, true, &mut Mapper::default());
    layout.map_err(|refusal| match refusal {
        Refusal::Skip(_) => FileProblem::Failed(
            "ask where the probe's file lies",
            io::Error::from(Errno::OPNOTSUPP),
        ),
        Refusal::Failed(error) => {
            FileProblem::Failed("ask where the probe's file lies", error.source)
        }
    })
}

/// The writes, in order: each ends where the device's address is a multiple of [`WRITE`], or a piece ends.
fn parts(planned: &Layout, size: Bytes) -> Vec<FileRange> {
    let mut parts = Vec::new();
    let mut at = 0;
    let cut = |from: u64, to: u64, shift: u64, parts: &mut Vec<FileRange>| {
        let mut from = from;
        while from < to {
            let end = (from + WRITE - (from + shift) % WRITE).min(to);
            parts.push(FileRange::new(from, end - from));
            from = end;
        }
    };
    for extent in planned.extents() {
        let start = extent.file.0.min(size.0);
        cut(at, start, 0, &mut parts);
        let end = extent.file_end().0.min(size.0);
        let shift = (extent.phys.0 % WRITE + WRITE - start % WRITE) % WRITE;
        cut(start, end, shift, &mut parts);
        at = end;
    }
    cut(at, size.0, 0, &mut parts);
    parts
}

/// The part of the file that lies in one piece on the device and can be read from it.
fn pieces(layout: &Layout) -> Vec<FileRange> {
    let elsewhere =
        ExtentFlags::UNWRITTEN | ExtentFlags::ENCODED | ExtentFlags::INLINE | ExtentFlags::UNPLACED;
    let mut pieces: Vec<FileRange> = Vec::new();
    let mut follows = None;
    for extent in layout.extents() {
        if extent.flags.intersects(elsewhere) {
            follows = None;
            continue;
        }
        let after = (extent.file.0 + extent.len.0, extent.phys.0 + extent.len.0);
        match (pieces.last_mut(), follows) {
            (Some(last), Some(place)) if place == (extent.file.0, extent.phys.0) => {
                last.len += extent.len;
            }
            _ => pieces.push(FileRange::new(extent.file.0, extent.len.0)),
        }
        follows = Some(after);
    }
    pieces
}

/// Data that nothing on the way makes smaller.
struct Random {
    memory: Vec<u8>,
    draw: Draw,
}

impl Random {
    fn new() -> io::Result<Self> {
        let mut seed = [0; 8];
        getrandom(&mut seed, GetRandomFlags::empty()).map_err(io::Error::from)?;
        Ok(Self {
            memory: vec![0; WRITE as usize + ALIGNED],
            draw: Draw::new(u64::from_le_bytes(seed)),
        })
    }

    /// So many bytes that were not there before, aligned.
    fn next(&mut self, len: usize) -> &[u8] {
        let start = self.memory.as_ptr().align_offset(ALIGNED);
        let memory = &mut self.memory[start..start + len];
        for word in memory.chunks_exact_mut(8) {
            word.copy_from_slice(&self.draw.next().to_le_bytes());
        }
        memory
    }
}

/// Whether an error means that there is no direct I/O.
fn means_not_direct(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    matches!(errno, Some(Errno::INVAL | Errno::OPNOTSUPP))
}

#[cfg(test)]
mod tests {
    use indef_core::layout::Extent;
    use units::{FileOffset, PhysOffset};

    use super::*;

    fn extent(file: u64, phys: u64, len: u64, flags: ExtentFlags) -> Extent {
        Extent {
            file: FileOffset(file),
            phys: PhysOffset(phys),
            len: Bytes(len),
            flags,
        }
    }

    #[test]
    fn writes_end_at_whole_places_of_the_device() {
        let mib = 1 << 20;
        let layout = Layout::new(vec![
            extent(0, 3 * mib + 4096, 2 * mib, ExtentFlags::UNWRITTEN),
            extent(2 * mib, 9 * mib, mib, ExtentFlags::UNWRITTEN),
        ]);
        let parts = parts(&layout, Bytes(4 * mib));
        let ends: Vec<u64> = parts.iter().map(|part| part.end().0).collect();
        assert_eq!(
            ends,
            [mib - 4096, 2 * mib - 4096, 2 * mib, 3 * mib, 4 * mib]
        );
        assert!(parts.windows(2).all(|two| two[0].end() == two[1].start));
    }

    #[test]
    fn what_a_drive_did_not_count_lies_elsewhere() {
        let part = |counted| part_elsewhere(Bytes::mib(16), Bytes::mib(counted));
        assert_eq!([0, 8, 16, 17].map(part), [1.0, 0.5, 0.0, 0.0]);
    }

    #[test]
    fn only_written_neighbours_are_one_piece() {
        let none = ExtentFlags::empty();
        let layout = Layout::new(vec![
            extent(0, 4096, 8192, none),
            extent(8192, 12288, 4096, none),
            extent(12288, 90112, 4096, none),
            extent(16384, 94208, 4096, ExtentFlags::UNWRITTEN),
            extent(20480, 98304, 4096, none),
        ]);
        let found = pieces(&layout);
        let expected = [(0, 12288), (12288, 4096), (20480, 4096)];
        assert_eq!(
            found,
            expected.map(|(start, len)| FileRange::new(start, len))
        );
        assert!(indef_core::probe::SHORTEST_PIECE > Bytes(12288));
    }
}
