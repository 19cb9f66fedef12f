//! Pages that were taken over to be moved are given back, as a block of the step cannot be read, while
//! the file's owner syncs it: what was acknowledged has to be on the device.
//!
//! F2FS writes no block in place on zones. So a block that was overwritten and is where it was before
//! was not written.

use std::{
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use linux_abi::f2fs::offload::{Flags, Status, offload};
use workloads::Numbers;

use crate::{crash::Marks, failing::CONVENTIONAL, file::Known};

const BLOCKS: u64 = 12;
/// The block that cannot be read.
const BAD: u64 = 7;
/// Overwrites, each followed by a sync.
const SYNCS: u64 = 300;
/// One in so many is of the whole file system.
const OF_ALL: u64 = 5;

/// The bad block is made unreadable by a file in `asked` that is named as its place.
pub(crate) fn run(folder: &Path, asked: &Path) -> Result<()> {
    let [mut file, other] = Known::fragmented(folder, [1, 2], BLOCKS, 3)?;
    [&file, &other]
        .into_iter()
        .try_for_each(Known::drop_cache)?;
    let bad = file.place_of(BAD)?.context("it has no such block")?;
    Marks(asked).set(&format!("{}", bad - CONVENTIONAL))?;
    // Nobody has them open for writing all the time: they share a step.
    file = file.for_reading()?;
    let same = Known::existing(folder, 1, BLOCKS)?.for_reading()?;
    let other = other.for_reading()?;
    let over = AtomicBool::new(false);
    let failed = thread::scope(|scope| {
        let moving = scope.spawn(|| fail(&same, &other, &over));
        let synced = own(&mut file);
        over.store(true, Ordering::Relaxed);
        let failed = moving.join().expect("it does not panic");
        synced.and(failed)
    })?;
    println!("  {failed} calls failed beside {SYNCS} syncs");
    ensure!(failed > SYNCS / 4);
    Marks(asked).set("clear")?;
    [&file, &other]
        .into_iter()
        .try_for_each(Known::check_on_device)
}

/// Move the file together with another one, of which the second half goes before the first one, so that
/// it never is in one piece already; tells how often.
fn fail(file: &Known, other: &Known, over: &AtomicBool) -> Result<u64> {
    let half = BLOCKS / 2;
    let ranges = [file.whole(), other.range(half, half), other.range(0, half)];
    let mut calls = 0;
    while !over.load(Ordering::Relaxed) {
        let report = offload(&file.file, &ranges, Flags::empty())?;
        let outcome = report.ranges[0];
        ensure!(
            matches!(outcome.status, Status::Device(_)) && outcome.moved == 0,
            "{report:?}"
        );
        calls += 1;
    }
    Ok(calls)
}

fn own(file: &mut Known) -> Result<()> {
    let mut numbers = Numbers::new(5);
    let mut in_vain = [0; 2];
    for number in 1..=SYNCS {
        let before = file.place()?.context("it has no blocks")?;
        file.change(|file| file.write(0, 1, 1 + number))?;
        thread::sleep(Duration::from_micros(numbers.below(4000)));
        let of_all = number % OF_ALL == 0;
        match of_all {
            true => rustix::fs::syncfs(&file.file)?,
            false => file.file.sync_data()?,
        }
        in_vain[usize::from(of_all)] += u64::from(file.place()? == Some(before));
    }
    let [of_file, of_all] = in_vain;
    ensure!(
        in_vain == [0; 2],
        "{of_file} calls of fdatasync and {of_all} of syncfs did not write what was written before"
    );
    Ok(())
}
