//! ScaleDefrag, Figure 11: the data that is moved in a second, of the files of four workloads.

use super::{
    error::FigureError,
    measured::{Measured, Unit},
    parameters::Parameters,
    scaledefrag::{FREE, System, Way, Workload, defraggers},
};

/// See the module.
pub(super) fn measure(parameters: &Parameters) -> Result<Measured, FigureError> {
    let mut measured = parameters.measure(&FREE, claims)?;
    measured.rows.extend(curves(parameters)?.rows);
    Ok(measured)
}

/// The most of any number of defraggers, for each workload and of all. Of files that lie in one piece nothing is moved:
/// no throughput.
fn claims(parameters: &Parameters) -> Result<Measured, FigureError> {
    let system = System::new(parameters)?;
    let mut measured = Measured::default();
    let mut best: f64 = 0.0;
    for workload in Workload::ALL {
        let throughput = |way| Ok::<_, FigureError>(system.work(workload, way)?.throughput());
        let e4defrag = throughput(Way::E4DEFRAG)?;
        if e4defrag == 0.0 {
            continue;
        }
        let mut most: f64 = 0.0;
        for count in defraggers(parameters)? {
            most = most.max(throughput(Way::scaledefrag(count))?);
        }
        let times = most / e4defrag;
        measured.push("ScaleDefrag", workload.name(), times, Unit::Times);
        best = best.max(times);
    }
    measured.push("ScaleDefrag", "best of the workloads", best, Unit::Times);
    Ok(measured)
}

fn curves(parameters: &Parameters) -> Result<Measured, FigureError> {
    let system = System::new(parameters)?;
    let mut measured = Measured::default();
    for workload in Workload::ALL {
        for count in defraggers(parameters)? {
            for (series, way) in [
                ("PD", Way::parallel(count)),
                ("PD + Async", Way::scaledefrag(count)),
            ] {
                let throughput = system.work(workload, way)?.throughput();
                let x = format!("{}, {count}", workload.name());
                measured.push(series, x.as_str(), throughput, Unit::MbPerS);
            }
        }
    }
    Ok(measured)
}
