//! What is worth moving of a plan, and the days that its reads stand for. Pure: no file system, no clock.

use std::time::Duration;

use indef_core::{
    SkipReason,
    calibrate::CannotCalibrate,
    plan::{Beliefs, FilePlan, PlanOptions, SavedBy, Terms, Weight, keep_paying},
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
    /// In which quantity they save.
    pub by: SavedBy,
}

/// The terms where a request that is saved counts as no more than the timed reads of this plan show that one takes.
#[must_use]
pub fn terms_of(planned: &Planned, terms: &Terms) -> Terms {
    let most = planned.request_ns.map(|ns| ns / 1e9);
    most.map_or(*terms, |most| terms.with_request_seconds(most))
}

/// Keep what pays back of a plan whose reads stand for `days`; `terms` are those of [`terms_of`] it.
#[must_use]
pub fn decide(planned: Planned, terms: &Terms, days: f64, beliefs: &Beliefs<'_>) -> Decided {
    let by = saved_by(&planned);
    let Planned {
        options,
        mut files,
        mut skipped,
        nothing_to_gain,
        calibration,
        ..
    } = planned;
    let stays = match (nothing_to_gain, &calibration, &options.weight) {
        (Some(why), ..) => Some(Decision::NoCost(why.to_string())),
        // The price in requests would be a guess where times were seen that contradict none.
        (None, Some(Err(why @ CannotCalibrate::Unclear { .. })), Weight::Paper) => {
            Some(Decision::Unclear(why.to_string()))
        }
        _ => None,
    };
    if let Some(decision) = stays {
        return Decided {
            outlook: Outlook {
                decision,
                skipped,
                observed_days: days,
                given: beliefs.given,
            },
            options,
            files: Vec::new(),
            by,
        };
    }
    let paying = keep_paying(&mut files, terms, days, by, beliefs);
    files.retain(|file| {
        let moves = file.migrating().next().is_some();
        if !moves {
            *skipped.entry(SkipReason::PaysTooLate).or_default() += 1;
        }
        moves
    });
    files.sort_by(|a, b| gain_per_byte(b).total_cmp(&gain_per_byte(a)));
    Decided {
        outlook: Outlook {
            given: beliefs.given,
            ..Outlook::of(files.len() as u64, paying, terms, skipped, days)
        },
        options,
        files,
        by,
    }
}

/// The days that a profile stands for: the time of each trace, and how long ago it ended, by which it is worth as
/// little as its counts by now. A `half_life` of zero: counts keep their worth.
#[must_use]
pub fn observed_days(
    traces: impl IntoIterator<Item = (Duration, Duration)>,
    half_life: Duration,
) -> f64 {
    worth_days(traces, half_life).max(LEAST_OBSERVED.as_secs_f64() / DAY_S)
}

/// The same however short that is: for what is counted within these traces alone.
#[must_use]
pub fn worth_days(
    traces: impl IntoIterator<Item = (Duration, Duration)>,
    half_life: Duration,
) -> f64 {
    let decay = Decay::of(half_life);
    let worth = |(traced, ago): (Duration, Duration)| traced.as_secs_f64() * decay.factor(ago);
    traces.into_iter().map(worth).sum::<f64>() / DAY_S
}

/// The variance of a count ÷ the count, where each read of these traces is worth as much as they are by now: 1 where all are
/// fresh (Poisson), less where counts have faded, as their fractions scatter less.
#[must_use]
pub fn noise_of(
    traces: impl IntoIterator<Item = (Duration, Duration)>,
    half_life: Duration,
) -> f64 {
    let decay = Decay::of(half_life);
    let (mut sum, mut squares) = (0.0, 0.0);
    for (traced, ago) in traces {
        let worth = decay.factor(ago);
        sum += traced.as_secs_f64() * worth;
        squares += traced.as_secs_f64() * worth * worth;
    }
    if sum > 0.0 { squares / sum } else { 1.0 }
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

#[cfg(test)]
mod tests {
    use units::Bytes;

    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn faded_counts_scatter_less() {
        let week = 168 * HOUR;
        let one = |age: Duration| [(HOUR, age)];
        assert_eq!(noise_of(one(Duration::ZERO), week), 1.0);
        assert_eq!(noise_of(one(week), week), 0.5);
        assert_eq!(noise_of(one(week), Duration::ZERO), 1.0);
        assert_eq!(noise_of([], week), 1.0);
        // A trace an hour for ever: ∫ w² ÷ ∫ w = ½.
        let noise = noise_of((0..10_000).map(|ago| (HOUR, ago * HOUR)), week);
        assert!((noise - 0.5).abs() < 0.01, "{noise}");
    }

    #[test]
    fn little_time_is_a_day_of_its_own_only_where_rates_follow_from_it() {
        assert_eq!(worth_days([], HOUR), 0.0);
        assert_eq!(observed_days([], HOUR), 1.0 / 24.0);
        assert_eq!(worth_days([(24 * HOUR, HOUR)], HOUR), 0.5);
    }

    /// Before times give weights, a request counts as what the price in time and the guess of its price say: 100 µs. Not on a
    /// drive of which a few reads have shown that it takes less.
    #[test]
    fn a_request_counts_as_no_more_than_timed_reads_show() {
        let terms = Terms::default();
        let needed = |request_ns| {
            let planned = Planned {
                request_ns,
                ..Planned::default()
            };
            terms_of(&planned, &terms).price(Bytes::gib(1), SavedBy::Requests)
        };
        assert_eq!(needed(None), 300_000.0);
        assert_eq!(needed(Some(1e6)), 300_000.0);
        let of_fast = needed(Some(5e3)) * 5e-6;
        let in_time = terms.price(Bytes::gib(1), SavedBy::Time);
        assert!((of_fast / in_time - 1.0).abs() < 1e-9, "{of_fast}");
    }

    #[test]
    fn nothing_moves_while_times_say_neither_yes_nor_no() {
        let unclear = || Planned {
            calibration: Some(Err(CannotCalibrate::Unclear { at_most_pct: 40 })),
            ..Planned::default()
        };
        let decide = |planned| decide(planned, &Terms::default(), 1.0, &Beliefs::TRUSTING);
        let decided = decide(unclear()).outlook.decision;
        assert_eq!(decided.as_str(), "unclear");
        assert!(decided.to_string().contains("40 %"), "{decided}");
        // A probe of the drive knows what fragments cost.
        let mut probed = unclear();
        probed.options.weight = Weight::Device(Default::default());
        assert_ne!(decide(probed).outlook.decision.as_str(), "unclear");
    }
}
