//! The answers as a profile for flashd (docs/flash-model.md, "Profiles").
//!
//! A probe measures reads only. Sizes and times of programs and erases, zones and the translation layer
//! are assumed, and marked so; what was not told is left as the built-in profile `zero` has it.

use std::fmt::Write;

use indef_core::probe::{Findings, ReadModel, Told};
use indef_pipeline::probe::Probed;

/// The usual program unit of a die: a granule of more is several pages.
const LARGEST_PAGE: u64 = 64 << 10;

/// One number.
struct Number {
    value: String,
    unit: &'static str,
    kind: &'static str,
    source: String,
}

fn measured(value: impl ToString, unit: &'static str, how: &str) -> Number {
    Number {
        value: value.to_string(),
        unit,
        kind: "measured",
        source: format!("indef probe: {how}"),
    }
}

fn derived(value: impl ToString, unit: &'static str, how: &str) -> Number {
    Number {
        kind: "derived",
        ..measured(value, unit, how)
    }
}

fn assumed(value: impl ToString, unit: &'static str, why: &str) -> Number {
    Number {
        value: value.to_string(),
        unit,
        kind: "assumed",
        source: why.to_owned(),
    }
}

/// Without a placement there is one die that is never busy.
struct Shape {
    granule: u64,
    units: u32,
    page: u64,
}

/// The profile.
pub(super) fn profile(probed: &Probed) -> String {
    let found = &probed.findings;
    let model = ReadModel::of(found).ok();
    let placement = found.placement.ok().map(|told| told.value);
    let granule = placement.map_or(16 << 10, |it| it.granule.0);
    let mut page = granule;
    while page > LARGEST_PAGE && page.is_multiple_of(2 * 4096) {
        page /= 2;
    }
    let shape = Shape {
        granule,
        units: placement.map_or(1, |it| it.units),
        page,
    };
    let quote = |text: &str| text.replace(['"', '\\'], "'");
    let name = probed.drive.model.as_deref().unwrap_or("probed");
    let mut out = String::new();
    let _ = writeln!(
        out,
        "[device]\nname = \"probed\"\ndescription = \"{}: as indef probe found it by its reads\"",
        quote(name)
    );
    table(&mut out, "geometry", geometry(&shape, placement.is_some()));
    table(&mut out, "flash", flash(&shape, model.as_ref()));
    table(&mut out, "host", host(found, model.as_ref()));
    table(&mut out, "buffer", buffer());
    table(&mut out, "zones", zones(&shape));
    table(&mut out, "ftl", ftl());
    table(
        &mut out,
        "migration",
        [(
            "window",
            assumed(8 * shape.units, "count", "8 for each unit"),
        )],
    );
    out
}

fn table<const N: usize>(out: &mut String, name: &str, numbers: [(&str, Number); N]) {
    let _ = writeln!(out, "\n[{name}]");
    for (key, number) in numbers {
        let Number {
            value,
            unit,
            kind,
            source,
        } = number;
        let _ = writeln!(
            out,
            "{key} = {{ value = {value}, unit = \"{unit}\", kind = \"{kind}\", source = \"{source}\" }}"
        );
    }
}

fn geometry(shape: &Shape, told: bool) -> [(&'static str, Number); 6] {
    let found = |value: u64, unit, how| match told {
        true => measured(value, unit, how),
        false => assumed(value, unit, "the probe could not tell"),
    };
    [
        (
            "channels",
            found(
                u64::from(shape.units),
                "count",
                "units; one on each channel, as channels do not show",
            ),
        ),
        ("dies_per_channel", assumed(1, "count", "as channels")),
        (
            "planes",
            assumed(1, "count", "planes that read on their own count as units"),
        ),
        (
            "page",
            found(shape.page >> 10, "KiB", "the granule, or a part of it"),
        ),
        (
            "pages_per_block",
            assumed(
                block_pages(shape),
                "count",
                "small blocks, so that a small namespace has little in motion",
            ),
        ),
        ("unit", found(shape.granule >> 10, "KiB", "the granule")),
    ]
}

/// Whole granules in a flash block.
fn block_pages(shape: &Shape) -> u64 {
    32 * (shape.granule / shape.page)
}

fn flash(shape: &Shape, model: Option<&ReadModel>) -> [(&'static str, Number); 10] {
    let us = |ns: f64| format!("{:.3}", ns / 1e3);
    let (read, transfer) = match model {
        Some(model) => {
            let times = model.times();
            let per_page = model.per_byte_ns * shape.page as f64;
            (
                measured(
                    us(times.sense_ns as f64),
                    "us",
                    "the time that a further read of 4 KiB takes on one unit, less its transfer",
                ),
                derived(us(per_page), "us/page", "longer reads on one unit"),
            )
        }
        None => {
            let why = "the probe could not tell";
            (assumed("0", "us", why), assumed("0", "us/page", why))
        }
    };
    [
        ("read", read),
        (
            "program",
            assumed(700, "us", "a probe does not time writes"),
        ),
        ("erase", assumed(3, "ms", "a probe does not time erases")),
        ("transfer", transfer),
        ("transfer_unit", assumed(0, "KiB", "whole pages; 0: whole")),
        (
            "cache_register",
            assumed("false", "flag", "the measured times hold with and without"),
        ),
        (
            "suspend",
            assumed("false", "flag", "a probe does not time writes"),
        ),
        ("program_wait", assumed(5, "ms", "several programs")),
        ("endurance", assumed(3000, "count", "usual for 3D TLC")),
        (
            "independent_planes",
            assumed(
                "false",
                "flag",
                "planes that read on their own count as units",
            ),
        ),
    ]
}

fn host(found: &Findings, model: Option<&ReadModel>) -> [(&'static str, Number); 7] {
    let unknown = || assumed("0", "us", "the probe could not tell");
    let us = |ns: f64| format!("{:.3}", ns.max(0.0) / 1e3);
    let (latency, serial) = match model {
        Some(model) => {
            let outside = model.latency_ns() - model.service_ns - model.per_request_ns();
            (
                derived(
                    us(outside),
                    "us",
                    "a read alone less the time of its unit; with this host's own time",
                ),
                derived(
                    us(model.per_request_ns()),
                    "us",
                    "further requests on units of their own; with this host's own time",
                ),
            )
        }
        None => (unknown(), unknown()),
    };
    let told: &Told<u64> = &found.bandwidth;
    let link = match told {
        Ok(told) => measured(
            told.value / 1_000_000,
            "MB/s",
            "the fastest of the consecutive reads",
        ),
        Err(_) => assumed(0, "MB/s", "0: unlimited"),
    };
    [
        ("read_latency", latency),
        ("read_serial", serial),
        (
            "write_latency",
            assumed(5, "us", "a probe does not time writes"),
        ),
        (
            "write_serial",
            assumed(1, "us", "a million commands a second"),
        ),
        ("append_latency", assumed(5, "us", "as a write")),
        ("append_serial", assumed(1, "us", "as a write")),
        ("link", link),
    ]
}

fn buffer() -> [(&'static str, Number); 4] {
    [
        ("size", assumed(32, "MiB", "a probe does not time writes")),
        (
            "drain",
            assumed(0, "MB/s", "limited by the dies alone; 0: unlimited"),
        ),
        (
            "protected",
            assumed("false", "flag", "a probe does not cut the power"),
        ),
        ("read_cache", assumed(0, "KiB", "none showed; 0: none")),
    ]
}

fn zones(shape: &Shape) -> [(&'static str, Number); 9] {
    // A zone on one unit: as large as a flash block, in an address space that is a power of two.
    let block = shape.page * block_pages(shape);
    let none = "the drive was not probed as one with zones";
    [
        (
            "size",
            assumed(block.next_power_of_two() >> 10, "KiB", none),
        ),
        ("capacity", assumed(block >> 10, "KiB", none)),
        ("interleave", assumed(shape.page >> 10, "KiB", none)),
        ("dies", assumed(1, "count", none)),
        ("max_active", assumed(0, "count", "0: no limit")),
        ("max_open", assumed(0, "count", "0: no limit")),
        ("reset_latency", assumed(0, "us", none)),
        ("reset_proportional", assumed("false", "flag", none)),
        ("finish_latency", assumed(0, "us", none)),
    ]
}

fn ftl() -> [(&'static str, Number); 3] {
    [
        (
            "logical_page",
            assumed(4, "KiB", "block of the usual file systems"),
        ),
        (
            "over_provisioning",
            assumed(7, "percent", "usual: a GiB of flash for a GB of data"),
        ),
        (
            "separate_parts",
            assumed(
                "true",
                "flag",
                "whole granules and parts of them go to different blocks",
            ),
        ),
    ]
}
