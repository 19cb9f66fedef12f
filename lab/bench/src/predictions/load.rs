//! Readers that each wait for their read: ranges of one file, drawn evenly.

use std::{
    fs::{File, OpenOptions},
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use clap::Args;
use rustix::fs::{Advice, OFlags, fadvise};
use scratch_fs::AlignedBuffer;
use workloads::Numbers;

use super::READ;

/// Only read; a process of its own, so that it can be traced.
#[derive(Args, Clone)]
pub struct LoadArgs {
    file: PathBuf,
    /// Readers at the same time
    #[arg(long)]
    depth: u32,
    /// Through the page cache; what was read is dropped from it again
    #[arg(long)]
    buffered: bool,
    #[arg(long)]
    milliseconds: u64,
    #[arg(long)]
    seed: u64,
}

/// Read, and print the mean time of a read in nanoseconds.
pub(in super::super) fn load(args: &LoadArgs) -> Result<()> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(if args.buffered {
            0
        } else {
            OFlags::DIRECT.bits() as i32
        })
        .open(&args.file)
        .with_context(|| format!("cannot open {}", args.file.display()))?;
    let ranges = file.metadata()?.len() / READ.get();
    let until = Instant::now() + Duration::from_millis(args.milliseconds);
    let (mut reads, mut time) = (0_u64, Duration::ZERO);
    let done: Vec<Result<(u64, Duration)>> = std::thread::scope(|scope| {
        let readers: Vec<_> = (0..args.depth)
            .map(|reader| {
                let seed = args.seed.wrapping_mul(1000) + u64::from(reader);
                let (file, buffered) = (&file, args.buffered);
                scope.spawn(move || reads_until(file, buffered, ranges, seed, until))
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
    buffered: bool,
    ranges: u64,
    seed: u64,
    until: Instant,
) -> Result<(u64, Duration)> {
    let mut numbers = Numbers::new(seed);
    let mut buffer = AlignedBuffer::new(READ.get() as usize);
    let (mut reads, mut time) = (0, Duration::ZERO);
    while Instant::now() < until {
        let offset = numbers.below(ranges) * READ.get();
        let started = Instant::now();
        file.read_exact_at(buffer.slice(), offset)?;
        time += started.elapsed();
        reads += 1;
        if buffered {
            let len = std::num::NonZeroU64::new(READ.get());
            fadvise(file, offset, len, Advice::DontNeed)?;
        }
    }
    Ok((reads, time))
}
