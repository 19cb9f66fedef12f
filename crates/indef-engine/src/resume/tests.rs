use indef_core::{SkipReason, plan::Chunk};
use indef_fs::TargetId;
use units::FileRange;

use super::*;
use crate::run::{FileResult, Reason, Status};

pub(crate) fn plan(inode: u64) -> FilePlan {
    FilePlan {
        path: PathBuf::from(format!("relative/{inode}")),
        root_len: Some(8),
        born: None,
        dev: 7,
        inode,
        size: Bytes::mib(1),
        block_size: Bytes::kib(4),
        fs: "ext4".into(),
        engine: None,
        extents_before: 256,
        named: None,
        skip: None,
        chunks: vec![Chunk {
            range: FileRange::new(0, 1 << 20),
            reads: 1,
            writes: 0,
            dolf: 256,
            dopf: 0.0,
            iodp: 1024.0,
            decision: indef_core::plan::Decision::Migrate,
            cost: Bytes::mib(1),
            gain: 1000.0,
            edges: indef_core::plan::Edges {
                excess: 255,
                cuts_start: false,
                cuts_end: false,
            },
            lets_go: None,
            shared: None,
        }],
    }
}

fn result(inode: u64, reason: Option<Reason>) -> FileResult {
    FileResult {
        path: PathBuf::new(),
        id: TargetId { dev: 7, inode },
        fs: "ext4".into(),
        engine: None,
        status: Status::Moved,
        reason,
        extents_before: 256,
        extents_after: 1,
        bytes_planned: Bytes::mib(1),
        bytes_relocated: Bytes::mib(1),
        bytes_host_read: Bytes::ZERO,
        bytes_host_written: Bytes::ZERO,
        bytes_offloaded: Bytes::ZERO,
        bytes_reclaimed: Bytes::ZERO,
        holders: 0,
        bytes_unshared: Bytes::ZERO,
    }
}

fn store(directory: &Path, inodes: std::ops::Range<u64>) -> StoredRun {
    let plans: Vec<_> = inodes.map(plan).collect();
    let limit = plans.iter().map(FilePlan::cost).sum();
    let options = RunOptions {
        rate: Some(Bytes::mib(5)),
        ..RunOptions::default()
    };
    StoredRun::create(directory, &PlanOptions::default(), &plans, limit, &options).unwrap()
}

/// Assert that a process works on the stored run, and that it is this one.
#[track_caller]
fn is_running(directory: &Path) {
    match StoredRun::newest(directory) {
        Err(ResumeError::Running(process)) => assert_eq!(process, std::process::id()),
        other => panic!("{other:?}"),
    }
}

fn entries(directory: &Path) -> usize {
    fs::read_dir(directory).unwrap().count()
}

#[test]
fn a_run_goes_on_where_it_was_killed() {
    let dir = tempfile::tempdir().unwrap();
    let run = store(dir.path(), 0..5);
    let (id, cancel) = (|inode| TargetId { dev: 7, inode }, Cancel::new());
    {
        let observer = run.observer(&(), &cancel);
        for inode in [0, 1, 2] {
            observer.on(RunEvent::Reserved {
                id: id(inode),
                bytes: Bytes::mib(1),
            });
        }
        observer.on(RunEvent::Settled {
            id: id(0),
            reserved: Bytes::mib(1),
            spent: Bytes::kib(512),
        });
        observer.on(RunEvent::FileDone(&result(0, None)));
        let stopped = Reason::Skip(SkipReason::Stopped);
        observer.on(RunEvent::FileDone(&result(1, Some(stopped))));
    }
    // While it lives, nobody else gets it.
    is_running(dir.path());
    let path = run.path().to_owned();
    drop(run);
    // Killed in the middle of a line.
    let mut file = OpenOptions::new().append(true).open(&path).unwrap();
    file.write_all(b"{\"done\":[7").unwrap();
    drop(file);

    let resumed = StoredRun::newest(dir.path()).unwrap().unwrap();
    let left: Vec<_> = resumed.plans.iter().map(|plan| plan.inode).collect();
    assert_eq!(left, [1, 2, 3, 4]);
    assert!(resumed.plans.iter().all(|plan| plan.path.is_absolute()));
    assert_eq!(resumed.plans[0].runs(), plan(1).runs());
    // Half of the first, and the bytes that two others had reserved.
    assert_eq!(resumed.spent, Bytes::mib(2) + Bytes::kib(512));
    assert_eq!(resumed.left, Bytes::mib(2) + Bytes::kib(512));
    let options = resumed.run_options.unwrap();
    assert_eq!(options.rate, Some(Bytes::mib(5)));
    // The options of a resumed run are kept for the next one.
    resumed.run.continue_with(&RunOptions {
        rate: Some(Bytes::mib(7)),
        ..options
    });
    resumed
        .run
        .observer(&(), &Cancel::new())
        .on(RunEvent::FileDone(&result(3, None)));
    drop(resumed);

    let resumed = StoredRun::newest(dir.path()).unwrap().unwrap();
    let left: Vec<_> = resumed.plans.iter().map(|plan| plan.inode).collect();
    assert_eq!(left, [1, 2, 4]);
    assert_eq!(resumed.run_options.unwrap().rate, Some(Bytes::mib(7)));
    resumed.run.finish().unwrap();
    assert_eq!(entries(dir.path()), 0);
    assert!(StoredRun::newest(dir.path()).unwrap().is_none());
}

#[test]
fn the_newest_that_nobody_works_on_is_taken() {
    let dir = tempfile::tempdir().unwrap();
    let first = store(dir.path(), 0..1);
    let second = store(dir.path(), 0..2);
    let third = store(dir.path(), 0..3);
    drop(first);
    drop(second);
    let resumed = StoredRun::newest(dir.path()).unwrap().unwrap();
    assert_eq!(resumed.plans.len(), 2);
    let again = StoredRun::newest(dir.path()).unwrap().unwrap();
    assert_eq!(again.plans.len(), 1);
    is_running(dir.path());
    third.finish().unwrap();
}

#[test]
fn leftovers_of_storing_are_swept_and_damage_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let none = StoredRun::newest(&dir.path().join("none")).unwrap();
    assert!(none.is_none());
    // Killed while it removed its files.
    let run = store(dir.path(), 0..1);
    fs::remove_file(&run.plan_path).unwrap();
    drop(run);
    // Killed while it stored, long ago; and something that is being stored now.
    for name in ["1-1.journal.new", "1-1.plan"] {
        let file = File::create(dir.path().join(name)).unwrap();
        file.set_modified(UNIX_EPOCH).unwrap();
    }
    File::create(dir.path().join("2-2.plan")).unwrap();
    assert!(StoredRun::newest(dir.path()).unwrap().is_none());
    sweep(dir.path());
    assert_eq!(entries(dir.path()), 1);

    let run = store(dir.path(), 0..1);
    let path = run.path().to_owned();
    drop(run);
    let mut file = OpenOptions::new().append(true).open(&path).unwrap();
    file.write_all(b"nonsense\n").unwrap();
    let error = StoredRun::newest(dir.path()).unwrap_err().to_string();
    assert!(error.contains("line 2 is damaged"), "{error}");
    fs::write(path.with_extension("plan"), "x\n").unwrap();
    fs::write(&path, "{\"indef-journal\":1,\"limit_bytes\":5}\n").unwrap();
    let error = StoredRun::newest(dir.path()).unwrap_err().to_string();
    assert!(error.contains(".plan: plan line 1"), "{error}");
}

#[test]
fn a_stored_run_is_nobody_elses_business() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let run = store(dir.path(), 0..1);
    for path in [&run.plan_path, &run.journal_path] {
        let mode = fs::metadata(path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}

#[test]
fn a_new_plan_replaces_those_that_it_covers() {
    let dir = tempfile::tempdir().unwrap();
    for inodes in [0..2, 0..3, 5..6] {
        drop(store(dir.path(), inodes));
    }
    let new = store(dir.path(), 0..3);
    let removed = StoredRun::supersede(dir.path(), &|_, plan| plan.inode < 3).unwrap();
    // The new run is not removed: this process works on it.
    assert_eq!(removed, 2);
    new.finish().unwrap();
    let left = StoredRun::newest(dir.path()).unwrap().unwrap();
    assert_eq!(left.plans[0].inode, 5);
    drop(left);
    // A file that is done needs no cover.
    let half = store(dir.path(), 1..3);
    half.observer(&(), &Cancel::new())
        .on(RunEvent::FileDone(&result(2, None)));
    drop(half);
    assert_eq!(
        StoredRun::supersede(dir.path(), &|_, plan| plan.inode == 1).unwrap(),
        1
    );
    assert_eq!(entries(dir.path()), 2);
}

#[test]
fn what_nobody_went_on_with_for_a_month_goes() {
    let dir = tempfile::tempdir().unwrap();
    let run = store(dir.path(), 0..1);
    let path = run.journal_path.clone();
    let set = |days: u64| {
        let then = SystemTime::now() - Duration::from_secs(days * 24 * 3600);
        File::open(&path).unwrap().set_modified(then).unwrap();
    };
    set(100);
    sweep(dir.path());
    assert_eq!(entries(dir.path()), 2, "it goes on");
    drop(run);
    set(29);
    sweep(dir.path());
    assert_eq!(entries(dir.path()), 2);
    set(31);
    sweep(dir.path());
    assert_eq!(entries(dir.path()), 0);
}

#[test]
fn who_comes_with_the_same_purpose_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let week = Duration::from_secs(7 * 24 * 3600);
    let find = |purpose: &str, within: Duration| {
        let found = StoredRun::newest_for(dir.path(), purpose, within).unwrap();
        found.map(|rest| rest.plans.len())
    };
    assert_eq!(find("nightly", week), None);
    let nightly = store(dir.path(), 0..3);
    nightly.mark("nightly");
    // A run that goes on is nobody else's.
    assert_eq!(find("nightly", week), None);
    drop(nightly);
    drop(store(dir.path(), 0..5));
    assert_eq!(find("nightly", week), Some(3));
    assert_eq!(find("hourly", week), None);
    assert_eq!(find("nightly", Duration::ZERO), None);
    // To be found does not use it up.
    assert_eq!(find("nightly", week), Some(3));
    assert!(StoredRun::newest(dir.path()).unwrap().is_some());
}

/// What cannot be noted must not be done: the run is asked to stop, and nothing follows what may be half a line.
#[test]
fn a_journal_that_cannot_be_written_stops_the_run() {
    let dir = tempfile::tempdir().unwrap();
    let run = store(dir.path(), 0..3);
    let path = run.path().to_owned();
    let id = |inode| TargetId { dev: 7, inode };
    let cancel = Cancel::new();
    let observer = run.observer(&(), &cancel);
    observer.on(RunEvent::FileDone(&result(0, None)));
    assert!(!cancel.is_cancelled() && run.failure().is_none());
    let open = |path: &Path| OpenOptions::new().append(true).open(path).unwrap();
    let full = std::mem::replace(&mut *lock(&run.journal), open(Path::new("/dev/full")));
    observer.on(RunEvent::Reserved {
        id: id(1),
        bytes: Bytes::mib(1),
    });
    assert!(cancel.is_cancelled());
    let error = run.failure().unwrap();
    assert_eq!(error.path, path);
    assert_eq!(error.source.kind(), io::ErrorKind::StorageFull);
    // There is room again.
    *lock(&run.journal) = full;
    let len = fs::metadata(&path).unwrap().len();
    observer.on(RunEvent::FileDone(&result(1, None)));
    assert_eq!(fs::metadata(&path).unwrap().len(), len);
    drop(observer);
    drop(run);
    let left = StoredRun::newest(dir.path()).unwrap().unwrap().plans;
    assert_eq!(left.len(), 2);
}
