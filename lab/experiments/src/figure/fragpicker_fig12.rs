//! FragPicker, Figure 12: how much of the hottest data has to move, for even reads and for those by Zipf's law.

use indef_core::access::AccessRange;
use lfs_sim::calls::Direction;
use units::FileRange;
use workloads::zipf::Zipf;

use super::{
    error::FigureError,
    fragpicker::{Contender, FileSystem, Ground, System},
    fragpicker_fig08::file,
    measured::{Measured, Unit},
    parameters::Parameters,
};

/// See the module.
pub(super) fn measure(parameters: &Parameters) -> Result<Measured, FigureError> {
    parameters.measure(&["gap", "plug", "reads", "skew"], rows)
}

fn rows(parameters: &Parameters) -> Result<Measured, FigureError> {
    let system = System::new(parameters, parameters.text("device")?)?;
    let before = file(parameters, &system, FileSystem::Ext4)?;
    let skew = parameters.number("skew")? / 100.0;
    let mut measured = Measured::default();
    for (series, skew) in [("uniform", 0.0), ("Zipf", skew)] {
        let reads = Reads::drawn(parameters, &system, &before, skew)?;
        let points = parameters.numbers("hottest")?.into_iter();
        let points: Vec<Point> = points
            .map(|hot| reads.after(&system, &before, hot))
            .collect::<Result<_, _>>()?;
        let all = points.last().map_or(f64::NAN, |last| last.speed);
        for point in &points {
            measured.push(series, point.hot, point.speed / all, Unit::Times);
        }
        let written = format!("{series}, written");
        let size = before.layout().allocated().0 as f64;
        for point in &points {
            measured.push(&written, point.hot, point.written / size, Unit::Times);
        }
    }
    Ok(measured)
}

/// The reads of the program, and what a trace of them counts.
struct Reads {
    calls: Vec<FileRange>,
    accesses: Vec<AccessRange>,
}

/// A share that has moved, the speed of the reads after that, and the bytes that were written.
struct Point {
    hot: f64,
    speed: f64,
    written: f64,
}

impl Reads {
    fn drawn(
        parameters: &Parameters,
        system: &System,
        ground: &Ground,
        skew: f64,
    ) -> Result<Self, FigureError> {
        let law = Zipf {
            skew,
            ranges: ground.layout().allocated().0 / system.io_size.0,
            reads: parameters.count("reads")?,
            seed: parameters.count("seed")?,
        };
        let sequence = law.sequence();
        let range = |number: u64| FileRange::new(number * system.io_size.0, system.io_size.0);
        let counts = law.counts(&sequence);
        let accesses = (0..).zip(counts).filter(|(_, reads)| *reads > 0);
        let access = |(number, reads)| AccessRange {
            range: range(number),
            reads,
            ..AccessRange::default()
        };
        Ok(Self {
            accesses: accesses.map(access).collect(),
            calls: sequence.into_iter().map(|it| range(it.into())).collect(),
        })
    }

    fn after(&self, system: &System, before: &Ground, hot: f64) -> Result<Point, FigureError> {
        let accesses = &self.accesses;
        let after = system.defragment(before, Contender::FragPicker { accesses, hot })?;
        Ok(Point {
            hot,
            speed: system.speed(&after.ground, &self.calls, Direction::Read)?,
            written: after.written,
        })
    }
}
