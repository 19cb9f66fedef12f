//! Plan (`whole`) and run directories, and print times, bytes and peak memory:
//! `run_bench [JOBS] PATH…`. The cost of the executor, without the command line.

use std::{path::PathBuf, time::Instant};

use indef_core::plan::{PlanOptions, Policy};
use indef_engine::run::{RunOptions, run_beneath};
use indef_pipeline::{Cancel, Error, plan::Planner};

fn main() -> Result<(), Error> {
    let mut arguments = std::env::args_os().skip(1).peekable();
    let jobs = arguments
        .peek()
        .and_then(|first| first.to_str()?.parse::<usize>().ok());
    if jobs.is_some() {
        arguments.next();
    }
    let planner = Planner {
        options: PlanOptions {
            policy: Policy::Whole,
            ..PlanOptions::default()
        },
        ..Planner::new(arguments.map(PathBuf::from))
    };
    let cancel = Cancel::new();
    let begin = Instant::now();
    let planned = planner.plan(&cancel, &())?;
    let files = planned.files.len();
    println!("planned {files} files in {:?}", begin.elapsed());
    let options = RunOptions {
        jobs: jobs.unwrap_or(0),
        ..RunOptions::default()
    };
    let result = run_beneath(&planned.roots, planned.files, &options, &cancel, &());
    println!(
        "{:?} longest lock {} {:?}, peak memory {}",
        result.duration,
        result.longest_lock,
        result.totals,
        peak()
    );
    for file in result
        .files
        .iter()
        .filter(|file| file.reason.is_some())
        .take(5)
    {
        println!("{} {:?}", file.path.display(), file.reason);
    }
    Ok(())
}

fn peak() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .map_or_else(|| "unknown".to_owned(), |peak| peak.trim().to_owned())
}
