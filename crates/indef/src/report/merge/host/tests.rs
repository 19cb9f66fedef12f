use serde_json::{Value, json};

use super::*;

const SECOND: u64 = 1_000_000_000;

/// A host of these documents.
fn host(documents: &[Value]) -> Host {
    let mut host = Host::default();
    for document in documents {
        let told: Told = serde_json::from_value(document.clone()).unwrap();
        host.add(told.kind().unwrap(), told);
    }
    host.finish();
    host
}

fn made(seconds: u64) -> Value {
    json!({"time_ns": seconds * SECOND, "host": "a", "version": format!("v{seconds}")})
}

/// The result of a run that took ten seconds, and ended then.
fn result(seconds: u64, bytes: u64) -> Value {
    json!({"schema": 1, "made": made(seconds), "dry_run": false, "stopped": null, "maps": [],
        "files": [
            {"path": "/x", "status": "moved", "reason": null, "extents_before": 10, "extents_after": 3},
            {"path": "/y", "status": "skipped", "reason": "swap-file", "extents_before": 5, "extents_after": 5}],
        "totals": {"files_moved": 1, "files_failed": 0, "bytes_relocated": bytes, "bytes_host_written": bytes,
            "bytes_offloaded": 0}})
}

/// The same in the history.
fn record(ended: u64, bytes: u64) -> Value {
    json!({"started_ns": (ended - 10) * SECOND, "duration_ns": 10 * SECOND, "ended": "done", "why": null, "verb": "run",
        "file_systems": [{"fs": "ext4", "uuid": "u-1", "mounted_at": "/"}], "files_moved": 1, "files_failed": 0,
        "skipped": {"swap-file": 1}, "requests_saved": 7, "bytes_relocated": bytes, "bytes_written": bytes,
        "predicted_gain": 2.5, "predicted_gain_unit": "iodp", "stalls_over_limit": 0})
}

fn history(seconds: u64, runs: &[Value]) -> Value {
    json!({"schema": 1, "runs": runs, "damaged_lines": 0, "made": made(seconds)})
}

#[test]
fn a_run_that_several_documents_tell_of_counts_once() {
    let documents = [
        result(1000, 4096),
        history(1100, &[record(1000, 4096), record(1050, 100)]),
        // A later history has the same runs and one more; its kinds and times are others.
        history(
            1200,
            &[record(1000, 4096), record(1050, 100), record(1150, 50)],
        ),
        // Once more the same file.
        result(1000, 4096),
        // Of another user, whose history is not here.
        result(1001, 999),
    ];
    // In whatever order.
    for turn in 0..documents.len() {
        let mut turned = documents.to_vec();
        turned.rotate_left(turn);
        let work = host(&turned).work;
        assert_eq!(work.bytes_moved, 4096 + 100 + 50 + 999, "{turn}: {work:?}");
        assert_eq!(work.runs, 4);
        assert_eq!(work.last_success_ns, Some(1150 * SECOND));
        assert_eq!(work.predicted_iodp, 7.5);
    }
}

#[test]
fn a_result_alone_is_counted_by_its_files() {
    let host = host(&[result(1000, 4096)]);
    let work = &host.work;
    assert_eq!(
        (work.runs, work.files_moved, work.requests_saved),
        (1, 1, 7)
    );
    assert_eq!((work.bytes_moved, work.bytes_written), (4096, 4096));
    assert_eq!(host.left_alone().unwrap().refusals(9), [("swap-file", 1)]);
    assert!(!host.has_failed());
}

#[test]
fn what_the_kernel_moved_by_itself_was_written_too() {
    let mut moved = result(1000, 4096);
    moved["totals"]["bytes_host_written"] = json!(0);
    assert_eq!(host(&[moved]).work.bytes_written, 4096);
}

#[test]
fn what_a_dry_run_would_do_is_not_counted() {
    let mut dry = result(1000, 0);
    dry["dry_run"] = json!(true);
    dry["files"][0]["status"] = json!("skipped");
    dry["files"][0]["reason"] = json!("dry-run");
    let host = host(&[dry]);
    assert_eq!(host.work.runs, 0);
    assert_eq!(host.left_alone().unwrap().refusals(9), [("swap-file", 1)]);
    assert_eq!(host.work.last_success_ns, None);
}

#[test]
fn the_newest_run_says_whether_somebody_is_needed() {
    let mut killed = record(900, 0);
    killed["ended"] = json!("failed");
    for field in [
        "duration_ns",
        "files_moved",
        "bytes_relocated",
        "skipped",
        "predicted_gain",
    ] {
        killed[field] = Value::Null;
    }
    let mut running = record(2000, 0);
    running["ended"] = Value::Null;
    let runs = [killed.clone(), running];
    let failed = host(&[history(1000, &runs)]);
    assert!(failed.has_failed() && failed.work.runs == 1 && failed.work.runs_failed == 1);
    let mended = host(&[history(1100, &[killed, record(1000, 1)])]);
    assert!(!mended.has_failed() && mended.work.runs_failed == 1);
    // Files that failed do, too.
    let mut result = result(1000, 1);
    result["totals"]["files_failed"] = json!(1);
    assert!(host(&[result]).has_failed());
}

fn scan(seconds: u64, paths: &[&str], extents: u64, kind: &str, bytes: u64) -> Value {
    let paths: Vec<Value> = paths.iter().map(|path| json!({"path": path})).collect();
    let mut made = made(seconds);
    made["paths"] = json!(paths);
    json!({"schema": 1, "made": made, "files": [{"path": "/x", "extents": extents}],
        "verdict": {"kind": kind, "text": "…", "move_bytes": bytes, "faster_pct": null},
        "totals": {"extents": extents, "ideal_extents": 10, "skipped": {"no-engine": 2, "contiguous": 50}},
        "stopped": null})
}

#[test]
fn scans_tell_of_fragments_then_and_now() {
    let host = host(&[
        scan(2000, &["/a"], 20, "fine", 0),
        scan(1000, &["/a"], 900, "worth-moving", 5000),
        scan(1500, &["/b"], 11, "fine", 0),
        scan(1200, &["/a"], 500, "worth-moving", 4000),
    ]);
    let expected = Fragments {
        extents: 31,
        ideal_extents: 20,
        extents_first: 911,
    };
    assert_eq!(host.fragments(), Some(expected));
    assert_eq!(host.verdict.as_ref().unwrap().kind, "fine");
    assert_eq!(host.worth_bytes(), 0);
    assert_eq!(host.newest.version, "v2000");
    assert_eq!(host.left_alone().unwrap().refusals(9), [("no-engine", 2)]);
    // One that was stopped saw a part.
    let mut stopped = scan(3000, &["/a"], 1, "fine", 0);
    stopped["stopped"] = json!("signal");
    assert_eq!(super::tests::host(&[stopped]).fragments(), None);
}

#[test]
fn a_verdict_from_before_the_last_move_says_so() {
    let scanned = scan(1000, &["/a"], 900, "worth-moving", 5000);
    assert!(!host(std::slice::from_ref(&scanned)).moved_since());
    let host = host(&[result(2000, 4096), scanned]);
    assert!(host.moved_since() && host.worth_bytes() == 5000);
}

#[test]
fn a_round_of_watch_is_counted_by_the_history_if_there_is_one() {
    let round = json!({"schema": 1, "made": made(1000), "work_left": false, "dry_run": false,
        "file_systems": [{"path": "/a", "text": "paid back", "worth_moving_bytes": 7, "saved_requests_per_day": 12.0,
            "saved_ns_per_day": 5000},
            {"path": "/b", "text": null, "worth_moving_bytes": 0, "saved_requests_per_day": null,
            "saved_ns_per_day": null}],
        "totals": {"files_moved": 3, "bytes_relocated": 300, "bytes_written": 310, "extents_removed": 40,
            "failures": 0, "skipped": {"in-use": 1}}});
    let alone = host(std::slice::from_ref(&round));
    assert_eq!(
        (alone.work.bytes_moved, alone.work.requests_saved),
        (300, 40)
    );
    assert_eq!(alone.worth_bytes(), 7);
    assert_eq!(alone.predicted.unwrap().saved_ns_per_day, Some(5000));
    let mut moved = record(999, 300);
    moved["verb"] = json!("watch");
    let both = host(&[round, history(1001, &[moved])]);
    assert_eq!(both.work.bytes_moved, 300);
    assert_eq!(both.work.last_success_ns, Some(1000 * SECOND));
}

#[test]
fn file_systems_are_told_once() {
    let mut scanned = scan(1000, &["/"], 1, "fine", 0);
    scanned["made"]["file_systems"] = json!([
        {"fs": "ext4", "uuid": "u-1", "mounted_at": "/", "device": "/dev/sda", "model": "M"},
        {"fs": "xfs", "mounted_at": "/srv"}]);
    let host = host(&[history(900, &[record(800, 1)]), scanned]);
    assert_eq!(host.places.len(), 2);
    assert_eq!(host.places[0].device.as_deref(), Some("/dev/sda"));
}
