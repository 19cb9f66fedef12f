//! Scan directories as often as wanted and print times, counts and peak memory:
//! `scan_bench [RUNS] PATH…`. For comparing with `find PATH -type f -print0 | xargs -0 filefrag`.

use std::{
    path::PathBuf,
    sync::atomic::{AtomicU64, Ordering},
    time::Instant,
};

use indef_engine::{
    Cancel,
    collect::{CollectOptions, Seen, collect},
};

fn main() {
    let mut arguments = std::env::args_os().skip(1).peekable();
    let runs = arguments
        .peek()
        .and_then(|first| first.to_str()?.parse::<usize>().ok());
    if runs.is_some() {
        arguments.next();
    }
    let paths: Vec<PathBuf> = arguments.map(PathBuf::from).collect();
    let mut times = Vec::new();
    for _ in 0..runs.unwrap_or(5) {
        let (fragments, mapped) = (AtomicU64::new(0), AtomicU64::new(0));
        let begin = Instant::now();
        let summary = collect(
            &paths,
            &CollectOptions::default(),
            &Cancel::new(),
            &|seen| {
                if let Seen::File(found) = seen {
                    mapped.fetch_add(u64::from(found.mapped), Ordering::Relaxed);
                    let count = found.result.map_or(0, |layout| layout.fragments());
                    fragments.fetch_add(count, Ordering::Relaxed);
                }
            },
        );
        let time = begin.elapsed();
        times.push(time);
        println!(
            "{time:?} {} mapped, {} fragments, {summary:?}",
            mapped.into_inner(),
            fragments.into_inner()
        );
    }
    times.sort();
    println!(
        "median {:?}, peak memory {}",
        times[times.len() / 2],
        peak()
    );
}

fn peak() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .map_or_else(|| "unknown".to_owned(), |peak| peak.trim().to_owned())
}
