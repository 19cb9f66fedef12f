//! Scan directories as often as wanted and print times, counts and peak memory:
//! `scan_bench [RUNS] PATH…`. For comparing with `find PATH -type f -print0 | xargs -0 filefrag`.

mod common;

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Instant,
};

use common::{arguments, peak};
use indef_engine::{
    Cancel,
    collect::{CollectOptions, Seen, collect},
};

fn main() {
    let (runs, paths) = arguments();
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
