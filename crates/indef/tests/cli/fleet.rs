//! `indef report --merge`: one table of many hosts, of documents of any version, some of which are damaged.

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::{Value, json};

use crate::common::{Run, documented::is_documented, indef, indef_with_state, run};

const EVIL: &str = "db<script>\u{1b}[31m";

/// The documents of a host, each on a line, as `ssh HOST 'indef history --json; indef scan --json …'` collects them.
fn documents(host: &str, runs: u64) -> String {
    let made = json!({"time_ns": 1_800_000_000_000_000_000_u64, "host": host, "version": "0.1.0", "kernel": "6.12.1",
        "machine": "x86_64", "command": ["indef"], "paths": [{"path": "/srv"}],
        "file_systems": [{"fs": "ext4", "uuid": "u-1", "mounted_at": "/srv", "device": "/dev/sda"}]});
    let runs: Vec<Value> = (0..runs)
        .map(|n| {
            json!({"started_at": "x", "started_ns": 1_700_000_000_000_000_000_u64 + n * 1_000_000_000_000,
                "ended": "done", "why": null, "verb": "run", "command": ["indef", "run", "--config"],
                "file_systems": [{"fs": "ext4", "uuid": "u-1", "mounted_at": "/srv"}], "duration_ns": 1_000_000_000,
                "files_moved": 2, "files_skipped": 1, "files_failed": 0, "skipped": {"swap-file": 1},
                "extents_before": 12, "extents_after": 2, "requests_saved": 10, "bytes_relocated": 4096,
                "bytes_written": 8192, "predicted_gain": 1e9, "predicted_gain_unit": "ns"})
        })
        .collect();
    let history = json!({"schema": 1, "runs": runs, "damaged_lines": 0, "made": made});
    let scan = json!({"schema": 1, "made": made, "files": [],
        "verdict": {"kind": "worth-moving", "text": "Worth moving 1 MiB", "move_bytes": 1 << 20},
        "totals": {"extents": 500, "ideal_extents": 100, "skipped": {"no-space": 3}}, "stopped": null});
    format!("{history}\n{scan}\n")
}

fn merge(options: &[&str], files: &[&Path]) -> crate::common::Ran {
    indef()
        .args(["report", "--merge"])
        .args(options)
        .args(files)
        .ran()
}

fn file(dir: &Path, name: &str, text: &str) -> PathBuf {
    let path = dir.join(name);
    fs::write(&path, text).unwrap();
    path
}

#[test]
fn hosts_are_told_apart_and_summed_up() {
    let dir = tempfile::tempdir().unwrap();
    let (one, two) = (documents("one", 3), documents("two", 5));
    // All of both in one file, and one of them once more.
    let all = file(dir.path(), "all.json", &format!("{one}{two}"));
    let again = file(dir.path(), "again.json", &two);
    let ran = merge(&["--json"], &[&all, &again]);
    assert_eq!((ran.status, ran.err.as_str()), (0, ""), "{ran:?}");
    let document = ran.json();
    let hosts = document["hosts"].as_array().unwrap();
    assert_eq!(hosts.len(), 2);
    for (host, (name, runs)) in hosts.iter().zip([("one", 3), ("two", 5)]) {
        assert_eq!(host["host"], name);
        assert_eq!(host["runs"], runs, "{host}");
        assert_eq!(host["bytes_relocated"], 4096 * runs);
        assert_eq!(host["requests_saved"], 10 * runs);
        assert_eq!(host["predicted_gain_ns"], 1e9 * runs as f64);
        assert_eq!(host["verdict"]["kind"], "worth-moving");
        assert_eq!(host["skipped"], json!({"no-space": 3}));
        assert_eq!(host["file_systems"][0]["device"], "/dev/sda");
        assert_eq!(
            (&host["extents"], &host["ideal_extents"]),
            (&json!(500), &json!(100))
        );
    }
    let totals = &document["totals"];
    assert_eq!(
        (&totals["hosts"], &totals["bytes_written"]),
        (&json!(2), &json!(8 * 8192))
    );
    assert_eq!(totals["verdicts"], json!({"worth-moving": 2}));
    assert_eq!(document["bad"], json!([]));
    let told = merge(&[], &[&all]).out;
    assert!(
        told.starts_with("2 hosts: 2 have 2 MiB worth moving"),
        "{told}"
    );
    assert!(
        told.contains("500 of 100") && told.contains("no-space 3"),
        "{told}"
    );
    assert!(
        merge(&["--top", "1"], &[&all])
            .out
            .contains("and 1 more host (--top)")
    );
}

#[test]
fn bad_files_are_named_and_the_others_are_shown() {
    let dir = tempfile::tempdir().unwrap();
    let good = documents("good", 1);
    let (scan, _) = good.split_once('\n').unwrap();
    let bad = [
        (
            "torn.json",
            scan[..scan.len() - 40].to_owned(),
            "document 1: EOF",
        ),
        (
            "newer.json",
            r#"{"schema": 2, "files": 7}"#.to_owned(),
            "schema 2, but this indef reads schema 1",
        ),
        ("empty.json", String::new(), "empty"),
        (
            "text.json",
            "no such host".to_owned(),
            "document 1: expected",
        ),
        (
            "foreign.json",
            r#"{"hello": 1}"#.to_owned(),
            "not a document of indef",
        ),
        (
            "doctor.json",
            run(["doctor", "--json"]).out,
            "neither of fragments nor of runs",
        ),
        (
            "type.json",
            r#"{"schema": 1, "runs": 7}"#.to_owned(),
            "invalid type: integer `7`",
        ),
        (
            "demo.json",
            r#"{"schema": 1, "contents_equal": true}"#.to_owned(),
            "a demo",
        ),
    ];
    let files: Vec<PathBuf> = bad
        .iter()
        .map(|(name, text, _)| file(dir.path(), name, text))
        .chain([
            file(dir.path(), "good.json", &format!("{good}{{\"schema\": 9}}")),
            dir.path().join("absent.json"),
        ])
        .collect();
    let paths: Vec<&Path> = files.iter().map(PathBuf::as_path).collect();
    let ran = merge(&["--json"], &paths);
    assert_eq!(ran.status, 1, "{ran:?}");
    let document = ran.json();
    // What the file had before its fault counts.
    assert_eq!(document["hosts"].as_array().unwrap().len(), 1);
    assert_eq!(document["hosts"][0]["documents"], 2);
    let told = document["bad"].as_array().unwrap();
    assert_eq!(told.len(), bad.len() + 2, "{told:#?}");
    for ((name, _, why), told) in bad.iter().zip(told) {
        assert!(
            told["source"]["path"].as_str().unwrap().ends_with(name),
            "{told}"
        );
        assert!(
            told["error"].as_str().unwrap().contains(why),
            "{name}: {told}"
        );
        assert!(ran.err.contains(name), "{}", ran.err);
    }
    assert!(
        told[bad.len()]["error"]
            .as_str()
            .unwrap()
            .contains("document 3: schema 9")
    );
    assert!(
        told[bad.len() + 1]["error"]
            .as_str()
            .unwrap()
            .contains("check the path")
    );
}

#[test]
fn documents_of_earlier_and_later_versions_are_read() {
    let dir = tempfile::tempdir().unwrap();
    // Without `made` and `dry_run`, as the first versions wrote it.
    let old = json!({"schema": 1, "files": [{"path": "/x", "fs": "ext4", "engine": null, "status": "moved",
        "reason": null, "extents_before": 5, "extents_after": 1}],
        "totals": {"files_moved": 1, "files_skipped": 0, "files_failed": 0, "bytes_relocated": 10}, "stopped": null});
    let old = file(dir.path(), "old.json", &old.to_string());
    let mut newer: Value =
        serde_json::from_str(documents("new", 1).lines().nth(1).unwrap()).unwrap();
    newer["verdict"]["kind"] = json!("a-new-word");
    newer["made"]["rack"] = json!({"row": 7});
    newer["unheard_of"] = json!([[1, 2], {"a": null}]);
    newer["totals"]["skipped"]["new-reason"] = json!(2);
    let newer = file(dir.path(), "new.json", &newer.to_string());
    let ran = merge(&["--json"], &[&old, &newer]);
    assert_eq!(ran.status, 0, "{ran:?}");
    let document = ran.json();
    let hosts = document["hosts"].as_array().unwrap();
    let of = |name: &Value| hosts.iter().find(|host| host["host"] == *name).unwrap();
    let untold = of(&Value::Null);
    assert!(
        untold["source"]["path"]
            .as_str()
            .unwrap()
            .ends_with("old.json")
    );
    assert_eq!(
        (&untold["requests_saved"], &untold["last_success_ns"]),
        (&json!(4), &Value::Null)
    );
    let new = of(&json!("new"));
    assert_eq!(new["verdict"]["kind"], "a-new-word");
    assert_eq!(new["skipped"]["new-reason"], 2);
}

/// What this version writes is what it reads.
#[test]
fn real_documents_become_one_host() {
    let (state, files) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::write(files.path().join("file"), [7; 5000]).unwrap();
    let path = files.path().to_str().unwrap();
    let mut all = String::new();
    for arguments in [
        &["scan", path][..],
        &["plan", path],
        &["run", "--dry-run", path],
        &["run", path],
        &["watch", "--dry-run", path],
        &["history"],
    ] {
        let ran = indef_with_state(state.path())
            .env("INDEF_HOST", EVIL)
            .args(arguments)
            .arg("--json")
            .ran();
        assert!([0, 3].contains(&ran.status), "{ran:?}");
        all.push_str(&ran.out);
    }
    let all = file(state.path(), "all.json", &all);
    let ran = merge(&["--json"], &[&all]);
    assert_eq!((ran.status, ran.err.as_str()), (0, ""), "{ran:?}");
    let document = ran.json();
    assert_eq!(document["hosts"].as_array().unwrap().len(), 1, "{document}");
    let host = &document["hosts"][0];
    assert_eq!(
        (&host["host"], &host["documents"]),
        (&json!(EVIL), &json!(6))
    );
    // One run, of which its result and the history tell.
    assert_eq!((&host["runs"], &host["failed"]), (&json!(1), &json!(false)));
    assert!(host["last_success_ns"].as_u64().is_some());
    assert!(
        host["version"]
            .as_str()
            .unwrap()
            .starts_with(env!("CARGO_PKG_VERSION"))
    );
    // A name is no markup, and moves no cursor.
    let page = state.path().join("fleet.html");
    let ran = merge(
        &["-o", page.to_str().unwrap()],
        &[&all, Path::new("/no/<b>such")],
    );
    assert_eq!(ran.status, 1, "{ran:?}");
    let page = fs::read_to_string(page).unwrap();
    assert!(
        page.contains("db&#60;script&#62;") && page.contains("/no/&#60;b&#62;such"),
        "{page}"
    );
    assert_eq!(page.matches("<script").count(), 1);
    assert!(!page.contains('\u{1b}') && !merge(&[], &[&all]).out.contains('\u{1b}'));
}

#[test]
fn a_thousand_hosts_need_little_memory() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("all.json");
    let mut out = std::io::BufWriter::new(fs::File::create(&path).unwrap());
    for n in 0..1000 {
        out.write_all(documents(&format!("host-{n:04}"), 20).as_bytes())
            .unwrap();
    }
    out.into_inner().unwrap();
    // Some 10 MB of documents.
    assert!(fs::metadata(&path).unwrap().len() > 8_000_000);
    let script = "ulimit -d 16384; exec \"$0\" report --merge --json \"$1\"";
    let ran = Command::new("sh")
        .args(["-c", script, env!("CARGO_BIN_EXE_indef")])
        .arg(&path)
        .ran();
    assert_eq!(ran.status, 0, "{ran:?}");
    let totals = &ran.json()["totals"];
    assert_eq!(
        (&totals["hosts"], &totals["runs"]),
        (&json!(1000), &json!(20_000))
    );
}

#[test]
fn every_field_is_documented() {
    let dir = tempfile::tempdir().unwrap();
    let input = file(dir.path(), "one.json", &documents("one", 1));
    let document = merge(&["--json"], &[&input, Path::new("/no/such")]).json();
    let mut names = Vec::new();
    collect(&document, &mut names);
    for name in names {
        assert!(is_documented("report", &name), "{name}");
    }
}

/// All names of fields, but those of `made`, of what has a section of its own, and of reasons and versions.
fn collect(value: &Value, names: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                if ["schema", "made"].contains(&name.as_str()) {
                    continue;
                }
                names.push(name.clone());
                if !["file_systems", "skipped", "versions", "verdicts", "source"]
                    .contains(&name.as_str())
                {
                    collect(value, names);
                }
            }
        }
        Value::Array(entries) => entries.iter().for_each(|entry| collect(entry, names)),
        _ => {}
    }
}

/// Of whom nothing is known, nothing is told.
#[test]
fn that_nothing_is_worth_moving_is_told_of_those_who_say_so() {
    let dir = tempfile::tempdir().unwrap();
    let scan = |host: &str, kind: &str| {
        let (_, scan) = documents(host, 0)
            .split_once('\n')
            .map(|(a, b)| (a.to_owned(), b.to_owned()))
            .unwrap();
        let mut scan: Value = serde_json::from_str(&scan).unwrap();
        scan["verdict"] = json!({"kind": kind, "text": "", "move_bytes": 0});
        format!("{scan}\n")
    };
    let says = |text: &str, what: &str| {
        let all = file(dir.path(), "all.json", text);
        let told = merge(&[], &[&all]).out;
        assert_eq!(told.lines().next(), Some(what));
    };
    let fine = format!("{}{}", scan("a", "fine"), scan("b", "nothing-to-gain"));
    says(&fine, "2 hosts: nothing is worth moving on any of them");
    let others = format!("{}{}", scan("c", "no-engine"), scan("d", "cannot-tell"));
    says(
        &format!("{fine}{others}"),
        "4 hosts: nothing is worth moving on 2, no engine can move what is on 1, it is not known of 1",
    );
    // Commands that did not come to anything else.
    let failed = |words: &[&str]| {
        let ran = indef().env("INDEF_HOST", "e").args(words).ran();
        assert_eq!(ran.status, 1, "{ran:?}");
        ran.out
    };
    says(
        &failed(&["run", "--json", "--files-from", "/no/such"]),
        "1 host: the last run failed on 1, it is not known of 1",
    );
    says(
        &failed(&["watch", "--json", "--once", "/no/such"]),
        "1 host: the last run failed on 1, it is not known of 1",
    );
    let scan = failed(&["scan", "--json", "--files-from", "/no/such"]);
    let all = file(dir.path(), "scan.json", &scan);
    let ran = merge(&[], &[&all]);
    assert_eq!(ran.status, 1);
    ran.error_line("document 1: the command failed: /no/such");
}
