//! What Prometheus, its promtool and node_exporter say of the metrics, and of the rules and the dashboard that use them
//! (packaging/metrics).

mod running;

use std::{
    collections::BTreeSet,
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use indef_core::SkipReason;
use indef_pipeline::{
    consider::{CannotTell, Quantity, Reading},
    tend::{
        PlaceStatus, Status, Totals, Traced,
        metrics::{About, FileSystemInfo, Form, MEDIA_TYPE, render},
    },
};
use metrics_server::{Address, Server};
use serde_json::{Value, json};
use units::{Bytes, Nanos};

use crate::{
    common::{Ran, Run, indef_with_state, is_root, make, scratch},
    loop_watch::machine,
};
use running::{Prometheus, Running, free_port, program, within};

const ALERTS: &str = "metrics/alerts.yml";
/// The one that node_exporter's own series are for.
const OF_FILES: &str = "IndefMetricsOld";
const DAY: u64 = 86_400;

fn packaging(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../packaging")
        .join(name)
}

/// The cases for the rules.
fn cases() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/prometheus/alerts-test.yml")
}

fn alerts() -> Vec<String> {
    let text = fs::read_to_string(packaging(ALERTS)).unwrap();
    let names = { text.lines() }.filter_map(|line| line.trim().strip_prefix("- alert: "));
    names.map(str::to_owned).collect()
}

#[test]
fn each_alert_has_a_case_in_which_it_fires_and_one_in_which_it_does_not() {
    let text = fs::read_to_string(cases()).unwrap();
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let alerts = alerts();
    assert!(alerts.len() >= 7, "{alerts:?}");
    for alert in alerts {
        let of_this = format!("alertname: {alert}");
        let at = |line: &[&str]| line[0] == of_this;
        let fires: BTreeSet<bool> = { lines.windows(2).filter(|lines| at(lines)) }
            .map(|lines| lines[1] == "exp_alerts:")
            .collect();
        assert_eq!(fires.len(), 2, "{alert}: {fires:?}");
    }
}

#[test]
fn promtool_accepts_the_alert_rules() {
    let Some(promtool) = program("promtool") else {
        return;
    };
    let ran = Command::new(&promtool)
        .args(["check", "rules", "--lint=all", "--lint-fatal"])
        .arg(packaging(ALERTS))
        .ran();
    assert_eq!(ran.status, 0, "{ran:?}");
    let ran = Command::new(&promtool)
        .args(["test", "rules"])
        .arg(cases())
        .ran();
    assert_eq!(ran.status, 0, "{}{}", ran.out, ran.err);
}

#[test]
fn promtool_accepts_the_metrics_file() {
    let Some(promtool) = program("promtool") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let (file, data) = (folder.path().join("indef.prom"), folder.path().join("data"));
    fs::create_dir(&data).unwrap();
    let ran = indef_with_state(folder.path())
        .args(["watch", "--once", "--learn", "0s", "--metrics-file"])
        .args([&file, &data])
        .ran();
    assert!(matches!(ran.status, 0 | 3), "{ran:?}");
    let written = fs::read_to_string(&file).unwrap();
    assert!(written.contains("\nindef_scans_total "), "{written}");
    let whole = folder.path().join("whole.prom");
    fs::write(
        &whole,
        render(&troubled(1), &fleet_host(), Form::Prometheus),
    )
    .unwrap();
    for file in [file, whole] {
        let ran = Command::new(&promtool)
            .args(["check", "metrics"])
            .stdin(Stdio::from(fs::File::open(&file).unwrap()))
            .ran();
        assert_eq!((ran.status, &*ran.out, &*ran.err), (0, "", ""));
    }
}

/// A host about which each alert tells, and of which each metric is known, at this scrape of it.
fn troubled(scrapes: u64) -> Status {
    let reading = |quantity, value, limit| Reading {
        quantity,
        drive: Some("nvme0n1".to_owned()),
        value,
        limit,
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    Status {
        totals: Totals {
            files_moved: scrapes,
            extents_removed: 9 * scrapes,
            stalls: 20 * scrapes,
            longest_step: Nanos(250_000_000),
            failures: scrapes,
            skipped: [(SkipReason::Shared, 2 * scrapes)].into(),
            scans: scrapes,
            ..Totals::default()
        },
        places: vec![
            PlaceStatus {
                path: "/srv/a \"b\"\\c".into(),
                wanted: Bytes::mib(1),
                saved_requests: 12.5,
                saved_s: Some(0.25),
                readings: vec![
                    reading(Quantity::DiskBusy, Err(CannotTell::OwnWork), 40.0),
                    reading(Quantity::Temperature, Ok(50.0), 65.0),
                    reading(Quantity::Wear, Ok(85.0), 80.0),
                ],
                held: Some(("readings", "worn".to_owned())),
                last_success_s: Some(now.as_secs() - 8 * DAY),
                relocated: Bytes::mib(scrapes),
                written: Bytes::mib(scrapes),
                ..PlaceStatus::default()
            },
            PlaceStatus {
                path: "/home".into(),
                ..PlaceStatus::default()
            },
        ],
        traced_s: 0.5 * scrapes as f64,
        traced: Some(Traced {
            reads: 9,
            read_time: Some(Nanos(250_000)),
            requests_per_read: Some(4.5),
        }),
        left_day: Some(Bytes::gib(1)),
        left_year: Some(Bytes::ZERO),
    }
}

fn fleet_host() -> About {
    About {
        version: "1.0".to_owned(),
        file_systems: vec![FileSystemInfo {
            path: "/home".into(),
            fs: "ext4".to_owned(),
            ..FileSystemInfo::default()
        }],
        ..About::default()
    }
}

/// Serves such a host, whose troubles grow.
fn serve_troubled() -> Server {
    let anywhere = Address::Loopback(SocketAddr::from(([127, 0, 0, 1], 0)));
    let mut scrapes = 0;
    let text = move || {
        scrapes += 1;
        Some(render(&troubled(scrapes), &fleet_host(), Form::OpenMetrics))
    };
    Server::start(&anywhere, MEDIA_TYPE, text).unwrap()
}

/// A service that finds something to move, tells Prometheus at this port, and node_exporter by this file.
fn service(state: &Path, calm: &Path, port: u16, file: &Path, data: &Path) -> Running {
    Running::start(
        indef_with_state(state)
            .env("INDEF_WATCH_ROOT", calm)
            .args(["watch", "--learn", "0s", "--without-profile"])
            .args(["--payback", "3650days", "--requests-price", "1"])
            .args(["--calm", "1s", "--every", "20s", "--budget", "1GiB"])
            .args(["--metrics-listen", &format!("127.0.0.1:{port}")])
            .arg("--metrics-file")
            .args([file, data]),
    )
}

#[test]
fn loop_prometheus_reads_the_service_and_evaluates_rules_and_dashboard() {
    let found = ["prometheus", "prometheus-node-exporter"].map(program);
    let [Some(prometheus), Some(node_exporter)] = found else {
        return;
    };
    if !is_root() {
        return;
    }
    let Some(scratch) = scratch("ext4") else {
        return;
    };
    let data = scratch.path().join("data");
    fs::create_dir(&data).unwrap();
    make(&data.join("file"), Bytes::mib(4), Bytes::kib(4));
    scratch.sync().unwrap();
    let (folder, calm) = (tempfile::tempdir().unwrap(), machine(0.0));
    let textfiles = folder.path().join("textfiles");
    fs::create_dir(&textfiles).unwrap();
    // Of a service that has ended.
    let old = fs::File::create(textfiles.join("indef-old.prom")).unwrap();
    let two_days_ago = SystemTime::now() - Duration::from_secs(2 * DAY);
    old.set_modified(two_days_ago).unwrap();

    let (own, node) = (free_port(), free_port());
    let service = service(
        folder.path(),
        calm.path(),
        own,
        &textfiles.join("indef.prom"),
        &data,
    );
    let _node_exporter = Running::start(
        Command::new(node_exporter)
            .args(["--collector.disable-defaults", "--collector.textfile"])
            .arg(format!("--web.listen-address=127.0.0.1:{node}"))
            .arg("--collector.textfile.directory")
            .arg(&textfiles),
    );
    let fleet = [serve_troubled(), serve_troubled()];
    let instance = |port: u16| format!("127.0.0.1:{port}");
    let fleet: Vec<String> = { fleet.iter() }
        .map(|server| instance(server.bound().unwrap().port()))
        .collect();
    let (own, node) = (instance(own), instance(node));
    let indef: Vec<&String> = fleet.iter().chain([&own]).collect();
    let config = json!({
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [packaging(ALERTS).canonicalize().unwrap()],
        "scrape_configs": [
            {"job_name": "indef", "static_configs": [{"targets": indef}]},
            {"job_name": "node", "static_configs": [{"targets": [node]}]},
        ],
    });
    let prometheus = Prometheus::start(&prometheus, folder.path(), &config);

    prometheus.reads_all_targets(4);
    // What the service has moved comes both ways, and the types of counters, too.
    for (instance, family) in [
        (&own, "indef_moved_bytes"),
        (&node, "indef_moved_bytes_total"),
    ] {
        let moved = format!(
            "indef_moved_bytes_total{{instance={instance:?}}} >= {}",
            1 << 20
        );
        within("something is moved", || {
            Some(prometheus.query(&moved)).filter(|found| !found.is_empty())
        });
        let kind = prometheus.metadata(instance, family);
        assert_eq!(kind["type"], "counter", "{instance}: {kind}");
        assert_eq!(
            kind["help"], "Bytes that got new, contiguous blocks.",
            "{kind}"
        );
    }
    assert_eq!(
        prometheus.query("node_textfile_scrape_error == 0").len(),
        1,
        "node_exporter reads the file"
    );
    assert_rules_are_evaluated(&prometheus, &fleet);
    let files = within("an alert tells of the old file", || {
        let told = prometheus.data("alerts")["alerts"].take();
        let files: Vec<String> = { told.as_array()?.iter() }
            .filter(|alert| alert["labels"]["alertname"] == OF_FILES)
            .filter_map(|alert| alert["labels"]["file"].as_str().map(str::to_owned))
            .collect();
        (!files.is_empty()).then_some(files)
    });
    assert!(
        matches!(&*files, [file] if file.ends_with("indef-old.prom")),
        "{files:?}"
    );
    assert_dashboard_is_filled(&prometheus, &own, &fleet);

    let ran: Ran = service.end();
    assert_eq!(ran.status, 0, "{ran:?}");
}

/// Each alert tells of each host of the fleet.
fn assert_rules_are_evaluated(prometheus: &Prometheus, fleet: &[String]) {
    let expected: BTreeSet<String> = alerts().into_iter().collect();
    let rules = within("all rules are evaluated", || {
        let rules = prometheus.data("rules?type=alert")["groups"][0]["rules"].take();
        let is_known = |rule: &Value| rule["health"] != "unknown";
        (rules.as_array()?.iter().all(is_known)).then_some(rules)
    });
    let mut names = BTreeSet::new();
    for rule in rules.as_array().unwrap() {
        assert_eq!(rule["health"], "ok", "{rule}");
        names.insert(rule["name"].as_str().unwrap().to_owned());
    }
    assert_eq!(names, expected);
    let of_host = |name: &String| name != OF_FILES;
    let expected: BTreeSet<String> = expected.into_iter().filter(of_host).collect();
    for host in fleet {
        let told = within("all alerts tell of the host", || {
            let told = prometheus.data("alerts")["alerts"].take();
            let told: Vec<Value> = { told.as_array()?.iter() }
                .filter(|alert| alert["labels"]["instance"] == **host)
                .cloned()
                .collect();
            let names: BTreeSet<_> = { told.iter() }
                .filter_map(|alert| alert["labels"]["alertname"].as_str())
                .map(str::to_owned)
                .collect();
            (names == expected).then_some(told)
        });
        for alert in &told {
            let annotations = alert["annotations"].to_string();
            // As Prometheus writes it where a template fails.
            assert!(!annotations.contains("error"), "{alert}");
            if alert["labels"]["alertname"] == "IndefStalls" {
                let begin = "The longest took 250ms. ";
                assert!(annotations.contains(begin), "{alert}");
            }
        }
    }
}

/// Each panel has something to show of the fleet, and of the service as far as that knows it.
fn assert_dashboard_is_filled(prometheus: &Prometheus, own: &str, fleet: &[String]) {
    let text = fs::read_to_string(packaging("metrics/grafana.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let mut variables = 0;
    for variable in dashboard["templating"]["list"].as_array().unwrap() {
        let Some(query) = variable["query"].as_str() else {
            panic!("{variable}");
        };
        let Some(query) = query.strip_prefix("label_values(") else {
            assert_eq!(variable["type"], "datasource", "{variable}");
            continue;
        };
        let (series, label) = query.trim_end_matches(')').rsplit_once(", ").unwrap();
        let values = prometheus.label_values(label, &series.replace("$job", ".+"));
        assert!(!values.is_empty(), "{variable}");
        if label == "instance" {
            let missing = { fleet.iter() }.find(|host| !values.contains(*host));
            assert!(missing.is_none() && values.contains(own), "{values:?}");
        }
        variables += 1;
    }
    assert_eq!(variables, 2);

    let known = prometheus.label_values("__name__", &format!("{{instance={own:?}}}"));
    let mut shown = 0;
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().unwrap() {
            let of = |instances: &str| {
                let expression = target["expr"].as_str().unwrap();
                expression
                    .replace("$__rate_interval", "15s")
                    .replace("$job", ".+")
                    .replace("$instance", instances)
            };
            let of_fleet = of(&fleet.join("|"));
            within(&of_fleet, || {
                Some(prometheus.query(&of_fleet)).filter(|found| !found.is_empty())
            });
            let of_service = of(own);
            let is_known = names(&of_service).is_subset(&known);
            // A comparison leaves out what is otherwise.
            if !is_known || of_service.contains("==") {
                prometheus.query(&of_service);
                continue;
            }
            within(&of_service, || {
                Some(prometheus.query(&of_service)).filter(|found| !found.is_empty())
            });
            shown += 1;
        }
    }
    assert!(shown >= 9, "{shown} of the service, which tells {known:?}");
}

/// The metrics of an expression.
fn names(expression: &str) -> BTreeSet<String> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words = expression.split(|c: char| !is_part(c));
    let names = words.filter(|word| word.starts_with("indef_"));
    names.map(str::to_owned).collect()
}
