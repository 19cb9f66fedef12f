//! The effect of a plan on the time of all reads of a profile, or why it cannot be predicted.

use super::{Calibration, CannotPredict, IDLE, Queue, Ratio, Service};
use crate::priority::finite;

/// An error of the time saved beyond this part of the time of all reads is too much to tell anything.
const MOST: f64 = 0.1;

/// Number of standard errors that the range of a prediction has to each side: 95 of 100 are inside, if
/// the model holds.
const WIDE: f64 = 2.0;

/// The time of all reads of a profile now, and with a plan carried out, under the same load: as many
/// readers, each of which waits for its read before it begins the next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prediction {
    /// Reads.
    pub reads: u64,
    /// Their time now.
    pub now_ns: f64,
    /// The time that the plan saves.
    pub saved_ns: f64,
    /// It may save as much less or more.
    pub error_ns: f64,
    /// The part of the reads that go to ranges which the trace did not see: no plan moves these.
    pub unseen: f64,
}

impl Prediction {
    /// The percentage of the time that is saved.
    #[must_use]
    pub fn saved_pct(&self) -> f64 {
        part(self.saved_ns, self.now_ns) * 100.0
    }

    /// The error of that, in points.
    #[must_use]
    pub fn error_pct(&self) -> f64 {
        part(self.error_ns, self.now_ns) * 100.0
    }
}

fn part(of: f64, whole: f64) -> f64 {
    match whole > 0.0 {
        true => (of / whole).clamp(0.0, 1.0),
        false => 0.0,
    }
}

/// The reads of a profile, by the model.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Reads {
    /// Their number.
    pub reads: u64,
    /// Their time, as traced.
    pub now_ns: f64,
    /// The time that their fragments cost in all.
    pub excess_ns: f64,
    /// How many of them go to ranges that the trace did not see, where it did not count every access. These
    /// are not in the profile, and no plan moves them.
    pub unseen: f64,
    /// The variance of that.
    pub unseen_variance: f64,
}

impl Reads {
    /// The same, with the time of whole calls, as the device was asked for it.
    fn as_calls(&self, service: &Service) -> Self {
        Self {
            now_ns: finite(self.now_ns * service.calls),
            ..*self
        }
    }

    /// The part of them that go to ranges of the profile, and its standard error.
    fn seen(&self) -> (f64, f64) {
        let reads = self.reads as f64;
        let error = finite(self.unseen_variance.sqrt() / reads);
        (1.0 - part(self.unseen, reads), error)
    }

    /// What a plan does that saves this much, with its standard error, if the trace saw all of them.
    fn without(&self, (saved_ns, error_ns): (f64, f64)) -> Result<Prediction, CannotPredict> {
        let (seen, seen_error) = self.seen();
        let error_ns = (error_ns * seen).hypot(saved_ns * seen_error);
        let predicted = Prediction {
            reads: self.reads,
            now_ns: self.now_ns,
            saved_ns: finite(saved_ns * seen).min(self.now_ns),
            error_ns: finite(WIDE * error_ns),
            unseen: 1.0 - seen,
        };
        match predicted.error_ns > MOST * self.now_ns {
            true => Err(CannotPredict::Unclear {
                saved: predicted.saved_pct(),
                error: predicted.error_pct(),
            }),
            false => Ok(predicted),
        }
    }
}

/// The time that is saved by calls which take this part of theirs, and its standard error.
fn saved_by(of: &Reads, ratio: &Ratio) -> (f64, f64) {
    let left = of.now_ns * ratio.ratio;
    (of.now_ns - left, left * ratio.error)
}

/// The mean of two estimates with their standard errors, by these.
fn together(one: (f64, f64), other: (f64, f64)) -> (f64, f64) {
    let weight = |(_, error): (f64, f64)| 1.0 / (error * error).max(f64::MIN_POSITIVE);
    let (of_one, of_other) = (weight(one), weight(other));
    let part = of_one / (of_one + of_other);
    (
        part * one.0 + (1.0 - part) * other.0,
        (1.0 / (of_one + of_other)).sqrt(),
    )
}

impl Calibration {
    /// Whether reads waited for each other, so that the weights do not tell what they take without
    /// fragments.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.weights.mean_ahead > IDLE
    }

    /// The effect of a plan that saves `saved_ns` by the weights, as a part of what fragments cost in all;
    /// with what was measured of the device, for this plan as well or only without any fragments, if anything was. Reads of ranges that the trace did not see
    /// stay as slow as they are.
    ///
    /// # Errors
    ///
    /// The reason for which that cannot be told.
    pub fn predict(
        &self,
        of: &Reads,
        saved_ns: f64,
        service: Option<&Service>,
    ) -> Result<Prediction, CannotPredict> {
        let share = part(saved_ns, of.excess_ns);
        let of = &service.map_or(*of, |service| of.as_calls(service));
        let (saved_ns, error_ns) = match (service, self.queue) {
            (Some(service), _) => {
                let (of_all, its_error) = saved_by(of, &service.contiguous);
                let measured = its_error * share;
                let (saved_ns, error_ns) = match service.planned {
                    // The less of it moves, the more depends on the weights.
                    None => {
                        let modelled = of_all * share * (1.0 - share) * self.cost_error;
                        (of_all * share, measured + modelled)
                    }
                    // Whose requests wait for whose, the weights do not know: of what the others cost, any part may be
                    // due to those that move.
                    Some(planned) => {
                        let modelled = of_all * share * (1.0 - share);
                        let by_weights = (of_all * share, measured + modelled);
                        together(by_weights, saved_by(of, &planned))
                    }
                };
                (saved_ns, error_ns)
            }
            (None, Queue::Unknown) => return Err(CannotPredict::QueueUnknown),
            (None, Queue::Known | Queue::Alike) if self.is_busy() => {
                let ahead = self.weights.mean_ahead;
                return Err(CannotPredict::Busy { ahead });
            }
            (None, _) => (saved_ns, self.cost_error * saved_ns),
        };
        of.without((saved_ns, error_ns))
    }
}

impl Service {
    /// The effect of the plan that the device was asked about, or of moving all, by its answer alone: where the times of the
    /// reads do not tell what a fragment costs.
    ///
    /// # Errors
    ///
    /// The device's times scatter too much.
    pub fn predict(&self, of: &Reads) -> Result<Prediction, CannotPredict> {
        let of = &of.as_calls(self);
        of.without(saved_by(of, &self.planned.unwrap_or(self.contiguous)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_device_alone_tells_what_times_do_not() {
        let of = Reads {
            reads: 100,
            now_ns: 1000.0,
            unseen: 25.0,
            ..Reads::default()
        };
        let ratio = |ratio, error| Ratio { ratio, error };
        let service = |planned| Service {
            readers: 8.0,
            calls: 1.0,
            contiguous: ratio(0.6, 0.01),
            planned,
        };
        // Whole calls take longer, and their times say what is left of that.
        let calls = Service {
            calls: 1.5,
            ..service(None)
        };
        let whole = calls.predict(&of).unwrap();
        assert!((whole.now_ns - 1500.0).abs() < 1e-9, "{whole:?}");
        assert!((whole.saved_pct() - 30.0).abs() < 1e-9, "{whole:?}");
        // Of what all would save, the quarter of the reads that no plan knows saves nothing.
        let all = service(None).predict(&of).unwrap();
        assert!((all.saved_pct() - 30.0).abs() < 1e-9, "{all:?}");
        assert!(
            (all.error_pct() - WIDE * 0.6 * 0.75).abs() < 1e-9,
            "{all:?}"
        );
        let part = service(Some(ratio(0.8, 0.01))).predict(&of).unwrap();
        assert!((part.saved_pct() - 15.0).abs() < 1e-9, "{part:?}");
        let wild = service(Some(ratio(0.8, 0.2))).predict(&of);
        assert!(
            matches!(wild, Err(CannotPredict::Unclear { .. })),
            "{wild:?}"
        );
    }
}
