//! Applications that are slower while they are counted are told whole, by the calls that Linux knows of them.

use std::{
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use indef_trace::collect::{Layer, Sampling, TraceOptions};
use workloads::Numbers;

use crate::{
    actor::Actor,
    harness::{BLOCK, MIB, Seen, Watch, options, plain_file, scratch},
};

/// Reads of the page cache without a pause, until it is over: their number. Each process makes so many, before another one
/// takes its place.
fn reads(file: &Path, each: u64, ended: &AtomicBool) -> u64 {
    let mut numbers = Numbers::new(4);
    let offsets: String = (0..20_000)
        .map(|_| format!(" {}", numbers.below(1024_u64) * BLOCK))
        .collect();
    let mut made = 0;
    while !ended.load(Ordering::Relaxed) {
        let mut actor = Actor::new();
        actor.act(&format!("open f r {}", file.display()));
        let mut own = 0;
        while own < each && !ended.load(Ordering::Relaxed) {
            own += actor.act(&format!("preads f {BLOCK}{offsets}")) / BLOCK;
        }
        made += own;
    }
    made
}

/// So many seconds of them, traced within a bound.
fn traced(file: &Path, options: &TraceOptions, each: u64, seconds: u64) -> (u64, Seen) {
    let mut watch = Watch::start(options);
    let ended = AtomicBool::new(false);
    let made = thread::scope(|scope| {
        let reader = scope.spawn(|| reads(file, each, &ended));
        for step in 0..20 * seconds {
            thread::sleep(Duration::from_millis(50));
            watch.keep_up();
            if step % 20 == 19 {
                watch.drain();
            }
        }
        ended.store(true, Ordering::Relaxed);
        reader.join().expect("no panic")
    });
    (made, watch.finish())
}

#[test]
fn loop_cached_reads_are_told_whole() {
    let Some(fs) = scratch("ext4") else { return };
    let file = fs.path().join("file");
    plain_file(&file, 4 * MIB);
    let bounded = TraceOptions {
        sampling: Sampling::at_most_percent(1.0),
        ..options(Layer::Syscall, fs.path())
    };
    for (each, seconds) in [(u64::MAX, 12), (4_000_000, 15)] {
        let (made, seen) = traced(&file, &bounded, each, seconds);
        let told = seen.reads_of(&file);
        let off = (told as f64 - made as f64) / made as f64;
        let error = seen.sampled.relative_error(told);
        println!(
            "{} reads a second, one in {:.0}: {off:+.3} off, {error:.3} stated, {} lost",
            made / seconds,
            seen.sampled.one_in(),
            seen.lost
        );
        assert!(seen.sampled.one_in() > 10.0, "the load is no load");
        // By time alone half and more is missing. On a machine full of others few windows meet the reader at work: then
        // this is all that can be asked; a simulated load is told within 5 % (`hand::tests`).
        assert!(off.abs() <= 0.4, "{told} of {made}");
        assert!(off.abs() <= 0.05 + 2.0 * error, "{told} of {made}, {error}");
    }
}
