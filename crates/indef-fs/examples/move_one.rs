//! Give files new, contiguous blocks, one after the other, on one thread: what an engine can do
//! without the executor around it. Prints one JSON object a file and one for all.
//!
//! ```text
//! cargo run --release -p indef-fs --example move_one -- [--step BYTES] FILE…
//! ```

#![forbid(unsafe_code)]

use std::{
    env,
    fs::File,
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Instant,
};

use indef_fs::{
    EngineOptions, Mapper, Moved, RangeCopier, Refusal, Relocator, Step, StepLimit, Target,
    count_ranges, detect, map, relocator,
};
use units::{Bytes, FileRange, Nanos};

/// Copies in the simplest way; the executor's keeps many requests in flight.
struct PlainCopier;

impl RangeCopier for PlainCopier {
    fn copy(&self, from: &File, to: &File, ranges: &[FileRange]) -> io::Result<()> {
        let mut buffer = vec![0; 1 << 20];
        for range in ranges {
            let mut at = range.start;
            while at < range.end() {
                let len = Bytes(1 << 20).min(range.end() - at).get() as usize;
                let read = from.read_at(&mut buffer[..len], at.get())?;
                if read == 0 {
                    break;
                }
                to.write_all_at(&buffer[..read], at.get())?;
                at = at + Bytes(read as u64);
            }
        }
        Ok(())
    }
}

fn main() -> ExitCode {
    let mut step = Bytes::mib(1);
    let mut paths = Vec::new();
    let mut arguments = env::args_os().skip(1);
    while let Some(argument) = arguments.next() {
        if argument == "--step" {
            let given = arguments.next().and_then(|text| text.into_string().ok());
            match given.and_then(|text| text.parse().ok()) {
                Some(bytes) => step = bytes,
                None => {
                    eprintln!("--step needs a size");
                    return ExitCode::from(2);
                }
            }
        } else {
            paths.push(PathBuf::from(argument));
        }
    }
    match run(&paths, step) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run(paths: &[PathBuf], step: Bytes) -> Result<(), Refusal> {
    let began = Instant::now();
    let mut engine: Option<Box<dyn Relocator>> = None;
    let mut moved_files = 0;
    for path in paths {
        let engine = match &mut engine {
            Some(engine) => engine,
            empty => empty.insert(engine_for(path)?),
        };
        match move_file(engine.as_ref(), path, step) {
            Ok(line) => {
                moved_files += 1;
                println!("{line}");
            }
            Err(refusal) => eprintln!("{}: {refusal}", path.display()),
        }
    }
    if let Some(engine) = engine {
        for error in engine.settle() {
            eprintln!("{error}");
        }
    }
    println!(
        r#"{{"files":{},"moved":{moved_files},"duration_ns":{}}}"#,
        paths.len(),
        began.elapsed().as_nanos()
    );
    Ok(())
}

/// All files are taken to be on the file system of the first.
fn engine_for(path: &Path) -> Result<Box<dyn Relocator>, Refusal> {
    let fs = detect(Target::open(path)?.file, path)?;
    let mut refusal = Refusal::Skip(indef_core::SkipReason::NoEngine);
    for kind in fs.engines() {
        match relocator(kind, &fs, &EngineOptions::default()) {
            Ok(engine) => return Ok(engine),
            Err(refused) => refusal = refused,
        }
    }
    Err(refusal)
}

fn move_file(engine: &dyn Relocator, path: &Path, step: Bytes) -> Result<String, Refusal> {
    let began = Instant::now();
    let target = Target::open(path)?;
    engine.admit(&target)?;
    let whole = FileRange::new(0, target.size.get()).align_outward(target.block_size);
    let ranges = count_ranges(&target, &[whole])?;
    let mut total = Moved::default();
    let mut relocation = engine.begin(&target, &ranges, &PlainCopier)?;
    loop {
        let (done, moved) = match relocation.step(StepLimit { bytes: step })? {
            Step::Working(moved) => (false, moved),
            Step::Done(moved) => (true, moved),
        };
        total.relocated += moved.relocated;
        total.host_read += moved.host_read;
        total.host_written += moved.host_written;
        total.locked = Nanos(total.locked.get().max(moved.locked.get()));
        if done {
            break;
        }
    }
    drop(relocation);
    let duration = began.elapsed().as_nanos();
    let mut mapper = Mapper::default();
    let after = map(&target.file, path, whole, false, &mut mapper)?;
    Ok(format!(
        r#"{{"path":{path:?},"engine":"{}","extents_after":{},"bytes_relocated":{},"bytes_host_read":{},"bytes_host_written":{},"locked_ns":{},"duration_ns":{duration}}}"#,
        engine.name(),
        after.fragments(),
        total.relocated.get(),
        total.host_read.get(),
        total.host_written.get(),
        total.locked.get(),
    ))
}
