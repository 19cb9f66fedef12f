//! The database, and what its client does: `db_bench`.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    process::Command,
};

use stage::text;
use units::Bytes;

use super::super::{
    super::{error::FigureError, parameters::Parameters},
    files::files_of,
    ground::Failed,
};

/// The reads that are measured begin elsewhere than those that are traced; the law has the same favourites.
const MEASURED: u64 = 2;
const TRACED: u64 = 1;

/// The database, and its reads.
#[derive(Clone, Copy, Debug)]
pub(super) struct Workload {
    records: u64,
    record: Bytes,
    block: Bytes,
    /// Of those that are measured.
    reads: u64,
    /// Of those that are traced.
    traced: u64,
    /// The law of `db_bench`: the larger, the more skewed.
    skew: u64,
    pub(super) io_size: Bytes,
    /// Percent of what was read that FragPicker moves.
    pub(super) hot: f64,
}

impl Workload {
    pub(super) fn new(parameters: &Parameters) -> Result<Self, FigureError> {
        let bytes = |name| parameters.bytes(name).map(Bytes);
        let (database, record, block) = (bytes("database")?, bytes("record")?, bytes("block")?);
        let blocks = (database.0 / block.0) as f64;
        Ok(Self {
            records: database.0 / record.0,
            record,
            block,
            reads: parameters.count("reads")?,
            traced: (blocks * parameters.number("analysed")? / 100.0) as u64,
            skew: parameters.count("skew")?,
            io_size: bytes("io_size")?,
            hot: parameters.number("hot")?,
        })
    }

    /// Makes the database in `folder`, with all records in their last level.
    pub(super) fn make(&self, folder: &Path) -> Result<(), Failed> {
        let mut command = self.command(folder);
        command.args([
            "--benchmarks=filluniquerandom,compact",
            "--disable_wal=1",
            "--seed=7",
        ]);
        text(&mut command)?;
        Ok(())
    }

    /// The command of the reads that are traced.
    pub(super) fn traced(&self, folder: &Path) -> Command {
        self.reading(folder, self.traced, TRACED)
    }

    /// Reads in a second.
    pub(super) fn rate(&self, folder: &Path) -> Result<f64, Failed> {
        let said = text(&mut self.reading(folder, self.reads, MEASURED))?;
        let micros = micros(&said);
        Ok(1e6 / micros.ok_or_else(|| format!("db_bench tells no time: {said}"))?)
    }

    fn reading(&self, folder: &Path, reads: u64, seed: u64) -> Command {
        let mut command = self.command(folder);
        command.args([
            "--benchmarks=readrandom",
            "--use_existing_db=1",
            "--readonly=1",
        ]);
        // Of a database that is larger than the memory, the page cache has next to nothing.
        command.arg("--use_direct_reads=1");
        command.args([
            format!("--reads={reads}"),
            format!("--read_random_exp_range={}", self.skew),
            format!("--seed={seed}"),
        ]);
        command
    }

    fn command(&self, folder: &Path) -> Command {
        let mut place = OsString::from("--db=");
        place.push(folder);
        let mut command = Command::new("db_bench");
        command.arg(place);
        command.args(["--compression_type=none", "--cache_size=1048576"]);
        // A key has 16 bytes.
        let value = self.record.0.saturating_sub(16);
        command.args([
            format!("--num={}", self.records),
            format!("--value_size={value}"),
            format!("--block_size={}", self.block.0),
        ]);
        command
    }
}

/// The files of a database in `folder` that hold its data; they never change.
pub(super) fn tables(folder: &Path) -> Result<Vec<PathBuf>, Failed> {
    let mut files = files_of(folder)?;
    files.retain(|file| file.extension().is_some_and(|end| end == "sst"));
    if files.is_empty() {
        return Err("the database has no file with data".into());
    }
    Ok(files)
}

/// Microseconds of a read, as `readrandom : 12.345 micros/op …` tells.
fn micros(said: &str) -> Option<f64> {
    let mut lines = said.lines().filter(|line| line.starts_with("readrandom"));
    let (before, _) = lines.next()?.split_once("micros/op")?;
    let micros: f64 = before.split_whitespace().last()?.parse().ok()?;
    (micros > 0.0).then_some(micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_read_is_found() {
        let said = "DB path: [x]\nreadrandom   :    1234.500 micros/op 810 ops/sec 2.4 seconds 2000 operations;\n";
        assert_eq!(micros(said), Some(1234.5));
        assert_eq!(micros("readrandom : nothing"), None);
        assert_eq!(micros("fillrandom : 1.0 micros/op"), None);
        assert_eq!(micros("readrandom : 0.000 micros/op"), None);
    }
}
