//! A process that is killed in the middle of a call.

use std::{
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::{Result, ensure};
use linux_abi::f2fs::offload::{Flags, offload};

use crate::file::Known;

/// Enough for several of the kernel's steps, between which it checks for signals.
const BLOCKS: u64 = 17_000;
/// Attempts without one that ended in the middle.
const MOST_ATTEMPTS: u64 = 8;

/// Move a file in another process, and kill that, so many times or until one ended in the middle: at once,
/// or as soon as the first of the kernel's steps is seen.
pub(crate) fn run(folder: &Path, attempts: u64) -> Result<()> {
    let mut file = Known::create(folder, 1)?;
    file.write(0, BLOCKS, 1)?;
    file.file.sync_all()?;
    let (mut attempt, mut interrupted) = (0, 0);
    while attempt < attempts || (interrupted == 0 && attempt < MOST_ATTEMPTS) {
        // Two pieces at least, so that there is something to move.
        let middle = BLOCKS / 2 + attempt;
        let ranges = [file.range(middle, BLOCKS - middle), file.range(0, middle)];
        offload(&file.file, &ranges, Flags::CHECKPOINT)?;
        // Some of the cached blocks are dirty.
        file.write(attempt * 500, 300, 2 + attempt)?;
        let place = file.place()?;
        let mut child = Command::new(std::env::current_exe()?)
            .arg("move")
            .arg(&file.path)
            .stdout(Stdio::null())
            .spawn()?;
        while attempt > 0 && file.place()? == place && child.try_wait()?.is_none() {
            std::thread::sleep(Duration::from_millis(1));
        }
        child.kill()?;
        let killed = child.wait()?.code().is_none();
        interrupted += u64::from(killed && file.place()? != place && file.fragments()? > 1);
        file.check()?;
        attempt += 1;
    }
    println!("  {interrupted} of {attempt} ended in the middle");
    ensure!(interrupted > 0);
    file.check_on_device()?;
    file.relocate(Flags::empty())?;
    ensure!(file.fragments()? < 4, "{} fragments", file.fragments()?);
    file.check_on_device()
}
