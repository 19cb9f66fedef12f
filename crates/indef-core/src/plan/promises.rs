//! What is promised of the ranges that are chosen, beside what comes of them: reads of which the truth is known.
//!
//! Of many ranges those with the highest estimate are taken, so whatever errs upwards is taken first. An estimate that is right on
//! average of all ranges is too high for those.

use units::{Bytes, Nanos};
use workloads::Numbers;

use super::*;
use crate::{
    access::{AccessRange, Observed},
    calibrate::{CannotCalibrate, FEWEST_RANGES, Sample, calibrate, most_of_a_request_ns},
    layout::{
        Geometry, Layout,
        tests::{blocks, layout},
    },
};

/// The length of each range in blocks: 128 KiB.
const BLOCKS: u64 = 32;
const FILES: u64 = 400;
const SEEDS: u64 = 8;

/// A drive, and reads of it; times in nanoseconds.
#[derive(Clone, Copy, Debug)]
struct World {
    /// A read in one piece, on average.
    base: f64,
    /// Each further piece.
    cost: f64,
    /// By how much the ranges differ whatever their pieces, for reasons that a move does not take away.
    differ: f64,
    /// By which part the cost of a piece differs from range to range.
    uneven: f64,
    /// By how much each read differs from the next.
    noise: f64,
    /// Days of reads that are seen.
    days: f64,
}

const WORLD: World = World {
    base: 200_000.0,
    cost: 0.0,
    differ: 0.0,
    uneven: 0.0,
    noise: 0.0,
    days: 1.0,
};

/// Sums over the seeds, in seconds within the time of payback.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    promised: f64,
    came: f64,
    all: f64,
    moved: u64,
}

/// About normal, of deviation 1.
fn normal(numbers: &mut Numbers) -> f64 {
    (0..12).map(|_| numbers.fraction()).sum::<f64>() - 6.0
}

/// How many come in so many days.
fn drawn(numbers: &mut Numbers, rate: f64, days: f64) -> u64 {
    let (mut at, mut count) = (0.0, 0);
    loop {
        at -= (1.0 - numbers.fraction()).ln() / rate;
        if at > days {
            return count;
        }
        count += 1;
    }
}

/// So many pieces, none next to the other.
fn in_pieces(file: u64, pieces: u64) -> Layout {
    let start = |piece: u64| piece * BLOCKS / pieces;
    let place = |piece: u64| 100_000 + file * 4096 + piece * 64;
    let extents: Vec<_> = (0..pieces)
        .map(|piece| (start(piece), place(piece), start(piece + 1) - start(piece)))
        .collect();
    layout(&extents)
}

/// A file of one range.
struct Read {
    layout: Layout,
    access: AccessRange,
    rate: f64,
    time: f64,
    gain: f64,
}

fn read(world: &World, file: u64, numbers: &mut Numbers) -> Read {
    let pieces = match numbers.percent(30) {
        true => 1,
        false => u64::from(numbers.between(2, 17)),
    };
    let further = (pieces - 1) as f64;
    let cost = world.cost * (1.0 + world.uneven * (2.0 * numbers.fraction() - 1.0));
    let gain = cost * further;
    let time = world.base + world.differ * normal(numbers) + gain;
    let rate = 0.5 / (0.02 + numbers.fraction());
    let reads = drawn(numbers, rate, world.days);
    let seen = (0..reads).map(|_| (time + world.noise * normal(numbers)).max(1000.0));
    Read {
        layout: in_pieces(file, pieces),
        access: AccessRange {
            range: blocks(0, BLOCKS),
            reads,
            writes: 0,
            observed: Observed {
                requests: pieces * reads,
                timed: reads,
                time: Nanos(seen.sum::<f64>() as u64),
                ahead: Some(0),
            },
        },
        rate,
        time,
        gain,
    }
}

/// What `indef watch` would do on the first day that it looks.
fn decided(world: &World, seed: u64, sums: &mut Sums) -> Result<(), CannotCalibrate> {
    let mut numbers = Numbers::new(seed);
    let reads: Vec<Read> = (0..FILES)
        .map(|file| read(world, file, &mut numbers))
        .collect();
    let mut options = PlanOptions {
        policy: Policy::Indef,
        truncate_pct: 0.0,
        ..PlanOptions::default()
    };
    let sample = |it: &Read| {
        Sample::of(
            &it.layout,
            &it.access,
            &Geometry::Unknown,
            options.max_request,
        )
    };
    let samples: Vec<Sample> = reads.iter().filter_map(sample).collect();
    let request = most_of_a_request_ns(&samples);
    let calibration = calibrate(samples);
    let mut terms = Terms::default();
    let within = terms.within_days;
    sums.all += reads.iter().map(|it| it.rate * it.time).sum::<f64>() * within / 1e9;
    let by = match calibration {
        Ok(_) => SavedBy::Time,
        Err(CannotCalibrate::TooFew { .. }) => SavedBy::Requests,
        Err(why) => return Err(why),
    };
    options.weigh_by(&calibration);
    if let Some(ns) = request {
        terms = terms.with_request_seconds(ns / 1e9);
    }
    let mut counts = Counts::default();
    let mut plans: Vec<FilePlan> = (0u64..)
        .zip(&reads)
        .map(|it| planned(&options, it))
        .collect();
    plans.iter().for_each(|plan| counts.add(plan));
    let beliefs = Beliefs {
        credibility: Credibility::of(&counts, 1.0),
        ..Beliefs::TRUSTING
    };
    let days = world.days.max(1.0 / 24.0);
    let paying = keep_paying(&mut plans, &terms, days, by, &beliefs);
    let worth = |by| terms.price(Bytes::gib(1), by);
    sums.promised += paying.saved * worth(SavedBy::Time) / worth(by);
    for (plan, it) in plans.iter().zip(&reads) {
        if plan.migrating().next().is_some() {
            sums.moved += 1;
            sums.came += it.rate * it.gain * within / 1e9;
        }
    }
    Ok(())
}

fn planned(options: &PlanOptions, (inode, it): (u64, &Read)) -> FilePlan {
    let size = Bytes(BLOCKS * 4096);
    let accesses = match it.access.reads {
        0 => &[][..],
        _ => std::slice::from_ref(&it.access),
    };
    let facts = FileFacts {
        size,
        block_size: Bytes::kib(4),
        layout: &it.layout,
        accesses: Some(accesses),
    };
    FilePlan {
        path: "/f".into(),
        root_len: Some(0),
        dev: 1,
        inode,
        born: None,
        size,
        block_size: Bytes::kib(4),
        fs: "ext4".into(),
        engine: None,
        extents_before: it.layout.fragments(),
        named: None,
        skip: None,
        chunks: plan_file(options, &facts),
    }
}

fn sums(world: &World) -> Sums {
    let mut sums = Sums::default();
    for seed in 0..SEEDS {
        // That nothing can be told is an answer, too.
        let _ = decided(world, seed, &mut sums);
    }
    sums
}

/// Whatever it is that makes reads differ, what is promised comes, or nearly all of it.
#[test]
fn what_is_promised_of_the_chosen_ranges_comes() {
    for cost in [2_000.0, 10_000.0, 30_000.0] {
        for (differ, noise) in [
            (0.0, 0.0),
            (40_000.0, 0.0),
            (0.0, 80_000.0),
            (40_000.0, 40_000.0),
        ] {
            for uneven in [0.0, 1.0] {
                let world = World {
                    cost,
                    differ,
                    uneven,
                    noise,
                    days: 3.0,
                    ..WORLD
                };
                let sums = sums(&world);
                assert!(
                    sums.promised <= 1.25 * sums.came + 0.002 * sums.all,
                    "{world:?}: {sums:?}"
                );
                // Who promises nothing keeps all promises.
                if cost > 5_000.0 && noise + differ < 50_000.0 {
                    assert!(sums.promised >= 0.4 * sums.came, "{world:?}: {sums:?}");
                    assert!(sums.moved > 100, "{world:?}: {sums:?}");
                }
            }
        }
    }
}

#[test]
fn where_fragments_cost_nothing_next_to_nothing_is_promised() {
    for (differ, noise) in [(0.0, 20_000.0), (40_000.0, 0.0), (40_000.0, 80_000.0)] {
        let world = World {
            differ,
            noise,
            ..WORLD
        };
        let sums = sums(&world);
        assert!(sums.promised <= 0.005 * sums.all, "{world:?}: {sums:?}");
    }
}

/// The first minutes: fewer ranges than weights need, each read once or so.
#[test]
fn first_evidence_promises_no_more_than_its_reads_took() {
    for cost in [0.0, 4_000.0] {
        let world = World {
            base: 30_000.0,
            cost,
            // Of 400 ranges, some eight a day at the least.
            days: (FEWEST_RANGES as f64 / 2.0) / (FILES as f64 * 2.0),
            ..WORLD
        };
        let mut sums = Sums::default();
        for seed in 0..4 * SEEDS {
            let _ = decided(&world, seed, &mut sums);
        }
        // The guess of 100 µs for a request would be 60 % of the time of all reads and more, for counts that are believed.
        assert!(sums.promised <= 0.05 * sums.all, "{cost}: {sums:?}");
    }
}
