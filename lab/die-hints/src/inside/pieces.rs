//! A file that is written in pieces, with writes to another file between them (FAST'24 §3, §5.1).

use std::{
    fs::{self, File},
    io::Read,
    path::Path,
};

use anyhow::{Result, bail, ensure};
use rustix::fs::{Advice, fadvise};
use workloads::Numbers;

use super::{
    extents::{Written, extents},
    writer::{GRANULE, Way, Writer, fill},
};

/// The target file (FAST'24 §3, §5.1).
const FILE: u64 = 8 << 20;

/// How the target file comes to be.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Change {
    /// It is written at once.
    Whole,
    /// It grows piece by piece.
    Append,
    /// It is written at once, and then overwritten piece by piece.
    Overwrite,
}

/// The writes to another file after each piece.
enum Dummy {
    None,
    /// Always so many bytes.
    Fixed(u64),
    /// 1 to 32 granules (§5.1).
    Drawn(Numbers),
}

/// `piece` is the length of a piece, in whole granules.
pub(super) fn run(
    folder: &Path,
    change: &str,
    piece: u64,
    dummy: &str,
    way: &str,
) -> Result<Vec<Written>> {
    ensure!(
        piece > 0 && piece.is_multiple_of(GRANULE) && FILE.is_multiple_of(piece),
        "{piece} is no length of a piece"
    );
    let change = match change {
        "whole" => Change::Whole,
        "append" => Change::Append,
        "overwrite" => Change::Overwrite,
        other => bail!("{other} is no change"),
    };
    let way = match way {
        "fdatasync" => Way::Fdatasync,
        "direct" => Way::Direct,
        other => bail!("{other} is no way"),
    };
    let dummy = match dummy.split_once(':') {
        None if dummy == "none" => Dummy::None,
        Some(("fixed", bytes)) => Dummy::Fixed(bytes.parse()?),
        Some(("drawn", seed)) => Dummy::Drawn(Numbers::new(seed.parse()?)),
        _ => bail!("{dummy} is no dummy"),
    };
    let (path, other) = (folder.join("target"), folder.join("dummy"));
    for left in [&path, &other] {
        let _ = fs::remove_file(left);
    }
    // The directory's changes are written now, not between the pieces.
    let target = Writer::create(&path, way)?;
    let other = Writer::create(&other, way)?;
    rustix::fs::sync();
    write(change, piece, dummy, target, other)?;
    rustix::fs::sync();
    verify(&path, change)?;
    Ok(vec![extents(&path)?])
}

fn write(
    change: Change,
    piece: u64,
    mut dummy: Dummy,
    mut target: Writer,
    mut other: Writer,
) -> Result<()> {
    if change != Change::Append {
        target.write(0, FILE, 1)?;
    }
    if change == Change::Whole {
        return Ok(());
    }
    let mut end = 0;
    for start in (0..FILE).step_by(piece as usize) {
        target.write(start, piece, version(change))?;
        let size = dummy.next();
        if size > 0 {
            other.write(end, size, 0)?;
            end += size;
        }
    }
    Ok(())
}

/// The number of the last version of the file's content.
fn version(change: Change) -> u64 {
    match change {
        Change::Whole | Change::Append => 1,
        Change::Overwrite => 2,
    }
}

impl Dummy {
    fn next(&mut self) -> u64 {
        match self {
            Self::None => 0,
            Self::Fixed(bytes) => *bytes,
            Self::Drawn(numbers) => (numbers.below(32_u64) + 1) * GRANULE,
        }
    }
}

/// Compares the file, read from the device, with what was written.
fn verify(path: &Path, change: Change) -> Result<()> {
    let mut file = File::open(path)?;
    fadvise(&file, 0, None, Advice::DontNeed)?;
    let mut found = Vec::new();
    file.read_to_end(&mut found)?;
    let mut wanted = vec![0; FILE as usize];
    let granules = wanted.chunks_mut(GRANULE as usize);
    for (start, granule) in (0..).step_by(GRANULE as usize).zip(granules) {
        fill(granule, start, version(change));
    }
    ensure!(
        found == wanted,
        "the file has other content than was written"
    );
    Ok(())
}
