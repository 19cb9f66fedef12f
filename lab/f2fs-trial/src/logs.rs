//! Two calls at a time, each for a log of its own: the device has a command while the files of another
//! one are updated.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    path::Path,
    sync::Barrier,
    thread,
};

use anyhow::{Context, Result, ensure};
use linux_abi::f2fs::offload::{Flags, Range, Report, Status, Steps, offload_in_steps, query};
use rustix::io::Errno;

use crate::{failing::CONVENTIONAL, file::Known};

const LOGS: u32 = 2;
/// Blocks of a file, which is a step.
const BLOCKS: u64 = 512;
/// Files that go to one log.
const FILES: u64 = 6;
/// Bytes of a zone, which is a section.
const ZONE: u64 = 32 << 20;
/// Number of times that both calls want the same file.
const ATTEMPTS: u64 = 20;

/// The log of this number, or the only one that there is.
pub(crate) fn log_of(on: &File, log: u32) -> Result<u32> {
    Ok(log % query(on, Flags::empty())?.logs)
}

/// Run all of it, in a folder of its own.
pub(crate) fn run(folder: &Path) -> Result<()> {
    let folder = &folder.join("logs");
    fs::create_dir(folder)?;
    are(&File::open(folder)?, LOGS)?;
    side_by_side(folder).context("files for each log")?;
    halves(folder).context("a half of a file for each log")?;
    the_same(folder).context("the same file for both")
}

/// Check that there are so many logs, and no further one.
pub(crate) fn are(on: &File, logs: u32) -> Result<()> {
    let capability = query(on, Flags::empty())?;
    ensure!(capability.logs == logs, "{capability:?}");
    let further = call(on, &[], logs).unwrap_err();
    ensure!(
        Errno::from_io_error(&further) == Some(Errno::INVAL),
        "{further}"
    );
    Ok(())
}

fn call(on: &File, ranges: &[Range<'_>], log: u32) -> std::io::Result<Report> {
    let steps = Steps {
        blocks: BLOCKS as u32,
        log,
        ..Steps::default()
    };
    offload_in_steps(on, ranges, Flags::empty(), steps)
}

/// Move these ranges by a call for each log, at the same time.
fn at_once(on: &File, ranges: [&[Range<'_>]; LOGS as usize]) -> Result<[Report; LOGS as usize]> {
    let begin = Barrier::new(ranges.len());
    let [one, other] = thread::scope(|scope| {
        let mut log = 0;
        ranges
            .map(|ranges| {
                let (begin, mine) = (&begin, log);
                log += 1;
                scope.spawn(move || {
                    begin.wait();
                    call(on, ranges, mine)
                })
            })
            .map(|thread| thread.join().expect("it does not panic"))
    });
    Ok([one?, other?])
}

fn all_of(files: &[Known]) -> Vec<Range<'_>> {
    files.iter().map(Known::whole).collect()
}

fn side_by_side(folder: &Path) -> Result<()> {
    let mut files = Vec::new();
    for number in (1..=u64::from(LOGS) * FILES).step_by(2) {
        for file in Known::fragmented(folder, [number, number + 1], BLOCKS, 16)? {
            file.drop_cache()?;
            files.push(file.for_reading()?);
        }
    }
    let (one, other) = files.split_at(FILES as usize);
    for report in at_once(&one[0].file, [&all_of(one), &all_of(other)])? {
        println!("  {report:?}");
        ensure!(report.steps >= FILES as u32, "{report:?}");
        ensure!(
            report
                .ranges
                .iter()
                .all(|range| range.status == Status::Done),
            "{report:?}"
        );
    }
    let zones = |files: &[Known]| -> Result<BTreeSet<u64>> {
        let places = files.iter().map(|file| file.place()?.context("no blocks"));
        places
            .map(|place| Ok((place? - CONVENTIONAL) / ZONE))
            .collect()
    };
    let zones = [zones(one)?, zones(other)?];
    ensure!(zones[0].is_disjoint(&zones[1]), "{zones:?}");
    for file in &files {
        ensure!(file.fragments()? == 1, "{} fragments", file.fragments()?);
        file.check_on_device()?;
    }
    Ok(())
}

/// A file is locked by one of the calls at a time.
fn halves(folder: &Path) -> Result<()> {
    const HALF: u64 = BLOCKS / 2;
    for file in Known::fragmented(folder, [51, 52], BLOCKS, 8)? {
        let ranges = [file.range(HALF, HALF), file.range(0, HALF)];
        let [one, other] = ranges.each_ref().map(std::slice::from_ref);
        for report in at_once(&file.file, [one, other])? {
            ensure!(report.ranges[0].status == Status::Done, "{report:?}");
        }
        ensure!(file.fragments()? == 2, "{} fragments", file.fragments()?);
        file.check_on_device()?;
    }
    Ok(())
}

/// One of the calls moves the file, then the other one finds it in one piece.
fn the_same(folder: &Path) -> Result<()> {
    let [mut file, _] = Known::fragmented(folder, [61, 62], BLOCKS, 8)?;
    for attempt in 0..ATTEMPTS {
        // Also where it is dirty.
        file.write(attempt * 7, 3, 2 + attempt)?;
        if attempt % 2 == 0 {
            file.write_back()?;
        }
        let reports = {
            let whole = [file.whole()];
            at_once(&file.file, [&whole, &whole])?
        };
        let mut statuses = reports.each_ref().map(|report| report.ranges[0].status);
        statuses.sort_by_key(|status| *status == Status::Contiguous);
        ensure!(
            statuses == [Status::Done, Status::Contiguous],
            "{reports:?}"
        );
        ensure!(file.fragments()? == 1, "{} fragments", file.fragments()?);
    }
    file.check_on_device()
}
