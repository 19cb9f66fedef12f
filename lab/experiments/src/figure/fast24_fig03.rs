//! FAST'24, Figure 3: a file in more and more fragments, read at two queue depths.

use flash_model::Profile;
use units::Nanos;

use super::{
    error::FigureError,
    fast24::{profile, seen_in_figure_8},
    measured::{Measured, Unit},
    parameters::Parameters,
};
use crate::fast24::{
    device::drive,
    host::{File, Host, MIB},
};

/// Room for the most fragments, and for the writes between them.
const DRIVE: u64 = 4096 * MIB;

/// See the module.
pub(super) fn measure(parameters: &Parameters) -> Result<Measured, FigureError> {
    parameters.measure(&["times"], with_these_times)
}

fn with_these_times(parameters: &Parameters) -> Result<Measured, FigureError> {
    let seen = seen_in_figure_8(parameters)?;
    let devices = match parameters.text("times")? {
        "Table 2" => [
            ("NVMe-A", profile("32 dies")?),
            ("NVMe-B", profile("emulated")?),
        ],
        "Figure 8" => seen,
        other => {
            return Err(FigureError::simulation(format!(
                "there are times of 'Table 2' and of 'Figure 8', none of '{other}'"
            )));
        }
    };
    let mut measured = Measured::default();
    for (name, profile) in devices {
        for depth in parameters.counts("depths")? {
            let series = format!("{name}, depth {depth}");
            let mut whole = None;
            for fragments in parameters.counts("dof")? {
                let time = read(parameters, &profile, fragments, depth)?.0 as f64;
                let whole = *whole.get_or_insert(time);
                measured.push(&series, fragments as f64, time / whole, Unit::Times);
            }
        }
    }
    Ok(measured)
}

/// The time of reading the file in so many fragments.
fn read(
    parameters: &Parameters,
    profile: &Profile,
    fragments: u64,
    depth: u64,
) -> Result<Nanos, FigureError> {
    let bytes = parameters.bytes("file")?;
    let distance = parameters.bytes("distance")?;
    let mut host = Host::new(drive(profile, DRIVE), false, Nanos(0));
    let mut file = File::default();
    let fragment = bytes / fragments;
    for _ in 0..fragments {
        host.append(&mut file, fragment);
        if fragment < distance {
            host.append(&mut File::default(), distance - fragment);
        }
    }
    host.idle();
    let request = parameters.bytes("request")?;
    Ok(host.read_at_depth(&file, request, depth as usize))
}
