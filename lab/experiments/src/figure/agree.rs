//! Whether a result is as it was committed.
//!
//! In virtual time: equal. On a machine, each row agrees if its median is within the reference's tolerance of the
//! committed one (a change in percent: of what is left of the baseline, 1 + x/100), or if the spreads of both have
//! values in common. Rows of other names are never as committed.

use super::{
    measured::{Measured, Row, linear},
    reference::Reference,
};

/// The tolerance of references that are kept from now on.
pub const TOLERANCE_PCT: f64 = 15.0;

/// What differs from the reference, a line each; nothing: it is as committed.
#[must_use]
pub fn deviations(reference: &Reference, measured: &Measured) -> Vec<String> {
    let Some(conditions) = &reference.conditions else {
        let is_equal = reference.measured == *measured;
        let line = || "not equal, as virtual time has it".to_owned();
        return (!is_equal).then(line).into_iter().collect();
    };
    let committed = &reference.measured;
    let mut lines = Vec::new();
    for row in &committed.rows {
        match measured.at(&row.series, &row.x) {
            None => lines.push(format!("{}, {}: not measured", row.series, row.x)),
            Some(now) if !agrees(row, now, conditions.tolerance_pct) => lines.push(format!(
                "{}, {}: {} {}, committed {} (within {} %, or spreads that meet)",
                row.series, row.x, now.ours, now.unit, row.ours, conditions.tolerance_pct
            )),
            Some(_) => {}
        }
    }
    for row in &measured.rows {
        if committed.at(&row.series, &row.x).is_none() {
            lines.push(format!("{}, {}: not in the reference", row.series, row.x));
        }
    }
    lines
}

fn agrees(committed: &Row, now: &Row, tolerance_pct: f64) -> bool {
    if committed.unit != now.unit {
        return false;
    }
    let [one, other] = [committed, now].map(|row| linear(row.ours, row.unit));
    if (one - other).abs() <= tolerance_pct / 100.0 * one.abs() {
        return true;
    }
    match (committed.spread, now.spread) {
        (Some(one), Some(other)) => one[0] <= other[1] && other[0] <= one[1],
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use figures::Machine;

    use super::*;
    use crate::figure::{Conditions, Unit};

    fn measured(runs: &[f64], unit: Unit) -> Measured {
        let mut measured = Measured::default();
        measured.push_runs("s", "x", runs, unit);
        measured
    }

    fn reference(runs: &[f64], unit: Unit) -> Reference {
        let conditions = Conditions {
            command: "make experiments TIER=M".into(),
            machine: Machine {
                kernel: None,
                processors: Some(2),
                memory_bytes: None,
                is_virtual: None,
                device: None,
                tools: Vec::new(),
            },
            date: "2026-11-27".into(),
            version: None,
            load: Some(0.1),
            loaded: false,
            tolerance_pct: 15.0,
        };
        Reference::new("fragpicker/fig09", measured(runs, unit), Some(conditions))
    }

    #[test]
    fn a_median_near_the_committed_one_agrees() {
        let committed = reference(&[100.0, 99.0, 101.0], Unit::Mb);
        let near = |ours: f64| deviations(&committed, &measured(&[ours; 3], Unit::Mb)).is_empty();
        assert!(near(114.0) && near(86.0));
        assert!(!near(116.0) && !near(84.0));
        // Of changes, what is left counts: −90 % is twice −95 %, and +2 % is near −2 %.
        let change = |from: f64, to: f64| {
            let committed = reference(&[from; 3], Unit::ChangePct);
            deviations(&committed, &measured(&[to; 3], Unit::ChangePct)).is_empty()
        };
        assert!(change(-2.0, 2.0) && change(75.0, 60.0));
        assert!(!change(-90.0, -95.0) && !change(75.0, 40.0));
    }

    #[test]
    fn spreads_that_meet_agree_and_others_are_named() {
        let committed = reference(&[100.0, 80.0, 150.0], Unit::Mb);
        let wide = measured(&[140.0, 160.0, 170.0], Unit::Mb);
        assert!(deviations(&committed, &wide).is_empty());
        let far = measured(&[151.0, 160.0, 170.0], Unit::Mb);
        let lines = deviations(&committed, &far);
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(
            lines[0].starts_with("s, x: 160 MB, committed 100"),
            "{lines:?}"
        );
        assert!(!deviations(&committed, &measured(&[100.0], Unit::Seconds)).is_empty());
    }

    #[test]
    fn the_rows_are_the_same() {
        let committed = reference(&[1.0], Unit::Mb);
        let mut more = measured(&[1.0], Unit::Mb);
        more.push_runs("s", "y", &[1.0], Unit::Mb);
        assert_eq!(
            deviations(&committed, &more),
            ["s, y: not in the reference"]
        );
        assert_eq!(
            deviations(&committed, &Measured::default()),
            ["s, x: not measured"]
        );
    }

    #[test]
    fn virtual_time_is_equal_or_not_as_committed() {
        let mut it = Measured::default();
        it.push("s", "x", 1.0, Unit::Mb);
        let committed = Reference::new("fragpicker/fig09", it.clone(), None);
        assert!(deviations(&committed, &it).is_empty());
        it.rows[0].ours = 1.000_001;
        assert_eq!(deviations(&committed, &it).len(), 1);
    }
}
