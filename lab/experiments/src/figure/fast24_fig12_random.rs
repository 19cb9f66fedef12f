//! FAST'24, Figure 12, random case: granules anywhere, without and with the hints.

use super::{
    error::FigureError,
    fast24::{profile, target, without_host},
    measured::{Measured, Unit},
    parameters::Parameters,
};
use crate::fast24::placement::{Change, Dummy, Target};

const CASES: [(&str, &str, Change, bool); 4] = [
    ("without hints", "append", Change::Append, false),
    ("without hints", "overwrite", Change::Overwrite, false),
    ("with hints", "append", Change::Append, true),
    ("with hints", "overwrite", Change::Overwrite, true),
];

/// See the module.
pub(super) fn measure(parameters: &Parameters) -> Result<Measured, FigureError> {
    let target = target(parameters, profile(parameters.text("device")?)?)?;
    let mut measured = speeds(&target);
    measured.add_sensitivity("per_call", "0", speeds(&without_host(&target)));
    let others = parameters.count("other_draws")?;
    let mut drawn = [
        Measured::default(),
        Measured::default(),
        Measured::default(),
    ];
    for (series, x, change, hints) in CASES {
        let speed = |seed| target.disturbed(change, Dummy::Drawn(seed), hints);
        let speeds: Vec<f64> = (0..others).map(speed).collect();
        let least = speeds.iter().copied().fold(f64::INFINITY, f64::min);
        let most = speeds.iter().copied().fold(0.0, f64::max);
        let mean = speeds.iter().sum::<f64>() / others as f64;
        for (all, value) in drawn.iter_mut().zip([least, mean, most]) {
            all.push(series, x, value, Unit::MibPerS);
        }
    }
    for (all, which) in drawn.into_iter().zip(["least", "mean", "most"]) {
        measured.add_sensitivity("other_draws", &format!("{which} of {others}"), all);
    }
    Ok(measured)
}

fn speeds(target: &Target) -> Measured {
    let mut measured = Measured::default();
    for (series, x, change, hints) in CASES {
        let speed = target.disturbed(change, Dummy::Published, hints);
        measured.push(series, x, speed, Unit::MibPerS);
    }
    measured
}
