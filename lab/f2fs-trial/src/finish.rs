//! Zones that the log for moved data leaves before their end. On a device that limits the number of
//! active zones, each has to be finished, and that takes a device so long that no file may be
//! locked meanwhile.

use std::{
    fs::{self, File},
    path::Path,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use linux_abi::f2fs::{
    offload::{Flags, Status, offload},
    write_checkpoint,
};

use crate::{
    failing::CONVENTIONAL,
    file::{BLOCK, Known},
    logs,
};

/// Bytes of a zone, which is a section.
const ZONE: u64 = 32 << 20;
/// More than half a section: no two files fit into one, so the log leaves a section for each.
const BLOCKS: u64 = ZONE / BLOCK / 2 + 100;
/// Pause between two writes. The end of a move is noticed after at most one write and this pause.
const PAUSE: Duration = Duration::from_millis(5);

/// Move more files than zones may be active. `finish` is the time that the device takes to finish a
/// zone, in milliseconds.
pub(crate) fn run(folder: &Path, zoned: &Path, finish: u64) -> Result<()> {
    let finish = Duration::from_millis(finish);
    let limit = limit(zoned)?;
    ensure!(limit > 0, "the device has no limit");
    // F2FS has six of its own, and may be about to leave one.
    logs::are(&File::open(folder)?, if limit > 8 { 2 } else { 1 })?;
    let mut files = Vec::new();
    for number in (1..=limit + 2).step_by(2) {
        files.extend(Known::fragmented(
            folder,
            [number, number + 1],
            BLOCKS,
            BLOCKS / 6,
        )?);
    }
    let mut left: Option<u64> = None;
    let (mut longest, mut most) = (Duration::ZERO, 0);
    for file in &mut files {
        let (took, stall) = move_beside_a_writer(file)?;
        let zones = zones(zoned)?;
        let place = file.place()?.context("it has no blocks")?;
        let zone = (place - CONVENTIONAL) / ZONE;
        ensure!(left != Some(zone), "the log has not left zone {zone}");
        if let Some(left) = left {
            let state = &zones[left as usize];
            ensure!(state == "fu", "zone {left} was left, and is {state}");
            ensure!(took >= finish, "a zone was finished in {took:?}");
        }
        left = Some(zone);
        let active = zones.iter().filter(|state| is_active(state)).count() as u64;
        ensure!(active <= limit, "{active} zones are active: {zones:?}");
        most = most.max(active);
        longest = longest.max(stall);
    }
    println!(
        "  {} zones were left, {most} of {limit} active; the longest write took {longest:?}, a finish {finish:?}",
        files.len() - 1
    );
    ensure!(longest < finish / 2, "a write took {longest:?}");
    for file in &files {
        file.check_on_device()?;
    }
    Ok(())
}

/// The log leaves a section whose only file is gone. It must not be reset, for others to write to it,
/// before its zone is finished, for which the device takes this many milliseconds.
pub(crate) fn leave_what_is_free(folder: &Path, zoned: &Path, finish: u64) -> Result<()> {
    let finish = Duration::from_millis(finish);
    let [last, next] = Known::fragmented(folder, [1, 2], BLOCKS, BLOCKS / 6)?;
    last.relocate_all(Flags::empty(), BLOCKS)?;
    let zone_of = |file: &Known| {
        let place = file.place()?.context("it has no blocks")?;
        anyhow::Ok((place - CONVENTIONAL) / ZONE)
    };
    let zone = zone_of(&last)?;
    let root = File::open(folder)?;
    let state = || Ok::<_, anyhow::Error>(zones(zoned)?.swap_remove(zone as usize));
    fs::remove_file(&last.path)?;
    drop(last);
    let mover = File::open(&next.path)?;
    let range = next.whole_of(&mover);
    let begun = Instant::now();
    let report = thread::scope(|scope| {
        let mover = scope.spawn(|| offload(&mover, &[range], Flags::empty()));
        while !mover.is_finished() {
            // Later, the section may become free before the log takes another one.
            if begun.elapsed() < finish / 2 {
                write_checkpoint(&root)?;
            }
            let state = state()?;
            // The zone is finished later than that.
            let too_early = begun.elapsed() < finish;
            ensure!(
                !too_early || state != "em",
                "zone {zone} was reset while it was to be finished"
            );
            thread::sleep(10 * PAUSE);
        }
        let report = mover.join().expect("it does not panic");
        anyhow::Ok(report?)
    })?;
    ensure!(report.ranges[0].status == Status::Done, "{report:?}");
    next.check_on_device()?;
    ensure!(
        zone_of(&next)? != zone,
        "zone {zone} was given away while it was to be finished"
    );
    while state()? != "em" {
        let waited = begun.elapsed();
        ensure!(waited < 20 * finish, "zone {zone} is not reset");
        write_checkpoint(&root)?;
        thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}

/// Move the whole file while its first block is written all the time. Returns the duration of the
/// move, and the longest write.
fn move_beside_a_writer(file: &mut Known) -> Result<(Duration, Duration)> {
    let mover = File::open(&file.path)?;
    let range = file.whole_of(&mover);
    let begun = Instant::now();
    thread::scope(|scope| {
        let mover = scope.spawn(|| (offload(&mover, &[range], Flags::empty()), begun.elapsed()));
        let mut longest = Duration::ZERO;
        for version in 2.. {
            if mover.is_finished() {
                break;
            }
            let begun = Instant::now();
            file.write(0, 1, version)?;
            longest = longest.max(begun.elapsed());
            thread::sleep(PAUSE);
        }
        let (report, took) = mover.join().expect("it does not panic");
        let report = report?;
        let outcome = report.ranges[0];
        ensure!(
            outcome.status == Status::Done && outcome.moved == BLOCKS * BLOCK,
            "{report:?}"
        );
        Ok((took, longest))
    })
}

/// The number of zones that may be active.
fn limit(zoned: &Path) -> Result<u64> {
    let name = zoned.file_name().context("no disk")?.to_string_lossy();
    let path = format!("/sys/block/{name}/queue/max_active_zones");
    Ok(fs::read_to_string(path)?.trim().parse()?)
}

/// The states of all zones, as `blkzone report` prints them: `em`, `oi`, `oe`, `cl`, `fu` …
fn zones(zoned: &Path) -> Result<Vec<String>> {
    let said = Command::new("blkzone").arg("report").arg(zoned).output()?;
    ensure!(said.status.success(), "blkzone: {said:?}");
    let zones: Vec<String> = states(&String::from_utf8(said.stdout)?);
    ensure!(!zones.is_empty());
    Ok(zones)
}

fn states(report: &str) -> Vec<String> {
    report
        .lines()
        .filter_map(|line| {
            let (_, state) = line.split_once("zcond:")?;
            let (_, state) = state.split_once('(')?;
            Some(state.split_once(')')?.0.to_owned())
        })
        .collect()
}

fn is_active(state: &str) -> bool {
    matches!(state, "oi" | "oe" | "cl")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_understood() {
        let report = "  start: 0x000000000, len 0x010000, cap 0x010000, wptr 0x000008 reset:0 non-seq:0, \
                      zcond: 2(oi) [type: 2(SEQ_WRITE_REQUIRED)]\n\
                      \x20 start: 0x000010000, len 0x010000, cap 0x010000, wptr 0x010000 reset:0 non-seq:0, \
                      zcond:14(fu) [type: 2(SEQ_WRITE_REQUIRED)]\n";
        assert_eq!(states(report), ["oi", "fu"]);
        assert!(is_active("oi") && is_active("cl") && !is_active("fu") && !is_active("em"));
    }
}
