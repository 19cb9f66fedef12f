//! FAST'24, Figure 11: appends and overwrites that meet on one die, and the approach imitated by dummy writes
//! of a whole stripe.

use super::{
    error::FigureError,
    fast24::{profile, target},
    measured::{Measured, Unit},
    parameters::Parameters,
};
use crate::fast24::{
    device::stripe,
    placement::{Change, Dummy},
};

/// See the module.
pub(super) fn measure(parameters: &Parameters) -> Result<Measured, FigureError> {
    let mut measured = Measured::default();
    for (name, device) in [("NVMe-A", "device_a"), ("NVMe-B", "device_b")] {
        let target = target(parameters, profile(parameters.text(device)?)?)?;
        let whole = target.contiguous();
        let next = Dummy::Fixed(stripe(&target.profile));
        for (x, change, dummy) in [
            ("appends", Change::Append, target.worst()),
            ("appends, approach", Change::Append, next),
            ("overwrites", Change::Overwrite, target.worst()),
            ("overwrites, approach", Change::Overwrite, next),
        ] {
            let left = target.disturbed(change, dummy, false) / whole;
            measured.push(name, x, 100.0 * (left - 1.0), Unit::ChangePct);
        }
    }
    Ok(measured)
}
