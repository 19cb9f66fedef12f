//! Bad input: for each, a clear line that names it and the remedy; nothing is
//! modified.

use std::{
    ffi::{OsStr, OsString},
    fs,
    os::unix::ffi::OsStringExt,
    path::PathBuf,
};

use crate::common::{ForAnybody, Ran, Run, indef, indef_with_state, is_root, run, scratch};

fn text(path: &std::path::Path) -> &str {
    path.to_str().expect("a plain temporary path")
}

#[test]
fn a_path_that_does_not_exist_is_named_and_the_others_are_done() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("file"), vec![1; 20_000]).unwrap();
    for command in ["scan", "plan", "run"] {
        let ran = run([command, "/no/such/path", text(dir.path())]);
        assert_eq!(ran.status, 1, "{ran:?}");
        let line = ran.error_line("/no/such/path");
        assert!(
            line.contains("no such file") && line.ends_with("check the path"),
            "{line}"
        );
        assert!(!ran.out.is_empty(), "{ran:?}");
        let ran = run([command, "--json", "/no/such/path", text(dir.path())]);
        assert_eq!(ran.status, 1, "{ran:?}");
        let list = if command == "plan" { "chunks" } else { "files" };
        assert_eq!(
            ran.json()[list].as_array().map(Vec::len),
            Some(1),
            "{ran:?}"
        );
        assert_eq!(ran.json()["totals"]["problems"], 1, "{ran:?}");
    }
    let ran = run(["plan", "/no/such/path", text(dir.path())]);
    assert!(ran.out.contains("1 path could not be looked at"), "{ran:?}");
}

#[test]
fn loop_a_device_is_told_to_be_none_of_the_paths() {
    let Some(scratch) = scratch("ext4") else {
        return;
    };
    for command in ["scan", "plan", "run", "compact"] {
        let ran = run([command, scratch.device()]);
        let line = ran.error_line(scratch.device());
        assert!(line.ends_with("where its file system is mounted"), "{line}");
    }
}

/// Each command names the path that was given, not one of its own, and the remedy.
#[test]
fn paths_that_cannot_be_used_are_told_alike() {
    let dir = tempfile::tempdir().unwrap();
    let missing = dir.path().join("missing");
    let below = missing.join("file");
    let commands: [&[&str]; 7] = [
        &["compact", text(&below)],
        &["compact", "--json", text(&below)],
        &["watch", "--once", text(&below)],
        &["watch", "--dry-run", text(&below)],
        &["plan", "-o", text(&below), text(dir.path())],
        &["report", text(&below)],
        &["probe", text(&below)],
    ];
    for words in commands {
        let ran = run(words);
        assert_eq!(ran.status, 1, "{ran:?}");
        let line = ran.error_line(text(&below));
        let end = "no such file or directory: check the path";
        assert!(line.ends_with(end), "{words:?}: {line}");
    }
    let scanned = run(["scan", text(&missing)]);
    let verdict = "Cannot tell: no file could be looked at";
    assert!(scanned.out.starts_with(verdict), "{scanned:?}");
    let json = run(["scan", "--json", text(&missing)]).json();
    assert_eq!(json["verdict"]["kind"], "cannot-tell");
    // A folder without a file is fine.
    let scanned = run(["scan", text(dir.path())]);
    assert!(
        scanned.out.starts_with("Fine: there are no files here"),
        "{scanned:?}"
    );
}

/// Whoever reads the document alone is told why there is nothing in it, in the words of stderr and with the same status.
#[test]
fn a_failure_is_in_the_document_too() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, vec![1; 20_000]).unwrap();
    let (missing, file) = (dir.path().join("missing"), text(&file));
    let (missing, below) = (text(&missing), missing.join("plan"));
    let commands: &[(&[&str], i32, &str)] = &[
        (&["scan", "--profile", missing, file], 1, missing),
        (&["plan", "--profile", missing, file], 1, missing),
        // Its document is begun by then.
        (&["plan", "-o", text(&below), file], 1, text(&below)),
        (&["run", "--plan", missing], 1, missing),
        (&["run", "--files-from", missing], 1, missing),
        (&["compact", missing], 1, missing),
        (&["compact", "/proc"], 1, "/proc"),
        (&["top", "--profile", missing, file], 1, missing),
        (&["probe", missing], 1, missing),
        (&["report", missing], 1, missing),
        (&["profile", "show", missing], 1, missing),
        (&["trace", "--pid", "999999999"], 1, "no process"),
        (&["watch", file], 2, "--once"),
        (&["profile", "export", file], 2, "-o"),
        (&["scan", "--bogus", file], 2, "--bogus"),
        (&["scan"], 2, "required"),
    ];
    for (words, status, what) in commands {
        let ran = run(words.iter().chain(&["--json"]));
        assert_eq!(ran.status, *status, "{words:?}: {ran:?}");
        let told = ran.json();
        assert_eq!(told["schema"], 1, "{words:?}: {told}");
        assert_eq!(told["made"]["command"][1], words[0], "{words:?}: {told}");
        let error = told["error"]
            .as_str()
            .unwrap_or_else(|| panic!("{words:?}: {told}"));
        assert!(error.contains(what), "{words:?}: {error}");
        let words_of = |line: &str| {
            let line = line
                .strip_prefix("indef: ")
                .or(line.strip_prefix("error: "));
            line.is_some_and(|said| error.starts_with(said))
        };
        assert!(ran.err.lines().any(words_of), "{words:?}: {error}: {ran:?}");
    }
    // Help is no failure, and the words of a command that is to be traced are its own.
    assert!(run(["scan", "--json", "--help"]).out.contains("Usage:"));
    let ran = run(["trace", "--bogus", "--", "scan", "--json"]);
    assert_eq!((ran.status, ran.out.as_str()), (2, ""));
}

#[test]
fn what_is_no_file_is_a_clear_skip() {
    let dir = tempfile::tempdir().unwrap();
    let fifo = dir.path().join("fifo");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &fifo,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .unwrap();
    for path in [fifo.as_path(), "/dev/null".as_ref()] {
        for command in ["scan", "plan", "run"] {
            let ran = run([command, text(path)]);
            assert_eq!(ran.status, 0, "{ran:?}");
            assert!(
                ran.error_line(text(path)).contains("not a regular file"),
                "{ran:?}"
            );
        }
    }
}

#[test]
fn a_file_system_without_an_engine_is_a_skip() {
    for path in ["/proc/self/stat", "/proc"] {
        let ran = run(["run", path]);
        assert_eq!(ran.status, 0, "{ran:?}");
    }
    let Ok(dir) = tempfile::tempdir_in("/dev/shm") else {
        return scratch_fs::skip("/dev/shm cannot be written");
    };
    let file = dir.path().join("file");
    fs::write(&file, vec![7; 1 << 20]).unwrap();
    let ran = run(["run", "--json", text(&file)]);
    assert_eq!(ran.status, 0, "{ran:?}");
    let entry = &ran.json()["files"][0];
    assert_eq!(
        (entry["status"].as_str(), entry["reason"].as_str()),
        (Some("skipped"), Some("no-engine"))
    );
    assert!(ran.error_line(text(&file)).contains("no engine"), "{ran:?}");
}

/// `run --plan` of each of these must fail without touching anything.
#[test]
fn damaged_foreign_and_outdated_plans_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, vec![1; 100_000]).unwrap();
    let plan = dir.path().join("a plan");
    let made = run(["plan", text(dir.path()), "-o", text(&plan)]);
    assert_eq!(made.status, 0, "{made:?}");
    let good = fs::read_to_string(&plan).unwrap();
    assert_eq!(run(["run", "--plan", text(&plan)]).status, 0);
    let header = good.lines().next().unwrap().to_owned();
    for (what, content) in [
        ("empty", String::new()),
        ("foreign", "hello\n".to_owned()),
        ("binary", "\0\u{1}\u{2}\n".repeat(1000)),
        ("JSON of something else", "{\"schema\":1}\n".to_owned()),
        ("cut off", header.clone()),
        (
            "another version",
            good.replacen("{\"indef-plan\":2", "{\"indef-plan\":99", 1),
        ),
        ("more past the end", format!("{good}{good}")),
        ("half a line", good[..good.len() / 2].to_owned()),
    ] {
        fs::write(&plan, content).unwrap();
        for arguments in [
            &["run", "--plan", text(&plan)][..],
            &["report", text(&plan)],
        ] {
            let ran = run(arguments);
            assert_eq!(ran.status, 1, "{what}: {ran:?}");
            let line = ran.error_line(text(&plan));
            assert!(line.contains("plan"), "{what}: {line}");
        }
    }
    let ran = run(["run", "--plan", text(&dir.path().join("missing"))]);
    assert_eq!(ran.status, 1);
    ran.error_line("missing");
    let ran = run(["run", "--json", "--plan", text(&dir.path().join("missing"))]);
    assert_eq!(
        (ran.status, ran.json()["files"].as_array().map(Vec::len)),
        (1, Some(0))
    );
}

#[test]
fn a_damaged_profile_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let profile = dir.path().join("a.profile");
    for content in [
        "",
        "hello\n",
        "indef-profile 99\n",
        "indef-profile 1\nread 1 0\n",
    ] {
        fs::write(&profile, content).unwrap();
        for command in ["plan", "run"] {
            let ran = run([command, text(dir.path()), "--profile", text(&profile)]);
            assert_eq!(ran.status, 1, "{content:?}: {ran:?}");
            ran.error_line("a.profile");
        }
    }
}

#[test]
fn what_cannot_be_written_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let ran = run(["plan", text(dir.path()), "-o", "/no/such/dir/plan"]);
    assert_eq!(ran.status, 1, "{ran:?}");
    ran.error_line("/no/such/dir/plan");
    fs::write(dir.path().join("r"), "{\"schema\":2}").unwrap();
    let ran = run(["report", text(&dir.path().join("r"))]);
    assert_eq!(ran.status, 1);
    assert!(ran.error_line("/r: ").contains("schema 2"), "{ran:?}");
}

#[test]
fn there_is_nothing_to_resume() {
    let state = tempfile::tempdir().unwrap();
    let ran = indef_with_state(state.path())
        .args(["run", "--resume"])
        .ran();
    assert_eq!(ran.status, 1, "{ran:?}");
    ran.error_line("stopped");
}

#[test]
fn odd_names_stay_on_one_line_and_come_back_whole() {
    let dir = tempfile::tempdir().unwrap();
    let names: [&[u8]; 4] = [
        b"with space",
        b"new\nline",
        b"latin-\xe4\xff",
        b"\x1b[31mred",
    ];
    for name in names {
        let path = dir
            .path()
            .join(PathBuf::from(OsString::from_vec(name.to_vec())));
        fs::write(path, vec![1; 10_000]).unwrap();
    }
    let ran = indef().args(["scan", "--json"]).arg(dir.path()).ran();
    let document = ran.json();
    let mut found: Vec<Vec<u8>> = document["files"]
        .as_array()
        .unwrap()
        .iter()
        .map(|file| match file["path_bytes"].as_str() {
            Some(bytes) => decode(bytes),
            None => file["path"].as_str().unwrap().as_bytes().to_vec(),
        })
        .map(|path| path.rsplit(|byte| *byte == b'/').next().unwrap().to_vec())
        .collect();
    found.sort();
    let mut expected: Vec<Vec<u8>> = names.iter().map(|name| name.to_vec()).collect();
    expected.sort();
    assert_eq!(found, expected);
    for command in ["scan", "plan", "run"] {
        let ran = indef().args([command, "-v"]).arg(dir.path()).ran();
        assert_eq!(ran.status, 0, "{ran:?}");
        assert!(
            !ran.out.contains('\x1b') && !ran.err.contains('\x1b'),
            "{ran:?}"
        );
    }
    let missing = dir.path().join("not\nthere\x1b[2J");
    let ran = indef().arg("run").arg(missing).ran();
    assert_eq!(ran.status, 1);
    assert!(!ran.error_line("not\\nthere").contains('\x1b'), "{ran:?}");
}

/// Whatever a word holds, an error that repeats it moves no cursor and forges no line.
#[test]
fn odd_words_are_shown_as_escapes() {
    let odd = "\u{1b}[2J\u{7}\u{202e}\r\nerror: all is well";
    let (option, glob) = (format!("--{odd}"), format!("[{odd}"));
    let commands: [&[&str]; 9] = [
        &[odd],
        &["scan", &option],
        &["scan", "/tmp", "--io-size", odd],
        &["scan", "/tmp", "--color", odd],
        &["run", "/tmp", "--engine", odd],
        &["run", "/tmp", "--exclude", &glob],
        &["watch", "--window", odd],
        &["help", odd],
        &["doctor", odd],
    ];
    for words in commands {
        let ran = run(words);
        assert_eq!(ran.status, 2, "{ran:?}");
        let is_safe = |c: char| c == '\n' || !c.is_control() && c != '\u{202e}';
        assert!(ran.err.chars().all(is_safe), "{ran:?}");
        assert!(ran.err.contains("\\u{1b}[2J"), "{ran:?}");
        let is_error = |line: &&str| line.starts_with("error: ");
        assert_eq!(ran.err.lines().filter(is_error).count(), 1, "{ran:?}");
        let ran = run(words.iter().chain(&["--json"]));
        let told = ran.json()["error"].as_str().unwrap().to_owned();
        assert!(told.contains("\\u{1b}[2J"), "{told}");
    }
    // What is wrong with it cannot be shown.
    let odd = OsString::from_vec(b"1\xff\x1b".to_vec());
    let ran = run([
        OsStr::new("scan"),
        "/tmp".as_ref(),
        "--io-size".as_ref(),
        &odd,
    ]);
    assert_eq!(ran.status, 2, "{ran:?}");
    assert!(!ran.err.contains('\u{1b}'), "{ran:?}");
}

/// Base64, as the documents have it.
fn decode(text: &str) -> Vec<u8> {
    const ALPHABET: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut bits, mut have, mut bytes) = (0u32, 0, Vec::new());
    for character in text.bytes().filter(|c| *c != b'=') {
        let value = ALPHABET
            .iter()
            .position(|c| *c == character)
            .expect("base64") as u32;
        bits = bits << 6 | value;
        have += 6;
        if have >= 8 {
            have -= 8;
            bytes.push((bits >> have) as u8);
        }
    }
    bytes
}

#[test]
fn a_check_of_tracing_without_the_right_to_it_fails_and_says_what_is_missing() {
    if !is_root() {
        return;
    }
    let place = ForAnybody::new();
    for layer in ["fs", "syscall"] {
        let check = place.indef().args(["trace", "--check"]).output();
        let ran: Ran = check.unwrap().into();
        assert_eq!(ran.status, 1, "{ran:?}");
        let line = ran.error_line(&format!("layer {layer}"));
        assert!(line.contains("CAP_BPF"), "{line}");
    }
}
