//! A store with killed writers, with several writers, and without space.

use std::{
    env,
    io::Write,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, SystemTime},
};

use indef_core::access::Observed;
use indef_trace::{
    FileKey, FsId, Tally, TracedFile,
    store::{SessionInfo, Store, StoreOptions, StoreProblem},
};
use scratch_fs::{ScratchFs, require};
use units::{Bytes, FileRange};

/// Names the store to the process that a test starts: this program again.
const STORE: &str = "INDEF_TEST_STORE";
/// How often that one adds.
const ADDS: &str = "INDEF_TEST_ADDS";
/// How many tallies one `add` of it brings.
const MANY: u64 = 500;

fn never() -> StoreOptions {
    StoreOptions {
        half_life: Some(Duration::ZERO),
        max_size: None,
    }
}

fn file() -> TracedFile {
    TracedFile {
        key: FileKey {
            dev: 1,
            inode: 2,
            generation: 3,
            subvolume: 0,
        },
        fs: FsId::default(),
        path: Some("/a".into()),
    }
}

fn tally(block: u64) -> Tally {
    Tally {
        file: file().key,
        range: FileRange::new(block * 4096, 4096),
        reads: 1,
        writes: 0,
        observed: Observed::default(),
    }
}

/// Not a test, but the other process: adds, and notes each time that an addition returned.
#[test]
fn adds_until_it_is_killed() {
    let Some(path) = env::var_os(STORE).map(PathBuf::from) else {
        return;
    };
    let count = env::var(ADDS).map_or(u64::MAX, |n| n.parse().unwrap());
    let mut store = Store::create(&path, &never()).unwrap();
    let now = SystemTime::now();
    let session = store.begin(&SessionInfo::default(), now).unwrap();
    let tallies: Vec<_> = (0..MANY).map(tally).collect();
    let mut notes = std::fs::File::create(progress(&path, std::process::id())).unwrap();
    for _ in 0..count {
        store.add(session, &[file()], &tallies, now).unwrap();
        notes.write_all(b".").unwrap();
    }
    store.finish(session, 0, now).unwrap();
}

fn progress(store: &Path, pid: u32) -> PathBuf {
    store.with_extension(format!("{pid}.done"))
}

fn start(store: &Path, adds: Option<u64>) -> Child {
    let mut command = Command::new(env::current_exe().unwrap());
    command
        .args(["--exact", "adds_until_it_is_killed"])
        .env(STORE, store)
        .stdout(Stdio::null());
    if let Some(adds) = adds {
        command.env(ADDS, adds.to_string());
    }
    command.spawn().unwrap()
}

fn is_there(path: &Path) -> bool {
    path.exists() && Store::is_store(path).unwrap()
}

/// How often each block was read: the same for all, as each `add` is whole or not there.
#[track_caller]
fn adds_in(path: &Path) -> u64 {
    let heat = Store::open(path).unwrap().load(SystemTime::now()).unwrap();
    let reads: Vec<u64> = heat.ranges.iter().map(|(_, r)| r.reads).collect();
    assert!(reads.iter().all(|r| *r == reads[0]), "{reads:?}");
    assert!(matches!(reads.len() as u64, 0 | MANY), "{}", reads.len());
    reads.first().copied().unwrap_or(0)
}

#[test]
fn a_killed_writer_loses_at_most_what_was_not_complete() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let mut least = 0;
    for round in 0..14_u64 {
        let mut child = start(&path, None);
        // At another moment each time, also while the store is created.
        let millis = if round < 4 {
            4 + round * 7
        } else {
            150 + round * 17
        };
        thread::sleep(Duration::from_millis(millis));
        child.kill().unwrap();
        child.wait().unwrap();
        let notes = std::fs::metadata(progress(&path, child.id()));
        least += notes.map_or(0, |notes| notes.len());
        if is_there(&path) {
            // A store whose creation was broken off is created by the next writer.
            drop(Store::create(&path, &never()).unwrap());
            let adds = adds_in(&path);
            // One more may have been complete without being noted.
            assert!(
                (least..=least + 1).contains(&adds),
                "round {round}: {adds}, not {least}"
            );
            least = adds;
        }
    }
    assert!(least > 10, "{least} adds in all");
}

#[test]
fn two_writers_lose_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    drop(Store::create(&path, &never()).unwrap());
    let children = [start(&path, Some(40)), start(&path, Some(40))];
    for mut child in children {
        // And a reader meanwhile, who always sees whole transactions.
        while child.try_wait().unwrap().is_none() {
            adds_in(&path);
            thread::sleep(Duration::from_millis(20));
        }
        assert!(child.wait().unwrap().success());
    }
    assert_eq!(adds_in(&path), 80);
    let sessions = Store::open(&path).unwrap().sessions().unwrap();
    assert_eq!(sessions.len(), 2);
}

#[test]
fn loop_a_full_disk_loses_nothing_that_was_there() {
    let Some(fs) = require(ScratchFs::builder("ext4", Bytes::mib(16)).build()) else {
        return;
    };
    let path = fs.path().join("store");
    let mut store = Store::create(&path, &never()).unwrap();
    let now = SystemTime::now();
    let session = store.begin(&SessionInfo::default(), now).unwrap();
    let mut blocks = 0;
    let error = loop {
        let tallies: Vec<_> = (blocks..blocks + 20_000).map(tally).collect();
        match store.add(session, &[file()], &tallies, now) {
            Ok(()) => blocks += 20_000,
            Err(error) => break error,
        }
        assert!(blocks < 10_000_000, "the disk never gets full");
    };
    assert!(matches!(error.problem, StoreProblem::Full), "{error}");
    assert!(error.may_pass() && error.to_string().contains("no space"));
    let held = |store: &Store| store.load(now).unwrap().ranges.len() as u64;
    assert!(blocks > 0);
    assert_eq!(held(&store), blocks);

    // Another file takes the rest of the space, so that not even a journal fits.
    let filler = fs.path().join("filler");
    fill(&filler);
    let error = store.add(session, &[], &[tally(1 << 30)], now).unwrap_err();
    assert!(matches!(error.problem, StoreProblem::Full), "{error}");
    let error = Store::create(&fs.path().join("new"), &never()).unwrap_err();
    assert!(matches!(error.problem, StoreProblem::Full), "{error}");

    // With room again, the same store takes it.
    std::fs::remove_file(&filler).unwrap();
    store
        .add(session, &[file()], &[tally(1 << 30)], now)
        .unwrap();
    assert_eq!(held(&store), blocks + 1);
    drop(store);
    assert_eq!(held(&Store::open(&path).unwrap()), blocks + 1);
}

/// Write until nothing more fits.
fn fill(path: &Path) {
    let mut file = std::fs::File::create(path).unwrap();
    for size in [64 << 10, 4096, 512] {
        while file
            .write_all(&vec![1; size])
            .and_then(|()| file.sync_all())
            .is_ok()
        {}
    }
}

#[test]
fn a_folder_that_is_missing_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("no/such/folder/store");
    let error = Store::create(&missing, &never()).unwrap_err();
    assert!(
        error.to_string().contains("no/such/folder/store"),
        "{error}"
    );
    let text = error.to_string();
    assert!(text.contains("does not exist"), "{text}");
    assert!(!text.contains("permission"), "{text}");
}
