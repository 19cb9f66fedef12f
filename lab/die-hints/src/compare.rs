//! A case without and with hints.

use anyhow::Result;
use flash_model::HintStats;
use units::Nanos;

use crate::{
    age::Aged,
    case::Case,
    lab::{Files, Lab},
    place::Place,
    system::FileSystem,
};

/// Files that were written, and what the model says about them. Speeds are in MiB/s, for each reading of
/// the case.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Extents of all files.
    pub extents: usize,
    /// Hints of the writes.
    pub hints: HintStats,
    /// Where the files lie.
    pub place: Place,
    /// Reading them on the idle device.
    pub speeds: Vec<f64>,
    /// The same with the first reading after all else was overwritten, if that was asked for.
    pub aged: Option<(f64, Aged)>,
}

/// A case without and with hints.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// The same data written at once, without hints.
    pub contiguous: Outcome,
    /// Without hints, and with them.
    pub written: [Outcome; 2],
}

impl Comparison {
    /// The share of the contiguous files' speed that the number `reading` has.
    #[must_use]
    pub fn share(&self, of: &Outcome, reading: usize) -> f64 {
        of.speeds[reading] / self.contiguous.speeds[reading]
    }

    /// The same of the aged files, of the contiguous files' speed when they were new.
    #[must_use]
    pub fn aged_share(&self, of: &Outcome) -> Option<f64> {
        let (speed, _) = of.aged.as_ref()?;
        Some(speed / self.contiguous.speeds[0])
    }
}

impl Lab {
    /// Write a case on a new file system without the option `die_hints`, and on one with it. `age` says
    /// how often all else is overwritten afterwards.
    ///
    /// # Errors
    ///
    /// The guest failed, or a file system is not clean afterwards.
    pub fn compare(&self, system: FileSystem, case: &Case, age: Option<u64>) -> Result<Comparison> {
        let write = |options, words| {
            self.make(system, options)?;
            let outcome = self.outcome(&self.write(words)?, case, age);
            self.unmount(system)?;
            anyhow::Ok(outcome)
        };
        Ok(Comparison {
            contiguous: write("nodie_hints", &case.contiguous)?,
            written: [
                write("nodie_hints", &case.words)?,
                write("die_hints", &case.words)?,
            ],
        })
    }

    fn outcome(&self, files: &Files, case: &Case, age: Option<u64>) -> Outcome {
        let speed = |time: Nanos| files.bytes as f64 / f64::from(1 << 20) / (time.0 as f64 / 1e9);
        let readings = case.readings.iter();
        let first = case.readings[0].1;
        Outcome {
            extents: files.extents.iter().map(Vec::len).sum(),
            hints: files.hints,
            place: self.place(files),
            speeds: readings
                .map(|(_, reading)| speed(self.read(files, *reading)))
                .collect(),
            aged: age.map(|times| {
                let (time, aged) = self.read_aged(files, first, times);
                (speed(time), aged)
            }),
        }
    }
}
