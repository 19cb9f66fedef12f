//! Ranges of several files in one call: they share steps and commands, and each has an outcome of
//! its own.

use std::{
    cell::Cell,
    fs::{self, File},
    os::fd::AsFd,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use linux_abi::f2fs::offload::{
    Flags, MAX_STEP_BLOCKS, Range, Report, Status, Steps, offload, offload_in_steps,
};

use rustix::io::Errno;

use crate::{
    crash::Marks,
    failing::CONVENTIONAL,
    file::{BLOCK, Known},
};

/// Blocks of a small file.
const BLOCKS: u64 = 12;
/// Number of small files, even.
const FILES: u64 = 40;

/// Files, and a descriptor of each that is open for reading: one that others may be writing to
/// shares no step.
struct Idle {
    files: Vec<Known>,
    readers: Vec<File>,
}

impl Idle {
    /// Files of these numbers on, in pieces, clean and not in the cache.
    fn make(folder: &Path, first: u64, count: u64, blocks: u64) -> Result<Self> {
        let mut files = Vec::new();
        for number in (first..first + count).step_by(2) {
            files.extend(Known::fragmented(folder, [number, number + 1], blocks, 3)?);
        }
        files.iter().try_for_each(Known::drop_cache)?;
        Self::of(files)
    }

    fn of(files: Vec<Known>) -> Result<Self> {
        let closed: Vec<Known> = files
            .into_iter()
            .map(Known::for_reading)
            .collect::<Result<_>>()?;
        let readers = closed
            .iter()
            .map(|file| File::open(&file.path))
            .collect::<Result<_, _>>()?;
        Ok(Self {
            files: closed,
            readers,
        })
    }

    fn whole(&self) -> Vec<Range<'_>> {
        let both = self.files.iter().zip(&self.readers);
        both.map(|(file, reader)| file.whole_of(reader)).collect()
    }

    /// Check that each is in one piece, and its content.
    fn check_moved(&self) -> Result<()> {
        for file in &self.files {
            let fragments = file.fragments()?;
            ensure!(
                fragments == 1,
                "{}: {fragments} fragments",
                file.path.display()
            );
            file.check_on_device()?;
        }
        Ok(())
    }
}

/// Calls that only the device carries out, and that count its commands.
#[derive(Default)]
struct Calls {
    commands: Cell<u64>,
}

impl Calls {
    fn offload(&self, ranges: &[Range<'_>], flags: Flags) -> Result<Report> {
        self.note(offload(ranges[0].file, ranges, flags)?)
    }

    fn in_steps(&self, ranges: &[Range<'_>], blocks: u64) -> Result<Report> {
        let steps = Steps {
            blocks: u32::try_from(blocks)?,
            ..Steps::default()
        };
        self.note(offload_in_steps(
            ranges[0].file,
            ranges,
            Flags::empty(),
            steps,
        )?)
    }

    fn note(&self, report: Report) -> Result<Report> {
        ensure!(report.bytes_host + report.bytes_from_memory == 0);
        self.commands.set(self.commands.get() + report.commands);
        Ok(report)
    }
}

/// Run all of it with clean data, in a folder of its own, and tell how many commands the device got.
pub(crate) fn run(folder: &Path) -> Result<()> {
    let folder = &folder.join("several");
    fs::create_dir(folder)?;
    let calls = &Calls::default();
    one_command(folder, calls).context("small files")?;
    in_parts(folder, calls).context("parts of two files by turns")?;
    twice(folder, calls).context("a file twice")?;
    among_refused(folder, calls).context("files among what is refused")?;
    over_the_limit(folder, calls).context("more than a step may move")?;
    written_by_others(folder, calls).context("a file that others have open")?;
    larger_than_a_section(folder, calls).context("more than a section has")?;
    println!("commands: {}", calls.commands.get());
    Ok(())
}

fn blocks_of(file: &File, block: u64, count: u64) -> Range<'_> {
    Range {
        file: file.as_fd(),
        start: block * BLOCK,
        len: count * BLOCK,
    }
}

fn statuses(report: &Report) -> Vec<Status> {
    report.ranges.iter().map(|range| range.status).collect()
}

/// Check that everything was moved, by this many steps and commands.
fn is_moved(report: &Report, steps: u32, commands: u64) -> Result<()> {
    ensure!(
        statuses(report)
            .iter()
            .all(|status| *status == Status::Done),
        "{report:?}"
    );
    ensure!(
        (report.steps, report.commands) == (steps, commands),
        "{} steps and {} commands instead of {steps} and {commands}: {report:?}",
        report.steps,
        report.commands
    );
    Ok(())
}

fn one_command(folder: &Path, calls: &Calls) -> Result<()> {
    let idle = Idle::make(folder, 1, FILES, BLOCKS)?;
    let report = calls.offload(&idle.whole(), Flags::empty())?;
    println!("  {FILES} files: {report:?}");
    is_moved(&report, 1, 1)?;
    ensure!(report.bytes_in_device == FILES * BLOCKS * BLOCK);
    ensure!(u64::from(report.locked_blocks) == FILES * BLOCKS);
    ensure!(report.locked_ns > 0);
    ensure!(
        report
            .ranges
            .iter()
            .all(|range| range.moved == BLOCKS * BLOCK)
    );
    idle.check_moved()?;
    let again = calls.offload(&idle.whole(), Flags::empty())?;
    ensure!(
        statuses(&again)
            .iter()
            .all(|status| *status == Status::Contiguous)
    );
    ensure!((again.steps, again.commands) == (0, 0), "{again:?}");
    Ok(())
}

fn in_parts(folder: &Path, calls: &Calls) -> Result<()> {
    const PARTS: u64 = 8;
    let idle = Idle::make(folder, 101, 2, PARTS * BLOCKS)?;
    let part = |file: usize, part: u64| blocks_of(&idle.readers[file], part * BLOCKS, BLOCKS);
    // The later half of a file before the earlier one.
    let ranges: Vec<Range<'_>> = (0..PARTS)
        .flat_map(|n| [part(0, (n + PARTS / 2) % PARTS), part(1, n)])
        .collect();
    is_moved(&calls.offload(&ranges, Flags::CHECKPOINT)?, 1, 1)?;
    for file in &idle.files {
        let fragments = file.fragments()?;
        ensure!(fragments == PARTS, "{fragments} fragments");
        file.check_on_device()?;
    }
    Ok(())
}

fn twice(folder: &Path, calls: &Calls) -> Result<()> {
    let idle = Idle::make(folder, 111, 4, 4 * BLOCKS)?;
    let again = File::open(&idle.files[0].path)?;
    let whole = idle.whole();
    // By two descriptors; then parts that overlap.
    let ranges = [
        whole[0],
        idle.files[0].whole_of(&again),
        blocks_of(&idle.readers[1], 0, 2 * BLOCKS),
        blocks_of(&idle.readers[1], BLOCKS, 3 * BLOCKS),
        whole[2],
        whole[3],
        whole[2],
    ];
    let report = calls.offload(&ranges, Flags::empty())?;
    let (done, same) = (Status::Done, Status::Contiguous);
    ensure!(
        statuses(&report) == [done, same, done, done, done, done, same],
        "{report:?}"
    );
    // A range that overlaps one before it begins a step.
    ensure!(report.steps == 3, "{report:?}");
    for (file, most) in idle.files.iter().zip([1, 2, 1, 1]) {
        let fragments = file.fragments()?;
        ensure!(fragments <= most, "{fragments} fragments");
        file.check_on_device()?;
    }
    Ok(())
}

fn among_refused(folder: &Path, calls: &Calls) -> Result<()> {
    let idle = Idle::make(folder, 121, 6, BLOCKS)?;
    let before = idle.files[2].fragments()?;
    let for_writing = File::options().write(true).open(&idle.files[2].path)?;
    let directory = File::open(folder)?;
    let foreign = Path::new("/tmp/foreign");
    fs::write(foreign, vec![1; BLOCK as usize])?;
    let foreign = File::open(foreign)?;
    let inline = folder.join("inline");
    fs::write(&inline, b"a few bytes")?;
    let inline = File::open(inline)?;
    let deleted = Known::fragmented(folder, [127, 128], BLOCKS, 3)?;
    let deleted = Idle::of(deleted.into_iter().collect())?;
    fs::remove_file(&deleted.files[0].path)?;
    let first = |file| Range {
        file,
        start: 0,
        len: BLOCK,
    };
    let whole = idle.whole();
    let past = Range {
        len: 2 * BLOCKS * BLOCK,
        ..whole[4]
    };
    let cases = [
        (first(directory.as_fd()), Status::NotRegular),
        (whole[0], Status::Done),
        (first(foreign.as_fd()), Status::OtherFs),
        (first(for_writing.as_fd()), Status::NotRegular),
        (whole[1], Status::Done),
        (first(inline.as_fd()), Status::Inline),
        (deleted.whole()[0], Status::Changed),
        (past, Status::Range),
        (whole[3], Status::Done),
        (first(whole[3].file), Status::Contiguous),
        (deleted.whole()[1], Status::Done),
        (whole[5], Status::Done),
    ];
    let ranges: Vec<Range<'_>> = cases.iter().map(|(range, _)| *range).collect();
    let report = calls.offload(&ranges, Flags::empty())?;
    for ((range, wanted), outcome) in cases.iter().zip(&report.ranges) {
        let moved = match wanted {
            Status::Done => BLOCKS * BLOCK,
            _ => 0,
        };
        ensure!(
            (outcome.status, outcome.moved) == (*wanted, moved),
            "{range:?}: {outcome:?} instead of {wanted:?}"
        );
    }
    // The range that overlaps another begins the second step.
    ensure!((report.steps, report.commands) == (2, 2), "{report:?}");
    for (number, file) in idle.files.iter().enumerate() {
        let wanted = match number {
            2 | 4 => before,
            _ => 1,
        };
        ensure!(file.fragments()? == wanted, "file {number}");
        file.check_on_device()?;
    }
    deleted.files[1].check_on_device()
}

/// Files that are dirty here and there.
pub(crate) fn dirty(folder: &Path) -> Result<()> {
    const DIRTY: u64 = 3;
    let mut files = Vec::new();
    for number in [131, 133, 135] {
        files.extend(Known::fragmented(folder, [number, number + 1], BLOCKS, 3)?);
    }
    for (number, file) in (0..).zip(&mut files) {
        file.drop_cache()?;
        if number % 2 == 0 {
            file.write(number, DIRTY - 1, 2)?;
            // A block that has no place yet.
            file.write(BLOCKS, 1, 2)?;
        }
    }
    let idle = Idle::of(files)?;
    let report = offload(&idle.readers[0], &idle.whole(), Flags::empty())?;
    println!("  dirty: {report:?}");
    ensure!(
        statuses(&report)
            .iter()
            .all(|status| *status == Status::Done)
    );
    ensure!(report.steps == 1, "{report:?}");
    ensure!(report.bytes_from_memory == 3 * DIRTY * BLOCK, "{report:?}");
    idle.check_moved()
}

fn over_the_limit(folder: &Path, calls: &Calls) -> Result<()> {
    let idle = Idle::make(folder, 141, 8, BLOCKS)?;
    let ranges = idle.whole();
    let too_many = calls.in_steps(&ranges, u64::from(MAX_STEP_BLOCKS) + 1);
    let errno = too_many.unwrap_err().downcast::<std::io::Error>()?;
    ensure!(Errno::from_io_error(&errno) == Some(Errno::TOOBIG));
    // Two files and a half.
    let report = calls.in_steps(&ranges, 2 * BLOCKS + BLOCKS / 2)?;
    is_moved(&report, 4, 4)?;
    ensure!(u64::from(report.locked_blocks) == 2 * BLOCKS, "{report:?}");
    idle.check_moved()?;

    // A range that is longer than a step takes several, and is still in one piece; the last of them
    // has room for the next file.
    let idle = Idle::make(folder, 149, 2, 4 * BLOCKS)?;
    let ranges = [idle.whole()[0], blocks_of(&idle.readers[1], 0, 2 * BLOCKS)];
    let report = calls.in_steps(&ranges, 3 * BLOCKS)?;
    is_moved(&report, 2, 2)?;
    ensure!(idle.files[0].fragments()? == 1);
    idle.files.iter().try_for_each(Known::check_on_device)
}

fn written_by_others(folder: &Path, calls: &Calls) -> Result<()> {
    let idle = Idle::make(folder, 151, 6, BLOCKS)?;
    let other = File::options().append(true).open(&idle.files[2].path)?;
    let report = calls.offload(&idle.whole(), Flags::empty())?;
    // Those before it, it alone, those after it.
    is_moved(&report, 3, 3)?;
    drop(other);
    idle.check_moved()?;

    // A descriptor of the call itself that is open for writing is not somebody else's.
    let idle = Idle::make(folder, 157, 2, BLOCKS)?;
    let own = File::options()
        .read(true)
        .write(true)
        .open(&idle.files[0].path)?;
    let ranges = [idle.files[0].whole_of(&own), idle.whole()[1]];
    is_moved(&calls.offload(&ranges, Flags::empty())?, 1, 1)?;
    idle.check_moved()
}

/// Files that together are larger than a section: none is cut where one ends.
fn larger_than_a_section(folder: &Path, calls: &Calls) -> Result<()> {
    const LARGE: u64 = 3000;
    let mut files = Vec::new();
    for number in [161, 163, 165] {
        files.extend(Known::fragmented(folder, [number, number + 1], LARGE, 500)?);
    }
    let idle = Idle::of(files)?;
    let report = calls.in_steps(&idle.whole(), u64::from(MAX_STEP_BLOCKS))?;
    println!("  {} MiB: {report:?}", (6 * LARGE * BLOCK) >> 20);
    ensure!(
        (3..=4).contains(&report.steps) && report.commands == u64::from(report.steps),
        "{report:?}"
    );
    idle.check_moved()?;
    idle.files
        .iter()
        .try_for_each(|file| Ok(fs::remove_file(&file.path)?))
}

/// A block of one of the files cannot be read: its place on the device is asked to be made
/// unreadable by a file of that name in `asked`, which is removed when it is.
pub(crate) fn unreadable(folder: &Path, asked: &Path) -> Result<()> {
    const BAD: usize = 3;
    let idle = Idle::make(folder, 1, 8, BLOCKS)?;
    let place = idle.files[BAD].place()?.context("it has no blocks")?;
    Marks(asked).set(&format!("{}", place - CONVENTIONAL))?;
    let before = idle.files[BAD].fragments()?;
    let report = offload(&idle.readers[0], &idle.whole(), Flags::empty())?;
    println!("  {report:?}");
    for (number, outcome) in report.ranges.iter().enumerate() {
        match number {
            BAD => ensure!(
                matches!(outcome.status, Status::Device(_)) && outcome.moved == 0,
                "{report:?}"
            ),
            _ => ensure!(outcome.status == Status::Done, "{report:?}"),
        }
    }
    // The shared one is not counted, as it failed.
    ensure!(report.commands == 7, "{report:?}");
    for (number, file) in idle.files.iter().enumerate() {
        let wanted = match number {
            BAD => before,
            _ => 1,
        };
        ensure!(file.fragments()? == wanted, "file {number}");
    }
    // It can be read again.
    Marks(asked).set("clear")?;
    idle.files.iter().try_for_each(Known::check_on_device)
}

/// Move whole files by one call, in small steps.
pub(crate) fn relocate(paths: &[&str]) -> Result<()> {
    const STEPS: Steps = Steps {
        blocks: 400,
        stall_ns: 0,
        log: 0,
    };
    let files: Vec<(File, u64)> = paths
        .iter()
        .map(|path| {
            let file = File::open(path).with_context(|| (*path).to_owned())?;
            let len = file.metadata()?.len();
            Ok((file, len))
        })
        .collect::<Result<_>>()?;
    let ranges: Vec<Range<'_>> = files
        .iter()
        .map(|(file, len)| Range {
            file: file.as_fd(),
            start: 0,
            len: len.next_multiple_of(BLOCK),
        })
        .collect();
    let (first, _) = files.first().context("no file")?;
    let report = offload_in_steps(first, &ranges, Flags::empty(), STEPS)?;
    println!("{report:?}");
    Ok(())
}

/// A process is killed in the middle of a call for several files.
pub(crate) fn killed(folder: &Path) -> Result<()> {
    const ATTEMPTS: u64 = 8;
    const COUNT: u64 = 40;
    const LARGE: u64 = 200;
    for attempt in 0..ATTEMPTS {
        let folder = &folder.join(format!("killed{attempt}"));
        fs::create_dir(folder)?;
        let idle = Idle::make(folder, 1, COUNT, LARGE)?;
        let place = idle.files[0].place()?;
        let mut child = Command::new(std::env::current_exe()?)
            .arg("move-together")
            .args(idle.files.iter().map(|file| &file.path))
            .stdout(Stdio::null())
            .spawn()?;
        while attempt > 0 && idle.files[0].place()? == place && child.try_wait()?.is_none() {
            thread::sleep(Duration::from_millis(1));
        }
        child.kill()?;
        let killed = child.wait()?.code().is_none();
        let mut moved = 0;
        for file in &idle.files {
            moved += u64::from(file.fragments()? == 1);
            file.check_on_device()?;
        }
        println!("  attempt {attempt}: {moved} of {COUNT} files were moved");
        let report = offload(&idle.readers[0], &idle.whole(), Flags::empty())?;
        ensure!(
            report
                .ranges
                .iter()
                .all(|range| matches!(range.status, Status::Done | Status::Contiguous))
        );
        idle.check_moved()?;
        fs::remove_dir_all(folder)?;
        if killed && moved > 0 && moved < COUNT {
            return Ok(());
        }
    }
    anyhow::bail!("no call ended in the middle")
}
