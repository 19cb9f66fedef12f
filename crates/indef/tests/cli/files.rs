//! Which files a command is about: globs, sizes, lists.

use std::{
    ffi::OsStr,
    fs,
    io::Write,
    os::unix::ffi::OsStrExt,
    path::Path,
    process::{Command, Stdio},
};

use serde_json::Value;
use tempfile::TempDir;

use crate::common::{Ran, Run, ended, indef, run};

/// Small and larger files in two folders, one of which has a name that is not UTF-8.
fn tree() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let odd = dir.path().join(OsStr::from_bytes(b"odd-\xff"));
    for folder in [dir.path().join("logs"), odd] {
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("small"), [7; 100]).unwrap();
        fs::write(folder.join("large.log"), [7; 20_000]).unwrap();
        fs::write(folder.join("large.db"), [7; 20_000]).unwrap();
    }
    dir
}

fn names(document: &Value) -> Vec<String> {
    let files = document["files"].as_array().unwrap().iter();
    let mut names: Vec<String> = files
        .map(|file| {
            let path = Path::new(file["path"].as_str().unwrap());
            let parts: Vec<_> = path.iter().rev().take(2).collect();
            format!("{}/{}", parts[1].display(), parts[0].display())
        })
        .collect();
    names.sort();
    names
}

fn excluded(document: &Value) -> [u64; 3] {
    ["files_excluded", "directories_excluded", "files_too_small"]
        .map(|field| document["totals"][field].as_u64().unwrap())
}

/// With this as standard input.
fn fed(command: &mut Command, input: &[u8]) -> Ran {
    let piped = (command.stdin(Stdio::piped()))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = piped.spawn().unwrap();
    // One that reads nothing has closed it.
    let _ = child.stdin.take().unwrap().write_all(input);
    ended(child)
}

#[test]
fn what_is_excluded_is_counted_by_every_command() {
    let dir = tree();
    let path = dir.path().to_str().unwrap();
    let scan = ["scan", "--json", "--exclude", "*.log", "--min-size", "1KiB"];
    let document = run(scan.iter().chain(&[path])).json();
    assert_eq!(names(&document), ["logs/large.db", "odd-\u{fffd}/large.db"]);
    assert_eq!(excluded(&document), [2, 0, 2]);
    // Bytes that are no text match, too.
    let document = run(["scan", "--json", "--exclude", "odd-?/", path]).json();
    assert_eq!(names(&document).len(), 3);
    assert_eq!(excluded(&document), [0, 1, 0]);
    let folder = format!("{path}/logs");
    for verb in [&["plan"][..], &["run", "--dry-run"], &["run"]] {
        let options = ["--json", "--exclude", &folder, "--exclude", "*.db", path];
        let document = run(verb.iter().chain(&options)).json();
        assert_eq!(excluded(&document), [1, 1, 0], "{verb:?}");
        let options = ["--exclude", "*.log", "--min-size=1KiB", path];
        let text = run(verb.iter().chain(&options)).out;
        let told = "2 files (--exclude), 2 smaller files (--min-size)";
        assert!(text.contains(told), "{verb:?}: {text}");
    }
}

#[test]
fn files_come_from_a_list() {
    let dir = tree();
    let odd = dir.path().join(OsStr::from_bytes(b"odd-\xff"));
    let of = |name: &str| odd.join(name).into_os_string().into_vec();
    use std::os::unix::ffi::OsStringExt;
    let scan = |options: &[&str], list: &[u8]| {
        let mut command = indef();
        command.args(["scan", "--json", "--files-from", "-"]);
        fed(command.args(options).current_dir(dir.path()), list)
    };
    // Relative names begin at the working directory.
    let list = [&of("small")[..], b"logs/large.log"];
    for (options, end) in [(&[][..], b"\n"), (&["-0"], b"\0"), (&["--null"], b"\0")] {
        let ran = scan(options, &list.join(&end[..]));
        assert_eq!((ran.status, ran.err.as_str()), (0, ""), "{ran:?}");
        let document = ran.json();
        assert_eq!(names(&document), ["logs/large.log", "odd-\u{fffd}/small"]);
        assert_eq!(document["made"]["paths"].as_array().unwrap().len(), 0);
        assert_eq!(
            document["made"]["file_systems"].as_array().unwrap().len(),
            1
        );
    }
    let ran = scan(
        &["--exclude", "logs", "--min-size", "1KiB"],
        &list.join(&b'\n'),
    );
    assert_eq!(excluded(&ran.json()), [1, 0, 1]);

    // A folder stands for nothing in it; what is not there is an error, and the rest is done.
    let ran = scan(&[], b"logs\nlogs/gone\nlogs/small\n");
    assert_eq!(ran.status, 1, "{ran:?}");
    assert_eq!(names(&ran.json()), ["logs/small"]);
    assert!(
        ran.err.contains("logs: skipped") && ran.err.contains("logs/gone"),
        "{ran:?}"
    );

    let file = dir.path().join("list");
    fs::write(&file, "logs/small\n").unwrap();
    let from = |verb: &[&str]| {
        let mut command = indef();
        command.args(verb).arg("--files-from").arg(&file);
        command.current_dir(dir.path()).ran()
    };
    for verb in [&["scan"][..], &["plan"], &["run"], &["run", "--dry-run"]] {
        let ran = from(verb);
        assert_eq!((ran.status, ran.err.as_str()), (0, ""), "{verb:?}: {ran:?}");
    }
    fs::write(&file, "").unwrap();
    assert_eq!(
        from(&["run", "--json"]).json()["files"],
        Value::Array(vec![])
    );
}

#[test]
fn a_bad_list_is_refused_with_its_line_before_anything_is_done() {
    let dir = tree();
    for (list, options, told) in [
        (
            &b"logs/small\n\nlogs/large.db\n"[..],
            &[][..],
            "line 2 is empty",
        ),
        (b"logs/small\0logs/large.db\0", &[], "need -0"),
        (b"logs/small\0\0", &["-0"], "name 2 is empty"),
    ] {
        for verb in ["scan", "plan", "run"] {
            let mut command = indef();
            command
                .args([verb, "--json", "--files-from", "-"])
                .args(options);
            let ran = fed(command.current_dir(dir.path()), list);
            assert_eq!(ran.status, 1, "{ran:?}");
            let document = ran.json();
            assert!(document.get("files").is_none(), "{document}");
            let error = document["error"].as_str().unwrap();
            assert!(error.contains(told), "{document}");
            assert!(ran.error_line("-: ").contains(told), "{ran:?}");
        }
    }
    let ran = run(["scan", "--files-from", "/no/such/list"]);
    assert_eq!(ran.status, 1);
    ran.error_line("/no/such/list");
}

#[test]
fn globs_are_checked_with_the_command_line() {
    for (glob, told) in [
        ("[a", "unclosed character class"),
        ("", "a glob needs a name"),
        ("./a", "no part '.'"),
        ("a/../b", "no part '..'"),
    ] {
        let ran = run(["scan", "/tmp", "--exclude", glob]);
        assert_eq!(ran.status, 2, "{ran:?}");
        assert!(ran.err.contains(told), "{glob}: {ran:?}");
    }
    for arguments in [
        &["run", "--plan", "p", "--exclude", "x"][..],
        &["run", "--resume", "--min-size", "1MiB"],
        &["run", "--resume", "--files-from", "x"],
        &["run", "--plan", "p", "--all-mounts"],
        &["scan", "/tmp", "--all-mounts"],
        &["plan", "/tmp", "--files-from", "x"],
        &["scan", "/tmp", "-0"],
        &["compact", "/tmp", "--min-size", "1MiB"],
    ] {
        let ran = run(arguments);
        assert_eq!(ran.status, 2, "{arguments:?}: {ran:?}");
    }
}
