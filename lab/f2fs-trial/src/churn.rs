//! Files are moved without a pause, by two calls at a time, while others write to them in every way,
//! cut them, delete them, and while garbage is collected and checkpoints are written. Every thread
//! compares the data that it reads with the data that it wrote.

use std::{
    fs::{self, File},
    os::{
        fd::AsFd,
        unix::fs::{FileExt, OpenOptionsExt},
    },
    path::Path,
    process::Command,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use linux_abi::{
    f2fs::offload::{Flags, Range, RangeOutcome, Status, Steps, offload_in_steps},
    mapping::SharedBytes,
};
use workloads::Numbers;

use crate::{
    file::{BLOCK, Known, content},
    logs::log_of,
};

/// The state that all threads share.
pub(crate) struct Stage<'a> {
    pub(crate) folder: &'a Path,
    over: AtomicBool,
    end: Instant,
    pub(crate) moved: AtomicU64,
    pub(crate) moves: AtomicU64,
    operations: AtomicU64,
}

impl Stage<'_> {
    pub(crate) fn goes_on(&self) -> bool {
        self.operations.fetch_add(1, Ordering::Relaxed);
        !self.over.load(Ordering::Relaxed) && Instant::now() < self.end
    }

    /// Note the outcome of a range that others change meanwhile.
    pub(crate) fn note(&self, outcome: &RangeOutcome) -> Result<()> {
        match outcome.status {
            Status::Done
            | Status::Contiguous
            | Status::Hole
            | Status::Changed
            | Status::Range
            | Status::Inline
            | Status::NoSection => {}
            other => bail!("{other:?}"),
        }
        self.moved.fetch_add(outcome.moved, Ordering::Relaxed);
        Ok(())
    }
}

/// The work of a thread until the end.
pub(crate) type Role = fn(&Stage<'_>) -> Result<()>;

/// Run for this many seconds.
pub(crate) fn run(folder: &Path, seconds: u64) -> Result<()> {
    perform(
        folder,
        seconds,
        &[
            ("buffered", buffered),
            ("mapped", mapped),
            ("direct", direct),
            ("cut", cut),
            ("deleted", deleted),
            ("collected", collect),
            ("moved", |stage| relocate(stage, 0)),
            ("moved meanwhile", |stage| relocate(stage, 1)),
        ],
    )
}

/// Have a thread for each role, for this many seconds.
pub(crate) fn perform(folder: &Path, seconds: u64, roles: &[(&'static str, Role)]) -> Result<()> {
    let stage = Stage {
        folder,
        over: AtomicBool::new(false),
        end: Instant::now() + Duration::from_secs(seconds),
        moved: AtomicU64::new(0),
        moves: AtomicU64::new(0),
        operations: AtomicU64::new(0),
    };
    let failed = thread::scope(|scope| {
        let begin = |&(name, role): &(&'static str, Role)| {
            let stage = &stage;
            let thread = scope.spawn(move || {
                let result = role(stage).context(name);
                if result.is_err() {
                    stage.over.store(true, Ordering::Relaxed);
                }
                result
            });
            (name, thread)
        };
        let threads: Vec<_> = roles.iter().map(begin).collect();
        threads
            .into_iter()
            .filter_map(|(name, thread)| match thread.join() {
                Ok(Ok(())) => None,
                Ok(Err(error)) => Some(format!("{error:?}")),
                Err(_) => Some(format!("{name}: a panic")),
            })
            .collect::<Vec<_>>()
    });
    println!(
        "  {} operations, {} moves of {} MiB together",
        stage.operations.load(Ordering::Relaxed),
        stage.moves.load(Ordering::Relaxed),
        stage.moved.load(Ordering::Relaxed) >> 20
    );
    ensure!(failed.is_empty(), "{}", failed.join("\n"));
    ensure!(stage.moves.load(Ordering::Relaxed) > 0, "nothing was moved");
    Ok(())
}

fn buffered(stage: &Stage<'_>) -> Result<()> {
    const BLOCKS: u64 = 400;
    let mut file = Known::create(stage.folder, 101)?;
    file.write(0, BLOCKS, 1)?;
    let mut numbers = Numbers::new(1);
    let mut version = 1;
    while stage.goes_on() {
        version += 1;
        let block = numbers.below(BLOCKS - 8);
        file.write(block, 1 + numbers.below(8), version)?;
        match numbers.below(40_u64) {
            0 => file.file.sync_data()?,
            1 => file.write_back()?,
            2 => file.drop_cache()?,
            _ => {}
        }
        for _ in 0..4 {
            file.check_block(numbers.below(BLOCKS))?;
        }
    }
    file.check_on_device()
}

fn mapped(stage: &Stage<'_>) -> Result<()> {
    const BLOCKS: u64 = 100;
    let mut file = Known::create(stage.folder, 102)?;
    file.write(0, BLOCKS, 1)?;
    let bytes = SharedBytes::map(&file.file, (BLOCKS * BLOCK) as usize)?;
    let mut numbers = Numbers::new(2);
    let mut version = 1;
    while stage.goes_on() {
        version += 1;
        let block = numbers.below(BLOCKS);
        let at = (block * BLOCK) as usize;
        for (offset, byte) in content(102, block, version).into_iter().enumerate() {
            bytes.store(at + offset, byte);
        }
        file.note(block, version);
        if numbers.below(10_u64) == 0 {
            file.write_back()?;
        }
        file.check_block(numbers.below(BLOCKS))?;
    }
    drop(bytes);
    file.check_on_device()
}

/// Read and write directly: direct reads go to the device; direct writes do not, on a device with
/// zones.
fn direct(stage: &Stage<'_>) -> Result<()> {
    const BLOCKS: u64 = 300;
    let mut file = Known::create(stage.folder, 103)?;
    file.write(0, BLOCKS, 1)?;
    file.file.sync_all()?;
    let past = File::options()
        .read(true)
        .write(true)
        .custom_flags(rustix::fs::OFlags::DIRECT.bits() as i32)
        .open(&file.path)?;
    let mut buffer = vec![0; 2 * BLOCK as usize];
    let skip = buffer.as_ptr().align_offset(BLOCK as usize);
    let aligned = &mut buffer[skip..skip + BLOCK as usize];
    let mut numbers = Numbers::new(3);
    let mut version = 1;
    while stage.goes_on() {
        let block = numbers.below(BLOCKS);
        if numbers.below(3_u64) == 0 {
            version += 1;
            aligned.copy_from_slice(&content(103, block, version));
            past.write_all_at(aligned, block * BLOCK)?;
            file.note(block, version);
        } else {
            past.read_exact_at(aligned, block * BLOCK)?;
            ensure!(
                file.is_right(block, aligned),
                "block {block}: direct read of something else"
            );
        }
    }
    file.check_on_device()
}

fn cut(stage: &Stage<'_>) -> Result<()> {
    let mut file = Known::create(stage.folder, 104)?;
    let mut numbers = Numbers::new(4);
    let mut version = 0;
    while stage.goes_on() {
        version += 1;
        let start = numbers.below(500);
        file.write(start, 1 + numbers.below(60), version)?;
        if numbers.below(3_u64) == 0 {
            file.set_blocks(numbers.below(500))?;
        }
        if file.blocks() > 0 {
            file.check_block(numbers.below(file.blocks()))?;
        }
    }
    file.check_on_device()
}

fn deleted(stage: &Stage<'_>) -> Result<()> {
    let mut numbers = Numbers::new(5);
    let mut number = 1000;
    while stage.goes_on() {
        number += 1;
        let mut file = Known::create(stage.folder, number)?;
        file.write(0, 1 + numbers.below(200), 1)?;
        file.write_back()?;
        thread::sleep(Duration::from_millis(numbers.below(60)));
        file.check()?;
        fs::remove_file(&file.path)?;
        // It is still open.
        file.check()?;
    }
    Ok(())
}

/// Run garbage collection and checkpoints.
pub(crate) fn collect(stage: &Stage<'_>) -> Result<()> {
    let folder = File::open(stage.folder)?;
    let mut numbers = Numbers::new(6);
    while stage.goes_on() {
        match numbers.below(2_u64) {
            0 => rustix::fs::syncfs(&folder)?,
            // Without a victim it returns an error.
            _ => drop(
                Command::new("f2fs_io")
                    .args(["gc", "1"])
                    .arg(stage.folder)
                    .output(),
            ),
        }
        thread::sleep(Duration::from_millis(100 + numbers.below(300)));
    }
    Ok(())
}

/// Move the files one by one, by calls for this log.
fn relocate(stage: &Stage<'_>, log: u32) -> Result<()> {
    let root = File::open(stage.folder)?;
    let steps = Steps {
        log: log_of(&root, log)?,
        ..Steps::default()
    };
    let mut numbers = Numbers::new(7 + u64::from(log));
    while stage.goes_on() {
        for entry in fs::read_dir(stage.folder)? {
            // It may have been deleted again.
            let Ok(file) = entry.and_then(|entry| File::open(entry.path())) else {
                continue;
            };
            let blocks = file.metadata()?.len().div_ceil(BLOCK);
            if blocks < 2 {
                continue;
            }
            // The second half before the first one: never in one piece already.
            let middle = 1 + numbers.below(blocks - 1);
            let range = |start: u64, end: u64| Range {
                file: file.as_fd(),
                start: start * BLOCK,
                len: (end - start) * BLOCK,
            };
            let ranges = [range(middle, blocks), range(0, middle), range(0, blocks)];
            let flags = match numbers.below(20_u64) {
                0 => Flags::CHECKPOINT,
                1 => Flags::NO_IN_DEVICE,
                2 => Flags::NO_IN_DEVICE | Flags::NO_COPY,
                _ => Flags::empty(),
            };
            let report = offload_in_steps(&root, &ranges, flags, steps)?;
            for outcome in &report.ranges {
                stage.note(outcome)?;
            }
            stage.moves.fetch_add(1, Ordering::Relaxed);
        }
    }
    Ok(())
}
