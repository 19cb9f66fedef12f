//! Collect, plan (`whole`) and run on directories, and print times, bytes and peak memory:
//! `run_bench [JOBS] PATH…`. What the executor costs, without the command line.

use std::{path::PathBuf, sync::Mutex, time::Instant};

use indef_core::plan::{FileFacts, FilePlan, PlanOptions, Policy, plan_file};
use indef_engine::{
    Cancel,
    collect::{CollectOptions, Seen, collect},
    run::{RunOptions, run},
};

fn main() {
    let mut arguments = std::env::args_os().skip(1).peekable();
    let jobs = arguments
        .peek()
        .and_then(|first| first.to_str()?.parse::<usize>().ok());
    if jobs.is_some() {
        arguments.next();
    }
    let paths: Vec<PathBuf> = arguments.map(PathBuf::from).collect();
    let begin = Instant::now();
    let options = PlanOptions {
        policy: Policy::Whole,
        ..PlanOptions::default()
    };
    let plans = Mutex::new(Vec::new());
    collect(
        &paths,
        &CollectOptions::default(),
        &Cancel::new(),
        &|seen| {
            let Seen::File(found) = seen else { return };
            let Ok(layout) = found.result else { return };
            let facts = FileFacts {
                size: found.size,
                block_size: found.block_size,
                layout: &layout,
                accesses: None,
            };
            let plan = FilePlan {
                path: found.path,
                root_len: Some(found.root_len),
                dev: found.id.dev,
                inode: found.id.inode,
                born: found.born,
                size: found.size,
                block_size: found.block_size,
                fs: "file system".into(),
                engine: None,
                extents_before: layout.fragments(),
                skip: None,
                chunks: plan_file(&options, &facts),
            };
            if plan.migrating().next().is_some() {
                plans.lock().unwrap().push(plan);
            }
        },
    );
    let plans = plans.into_inner().unwrap();
    println!("planned {} files in {:?}", plans.len(), begin.elapsed());
    let options = RunOptions {
        jobs: jobs.unwrap_or(0),
        ..RunOptions::default()
    };
    let result = run(plans, &options, &Cancel::new(), &());
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
}

fn peak() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .map_or_else(|| "unknown".to_owned(), |peak| peak.trim().to_owned())
}
