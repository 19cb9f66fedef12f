//! Move ranges of one file with one engine and the copier, without the executor around them, and
//! say how long it took. For measuring an engine alone.
//!
//! ```text
//! cargo run --release -p indef-engine --example move_file -- ENGINE FILE [STEP [RANGE EVERY]]
//! ```
//!
//! With `RANGE EVERY`, the first `RANGE` bytes of every `EVERY` are moved, else the whole file.

#![forbid(unsafe_code)]

use std::{error::Error, fs::File, path::PathBuf, time::Instant};

use indef_engine::Copier;
use indef_fs::{
    EngineKind, EngineOptions, Step, StepLimit, Target, count_ranges, detect, relocator,
};
use units::{Bytes, FileRange, Nanos};

fn main() -> Result<(), Box<dyn Error>> {
    let usage = "usage: move_file ENGINE FILE [STEP [RANGE EVERY]]";
    let mut arguments = std::env::args_os().skip(1);
    let mut text = || arguments.next().map(|argument| argument.into_string());
    let engine: EngineKind = text().ok_or(usage)?.map_err(|_| usage)?.parse()?;
    let path = PathBuf::from(text().ok_or(usage)?.map_err(|_| usage)?);
    let mut sizes = Vec::new();
    while let Some(size) = text() {
        sizes.push(size.map_err(|_| usage)?.parse::<Bytes>()?);
    }
    let step = sizes.first().copied().unwrap_or(Bytes::mib(8));
    let size = File::open(&path)?.metadata()?.len();
    let ranges: Vec<FileRange> = match sizes.get(1..) {
        Some([range, every]) => (0..size)
            .step_by(every.get() as usize)
            .map(|start| FileRange::new(start, range.get().min(size - start)))
            .collect(),
        _ => vec![FileRange::new(0, size)],
    };

    let began = Instant::now();
    let fs = detect(File::open(&path)?, &path)?;
    let engine = relocator(engine, &fs, &EngineOptions::default())?;
    let target = Target::open(&path)?;
    let copier = Copier::new(64);
    let ranges = count_ranges(&target, &ranges)?;
    let mut relocation = engine.begin(&target, &ranges, &copier)?;
    let prepared = began.elapsed();
    let (mut relocated, mut written, mut longest, mut steps) = (0, 0, Nanos(0), 0);
    loop {
        let step = relocation.step(StepLimit { bytes: step })?;
        let (Step::Working(moved) | Step::Done(moved)) = step;
        relocated += moved.relocated.get();
        written += moved.host_written.get();
        longest = longest.max(moved.locked);
        steps += 1;
        if matches!(step, Step::Done(_)) {
            break;
        }
    }
    drop(relocation);
    println!(
        "{{\"duration_ns\":{},\"prepare_ns\":{},\"steps\":{steps},\"longest_locked_ns\":{},\
         \"bytes_relocated\":{relocated},\"bytes_host_written\":{written}}}",
        began.elapsed().as_nanos(),
        prepared.as_nanos(),
        longest.get(),
    );
    Ok(())
}
