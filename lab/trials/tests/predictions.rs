//! Predictions of `--weight measured`, against modelled devices in virtual time: the same every time,
//! on however busy a machine.
//!
//! Readers that each wait for their read do so on an aged file. What a trace would record of them goes
//! to the estimator, with what reading the device tells (`--calibrate`). Then all of the file, or the
//! half of it that gains most, is made contiguous, and other reads of it are simulated.

#[path = "predictions/host.rs"]
mod host;

use flash_model::{Device, Profile};
use host::{File, Range, degrees, filled, mean_ns, read, samples};
use indef_core::calibrate::{
    Asked, Calibration, CannotCalibrate, CannotPredict, Prediction, Reads, Service, ServicePass,
    ServiceTurn, TURNS, calibrate,
};
use workloads::Numbers;

const SIZE: u64 = 256 << 20;
const RANGES: u64 = 512;
/// Reads that are traced, or simulated afterwards.
const READS: u64 = 4000;
/// Reads of each kind that a calibration does in a turn.
const REPLAYED: u64 = 400;
/// How far a prediction may be from what comes, in points of the time before.
const NEAR: f64 = 4.0;

/// A device that can be asked about a plan.
struct Askable<'a> {
    device: &'a Device,
    as_is: &'a [Range],
    contiguous: &'a [Range],
    planned: Option<&'a [Range]>,
}

impl Askable<'_> {
    fn mean_ns(&self, file: &[Range], readers: u32, seed: u64) -> f64 {
        mean_ns(&read(self.device, file, readers as usize, REPLAYED, seed))
    }
}

impl Asked for Askable<'_> {
    fn waited_ns(&mut self, readers: u32) -> Result<f64, CannotPredict> {
        Ok(self.mean_ns(self.as_is, readers, 11))
    }

    fn pass(&mut self, readers: u32) -> Result<ServicePass, CannotPredict> {
        let turn = |seed| {
            let as_is_ns = self.mean_ns(self.as_is, readers, seed);
            ServiceTurn {
                waited_ns: as_is_ns,
                as_is_ns,
                contiguous_ns: self.mean_ns(self.contiguous, readers, seed + 1),
                planned_ns: self
                    .planned
                    .map(|file| self.mean_ns(file, readers, seed + 2)),
            }
        };
        let turns: Vec<ServiceTurn> = (0..TURNS as u64).map(|at| turn(100 + 10 * at)).collect();
        Ok(ServicePass::of(&turns))
    }
}

/// An aged file on a device, and what is known of its reads.
struct Case {
    name: &'static str,
    depth: usize,
    device: Device,
    file: File,
    before_ns: f64,
    reads: Reads,
    found: Result<Calibration, CannotCalibrate>,
}

impl Case {
    fn new(name: &'static str, depth: usize) -> Self {
        let profile = Profile::builtin(name).expect("a built-in profile");
        let device = filled(&profile, SIZE);
        let file = File::new(SIZE, RANGES, &mut Numbers::new(7));
        let seen = read(&device, &file.aged, depth, READS, 3);
        let found = calibrate(samples(&file.aged, &seen));
        let mut reads = Reads::default();
        for (range, seen) in file.aged.iter().zip(&seen) {
            reads.reads += seen.reads;
            reads.now_ns += seen.time as f64;
            if let Ok(found) = &found {
                reads.excess_ns += found.weights.excess_ns(&degrees(range)) * seen.reads as f64;
            }
        }
        Self {
            name,
            depth,
            before_ns: mean_ns(&seen),
            device,
            file,
            reads,
            found,
        }
    }

    /// `--calibrate` for a plan that moves these: the ranges that are contiguous already are the ones that it can read in
    /// their place.
    fn service(&self, moves: &[bool]) -> Result<Service, CannotPredict> {
        let aged = &self.file.aged;
        let contiguous: Vec<Range> = (aged.iter())
            .filter(|range| range.pieces.len() == 1)
            .cloned()
            .collect();
        let is_fragmented = |range: &Range| range.pieces.len() > 1;
        let moves_all =
            (aged.iter().zip(moves)).all(|(range, moves)| *moves || !is_fragmented(range));
        let mut numbers = Numbers::new(13);
        let planned: Vec<Range> = (aged.iter().zip(moves))
            .map(|(range, moves)| match *moves && is_fragmented(range) {
                true => contiguous[numbers.below(contiguous.len())].clone(),
                false => range.clone(),
            })
            .collect();
        let mut device = Askable {
            device: &self.device,
            as_is: aged,
            contiguous: &contiguous,
            planned: (!moves_all).then_some(planned.as_slice()),
        };
        Service::find(self.before_ns, &mut device)
    }

    /// Make ranges contiguous: the prediction, and what comes, in percent of the time saved.
    fn compare(&self, moves: &[bool], service: Option<&Service>) -> (Prediction, f64) {
        let per_range = self.reads.reads as f64 / RANGES as f64;
        let predicted = match (&self.found, service) {
            (Ok(found), _) => {
                let saved = (self.file.aged.iter().zip(moves))
                    .filter(|(_, moves)| **moves)
                    .map(|(range, _)| found.weights.excess_ns(&degrees(range)) * per_range);
                found.predict(&self.reads, saved.sum(), service)
            }
            (Err(CannotCalibrate::Hidden), Some(service)) => service.predict(&self.reads),
            (Err(why), _) => panic!("{} depth {}: {why}", self.name, self.depth),
        };
        let predicted = predicted.expect("a prediction");
        let after: Vec<Range> = (self.file.aged.iter().zip(&self.file.contiguous))
            .zip(moves)
            .map(|((aged, contiguous), moves)| if *moves { contiguous } else { aged }.clone())
            .collect();
        let after_ns = mean_ns(&read(&self.device, &after, self.depth, READS, 5));
        (predicted, (1.0 - after_ns / self.before_ns) * 100.0)
    }

    /// Check both plans, with calibration or without.
    fn check(&self, calibrate: bool) {
        // The most fragmented ranges gain most.
        let half: Vec<bool> = (self.file.aged.iter())
            .map(|range| range.pieces.len() >= 32)
            .collect();
        for (plan, moves) in [("all", vec![true; RANGES as usize]), ("a part", half)] {
            let service = calibrate.then(|| self.service(&moves).expect("the device can be read"));
            if let Some(service) = &service {
                let readers = service.readers / self.depth as f64;
                assert!((1.0 / 1.5..=1.5).contains(&readers), "{service:?}");
            }
            let (predicted, comes) = self.compare(&moves, service.as_ref());
            let says = predicted.saved_pct();
            println!(
                "{:15} depth {:2}, {plan:6}: {says:5.1} % (±{:.1}) predicted, {comes:5.1} % comes",
                self.name,
                self.depth,
                predicted.error_pct()
            );
            let off = (says - comes).abs();
            assert!(
                off < NEAR,
                "{} depth {} {plan}: {says} {comes}",
                self.name,
                self.depth
            );
        }
    }
}

fn predictions_hold(name: &'static str) {
    for depth in [1, 8, 32] {
        let case = Case::new(name, depth);
        if case.found == Err(CannotCalibrate::Hidden) {
            println!("{name:15} depth {depth:2}: hidden, the device tells it");
            case.check(true);
            continue;
        }
        if let Err(CannotCalibrate::NoDifference { .. }) = case.found {
            // Then there must be none.
            let after = mean_ns(&read(&case.device, &case.file.contiguous, depth, READS, 5));
            let saved = match case.before_ns > 0.0 {
                true => (1.0 - after / case.before_ns) * 100.0,
                false => 0.0,
            };
            println!("{name:15} depth {depth:2}: no cost found, {saved:.1} % comes");
            assert!(saved < NEAR, "{name} depth {depth}: {saved}");
            continue;
        }
        case.check(true);
        if depth == 1 {
            // One read at a time needs no calibration.
            case.check(false);
        } else {
            let found = case.found.as_ref().expect("weights");
            let guess = found.predict(&case.reads, case.reads.excess_ns, None);
            assert!(
                matches!(guess, Err(CannotPredict::Busy { .. })),
                "{guess:?}"
            );
        }
    }
}

#[test]
fn on_fast24() {
    predictions_hold("fast24");
}

#[test]
fn on_indef_femu() {
    predictions_hold("indef-femu");
}

#[test]
fn on_zn540_behind_a_translation_layer() {
    predictions_hold("zn540");
}

#[test]
fn on_a_device_without_latencies_fragments_cost_nothing() {
    predictions_hold("zero");
}
