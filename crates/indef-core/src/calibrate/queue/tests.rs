//! Readers that each wait for their read, on devices whose law is known: the fit finds the law, and
//! predicts what the same readers take without fragments.

use std::{cmp::Reverse, collections::BinaryHeap};

use proptest::prelude::*;
use units::{Bytes, Nanos};
use workloads::Numbers;

use super::super::{
    Asked, Calibration, CannotCalibrate, CannotPredict, Queue, Reads, Sample, Service, ServicePass,
    ServiceTurn, calibrate,
};
use crate::{access::Observed, layout::Fragmentation};

const RANGES: usize = 600;
const READS: u64 = 4000;

/// Units that serve requests in order, each in the same time.
#[derive(Clone, Copy, Debug)]
struct Device {
    units: usize,
    service_ns: u64,
    /// The time that a read takes besides.
    base_ns: u64,
}

fn degrees(dolf: u64) -> Fragmentation {
    Fragmentation {
        dolf,
        dopf: 0.0,
        requests: dolf,
    }
}

/// Ranges of 1 to 32 fragments.
fn aged() -> Vec<u64> {
    let mut numbers = Numbers::new(5);
    (0..RANGES).map(|_| 1 + numbers.below(32_u64)).collect()
}

/// So many readers read ranges of these fragments; the samples that a trace gives.
fn run(device: Device, readers: u64, fragments: &[u64], seed: u64) -> Vec<Sample> {
    let mut numbers = Numbers::new(seed);
    let mut free = vec![0_u64; device.units];
    let mut waiting: BinaryHeap<_> = (0..readers).map(Reverse).collect();
    let mut in_flight = BinaryHeap::new();
    let mut observed = vec![Observed::default(); fragments.len()];
    for _ in 0..READS {
        let Some(Reverse(now)) = waiting.pop() else {
            break;
        };
        while in_flight.peek().is_some_and(|Reverse(done)| *done <= now) {
            in_flight.pop();
        }
        let range = numbers.below(fragments.len() as u64) as usize;
        let ahead = in_flight.len() as u64;
        let mut end = now;
        for _ in 0..fragments[range] {
            let unit = &mut free[numbers.below(device.units as u64) as usize];
            *unit = now.max(*unit) + device.service_ns;
            in_flight.push(Reverse(*unit));
            end = end.max(*unit);
        }
        end += device.base_ns;
        observed[range] += Observed {
            requests: fragments[range],
            timed: 1,
            time: Nanos(end - now),
            ahead: Some(ahead),
        };
        waiting.push(Reverse(end));
    }
    let sample = |(fragments, observed): (&u64, Observed)| Sample {
        len: Bytes::kib(128),
        fragmentation: degrees(*fragments),
        observed,
        requests: *fragments as f64,
    };
    fragments.iter().zip(observed).map(sample).collect()
}

fn mean_ns(samples: &[Sample]) -> f64 {
    let (time, timed) = samples.iter().fold((0, 0), |(time, timed), sample| {
        (time + sample.observed.time.0, timed + sample.observed.timed)
    });
    time as f64 / timed as f64
}

/// The reads of the samples, with the cost of their fragments by the weights.
fn reads(samples: &[Sample], weights: &super::super::Weights) -> Reads {
    let mut reads = Reads::default();
    for sample in samples {
        reads.reads += sample.observed.timed;
        reads.now_ns += sample.observed.time.0 as f64;
        reads.excess_ns += weights.excess_ns(&sample.fragmentation) * sample.observed.timed as f64;
    }
    reads
}

fn near(found: f64, truth: f64, share: f64) -> bool {
    (found - truth).abs() <= share * truth
}

/// A device that serves one request at a time, with any number of readers: its law is exact.
#[test]
fn the_law_of_a_single_server_is_found() {
    let device = Device {
        units: 1,
        service_ns: 20_000,
        base_ns: 0,
    };
    for readers in [1, 2, 8, 32] {
        let samples = run(device, readers, &aged(), 1);
        let found = calibrate(samples.clone()).unwrap();
        let w = found.weights;
        assert_eq!(found.queue, Queue::Known);
        assert!(near(w.per_fragment_ns, 20_000.0, 0.03), "{readers}: {w:?}");
        if readers > 1 {
            assert!(near(w.per_ahead_ns, 20_000.0, 0.03), "{readers}: {w:?}");
            assert!(
                near(w.ahead_per_request, readers as f64 - 1.0, 0.05),
                "{w:?}"
            );
        }
        // What fragments cost all reads is what is gone without them.
        let of = reads(&samples, &w);
        let after = mean_ns(&run(device, readers, &[1; RANGES], 2));
        let gone = 1.0 - after / mean_ns(&samples);
        let says = of.excess_ns / of.now_ns;
        assert!(
            (says - gone).abs() < 0.03,
            "{readers}: {says} instead of {gone}"
        );
        // Without the requests ahead, those of others would be taken for the read's own time.
        if readers == 8 {
            let mut alone = samples.clone();
            alone
                .iter_mut()
                .for_each(|sample| sample.observed.ahead = None);
            let found = calibrate(alone).unwrap();
            let says = reads(&samples, &found.weights).excess_ns / of.now_ns;
            assert!(says < 0.25 && gone > 0.9, "{says}");
            assert_eq!(found.queue, Queue::Unknown);
            let refused = found.predict(&of, of.excess_ns, None);
            assert_eq!(refused, Err(CannotPredict::QueueUnknown));
        }
    }
}

/// A device that can be asked about a plan.
struct Askable<'a>(Device, Option<&'a [u64]>);

impl Asked for Askable<'_> {
    fn waited_ns(&mut self, readers: u32) -> Result<f64, CannotPredict> {
        Ok(mean_ns(&run(self.0, readers.into(), &aged(), 3)))
    }

    fn pass(&mut self, readers: u32) -> Result<ServicePass, CannotPredict> {
        let of = |fragments: &[u64], seed| mean_ns(&run(self.0, readers.into(), fragments, seed));
        let turns = (0..2).map(|turn| {
            let as_is_ns = of(&aged(), 10 * turn + 3);
            ServiceTurn {
                waited_ns: as_is_ns,
                as_is_ns,
                contiguous_ns: of(&[1; RANGES], 10 * turn + 4),
                planned_ns: self.1.map(|plan| of(plan, 10 * turn + 5)),
            }
        });
        Ok(ServicePass::of(&turns.collect::<Vec<_>>()))
    }
}

fn service(device: Device, traced_ns: f64, plan: Option<&[u64]>) -> Result<Service, CannotPredict> {
    Service::find(traced_ns, &mut Askable(device, plan))
}

/// A device of so many units, with a trace of so many readers and what it tells.
fn traced(units: usize, readers: u64) -> (Device, Vec<Sample>, Calibration, Reads) {
    let device = Device {
        units,
        service_ns: 50_000,
        base_ns: 10_000,
    };
    let samples = run(device, readers, &aged(), 1);
    let found = calibrate(samples.clone()).unwrap();
    let of = reads(&samples, &found.weights);
    (device, samples, found, of)
}

/// A plan of the worst ranges: its part of all is not the part of the time that it saves, once reads wait for each
/// other.
#[test]
fn a_part_is_asked_for_too() {
    for units in [1, 16] {
        for readers in [1, 8] {
            let (device, samples, found, of) = traced(units, readers);
            let plan: Vec<u64> = aged()
                .iter()
                .map(|dolf| if *dolf > 20 { 1 } else { *dolf })
                .collect();
            let saved_ns: f64 = (samples.iter())
                .filter(|sample| sample.fragmentation.dolf > 20)
                .map(|sample| {
                    let excess = found.weights.excess_ns(&sample.fragmentation);
                    excess * sample.observed.timed as f64
                })
                .sum();
            let service = service(device, mean_ns(&samples), Some(&plan)).unwrap();
            let says = found.predict(&of, saved_ns, Some(&service)).unwrap();
            let after = mean_ns(&run(device, readers, &plan, 2));
            let gone = (1.0 - after / mean_ns(&samples)) * 100.0;
            let off = (says.saved_pct() - gone).abs();
            assert!(off < 4.0, "{units} {readers}: {} {gone}", says.saved_pct());
        }
    }
}

#[test]
fn a_device_that_was_asked_gives_the_time_of_any_number_of_readers() {
    for units in [1, 8, 64] {
        for readers in [1, 6, 32] {
            let (device, samples, found, of) = traced(units, readers);
            let service = service(device, mean_ns(&samples), None).unwrap();
            let says = found.predict(&of, of.excess_ns, Some(&service)).unwrap();
            let after = mean_ns(&run(device, readers, &[1; RANGES], 2));
            let gone = (1.0 - after / mean_ns(&samples)) * 100.0;
            let off = (says.saved_pct() - gone).abs();
            assert!(off < 4.0, "{units} {readers}: {} {gone}", says.saved_pct());
            assert!(near(service.readers, readers as f64, 0.3), "{service:?}");
            if readers > 1 {
                let guess = found.predict(&of, of.excess_ns, None);
                assert!(
                    matches!(guess, Err(CannotPredict::Busy { .. })),
                    "{guess:?}"
                );
            }
        }
    }
}

#[test]
fn a_device_that_is_not_as_it_was_tells_nothing() {
    let device = Device {
        units: 8,
        service_ns: 50_000,
        base_ns: 10_000,
    };
    let traced = mean_ns(&run(device, 1, &aged(), 1));
    let slow = service(device, traced / 3.0, None);
    assert!(
        matches!(slow, Err(CannotPredict::Changed { slower: true, .. })),
        "{slow:?}"
    );
    let never = service(device, traced * 1e3, None);
    assert!(
        matches!(never, Err(CannotPredict::Changed { slower: false, .. })),
        "{never:?}"
    );
}

/// Readers are found by how long reads wait; what a plan saves is told of the whole calls, which copy as well.
#[test]
fn whole_calls_save_a_smaller_part() {
    const COPIES_NS: f64 = 200_000.0;
    struct Copying<'a>(Askable<'a>);
    impl Asked for Copying<'_> {
        fn waited_ns(&mut self, readers: u32) -> Result<f64, CannotPredict> {
            self.0.waited_ns(readers)
        }
        fn pass(&mut self, readers: u32) -> Result<ServicePass, CannotPredict> {
            let of = |fragments: &[u64], seed| {
                mean_ns(&run(self.0.0, readers.into(), fragments, seed)) + COPIES_NS
            };
            let turns = [0, 1].map(|turn| ServiceTurn {
                waited_ns: of(&aged(), 10 * turn + 3) - COPIES_NS,
                as_is_ns: of(&aged(), 10 * turn + 3),
                contiguous_ns: of(&[1; RANGES], 10 * turn + 4),
                planned_ns: None,
            });
            Ok(ServicePass::of(&turns))
        }
    }
    for readers in [1, 6] {
        let (device, samples, found, of) = traced(8, readers);
        let waited = mean_ns(&samples);
        let service = Service::find(waited, &mut Copying(Askable(device, None))).unwrap();
        assert!(near(service.readers, readers as f64, 0.3), "{service:?}");
        let says = found.predict(&of, of.excess_ns, Some(&service)).unwrap();
        let after = mean_ns(&run(device, readers, &[1; RANGES], 2)) + COPIES_NS;
        let before = waited + COPIES_NS;
        let gone = (1.0 - after / before) * 100.0;
        let off = (says.saved_pct() - gone).abs();
        assert!(off < 4.0, "{readers}: {} {gone}", says.saved_pct());
        let now = says.now_ns / of.now_ns * waited;
        assert!(near(now, before, 0.05), "{now} {before}");
        // Of the time that they wait it is clearly more.
        let waits = (1.0 - (after - COPIES_NS) / waited) * 100.0;
        assert!(waits > gone + 5.0, "{waits} {gone}");
    }
}

/// A device that is twice as slow in every other turn, and one whose kinds of reads take turns at being slow.
#[test]
fn turns_tell_the_error() {
    let turn = |as_is_ns: f64, part: f64| ServiceTurn {
        waited_ns: as_is_ns,
        as_is_ns,
        contiguous_ns: as_is_ns * part,
        planned_ns: Some(as_is_ns * part.midpoint(1.0)),
    };
    let pass = |turns: [ServiceTurn; 4]| {
        struct Fixed(ServicePass);
        impl Asked for Fixed {
            fn waited_ns(&mut self, _: u32) -> Result<f64, CannotPredict> {
                Ok(150.0)
            }
            fn pass(&mut self, _: u32) -> Result<ServicePass, CannotPredict> {
                Ok(self.0)
            }
        }
        Service::find(150.0, &mut Fixed(ServicePass::of(&turns))).unwrap()
    };
    let drifts = pass([100.0, 200.0, 100.0, 200.0].map(|ns| turn(ns, 0.5)));
    assert!(near(drifts.contiguous.ratio, 0.5, 1e-9) && drifts.contiguous.error < 1e-9);
    assert!(near(drifts.planned.unwrap().ratio, 0.75, 1e-9));
    let scatters = pass([0.4, 0.6, 0.4, 0.6].map(|part| turn(150.0, part)));
    // The deviation of four values is 0.115, that of their mean half of it, and few turns count 1.2 times.
    assert!(near(scatters.contiguous.error, 0.139, 0.01), "{scatters:?}");
}

#[test]
fn too_few_reads_say_how_little_they_say() {
    let (_, _, found, of) = traced(8, 1);
    assert!(found.predict(&of, of.excess_ns, None).is_ok());
    let vague = Calibration {
        cost_error: 0.3,
        ..found
    };
    let refused = vague.predict(&of, of.excess_ns, None);
    assert!(
        matches!(refused, Err(CannotPredict::Unclear { .. })),
        "{refused:?}"
    );
}

#[test]
fn ranges_of_old_profiles_do_not_count_as_read_alone() {
    let device = Device {
        units: 1,
        service_ns: 20_000,
        base_ns: 0,
    };
    let mut samples = run(device, 8, &aged(), 1);
    // A few old ones are left out; many leave the queue unknown.
    for (old, queue) in [(100, Queue::Known), (500, Queue::Unknown)] {
        samples[..old]
            .iter_mut()
            .for_each(|sample| sample.observed.ahead = None);
        let found = calibrate(samples.clone()).unwrap();
        assert_eq!(found.queue, queue);
    }
}

/// Where others pay for everything, "nothing to gain" would be a guess.
#[test]
fn a_cost_that_queues_hide_is_not_denied() {
    let mut numbers = Numbers::new(9);
    let sample = |numbers: &mut Numbers, cost_ns: u64| {
        let (dolf, ahead) = (1 + numbers.below(32_u64), numbers.below(200_u64));
        let time = Nanos(500_000 + cost_ns * ahead + numbers.below(1000_u64));
        let observed = Observed {
            requests: dolf,
            timed: 1,
            time,
            ahead: Some(ahead),
        };
        Sample {
            len: Bytes::kib(128),
            fragmentation: degrees(dolf),
            observed,
            requests: dolf as f64,
        }
    };
    for (cost_ns, is_hidden) in [(3000, true), (0, false)] {
        let samples = (0..500).map(|_| sample(&mut numbers, cost_ns)).collect();
        let found = calibrate(samples).unwrap_err();
        let nothing = matches!(found, CannotCalibrate::NoDifference { .. });
        assert_eq!(found == CannotCalibrate::Hidden, is_hidden, "{found}");
        assert_eq!(nothing, !is_hidden, "{found}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4))]
    #[test]
    fn any_single_server_is_found(service_ns in 1_000u64..1_000_000, readers in 1u64..40) {
        let device = Device { units: 1, service_ns, base_ns: 0 };
        let found = calibrate(run(device, readers, &aged(), readers)).unwrap();
        let truth = service_ns as f64 * readers as f64;
        let one = found.weights.layout_ns(&degrees(9)) - found.weights.layout_ns(&degrees(8));
        prop_assert!(near(one, truth, 0.05), "{one} instead of {truth}");
    }
}

#[test]
fn reads_of_ranges_that_the_trace_did_not_see_stay_as_slow_as_they_are() {
    const SEEN: usize = RANGES / 3;
    let device = Device {
        units: 8,
        service_ns: 50_000,
        base_ns: 10_000,
    };
    let samples = run(device, 1, &aged(), 1);
    let mut moved = aged();
    moved[..SEEN].fill(1);
    let gone = 1.0 - mean_ns(&run(device, 1, &moved, 2)) / mean_ns(&samples);
    let found = calibrate(samples[..SEEN].to_vec()).unwrap();
    // Each read that was counted stands for three.
    let counted = reads(&samples[..SEEN], &found.weights);
    let of = Reads {
        reads: 3 * counted.reads,
        now_ns: 3.0 * counted.now_ns,
        excess_ns: 3.0 * counted.excess_ns,
        unseen: 2.0 * counted.reads as f64,
        unseen_variance: (0.1 * counted.reads as f64).powi(2),
    };
    let service = service(device, mean_ns(&samples), None).unwrap();
    for service in [None, Some(&service)] {
        let says = found.predict(&of, of.excess_ns, service).unwrap();
        let (saved, error) = (says.saved_pct() / 100.0, says.error_pct() / 100.0);
        assert!((saved - gone).abs() < 0.03, "{saved} instead of {gone}");
        // A thirtieth of the reads, of which fragments cost nearly all, twice.
        assert!(error > 0.04, "{error}");
    }
}
