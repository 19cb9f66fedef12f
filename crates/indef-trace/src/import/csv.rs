//! Tables of ranges, to and from other tools.
//!
//! One line for each range. A path is one cell without quotes: bytes that are no printable ASCII,
//! blanks, `%`, `,` and `"` are percent-encoded, as in profiles of lines.

use std::{
    collections::HashMap,
    io::{self, BufRead, Write},
};

use indef_core::{
    access::{AccessRange, Observed},
    profile::{ProfileFile, ProfileSink, decode_path, encode_path},
};
use units::{FileRange, Nanos};

use super::{
    format::Format,
    lines::{Lines, Out, number},
    report::ImportError,
};

/// The first line.
pub(super) const HEADER: &str =
    "path,device,inode,start_bytes,len_bytes,reads,writes,requests,timed_reads,time_ns,ahead";

/// The same as written before requests ahead were recorded.
pub(super) const HEADER_WITHOUT_AHEAD: &str =
    "path,device,inode,start_bytes,len_bytes,reads,writes,requests,timed_reads,time_ns";

/// Writes a table.
#[derive(Debug)]
pub struct CsvWriter<W: Write> {
    out: W,
    /// The first three cells of the current file's lines.
    file: String,
}

impl<W: Write> CsvWriter<W> {
    /// Begin a table with the header.
    ///
    /// # Errors
    ///
    /// Those of `out`.
    pub fn new(mut out: W) -> io::Result<Self> {
        writeln!(out, "{HEADER}")?;
        Ok(Self {
            out,
            file: String::new(),
        })
    }

    /// Set the file of the following ranges.
    pub fn file(&mut self, file: &ProfileFile) {
        let cell = |number: Option<u64>| number.map_or_else(String::new, |n| n.to_string());
        let path = encode_path(&file.path)
            .replace(',', "%2C")
            .replace('"', "%22");
        self.file = format!("{path},{},{}", cell(file.dev), cell(file.inode));
    }

    /// Write a range of the current file.
    ///
    /// # Errors
    ///
    /// Those of `out`.
    pub fn range(&mut self, counted: &AccessRange) -> io::Result<()> {
        let Observed {
            requests,
            timed,
            time,
            ahead,
        } = counted.observed;
        let ahead = ahead.map_or_else(String::new, |ahead| ahead.to_string());
        writeln!(
            self.out,
            "{},{},{},{},{},{requests},{timed},{},{ahead}",
            self.file,
            counted.range.start.0,
            counted.range.len.0,
            counted.reads,
            counted.writes,
            time.0
        )
    }

    /// Close the table.
    ///
    /// # Errors
    ///
    /// Those of `out`.
    pub fn finish(mut self) -> io::Result<W> {
        self.out.flush()?;
        Ok(self.out)
    }
}

pub(super) fn import<R: BufRead, S: ProfileSink>(
    lines: &mut Lines<'_, R, S>,
) -> Result<(), ImportError> {
    match lines.next()? {
        Some((line, _))
            if [HEADER, HEADER_WITHOUT_AHEAD]
                .map(str::as_bytes)
                .contains(&line.trim_ascii()) => {}
        _ => return Err(ImportError::Foreign(Format::Csv)),
    }
    let mut files = HashMap::new();
    while let Some((line, out)) = lines.next()? {
        if line.trim_ascii().is_empty() {
            continue;
        }
        match row(line, &mut files, out) {
            Some((file, range)) => {
                let _ = out.range(file, range);
            }
            None => out.unknown(line),
        }
    }
    Ok(())
}

fn row<S: ProfileSink>(
    line: &[u8],
    files: &mut HashMap<Vec<u8>, u32>,
    out: &mut Out<'_, S>,
) -> Option<(u32, AccessRange)> {
    let line = line.trim_ascii();
    let mut cells = line.split(|byte| *byte == b',');
    let path = cells.next()?;
    let optional = |cell: &[u8]| match cell {
        b"" => Some(None),
        cell => number(cell).map(Some),
    };
    let (dev, inode) = (cells.next()?, cells.next()?);
    let name = &line[..path.len() + dev.len() + inode.len() + 2];
    let (dev, inode) = (optional(dev)?, optional(inode)?);
    let mut counts = [0; 7];
    for count in &mut counts {
        *count = number(cells.next()?)?;
    }
    let [start, len, reads, writes, requests, timed, time] = counts;
    let ahead = optional(cells.next().unwrap_or_default())?;
    let sound = len > 0 && (reads, writes) != (0, 0) && cells.next().is_none();
    let end = start.checked_add(len)?;
    if !sound || i64::try_from(end).is_err() {
        return None;
    }
    let file = match files.get(name) {
        Some(file) => *file,
        None => {
            let path = decode_path(path).ok()?;
            let number = u32::try_from(files.len()).ok()?;
            files.insert(name.to_vec(), number);
            let _ = ProfileSink::file(out, ProfileFile { path, dev, inode });
            number
        }
    };
    let counted = AccessRange {
        range: FileRange::new(start, len),
        reads,
        writes,
        observed: Observed {
            requests,
            timed,
            time: Nanos(time),
            ahead,
        },
    };
    Some((file, counted))
}
