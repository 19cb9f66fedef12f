//! Writing a profile.

use std::io::{self, Write};

use super::{MAGIC, Profile, ProfileFile, VERSION, escape::encode};
use crate::access::{AccessRange, AccessRecord, Observed, Op};

/// Writes a profile record by record, so that a collector need not hold them.
#[derive(Debug)]
pub struct ProfileWriter<W: Write> {
    out: W,
    files: u32,
    records: u64,
}

impl<W: Write> ProfileWriter<W> {
    /// Write the header. It promises an `end` line, so that a reader notices a cut-off profile.
    ///
    /// # Errors
    ///
    /// Those of `out`.
    pub fn new(mut out: W) -> io::Result<Self> {
        writeln!(out, "{MAGIC} {VERSION} with-end")?;
        Ok(Self {
            out,
            files: 0,
            records: 0,
        })
    }

    /// Name a file; returns the number that its records carry: 0, 1, 2 …
    ///
    /// # Errors
    ///
    /// Those of `out`.
    pub fn file(&mut self, file: &ProfileFile) -> io::Result<u32> {
        let id = self.files;
        let number = |n: Option<u64>| n.map_or_else(|| "-".to_owned(), |n| n.to_string());
        writeln!(
            self.out,
            "file {id} {} {} {}",
            number(file.dev),
            number(file.inode),
            encode(&file.path)
        )?;
        self.files += 1;
        Ok(id)
    }

    /// Append a record of a file that has been named.
    ///
    /// # Errors
    ///
    /// Those of `out`.
    pub fn record(&mut self, record: &AccessRecord) -> io::Result<()> {
        let op = match record.op {
            Op::Read => "read",
            Op::Write => "write",
        };
        let direct = if record.direct { " direct" } else { "" };
        writeln!(
            self.out,
            "{op} {} {} {}{direct} time={}",
            record.file, record.offset.0, record.len.0, record.time.0
        )?;
        self.records += 1;
        Ok(())
    }

    /// Append a range of a file that has been named.
    ///
    /// # Errors
    ///
    /// Those of `out`.
    pub fn range(&mut self, file: u32, counted: &AccessRange) -> io::Result<()> {
        let AccessRange {
            range,
            reads,
            writes,
            observed,
        } = counted;
        let Observed {
            requests,
            timed,
            time,
            ahead,
        } = observed;
        write!(
            self.out,
            "range {file} {} {} reads={reads} writes={writes}",
            range.start.0, range.len.0
        )?;
        if *requests > 0 {
            write!(self.out, " requests={requests}")?;
        }
        if (*timed, time.0) != (0, 0) {
            write!(self.out, " timed={timed} time={}", time.0)?;
            if let Some(ahead) = ahead {
                write!(self.out, " ahead={ahead}")?;
            }
        }
        writeln!(self.out)?;
        self.records += 1;
        Ok(())
    }

    /// Flush `out`, so that a collector's profile grows as it collects.
    ///
    /// # Errors
    ///
    /// Those of `out`.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    /// Close the profile.
    ///
    /// # Errors
    ///
    /// Those of `out`.
    pub fn finish(mut self) -> io::Result<W> {
        writeln!(self.out, "end {}", self.records)?;
        self.out.flush()?;
        Ok(self.out)
    }
}

impl Profile {
    /// Write all of it.
    ///
    /// # Errors
    ///
    /// Those of `out`.
    pub fn write<W: Write>(&self, out: W) -> io::Result<W> {
        let mut writer = ProfileWriter::new(out)?;
        for file in &self.files {
            writer.file(file)?;
        }
        for record in &self.records {
            writer.record(record)?;
        }
        for (file, range) in &self.ranges {
            writer.range(*file, range)?;
        }
        writer.finish()
    }
}
