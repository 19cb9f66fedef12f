use std::fs;

use rustix::fs::{CWD, FileType, mknodat};

use super::*;

fn reason(path: &Path) -> Option<SkipReason> {
    match Target::open(path) {
        Ok(_) => None,
        Err(Refusal::Skip(reason)) => Some(reason),
        Err(Refusal::Failed(error)) => panic!("{error}"),
    }
}

#[test]
fn only_regular_files_are_opened() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, b"hello").unwrap();
    let link = dir.path().join("link");
    std::os::unix::fs::symlink(&file, &link).unwrap();
    let socket = dir.path().join("socket");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let fifo = dir.path().join("fifo");
    mknodat(CWD, &fifo, FileType::Fifo, Mode::from(0o600), 0).unwrap();
    for path in [dir.path(), &link, &socket, &fifo, Path::new("/dev/null")] {
        assert_eq!(reason(path), Some(SkipReason::NotRegular), "{path:?}");
    }
    assert_eq!(reason(&dir.path().join("none")), Some(SkipReason::Gone));
    assert_eq!(reason(&file.join("below")), Some(SkipReason::Gone));
    assert_eq!(reason(&file), None);
}

#[test]
fn a_running_program_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("program");
    // By a process of its own: one that another thread begins meanwhile would have a file of ours open for writing.
    let copied = std::process::Command::new("cp")
        .arg("/bin/sleep")
        .arg(&program)
        .status();
    assert!(copied.unwrap().success());
    let mut child = std::process::Command::new(&program)
        .arg("30")
        .spawn()
        .unwrap();
    let found = reason(&program);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(found, Some(SkipReason::RunningBinary));
}

#[test]
fn what_is_known_of_a_file() {
    use std::os::unix::fs::MetadataExt;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    fs::write(&path, vec![1; 5000]).unwrap();
    let target = Target::open(&path).unwrap();
    let status = fs::metadata(&path).unwrap();
    assert_eq!(target.size, Bytes(5000));
    assert_eq!(
        (target.id.dev, target.id.inode),
        (status.dev(), status.ino())
    );
    assert_eq!(target.mtime.seconds, status.mtime());
    assert_eq!(target.mode, status.mode() & 0o7777);
    assert_eq!(target.links, 1);
    assert!(target.noatime);
}
