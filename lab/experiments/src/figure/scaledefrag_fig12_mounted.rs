//! ScaleDefrag, Figure 12 on a mounted ext4: fio beside a defragmenter.

use super::{
    error::FigureError,
    measured::{Measured, Unit, multiples},
    mounted::many::{Beside, Fio, Setup, beside},
    parameters::Parameters,
    scaledefrag::Workload,
    turn::Turn,
};

/// See the module.
pub(super) fn measure(parameters: &Parameters, turn: &Turn<'_>) -> Result<Measured, FigureError> {
    let setup = Setup::new(parameters)?;
    let fio = Fio::new(parameters)?;
    let mut measured = Measured::default();
    for workload in Workload::ALL {
        let [alone, e4defrag, scaledefrag, indef] = &beside(&setup, &fio, workload, turn)?;
        let mut push = |series: &str, now: &[Beside], then: &[Beside], of: fn(&Beside) -> f64| {
            let [now, then] = [now, then].map(|it| it.iter().map(of).collect::<Vec<_>>());
            let times = multiples(&now, &then);
            measured.push_runs(series, workload.name(), &times, Unit::Times);
        };
        push("fio", scaledefrag, e4defrag, |it| it.fio);
        push("defragmentation", scaledefrag, e4defrag, |it| it.contender);
        push("fio, beside indef", indef, e4defrag, |it| it.fio);
        push("defragmentation, indef", indef, e4defrag, |it| it.contender);
        for (name, beside) in [
            ("e4defrag", e4defrag),
            ("ScaleDefrag", scaledefrag),
            ("indef", indef),
        ] {
            let series = format!("fio beside {name}, × alone");
            push(&series, beside, alone, |it| it.fio);
        }
    }
    Ok(measured)
}
