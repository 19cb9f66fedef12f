//! What a plan does to the time of all reads of a profile, or why that cannot be told.

use super::{Calibration, IDLE, Queue, Service};
use crate::priority::finite;

/// An error of the time saved beyond this part of the time of all reads is too much to tell anything.
const MOST: f64 = 0.1;

/// Number of standard errors that the range of a prediction has to each side: 95 of 100 are inside, if
/// the model holds.
const WIDE: f64 = 2.0;

/// Contiguous ranges that a measurement of the device needs: fewer would be in its caches soon.
pub const FEWEST_CONTIGUOUS: usize = 32;

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

/// The times hold weights, but not what a plan does to the time of all reads.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CannotPredict {
    /// It is not known how many requests were in flight.
    #[error(
        "the profile does not say how many requests were in flight, so the time that fragments cost other reads is not known (--calibrate measures it)"
    )]
    QueueUnknown,
    /// Reads waited for each other.
    #[error(
        "reads found {ahead:.1} requests of others in flight, and what these wait for without fragments only the device can tell (--calibrate measures it)"
    )]
    Busy {
        /// The mean number of requests.
        ahead: f64,
    },
    /// No contiguous ranges, or none that can be read.
    #[error(
        "--calibrate needs at least {FEWEST_CONTIGUOUS} ranges of the profile that can be read with O_DIRECT and are contiguous"
    )]
    NothingToRead,
    /// The device answers too slowly to be asked.
    #[error("--calibrate was given up: within {seconds} s the device did not answer enough reads")]
    TooSlow {
        /// The time that it had.
        seconds: u64,
    },
    /// More than a few reads failed.
    #[error("--calibrate was given up: reads of the profile's files failed")]
    ReadsFail,
    /// The system allows no more threads.
    #[error("--calibrate was given up: the system allows no {readers} threads to read with")]
    NoThreads {
        /// Their number.
        readers: u32,
    },
    /// It was asked to stop.
    #[error("stopped before the device was asked")]
    Stopped,
    /// The device is not as it was.
    #[error(
        "the reads of the profile now take {factor:.1} times {} than in the trace; trace again, or calibrate under the same conditions",
        if *slower { "longer" } else { "less" }
    )]
    Changed {
        /// The factor.
        factor: f64,
        /// Whether they take longer.
        slower: bool,
    },
    /// The times scatter too much.
    #[error(
        "the times scatter: the plan saves {saved:.0} % of the time, or {error:.0} points more or less; trace for longer"
    )]
    Unclear {
        /// The percentage saved.
        saved: f64,
        /// Its error.
        error: f64,
    },
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
}

impl Calibration {
    /// Whether reads waited for each other, so that the weights do not tell what they take without
    /// fragments.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.weights.mean_ahead > IDLE
    }

    /// What a plan does that saves `saved_ns` by the weights, as a part of what fragments cost in all;
    /// with what was measured of the device, if anything was.
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
        let (saved_ns, error_ns) = match (service, self.queue) {
            (Some(service), _) => {
                let whole = of.now_ns * (1.0 - service.ratio);
                let measured = of.now_ns * service.ratio * service.error * share;
                // The less of it moves, the more depends on the weights.
                let modelled = whole * share * (1.0 - share) * self.cost_error;
                (whole * share, measured + modelled)
            }
            (None, Queue::Unknown) => return Err(CannotPredict::QueueUnknown),
            (None, Queue::Known | Queue::Alike) if self.is_busy() => {
                let ahead = self.weights.mean_ahead;
                return Err(CannotPredict::Busy { ahead });
            }
            (None, _) => (saved_ns, self.cost_error * saved_ns),
        };
        let predicted = Prediction {
            reads: of.reads,
            now_ns: of.now_ns,
            saved_ns: finite(saved_ns).min(of.now_ns),
            error_ns: finite(WIDE * error_ns),
        };
        match predicted.error_ns > MOST * of.now_ns {
            true => Err(CannotPredict::Unclear {
                saved: predicted.saved_pct(),
                error: predicted.error_pct(),
            }),
            false => Ok(predicted),
        }
    }
}
