//! The history: what runs leave in it, however they end.

use std::{
    fs::{self, OpenOptions},
    path::Path,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::Value;
use units::Bytes;

use crate::common::{
    Run, documented::assert_documented, indef_with_state, is_root, make, scratch, spawn,
};

fn runs(state: &Path) -> Vec<Value> {
    let ran = indef_with_state(state).args(["history", "--json"]).ran();
    assert_eq!((ran.status, ran.err.as_str()), (0, ""), "{ran:?}");
    ran.json()["runs"].as_array().unwrap().clone()
}

fn text(state: &Path, options: &[&str]) -> String {
    let ran = indef_with_state(state).arg("history").args(options).ran();
    assert_eq!((ran.status, ran.err.as_str()), (0, ""), "{ran:?}");
    ran.out
}

#[test]
fn each_run_leaves_a_record_and_a_dry_one_none() {
    let (state, files) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    assert!(text(state.path(), &[]).contains("No run is on record"));
    fs::write(files.path().join("file"), [7; 5000]).unwrap();
    let run = |options: &[&str]| {
        let mut command = indef_with_state(state.path());
        command.arg("run").args(options).ran()
    };
    let path = files.path().to_str().unwrap();
    assert_eq!(run(&["--dry-run", path]).status, 0);
    assert_eq!(runs(state.path()).len(), 0);
    assert_eq!(run(&[path]).status, 0);
    assert_eq!(run(&["--plan", "/no/such/plan"]).status, 1);
    let runs = runs(state.path());
    assert_eq!(runs.len(), 2, "{runs:?}");
    let (done, failed) = (&runs[0], &runs[1]);
    assert_eq!(
        (&done["ended"], &done["why"]),
        (&"done".into(), &Value::Null)
    );
    assert_eq!(
        (&done["files_moved"], &done["requests_saved"]),
        (&0.into(), &0.into())
    );
    assert_eq!(done["files_skipped"], 1);
    assert_eq!(done["skipped"].as_object().unwrap().len(), 1, "{done}");
    assert_eq!(done["command"].as_array().unwrap()[1..], ["run", path]);
    assert!(done["started_at"].as_str().unwrap().ends_with('Z'));
    assert_eq!(failed["ended"], "failed");
    assert!(
        failed["why"].as_str().unwrap().contains("/no/such/plan"),
        "{failed}"
    );
    let text = text(state.path(), &["--last", "1"]);
    assert!(
        text.contains("and 1 earlier run") && text.contains("/no/such/plan"),
        "{text}"
    );
}

#[test]
fn a_path_that_is_not_there_is_no_success() {
    let (state, files) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::write(files.path().join("file"), [7; 5000]).unwrap();
    let indef = || indef_with_state(state.path());
    let ran = indef()
        .args(["run", "--json", "/no/such"])
        .arg(files.path())
        .ran();
    assert_eq!(ran.status, 1, "{ran:?}");
    assert_eq!(ran.json()["totals"]["problems"], 1, "{ran:?}");
    let run = &runs(state.path())[0];
    assert_eq!(
        (&run["ended"], &run["problems"]),
        (&"done".into(), &1.into())
    );
    let text = text(state.path(), &[]);
    assert!(text.contains("done, 1 failed"), "{text}");
    assert!(text.contains("1 path could not be looked at"), "{text}");
    // Neither by its result nor by the history.
    for (name, told) in [
        ("run", ran),
        ("history", indef().args(["history", "--json"]).ran()),
    ] {
        let document = files.path().join(name);
        fs::write(&document, told.out).unwrap();
        let merged = indef()
            .args(["report", "--merge", "--json"])
            .arg(&document)
            .ran();
        let host = &merged.json()["hosts"][0];
        assert_eq!(
            (&host["failed"], &host["last_success_ns"]),
            (&true.into(), &Value::Null),
            "{name}: {host}"
        );
        let told = indef().arg("report").arg("--merge").arg(&document).ran();
        assert!(told.out.contains("last run failed"), "{told:?}");
    }
}

#[test]
fn root_finds_its_records_also_where_var_may_not_be_written() {
    if !is_root() {
        return;
    }
    let allowed = Command::new("unshare").args(["--mount", "true"]).ran();
    if allowed.status != 0 {
        return scratch_fs::skip("mounts cannot be unshared here");
    }
    let (home, files) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::write(files.path().join("file"), [7; 5000]).unwrap();
    let script = "mount -t tmpfs none /var/lib && mkdir /var/lib/indef && mount -o remount,ro /var/lib \
        && \"$0\" run --quiet \"$1\" && exec \"$0\" history --json";
    let ran = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "sh", "-c", script])
        .arg(env!("CARGO_BIN_EXE_indef"))
        .arg(files.path())
        .env("HOME", home.path())
        .env_remove("STATE_DIRECTORY")
        .env_remove("XDG_STATE_HOME")
        .ran();
    assert_eq!((ran.status, ran.err.as_str()), (0, ""), "{ran:?}");
    assert_eq!(ran.json()["runs"].as_array().unwrap().len(), 1, "{ran:?}");
}

#[test]
fn a_killed_run_is_told_as_killed() {
    let (state, dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let fifo = dir.path().join("plan");
    mknodat(CWD, &fifo, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    let mut command = indef_with_state(state.path());
    let mut child = spawn(command.arg("run").arg("--plan").arg(&fifo));
    // It waits for its plan.
    let begun = Instant::now();
    let going_on = loop {
        match &runs(state.path())[..] {
            [run] => break run.clone(),
            _ => assert!(begun.elapsed() < Duration::from_secs(60)),
        }
        thread::sleep(Duration::from_millis(10));
    };
    assert_eq!(
        (&going_on["ended"], &going_on["duration_ns"]),
        (&Value::Null, &Value::Null)
    );
    assert!(text(state.path(), &[]).contains("goes on"));
    child.kill().unwrap();
    child.wait().unwrap();
    let killed = &runs(state.path())[0];
    assert_eq!(
        (&killed["ended"], &killed["why"]),
        (&"failed".into(), &"killed".into())
    );
    for unknown in ["bytes_relocated", "file_systems"] {
        assert_eq!(killed[unknown], Value::Null, "nobody knows");
    }
    let told = indef_with_state(state.path())
        .args(["history", "--json"])
        .ran();
    let document = dir.path().join("history.json");
    fs::write(&document, told.out).unwrap();
    let merged = indef_with_state(state.path())
        .args(["report", "--merge", "--json"])
        .arg(&document)
        .ran();
    assert_eq!(merged.status, 0, "{merged:?}");
    assert_eq!(merged.json()["hosts"][0]["failed"], true, "{merged:?}");
    assert!(text(state.path(), &[]).contains("killed"));
}

#[test]
fn a_run_does_its_work_where_no_record_can_be_kept() {
    let (state, files) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::write(files.path().join("file"), [7; 5000]).unwrap();
    // A folder where the file would be.
    fs::create_dir(state.path().join("history")).unwrap();
    let ran = indef_with_state(state.path())
        .args(["run", "--json"])
        .arg(files.path())
        .ran();
    assert_eq!(ran.status, 0, "{ran:?}");
    assert_eq!(ran.json()["files"].as_array().unwrap().len(), 1);
    ran.error_line("indef history will not tell of this run");
    // A torn record, as after a power cut, spoils no other.
    fs::remove_dir(state.path().join("history")).unwrap();
    let run = || {
        indef_with_state(state.path())
            .arg("run")
            .arg(files.path())
            .ran()
    };
    assert_eq!((run().status, run().status), (0, 0));
    let history = state.path().join("history");
    let file = OpenOptions::new().write(true).open(&history).unwrap();
    let len = file.metadata().unwrap().len();
    file.set_len(len - 20).unwrap();
    assert_eq!(run().status, 0);
    let ran = indef_with_state(state.path())
        .args(["history", "--json"])
        .ran();
    let document = ran.json();
    let ended: Vec<&Value> = document["runs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|run| &run["ended"])
        .collect();
    assert_eq!(ended, ["done", "failed", "done"]);
    assert_eq!(document["damaged_lines"], 1);
}

#[test]
fn every_field_is_documented() {
    let (state, files) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    indef_with_state(state.path())
        .arg("run")
        .arg(files.path())
        .ran();
    let document = indef_with_state(state.path())
        .args(["history", "--json"])
        .ran()
        .json();
    assert_documented("history", &[&document, &document["runs"][0]]);
}

#[test]
fn loop_what_was_moved_is_on_record() {
    let Some(fs) = scratch("ext4") else { return };
    let state = tempfile::tempdir().unwrap();
    make(&fs.path().join("file"), Bytes::mib(4), Bytes::kib(16));
    let ran = indef_with_state(state.path())
        .args(["run", "--json"])
        .arg(fs.path())
        .ran();
    let document = ran.json();
    assert_eq!(document["totals"]["files_moved"], 1, "{ran:?}");
    let [run] = &runs(state.path())[..] else {
        panic!("one run")
    };
    assert_eq!(run["files_moved"], 1);
    assert_eq!(
        run["bytes_relocated"],
        document["totals"]["bytes_relocated"]
    );
    let file = &document["files"][0];
    assert_eq!(run["extents_before"], file["extents_before"]);
    assert_eq!(run["extents_after"], file["extents_after"]);
    let saved = run["requests_saved"].as_u64().unwrap();
    assert!(saved > 100, "{run}");
    assert!(run["predicted_gain"].as_f64().unwrap() > 0.0, "{run}");
    let on = &run["file_systems"][0];
    assert_eq!(
        (&on["fs"], &on["mounted_at"]),
        (&"ext4".into(), &fs.path().to_str().unwrap().into())
    );

    let mut compact = indef_with_state(state.path());
    let ran = compact
        .args(["compact", "--want", "256MiB", "--json"])
        .arg(fs.path())
        .ran();
    let document = ran.json();
    let run = &runs(state.path())[1];
    assert_eq!(run["verb"], "compact");
    assert!(run["largest_before_bytes"].is_u64(), "{ran:?}");
    assert_eq!(
        run["largest_before_bytes"], document["largest_before_bytes"],
        "{ran:?}"
    );
}
