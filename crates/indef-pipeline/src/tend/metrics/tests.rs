//! The text, read by a strict reader of what the specification says.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
    fs,
    os::unix::ffi::OsStringExt,
    path::{Path, PathBuf},
};

use indef_core::SkipReason;
use units::Nanos;

use super::*;
use crate::{
    consider::{CannotTell, Quantity, Reading},
    tend::{PlaceStatus, Totals, Traced},
};

/// Labels by name.
type Labelled = Vec<(String, String)>;

/// A family: its kind, its unit, and its samples by labels.
#[derive(Debug, Default)]
struct Read {
    kind: String,
    unit: String,
    help: String,
    samples: BTreeMap<Labelled, f64>,
}

/// Read OpenMetrics text as strictly as the specification asks of a consumer, for the parts that we use.
fn read(text: &str) -> Result<BTreeMap<String, Read>, String> {
    let mut families: BTreeMap<String, Read> = BTreeMap::new();
    let mut current = String::new();
    let body = text.strip_suffix("# EOF\n").ok_or("no end")?;
    let is_name = |name: &str| {
        let mut bytes = name.bytes();
        bytes
            .next()
            .is_some_and(|b| b.is_ascii_alphabetic() || b == b'_')
            && bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_')
    };
    for line in body.split_terminator('\n') {
        let wrong = |why: &str| format!("{why}: {line}");
        if let Some(meta) = line.strip_prefix("# ") {
            let mut words = meta.splitn(3, ' ');
            let mut word = || words.next().ok_or_else(|| wrong("too short"));
            let (what, name, value) = (word()?, word()?, word()?);
            if what == "TYPE" {
                if families.contains_key(name) || !is_name(name) {
                    return Err(wrong("a family twice, or no name"));
                }
                current = name.to_owned();
                families.insert(current.clone(), Read::default());
            }
            let family = families.get_mut(name).filter(|_| name == current);
            let family = family.ok_or_else(|| wrong("not of this family"))?;
            if !family.samples.is_empty() {
                return Err(wrong("after its samples"));
            }
            let field = match what {
                "TYPE" if matches!(value, "counter" | "gauge") => &mut family.kind,
                "UNIT" if name.ends_with(&format!("_{value}")) => &mut family.unit,
                "HELP" => &mut family.help,
                _ => return Err(wrong("not understood")),
            };
            if !std::mem::replace(field, value.to_owned()).is_empty() {
                return Err(wrong("twice"));
            }
            continue;
        }
        let (name, labels, value) = sample(line).ok_or_else(|| wrong("no sample"))?;
        let family = families
            .get_mut(&current)
            .ok_or_else(|| wrong("of no family"))?;
        let expected = match family.kind.as_str() {
            "counter" => format!("{current}_total"),
            _ => current.clone(),
        };
        if name != expected {
            return Err(wrong("of another family"));
        }
        if family.kind == "counter" && (value.is_nan() || value < 0.0) {
            return Err(wrong("no count"));
        }
        let names: BTreeSet<&String> = labels.iter().map(|(name, _)| name).collect();
        if names.len() < labels.len() || !names.iter().all(|name| is_name(name)) {
            return Err(wrong("labels"));
        }
        if family.samples.insert(labels, value).is_some() {
            return Err(wrong("twice"));
        }
    }
    match families.values().find(|family| family.help.is_empty()) {
        Some(family) => Err(format!("no help: {family:?}")),
        None => Ok(families),
    }
}

/// `name{label="value",…} number`.
fn sample(line: &str) -> Option<(String, Labelled, f64)> {
    let end = line.find(['{', ' '])?;
    let (name, mut rest) = line.split_at(end);
    let mut labels = Vec::new();
    if let Some(inner) = rest.strip_prefix('{') {
        rest = inner;
        loop {
            let (label, after) = rest.split_once("=\"")?;
            let mut value = String::new();
            let mut characters = after.char_indices();
            let end = loop {
                match characters.next()? {
                    (at, '"') => break at + 1,
                    (_, '\\') => value.push(match characters.next()?.1 {
                        'n' => '\n',
                        plain @ ('\\' | '"') => plain,
                        _ => return None,
                    }),
                    (_, '\n') => return None,
                    (_, plain) => value.push(plain),
                }
            };
            labels.push((label.to_owned(), value));
            rest = &after[end..];
            match rest.as_bytes().first()? {
                b',' => rest = &rest[1..],
                b'}' => {
                    rest = &rest[1..];
                    break;
                }
                _ => return None,
            }
        }
    }
    let value = rest.strip_prefix(' ')?.parse().ok()?;
    Some((name.to_owned(), labels, value))
}

fn whole() -> Status {
    let reading = |quantity, value| Reading {
        quantity,
        drive: Some("sda".to_owned()),
        value,
        limit: 40.0,
    };
    Status {
        totals: Totals {
            files_moved: 3,
            extents_removed: 500,
            stalls: 2,
            longest_step: Nanos(1_500_000),
            failures: 1,
            skipped: [(SkipReason::NotRead, 7), (SkipReason::Shared, 2)].into(),
            scans: 4,
            ..Totals::default()
        },
        places: vec![
            PlaceStatus {
                path: "/srv/a \"b\"\\c\nd".into(),
                wanted: Bytes::mib(1),
                saved_requests: 12.5,
                saved_s: Some(0.25),
                readings: vec![
                    reading(Quantity::DiskBusy, Ok(12.5)),
                    reading(Quantity::Wear, Err(CannotTell::NotTold)),
                ],
                held: Some(("budget", "the budget of the day is spent".to_owned())),
                last_success_s: Some(1_800_000_000),
                relocated: Bytes::gib(2),
                written: Bytes::gib(3),
                ..PlaceStatus::default()
            },
            PlaceStatus {
                path: "/home".into(),
                readings: vec![reading(Quantity::DiskBusy, Ok(99.0))],
                ..PlaceStatus::default()
            },
        ],
        traced_s: 600.25,
        traced: Some(Traced {
            reads: 9,
            read_time: Some(Nanos(250_000)),
            requests_per_read: Some(4.5),
        }),
        left_day: Some(Bytes::gib(7)),
        left_year: None,
    }
}

#[test]
fn the_text_is_as_the_specification_says() {
    for status in [Status::default(), whole()] {
        let text = opened(&status, "1.0 \"x\"");
        let families = read(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        for (name, family) in &families {
            assert!(name.starts_with("indef_"), "{name}");
            // A unit is told where the name has one.
            let unit = ["bytes", "seconds"]
                .into_iter()
                .find(|unit| name.ends_with(unit));
            assert_eq!(family.unit, unit.unwrap_or(""), "{name}");
            assert!(!name.ends_with("_total"));
        }
    }
    // Names that are not UTF-8 stay apart.
    let mut odd = whole();
    for (place, byte) in odd.places.iter_mut().zip([0xFE, 0xFF]) {
        place.path = PathBuf::from(OsString::from_vec(vec![b'/', byte]));
    }
    read(&opened(&odd, "1")).unwrap();
    let families = read(&opened(&whole(), "1")).unwrap();
    let value = |name: &str, labels: &[(&str, &str)]| {
        let labels = labels
            .iter()
            .map(|(a, b)| ((*a).to_owned(), (*b).to_owned()));
        families[name].samples[&labels.collect::<Vec<_>>()]
    };
    let odd = ("file_system", "/srv/a \"b\"\\c\nd");
    assert_eq!(value("indef_moved_bytes", &[odd]), (2u64 << 30) as f64);
    assert_eq!(value("indef_written_bytes", &[odd]), (3u64 << 30) as f64);
    assert_eq!(value("indef_longest_step_seconds", &[]), 0.0015);
    assert_eq!(value("indef_skipped_files", &[("reason", "not-read")]), 7.0);
    assert_eq!(value("indef_paused", &[odd, ("reason", "budget")]), 1.0);
    assert_eq!(value("indef_paused", &[odd, ("reason", "window")]), 0.0);
    let wear = [("quantity", "wear"), ("drive", "sda")];
    assert_eq!(value("indef_reading_known", &wear), 0.0);
    let busy = [("quantity", "disk-busy"), ("drive", "sda")];
    assert_eq!(value("indef_reading", &busy), 12.5);
    assert_eq!(
        value("indef_budget_left_bytes", &[("period", "day")]),
        (7u64 << 30) as f64
    );
    assert_eq!(value("indef_traced_read_seconds", &[]), 0.000_25);
    assert_eq!(
        value("indef_last_success_timestamp_seconds", &[odd]),
        1_800_000_000.0
    );
}

/// As Prometheus gets it.
fn opened(status: &Status, version: &str) -> String {
    render(status, &about(version), Form::OpenMetrics)
}

/// For node_exporter each family has the name of its samples, and these are the same.
#[test]
fn the_older_form_has_the_same_samples() {
    let texts =
        [Form::OpenMetrics, Form::Prometheus].map(|form| render(&whole(), &about("1"), form));
    let samples = texts.each_ref().map(|text| {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        lines.collect::<Vec<_>>()
    });
    assert_eq!(samples[0], samples[1]);
    let mut kinds = BTreeMap::new();
    let mut helped = BTreeSet::new();
    for line in texts[1].lines() {
        match line.splitn(4, ' ').collect::<Vec<_>>()[..] {
            ["#", "EOF"] => {}
            ["#", "TYPE", name, kind] => assert!(kinds.insert(name, kind).is_none(), "{line}"),
            ["#", "HELP", name, _] => assert!(helped.insert(name), "{line}"),
            ["#", ..] => panic!("{line}"),
            _ => {
                let (name, ..) = sample(line).unwrap();
                let kind = if name.ends_with("_total") {
                    "counter"
                } else {
                    "gauge"
                };
                assert_eq!(kinds.get(&*name), Some(&kind), "{line}");
                assert!(helped.contains(&*name), "{line}");
            }
        }
    }
    assert!(texts[1].ends_with("\n# EOF\n"));
}

#[test]
fn the_reader_is_strict() {
    let good = "# TYPE a counter\n# HELP a x\na_total{b=\"c\"} 1\n# EOF\n";
    assert!(read(good).is_ok());
    for (from, to) in [
        ("# EOF\n", ""),
        ("# EOF\n", "# EOF"),
        ("a_total", "a"),
        ("# HELP a x\n", ""),
        ("} 1", "} -1"),
        ("{b=\"c\"}", "{b=\"c}"),
        ("{b=\"c\"}", "{b=\"c\",b=\"d\"}"),
        ("a_total{b=\"c\"} 1\n", "a_total 1\na_total 1\n"),
        ("# HELP a x\n", "# HELP a x\n# UNIT a seconds\n"),
        ("# TYPE a counter\n", ""),
    ] {
        assert!(read(&good.replace(from, to)).is_err(), "{to}");
    }
}

fn about(version: &str) -> About {
    About {
        version: version.to_owned(),
        host: "db \\ 1".to_owned(),
        file_systems: vec![FileSystemInfo {
            path: "/srv".into(),
            fs: "ext4".to_owned(),
            uuid: "u-1".to_owned(),
            device: "/dev/sda".to_owned(),
            model: "\"BEST\" 7".to_owned(),
        }],
        ..About::default()
    }
}

/// The names with this beginning in a text.
fn names(text: &str) -> BTreeSet<&str> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words = text.split(|c: char| !is_part(c));
    words.filter(|word| word.starts_with("indef_")).collect()
}

/// Dashboard, alerts and documents name no metric that there is not, and the document names all.
#[test]
fn what_names_a_metric_names_one_that_there_is() {
    let families = read(&opened(&whole(), "1")).unwrap();
    let samples: BTreeSet<String> = families
        .iter()
        .map(|(name, family)| match family.kind.as_str() {
            "counter" => format!("{name}_total"),
            _ => name.clone(),
        })
        .collect();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for file in [
        "packaging/metrics/grafana.json",
        "packaging/metrics/alerts.yml",
        "docs/ops.md",
    ] {
        let text = fs::read_to_string(root.join(file)).unwrap();
        let named = names(&text);
        assert!(named.len() > 3, "{file} names some");
        for name in named {
            assert!(samples.contains(name), "{file}: {name}");
        }
    }
    let text = fs::read_to_string(root.join("docs/ops.md")).unwrap();
    let named = names(&text);
    for name in &samples {
        assert!(named.contains(name.as_str()), "docs/ops.md lacks {name}");
    }
    let dashboard = fs::read_to_string(root.join("packaging/metrics/grafana.json")).unwrap();
    let dashboard: serde_json::Value = serde_json::from_str(&dashboard).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    assert!(
        panels
            .iter()
            .all(|panel| !panel["targets"].as_array().unwrap().is_empty())
    );
}
