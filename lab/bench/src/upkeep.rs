//! The price of extents beyond reads: a file in many extents against the same file in one, where it
//! is cloned, copied, or deleted.
//!
//! The verdict of `indef scan` beyond reads rests on these figures (`indef_pipeline::scan::Upkeep`), and
//! must not exceed them.

use std::{
    fs::{self, File},
    io,
    path::Path,
};

use anyhow::{Context, Result};
use indef_fs::FsKind;
use indef_pipeline::scan::Upkeep;
use stage::Fs;
use units::{Bytes, Nanos};

use super::{
    common::Common,
    measure,
    report::{ContenderRuns, Report, Verdict},
    state::{FOLDER, Files, StartState},
};

/// 65,536 extents of 4 KiB: large enough that one operation takes much longer than a mount's first
/// commit.
const SIZE: Bytes = Bytes::mib(256);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Operation {
    /// All extents are shared with a new file.
    Reflink,
    /// The data is copied, from a cold cache.
    Copy,
    Delete,
}

impl Operation {
    const ALL: [Self; 3] = [Self::Reflink, Self::Copy, Self::Delete];

    const fn as_str(self) -> &'static str {
        match self {
            Self::Reflink => "reflink copy",
            Self::Copy => "copy",
            Self::Delete => "delete",
        }
    }

    fn is_on(self, fs: Fs) -> bool {
        self != Self::Reflink || fs != Fs::Ext4
    }

    fn run(self, file: &Path) -> io::Result<()> {
        let other = file.with_file_name("copy");
        match self {
            Self::Reflink => {
                let (from, to) = (File::open(file)?, File::create_new(other)?);
                rustix::fs::ioctl_ficlone(&to, &from)?;
                Ok(())
            }
            // Not `io::copy`, which would share the extents as well (copy_file_range).
            Self::Copy => {
                let (mut from, mut to) = (File::open(file)?, File::create_new(other)?);
                let mut buffer = vec![0; 1 << 20];
                loop {
                    let read = io::Read::read(&mut from, &mut buffer)?;
                    if read == 0 {
                        return Ok(());
                    }
                    io::Write::write_all(&mut to, &buffer[..read])?;
                }
            }
            Self::Delete => fs::remove_file(file),
        }
    }
}

/// Measure each operation on each file system that has it.
pub(super) fn measure(common: &Common, report: &mut Report) -> Result<()> {
    for fs in [Fs::Ext4, Fs::Xfs, Fs::Btrfs] {
        for operation in Operation::ALL {
            if operation.is_on(fs) {
                compare(fs, operation, common, report)?;
            }
        }
    }
    Ok(())
}

fn compare(fs: Fs, operation: Operation, common: &Common, report: &mut Report) -> Result<()> {
    let case = format!("{} 256 MiB, {}", fs.name(), operation.as_str());
    let contenders = [
        ("many extents", Files::Single(SIZE)),
        ("as one", Files::Plain(SIZE)),
    ];
    let mut rows = Vec::new();
    for (contender, files) in contenders {
        let state = StartState {
            fs: fs.name(),
            size: Bytes::gib(2),
            files,
        };
        let row = ContenderRuns {
            case: case.clone(),
            contender: contender.to_owned(),
            command: operation.as_str().to_owned(),
            extents_before: None,
            samples: Vec::new(),
        };
        rows.push((state, state.prepare(&common.images()?)?, row));
    }
    // In turns, so that a slow minute of the machine affects both.
    for _ in 0..common.runs {
        for (state, image, row) in &mut rows {
            eprintln!("{case}: {}", row.contender);
            let scratch = state.restore(image)?;
            let file = scratch.path().join(FOLDER).join("file");
            row.extents_before = Some(measure::extents(std::slice::from_ref(&file))?);
            measure::drop_caches(&scratch)?;
            row.samples.push(measure::timed(&scratch, || {
                operation
                    .run(&file)
                    .with_context(|| format!("{}: {case}", file.display()))?;
                Ok(None)
            })?);
        }
    }
    let [many, one] = [&rows[0].2, &rows[1].2];
    let extents = |row: &ContenderRuns| row.extents_before.unwrap_or(0);
    let excess = extents(many).saturating_sub(extents(one));
    let longer = many.duration().saturating_sub(one.duration());
    let each = |time: u128| time as f64 / 1e3 / excess as f64;
    if let Some(said) = said(fs, operation, excess) {
        report.verdicts.push(Verdict::at_least(
            format!("{case}: longer for each extent, said by scan"),
            each(longer.as_nanos()),
            each(u128::from(said.get())),
            " µs",
        ));
    }
    // Of each turn.
    let turns = many.samples.iter().zip(&one.samples);
    let each_ns: Vec<f64> = turns
        .map(|(many, one)| (many.duration_ns as f64 - one.duration_ns as f64) / excess as f64)
        .collect();
    report.figure(&case, "many extents", "each_extent_ns", &each_ns);
    report.rows.extend(rows.into_iter().map(|(_, _, row)| row));
    Ok(())
}

/// The time that scan tells.
fn said(fs: Fs, operation: Operation, excess: u64) -> Option<Nanos> {
    let kind = match fs {
        Fs::Ext4 => FsKind::Ext4,
        Fs::Xfs => FsKind::Xfs,
        Fs::Btrfs => FsKind::Btrfs,
    };
    let upkeep = Upkeep::of(kind, excess);
    match operation {
        Operation::Reflink => upkeep.reflink,
        Operation::Copy => None,
        Operation::Delete => upkeep.delete,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `indef scan` says is no more than what was kept.
    #[test]
    fn scan_says_at_most_what_was_measured() {
        let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../figures/upkeep.json");
        let kept: serde_json::Value =
            serde_json::from_str(&fs::read_to_string(kept).unwrap()).unwrap();
        let rows = || {
            let sessions = kept["sessions"].as_array().unwrap().iter();
            sessions.flat_map(|session| session["rows"].as_array().unwrap())
        };
        let mut compared = 0;
        for fs in [Fs::Ext4, Fs::Xfs, Fs::Btrfs] {
            for operation in Operation::ALL {
                let Some(said) = said(fs, operation, 1) else {
                    continue;
                };
                let case = format!("{} 256 MiB, {}", fs.name(), operation.as_str());
                let each = rows()
                    .filter(|row| row["case"] == case.as_str())
                    .find_map(|row| row["values"]["each_extent_ns"]["median"].as_f64());
                let each = each.unwrap_or_else(|| panic!("{case} was not kept"));
                assert!(said.get() as f64 <= each, "{case}: {said}, {each} ns");
                compared += 1;
            }
        }
        assert_eq!(compared, 3);
    }
}
