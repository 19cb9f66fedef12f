//! The part in the guest: writes files in pieces with other writes between them, reads them back from
//! the device, and tells their extents.

mod durable;
mod fileserver;
mod pieces;
mod random;
mod sqlite;
mod writer;

use std::{fs::File, path::Path};

use anyhow::{Result, bail, ensure};
use indef_fs::detect;
use linux_abi::fiemap::{ExtentFlags, FLAG_SYNC, Mapper};
use serde::{Deserialize, Serialize};

pub use writer::GRANULE;

/// A file that [`run`] has written.
#[derive(Debug, Serialize, Deserialize)]
pub struct Written {
    /// Bytes of the file.
    pub bytes: u64,
    /// Its extents in order, as offset and length on the device.
    pub extents: Vec<(u64, u64)>,
}

/// Does what the words say, in FOLDER:
///
/// - `FOLDER pieces whole|append|overwrite none|fixed:BYTES|drawn:SEED fdatasync|direct`
/// - `FOLDER random WRITES`
/// - `FOLDER durable WRITES LOG`, and after a power cut `FOLDER examine WRITES LOG`
/// - `FOLDER told`: prints whether `indef scan` would tell of the hints
/// - `FOLDER sqlite ROWS BYTES`
/// - `FOLDER fileserver FILES BYTES APPENDS`
///
/// # Errors
///
/// A word is wrong, a call failed, or a file has other content than was written.
pub fn run(words: &[&str]) -> Result<Vec<Written>> {
    match words {
        [folder, "pieces", change, dummy, way] => {
            pieces::run(Path::new(folder), change, dummy, way)
        }
        [folder, "random", writes] => random::run(Path::new(folder), writes.parse()?),
        [folder, "durable", writes, log] => {
            durable::run(Path::new(folder), writes.parse()?, Path::new(log))
        }
        [folder, "examine", writes, log] => {
            durable::examine(Path::new(folder), writes.parse()?, Path::new(log))
        }
        [folder, "told"] => {
            let path = Path::new(folder);
            println!("{}", detect(File::open(path)?, path)?.gives_die_hints());
            Ok(Vec::new())
        }
        [folder, "sqlite", rows, dummy] => {
            sqlite::run(Path::new(folder), rows.parse()?, dummy.parse()?)
        }
        [folder, "fileserver", files, bytes, appends] => fileserver::run(
            Path::new(folder),
            files.parse()?,
            bytes.parse()?,
            appends.parse()?,
        ),
        _ => bail!("usage: die-hints FOLDER SUBJECT WORD…"),
    }
}

/// The extents of a file, which has no holes.
fn extents(path: &Path) -> Result<Written> {
    let file = File::open(path)?;
    let bytes = file.metadata()?.len();
    let mut mapper = Mapper::default();
    let mut extents = Vec::new();
    let mut at = 0;
    while at < bytes {
        let batch = mapper.batch(&file, at, bytes - at, FLAG_SYNC)?;
        let Some(last) = batch.last() else { break };
        for extent in batch {
            let flags = ExtentFlags::from_bits_retain(extent.flags);
            ensure!(
                !flags.intersects(ExtentFlags::UNKNOWN | ExtentFlags::UNWRITTEN),
                "the file is not written yet: {flags:?}"
            );
            extents.push((extent.physical, extent.length));
        }
        at = last.logical + last.length;
    }
    ensure!(at >= bytes, "{} has a hole at {at}", path.display());
    Ok(Written { bytes, extents })
}
