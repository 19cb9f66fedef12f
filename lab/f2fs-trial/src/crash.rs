//! Files to move while the power is cut: made beforehand, moved, and examined afterwards.
//!
//! The recorder of the device is told about data that is about to be written, and about data that
//! is durable, as soon as the call that promises it has returned, and marks both in the recording.
//! At any cut a block then has to hold the newest version that was durable, or a newer one whose
//! write had begun ([`oracle`](crate::oracle)).

use std::{
    fs::{self, File, Permissions},
    hint,
    io::Write,
    os::unix::fs::PermissionsExt,
    path::Path,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use linux_abi::{
    cache,
    f2fs::{
        offload::{Flags, Range, RangeOutcome, Report, Status, Steps, offload_in_steps},
        write_checkpoint,
    },
};
use rustix::{process::setpriority_process, thread::gettid};

use crate::{
    file::{BLOCK, Known},
    logs::log_of,
    oracle::{self, Bounds, Part},
};

const BLOCKS: u64 = 256;
/// Files by the log that they are moved to: one set by each of two threads, at the same time.
const FILES: [[u64; 4]; 2] = [[1, 2, 3, 4], [5, 6, 7, 8]];
/// Number of times that each file is moved.
const ROUNDS: u64 = 3;
/// Blocks of a file that is made meanwhile.
const NEW_BLOCKS: u64 = 3;

/// The place for requests of marks. In a folder, a new file's name is a mark's name, and the file
/// is removed when the mark is set; a file holds their names, each followed by a comma.
pub(crate) struct Marks<'a>(pub(crate) &'a Path);

impl Marks<'_> {
    pub(crate) fn set(&self, name: &str) -> Result<()> {
        if !self.0.is_dir() {
            let mut list = File::options().append(true).create(true).open(self.0)?;
            return Ok(list.write_all(format!("{name},").as_bytes())?);
        }
        let path = self.0.join(name);
        match File::create(&path) {
            // It was seen and removed before the call returned.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            created => drop(created?),
        }
        while path.exists() {
            thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    fn written(&self, file: u64, part: Part, version: u64) -> Result<()> {
        self.set(&format!("written-{file}-{part}-{version}"))
    }

    fn durable(&self, file: u64, part: Part, version: u64) -> Result<()> {
        self.set(&format!("durable-{file}-{part}-{version}"))
    }
}

/// Make the files.
pub(crate) fn prepare(folder: &Path) -> Result<()> {
    for files in FILES {
        Known::fragmented(folder, [files[0], files[1]], BLOCKS, 4)?;
        Known::fragmented(folder, [files[2], files[3]], BLOCKS, 16)?;
    }
    Ok(())
}

/// Write the blocks of this part of a file, in this version.
fn rewrite(file: &mut Known, part: Part, version: u64) -> Result<()> {
    (0..BLOCKS)
        .filter(|&block| Part::of(block) == part)
        .try_for_each(|block| file.write(block, 1, version))
}

/// Write its second half before the first one, so that it is never in one piece already, and move
/// it.
fn relocate(file: &Known, middle: u64, flags: Flags, log: u32) -> Result<Report> {
    let ranges = [file.range(middle, BLOCKS - middle), file.range(0, middle)];
    call(&file.file, &ranges, flags, log)
}

fn call(on: &File, ranges: &[Range<'_>], flags: Flags, log: u32) -> Result<Report> {
    let steps = Steps {
        log,
        ..Steps::default()
    };
    Ok(offload_in_steps(on, ranges, flags, steps)?)
}

/// The same for all of them, by one call: those that are not open for writing share a step.
fn relocate_together(folder: &Path, files: &[u64], middle: u64, log: u32) -> Result<()> {
    let files: Vec<Known> = files
        .iter()
        .map(|&number| Known::existing(folder, number, BLOCKS)?.for_reading())
        .collect::<Result<_>>()?;
    let ranges: Vec<_> = files
        .iter()
        .flat_map(|file| [file.range(middle, BLOCKS - middle), file.range(0, middle)])
        .collect();
    let report = call(&files[0].file, &ranges, Flags::empty(), log)?;
    // A part of a range that was moved before is in one piece.
    let is_right = |range: &RangeOutcome| matches!(range.status, Status::Done | Status::Contiguous);
    ensure!(report.ranges.iter().all(is_right), "{report:?}");
    let moved = report.ranges.iter().filter(|range| range.moved > 0).count();
    ensure!(moved > report.steps as usize, "{report:?}");
    Ok(())
}

/// Move them, with some blocks dirty, others being written when a checkpoint comes; some are synced
/// in between, some data is made durable by a checkpoint, and new files by roll-forward.
pub(crate) fn migrate(folder: &Path, marks: &Path) -> Result<()> {
    let marks = &Marks(marks);
    thread::scope(|scope| {
        let threads = [0, 1].map(|log| scope.spawn(move || migrate_to(log, folder, marks)));
        let ended = threads.map(|thread| thread.join().expect("it does not panic"));
        ended.into_iter().collect()
    })
}

fn migrate_to(log: u32, folder: &Path, marks: &Marks<'_>) -> Result<()> {
    let root = File::open(folder)?;
    let files = FILES[log as usize];
    let log = log_of(&root, log)?;
    for version in 2..2 + ROUNDS {
        for (role, number) in (1..).zip(files) {
            let mut file = Known::existing(folder, number, BLOCKS)?;
            if number % 2 == 1 {
                file.drop_cache()?;
            }
            marks.written(number, Part::Moved, version)?;
            rewrite(&mut file, Part::Moved, version)?;
            let flags = match role {
                2 => Flags::CHECKPOINT,
                _ => Flags::empty(),
            };
            let report = relocate(&file, BLOCKS / 2 + role * 8 + version, flags, log)?;
            ensure!(
                report
                    .ranges
                    .iter()
                    .all(|range| range.status == Status::Done),
                "{report:?}"
            );
            match role {
                // Of the first one, too: it was moved before.
                2 => {
                    marks.durable(files[0], Part::Moved, version)?;
                    marks.durable(number, Part::Moved, version)?;
                }
                3 => {
                    file.file.sync_all()?;
                    marks.durable(number, Part::Moved, version)?;
                }
                _ => {}
            }
            marks.written(number, Part::Beside, version)?;
            rewrite(&mut file, Part::Beside, version)?;
            cache::start_writeback(&file.file, 0, 0)?;
            write_checkpoint(&root)?;
            marks.durable(number, Part::Moved, version)?;
            marks.set(&format!("early-{number}-{version}"))?;
            if role == 4 {
                file.file.sync_data()?;
                marks.durable(number, Part::Beside, version)?;
            }

            relocate_together(folder, &files, BLOCKS / 4 + role * 8 + version, log)?;

            let new = 100 * version + number;
            marks.written(new, Part::Still, 1)?;
            let mut file = Known::create(folder, new)?;
            file.write(0, NEW_BLOCKS, 1)?;
            file.file.sync_data()?;
            marks.durable(new, Part::Still, 1)?;
        }
    }
    Ok(())
}

/// Move a durable file, without a pause, while only its mode changes and is synced: fsync writes
/// the node that has the addresses of all blocks.
pub(crate) fn synced(folder: &Path, marks: &Path) -> Result<()> {
    const FSYNCS: u32 = 40;
    let file = Known::existing(folder, FILES[0][0], BLOCKS)?;
    let same = File::open(&file.path)?;
    let over = AtomicBool::new(false);
    let mut moved = 0;
    Marks(marks).set("synced")?;
    thread::scope(|scope| {
        let syncer = scope.spawn(|| {
            let synced = (0..FSYNCS).try_for_each(|number| {
                same.set_permissions(Permissions::from_mode(0o600 | (number % 2)))?;
                same.sync_all()
            });
            over.store(true, Ordering::Relaxed);
            synced
        });
        for middle in (0..).map(|round| 1 + round * 7 % (BLOCKS - 1)) {
            if over.load(Ordering::Relaxed) {
                break;
            }
            let report = relocate(&file, middle, Flags::empty(), 0)?;
            moved += report.ranges.iter().map(|range| range.moved).sum::<u64>();
        }
        Ok::<_, anyhow::Error>(syncer.join().expect("it does not panic")?)
    })?;
    println!("  {} MiB were moved beside {FSYNCS} fsyncs", moved >> 20);
    ensure!(moved > 0);
    Ok(())
}

/// Overwrite a part of a file and sync it, again and again, while one checkpoint follows the other: most of them
/// write the file's node, and not all have ended when fdatasync returns. Checkpoints get little of a processor, and take
/// long; whoever syncs gets all that it wants.
pub(crate) fn checkpointed(folder: &Path, marks: &Path) -> Result<()> {
    const SYNCS: u64 = 30;
    let marks = &Marks(marks);
    let root = File::open(folder)?;
    let number = FILES[0][0];
    let mut file = Known::existing(folder, number, BLOCKS)?;
    let over = AtomicBool::new(false);
    let goes_on = || !over.load(Ordering::Relaxed);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while goes_on() {
                    hint::spin_loop();
                }
            });
        }
        let checkpoints = scope.spawn(|| {
            setpriority_process(Some(gettid()), 19)?;
            while goes_on() {
                write_checkpoint(&root)?;
            }
            Ok::<_, anyhow::Error>(())
        });
        let synced = setpriority_process(Some(gettid()), -20).map_err(Into::into);
        let synced = synced.and_then(|()| {
            (2..2 + SYNCS).try_for_each(|version| {
                marks.written(number, Part::Beside, version)?;
                rewrite(&mut file, Part::Beside, version)?;
                cache::start_writeback(&file.file, 0, 0)?;
                file.file.sync_data()?;
                marks.durable(number, Part::Beside, version)
            })
        });
        over.store(true, Ordering::Relaxed);
        checkpoints.join().expect("it does not panic")?;
        synced
    })
}

/// Overwrite a part of a durable file and sync it, again and again, while another part is overwritten and written back,
/// but never synced.
pub(crate) fn overwritten(folder: &Path, marks: &Path) -> Result<()> {
    const SYNCS: u64 = 20;
    let marks = &Marks(marks);
    let number = FILES[0][0];
    let synced = AtomicU64::new(0);
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let beside = scope.spawn(|| {
            let mut file = Known::existing(folder, number, BLOCKS)?;
            // The first syncs have the file for themselves.
            while synced.load(Ordering::Relaxed) < SYNCS / 2 && !over.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(1));
            }
            for version in (2..).take_while(|_| !over.load(Ordering::Relaxed)) {
                marks.written(number, Part::Moved, version)?;
                rewrite(&mut file, Part::Moved, version)?;
                cache::start_writeback(&file.file, 0, 0)?;
            }
            Ok::<_, anyhow::Error>(())
        });
        let written = Known::existing(folder, number, BLOCKS).and_then(|mut file| {
            (2..2 + SYNCS).try_for_each(|version| {
                marks.written(number, Part::Beside, version)?;
                rewrite(&mut file, Part::Beside, version)?;
                file.file.sync_data()?;
                synced.fetch_add(1, Ordering::Relaxed);
                marks.durable(number, Part::Beside, version)
            })
        });
        over.store(true, Ordering::Relaxed);
        beside.join().expect("it does not panic")?;
        written
    })
}

/// Overwrite two parts of a file, each by a thread that syncs what it wrote, while others only sync the file: none of
/// them may take the others' data for durable before it is.
pub(crate) fn synced_together(folder: &Path, marks: &Path) -> Result<()> {
    const SYNCS: u64 = 24;
    const SYNCERS: usize = 2;
    let marks = &Marks(marks);
    let number = FILES[0][0];
    let over = &AtomicBool::new(false);
    thread::scope(|scope| {
        let syncers: Vec<_> = (0..SYNCERS)
            .map(|_| {
                scope.spawn(|| {
                    let file = Known::existing(folder, number, BLOCKS)?.file;
                    let mut syncs = 0_u64;
                    while !over.load(Ordering::Relaxed) {
                        file.sync_data()?;
                        syncs += 1;
                    }
                    Ok::<_, anyhow::Error>(syncs)
                })
            })
            .collect();
        let writers = [Part::Moved, Part::Beside].map(|part| {
            scope.spawn(move || {
                let mut file = Known::existing(folder, number, BLOCKS)?;
                (2..2 + SYNCS).try_for_each(|version| {
                    marks.written(number, part, version)?;
                    rewrite(&mut file, part, version)?;
                    cache::start_writeback(&file.file, 0, 0)?;
                    file.file.sync_data()?;
                    marks.durable(number, part, version)
                })
            })
        });
        let written = writers.map(|writer| writer.join().expect("it does not panic"));
        over.store(true, Ordering::Relaxed);
        for syncer in syncers {
            let syncs = syncer.join().expect("it does not panic")?;
            println!("  {syncs} further syncs beside");
            ensure!(syncs > 0);
        }
        written.into_iter().collect()
    })
}

/// Check that every block is as `marks` (those before the cut, separated by commas) allow, and that
/// all files can be moved again.
pub(crate) fn after(folder: &Path, marks: &str) -> Result<()> {
    let bounds = oracle::Expectation::read(marks)?;
    for number in bounds
        .files()
        .filter(|file| !FILES.as_flattened().contains(file))
    {
        let path = folder.join(format!("file{number}"));
        let of = bounds.of(number, Part::Still);
        match fs::read(&path) {
            Ok(bytes) if of.durable == 1 => {
                ensure!(
                    bytes.len() as u64 == NEW_BLOCKS * BLOCK,
                    "{}",
                    path.display()
                );
                judge(number, &bytes, |_| of)?;
            }
            Ok(_) => {}
            Err(error) if of.durable == 0 && error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(error).context(path.display().to_string()),
        }
    }
    for &number in FILES.as_flattened() {
        let file = Known::existing(folder, number, BLOCKS)?;
        let before = fs::read(&file.path)?;
        ensure!(before.len() as u64 == BLOCKS * BLOCK);
        judge(number, &before, |block| bounds.of(number, Part::of(block)))?;
        let report = relocate(&file, BLOCKS / 2 + 77, Flags::empty(), 0)?;
        ensure!(
            report
                .ranges
                .iter()
                .all(|range| matches!(range.status, Status::Done | Status::Contiguous)),
            "{report:?}"
        );
        file.write_back()?;
        file.drop_cache()?;
        ensure!(
            fs::read(&file.path)? == before,
            "file {number} is another one"
        );
    }
    Ok(())
}

fn judge(file: u64, bytes: &[u8], bounds: impl Fn(u64) -> Bounds) -> Result<()> {
    (0..)
        .zip(bytes.chunks_exact(BLOCK as usize))
        .try_for_each(|(block, bytes)| bounds(block).judge(file, block, bytes))
}
