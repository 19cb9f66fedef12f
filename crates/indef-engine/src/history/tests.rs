use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    process::Command,
    thread,
};

use super::{
    file::{MOST_BYTES, MOST_RUNS, path},
    record::MOST_WORDS,
    *,
};
use crate::process::started;

fn run_at(started_ns: u64) -> Begun {
    Begun {
        started_ns,
        ..Begun::now("run", ["indef".to_owned(), "run".to_owned()])
    }
}

fn moved(files_moved: u64) -> Outcome {
    Outcome {
        ended: End::Done,
        files_moved,
        extents_before: 100,
        extents_after: 7,
        skipped: [("contiguous".to_owned(), 3)].into(),
        predicted_gain: Some(2.5),
        ..Outcome::default()
    }
}

#[test]
fn what_a_run_did_comes_back() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(read(dir.path()).unwrap(), History::default());
    let (first, second) = (run_at(10), run_at(20));
    begin(dir.path(), &first).unwrap();
    begin(dir.path(), &second).unwrap();
    let states: Vec<State> = states(dir.path());
    assert_eq!(states, [State::Running, State::Running]);
    end(dir.path(), &second, moved(4)).unwrap();
    end(dir.path(), &first, moved(2)).unwrap();
    let records = read(dir.path()).unwrap().records;
    let files = |record: &Record| match &record.state {
        State::Ended(outcome) => (outcome.files_moved, outcome.requests_saved()),
        state => panic!("{state:?}"),
    };
    assert_eq!(
        records.iter().map(files).collect::<Vec<_>>(),
        [(2, 93), (4, 93)]
    );
    assert_eq!(records[0].begun, first);
    let mode = fs::metadata(path(dir.path())).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

fn states(directory: &Path) -> Vec<State> {
    let records = read(directory).unwrap().records;
    records.into_iter().map(|record| record.state).collect()
}

#[test]
fn a_run_whose_process_is_gone_was_killed() {
    let dir = tempfile::tempdir().unwrap();
    let mut child = Command::new("sleep").arg("60").spawn().unwrap();
    let run = Begun {
        process: child.id(),
        process_started: started(child.id()),
        ..run_at(1)
    };
    begin(dir.path(), &run).unwrap();
    assert_eq!(states(dir.path()), [State::Running]);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(states(dir.path()), [State::Killed]);
    // A process of another boot is another one, whatever its number.
    let earlier = Begun {
        boot: Some("another".to_owned()),
        ..run_at(2)
    };
    begin(dir.path(), &earlier).unwrap();
    assert_eq!(states(dir.path()), [State::Killed, State::Killed]);
}

#[test]
fn a_torn_line_spoils_no_other() {
    let dir = tempfile::tempdir().unwrap();
    end(dir.path(), &run_at(1), moved(1)).unwrap();
    let one = fs::read(path(dir.path())).unwrap();
    end(dir.path(), &run_at(2), moved(2)).unwrap();
    let two = fs::read(path(dir.path())).unwrap();
    for cut in one.len()..=two.len() {
        fs::write(path(dir.path()), &two[..cut]).unwrap();
        end(dir.path(), &run_at(3), moved(3)).unwrap();
        let history = read(dir.path()).unwrap();
        let began: Vec<u64> = history.records.iter().map(|r| r.begun.started_ns).collect();
        // A whole line without its end is whole.
        let is_whole = cut + 1 >= two.len();
        let expected: &[u64] = if is_whole { &[1, 2, 3] } else { &[1, 3] };
        assert_eq!(began, expected, "{cut}");
        let damaged = u64::from(!is_whole && cut > one.len());
        assert_eq!(history.damaged_lines, damaged, "{cut}");
    }
    // Blocks that a power cut left as zeroes, and what else there may be.
    for junk in [&[0; 5000][..], b"{}\n", b"\xff\n\n\n", b"{\"begun\":{}}"] {
        fs::write(path(dir.path()), [&one[..], junk].concat()).unwrap();
        end(dir.path(), &run_at(3), moved(3)).unwrap();
        let history = read(dir.path()).unwrap();
        assert_eq!((history.records.len(), history.damaged_lines), (2, 1));
    }
}

#[test]
fn it_stays_short_and_keeps_the_newest() {
    let dir = tempfile::tempdir().unwrap();
    let line = |n: u64, word: &str| {
        let begun = Begun {
            command: vec![word.to_owned()],
            ..run_at(n)
        };
        let line = file::Line::Ended(begun, Box::new(moved(n)));
        format!("{}\n", serde_json::to_string(&line).unwrap())
    };
    let long = "x".repeat(2000);
    for word in ["indef", &long] {
        let many: String = (1..=MOST_RUNS as u64).map(|n| line(n, word)).collect();
        fs::write(path(dir.path()), many).unwrap();
        begin(dir.path(), &run_at(5000)).unwrap();
        let records = read(dir.path()).unwrap().records;
        assert!(
            (300..MOST_RUNS).contains(&records.len()),
            "{}",
            records.len()
        );
        let began: Vec<u64> = records.iter().rev().map(|r| r.begun.started_ns).collect();
        let kept = (1..=MOST_RUNS as u64).rev().take(began.len() - 1);
        assert!(began.iter().copied().eq([5000].into_iter().chain(kept)));
        assert!(fs::metadata(path(dir.path())).unwrap().len() < MOST_BYTES);
        assert_eq!(
            fs::read_dir(dir.path()).unwrap().count(),
            1,
            "nothing beside it"
        );
    }
}

#[test]
fn many_at_once_lose_nothing() {
    let dir = tempfile::tempdir().unwrap();
    // About to be shortened by one of them.
    let long = |n| Begun {
        command: vec!["x".repeat(9000)],
        ..run_at(n)
    };
    for n in 0..112 {
        begin(dir.path(), &long(n)).unwrap();
    }
    thread::scope(|scope| {
        for worker in 0..4 {
            let dir = dir.path();
            scope.spawn(move || {
                for n in 0..10 {
                    let run = run_at(10_000 + worker * 100 + n);
                    begin(dir, &run).unwrap();
                    end(dir, &run, moved(n)).unwrap();
                }
            });
        }
    });
    let history = read(dir.path()).unwrap();
    let new = history
        .records
        .iter()
        .filter(|r| r.begun.started_ns >= 10_000);
    let ended = new.filter(|record| matches!(record.state, State::Ended(_)));
    assert_eq!((ended.count(), history.damaged_lines), (40, 0));
}

#[test]
fn files_of_others_are_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let target = elsewhere.path().join("target");
    fs::write(&target, "content").unwrap();
    symlink(&target, path(dir.path())).unwrap();
    assert!(begin(dir.path(), &run_at(1)).is_err());
    assert!(read(dir.path()).is_err());
    assert_eq!(fs::read(&target).unwrap(), b"content");
    fs::remove_file(path(dir.path())).unwrap();
    fs::write(path(dir.path()), "").unwrap();
    fs::set_permissions(path(dir.path()), fs::Permissions::from_mode(0o666)).unwrap();
    let error = begin(dir.path(), &run_at(1)).unwrap_err().to_string();
    assert!(error.contains("remove it"), "{error}");
    assert!(begin(&dir.path().join("none"), &run_at(1)).is_err());
}

#[test]
fn long_command_lines_are_cut_short() {
    let begun = Begun::now("run", (0..1000).map(|n| format!("{n}")));
    assert_eq!(begun.command.len(), MOST_WORDS + 1);
    let begun = Begun::now("run", ["indef".to_owned(), "x".repeat(5000)]);
    assert_eq!(begun.command, ["indef", "…"]);
}
