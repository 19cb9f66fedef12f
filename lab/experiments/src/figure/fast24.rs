//! The parameters that figures of FAST'24 share.

use std::path::Path;

use flash_model::Profile;
use units::Nanos;

use super::{error::FigureError, parameters::Parameters, source::Figure};
use crate::fast24::{device, placement::Target};

/// A device by its name: `emulated` (Table 2; NVMe-B's stripe), or `32 dies`, the same with NVMe-A's stripe.
pub(super) fn profile(name: &str) -> Result<Profile, FigureError> {
    match name {
        "emulated" => Ok(device::emulated()),
        "32 dies" => Ok(device::with_32_dies()),
        other => Err(FigureError::simulation(format!(
            "FAST'24 has no device '{other}'; there are: emulated, 32 dies"
        ))),
    }
}

/// NVMe-A and NVMe-B, as far as Figure 8 shows them.
pub(super) fn seen_in_figure_8(
    parameters: &Parameters,
) -> Result<[(&'static str, Profile); 2], FigureError> {
    let outside = parameters.time("outside")?.0 as f64 / 1e3;
    let profile = |dies: &str, lowest: &str| {
        let (dies, lowest) = (parameters.count(dies)?, parameters.number(lowest)?);
        Ok::<_, FigureError>(device::seen_in_figure_8(dies, lowest, outside))
    };
    Ok([
        ("NVMe-A", profile("dies_a", "lowest_a")?),
        ("NVMe-B", profile("dies_b", "lowest_b")?),
    ])
}

/// The file that is read, on a device of this profile.
pub(super) fn target(parameters: &Parameters, profile: Profile) -> Result<Target, FigureError> {
    Ok(Target {
        profile,
        file: parameters.bytes("file")?,
        granule: parameters.bytes("granule")?,
        per_call: parameters.time("per_call")?,
    })
}

/// The same, for a host that takes no time.
pub(super) fn without_host(target: &Target) -> Target {
    Target {
        per_call: Nanos(0),
        ..target.clone()
    }
}

/// The file of Figure 12, on the emulated device.
///
/// # Errors
///
/// The figure's file cannot be read.
pub fn fast24_target(root: &Path) -> Result<Target, FigureError> {
    let figure = Figure::load(root, "fast24/fig12-worst")?;
    target(&figure.parameters, device::emulated())
}
