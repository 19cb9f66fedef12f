//! The result as tables, in Markdown.

use std::fmt::Write as _;

use units::{Bytes, Nanos};

use super::{cost::Cost, headline::Outcome, migration::Migration};

/// The whole result.
pub(super) fn table(outcome: &Outcome) -> String {
    let before = &outcome.before;
    let mut text = format!(
        "{}\n\nLinux {}, {}, 1/{} of the paper's device and files; {} in {} files, {} extents.\n\
         In requests that are in one piece: {:.1} % of the data. {:.2} pieces a request; read in {}.\n\
         In files that were there before the flows began: {:.1} % of the data.\n",
        outcome.title,
        outcome.kernel,
        outcome.profile,
        outcome.factor,
        Bytes(before.bytes),
        outcome.aged.files,
        before.extents,
        before.contiguous_pct,
        before.dolf,
        Nanos(before.read_ns),
        outcome.aged.first_pct(),
    );
    if !outcome.ways.is_empty() {
        text += &ways(outcome);
        text += &costs(outcome);
    }
    text
}

/// Every way: data moved, and reads afterwards.
fn ways(outcome: &Outcome) -> String {
    let mut text =
        "\n| | engine | data moved | read speed | pieces of a request |\n|---|---|---|---|---|\n"
            .to_owned();
    for way in &outcome.ways {
        let _ = writeln!(
            text,
            "| {} | {} | {} | {:+.1} % | {:.2} |",
            way.way,
            way.engine,
            Bytes(way.moved_bytes),
            way.read_gain_pct(&outcome.before),
            way.after.dolf,
        );
    }
    text
}

/// The ways whose commands were recorded.
fn costs(outcome: &Outcome) -> String {
    let measured: Vec<(&Migration, &Cost)> = outcome
        .ways
        .iter()
        .filter_map(|way| Some((way, way.cost.as_ref()?)))
        .collect();
    let heads: Vec<String> = measured
        .iter()
        .map(|(way, _)| way.way.to_string())
        .collect();
    let mut text = format!(
        "\n| | {} |\n|{}\n",
        heads.join(" | "),
        "---|".repeat(heads.len() + 1)
    );
    let mut row = |what: &str, show: &dyn Fn(&Cost) -> String| {
        let cells: Vec<String> = measured.iter().map(|(_, cost)| show(cost)).collect();
        let _ = writeln!(text, "| {what} | {} |", cells.join(" | "));
    };
    let kib = |kib: u64| Bytes(kib << 10).to_string();
    row("elapsed", &|cost| Nanos(cost.elapsed_ns).to_string());
    row("chips busy", &|cost| format!("{:.1} %", cost.busy_pct));
    row("elapsed, one command after the other", &|cost| {
        Nanos(cost.one_by_one_ns).to_string()
    });
    row("only what moves data in the device", &|cost| {
        cost.moves.as_ref().map_or_else(String::new, |moves| {
            let elapsed = Nanos(moves.elapsed_ns);
            format!(
                "{} commands, {elapsed}, {:.1} % busy",
                moves.commands, moves.busy_pct
            )
        })
    });
    row("the same, always two under way", &|cost| {
        cost.moves.as_ref().map_or_else(String::new, |moves| {
            let elapsed = Nanos(moves.two_ns);
            format!("{elapsed}, {:.1} % busy", moves.two_busy_pct)
        })
    });
    row("elapsed ÷ (program time × pages ÷ chips)", &|cost| {
        format!("{:.2}", cost.elapsed_ns as f64 / cost.bound_ns)
    });
    row("commands", &|cost| cost.commands.to_string());
    row("over the bus", &|cost| Bytes(cost.bus_bytes).to_string());
    row("host memory: the process", &|cost| {
        kib(cost.memory.process_kib)
    });
    row("host memory: page cache", &|cost| {
        kib(cost.memory.page_cache_kib)
    });
    row("host memory: the kernel's own", &|cost| {
        kib(cost.memory.kernel_kib)
    });
    row("host memory: all in use", &|cost| kib(cost.memory.used_kib));
    row("elapsed beside a load", &|cost| {
        Nanos(cost.beside_ns as u64).to_string()
    });
    row("the load meanwhile", &|cost| {
        format!("{:+.1} %", cost.load_change_pct())
    });
    text
}
