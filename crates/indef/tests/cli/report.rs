//! The HTML report: self-contained, harmless whatever the names of files are, and understood by
//! a real browser.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use crate::common::{Run, run};
use serde_json::json;

const EVIL: &str = "/srv/<script>document.title='owned'</script>\"'&amp;\n\u{1b}[31m";

/// The result of a run with two maps, as `run --json` writes it.
fn result() -> serde_json::Value {
    let file = |path: &str, status: &str| {
        json!({"path": path, "fs": "ext4", "engine": "ext4-move-extent", "status": status,
            "reason": null, "extents_before": 512, "extents_after": 1, "bytes_relocated": 2097152,
            "bytes_host_read": 2097152, "bytes_host_written": 2097152, "bytes_offloaded": 0})
    };
    let map = |path: &str| {
        json!({"path": path, "size_bytes": 2097152, "slice_bytes": 8192, "extents_before": 512,
            "extents_after": 1, "before": vec![2; 256], "after": vec![1; 256],
            "device": {"start_bytes": 0, "len_bytes": 4194304,
                "before": vec![500; 192], "after": vec![1000; 96]}})
    };
    json!({"schema": 1, "files": [file(EVIL, "moved"), file("/srv/other", "failed")],
        "totals": {"files_moved": 1, "files_skipped": 0, "files_failed": 1,
            "bytes_relocated": 2097152, "bytes_host_read": 2097152, "bytes_host_written": 2097152,
            "bytes_offloaded": 0, "duration_ns": 1_000_000},
        "maps": [map(EVIL), map("/srv/other")]})
}

/// Write the page of the result.
fn page(dir: &Path) -> (PathBuf, String) {
    page_of(dir, &result())
}

fn page_of(dir: &Path, result: &serde_json::Value) -> (PathBuf, String) {
    let (input, output) = (dir.join("run <b>.json"), dir.join("report.html"));
    fs::write(&input, result.to_string()).unwrap();
    let ran = run([
        "report".as_ref(),
        input.as_os_str(),
        "--html".as_ref(),
        output.as_os_str(),
    ]);
    assert_eq!(ran.status, 0, "{ran:?}");
    let text = fs::read_to_string(&output).unwrap();
    (output, text)
}

#[test]
fn the_page_is_self_contained_and_names_cannot_become_markup() {
    let dir = tempfile::tempdir().unwrap();
    let (_, text) = page(dir.path());
    for foreign in [
        " src=",
        "href=",
        "http:",
        "https:",
        "@import",
        "url(",
        "run <b>",
        "\u{1b}",
        "innerHTML",
    ] {
        assert!(!text.contains(foreign), "{foreign}");
    }
    // The search is the only script, and the only one that a browser would run.
    assert_eq!(text.matches("<script").count(), 1);
    assert!(text.contains("default-src 'none'") && text.contains("script-src 'sha256-"));
    assert!(text.contains("&#60;script&#62;"));
    assert_eq!(text.matches("<svg class=\"map\"").count(), 2);
    // A tooltip for each cell.
    assert_eq!(text.matches("<g><title>").count(), 2 * 256);
    for (open, close) in [
        ("<svg", "</svg>"),
        ("<section", "</section>"),
        ("<table", "</table>"),
    ] {
        assert_eq!(
            text.matches(open).count(),
            text.matches(close).count(),
            "{open}"
        );
    }
}

/// The text of an error has the name of its file in it, and a document may be somebody else's.
#[test]
fn what_a_document_says_moves_no_cursor() {
    let dir = tempfile::tempdir().unwrap();
    let mut result = result();
    result["files"][1]["reason"] = format!("{EVIL}: map extents failed").into();
    result["stopped"] = EVIL.into();
    let (_, page) = page_of(dir.path(), &result);
    assert!(!page.contains('\u{1b}'), "{page}");
    let ran = run([
        "report".as_ref(),
        dir.path().join("run <b>.json").as_os_str(),
    ]);
    assert_eq!(ran.status, 0, "{ran:?}");
    assert!(ran.out.contains("map extents failed"), "{ran:?}");
    assert!(!ran.out.contains('\u{1b}'), "{ran:?}");
    assert_eq!(ran.out.matches("\\n\\u{1b}[31m").count(), 3, "{ran:?}");
}

#[test]
fn the_page_begins_with_where_it_was_made_and_what_came_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut result = result();
    result["made"] = json!({"time": "2026-11-26T14:50:00Z", "time_ns": 1, "host": "db-17 <i>", "version": "0.1.0",
        "kernel": "6.12.57", "machine": "x86_64", "command": ["indef", "run", "--json", "/srv"],
        "directory": null, "paths": [], "file_systems": [{"fs": "ext4", "uuid": "0c9c-61f5",
        "mounted_at": "/srv", "source": "/dev/sda1", "device": "/dev/sda", "model": "DISK 7"}]});
    let page = |result: &serde_json::Value| page_of(dir.path(), result).1;
    let text = page(&result);
    for part in [
        "2026-11-26 14:50:00 UTC",
        "db-17 &#60;i&#62;",
        "ext4 at /srv, 0c9c-61f5",
        "/dev/sda (DISK 7)",
        "indef run --json /srv",
    ] {
        assert!(text.contains(part), "{part}");
    }
    let place = |what: &str| text.find(what).unwrap_or_else(|| panic!("{what}"));
    assert!(place("1 file failed") < place("2026-11-26"));
    assert!(place("2026-11-26") < place("The worst files"));
    assert!(place("The worst files") < place("<h3>Files"));
    // 512 blocks in pieces, of which a read of 128 KiB meets 32, then one.
    assert!(text.contains("32.0 → 1.00"), "{text}");
    assert!(text.contains("from 8 KiB: 32.0 requests for a read, then 1.00"));
    // Contents that were no failure.
    result["files"] = json!([result["files"][0]]);
    result["totals"]["files_failed"] = json!(0);
    assert!(page(&result).contains("1 file moved: 512 → 1 extents. A read of 128 KiB"));
}

#[test]
fn only_what_is_kept_is_told_to_be_gone_on_with() {
    let dir = tempfile::tempdir().unwrap();
    let input = dir.path().join("run.json");
    let told = |files: &[(&str, &str)], dry_run: bool| {
        let mut stopped = result();
        let file = |(status, reason): &(&str, &str)| {
            let mut file = stopped["files"][0].clone();
            (file["status"], file["reason"]) = (json!(status), json!(reason));
            file
        };
        let files: Vec<_> = files.iter().map(file).collect();
        stopped["files"] = json!(files);
        (stopped["stopped"], stopped["dry_run"]) = (json!("signal"), json!(dry_run));
        fs::write(&input, stopped.to_string()).unwrap();
        let ran = run(["report".as_ref(), input.as_os_str()]);
        assert_eq!(ran.status, 0, "{ran:?}");
        ran.out.contains("indef run --resume continues")
    };
    let left = ("skipped", "stopped");
    assert!(told(&[("skipped", "contiguous"), left], false));
    assert!(told(&[("moved", "stopped")], false));
    // Stopped while it planned.
    assert!(!told(&[("skipped", "contiguous")], false));
    assert!(!told(&[left], true));
}

#[test]
fn a_run_that_failed_is_not_told_as_one_that_found_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let failed = |options: &[&str]| {
        let plan = ["run", "--json", "--plan", "/no/such/plan"];
        let ran = run(plan.iter().chain(options));
        assert_eq!(ran.status, 1, "{ran:?}");
        let document = ran.json();
        let error = document["error"].as_str().unwrap();
        assert!(error.starts_with("/no/such/plan: "), "{document}");
        document
    };
    assert_eq!(failed(&["--dry-run"])["dry_run"], true);
    let document = failed(&[]);
    let (_, text) = page_of(dir.path(), &document);
    assert!(text.contains("It failed: /no/such/plan"), "{text}");
    assert!(!text.contains("Nothing was worth moving"), "{text}");
    let input = dir.path().join("run.json");
    let compacted = run(["compact", "--json", "/proc"]);
    let error = compacted.json()["error"].as_str().unwrap().to_owned();
    assert!(compacted.err.contains(&error), "{compacted:?}");
    fs::write(&input, &compacted.out).unwrap();
    let merged = run(["report".as_ref(), "--merge".as_ref(), input.as_os_str()]);
    assert!(merged.out.contains("last run failed"), "{merged:?}");
    fs::write(&input, document.to_string()).unwrap();
    let of = |options: &[&str]| {
        let options = options.iter().map(AsRef::as_ref);
        let ran = run(options.chain([input.as_os_str()]));
        assert_eq!(ran.status, 0, "{ran:?}");
        ran
    };
    assert!(of(&["report"]).out.contains("Failed  /no/such/plan: "));
    let told = &of(&["report", "--json"]).json()["inputs"][0];
    assert_eq!(told["error"], document["error"], "{told}");
    let host = &of(&["report", "--merge", "--json"]).json()["hosts"][0];
    assert_eq!(
        (
            &host["failed"],
            &host["runs_failed"],
            &host["last_success_ns"]
        ),
        (&json!(true), &json!(1), &json!(null)),
        "{host}"
    );
}

#[test]
fn a_report_of_many_files_needs_little_memory() {
    use std::io::Write;
    let dir = tempfile::tempdir().unwrap();
    let input = dir.path().join("run.json");
    let mut many = result();
    let file = many["files"][0].clone();
    many["files"] = json!([]);
    let whole = many.to_string();
    let (head, tail) = whole.split_once("\"files\":[").unwrap();
    let mut out = std::io::BufWriter::new(fs::File::create(&input).unwrap());
    write!(out, "{head}\"files\":[").unwrap();
    for n in 0..50_000_u64 {
        let mut file = file.clone();
        file["path"] = json!(format!("/srv/with/some/folders/file-{n}"));
        file["extents_before"] = json!(n + 1);
        let comma = if n == 0 { "" } else { "," };
        write!(out, "{comma}{file}").unwrap();
    }
    write!(out, "{tail}").unwrap();
    out.into_inner().unwrap();
    // Half of what the document takes on disk.
    let limit = fs::metadata(&input).unwrap().len() / 2 / 1024;
    let script = format!("ulimit -d {limit}; exec \"$0\" report --json \"$1\"");
    let ran = Command::new("sh")
        .args(["-c", &script, env!("CARGO_BIN_EXE_indef")])
        .arg(&input)
        .ran();
    assert_eq!(ran.status, 0, "{ran:?}");
    let told = &ran.json()["inputs"][0];
    assert_eq!(told["extents_before"], 50_000_u64 * 50_001 / 2);
    assert_eq!(told["extents_after"], 50_000);
}

#[test]
fn text_and_json_tell_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let input = dir.path().join("run.json");
    fs::write(&input, result().to_string()).unwrap();
    let ran = run(["report".as_ref(), input.as_os_str()]);
    assert!(
        ran.status == 0 && ran.out.contains("512") && !ran.out.contains('\x1b'),
        "{ran:?}"
    );
    let ran = run(["report".as_ref(), "--json".as_ref(), input.as_os_str()]);
    let document = ran.json();
    assert_eq!(document["inputs"][0]["kind"], "run");
    assert_eq!(document["inputs"][0]["totals"]["files_moved"], 1);
    assert_eq!(document["inputs"][0]["extents_before"], 1024);
}

#[test]
fn a_file_that_moved_and_has_as_many_extents_is_explained() {
    let dir = tempfile::tempdir().unwrap();
    let input = dir.path().join("run.json");
    let mut result = result();
    result["files"] = json!([result["files"][0]]);
    for count in ["extents_before", "extents_after"] {
        result["files"][0][count] = json!(4);
    }
    let told = |result: &serde_json::Value| {
        fs::write(&input, result.to_string()).unwrap();
        let ran = run(["report".as_ref(), input.as_os_str()]);
        assert!(ran.status == 0 && !ran.out.contains("4 → 4"), "{ran:?}");
        ran.out
    };
    assert!(told(&result).contains("as before: fewer only in what moved"));
    result["files"][0]["bytes_reclaimed"] = json!(4096);
    assert!(told(&result).contains("as before: it gave space back"));
}

#[test]
fn a_browser_understands_the_page() {
    let browsers = ["chromium", "chromium-browser", "google-chrome"];
    let Some(browser) = browsers.into_iter().find(|name| in_path(name)) else {
        return scratch_fs::skip("no Chromium is installed");
    };
    let dir = tempfile::tempdir().unwrap();
    let (output, _) = page(dir.path());
    let dump = dir.path().join("dom");
    let mut child = Command::new(browser)
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--dump-dom",
        ])
        .arg(format!(
            "--user-data-dir={}",
            dir.path().join("profile").display()
        ))
        .arg(format!("file://{}", output.display()))
        .stdout(fs::File::create(&dump).unwrap())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let begun = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if begun.elapsed() > Duration::from_secs(90) {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("{browser} did not come back");
        }
        thread::sleep(Duration::from_millis(50));
    }
    let dom = fs::read_to_string(dump).unwrap();
    assert!(dom.contains("<title>indef report</title>"), "{dom}");
    assert_eq!(dom.matches("<svg class=\"map\"").count(), 2);
    assert!(dom.contains("<h2") && dom.contains("<caption>Files</caption>"));
    // The script was allowed to run: it shows the search.
    assert!(dom.contains("<label>Search"), "{dom}");
    assert!(!dom.contains("owned</title>"), "{dom}");
}

fn in_path(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(name).is_file())
}

/// That nothing was worth moving is only told where files were found, and none had anything to gain.
#[test]
fn the_page_says_why_nothing_moved() {
    let dir = tempfile::tempdir().unwrap();
    let says = |result: &serde_json::Value, what: &str| {
        let (_, text) = page_of(dir.path(), result);
        assert!(text.contains(what), "{what}: {text}");
        let is_nothing = what.contains("worth moving");
        assert_eq!(text.contains("worth moving"), is_nothing, "{text}");
        let input = dir.path().join("run <b>.json");
        let ran = run(["report".as_ref(), input.as_os_str()]);
        assert_eq!(ran.status, 0, "{ran:?}");
        ran.out
    };
    let told = |reasons: &[&str]| {
        let mut result = result();
        let mut file = result["files"][0].clone();
        file["status"] = json!("skipped");
        let file = |reason: &&str| {
            let mut file = file.clone();
            file["reason"] = json!(reason);
            file
        };
        result["files"] = reasons.iter().map(file).collect();
        result["totals"]["files_skipped"] = json!(reasons.len());
        result["totals"]["files_moved"] = json!(0);
        result["totals"]["files_failed"] = json!(0);
        result["maps"] = json!([]);
        result
    };
    says(&told(&["contiguous", "empty"]), "Nothing was worth moving.");
    says(&told(&[]), "There were no files to look at.");
    let refused = told(&[
        "contiguous",
        "contiguous",
        "no-engine",
        "not-permitted",
        "not-permitted",
    ]);
    let out = says(&refused, "Nothing was moved. 2 files left alone: ");
    assert!(out.contains("2 files  (already contiguous"), "{out}");
    says(&refused, " 1 more file for other reasons.");
    let mut stopped = told(&["stopped"]);
    stopped["stopped"] = json!("signal");
    says(&stopped, "It was stopped before anything was moved.");
    let mut dry = told(&["no-engine"]);
    dry["dry_run"] = json!(true);
    says(&dry, "Nothing would be moved. 1 file left alone: ");
    dry["totals"]["problems"] = json!(1);
    says(&dry, "1 path could not be looked at; 0 files would move");
    // The real thing: a file system without an engine, and a command that did not come to its files.
    let ran = run(["run", "--json", "/proc/self/stat"]);
    says(&ran.json(), "Nothing was moved. 1 file left alone: ");
    let ran = run(["run", "--json", "--files-from", "/no/such/list"]);
    assert_eq!(ran.status, 1);
    let out = says(&ran.json(), "It failed: /no/such/list");
    assert!(out.contains("Failed  /no/such/list"), "{out}");
    // Of files that moved, and could not be written back.
    let mut unwritten = result();
    unwritten["totals"]["files_unwritten"] = json!(1);
    says(&unwritten, "what was moved of 1 may not be durable");
}
