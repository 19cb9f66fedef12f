//! Circumstances of a move: a hole between a file's blocks, and a file system that is shrunk,
//! frozen and mounted anew, while files are moved and afterwards. The logs for moved data, which may
//! lie in the part that is cut off, have to go elsewhere.

use std::{
    fs::{self, File},
    io::{Seek, SeekFrom},
    os::{fd::AsFd, unix::fs::FileExt},
    path::Path,
    process::Command,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use linux_abi::f2fs::{
    self,
    offload::{Flags, Range, Status, Steps, offload, offload_in_steps},
};
use rustix::io::Errno;

use crate::{
    file::{BLOCK, Known, content},
    logs::log_of,
};

/// Blocks of a section: a zone of 32 MiB.
const SECTION: u64 = 8192;
const BLOCKS: u64 = 256;
/// Versions of written data are below this until the log is cut off.
const VERSIONS: u64 = 1 << 15;
/// A resize that meets garbage collection, or a mover, returns an error that asks to try again.
const ATTEMPTS: usize = 50;
const PAUSE: Duration = Duration::from_millis(20);

/// `folder` is the root of the file system, which is mounted from `disk`, and has all of `zoned`, too.
/// (Linux 6.1 does not do without checkpoints in LFS mode.)
pub(crate) fn run(folder: &Path, disk: &Path, zoned: &Path, can_disable: bool) -> Result<()> {
    around_a_hole(folder).context("a hole")?;
    let mut files = Known::fragmented(folder, [1, 2], BLOCKS, 4)?;
    let blocks = blocks_of(disk)? + blocks_of(zoned)?;
    let remounted = can_disable.then_some(disk);
    let blocks = beside_movers(folder, remounted, blocks, &mut files).context("beside movers")?;
    if can_disable {
        checkpoints_off(folder, disk, &mut files[0]).context("mounted without checkpoints")?;
    }
    cut_off_the_logs(folder, blocks, &mut files).context("logs that are cut off")
}

/// Number of usable blocks of the file system.
fn usable(folder: &Path) -> Result<u64> {
    Ok(rustix::fs::statvfs(folder)?.f_blocks)
}

/// Number of blocks of a disk.
fn blocks_of(disk: &Path) -> Result<u64> {
    Ok(File::open(disk)?.seek(SeekFrom::End(0))? / BLOCK)
}

/// Cut off sections so that the section of the first log for moved data is the first of them, and that of
/// the second one is another.
fn cut_off_the_logs(folder: &Path, blocks: u64, files: &mut [Known; 2]) -> Result<()> {
    const SECTIONS: u64 = 100;
    // This much is needed for the existing data, for garbage collection, and for moves, which take no
    // section that F2FS keeps for it (more than `f_bavail` says, of f2fs-tools 1.16).
    let statistics = rustix::fs::statvfs(folder)?;
    let least = (blocks - statistics.f_bavail).div_ceil(SECTION) + 8;
    no_checkpoints_by_itself()?;
    // More than half a section: each move takes the next free one, as no checkpoint frees any.
    let mut large = Known::create(folder, 3)?;
    large.write(0, SECTION / 2 + 100, 1)?;
    large.file.sync_all()?;
    for version in 2..2 + SECTIONS {
        if section_of(&large)? >= least {
            break;
        }
        anew(&mut large, version, 0)?;
    }
    let [one, other] = files;
    anew(one, VERSIONS, 0)?;
    let end = section_of(one)?;
    // As many as fill the section that the second log has.
    for version in VERSIONS..=VERSIONS + SECTION / BLOCKS {
        anew(other, version, 1)?;
        if section_of(other)? > end {
            break;
        }
    }
    println!(
        "  the logs are in sections {end} and {} of {}",
        section_of(other)?,
        blocks / SECTION
    );
    ensure!(
        end >= least && section_of(other)? >= end,
        "section {end} cannot be cut off, {least} could"
    );
    shrink(folder, end * SECTION)?;
    large.drop_cache()?;
    large.check().context("a large file")?;
    for version in [VERSIONS + 100, VERSIONS + 101] {
        for (log, file) in (0..).zip(&mut *files) {
            file.check_on_device()?;
            let place = section_of(file)?;
            ensure!(place < end, "{} is in section {place}", file.path.display());
            anew(file, version, log)?;
        }
    }
    files.iter().try_for_each(Known::check_on_device)
}

/// Let F2FS checkpoint only when it is asked to. By default it does so after a minute, and where many segments
/// are to be freed (`f2fs_balance_fs_bg`, fs/f2fs/segment.c, v6.12): on a slow kernel that comes in between.
fn no_checkpoints_by_itself() -> Result<()> {
    let mut told = 0;
    for entry in fs::read_dir("/sys/fs/f2fs")? {
        let folder = entry?.path();
        for (name, value) in [("cp_interval", "86400"), ("reclaim_segments", "1000000")] {
            let setting = folder.join(name);
            if setting.exists() {
                fs::write(&setting, value).with_context(|| setting.display().to_string())?;
                told += 1;
            }
        }
    }
    ensure!(told >= 2, "no F2FS in /sys/fs/f2fs");
    Ok(())
}

/// The cost of a move depends on the blocks, not on the hole between them: a move that examined
/// each page of this hole held the locks for 29 s.
fn around_a_hole(folder: &Path) -> Result<()> {
    const MIDDLE: u64 = 64 << 20;
    const LAST: u64 = 128 << 20;
    const LIMIT: Duration = Duration::from_secs(10);
    let path = folder.join("sparse");
    let file = File::options()
        .create_new(true)
        .read(true)
        .write(true)
        .open(&path)?;
    // In this order, so that they are not adjacent on the device.
    for block in [LAST, 0] {
        file.write_all_at(&content(4, block, 1), block * BLOCK)?;
        file.sync_all()?;
    }
    file.write_all_at(&content(4, MIDDLE, 1), MIDDLE * BLOCK)?;
    let range = Range {
        file: file.as_fd(),
        start: 0,
        len: (LAST + 1) * BLOCK,
    };
    let begun = Instant::now();
    let report = offload(&file, &[range], Flags::empty())?;
    let took = begun.elapsed();
    println!("  a hole of {} GiB: {took:?}", (LAST * BLOCK) >> 30);
    let outcome = report.ranges[0];
    ensure!(
        outcome.status == Status::Done && outcome.moved == 3 * BLOCK,
        "{report:?}"
    );
    ensure!(report.bytes_from_memory == BLOCK, "{report:?}");
    ensure!(took < LIMIT, "{took:?}");
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
    for block in [0, MIDDLE, LAST] {
        let mut bytes = vec![0; BLOCK as usize];
        file.read_exact_at(&mut bytes, block * BLOCK)?;
        ensure!(bytes == content(4, block, 1), "block {block}");
    }
    // A comparison of files would read the hole.
    Ok(fs::remove_file(path)?)
}

/// The section in which a file begins, counted from the beginning of the file system.
fn section_of(file: &Known) -> Result<u64> {
    let place = file.place()?.context("it has no blocks")?;
    Ok(place / BLOCK / SECTION)
}

fn shrink(folder: &Path, blocks: u64) -> Result<()> {
    let root = File::open(folder)?;
    for _ in 0..ATTEMPTS {
        match f2fs::resize(&root, blocks) {
            Ok(()) => return Ok(()),
            Err(error) if Errno::from_io_error(&error) == Some(Errno::AGAIN) => {
                thread::sleep(PAUSE);
            }
            Err(error) => return Err(error).context(format!("to {blocks} blocks")),
        }
    }
    bail!("to {blocks} blocks: it is to be tried again, and again")
}

fn remount(folder: &Path, disk: &Path, option: &str) -> Result<()> {
    let status = Command::new("mount")
        .args(["-o", &format!("remount,{option}")])
        .args([disk, folder])
        .status()?;
    ensure!(status.success(), "remount,{option}: {status}");
    Ok(())
}

/// Whether the call was refused because checkpoints are off at the moment.
fn is_off(error: &anyhow::Error) -> bool {
    error.downcast_ref().and_then(Errno::from_io_error) == Some(Errno::OPNOTSUPP)
}

/// Without checkpoints nothing is moved; earlier moves stay, and the log continues afterwards.
fn checkpoints_off(folder: &Path, disk: &Path, file: &mut Known) -> Result<()> {
    remount(folder, disk, "checkpoint=disable")?;
    match file.relocate(Flags::empty()) {
        Err(error) if is_off(&error) => {}
        other => bail!("{other:?}"),
    }
    file.check_on_device()?;
    remount(folder, disk, "checkpoint=enable")?;
    anew(file, VERSIONS - 1, 0)?;
    file.check_on_device()
}

/// Write a block, so that the file is in pieces again, and move the whole file to this log.
fn anew(file: &mut Known, version: u64, log: u32) -> Result<u64> {
    let blocks = file.blocks();
    file.write(version % blocks, 1, version)?;
    let steps = Steps {
        log: log_of(&file.file, log)?,
        ..Steps::default()
    };
    let report = offload_in_steps(&file.file, &[file.whole()], Flags::empty(), steps)?;
    match report.ranges.as_slice() {
        [range] if range.status == Status::Done && range.moved == blocks * BLOCK => Ok(range.moved),
        // The remount came during the call.
        [range] if range.status == Status::Device(Errno::OPNOTSUPP.raw_os_error()) => {
            Err(std::io::Error::from(Errno::OPNOTSUPP).into())
        }
        _ => bail!("{}: {report:?}", file.path.display()),
    }
}

/// Run a mover for each log that never pauses, while the file system loses its last sections one by one
/// (for which it is frozen), and is mounted without checkpoints (if there is a disk to mount). Returns
/// the number of blocks that are left.
fn beside_movers(
    folder: &Path,
    disk: Option<&Path>,
    blocks: u64,
    files: &mut [Known; 2],
) -> Result<u64> {
    const SECTIONS: u64 = 6;
    let over = AtomicBool::new(false);
    let moved = [const { AtomicU64::new(0) }; 2];
    let before = usable(folder)?;
    thread::scope(|scope| {
        let movers = (0..).zip(&mut *files).map(|(log, file)| {
            let (over, moved) = (&over, &moved[log as usize]);
            scope.spawn(move || move_until(over, file, log, moved))
        });
        let movers: Vec<_> = movers.collect();
        let changed = (1..=SECTIONS).try_for_each(|gone| {
            shrink(folder, blocks - gone * SECTION)?;
            if let (3, Some(disk)) = (gone, disk) {
                remount(folder, disk, "checkpoint=disable")?;
                // The mover has dirty pages written: few dirty pages make the next one wait for 16
                // s (`f2fs_enable_checkpoint` of 6.12 has a sixteenth of them written at a time).
                thread::sleep(10 * PAUSE);
                remount(folder, disk, "checkpoint=enable")?;
            }
            Ok(())
        });
        over.store(true, Ordering::Relaxed);
        let moved = movers
            .into_iter()
            .try_for_each(|mover| mover.join().expect("it does not panic"));
        changed.and(moved.context("a mover"))
    })?;
    let moved = moved.map(AtomicU64::into_inner);
    println!(
        "  {} MiB were moved meanwhile",
        moved.iter().sum::<u64>() >> 20
    );
    ensure!(moved.iter().all(|bytes| *bytes > 0), "{moved:?}");
    ensure!(usable(folder)? == before - SECTIONS * SECTION);
    for file in files {
        file.check_on_device()?;
    }
    Ok(blocks - SECTIONS * SECTION)
}

/// Move the file to this log again and again.
fn move_until(over: &AtomicBool, file: &mut Known, log: u32, moved: &AtomicU64) -> Result<()> {
    for version in 2..VERSIONS - 1 {
        if over.load(Ordering::Relaxed) {
            break;
        }
        // Dirty pages would keep checkpoints from being switched on again.
        if offload(&file.file, &[], Flags::empty()).is_err() {
            thread::sleep(PAUSE);
            continue;
        }
        match anew(file, version, log) {
            Ok(bytes) => drop(moved.fetch_add(bytes, Ordering::Relaxed)),
            // Checkpoints are off.
            Err(error) if is_off(&error) => file.write_back()?,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
