//! fio's iologs (fio's manual, "Trace file format", versions 2 and 3).
//!
//! ```text
//! fio version 3 iolog
//! 204 /srv/data.bin open
//! 211 /srv/data.bin write 12288 4096
//! ```
//!
//! Version 2 is the same without the time. A file name may hold blanks: the other words are counted
//! from the end of the line. Whether the job used O_DIRECT is not in the log.

use std::{io::BufRead, path::Path};

use indef_core::{access::Op, profile::ProfileSink};
use std::os::unix::ffi::OsStrExt;
use units::FileRange;

use super::{
    format::Format,
    lines::{Lines, first_word, last_word, number},
    report::{ImportError, ImportOptions},
};

pub(super) fn import<R: BufRead, S: ProfileSink>(
    lines: &mut Lines<'_, R, S>,
    options: &ImportOptions,
) -> Result<(), ImportError> {
    let timed = match lines.next()? {
        None => return Err(ImportError::Foreign(Format::Fio)),
        Some((line, _)) => {
            let version = line
                .strip_prefix(b"fio version ")
                .and_then(|rest| rest.trim_ascii().strip_suffix(b" iolog"))
                .ok_or(ImportError::Foreign(Format::Fio))?;
            match version {
                b"2" => false,
                b"3" => true,
                other => {
                    let shown = other[..other.len().min(20)].escape_ascii().to_string();
                    return Err(ImportError::FioVersion(shown));
                }
            }
        }
    };
    while let Some((line, out)) = lines.next()? {
        match action(line, timed) {
            None => out.unknown(line),
            Some((_, None)) => {}
            Some((name, Some((op, range)))) => {
                let path = options
                    .folder
                    .join(Path::new(std::ffi::OsStr::from_bytes(name)));
                out.access(&path, op, false, range);
            }
        }
    }
    Ok(())
}

/// The access of a line, if it moves data.
type Access = Option<(Op, FileRange)>;

/// The file of a line, and its access.
fn action(line: &[u8], timed: bool) -> Option<(&[u8], Access)> {
    let mut rest = line.trim_ascii();
    if timed {
        let (time, after) = first_word(rest);
        number(time)?;
        rest = after;
    }
    let (before, last) = last_word(rest);
    if matches!(last, b"add" | b"open" | b"close") {
        return (!before.is_empty()).then_some((before, None));
    }
    let len = number(last)?;
    let (before, offset) = last_word(before);
    let offset = number(offset)?;
    let (name, action) = last_word(before);
    let op = match action {
        b"read" => Some(Op::Read),
        b"write" => Some(Op::Write),
        // The other actions that fio can replay move no data of the file.
        b"sync" | b"datasync" | b"trim" | b"wait" | b"sync_file_range" => None,
        _ => return None,
    };
    let access = op.map(|op| (op, FileRange::new(offset, len)));
    (!name.is_empty()).then_some((name, access))
}
