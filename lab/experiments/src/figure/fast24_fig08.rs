//! FAST'24, Figure 8: granule and stripe, seen from outside by reads at growing intervals.

use super::{
    error::FigureError,
    fast24::seen_in_figure_8,
    measured::{Measured, Unit},
    parameters::Parameters,
};
use crate::fast24::{
    host::{KIB, MIB},
    placement::{aligned_reads, filled},
};

/// A step down shows from this share on.
const A_STEP: f64 = 0.75;

/// See the module.
pub(super) fn measure(parameters: &Parameters) -> Result<Measured, FigureError> {
    let mut measured = Measured::default();
    let reads = parameters.count("reads")?;
    let depth = parameters.count("depth")? as usize;
    for (name, profile) in seen_in_figure_8(parameters)? {
        let device = filled(&profile);
        let mut speeds = Vec::new();
        for interval in parameters.sizes("intervals")? {
            let speed = aligned_reads(&device, interval, depth, reads) * MIB as f64 / 1e6;
            measured.push(name, (interval / KIB) as f64, speed, Unit::MbPerS);
            speeds.push((interval, speed));
        }
        add_findings(&mut measured, name, &speeds);
    }
    Ok(measured)
}

/// Add the numbers that the paper reads from its curves.
fn add_findings(measured: &mut Measured, name: &str, speeds: &[(u64, f64)]) {
    let of_all = speeds.iter().map(|(_, speed)| *speed);
    let highest = of_all.clone().fold(0.0, f64::max);
    let lowest = of_all.fold(f64::INFINITY, f64::min);
    measured.push(name, "highest", highest, Unit::MbPerS);
    measured.push(name, "lowest", lowest, Unit::MbPerS);
    measured.push(
        name,
        "lowest of highest",
        100.0 * lowest / highest,
        Unit::SharePct,
    );

    let doublings: Vec<(u64, f64)> = speeds
        .iter()
        .copied()
        .filter(|(interval, _)| interval.is_power_of_two())
        .collect();
    let steps: Vec<(u64, f64)> = doublings
        .windows(2)
        .filter(|two| two[1].1 < A_STEP * two[0].1)
        .map(|two| (two[1].0, 100.0 * (1.0 - two[1].1 / two[0].1)))
        .collect();
    let [first, later @ ..] = &steps[..] else {
        return;
    };
    let Some(last) = later.last() else {
        return;
    };
    // At the first step, every second granule is left out.
    measured.push(name, "granule", (first.0 / 2 / KIB) as f64, Unit::Kib);
    measured.push(name, "stripe", (last.0 / KIB) as f64, Unit::Kib);
    // The paper counts the losses from the first step on.
    let losses = later.iter().map(|(_, loss)| *loss);
    let least = losses.clone().fold(f64::INFINITY, f64::min);
    let most = losses.fold(0.0, f64::max);
    measured.push(name, "least loss at a doubling", least, Unit::SharePct);
    measured.push(name, "most loss at a doubling", most, Unit::SharePct);
}
