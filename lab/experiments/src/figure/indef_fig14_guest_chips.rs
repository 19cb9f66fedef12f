//! InDeF, Figure 14 with F2FS in a guest: how busy the chips are while data migrates.

use super::{
    error::FigureError,
    indef_fig14_guest::{Works, measure_of},
    measured::{Measured, Unit},
    parameters::Parameters,
    turn::Turn,
};

/// See the module.
pub(super) fn measure(parameters: &Parameters, turn: &Turn<'_>) -> Result<Measured, FigureError> {
    measure_of(parameters, turn, rows)
}

fn rows(measured: &mut Measured, works: &Works<'_>) {
    let mut push = |series: &str, busy: &[f64]| {
        measured.push_runs(series, works.workload, busy, Unit::SharePct);
    };
    for (series, busy) in works.of(|cost| Some(cost.busy_pct)) {
        push(series, &busy);
    }
    // The conventional tool has none.
    let [(_, alone), _] = works.of(|cost| Some(cost.moves.as_ref()?.busy_pct));
    push("InDeF, moves alone", &alone);
    let [(_, two), _] = works.of(|cost| Some(cost.moves.as_ref()?.two_busy_pct));
    push("InDeF, two moves under way", &two);
}

#[cfg(test)]
mod tests {
    use super::{
        super::{class::compare, indef_fig14_guest::rows_of_sample, source::Figure},
        *,
    };

    #[test]
    fn chips_are_told_for_all_commands_and_for_moves_alone() {
        let measured = rows_of_sample(rows);
        let rows = measured.rows.iter().take(4);
        let rows: Vec<(&str, f64)> = rows.map(|row| (row.series.as_str(), row.ours)).collect();
        let expected = [
            ("InDeF", 80.0),
            ("conventional", 9.0),
            ("InDeF, moves alone", 85.0),
            ("InDeF, two moves under way", 90.0),
        ];
        assert_eq!(rows, expected);
        let figure = Figure::load(source_tree::root(), "indef/fig14-guest-chips").unwrap();
        compare(&figure, Some(&measured)).unwrap();
    }
}
