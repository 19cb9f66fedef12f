//! The text of blkparse (its manual page, "Default output").
//!
//! ```text
//!   7,0    1       17     0.000812634  1234  D   R 264192 + 256 [cat]
//! ```
//!
//! Of all actions only `D` counts, a request given to the device: it names the device, the first
//! sector and the number of sectors, of 512 bytes each. Which file that is, a [`BlockMap`] tells; it
//! has to be made of the files as they lay when the trace was taken.
//!
//! Not followed: devices that pass requests on to others (device mapper, md), and file systems whose
//! maps show places on no one device (Btrfs).

use std::{
    io::BufRead,
    path::{Path, PathBuf},
};

use indef_core::{access::Op, profile::ProfileSink};
use units::{Bytes, FileOffset, FileRange, PhysOffset};

use super::{
    ImportError, ImportOptions,
    lines::{Lines, first_word, number},
};

/// Bytes in a sector of the block layer, whatever the device's own are.
const SECTOR: u64 = 512;

/// Which file lies where on which device.
#[derive(Clone, Debug, Default)]
pub struct BlockMap {
    files: Vec<PathBuf>,
    pieces: Vec<Piece>,
    sorted: bool,
}

#[derive(Clone, Copy, Debug)]
struct Piece {
    /// Major and minor number.
    device: (u32, u32),
    phys: PhysOffset,
    len: Bytes,
    file: usize,
    offset: FileOffset,
}

impl Piece {
    fn end(&self) -> u64 {
        self.phys.0.saturating_add(self.len.0)
    }
}

impl BlockMap {
    /// A file; the number is for [`extent`](Self::extent).
    pub fn file(&mut self, path: PathBuf) -> usize {
        self.files.push(path);
        self.files.len() - 1
    }

    /// An extent of it: where it begins on the device (of the given major and minor number), and
    /// which bytes of the file it holds.
    pub fn extent(&mut self, file: usize, device: (u32, u32), phys: PhysOffset, range: FileRange) {
        self.sorted = false;
        self.pieces.push(Piece {
            device,
            phys,
            len: range.len,
            file,
            offset: range.start,
        });
    }

    fn sort(&mut self) {
        if !self.sorted {
            self.pieces.sort_by_key(|piece| (piece.device, piece.phys));
            // Each byte of a device is one file's from here on.
            let mut taken = ((0, 0), 0);
            self.pieces.retain_mut(|piece| {
                if taken.0 == piece.device {
                    let cut = taken.1.max(piece.phys.0) - piece.phys.0;
                    if cut >= piece.len.0 {
                        return false;
                    }
                    piece.phys = piece.phys + Bytes(cut);
                    piece.offset = piece.offset + Bytes(cut);
                    piece.len -= Bytes(cut);
                }
                taken = (piece.device, piece.end());
                true
            });
            self.sorted = true;
        }
    }

    /// Call `see` with each part of a file that lies there; `false` if none does. Where extents are
    /// shared, the first file stands for all.
    fn find(
        &self,
        device: (u32, u32),
        start: u64,
        end: u64,
        mut see: impl FnMut(&Path, FileRange),
    ) -> bool {
        let first = self
            .pieces
            .partition_point(|piece| (piece.device, piece.end()) <= (device, start));
        let mut from = start;
        let mut found = false;
        let here = |piece: &&Piece| piece.device == device && piece.phys.0 < end;
        for piece in self.pieces[first..].iter().take_while(here) {
            let begin = piece.phys.0.max(from);
            let stop = piece.end().min(end);
            if begin >= stop {
                continue;
            }
            let offset = piece.offset.0 + (begin - piece.phys.0);
            if let Some(path) = self.files.get(piece.file) {
                see(path, FileRange::new(offset, stop - begin));
            }
            from = stop;
            found = true;
        }
        found
    }
}

pub(super) fn import<R: BufRead, S: ProfileSink>(
    lines: &mut Lines<'_, R, S>,
    options: &ImportOptions,
) -> Result<(), ImportError> {
    let mut map = options.blocks.clone();
    map.sort();
    // The summary at the end is of another shape.
    let mut summary = false;
    while let Some((line, out)) = lines.next()? {
        summary |= line.starts_with(b"CPU") || line.starts_with(b"Total (");
        if summary || line.trim_ascii().is_empty() {
            continue;
        }
        match event(line) {
            None => out.unknown(line),
            Some(None) => {}
            Some(Some(request)) => {
                let Request {
                    device,
                    op,
                    start,
                    end,
                } = request;
                let placed = map.find(device, start, end, |path, range| {
                    out.access(path, op, true, range);
                });
                if !placed {
                    out.unplaced();
                }
            }
        }
    }
    Ok(())
}

/// A request to a device, in bytes.
struct Request {
    device: (u32, u32),
    op: Op,
    start: u64,
    end: u64,
}

/// Whether a line looks like an event.
pub(super) fn is_line(line: &[u8]) -> bool {
    event(line).is_some()
}

/// An event; `Some(None)` if it is none that counts.
fn event(line: &[u8]) -> Option<Option<Request>> {
    let (device, rest) = first_word(line);
    let comma = device.iter().position(|byte| *byte == b',')?;
    let part = |word| u32::try_from(number(word)?).ok();
    let device = (part(&device[..comma])?, part(&device[comma + 1..])?);
    // Processor, sequence, time, process.
    let (cpu, rest) = first_word(rest);
    let (sequence, rest) = first_word(rest);
    let (time, rest) = first_word(rest);
    let (pid, rest) = first_word(rest);
    number(cpu)?;
    number(sequence)?;
    number(pid)?;
    let point = time.iter().position(|byte| *byte == b'.')?;
    number(&time[..point])?;
    let (action, rest) = first_word(rest);
    let (kind, rest) = first_word(rest);
    if action != b"D" {
        return (!action.is_empty()).then_some(None);
    }
    let op = match kind {
        kind if kind.contains(&b'D') => None,
        kind if kind.contains(&b'R') => Some(Op::Read),
        kind if kind.contains(&b'W') => Some(Op::Write),
        _ => None,
    };
    let Some(op) = op else { return Some(None) };
    let (sector, rest) = first_word(rest);
    let (plus, rest) = first_word(rest);
    let (sectors, _) = first_word(rest);
    // A flush has no sectors.
    if plus != b"+" {
        return Some(None);
    }
    let start = number(sector)?.checked_mul(SECTOR)?;
    let end = start.checked_add(number(sectors)?.checked_mul(SECTOR)?)?;
    Some(Some(Request {
        device,
        op,
        start,
        end,
    }))
}
