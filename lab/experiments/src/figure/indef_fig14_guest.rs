//! InDeF, Figure 14 with F2FS in a guest: how busy the chips are while data migrates, and how long it takes.

use super::{
    error::FigureError,
    in_guest::aged::{Rig, Runs},
    indef::WORKLOADS,
    measured::Measured,
    parameters::Parameters,
    turn::Turn,
};
use crate::{cost::Cost, way::Way};

/// The work of InDeF and of the conventional tool on a workload's files.
pub(super) struct Works<'a> {
    pub(super) workload: &'static str,
    runs: &'a Runs,
    indef: Way,
}

impl Works<'_> {
    /// The series, and for each a value of its cost, run by run.
    pub(super) fn of(&self, value: impl Fn(&Cost) -> Option<f64>) -> [(&'static str, Vec<f64>); 2] {
        [("InDeF", self.indef), ("conventional", Way::Conventional)].map(|(series, way)| {
            let values = self.runs.of(way, |_, it| value(it.cost.as_ref()?));
            (series, values)
        })
    }
}

/// The figure with these rows.
pub(super) fn measure_of(
    parameters: &Parameters,
    turn: &Turn<'_>,
    rows: fn(&mut Measured, &Works<'_>),
) -> Result<Measured, FigureError> {
    let mut measured = Measured::default();
    for (personality, _) in WORKLOADS {
        let truncate = parameters.number(&format!("truncate_{personality}"))? as u32;
        let rig = Rig::of_indef(parameters, personality, truncate)?;
        let runs = Runs::measure(&rig, turn)?;
        let works = Works {
            workload: personality.name(),
            runs: &runs,
            indef: Way::Indef { truncate },
        };
        rows(&mut measured, &works);
    }
    Ok(measured)
}

#[cfg(test)]
pub(super) fn rows_of_sample(rows: fn(&mut Measured, &Works<'_>)) -> Measured {
    use super::in_guest::aged::sample;

    let indef = Way::Indef { truncate: 30 };
    let mut measured = Measured::default();
    for (personality, _) in WORKLOADS {
        let works = Works {
            workload: personality.name(),
            runs: &sample::runs(indef),
            indef,
        };
        rows(&mut measured, &works);
    }
    measured
}
