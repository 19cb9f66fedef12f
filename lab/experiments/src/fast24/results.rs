//! The committed result of garbage collection under hints: figures/fast24.json.

use std::thread;

use figures::{Row, Value};

use super::{
    collecting::{Collected, Layout, Others, run, without_collecting},
    device::without_separation,
    host::MIB,
    placement::Target,
};

/// A namespace that collects garbage: its name, and its bytes.
pub type Size = (&'static str, u64);

/// With this one the spare flash is nearly what the profile says.
pub const WHOLE: Size = ("8 GiB", 8192 * MIB);

/// All layouts while garbage is collected, on a namespace of this size.
///
/// # Panics
///
/// If a run does.
#[must_use]
pub fn collecting(target: &Target, (name, size): Size) -> Vec<Row> {
    let (written, alone, beside) = without_collecting(target, size);
    let mixed = Target {
        profile: without_separation(),
        ..target.clone()
    };
    let nothing = Row::new(name.to_owned() + ", nothing to collect", "contiguous")
        .with("others_mib_per_s", Value::rounded(written))
        .with("aged_mib_per_s", Value::rounded(alone))
        .with("beside_mib_per_s", Value::rounded(beside));
    let mut rows = vec![nothing];
    for (others_write, others, target) in [
        ("granules anywhere", Others::GRANULES, target),
        ("granules, hot", Others::HOT_GRANULES, target),
        ("small", Others::WITH_SMALL, target),
        ("small, not separated", Others::WITH_SMALL, &mixed),
    ] {
        let case = format!("{name}, {others_write}");
        let case = case.as_str();
        // Nothing is shared between the layouts, and each takes long.
        let outcomes = thread::scope(|scope| {
            let runs = Layout::ALL.map(|(layout, how)| {
                scope.spawn(move || of_outcome(case, layout, &run(target, size, how, others)))
            });
            runs.map(|run| run.join().expect("a run does not panic"))
        });
        rows.extend(outcomes);
    }
    rows
}

fn of_outcome(case: &str, layout: &str, outcome: &Collected) -> Row {
    let Collected { counters, wear, .. } = outcome;
    let refused = counters.hints_no_room + counters.hints_worn_die + counters.hints_unmapped;
    [
        ("new_mib_per_s", outcome.fresh),
        ("aged_mib_per_s", outcome.aged),
        ("beside_mib_per_s", outcome.beside),
        ("others_mib_per_s", outcome.written),
        ("moved_pct", outcome.moved * 100.0),
        ("write_amplification", outcome.write_amplification()),
        ("erases_mean", wear.mean),
        ("erases_least", f64::from(wear.least)),
        ("erases_most", f64::from(wear.most)),
        ("least_mean_of_a_die", wear.least_die_mean),
        ("most_mean_of_a_die", wear.most_die_mean),
        ("hints", counters.hints as f64),
        ("refused_hints", refused as f64),
    ]
    .into_iter()
    .fold(Row::new(case, layout), |row, (quantity, value)| {
        row.with(quantity, Value::rounded(value))
    })
}
