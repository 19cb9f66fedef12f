//! The part in the guest: writes files in pieces with other writes between them, reads them back from
//! the device, and tells their extents.

mod durable;
mod exercise;
mod extents;
mod fileserver;
mod pieces;
mod random;
mod sqlite;
mod writer;

use std::{fs::File, path::Path};

use anyhow::{Result, bail};
use indef_fs::detect;

pub use extents::Written;
pub use writer::GRANULE;

/// Does what the words say, in FOLDER:
///
/// - `FOLDER pieces whole|append|overwrite BYTES none|fixed:BYTES|drawn:SEED fdatasync|direct`
/// - `FOLDER random WRITES`
/// - `FOLDER exercise OPERATIONS SEED`
/// - `FOLDER durable WRITES LOG`, and after a power cut `FOLDER examine WRITES LOG`
/// - `FOLDER told`: prints whether `indef scan` would tell of the hints
/// - `FOLDER sqlite ROWS BYTES`
/// - `FOLDER fileserver FILES BYTES APPENDS appended|whole`
///
/// # Errors
///
/// A word is wrong, a call failed, or a file has other content than was written.
pub fn run(words: &[&str]) -> Result<Vec<Written>> {
    match words {
        [folder, "pieces", change, piece, dummy, way] => {
            pieces::run(Path::new(folder), change, piece.parse()?, dummy, way)
        }
        [folder, "random", writes] => random::run(Path::new(folder), writes.parse()?),
        [folder, "exercise", operations, seed] => {
            exercise::run(Path::new(folder), operations.parse()?, seed.parse()?)
        }
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
        [folder, "fileserver", files, bytes, appends, how] => fileserver::run(
            Path::new(folder),
            files.parse()?,
            bytes.parse()?,
            appends.parse()?,
            how,
        ),
        _ => bail!("usage: die-hints FOLDER SUBJECT WORD…"),
    }
}
