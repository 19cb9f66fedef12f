//! `indef trace` where something is missing, wrong, full or interrupted: a clear line that names
//! it, and the recorded accesses are kept.

use std::{
    fs,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use crate::common::small::Small;
use crate::common::{
    ForAnybody, Ran, Run, ended, indef, is_root, make, run, scratch, signal, spawn,
};
use indef_trace::store::Store;
use rustix::process::Signal;
use units::Bytes;

fn text(path: &Path) -> &str {
    path.to_str().expect("a plain temporary path")
}

/// Reads of all files in a store.
fn reads_in(profile: &Path) -> u64 {
    let heat = Store::open(profile)
        .and_then(|store| store.load(std::time::SystemTime::now()))
        .unwrap_or_else(|error| panic!("{}: {error}", profile.display()));
    heat.ranges.iter().map(|(_, range)| range.reads).sum()
}

/// Check that it fails with one line that names `what`, and leaves no profile with anything in it.
#[track_caller]
fn refused(arguments: &[&str], what: &str) -> Ran {
    let ran = run(["trace"].iter().chain(arguments));
    assert_eq!(ran.status, 1, "{ran:?}");
    ran.error_line(what);
    ran
}

#[test]
fn without_the_right_to_trace_the_capability_is_named() {
    if !is_root() {
        return;
    }
    let place = ForAnybody::new();
    let profile = place.dir.path().join("profile");
    let mark = place.dir.path().join("mark");
    let ran = place
        .indef()
        .args(["trace", "-o", text(&profile), "--", "touch", text(&mark)])
        .ran();
    assert_eq!(ran.status, 1, "{ran:?}");
    let line = ran.error_line("CAP_BPF");
    assert!(
        line.contains("CAP_PERFMON") && line.contains("root"),
        "{line}"
    );
    assert!(!mark.exists(), "the command must not run untraced");
}

#[test]
fn filters_that_match_nothing_are_named() {
    if !is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("a file");
    fs::write(&file, "no device").unwrap();
    refused(&["--pid", "4194305", "--duration", "1s"], "4194305");
    refused(&["--path", "/no/such/path"], "/no/such/path");
    refused(&["--path", "/dev/null"], "/dev/null");
    refused(&["--cgroup", "/no/such/group"], "/no/such/group");
    let line = refused(&["--cgroup", text(dir.path())], text(dir.path()));
    assert!(line.err.contains("not a control group"), "{line:?}");
    refused(&["--device", "/dev/no-such-disk"], "/dev/no-such-disk");
    let line = refused(&["--device", text(&file)], text(&file));
    assert!(line.err.contains("not a block device"), "{line:?}");
    let ran = run(["trace", "--uid", "no-such-user"]);
    assert_eq!(ran.status, 2, "{ran:?}");
    assert!(ran.err.contains("no-such-user"), "{ran:?}");
}

#[test]
fn what_is_no_profile_is_left_alone() {
    if !is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let other = dir.path().join("letter");
    fs::write(&other, "Dear reader,\n".repeat(100)).unwrap();
    let mark = dir.path().join("mark");
    let command = ["-o", text(&other), "--", "touch", text(&mark)];
    refused(&command, text(&other));
    assert_eq!(
        fs::read_to_string(&other).unwrap(),
        "Dear reader,\n".repeat(100)
    );
    assert!(!mark.exists(), "nothing runs whose trace cannot be kept");
    let missing = dir.path().join("no folder/profile");
    refused(&["-o", text(&missing), "--duration", "1s"], text(&missing));
    refused(
        &["-o", text(dir.path()), "--duration", "1s"],
        text(dir.path()),
    );
    // A store is not overwritten by lines.
    let store = dir.path().join("store");
    let ran = run(["trace", "-o", text(&store), "--duration", "100ms"]);
    assert_eq!(ran.status, 0, "{ran:?}");
    refused(
        &["--raw", "-o", text(&store), "--duration", "1s"],
        text(&store),
    );
    assert!(Store::is_store(&store).unwrap());
}

#[test]
fn a_command_that_is_not_there_or_fails() {
    if !is_root() {
        return;
    }
    let ran = run(["trace", "--quiet", "--", "/no/such/program"]);
    assert_eq!(ran.status, 1, "{ran:?}");
    assert!(ran.err.contains("/no/such/program"), "{ran:?}");
    let ran = run(["trace", "--", "sh", "-c", "exit 7"]);
    assert_eq!(ran.status, 0, "the trace itself is fine: {ran:?}");
    assert!(ran.err.contains("status 7"), "{ran:?}");
    let ran = run(["trace", "--", "sh", "-c", "kill -KILL $$"]);
    assert_eq!(ran.status, 0, "{ran:?}");
    assert!(ran.err.contains("signal 9"), "{ran:?}");
}

#[test]
fn loop_everything_is_said_as_one_document() {
    let Some(fs) = scratch("ext4") else { return };
    let file = fs.path().join("file");
    make(&file, Bytes::mib(1), Bytes::kib(4));
    let profile = fs.path().with_file_name("profile");
    let dd = [
        "dd",
        &format!("if={}", text(&file)),
        "of=/dev/null",
        "bs=128k",
        "iflag=direct",
        "status=none",
    ];
    let arguments = [
        "trace",
        "--json",
        // Else a busy machine counts some for several.
        "--max-overhead",
        "off",
        "-o",
        text(&profile),
        "--path",
        text(fs.path()),
        "--",
    ];
    let ran = run(arguments.iter().chain(&dd));
    assert_eq!(ran.status, 0, "{ran:?}");
    let document = ran.json();
    let seen = &document["files"][0];
    assert_eq!(document["schema"], 1);
    assert_eq!(
        document["files"].as_array().map(Vec::len),
        Some(1),
        "{document}"
    );
    assert_eq!(seen["path"].as_str(), Some(text(&file)));
    assert_eq!(
        (&seen["reads"], &seen["writes"]),
        (&8.into(), &0.into()),
        "{document}"
    );
    assert_eq!(
        (&seen["bytes_read"], &seen["requests"]),
        (&(1 << 20).into(), &256.into())
    );
    assert_eq!(document["totals"]["lost"], 0);
    assert_eq!(reads_in(&profile), 8);
    // A second time: the counts add up.
    let ran = run(arguments.iter().chain(&dd));
    assert_eq!(ran.status, 0, "{ran:?}");
    assert_eq!(reads_in(&profile), 16);
}

#[test]
fn loop_raw_is_one_line_for_each_access() {
    let Some(fs) = scratch("ext4") else { return };
    let file = fs.path().join("file");
    make(&file, Bytes::mib(1), Bytes::mib(1));
    let lines = fs.path().with_file_name("lines");
    let ran = run([
        "trace",
        "--raw",
        "--layer",
        "syscall",
        "-o",
        text(&lines),
        "--path",
        text(fs.path()),
        "--",
        "dd",
        &format!("if={}", text(&file)),
        "of=/dev/null",
        "bs=64k",
        "status=none",
    ]);
    assert_eq!(ran.status, 0, "{ran:?}");
    let kept = fs::read_to_string(&lines).unwrap();
    assert!(kept.contains(text(&file)), "{kept}");
    for at in 0..16 {
        let line = format!("read 0 {} 65536 ", at * 65_536);
        assert_eq!(
            kept.lines().filter(|kept| kept.starts_with(&line)).count(),
            1,
            "{kept}"
        );
    }
    // The profile is usable for a plan.
    let planned = run(["plan", "--profile", text(&lines), text(&file)]);
    assert_eq!(planned.status, 0, "{planned:?}");
}

/// A trace of all processes that goes on until it is ended.
fn endless(profile: &Path, path: &Path) -> Child {
    spawn(
        indef()
            .args(["trace", "--layer", "syscall", "--readahead", "0"])
            // Of the few reads, a busy machine might choose none.
            .args(["--max-overhead", "off"])
            .args(["-o", text(profile), "--path", text(path)]),
    )
}

/// Wait until a trace is ready: it has a link for each program that it attaches, and no more of them come.
fn is_ready(trace: &Child) {
    let links = || {
        let all = fs::read_dir(format!("/proc/{}/fd", trace.id())).into_iter();
        let all = all.flatten().flatten();
        let link = |name: &Path| {
            let name = name.to_string_lossy();
            name.contains("bpf_link") || name.contains("perf_event")
        };
        all.filter(|fd| fs::read_link(fd.path()).is_ok_and(|name| link(&name)))
            .count()
    };
    let (mut last, mut since) = (0, Instant::now());
    let until = Instant::now() + Duration::from_secs(120);
    while last == 0 || since.elapsed() < Duration::from_secs(1) {
        assert!(Instant::now() < until, "{last} links");
        let now = links();
        if now != last {
            (last, since) = (now, Instant::now());
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// Read the file for some time.
fn read_for(file: &Path, time: Duration) {
    let began = Instant::now();
    while began.elapsed() < time {
        let status = Command::new("cat").arg(file).stdout(Stdio::null()).status();
        assert!(status.unwrap().success());
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn loop_signals_end_it_with_everything_kept() {
    let Some(fs) = scratch("ext4") else { return };
    let file = fs.path().join("file");
    make(&file, Bytes::kib(64), Bytes::kib(64));
    for with in [Signal::INT, Signal::TERM] {
        let profile = fs
            .path()
            .with_file_name(format!("profile-{}", with.as_raw()));
        let child = endless(&profile, &file);
        is_ready(&child);
        read_for(&file, Duration::from_secs(1));
        signal(&child, with);
        let ran = ended(child);
        assert_eq!(ran.status, 0, "{with:?}: {ran:?}");
        assert!(ran.out.contains(text(&file)), "{ran:?}");
        assert!(reads_in(&profile) > 0, "{with:?}");
    }
}

#[test]
fn what_the_command_prints_does_not_get_into_the_document() {
    if !is_root() {
        return;
    }
    let speaks = ["sh", "-c", "echo out; echo err >&2"];
    let ran = run(["trace", "--json", "--"].iter().chain(&speaks));
    assert_eq!(ran.json()["schema"], 1);
    assert!(
        ran.err.contains("out\n") && ran.err.contains("err\n"),
        "{ran:?}"
    );
    let ran = run(["trace", "--quiet", "--"].iter().chain(&speaks));
    assert_eq!(ran.out, "out\n");
}

#[test]
fn a_time_limit_ends_it() {
    if !is_root() {
        return;
    }
    let began = Instant::now();
    let ran = run(["trace", "--duration", "500ms", "--json"]);
    assert_eq!(ran.status, 0, "{ran:?}");
    let took = began.elapsed();
    assert!(took >= Duration::from_millis(500), "{took:?}");
    let told = ran.json()["totals"]["duration_ns"].as_u64().unwrap();
    assert!((500_000_000..20_000_000_000).contains(&told), "{told}");
}

#[test]
fn loop_a_full_disk_costs_nothing_that_was_learned() {
    a_full_disk_costs_nothing(Stdio::piped());
}

/// `indef trace … | head`: what was counted is worth more than what was to be shown.
#[test]
fn loop_a_full_disk_is_told_to_whoever_closed_the_output() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    a_full_disk_costs_nothing(writer.into());
}

fn a_full_disk_costs_nothing(out: Stdio) {
    let Some(fs) = scratch("ext4") else { return };
    let Some(small) = Small::new() else { return };
    let file = fs.path().join("file");
    make(&file, Bytes::mib(8), Bytes::mib(8));
    let profile = small.path().join("profile");
    let elsewhere = tempfile::tempdir().unwrap();
    // The command itself fills the disk on which its profile lies.
    let script = format!(
        "dd if=/dev/zero of={} bs=4k 2>/dev/null; dd if={} of=/dev/null bs=4k status=none",
        text(&small.path().join("filling")),
        text(&file)
    );
    let ran = indef()
        .env("TMPDIR", elsewhere.path())
        .args([
            "trace",
            "--layer",
            "syscall",
            "--readahead",
            "0",
            "--max-overhead",
            "off",
            "-o",
            text(&profile),
        ])
        .args(["--path", text(&file), "--", "sh", "-c", &script])
        .stdout(out)
        .ran();
    assert_eq!(ran.status, 1, "{ran:?}");
    let kept: Vec<_> = fs::read_dir(elsewhere.path())
        .unwrap()
        .map(|e| e.unwrap().path())
        .collect();
    assert_eq!(kept.len(), 1, "{kept:?}: {ran:?}");
    let said = ran.err.lines().find(|line| line.contains(text(&kept[0])));
    let said = said.unwrap_or_else(|| panic!("{} is not named: {ran:?}", kept[0].display()));
    assert!(
        said.contains(text(&profile)) && said.contains("indef profile import"),
        "{said}"
    );
    // As the message says: with room again, all of it is stored.
    fs::remove_file(small.path().join("filling")).unwrap();
    let whole = fs.path().with_file_name("whole");
    let ran = run(["profile", "import", text(&whole), text(&kept[0])]);
    assert_eq!(ran.status, 0, "{ran:?}");
    assert_eq!(reads_in(&whole), 2048);
}
