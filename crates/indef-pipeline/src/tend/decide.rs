//! What is worth moving of a plan, and the days that its reads stand for. Pure: no file system, no clock.

use std::time::Duration;

use indef_core::{
    SkipReason,
    plan::{FilePlan, PlanOptions, SavedBy, Terms, Weight, keep_paying},
};

use super::decision::{Decision, Outlook};
use crate::{decay::Decay, plan::Planned};

/// A shorter time of reads stands for this one: a few minutes do not tell what a day is like.
const LEAST_OBSERVED: Duration = Duration::from_secs(3600);
const DAY_S: f64 = 24.0 * 3600.0;

/// A plan after the decision.
#[derive(Debug)]
pub struct Decided {
    /// The decision.
    pub outlook: Outlook,
    /// The options of the plan.
    pub options: PlanOptions,
    /// Files of which something is worth moving, the best gain for each byte first.
    pub files: Vec<FilePlan>,
}

/// Keep what pays back of a plan whose reads stand for `days`.
#[must_use]
pub fn decide(planned: Planned, terms: &Terms, days: f64) -> Decided {
    let by = saved_by(&planned);
    let Planned {
        options,
        mut files,
        mut skipped,
        nothing_to_gain,
        ..
    } = planned;
    if let Some(why) = nothing_to_gain {
        return Decided {
            outlook: Outlook {
                decision: Decision::NoCost(why.to_string()),
                skipped,
                observed_days: days,
            },
            options,
            files: Vec::new(),
        };
    }
    let paying = keep_paying(&mut files, terms, days, by);
    files.retain(|file| {
        let moves = file.migrating().next().is_some();
        if !moves {
            *skipped.entry(SkipReason::PaysTooLate).or_default() += 1;
        }
        moves
    });
    files.sort_by(|a, b| gain_per_byte(b).total_cmp(&gain_per_byte(a)));
    Decided {
        outlook: Outlook::of(files.len() as u64, paying, terms, skipped, days),
        options,
        files,
    }
}

/// The days that a profile stands for: the time of each trace, and how long ago it ended, by which it is worth as
/// little as its counts by now. A `half_life` of zero: counts keep their worth.
#[must_use]
pub fn observed_days(
    traces: impl IntoIterator<Item = (Duration, Duration)>,
    half_life: Duration,
) -> f64 {
    let decay = match half_life.is_zero() {
        true => Decay::NONE,
        false => Decay::half_life(half_life),
    };
    let worth = |(traced, ago): (Duration, Duration)| traced.as_secs_f64() * decay.factor(ago);
    let seconds: f64 = traces.into_iter().map(worth).sum();
    seconds.max(LEAST_OBSERVED.as_secs_f64()) / DAY_S
}

fn gain_per_byte(file: &FilePlan) -> f64 {
    file.gain() / file.cost().get().max(1) as f64
}

/// In which quantity the gain of a plan is. How much faster a busy device would be is not known.
fn saved_by(planned: &Planned) -> SavedBy {
    let is_busy = matches!(&planned.calibration, Some(Ok(found)) if found.is_busy());
    match planned.options.weight {
        Weight::Measured(_) if !is_busy => SavedBy::Time,
        Weight::Probed(_) => SavedBy::Time,
        Weight::Measured(_) | Weight::Paper | Weight::Device(_) => SavedBy::Requests,
    }
}
