//! Plan (`whole`) and run directories, and print times, bytes and peak memory:
//! `run_bench [JOBS] PATH…`. The cost of the executor, without the command line.

mod common;

use std::time::Instant;

use common::{arguments, peak};
use indef_core::plan::{PlanOptions, Policy};
use indef_engine::run::{RunOptions, run_beneath};
use indef_pipeline::{Cancel, Error, plan::Planner};

fn main() -> Result<(), Error> {
    let (jobs, paths) = arguments();
    let planner = Planner {
        options: PlanOptions {
            policy: Policy::Whole,
            ..PlanOptions::default()
        },
        ..Planner::new(paths)
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
