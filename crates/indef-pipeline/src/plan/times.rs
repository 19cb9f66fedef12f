//! What tells the effect of a plan on the time of reads.

use indef_core::{
    calibrate::{Calibration, CannotCalibrate, CannotPredict, Prediction, Reads, Service},
    plan::Weight,
};

/// By what the effect of a plan on the time of reads is told.
#[derive(Clone, Copy, Debug)]
pub(super) enum TimesBy<'a> {
    /// By weights, and the answer of the device where it is asked.
    Weights(&'a Calibration),
    /// By the answer of the device alone: the times tell no weights.
    Device,
}

impl<'a> TimesBy<'a> {
    /// `None` where nothing tells it; `asks`: the device is asked.
    pub(super) fn of(
        calibration: Option<&'a Result<Calibration, CannotCalibrate>>,
        weight: &Weight,
        asks: bool,
    ) -> Option<Self> {
        match calibration? {
            Ok(found) => Some(Self::Weights(found)),
            // A probe of the drive has told it, of the ranges that move.
            Err(_) if matches!(weight, Weight::Probed(_)) => None,
            Err(CannotCalibrate::Hidden | CannotCalibrate::Unclear { .. }) => {
                asks.then_some(Self::Device)
            }
            Err(_) => None,
        }
    }

    /// The effect on these reads of a plan that saves so much by its weights. `None` where nobody was asked.
    pub(super) fn predict(
        self,
        of: &Reads,
        saved_ns: f64,
        service: Option<Result<Service, CannotPredict>>,
    ) -> Option<Result<Prediction, CannotPredict>> {
        let service = match service.transpose() {
            Ok(service) => service,
            Err(why) => return Some(Err(why)),
        };
        match self {
            Self::Weights(found) => Some(found.predict(of, saved_ns, service.as_ref())),
            Self::Device => service.map(|service| service.predict(of)),
        }
    }
}
