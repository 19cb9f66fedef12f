//! The HTML report: self-contained, harmless whatever the names of files are, and understood by
//! a real browser.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use crate::common::run;
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

/// Write the page of a result.
fn page(dir: &Path) -> (PathBuf, String) {
    let (input, output) = (dir.join("run <b>.json"), dir.join("report.html"));
    fs::write(&input, result().to_string()).unwrap();
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
        "<script", "src=", "href=", "http:", "https:", "@import", "url(", "run <b>", "\u{1b}",
    ] {
        assert!(!text.contains(foreign), "{foreign}");
    }
    assert!(text.contains("&lt;script&gt;"));
    assert_eq!(text.matches("<svg class=\"map\"").count(), 4);
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
    assert_eq!(dom.matches("<svg class=\"map\"").count(), 4);
    assert!(dom.contains("<h2") && dom.contains("<caption>Files</caption>"));
}

fn in_path(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(name).is_file())
}
