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
const ATTEMPTS: u64 = 8;

/// Move a file in another process, and kill that, again and again: at once, or as soon as the first of
/// the kernel's steps is seen.
pub(crate) fn run(folder: &Path) -> Result<()> {
    let mut file = Known::create(folder, 1)?;
    file.write(0, BLOCKS, 1)?;
    file.file.sync_all()?;
    let mut interrupted = 0;
    for attempt in 0..ATTEMPTS {
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
    }
    println!("  {interrupted} of {ATTEMPTS} ended in the middle");
    ensure!(interrupted > 0);
    file.check_on_device()?;
    file.relocate(Flags::empty())?;
    ensure!(file.fragments()? < 4, "{} fragments", file.fragments()?);
    file.check_on_device()
}
