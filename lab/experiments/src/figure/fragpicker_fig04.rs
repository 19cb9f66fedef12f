//! FragPicker, Figure 4: sequential reads over the size of fragments, and over their distance.

use lfs_sim::calls::Direction;
use units::Bytes;

use super::{
    error::FigureError,
    fragpicker::{FileSystem, System, blocks, every},
    measured::{Measured, Unit},
    memo::Memo,
    parameters::Parameters,
};

/// The length of a read, up to which a fragment splits it.
pub(super) const REQUEST_KIB: f64 = 128.0;

/// See the module.
pub(super) fn measure(parameters: &Parameters) -> Result<Measured, FigureError> {
    parameters.measure(&["plug"], rows)
}

fn rows(parameters: &Parameters) -> Result<Measured, FigureError> {
    let mut measured = Measured::default();
    for curves in speeds(parameters)? {
        let of_request = curves.at_size(REQUEST_KIB);
        for &(size, speed) in &curves.sizes {
            measured.push(&curves.drive, size, speed / of_request, Unit::Times);
        }
        let series = format!("{}, by distance", curves.drive);
        let nearest = curves.distances[0].1;
        for &(distance, speed) in &curves.distances {
            measured.push(&series, distance, speed / nearest, Unit::Times);
        }
    }
    Ok(measured)
}

/// Speeds of a drive in MB/s, over KiB.
pub(super) struct Curves {
    /// The paper's name of it.
    pub(super) drive: String,
    /// Over the size of fragments, which increases.
    pub(super) sizes: Vec<(f64, f64)>,
    /// Over their distance, which increases.
    pub(super) distances: Vec<(f64, f64)>,
}

impl Curves {
    fn at_size(&self, kib: f64) -> f64 {
        let mut sizes = self.sizes.iter();
        sizes
            .find(|(size, _)| *size == kib)
            .map_or(f64::NAN, |it| it.1)
    }
}

/// The speeds of all drives.
pub(super) fn speeds(parameters: &Parameters) -> Result<Vec<Curves>, FigureError> {
    let sizes = parameters.sizes("sizes")?;
    let distances = parameters.sizes("distances")?;
    let (distance, smallest) = (parameters.bytes("distance")?, parameters.bytes("smallest")?);
    let file = Bytes(parameters.bytes("file")?);
    let drives = parameters.texts("devices")?.iter();
    let curves = drives.map(|drive| {
        let system = System::new(parameters, drive)?;
        let point = |x: u64, size: u64, distance: u64| -> Result<(f64, f64), FigureError> {
            Ok((x as f64 / 1024.0, speed(&system, file, size, distance)?))
        };
        Ok(Curves {
            drive: name(drive).to_owned(),
            sizes: (sizes.iter())
                .map(|size| point(*size, *size, distance))
                .collect::<Result<_, _>>()?,
            distances: (distances.iter())
                .map(|distance| point(*distance, smallest, *distance))
                .collect::<Result<_, _>>()?,
        })
    });
    curves.collect()
}

/// The name of a drive in the paper.
fn name(profile: &str) -> &str {
    match profile {
        "optane-905p" => "Optane SSD",
        "sata-850-pro" => "Flash SSD",
        "microsd" => "MicroSD",
        other => other,
    }
}

/// The speed of sequential reads of a file in pieces of one size and distance, in MB/s; once for both figures.
fn speed(system: &System, file: Bytes, size: u64, distance: u64) -> Result<f64, FigureError> {
    static SPEEDS: Memo<(System, Bytes, u64, u64), f64> = Memo::new();
    let speed = SPEEDS.get((system.clone(), file, size, distance), || {
        let piece = (blocks(Bytes(distance)), blocks(Bytes(size)));
        let pieces = vec![piece; file.div_ceil(Bytes(size)) as usize];
        let ground = system.written(FileSystem::F2fs, &pieces)?;
        let calls = every(system.io_size, system.io_size, file);
        system.speed(&ground, &calls, Direction::Read)
    });
    speed.map(|speed| *speed)
}
