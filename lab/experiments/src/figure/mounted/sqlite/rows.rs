//! The rows of a figure: each value of each run, and of these the median and the spread.

use super::{
    super::{
        super::measured::{Measured, Unit, changes},
        tool::Tool,
    },
    runs::Runs,
    state::State,
};

const TOOLS: [Tool; 4] = [
    Tool::Conventional,
    Tool::Bypass,
    Tool::FragPicker,
    Tool::Indef,
];

/// What all contenders did to the query and the update, and what they read and wrote; `prefix` begins each series. Bytes are
/// multiplied to the paper's rows.
pub(in super::super::super) fn rows_of(runs: &Runs, prefix: &str, measured: &mut Measured) {
    let mut push = |tool: Option<Tool>, x: &str, values: &[f64], unit: Unit| {
        let series = format!("{prefix}{}", tool.map_or("before", Tool::series));
        measured.push_runs(&series, x, values, unit);
    };
    let untouched = runs.of(None, |it| it.update);
    let conventional = |value: fn(&State) -> f64| runs.of(Some(Tool::Conventional), value);
    for tool in TOOLS {
        let of = |value: fn(&State) -> f64| runs.of(Some(tool), value);
        let tool = Some(tool);
        let select = changes(&of(|it| it.select), &of(|it| it.select_before));
        push(tool, "select, from before", &select, Unit::ChangePct);
        let update = changes(&of(|it| it.update), &untouched);
        push(tool, "update, from before", &update, Unit::ChangePct);
        for (x, value) in [("read", read as fn(&State) -> f64), ("written", written)] {
            let scaled = of(value)
                .into_iter()
                .map(|it| it * runs.workload.scale / 1e6);
            push(tool, x, &scaled.collect::<Vec<_>>(), Unit::Mb);
        }
        if tool != Some(Tool::Conventional) {
            for (x, value) in [
                ("select", select_after as fn(&State) -> f64),
                ("read", read),
                ("written", written),
                ("elapsed", elapsed),
            ] {
                let x = format!("{x}, from conventional");
                let changes = changes(&of(value), &conventional(value));
                push(tool, &x, &changes, Unit::ChangePct);
            }
        }
    }
    for tool in [None].into_iter().chain(TOOLS.map(Some)) {
        push(
            tool,
            "extents",
            &runs.of(tool, |it| it.extents),
            Unit::Count,
        );
    }
}

fn select_after(state: &State) -> f64 {
    state.select
}

fn read(state: &State) -> f64 {
    state.work.traffic.read.0 as f64
}

fn written(state: &State) -> f64 {
    state.work.traffic.written.0 as f64
}

fn elapsed(state: &State) -> f64 {
    state.work.seconds
}
