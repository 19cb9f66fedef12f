//! InDeF, Figure 14 with F2FS in a guest: the time that a defragmentation takes.

use super::{
    error::FigureError,
    indef_fig14_guest::{Works, measure_of},
    measured::{Measured, Unit, changes},
    parameters::Parameters,
    turn::Turn,
};

/// See the module.
pub(super) fn measure(parameters: &Parameters, turn: &Turn<'_>) -> Result<Measured, FigureError> {
    measure_of(parameters, turn, rows)
}

fn rows(measured: &mut Measured, works: &Works<'_>) {
    let workload = works.workload;
    let mut push = |series: &str, values: &[f64], unit: Unit| {
        measured.push_runs(series, workload, values, unit);
    };
    let times = works.of(|cost| Some(cost.elapsed_ns as f64 / 1e9));
    let [(_, ours), (_, theirs)] = &times;
    push("InDeF", &changes(ours, theirs), Unit::ChangePct);
    for (series, times) in &times {
        push(&format!("{series}, time"), times, Unit::Seconds);
    }
    for (series, times) in works.of(|cost| Some(cost.one_by_one_ns as f64 / 1e9)) {
        let series = format!("{series}, time without any overlap");
        push(&series, &times, Unit::Seconds);
    }
    for (series, times) in works.of(|cost| Some(cost.elapsed_ns as f64 / cost.bound_ns)) {
        let series = format!("{series}, time ÷ least for its data");
        push(&series, &times, Unit::Times);
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{class::compare, indef_fig14_guest::rows_of_sample, source::Figure},
        *,
    };

    #[test]
    fn the_time_is_told_against_the_conventional_tools() {
        let measured = rows_of_sample(rows);
        let at = |series: &str| measured.at(series, &"fileserver".into()).unwrap().ours;
        assert_eq!(at("InDeF"), -90.0);
        assert_eq!(at("conventional, time"), 10.0);
        assert_eq!(at("InDeF, time without any overlap"), 2.0);
        assert_eq!(at("InDeF, time ÷ least for its data"), 2.0);
        let figure = Figure::load(source_tree::root(), "indef/fig14-guest-elapsed").unwrap();
        compare(&figure, Some(&measured)).unwrap();
    }
}
