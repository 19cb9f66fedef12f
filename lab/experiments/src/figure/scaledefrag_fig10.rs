//! ScaleDefrag, Figure 10: how long it takes to defragment the files of four workloads.

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

/// What the caption says.
fn claims(parameters: &Parameters) -> Result<Measured, FigureError> {
    let system = System::new(parameters)?;
    let defraggers = defraggers(parameters)?;
    let mut measured = Measured::default();
    for workload in Workload::ALL {
        let time = |way| Ok::<_, FigureError>(system.work(workload, way)?.time);
        let e4defrag = time(Way::E4DEFRAG)?;
        let shortest_of_one = e4defrag.min(time(Way::ASYNC)?);
        let mut most_of_others: f64 = 0.0;
        let mut at_most = 1.0;
        for count in &defraggers {
            let scaledefrag = time(Way::scaledefrag(*count))?;
            at_most = scaledefrag / e4defrag;
            if *count > 1 {
                let other = shortest_of_one.min(time(Way::parallel(*count))?);
                most_of_others = most_of_others.max(scaledefrag / other);
            }
        }
        let name = workload.name();
        measured.push("ScaleDefrag", name, at_most, Unit::Times);
        let series = "ScaleDefrag, × the shortest other";
        measured.push(series, name, most_of_others, Unit::Times);
    }
    Ok(measured)
}

fn curves(parameters: &Parameters) -> Result<Measured, FigureError> {
    let system = System::new(parameters)?;
    let mut measured = Measured::default();
    for workload in Workload::ALL {
        let name = workload.name();
        let e4defrag = system.work(workload, Way::E4DEFRAG)?;
        for count in defraggers(parameters)? {
            for (series, way) in [
                ("PD", Way::parallel(count)),
                ("PD + Async", Way::scaledefrag(count)),
            ] {
                let time = system.work(workload, way)?.time / e4defrag.time;
                measured.push(
                    series,
                    format!("{name}, {count}").as_str(),
                    time,
                    Unit::Times,
                );
            }
        }
        let fragments = system.aged(workload)?.fragments;
        measured.push("extents for each MiB", name, fragments, Unit::Count);
        let moved = e4defrag.bytes / f64::from(1 << 20);
        measured.push("data moved", name, moved, Unit::Mib);
        measured.push("e4defrag", name, e4defrag.time, Unit::Seconds);
    }
    Ok(measured)
}
