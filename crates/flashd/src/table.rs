//! `flashd stats` as tables: first the ratios, then the bytes by cause, then each namespace, die and
//! percentile.

use std::fmt::Write as _;

use serde_json::Value;
use units::{Bytes, Nanos};

/// Bytes in the cells by cause, in the order of [`flash_model::ByCause`].
const CAUSES: [&str; 7] = [
    "host",
    "gc",
    "wear",
    "fold",
    "migration",
    "padding",
    "flush",
];

/// Renders the answer to `stats`, for a terminal.
pub(crate) fn stats_table(stats: &Value) -> String {
    let model = &stats["model"];
    let mut tables = [
        summary(stats),
        causes(model),
        namespaces(stats),
        dies(model),
        lateness(&stats["lateness"]),
    ]
    .map(|rows| align(&rows))
    .to_vec();
    tables.extend(fault_tables(&stats["faults"]));
    tables.join("\n")
}

/// Renders the faults of a device, for a terminal.
pub(crate) fn faults_table(faults: &Value) -> String {
    let tables = fault_tables(faults);
    if tables.is_empty() {
        return "no faults\n".to_owned();
    }
    tables.join("\n")
}

/// The ranges that fail, then the dies that are slow; no table of what there is none of.
fn fault_tables(faults: &Value) -> Vec<String> {
    let errors = faults["errors"].as_array().map_or(&[][..], Vec::as_slice);
    let slow = faults["slow_dies"]
        .as_array()
        .map_or(&[][..], Vec::as_slice);
    let mut tables = Vec::new();
    if !errors.is_empty() {
        let mut rows = vec![heads(&[
            "namespace",
            "fails",
            "offset",
            "length",
            "failed",
            "left",
        ])];
        rows.extend(errors.iter().map(|error| {
            vec![
                error["namespace"].to_string(),
                error["access"].as_str().unwrap_or("both").to_owned(),
                bytes(&error["offset_bytes"]),
                bytes(&error["length_bytes"]),
                count(&error["failed"]).to_string(),
                error["left"]
                    .as_u64()
                    .map_or_else(|| "all".to_owned(), |left| left.to_string()),
            ]
        }));
        tables.push(align(&rows));
    }
    if !slow.is_empty() {
        let mut rows = vec![heads(&["die", "times as slow"])];
        rows.extend(
            slow.iter()
                .map(|slow| vec![slow["die"].to_string(), ratio(&slow["factor"])]),
        );
        tables.push(align(&rows));
    }
    tables
}

fn summary(stats: &Value) -> Vec<Vec<String>> {
    let model = &stats["model"];
    let hints = &model["hints"];
    let refused = ["refused_unmapped", "refused_no_room", "refused_worn_die"];
    let [unmapped, no_room, worn] = refused.map(|reason| count(&hints[reason]));
    let row = |name: &str, value: String| vec![name.to_owned(), value];
    vec![
        row("read by the host", bytes(&model["host_read_bytes"])),
        row("written by the host", bytes(&model["host_written_bytes"])),
        row("moved in the device", bytes(&model["migrated_bytes"])),
        row(
            "  commands that moved it",
            count(&model["migrations"]).to_string(),
        ),
        row("write amplification", ratio(&stats["write_amplification"])),
        row("dies busy", percent(stats["die_utilisation"].as_f64())),
        row("in the write buffer", bytes(&model["buffered_bytes"])),
        row("writes waited for it", nanos(&model["buffer_wait_ns"])),
        row("hints given", count(&hints["given"]).to_string()),
        row("hints refused", (unmapped + no_room + worn).to_string()),
        row("  neighbour not mapped", unmapped.to_string()),
        row("  no room on the die", no_room.to_string()),
        row("  die worn", worn.to_string()),
    ]
}

fn causes(model: &Value) -> Vec<Vec<String>> {
    let columns = ["sensed_bytes", "programmed_bytes", "copied_back_bytes"];
    let mut rows = vec![heads(&["cause", "sensed", "programmed", "copied back"])];
    for cause in CAUSES {
        let mut row = vec![cause.to_owned()];
        row.extend(columns.map(|column| bytes(&model[column][cause])));
        rows.push(row);
    }
    rows
}

fn namespaces(stats: &Value) -> Vec<Vec<String>> {
    let mut rows = vec![heads(&[
        "namespace",
        "size",
        "used",
        "not durable",
        "least erased",
        "most erased",
        "mean",
    ])];
    let all = stats["namespaces"].as_array().into_iter().flatten();
    for (index, namespace) in all.enumerate() {
        let wear = &stats["model"]["wear"][index];
        rows.push(vec![
            format!(
                "{} {}",
                namespace["id"],
                namespace["kind"].as_str().unwrap_or("?")
            ),
            bytes(&namespace["size_bytes"]),
            bytes(&namespace["used_bytes"]),
            bytes(&namespace["volatile_bytes"]),
            count(&wear["least"]).to_string(),
            count(&wear["most"]).to_string(),
            ratio(&wear["mean"]),
        ]);
    }
    rows
}

fn dies(model: &Value) -> Vec<Vec<String>> {
    let mut rows = vec![heads(&[
        "die", "busy", "reads", "programs", "erases", "collided", "waited",
    ])];
    let elapsed = count(&model["now_ns"]).max(1) as f64;
    for (index, die) in model["dies"].as_array().into_iter().flatten().enumerate() {
        rows.push(vec![
            index.to_string(),
            percent(die["busy_ns"].as_f64().map(|busy| busy / elapsed)),
            count(&die["reads"]).to_string(),
            count(&die["programs"]).to_string(),
            count(&die["erases"]).to_string(),
            count(&die["collisions"]).to_string(),
            nanos(&die["collision_wait_ns"]),
        ]);
    }
    rows
}

fn lateness(lateness: &Value) -> Vec<Vec<String>> {
    let fields = ["p50_ns", "p90_ns", "p99_ns", "p999_ns", "worst_ns"];
    let mut row = vec![count(&lateness["answers"]).to_string()];
    row.extend(fields.map(|field| nanos(&lateness[field])));
    vec![
        heads(&["answers", "p50 late", "p90", "p99", "p99.9", "worst"]),
        row,
    ]
}

fn heads(names: &[&str]) -> Vec<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

fn count(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

fn bytes(value: &Value) -> String {
    Bytes(count(value)).to_string()
}

fn nanos(value: &Value) -> String {
    Nanos(count(value)).to_string()
}

fn ratio(value: &Value) -> String {
    format!("{:.2}", value.as_f64().unwrap_or(0.0))
}

fn percent(share: Option<f64>) -> String {
    format!("{:.1} %", share.unwrap_or(0.0) * 100.0)
}

/// Aligns the first column to the left and the others to the right.
fn align(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        for (column, (cell, &width)) in row.iter().zip(&widths).enumerate() {
            // Writing to a string cannot fail.
            let _ = match column {
                0 => write!(text, "{cell:width$}"),
                _ => write!(text, "  {cell:>width$}"),
            };
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use flash_model::{NamespaceKind, Placement, Profile};
    use flashd::device::{Device, DeviceOptions, NamespaceOptions, Request};

    use super::*;

    #[test]
    fn the_table_has_the_ratios_the_refused_hints_and_every_die() {
        let namespace = NamespaceOptions {
            kind: NamespaceKind::Conventional,
            size: Bytes::mib(64),
        };
        let profile = Profile::builtin("zero").unwrap();
        let device = Device::open(&DeviceOptions::in_memory(profile, &[namespace])).unwrap();
        // An overwrite of a block that was never written: the hint names nothing.
        let write = Request::Write {
            offset: 0,
            data: &[1; 64 << 10],
            fua: false,
            placement: Placement::Overwrite,
        };
        device.account(0, &write).unwrap();
        let table = stats_table(&serde_json::to_value(device.stats()).unwrap());
        let cells = |name: &str| -> Vec<String> {
            let line = table.lines().find(|line| line.trim().starts_with(name));
            let line = line.unwrap_or_else(|| panic!("no {name} in\n{table}"));
            let rest = line.trim().trim_start_matches(name);
            rest.split("  ")
                .map(str::trim)
                .filter(|cell| !cell.is_empty())
                .map(str::to_owned)
                .collect()
        };
        assert_eq!(cells("written by the host"), ["64 KiB"]);
        assert_eq!(cells("write amplification"), ["1.00"]);
        assert_eq!(cells("hints given"), ["1"]);
        assert_eq!(cells("hints refused"), ["1"]);
        assert_eq!(cells("neighbour not mapped"), ["1"]);
        assert_eq!(cells("host"), ["0 B", "64 KiB", "0 B"]);
        assert_eq!(
            cells("1 conventional"),
            ["64 MiB", "64 KiB", "64 KiB", "0", "0", "0.00"]
        );
        let dies = table.lines().skip_while(|line| !line.starts_with("die "));
        let dies = dies.skip(1).take_while(|line| !line.is_empty()).count();
        assert_eq!(dies, 16, "{table}");
    }
}
