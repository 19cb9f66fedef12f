//! The result as a table, in Markdown.

use std::fmt::Write as _;

use units::{Bytes, Nanos};

use super::{
    Experiment,
    headline::{Measured, Method, Outcome, Pair},
};

fn is_told(value: f64) -> bool {
    value.is_finite() && value > 0.0
}

/// One row for each quantity, one column for each method, and the difference of the second from the
/// first.
pub(super) fn table(experiment: &Experiment, outcome: &Outcome) -> String {
    let mut text = format!(
        "{}\n\nLinux {}, {} as {:?} ages it; {} at 1/{} of its speed\n\n",
        experiment.title,
        outcome.kernel,
        Bytes(
            outcome
                .runs
                .first()
                .map_or(0, |run| run.modelled.bytes_of_files)
        ),
        experiment.ageing,
        experiment.profile,
        outcome
            .runs
            .first()
            .map_or(1.0, |run| run.modelled.time_scale),
    );
    let runs = &outcome.runs;
    let heads = runs.iter().map(|pair| match pair.modelled.method {
        Method::Conventional => pair.modelled.engine.clone(),
        Method::Indef => format!("indef ({})", pair.modelled.engine),
    });
    let _ = writeln!(
        text,
        "| | {} | |\n|{}",
        heads.collect::<Vec<_>>().join(" | "),
        "---|".repeat(runs.len() + 2)
    );
    let mut row = |what: &str, of: &dyn Fn(&Pair) -> f64, show: &dyn Fn(f64) -> String| {
        let values: Vec<f64> = runs.iter().map(of).collect();
        let change = match values.as_slice() {
            [old, new] if is_told(*old) && new.is_finite() => {
                format!("{:+.1} %", 100.0 * (new / old - 1.0))
            }
            _ => String::new(),
        };
        let shown: Vec<String> = values.into_iter().map(show).collect();
        let _ = writeln!(text, "| {what} | {} | {change} |", shown.join(" | "));
    };
    let bytes = |of: f64| Bytes(of as u64).to_string();
    // No time is left where the guest's own time was longer than the slowed device's.
    let told = |of: f64, text: String| if is_told(of) { text } else { "unknown".into() };
    let time = |of: f64| told(of, Nanos(of as u64).to_string());
    let percent = |of: f64| told(of, format!("{:.1} %", 100.0 * of));
    let modelled = |of: fn(&Measured) -> u64| move |pair: &Pair| of(&pair.modelled) as f64;
    row("data migrated", &modelled(|run| run.bytes_migrated), &bytes);
    row("over the bus", &modelled(|run| run.bus_bytes), &bytes);
    row(
        "moved inside the device",
        &modelled(|run| run.moved_in_device_bytes),
        &bytes,
    );
    row("elapsed, as measured", &Pair::elapsed_ns, &time);
    row(
        "elapsed, the guest's own taken off",
        &Pair::net_elapsed_ns,
        &time,
    );
    row(
        "chips busy, as measured",
        &|pair| pair.utilization(pair.elapsed_ns()),
        &percent,
    );
    row(
        "chips busy, the guest's own taken off",
        &|pair| pair.utilization(pair.net_elapsed_ns()),
        &percent,
    );
    row(
        "busy time of a chip, by the model (mean)",
        &|pair| pair.modelled.die_busy_ns as f64 / pair.modelled.dies as f64,
        &time,
    );
    row(
        "host memory: the process",
        &modelled(|run| run.process_kib << 10),
        &bytes,
    );
    row(
        "host memory: page cache",
        &modelled(|run| run.page_cache_kib << 10),
        &bytes,
    );
    let before = |pair: &Pair| pair.read_ns(|run| run.read_before_ns);
    let after = |pair: &Pair| pair.read_ns(|run| run.read_after_ns);
    row("read before, as measured", &|pair| before(pair).0, &time);
    row("read after, as measured", &|pair| after(pair).0, &time);
    row(
        "read before, the guest's own taken off",
        &|pair| before(pair).1,
        &time,
    );
    row(
        "read after, the guest's own taken off",
        &|pair| after(pair).1,
        &time,
    );
    if runs.iter().all(|run| run.beside.is_some()) {
        let of = |pick: fn(&Measured) -> Option<f64>| {
            move |pair: &Pair| pair.beside.as_ref().and_then(pick).unwrap_or(0.0)
        };
        let rate = |of: f64| format!("{}/s", Bytes(of as u64));
        row("load beside it, alone", &of(|run| run.beside_alone), &rate);
        row(
            "load beside it, during the migration",
            &of(|run| run.beside_during),
            &rate,
        );
        row(
            "elapsed with the load beside it, as measured",
            &of(|run| Some(run.wall_ns as f64 / run.time_scale)),
            &time,
        );
    }
    let runs = runs.iter().flat_map(|pair| {
        [
            Some(&pair.modelled),
            Some(&pair.instant),
            pair.beside.as_ref(),
        ]
    });
    let good = runs
        .flatten()
        .all(|run| run.contents_equal && run.fsck_clean);
    let _ = writeln!(
        text,
        "\nContents equal and fsck.f2fs clean after every run: {}\n\nExpected:",
        if good { "yes" } else { "NO" }
    );
    for line in &experiment.expected {
        let _ = writeln!(text, "- {line}");
    }
    text
}
