//! FragPicker, Figure 10 on a mounted ext4: RocksDB in the holes of an aged file system, its reads before and after, and the
//! I/O of the defragmenters.

use super::{
    error::FigureError,
    measured::{Measured, Unit, changes},
    mounted::{
        Tool,
        rocksdb::{Runs, State},
    },
    parameters::Parameters,
    turn::Turn,
};

/// See the module.
pub(super) fn measure(parameters: &Parameters, turn: &Turn<'_>) -> Result<Measured, FigureError> {
    let runs = Runs::measure(parameters, turn)?;
    let mut measured = Measured::default();
    let mut push = |tool: Option<Tool>, x: &str, values: &[f64], unit: Unit| {
        measured.push_runs(series(tool), x, values, unit);
    };
    for tool in Runs::CONTENDERS {
        push(
            tool,
            "extents",
            &runs.of(tool, |it| it.extents),
            Unit::Count,
        );
        if tool.is_none() {
            continue;
        }
        let before = runs.of(tool, |it| it.rate_before);
        let gains = changes(&runs.of(tool, |it| it.rate), &before);
        push(
            tool,
            "throughput after, from before",
            &gains,
            Unit::ChangePct,
        );
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        let read = runs.of(tool, |it| mib(it.work.traffic.read.0));
        push(tool, "read", &read, Unit::Mib);
        let written = runs.of(tool, |it| mib(it.work.traffic.written.0));
        push(tool, "written", &written, Unit::Mib);
        if tool == Some(Tool::Conventional) {
            continue;
        }
        for (x, value) in [
            // Of the same run, so that a machine that becomes slower does so for both.
            ("throughput after", rate as fn(&State) -> f64),
            ("all I/O", traffic),
            ("written", written_bytes),
            ("elapsed", elapsed),
        ] {
            let x = format!("{x}, from e4defrag");
            let of_e4defrag = runs.of(Some(Tool::Conventional), value);
            let values = changes(&runs.of(tool, value), &of_e4defrag);
            push(tool, &x, &values, Unit::ChangePct);
        }
    }
    Ok(measured)
}

/// The name of a contender's rows, as the paper has them.
fn series(tool: Option<Tool>) -> &'static str {
    match tool {
        None => "before",
        Some(Tool::Conventional) => "e4defrag",
        Some(tool) => tool.series(),
    }
}

/// Against the reads of the same state before.
fn rate(state: &State) -> f64 {
    state.rate / state.rate_before
}

fn traffic(state: &State) -> f64 {
    let traffic = state.work.traffic;
    (traffic.read.0 + traffic.written.0) as f64
}

fn written_bytes(state: &State) -> f64 {
    state.work.traffic.written.0 as f64
}

fn elapsed(state: &State) -> f64 {
    state.work.seconds
}
