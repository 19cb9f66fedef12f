//! `indef trace` in a real terminal: it shows the accesses, ends at Ctrl-C, and leaves only its
//! summary.

use std::fs;

use crate::common::{indef, is_root, make, reader::Reader, scratch, tmux::Tmux};
use scratch_fs::ScratchFs;
use units::Bytes;

const BINARY: &str = env!("CARGO_BIN_EXE_indef");

/// A fragmented file with a reader.
fn read() -> Option<(ScratchFs, Reader)> {
    if !is_root() {
        return None;
    }
    let check = indef().args(["trace", "--check"]).output().unwrap();
    if !check.status.success() {
        scratch_fs::skip(&String::from_utf8_lossy(&check.stderr));
        return None;
    }
    let scratch = scratch("ext4")?;
    let dir = scratch.path().join("data");
    fs::create_dir(&dir).unwrap();
    make(&dir.join("main.sqlite"), Bytes::mib(1), Bytes::kib(4));
    scratch.sync().unwrap();
    let reader = Reader::of(&dir.join("main.sqlite"));
    Some((scratch, reader))
}

#[test]
fn loop_a_trace_shows_what_it_sees_and_leaves_its_summary() {
    let (Some((scratch, reader)), Some(tmux)) = (read(), Tmux::start(90, 24)) else {
        return;
    };
    let dir = scratch.path().join("data");
    let trace = format!(
        "clear; {BINARY} trace -o {} --path {}",
        scratch.path().join("store").display(),
        dir.display()
    );
    tmux.command(&format!("{trace}; echo status=$?"));
    let shown = tmux.wait_until("rates and the file", |screen| {
        screen.contains("nothing lost")
            && screen
                .lines()
                .any(|line| line.contains("32.0") && line.ends_with("main.sqlite"))
    });
    assert!(shown.contains("32.0 requests/read"), "{shown}");
    assert!(shown.contains("1 file  1 range"), "{shown}");
    tmux.resize(30, 10);
    tmux.wait_until("a narrow view", |screen| {
        screen.contains("…") && screen.contains("reads/s") && screen.contains(".sqlite")
    });
    tmux.resize(90, 24);
    tmux.wait_for("nothing lost");
    tmux.press(&["C-c"]);
    let end = tmux.wait_for("status=0");
    assert!(end.contains("Hottest files"), "{end}");
    assert!(end.contains("32.0 requests for each read"), "{end}");
    assert!(!end.contains("nothing lost"), "the view is gone: {end}");
    tmux.assert_as_before();

    // A command has the terminal to itself.
    tmux.command(&format!("{trace} -- sleep 3; echo status=$?"));
    let end = tmux.wait_until("its end, and no view before", |screen| {
        assert!(!screen.contains("reads/s"), "{screen}");
        screen.contains("status=0")
    });
    assert!(end.contains("0 reads of 0 B"), "{end}");
    tmux.command(&format!(
        "{trace} --progress always -- sleep 6; echo status=$?"
    ));
    tmux.wait_for("0 reads/s");
    tmux.wait_for("status=0");
    drop(reader);
}
