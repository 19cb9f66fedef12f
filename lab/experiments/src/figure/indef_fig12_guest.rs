//! InDeF, Figure 12 with F2FS in a guest: aged files, read again after three defragmenters, and the data that these move.

use workloads::filebench::Personality;

use super::{
    error::FigureError,
    in_guest::aged::{Rig, Runs},
    measured::{Measured, Unit, changes},
    parameters::Parameters,
    turn::Turn,
};
use crate::way::Way;

/// The figure of a workload.
pub(super) fn measure_of(
    parameters: &Parameters,
    personality: Personality,
    turn: &Turn<'_>,
) -> Result<Measured, FigureError> {
    let truncate = parameters.number("truncate")? as u32;
    let rig = Rig::of_indef(parameters, personality, truncate)?;
    let runs = Runs::measure(&rig, turn)?;
    Ok(rows(&runs, Way::Indef { truncate }))
}

fn rows(runs: &Runs, indef: Way) -> Measured {
    let mut measured = Measured::default();
    let ways = [
        ("InDeF", indef),
        ("conventional", Way::Conventional),
        ("FragPicker", Way::FragPicker),
    ];
    for (series, way) in ways {
        let gains = runs.of(way, |run, it| Some(it.read_gain_pct(&run.before)));
        let x = "grep throughput, from before";
        measured.push_runs(series, x, &gains, Unit::ChangePct);
    }
    let moved = |way| runs.of(way, |_, it| Some(it.moved_bytes as f64));
    for (series, way, other, than) in [
        ("InDeF", indef, "FragPicker", Way::FragPicker),
        ("InDeF", indef, "conventional", Way::Conventional),
        (
            "FragPicker",
            Way::FragPicker,
            "conventional",
            Way::Conventional,
        ),
    ] {
        let x = format!("data moved, from {other}");
        let less = changes(&moved(way), &moved(than));
        measured.push_runs(series, x.as_str(), &less, Unit::ChangePct);
    }
    for (series, way) in ways {
        let pieces = runs.of(way, |_, it| Some(it.after.dolf));
        measured.push_runs(series, "pieces of a read", &pieces, Unit::Count);
    }
    let mut aged = |x: &str, unit, values: Vec<f64>| measured.push_runs("aged", x, &values, unit);
    let before = runs.iter().map(|run| run.before.dolf);
    aged("pieces of a read", Unit::Count, before.collect());
    let before = runs.iter().map(|run| run.before.contiguous_pct);
    aged(
        "data in reads of one piece",
        Unit::SharePct,
        before.collect(),
    );
    let first = runs.iter().map(|run| run.aged.first_pct());
    aged(
        "data that was there before the flows",
        Unit::SharePct,
        first.collect(),
    );
    measured
}

#[cfg(test)]
mod tests {
    use super::{
        super::{class::compare, in_guest::aged::sample, source::Figure},
        *,
    };

    #[test]
    fn gains_are_of_speeds_and_data_is_told_against_the_others() {
        let indef = Way::Indef { truncate: 30 };
        let measured = rows(&sample::runs(indef), indef);
        let at = |series: &str, x: &str| {
            let row = measured.at(series, &x.into());
            row.unwrap_or_else(|| panic!("{series} {x}")).ours
        };
        assert_eq!(at("InDeF", "grep throughput, from before"), 100.0);
        assert_eq!(at("InDeF", "data moved, from FragPicker"), -25.0);
        assert_eq!(at("InDeF", "data moved, from conventional"), -40.0);
        assert_eq!(at("FragPicker", "data moved, from conventional"), -20.0);
        assert_eq!(at("aged", "pieces of a read"), 5.0);
        assert_eq!(at("conventional", "pieces of a read"), 2.5);
        assert_eq!(at("aged", "data in reads of one piece"), 20.0);
        assert_eq!(at("aged", "data that was there before the flows"), 10.0);
        for name in ["indef/fig12-guest-fileserver", "indef/fig12-guest-varmail"] {
            let figure = Figure::load(source_tree::root(), name).unwrap();
            compare(&figure, Some(&measured)).unwrap();
        }
    }
}
