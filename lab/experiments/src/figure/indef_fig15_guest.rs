//! InDeF, Figure 15 with F2FS in a guest: a fileserver while data migrates beside it.

use units::Bytes;
use workloads::filebench::Personality;

use super::{
    error::FigureError,
    in_guest::aged::{Rig, Runs},
    measured::{Measured, Unit},
    parameters::Parameters,
    turn::Turn,
};
use crate::way::Way;

/// See the module.
pub(super) fn measure(parameters: &Parameters, turn: &Turn<'_>) -> Result<Measured, FigureError> {
    let truncate = parameters.number("truncate")? as u32;
    let rig = Rig::of_indef(parameters, Personality::Fileserver, truncate)?;
    let moved = Bytes(parameters.bytes("moved")?);
    let runs = Runs::measure(&rig, turn)?;
    Ok(rows(&runs, Way::Indef { truncate }, moved))
}

/// For so much data that moves.
fn rows(runs: &Runs, indef: Way, moved: Bytes) -> Measured {
    let mut measured = Measured::default();
    for (series, way) in [("InDeF", indef), ("conventional", Way::Conventional)] {
        let mut push = |series: &str, x: &str, values: &[f64], unit: Unit| {
            measured.push_runs(series, x, values, unit);
        };
        let times = runs.of(way, |_, it| {
            let nanoseconds = it.cost.as_ref()?.beside_ns;
            Some(nanoseconds / 1e9 * moved.get() as f64 / it.moved_bytes as f64)
        });
        push(series, "elapsed", &times, Unit::Seconds);
        let lost = runs.of(way, |_, it| Some(it.cost.as_ref()?.load_change_pct()));
        let x = "bandwidth of the fileserver";
        push(series, x, &lost, Unit::ChangePct);
        let alone = runs.of(way, |_, it| {
            let nanoseconds = it.cost.as_ref()?.elapsed_ns as f64;
            Some(nanoseconds / 1e9 * moved.get() as f64 / it.moved_bytes as f64)
        });
        let series = format!("{series}, without the fileserver");
        push(&series, "elapsed", &alone, Unit::Seconds);
    }
    measured
}

#[cfg(test)]
mod tests {
    use super::{
        super::{class::compare, in_guest::aged::sample, source::Figure},
        *,
    };

    #[test]
    fn times_are_of_as_much_data_for_both() {
        let indef = Way::Indef { truncate: 30 };
        let measured = rows(&sample::runs(indef), indef, Bytes::mib(1200));
        let at = |series: &str, x: &str| measured.at(series, &x.into()).unwrap().ours;
        // 2 s for 60 MiB, and 20 s for 100.
        assert_eq!(at("InDeF", "elapsed"), 40.0);
        assert_eq!(at("conventional", "elapsed"), 240.0);
        assert_eq!(at("InDeF, without the fileserver", "elapsed"), 20.0);
        assert_eq!(at("InDeF", "bandwidth of the fileserver"), -20.0);
        let figure = Figure::load(source_tree::root(), "indef/fig15-guest").unwrap();
        compare(&figure, Some(&measured)).unwrap();
    }
}
