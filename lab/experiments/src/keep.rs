//! The committed result.

use std::path::PathBuf;

use anyhow::Result;
use figures::{Machine, Row, Session, Value};

use super::{cost::Cost, headline::Outcome, migration::Migration};

/// Keep it in `figures/experiments.json`.
pub(super) fn keep(name: &str, age_only: bool, outcome: &Outcome) -> Result<PathBuf> {
    let age_only = if age_only { " --age-only" } else { "" };
    let mut rows = vec![aged(name, outcome)];
    rows.extend(outcome.ways.iter().map(|way| row(name, way, outcome)));
    let session = Session {
        command: format!("cargo lab experiment {name}{age_only} --keep"),
        machine: Some(Machine {
            kernel: Some(outcome.kernel.clone()),
            device: Some("guests under software emulation".into()),
            ..Machine::here(source_tree::root())
        }),
        date: Some(figures::today()),
        version: figures::version(source_tree::root()),
        runs: Some(1),
        note: Some(format!(
            "1/{} of the paper's device; times are the model's, see there",
            outcome.factor
        )),
        rows,
    };
    figures::tree::keep(source_tree::root(), "experiments", session)
}

fn aged(name: &str, outcome: &Outcome) -> Row {
    let before = &outcome.before;
    Row::new(name, "aged")
        .with("bytes", Value::Exact(before.bytes as f64))
        .with("files", Value::Exact(outcome.aged.files as f64))
        .with("extents", Value::Exact(before.extents as f64))
        .with("contiguous_pct", Value::rounded(before.contiguous_pct))
        .with("first_pct", Value::rounded(outcome.aged.first_pct()))
        .with("dolf", Value::rounded(before.dolf))
        .with("read_ns", Value::Exact(before.read_ns as f64))
}

fn row(name: &str, way: &Migration, outcome: &Outcome) -> Row {
    let row = Row::new(name, way.way.to_string())
        .with("moved_bytes", Value::Exact(way.moved_bytes as f64))
        .with("read_ns", Value::Exact(way.after.read_ns as f64))
        .with(
            "read_gain_pct",
            Value::rounded(way.read_gain_pct(&outcome.before)),
        )
        .with("dolf", Value::rounded(way.after.dolf));
    match &way.cost {
        Some(cost) => with_cost(row, cost),
        None => row,
    }
}

fn with_cost(row: Row, cost: &Cost) -> Row {
    let kib = |kib: u64| Value::Exact((kib << 10) as f64);
    let row = match &cost.moves {
        Some(moves) => row
            .with("moves", Value::Exact(moves.commands as f64))
            .with("moves_ns", Value::Exact(moves.elapsed_ns as f64))
            .with("moves_busy_pct", Value::rounded(moves.busy_pct))
            .with("two_ns", Value::Exact(moves.two_ns as f64))
            .with("two_busy_pct", Value::rounded(moves.two_busy_pct)),
        None => row,
    };
    row.with("time_ns", Value::Exact(cost.elapsed_ns as f64))
        .with("busy_pct", Value::rounded(cost.busy_pct))
        .with("one_by_one_ns", Value::Exact(cost.one_by_one_ns as f64))
        .with(
            "over_bound",
            Value::rounded(cost.elapsed_ns as f64 / cost.bound_ns),
        )
        .with("commands", Value::Exact(cost.commands as f64))
        .with("bus_bytes", Value::Exact(cost.bus_bytes as f64))
        .with("process_bytes", kib(cost.memory.process_kib))
        .with("page_cache_bytes", kib(cost.memory.page_cache_kib))
        .with("kernel_bytes", kib(cost.memory.kernel_kib))
        .with("used_bytes", kib(cost.memory.used_kib))
        .with("beside_ns", Value::rounded(cost.beside_ns))
        .with("load_change_pct", Value::rounded(cost.load_change_pct()))
}
