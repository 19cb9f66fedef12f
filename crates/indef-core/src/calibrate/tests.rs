//! Known weights are found again; nonsense in gives an error or finite weights.

use proptest::prelude::*;
use units::{Bytes, FileRange, Nanos};
use workloads::Numbers;

use super::*;
use crate::{
    access::AccessRange,
    layout::{
        Geometry,
        tests::{blocks, layout},
    },
};

/// Noise, the same every time.
struct Noise(Numbers);

impl Noise {
    fn new(seed: u64) -> Self {
        Self(Numbers::new(seed))
    }

    /// From 0 up to 1.
    fn uniform(&mut self) -> f64 {
        self.0.fraction()
    }

    /// About normal, mean 0 and deviation 1.
    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.uniform()).sum::<f64>() - 6.0
    }
}

const TRUTH: Weights = Weights {
    base_ns: 80_000.0,
    per_byte_ns: 0.4,
    per_fragment_ns: 25_000.0,
    free_fragments: 0,
    split_ns: 0.0,
    per_dopf_ns: 900.0,
    per_ahead_ns: 0.0,
    mean_ahead: 0.0,
    ahead_per_request: 0.0,
    spread_ns: 0.0,
    prior_reads: 8.0,
    other_reasons: 0.0,
};

fn sample(len: Bytes, dolf: u64, dopf: f64, timed: u64, mean_ns: f64) -> Sample {
    Sample {
        len,
        fragmentation: Fragmentation {
            dolf,
            dopf,
            requests: dolf,
        },
        observed: Observed {
            requests: dolf * timed,
            timed,
            time: Nanos((mean_ns * timed as f64) as u64),
            ahead: None,
        },
        requests: dolf as f64,
    }
}

/// Ranges of many sizes with times by `truth`; one in `wild` is slower by up to a hundred times.
fn synthetic(truth: &Weights, count: u64, noise: f64, wild: u64) -> Vec<Sample> {
    let mut random = Noise::new(1);
    let one = |i: u64| {
        let blocks = 1 + (random.uniform() * 64.0) as u64;
        let dolf = 1 + (random.uniform() * blocks as f64) as u64;
        let dopf = random.uniform() * 40.0;
        let timed = 1 + (random.uniform() * 50.0) as u64;
        let len = Bytes(blocks * 4096);
        let fragmentation = Fragmentation {
            dolf,
            dopf,
            requests: dolf,
        };
        let mut mean = truth.read_ns(len, &fragmentation);
        mean += noise * random.normal() / (timed as f64).sqrt();
        if wild > 0 && i.is_multiple_of(wild) {
            mean *= 1.0 + 99.0 * random.uniform();
        }
        sample(len, dolf, dopf, timed, mean.max(0.0))
    };
    (0..count).map(one).collect()
}

fn assert_near(found: f64, truth: f64, share: f64, what: &str) {
    let off = (found - truth).abs() / truth;
    assert!(off <= share, "{what}: {found}, but the truth is {truth}");
}

#[test]
fn known_weights_are_found_again() {
    let exact = calibrate(synthetic(&TRUTH, 200, 0.0, 0)).unwrap();
    assert_near(
        exact.weights.per_fragment_ns,
        TRUTH.per_fragment_ns,
        1e-3,
        "exact",
    );
    assert_near(exact.weights.per_dopf_ns, TRUTH.per_dopf_ns, 1e-3, "exact");
    assert!(exact.r_squared > 0.9999 && exact.outliers == 0);

    let noisy = calibrate(synthetic(&TRUTH, 2000, 100_000.0, 0)).unwrap();
    let w = noisy.weights;
    assert_near(w.per_fragment_ns, TRUTH.per_fragment_ns, 0.02, "noisy");
    assert_near(w.per_byte_ns, TRUTH.per_byte_ns, 0.15, "noisy");
    assert_near(w.base_ns, TRUTH.base_ns, 0.15, "noisy");
    assert_near(w.per_dopf_ns, TRUTH.per_dopf_ns, 0.15, "noisy");
    assert!(noisy.r_squared > 0.9, "{}", noisy.r_squared);
}

#[test]
fn wild_times_are_set_aside() {
    let found = calibrate(synthetic(&TRUTH, 1000, 50_000.0, 8)).unwrap();
    assert_near(
        found.weights.per_fragment_ns,
        TRUTH.per_fragment_ns,
        0.03,
        "wild",
    );
    assert!((80..=140).contains(&found.outliers), "{}", found.outliers);
}

/// Ranges in 1 to 32 fragments on a drive that serves the first ones at the same time: none is set aside.
#[test]
fn fragments_that_cost_nothing_are_found() {
    for (free, found_as) in [
        (0, 0..=0),
        (1, 1..=1),
        (3, 3..=3),
        (6, 5..=7),
        (13, 11..=15),
    ] {
        let truth = Weights {
            free_fragments: free,
            per_dopf_ns: 0.0,
            ..TRUTH
        };
        let mut random = Noise::new(free + 1);
        let samples = (0..512).map(|i| {
            let dolf = [1, 32, 4, 1, 16, 2, 1, 8][i % 8];
            let len = Bytes::kib(128);
            let mean = truth.read_ns(len, &degrees(dolf)) + 3_000.0 * random.normal();
            sample(len, dolf, 0.0, 4, mean)
        });
        let found = calibrate(samples.collect()).unwrap();
        let w = found.weights;
        assert!(found_as.contains(&w.free_fragments), "{free}: {w:?}");
        assert!(found.outliers < 80, "{free}: {} outliers", found.outliers);
        let worst = degrees(32);
        let (says, is) = (w.excess_ns(&worst), truth.excess_ns(&worst));
        assert!((says / is - 1.0).abs() < 0.02, "{free}: {says} for {is}");
    }
    // One line, and noise: no knee.
    let straight = calibrate(synthetic(&TRUTH, 2000, 100_000.0, 8)).unwrap();
    assert_eq!(straight.weights.free_fragments, 0);
}

fn degrees(dolf: u64) -> Fragmentation {
    Fragmentation {
        dolf,
        dopf: 0.0,
        requests: dolf,
    }
}

#[test]
fn a_cost_that_is_not_there_is_not_found_and_none_is_negative() {
    let flat = Weights {
        per_dopf_ns: 0.0,
        ..TRUTH
    };
    let found = calibrate(synthetic(&flat, 2000, 50_000.0, 0)).unwrap();
    assert!((0.0..100.0).contains(&found.weights.per_dopf_ns));
    // Nearer fragments could even look faster, by chance or read-ahead.
    let mut faster = synthetic(&flat, 500, 0.0, 0);
    for s in &mut faster {
        let less = s.fragmentation.dopf * 1000.0 * s.observed.timed as f64;
        s.observed.time = Nanos((s.observed.time.0 as f64 - less).max(0.0) as u64);
    }
    let found = calibrate(faster).unwrap();
    assert_eq!(found.weights.per_dopf_ns, 0.0);
    assert!(found.weights.are_sound());
}

#[test]
fn what_cannot_be_told_is_said() {
    assert_eq!(calibrate(vec![]), Err(CannotCalibrate::NoTimes));
    let few = synthetic(&TRUTH, 9, 0.0, 0);
    assert_eq!(calibrate(few), Err(CannotCalibrate::TooFew { found: 9 }));
    // All in pieces of one block: the number of fragments is the length.
    let mut random = Noise::new(7);
    let alike = |random: &mut Noise| {
        let n = 1 + (random.uniform() * 32.0) as u64;
        sample(Bytes(n * 4096), n, 0.0, 5, 1e5 * n as f64)
    };
    let all: Vec<_> = (0..100).map(|_| alike(&mut random)).collect();
    assert_eq!(calibrate(all), Err(CannotCalibrate::Alike));
    let free = Weights {
        per_fragment_ns: 0.0,
        per_dopf_ns: 0.0,
        ..TRUTH
    };
    for seed_count in [400, 4000] {
        let found = calibrate(synthetic(&free, seed_count, 50_000.0, 0));
        let is_nothing = matches!(found, Err(CannotCalibrate::NoDifference { .. }));
        assert!(is_nothing, "{seed_count}: {found:?}");
    }
}

/// Times that scatter hide what fragments cost; that is no proof that they cost nothing.
#[test]
fn a_cost_that_noise_hides_is_not_called_none() {
    let truth = Weights {
        per_fragment_ns: 5_000.0,
        per_dopf_ns: 0.0,
        ..TRUTH
    };
    let (mut unclear, mut told) = (0, 0);
    for noise in [1e5, 3e5, 1e6] {
        for ranges in [40, 80, 160] {
            match calibrate(synthetic(&truth, ranges, noise, 0)) {
                Ok(_) => told += 1,
                Err(CannotCalibrate::Unclear { at_most_pct }) => {
                    // The bound holds: DoLF 8 costs 35 µs of some 150.
                    assert!(at_most_pct >= 20, "{at_most_pct}");
                    unclear += 1;
                }
                Err(why) => panic!("{ranges} ranges, noise {noise}: {why}"),
            }
        }
    }
    assert!(unclear > 0, "{told} told");
}

/// Ranges whose true means scatter by `ranges`, and reads by `reads` around them.
fn scattered(ranges: f64, reads: f64) -> Vec<Sample> {
    let mut random = Noise::new(77);
    let mut samples = synthetic(&TRUTH, 4000, 0.0, 0);
    for sample in &mut samples {
        let timed = sample.observed.timed as f64;
        let off = ranges * random.normal() + reads * random.normal() / timed.sqrt();
        let time = sample.observed.time.0 as f64 + off * timed;
        sample.observed.time = Nanos(time.max(0.0) as u64);
    }
    samples
}

#[test]
fn what_scatters_is_found_out_ranges_or_reads() {
    for (ranges, reads) in [
        (20_000.0, 60_000.0),
        (30_000.0, 150_000.0),
        (10_000.0, 10_000.0),
    ] {
        let weights = calibrate(scattered(ranges, reads)).unwrap().weights;
        let truth = (reads / ranges) * (reads / ranges);
        let found = weights.prior_reads / truth;
        assert!(
            (0.6..1.6).contains(&found),
            "{} for {truth}",
            weights.prior_reads
        );
        assert_near(weights.spread_ns, ranges, 0.25, "spread");
    }
    // If only reads scatter, a range's own times say little: the model is the best estimate.
    let weights = calibrate(scattered(0.0, 100_000.0)).unwrap().weights;
    assert!(weights.prior_reads > 200.0, "{weights:?}");
    let fragmentation = Fragmentation {
        dolf: 4,
        dopf: 0.0,
        requests: 4,
    };
    let model = weights.read_ns(Bytes::kib(64), &fragmentation);
    let observed = sample(Bytes::kib(64), 4, 0.0, 9, model + 60_000.0).observed;
    let correction = weights.correction(Bytes::kib(64), &fragmentation, &observed);
    assert!(correction < 3_000.0, "{correction}");
}

#[test]
fn a_range_is_believed_as_far_as_it_was_timed() {
    let weights = Weights {
        spread_ns: 50_000.0,
        ..TRUTH
    };
    let fragmentation = Fragmentation {
        dolf: 8,
        dopf: 0.0,
        requests: 8,
    };
    let len = Bytes::kib(32);
    let model = weights.read_ns(len, &fragmentation);
    let slower = |timed: u64, by: f64| {
        let observed = sample(len, 8, 0.0, timed, model + by).observed;
        weights.correction(len, &fragmentation, &observed)
    };
    assert_eq!(
        weights.correction(len, &fragmentation, &Observed::default()),
        0.0
    );
    assert!((slower(8, 40_000.0) - 20_000.0).abs() < 1.0);
    assert!(slower(1, 40_000.0) < 5_000.0 && slower(1000, 40_000.0) > 39_000.0);
    assert!(slower(1000, -40_000.0) < -39_000.0);
    // Faster than it can be it is not by chance.
    assert!(slower(1000, -250_000.0) < -247_000.0);
    // A single read that took a second counts no more than three deviations of a single read.
    assert!(slower(1, 1e9) <= 3.0 * 50_000.0);
}

/// Ranges with the same deviations from the truth, of contiguous ones and of fragmented ones.
fn differing(contiguous: f64, fragmented: f64) -> Weights {
    let mut random = Noise::new(5);
    let one = |number: u64| {
        let dolf = if number.is_multiple_of(3) {
            1
        } else {
            2 + number % 15
        };
        let fragmentation = Fragmentation {
            dolf,
            dopf: 0.0,
            requests: dolf,
        };
        let (len, timed) = (Bytes::kib(64 + 4 * (number % 16)), 50);
        let differ = if dolf > 1 { fragmented } else { contiguous };
        let mean = TRUTH.read_ns(len, &fragmentation) + differ * random.normal();
        sample(len, dolf, 0.0, timed, mean)
    };
    calibrate((0..900).map(one).collect()).unwrap().weights
}

/// A range's own slowness is due to its fragments as far as fragmented ranges scatter more than others.
#[test]
fn what_contiguous_ranges_show_as_well_is_not_due_to_fragments() {
    let other = |contiguous, fragmented| differing(contiguous, fragmented).other_reasons;
    assert!(other(10_000.0, 10_000.0) > 0.8);
    let half = other(10_000.0, 14_142.0);
    assert!((0.35..0.7).contains(&half), "{half}");
    let none = other(0.0, 10_000.0);
    assert!(none < 0.1, "{none}");
    assert!(other(20_000.0, 10_000.0) <= 1.0);
    // The slower ones are corrected by as much less, the faster ones by all of it.
    let weights = differing(10_000.0, 14_142.0);
    let fragmentation = Fragmentation {
        dolf: 9,
        dopf: 0.0,
        requests: 9,
    };
    let len = Bytes::kib(64);
    let by = |off: f64| {
        let mean = weights.read_ns(len, &fragmentation) + off;
        let observed = sample(len, 9, 0.0, 1_000_000, mean).observed;
        weights.correction(len, &fragmentation, &observed)
    };
    assert_near(by(9_000.0), 9_000.0 * (1.0 - half), 0.01, "slower");
    assert_near(-by(-9_000.0), 9_000.0, 0.01, "faster");
    // Without contiguous ranges nobody knows: it is not promised.
    let mut fragmented = scattered(20_000.0, 0.0);
    fragmented.retain(|sample| sample.fragmentation.dolf > 1);
    assert_eq!(calibrate(fragmented).unwrap().weights.other_reasons, 1.0);
}

#[test]
fn only_ranges_of_one_request_that_hold_data_are_samples() {
    let layout = layout(&[(0, 100, 8), (8, 300, 8)]);
    let of = |range: FileRange, timed| {
        let access = AccessRange {
            range,
            reads: 3,
            observed: Observed {
                timed,
                ..Observed::default()
            },
            ..AccessRange::default()
        };
        Sample::of(&layout, &access, &Geometry::Unknown, Bytes::kib(64))
    };
    let sample = of(blocks(0, 16), 3).unwrap();
    assert_eq!((sample.len, sample.fragmentation.dolf), (Bytes::kib(64), 2));
    assert!(of(blocks(0, 16), 0).is_none());
    assert!(of(blocks(0, 17), 3).is_none());
    assert!(of(blocks(20, 4), 3).is_none());
}

fn any_sample() -> impl Strategy<Value = Sample> {
    let dopf = prop_oneof![0.0f64..1e9, Just(f64::NAN), Just(f64::INFINITY)];
    let number = || prop_oneof![0u64..100, any::<u64>()];
    let ahead = prop::option::of(number());
    let all = (number(), number(), dopf, number(), number(), ahead);
    all.prop_map(|(len, dolf, dopf, timed, time, ahead)| Sample {
        len: Bytes(len),
        fragmentation: Fragmentation {
            dolf,
            dopf,
            requests: dolf,
        },
        observed: Observed {
            requests: 0,
            timed,
            time: Nanos(time),
            ahead,
        },
        requests: dolf as f64,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn weights_are_always_sound(samples in prop::collection::vec(any_sample(), 0..60)) {
        if let Ok(found) = calibrate(samples.clone()) {
            prop_assert!(found.weights.are_sound(), "{:?}", found);
            prop_assert!((0.0..=1.0).contains(&found.r_squared));
            for s in &samples {
                let correction = found.weights.correction(s.len, &s.fragmentation, &s.observed);
                prop_assert!(correction.is_finite());
            }
        }
    }

    #[test]
    fn the_order_does_not_matter(seed in 1u64.., samples in prop::collection::vec(any_sample(), 0..10)) {
        let mut all = synthetic(&TRUTH, 60, 80_000.0, 9);
        all.extend(samples);
        let straight = calibrate(all.clone());
        let mut random = Noise::new(seed);
        for i in (1..all.len()).rev() {
            all.swap(i, (random.uniform() * (i + 1) as f64) as usize);
        }
        prop_assert_eq!(straight, calibrate(all));
    }

    #[test]
    fn any_weights_are_found_again(base in 0.0f64..1e6, byte in 0.0f64..10.0, fragment in 1e3f64..1e6, dopf in 0.0f64..1e4) {
        let truth = Weights { base_ns: base, per_byte_ns: byte, per_fragment_ns: fragment, per_dopf_ns: dopf, ..TRUTH };
        let found = calibrate(synthetic(&truth, 400, fragment, 20)).unwrap().weights;
        let off = (found.per_fragment_ns - fragment).abs() / fragment;
        prop_assert!(off < 0.02, "{} instead of {}", found.per_fragment_ns, fragment);
    }
}
