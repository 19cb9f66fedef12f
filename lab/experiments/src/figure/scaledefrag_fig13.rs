//! ScaleDefrag, Figure 13: up to 64 defraggers on a SATA SSD; Figure 14 has the same on another drive.

use super::{
    error::FigureError,
    measured::{Measured, Unit},
    parameters::Parameters,
    scaledefrag::{FREE, System, Way, Workload, defraggers},
};

/// See the module.
pub(super) fn measure(parameters: &Parameters) -> Result<Measured, FigureError> {
    let mut free = FREE.to_vec();
    free.push("workload");
    let mut measured = parameters.measure(&free, at_most)?;
    measured.rows = curves(parameters)?.rows;
    Ok(measured)
}

/// The last point of the curve: as much as is told of other values of what is free.
fn at_most(parameters: &Parameters) -> Result<Measured, FigureError> {
    let system = System::new(parameters)?;
    let workload = Workload::named(parameters.text("workload")?)?;
    let mut measured = Measured::default();
    if let Some(&count) = defraggers(parameters)?.last() {
        let e4defrag = system.work(workload, Way::E4DEFRAG)?.throughput();
        let most = system.work(workload, Way::scaledefrag(count))?.throughput();
        measured.push("ScaleDefrag", count as f64, most / e4defrag, Unit::Times);
    }
    Ok(measured)
}

fn curves(parameters: &Parameters) -> Result<Measured, FigureError> {
    let system = System::new(parameters)?;
    let workload = Workload::named(parameters.text("workload")?)?;
    let throughput = |way| Ok::<_, FigureError>(system.work(workload, way)?.throughput());
    let e4defrag = throughput(Way::E4DEFRAG)?;
    let mut measured = Measured::default();
    let mut before: Option<f64> = None;
    for count in defraggers(parameters)? {
        let x = count as f64;
        let now = throughput(Way::scaledefrag(count))?;
        measured.push("ScaleDefrag", x, now / e4defrag, Unit::Times);
        if let Some(before) = before.replace(now) {
            let series = "ScaleDefrag, × that of the number before";
            measured.push(series, x, now / before, Unit::Times);
        }
        let parallel = throughput(Way::parallel(count))?;
        measured.push("PD alone", x, parallel / e4defrag, Unit::Times);
    }
    Ok(measured)
}
