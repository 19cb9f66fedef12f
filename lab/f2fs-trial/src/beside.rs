//! Several files are moved by each call, without a pause and by two calls at a time, while their owners
//! write, cut and punch them and names change places. A descriptor is open for writing only while it is needed: ranges of
//! files that nobody has open for writing share a step, and the owner of one may come while the
//! files are locked.

use std::{
    fs::{self, File},
    os::fd::AsFd,
    path::Path,
    sync::atomic::Ordering,
    thread,
    time::Duration,
};

use anyhow::{Result, ensure};
use linux_abi::f2fs::offload::{Flags, Range, Steps, offload_in_steps};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use workloads::Numbers;

use crate::{
    churn::{Stage, collect, perform},
    file::{BLOCK, Known},
    logs::log_of,
};

/// Blocks of a file at most.
const BLOCKS: u64 = 60;
/// Files of an owner.
const FILES: u64 = 4;

/// Run for this many seconds.
pub(crate) fn run(folder: &Path, seconds: u64) -> Result<()> {
    perform(
        folder,
        seconds,
        &[
            ("an owner", |stage| own(stage, 201)),
            ("another owner", |stage| own(stage, 301)),
            ("renamed", exchange),
            ("collected", collect),
            ("moved", |stage| relocate(stage, 0)),
            ("moved meanwhile", |stage| relocate(stage, 1)),
        ],
    )
}

fn own(stage: &Stage<'_>, first: u64) -> Result<()> {
    let mut numbers = Numbers::new(first);
    let mut files = Vec::new();
    for number in first..first + FILES {
        let mut file = Known::create(stage.folder, number)?;
        file.write(0, BLOCKS, 1)?;
        files.push(file.for_reading()?);
    }
    let mut version = 1;
    while stage.goes_on() {
        version += 1;
        let file = &mut files[numbers.below(FILES) as usize];
        let block = numbers.below(BLOCKS - 8);
        let count = 1 + numbers.below(8_u64);
        let what = numbers.below(12_u64);
        file.change(|file| match what {
            0 => file.set_blocks(block),
            1..3 => file.punch(block, count),
            3 => {
                file.write(block, count, version)?;
                Ok(file.file.sync_data()?)
            }
            4 => {
                file.write(block, count, version)?;
                file.write_back()
            }
            _ => file.write(block, count, version),
        })?;
        for _ in 0..3 {
            if file.blocks() > 0 {
                file.check_block(numbers.below(file.blocks()))?;
            }
        }
        thread::sleep(Duration::from_millis(numbers.below(4)));
    }
    files.iter().try_for_each(Known::check_on_device)
}

/// Names of files that are moved change places: rename locks two files at a time, in an order of
/// its own.
fn exchange(stage: &Stage<'_>) -> Result<()> {
    let mut files = Vec::new();
    for number in [401, 403, 405] {
        for file in Known::fragmented(stage.folder, [number, number + 1], BLOCKS, 5)? {
            files.push(file.for_reading()?);
        }
    }
    let mut numbers = Numbers::new(4);
    while stage.goes_on() {
        let [one, other] = [(); 2].map(|()| &files[numbers.below(files.len())].path);
        renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE)?;
    }
    files.iter().try_for_each(Known::check_on_device)
}

/// Move the files by calls for this log: two such movers often want the same file.
fn relocate(stage: &Stage<'_>, log: u32) -> Result<()> {
    let root = File::open(stage.folder)?;
    let log = log_of(&root, log)?;
    let mut numbers = Numbers::new(7 + u64::from(log));
    let (mut ranges_moved, mut steps, mut calls_shared) = (0, 0, 0);
    while stage.goes_on() {
        let mut files: Vec<File> = fs::read_dir(stage.folder)?
            .filter_map(|entry| File::open(entry.ok()?.path()).ok())
            .collect();
        for at in (1..files.len()).rev() {
            files.swap(at, numbers.below(at as u64 + 1) as usize);
        }
        let mut ranges = Vec::new();
        for file in &files {
            let blocks = file.metadata()?.len().div_ceil(BLOCK);
            if blocks < 2 {
                continue;
            }
            // The second half before the first one: never in one piece already.
            let middle = 1 + numbers.below(blocks - 1);
            for (start, end) in [(middle, blocks), (0, middle)] {
                ranges.push(Range {
                    file: file.as_fd(),
                    start: start * BLOCK,
                    len: (end - start) * BLOCK,
                });
            }
        }
        let flags = match numbers.below(20_u64) {
            0 => Flags::CHECKPOINT,
            1 => Flags::NO_IN_DEVICE,
            2 => Flags::NO_IN_DEVICE | Flags::NO_COPY,
            _ => Flags::empty(),
        };
        let sized = Steps {
            blocks: 1 + numbers.below(600_u32),
            stall_ns: 0,
            log,
        };
        let report = offload_in_steps(&root, &ranges, flags, sized)?;
        let mut moved = 0;
        for outcome in &report.ranges {
            stage.note(outcome)?;
            moved += u64::from(outcome.moved > 0);
        }
        ranges_moved += moved;
        steps += u64::from(report.steps);
        calls_shared += u64::from(moved > u64::from(report.steps));
        stage.moves.fetch_add(1, Ordering::Relaxed);
    }
    println!("  {ranges_moved} ranges were moved in {steps} steps");
    // The sums would not tell: a range may take several steps.
    ensure!(
        calls_shared > 0,
        "{ranges_moved} ranges in {steps} steps: none shared one"
    );
    Ok(())
}
