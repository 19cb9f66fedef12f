//! Readers that each wait for their read: ranges of one file, drawn evenly.

use std::{
    ffi::OsString,
    fs::{self, File, OpenOptions},
    num::NonZeroU64,
    ops::Range,
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};
use rustix::fs::{Advice, OFlags, fadvise};
use scratch_fs::AlignedBuffer;
use serde::Serialize;
use stage::Stage;
use units::Bytes;
use workloads::Numbers;

use crate::{Common, measure};

/// Bytes of one read.
pub(super) const READ: Bytes = Bytes::kib(128);

/// How readers read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(in super::super) enum Mode {
    Direct,
    /// Through the page cache: the kernel sees neighbours there, takes reads for a stream, and reads ahead.
    Buffered,
    /// With `POSIX_FADV_RANDOM`, as databases that read through the page cache do: nothing is read ahead.
    Random,
}

impl Mode {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Buffered => "buffered",
            Self::Random => "random",
        }
    }
}

/// Only read; a process of its own, so that it can be traced.
#[derive(Args, Clone)]
pub struct LoadArgs {
    file: PathBuf,
    /// Readers at the same time
    #[arg(long)]
    depth: u32,
    /// How; what was read through the page cache, and what was read ahead, is dropped from it again
    #[arg(long)]
    mode: Mode,
    #[arg(long)]
    milliseconds: u64,
    #[arg(long)]
    seed: u64,
}

/// Readers of a file on a stage: [`load`] in a process of its own.
pub(in super::super) struct Readers<'a> {
    pub(in super::super) common: &'a Common,
    pub(in super::super) file: &'a Path,
    /// At the same time.
    pub(in super::super) depth: u32,
    /// How they read.
    pub(in super::super) mode: Mode,
    /// Time what `indef trace` times, by this program: from the first request of a read queued to the last one
    /// done, not all of the call.
    pub(in super::super) by_device: Option<&'a Path>,
}

impl Readers<'_> {
    /// Their command line.
    pub(super) fn command(&self, seconds: f64, seed: u64) -> Result<Vec<OsString>> {
        let mut load: Vec<OsString> = vec![self.common.own_program()?.into()];
        load.extend(["bench", "predictions-load"].map(OsString::from));
        load.push(self.file.into());
        let milliseconds = (seconds * 1000.0) as u64;
        load.extend(["--depth".into(), self.depth.to_string().into()]);
        load.extend(["--milliseconds".into(), milliseconds.to_string().into()]);
        load.extend(["--seed".into(), seed.to_string().into()]);
        load.extend(["--mode", self.mode.as_str()].map(OsString::from));
        Ok(load)
    }

    /// The mean time of a read in nanoseconds, in each run; each begins with cold caches.
    pub(in super::super) fn timed(
        &self,
        stage: &Stage,
        seconds: f64,
        runs: usize,
    ) -> Result<Vec<f64>> {
        (0..runs as u64)
            .map(|run| self.once(stage, seconds, run))
            .collect()
    }

    /// The mean time of a read, divided by that of the same readers of another file, in each run: a device that
    /// becomes slower or faster meanwhile does so for both. They take turns.
    pub(super) fn timed_beside(
        &self,
        other: &Path,
        stage: &Stage,
        seconds: f64,
        runs: usize,
    ) -> Result<Vec<f64>> {
        let other = Readers {
            file: other,
            ..*self
        };
        (0..runs as u64)
            .map(|run| {
                if run % 2 == 0 {
                    let own = self.once(stage, seconds, run)?;
                    Ok(own / other.once(stage, seconds, run)?)
                } else {
                    let others = other.once(stage, seconds, run)?;
                    Ok(self.once(stage, seconds, run)? / others)
                }
            })
            .collect()
    }

    /// One run, from cold caches.
    fn once(&self, stage: &Stage, seconds: f64, seed: u64) -> Result<f64> {
        stage.drop_caches()?;
        let command = self.command(seconds, seed)?;
        let Some(indef) = self.by_device else {
            let said = measure::text(Command::new(&command[0]).args(&command[1..]))?;
            let said = said.trim();
            return said.parse().with_context(|| format!("no time: {said}"));
        };
        let folder = tempfile::tempdir()?;
        let mut trace = Command::new(indef);
        trace.args(["trace", "--json", "--layer", "fs", "-o"]);
        trace.arg(folder.path().join("profile"));
        trace.args(["--max-overhead", "off", "--"]).args(command);
        let said = measure::text(trace.env("STATE_DIRECTORY", folder.path()))?;
        // The readers say something first.
        let document = said.find('{').map_or("", |at| &said[at..]);
        let document: serde_json::Value = serde_json::from_str(document)?;
        let total = |name: &str| document["totals"][name].as_f64().filter(|it| *it > 0.0);
        let mean = total("time_ns").zip(total("timed"));
        let (time, timed) = mean.context("no read was timed by the trace")?;
        Ok(time / timed)
    }
}

/// Read, and print the mean time of a read in nanoseconds.
pub(in super::super) fn load(args: &LoadArgs) -> Result<()> {
    // Each reader has a file of its own, as its read-ahead would be that of all, and a part of its own: nobody drops from
    // the cache what another one is reading, who would then read on with a window across the range's end.
    let open = || {
        let flags = match args.mode {
            Mode::Direct => OFlags::DIRECT,
            Mode::Buffered | Mode::Random => OFlags::empty(),
        };
        let file = (OpenOptions::new()
            .read(true)
            .custom_flags(flags.bits() as i32))
        .open(&args.file)
        .with_context(|| format!("cannot open {}", args.file.display()))?;
        if args.mode == Mode::Random {
            fadvise(&file, 0, None, Advice::Random)?;
        }
        Ok(file)
    };
    let readers = (0..args.depth)
        .map(|_| open())
        .collect::<Result<Vec<File>>>()?;
    let ranges = fs::metadata(&args.file)?.len() / READ.get();
    ensure!(ranges >= u64::from(args.depth), "fewer ranges than readers");
    let depth = u64::from(args.depth);
    let until = Instant::now() + Duration::from_millis(args.milliseconds);
    let (mut reads, mut time) = (0_u64, Duration::ZERO);
    let done: Vec<Result<(u64, Duration)>> = std::thread::scope(|scope| {
        let readers: Vec<_> = (readers.iter().zip(0..))
            .map(|(file, reader)| {
                let seed = args.seed.wrapping_mul(1000) + reader;
                let (first, end) = (ranges * reader / depth, ranges * (reader + 1) / depth);
                scope.spawn(move || reads_until(file, args.mode, first..end, seed, until))
            })
            .collect();
        readers
            .into_iter()
            .map(|reader| reader.join().unwrap_or_else(|_| Ok((0, Duration::ZERO))))
            .collect()
    });
    for reader in done {
        let (of_reader, its_time) = reader?;
        reads += of_reader;
        time += its_time;
    }
    ensure!(reads > 0, "nothing was read");
    println!("{}", time.as_nanos() as f64 / reads as f64);
    Ok(())
}

fn reads_until(
    file: &File,
    mode: Mode,
    part: Range<u64>,
    seed: u64,
    until: Instant,
) -> Result<(u64, Duration)> {
    let mut numbers = Numbers::new(seed);
    let mut buffer = AlignedBuffer::new(READ.get() as usize);
    let ranges = (part.end - part.start) as usize;
    let dropped = NonZeroU64::new(READ.get() * (part.end - part.start));
    let (mut reads, mut time) = (0, Duration::ZERO);
    while Instant::now() < until {
        let range = part.start + numbers.below(ranges) as u64;
        let offset = range * READ.get();
        let started = Instant::now();
        file.read_exact_at(buffer.slice(), offset)?;
        time += started.elapsed();
        reads += 1;
        if mode != Mode::Direct {
            // All of the part, with what was read ahead: of a file that is much larger than the memory the neighbours
            // of a read are not in the cache, and the kernel, which looks for them, does not take it for one of a stream.
            fadvise(file, part.start * READ.get(), dropped, Advice::DontNeed)?;
        }
    }
    Ok((reads, time))
}
