//! The text of blkparse (its manual page, "Default output").
//!
//! ```text
//!   7,0    1       17     0.000812634  1234  D   R 264192 + 256 [cat]
//! ```
//!
//! Of all actions only `D` counts, a request issued to the device: it names the device, the first
//! sector and the number of sectors, of 512 bytes each. A [`BlockMap`](super::BlockMap) tells which
//! file that is; it has to show the files where they were when the trace was taken.
//!
//! Left out: devices that pass requests on to others (device mapper, md), and file systems whose maps
//! do not show offsets on one device (Btrfs).

use std::io::BufRead;

use indef_core::{access::Op, profile::ProfileSink};

use super::{
    lines::{Lines, first_word, number},
    report::{ImportError, ImportOptions},
};

/// Bytes in a sector of the block layer, on any device.
const SECTOR: u64 = 512;

pub(super) fn import<R: BufRead, S: ProfileSink>(
    lines: &mut Lines<'_, R, S>,
    options: &ImportOptions,
) -> Result<(), ImportError> {
    let mut map = options.blocks.clone();
    map.sort();
    // The summary at the end has another format.
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

/// An event; `Some(None)` if it does not count.
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
