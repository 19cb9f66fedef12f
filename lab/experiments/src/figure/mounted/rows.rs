//! The rows of a figure: each value of each run, and of these the median and the spread.

use super::{
    super::{
        measured::{Measured, Unit, change, changes},
        workload::Pattern,
    },
    contender::Contender,
    runs::Runs,
    state::State,
};

/// A contender for a pattern of calls: those that have seen them, or that need not.
type For = fn(Pattern) -> Contender;

const CONVENTIONAL: For = |_| Contender::Conventional;
const THRESHOLD: For = |_| Contender::Threshold;
const BYPASS: For = |_| Contender::Bypass;

/// What all contenders did to reads and updates, and what they wrote; `prefix` begins each series.
pub(in super::super) fn rows_of(runs: &Runs, prefix: &str, measured: &mut Measured) {
    let mut push = |contender: Contender, x: &str, values: &[f64], unit: Unit| {
        // A contender that a file system does not have has no runs.
        if !values.is_empty() {
            let series = format!("{prefix}{}", contender.series());
            measured.push_runs(&series, x, values, unit);
        }
    };
    let all = [
        CONVENTIONAL,
        THRESHOLD,
        BYPASS,
        Contender::FragPicker,
        Contender::Indef,
    ];
    let states = &runs.states;
    for pattern in Pattern::ALL {
        let name = pattern.name();
        let read = |it: &State| it.read_gain(pattern);
        let update = |it: &State| it.update_rate(pattern);
        let untouched = states.values(Contender::Before, update);
        for contender in all.map(|of| of(pattern)) {
            let reads = as_change(&states.values(contender, read));
            let x = format!("{name} read, from before");
            push(contender, &x, &reads, Unit::ChangePct);
            let updates = changes(&states.values(contender, update), &untouched);
            let x = format!("{name} update, from before");
            push(contender, &x, &updates, Unit::ChangePct);
        }
        let others: [(&str, For); 2] = [("conventional", CONVENTIONAL), ("bypass", BYPASS)];
        for (from, other) in others {
            let other = other(pattern);
            for contender in [Contender::FragPicker(pattern), Contender::Indef(pattern)] {
                let reads = changes(&states.values(contender, read), &states.values(other, read));
                let x = format!("{name} read, from {from}");
                push(contender, &x, &reads, Unit::ChangePct);
                let updates = changes(
                    &states.values(contender, update),
                    &states.values(other, update),
                );
                let x = format!("{name} update, from {from}");
                push(contender, &x, &updates, Unit::ChangePct);
                let writes = changes(
                    &states.values(contender, written),
                    &states.values(other, written),
                );
                let x = format!("writes ({name}), from {from}");
                push(contender, &x, &writes, Unit::ChangePct);
                let times = changes(
                    &states.values(contender, seconds),
                    &states.values(other, seconds),
                );
                let x = format!("time of defragmentation ({name}), from {from}");
                push(contender, &x, &times, Unit::ChangePct);
            }
        }
    }
    let threshold = Contender::Threshold;
    let picked = Contender::FragPicker(Pattern::Stride);
    let read = |it: &State| it.read_gain(Pattern::Stride);
    let reads = changes(
        &states.values(threshold, read),
        &states.values(picked, read),
    );
    push(
        threshold,
        "stride read, from FragPicker",
        &reads,
        Unit::ChangePct,
    );
    let writes = changes(
        &states.values(threshold, written),
        &states.values(picked, written),
    );
    push(
        threshold,
        "writes, from FragPicker",
        &writes,
        Unit::ChangePct,
    );
    let size = runs.size.0 as f64;
    for contender in states.contenders() {
        let x = match contender {
            Contender::Before => continue,
            Contender::FragPicker(pattern) | Contender::Indef(pattern) => {
                format!("writes ÷ file ({})", pattern.name())
            }
            _ => "writes ÷ file".to_owned(),
        };
        let shares: Vec<f64> = states.values(contender, |it| Some(written(it)? / size));
        push(contender, &x, &shares, Unit::Times);
    }
    for contender in states.contenders() {
        let x = match contender {
            Contender::FragPicker(pattern) | Contender::Indef(pattern) => {
                format!("extents ({})", pattern.name())
            }
            _ => "extents".to_owned(),
        };
        let extents = states.values(contender, |it| Some(it.extents));
        push(contender, &x, &extents, Unit::Count);
    }
}

/// Commands that discard the free space after the file was deleted, before and after each defragmenter; of those that
/// were told reads, after the sequential ones.
pub(in super::super) fn trim_rows(runs: &Runs, measured: &mut Measured) {
    for contender in runs.states.contenders() {
        let x = match contender {
            Contender::FragPicker(Pattern::Stride) | Contender::Indef(Pattern::Stride) => continue,
            Contender::FragPicker(pattern) | Contender::Indef(pattern) => {
                format!("discard commands ({})", pattern.name())
            }
            _ => "discard commands".to_owned(),
        };
        let commands = runs.states.values(contender, |state| state.discards);
        measured.push_runs(contender.series(), x.as_str(), &commands, Unit::Count);
    }
}

fn written(state: &State) -> Option<f64> {
    Some(state.work.traffic.written.0 as f64)
}

fn seconds(state: &State) -> Option<f64> {
    Some(state.work.seconds)
}

/// Ratios as changes.
fn as_change(ratios: &[f64]) -> Vec<f64> {
    ratios.iter().map(|ratio| change(*ratio, 1.0)).collect()
}
