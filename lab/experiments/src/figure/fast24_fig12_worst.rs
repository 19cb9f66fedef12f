//! FAST'24, Figure 12, worst case: every granule on one die, without and with the hints.

use super::{
    error::FigureError,
    fast24::{profile, target, without_host},
    measured::{Measured, Unit},
    parameters::Parameters,
};
use crate::fast24::placement::{Change, Target};

/// See the module.
pub(super) fn measure(parameters: &Parameters) -> Result<Measured, FigureError> {
    let target = target(parameters, profile(parameters.text("device")?)?)?;
    let mut measured = speeds(&target);
    measured.add_sensitivity("per_call", "0", speeds(&without_host(&target)));
    Ok(measured)
}

fn speeds(target: &Target) -> Measured {
    let mut measured = Measured::default();
    measured.push("any", "contiguous", target.contiguous(), Unit::MibPerS);
    for (series, hints) in [("without hints", false), ("with hints", true)] {
        for (x, change) in [("append", Change::Append), ("overwrite", Change::Overwrite)] {
            let speed = target.disturbed(change, target.worst(), hints);
            measured.push(series, x, speed, Unit::MibPerS);
        }
    }
    measured
}

#[cfg(test)]
mod tests {
    use super::super::{fast24_target, source::Figure};

    /// The host's time of a call is the one number that was taken from the result.
    #[test]
    fn the_time_of_a_call_follows_from_the_contiguous_file() {
        let root = source_tree::root();
        let figure = Figure::load(root, "fast24/fig12-worst").unwrap();
        let taken = figure.published.iter().find(|value| value.taken).unwrap();
        let target = fast24_target(root).unwrap();
        assert_eq!(target.cost_of_a_call(taken.value), target.per_call);
        // It must be small beside the time that it is added to.
        assert!((20_000..120_000).contains(&target.per_call.0));
    }
}
