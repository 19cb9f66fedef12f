//! Adding up, decaying, staying small, and one file for each way in which a store can be wrong.

use std::{
    collections::BTreeMap,
    fs,
    io::{Seek, SeekFrom, Write},
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use indef_core::access::{AccessRange, Observed};
use proptest::prelude::*;
use rusqlite::Connection;
use tempfile::TempDir;
use units::{Bytes, FileRange, Nanos};
use workloads::Numbers;

use super::{error::Result, *};
use crate::tally::{FileKey, FsId, Tally, TracedFile};

const DAY: Duration = Duration::from_secs(24 * 3600);

/// A moment after the creation of every store.
fn later(days: u32) -> SystemTime {
    SystemTime::now() + 100 * DAY + days * DAY
}

fn folder() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    (folder, path)
}

fn file(inode: u64) -> TracedFile {
    TracedFile {
        key: FileKey {
            dev: 0x801,
            inode,
            generation: 7,
            subvolume: 0,
        },
        fs: FsId {
            uuid: [9; 16],
            magic: 0xEF53,
        },
        path: Some(format!("/srv/{inode}").into()),
    }
}

fn tally(inode: u64, start: u64, len: u64, reads: u64) -> Tally {
    Tally {
        file: file(inode).key,
        range: FileRange::new(start, len),
        reads,
        writes: reads / 2,
        observed: Observed {
            requests: reads * 4,
            timed: reads,
            time: Nanos(reads * 100),
            ahead: Some(reads * 3),
        },
    }
}

fn session(store: &mut Store, now: SystemTime) -> SessionId {
    let info = SessionInfo {
        layer: "fs".into(),
        command: "sqlite3 main.db".into(),
        kernel: "6.18.0".into(),
    };
    store.begin(&info, now).unwrap()
}

fn never() -> StoreOptions {
    StoreOptions {
        half_life: Some(Duration::ZERO),
        max_size: None,
    }
}

/// (inode, start, length) → reads.
fn held(heat: &Heat) -> BTreeMap<(u64, u64, u64), u64> {
    let one = |(file, r): &(u32, AccessRange)| {
        let inode = heat.files[*file as usize].key.inode;
        ((inode, r.range.start.0, r.range.len.0), r.reads)
    };
    heat.ranges.iter().map(one).collect()
}

#[test]
fn sessions_are_forgotten_with_all_that_they_counted() {
    let (_folder, path) = folder();
    let options = StoreOptions {
        half_life: Some(DAY),
        max_size: None,
    };
    let mut store = Store::create(&path, &options).unwrap();
    let [old, open] = [0, 0].map(|_| session(&mut store, later(0)));
    store.finish(old, 0, later(0)).unwrap();
    let next = session(&mut store, later(19));
    let ids = |store: &Store| -> Vec<_> {
        let sessions = store.sessions().unwrap();
        sessions.iter().map(|session| session.id).collect()
    };
    assert_eq!(ids(&store), [old, open, next]);
    let last = session(&mut store, later(21));
    // One that has not ended stays.
    assert_eq!(ids(&store), [open, next, last]);
}

#[test]
fn equal_ranges_of_a_file_add_up() {
    let (_folder, path) = folder();
    let mut store = Store::create(&path, &never()).unwrap();
    let now = later(0);
    let id = session(&mut store, now);
    let first = [tally(5, 0, 4096, 3), tally(3, 8192, 4096, 1)];
    store.add(id, &[file(5), file(3)], &first, now).unwrap();
    let again = [
        tally(5, 0, 4096, 4),
        tally(5, 0, 8192, 2),
        tally(5, 0, 4096, 1),
    ];
    store.add(id, &[], &again, now).unwrap();
    store.finish(id, 17, now).unwrap();

    let store = Store::open(&path).unwrap();
    let heat = store.load(now).unwrap();
    let expected = [((5, 0, 4096), 8), ((5, 0, 8192), 2), ((3, 8192, 4096), 1)];
    assert_eq!(held(&heat), expected.into());
    assert_eq!(heat.files.len(), 2);
    assert!(heat.files.contains(&file(3)) && heat.files.contains(&file(5)));
    let hottest = heat.ranges.iter().find(|(_, r)| r.reads == 8).unwrap().1;
    assert_eq!(hottest.writes, 3);
    assert_eq!(
        hottest.observed,
        Observed {
            requests: 32,
            timed: 8,
            time: Nanos(800),
            ahead: Some(24),
        }
    );
    let sessions = store.sessions().unwrap();
    assert_eq!(sessions.len(), 1);
    assert_eq!((sessions[0].reads, sessions[0].writes), (11, 4));
    assert_eq!(sessions[0].lost, 17);
    assert!(sessions[0].ended.is_some());
    assert_eq!(sessions[0].info.command, "sqlite3 main.db");
}

#[test]
fn a_file_stays_the_same_under_another_device_number_and_name() {
    let (_folder, path) = folder();
    let mut store = Store::create(&path, &never()).unwrap();
    let now = later(0);
    let id = session(&mut store, now);
    store
        .add(id, &[file(5)], &[tally(5, 0, 4096, 3)], now)
        .unwrap();
    let mut moved = file(5);
    moved.key.dev = 0x999;
    moved.path = Some("/srv/renamed".into());
    let after = Tally {
        file: moved.key,
        ..tally(5, 0, 4096, 4)
    };
    store.add(id, &[moved.clone()], &[after], now).unwrap();
    // A file of another generation, and one that was not given.
    let mut other = file(5);
    other.key.generation = 8;
    let unknown = FileKey {
        inode: 77,
        ..other.key
    };
    let tallies = [other.key, unknown].map(|file| Tally {
        file,
        ..tally(5, 0, 4096, 1)
    });
    store.add(id, &[other.clone()], &tallies, now).unwrap();
    let heat = store.load(now).unwrap();
    assert_eq!(heat.files.len(), 3);
    let reads = |key: FileKey| {
        let at = heat.files.iter().position(|f| f.key == key).unwrap() as u32;
        heat.ranges.iter().find(|(f, _)| *f == at).unwrap().1.reads
    };
    assert_eq!(reads(moved.key), 7);
    assert_eq!((reads(other.key), reads(unknown)), (1, 1));
    assert!(heat.files.contains(&moved));
}

#[test]
fn heat_decays_by_the_half_life_and_is_forgotten() {
    let (_folder, path) = folder();
    let options = StoreOptions {
        half_life: Some(2 * DAY),
        max_size: None,
    };
    let mut store = Store::create(&path, &options).unwrap();
    let id = session(&mut store, later(0));
    store
        .add(id, &[file(1)], &[tally(1, 0, 4096, 800)], later(0))
        .unwrap();
    let reads = |store: &Store, days| {
        let heat = store.load(later(days)).unwrap();
        heat.ranges
            .first()
            .map(|(_, r)| (r.reads, r.observed.requests))
    };
    assert_eq!(reads(&store, 0), Some((800, 3200)));
    assert_eq!(reads(&store, 2), Some((400, 1600)));
    // Later accesses count in full.
    store
        .add(id, &[], &[tally(1, 0, 4096, 100)], later(4))
        .unwrap();
    assert_eq!(reads(&store, 4), Some((300, 1200)));
    // Less than one counts as one, with the means of the observations.
    assert_eq!(reads(&store, 24), Some((1, 4)));
    assert_eq!(reads(&store, 60), None);

    // A new half-life counts from now on.
    let days = |n| StoreOptions {
        half_life: Some(n * DAY),
        max_size: None,
    };
    let mut store = Store::create(&path, &days(1)).unwrap();
    session(&mut store, later(4));
    assert_eq!(reads(&store, 4), Some((300, 1200)));
    assert_eq!(reads(&store, 6), Some((75, 300)));
    // It stays if no other is asked for, even after years.
    let mut store = Store::create(&path, &StoreOptions::default()).unwrap();
    assert_eq!(store.settings().unwrap().half_life, DAY);
    let id = session(&mut store, later(3000));
    store
        .add(id, &[file(1)], &[tally(1, 0, 4096, 64)], later(3000))
        .unwrap();
    assert_eq!(reads(&store, 3003), Some((8, 32)));
}

#[test]
fn a_clock_that_runs_back_loses_nothing() {
    let (_folder, path) = folder();
    let mut store = Store::create(&path, &StoreOptions::default()).unwrap();
    let id = session(&mut store, SystemTime::UNIX_EPOCH);
    store
        .add(
            id,
            &[file(1)],
            &[tally(1, 0, 4096, 8)],
            SystemTime::UNIX_EPOCH,
        )
        .unwrap();
    let heat = store.load(SystemTime::UNIX_EPOCH).unwrap();
    assert_eq!(heat.ranges[0].1.reads, 8);
}

#[test]
fn a_store_stays_below_its_size_and_keeps_the_hottest() {
    let (_folder, path) = folder();
    let max_size = Bytes::mib(1);
    let options = StoreOptions {
        half_life: Some(Duration::ZERO),
        max_size: Some(max_size),
    };
    let mut store = Store::create(&path, &options).unwrap();
    let now = later(0);
    let id = session(&mut store, now);
    let mut numbers = Numbers::new(1);
    let hot: Vec<_> = (0..500)
        .map(|i| tally(1, i << 20, 4096, 1_000_000))
        .collect();
    store.add(id, &[file(1)], &hot, now).unwrap();
    for round in 0..60 {
        let files: Vec<_> = (0..10).map(|i| file(100 + round * 10 + i)).collect();
        let cold: Vec<_> = (0..3000)
            .map(|_| {
                tally(
                    100 + round * 10 + numbers.below(10_u64),
                    numbers.below(1 << 31) << 12,
                    4096,
                    1 + numbers.below(9_u64),
                )
            })
            .collect();
        store.add(id, &files, &cold, now).unwrap();
        let size = fs::metadata(&path).unwrap().len();
        assert!(size <= max_size.0, "{size} bytes in round {round}");
    }
    let heat = store.load(now).unwrap();
    let hot_left = heat.ranges.iter().filter(|(_, r)| r.reads == 1_000_000);
    assert_eq!(hot_left.count(), 500);
    // At least half of the ranges that fit are there.
    assert!(
        heat.ranges.len() as u64 > max_size.0 / 2 / 80,
        "{}",
        heat.ranges.len()
    );
    store.finish(id, 0, now).unwrap();

    // More than fits in one transaction: the hottest ranges stay.
    let many: Vec<_> = (0..100_000)
        .map(|i| tally(2, i << 12, 4096, 1 + i))
        .collect();
    let id = session(&mut store, now);
    store.add(id, &[file(2)], &many, now).unwrap();
    assert!(fs::metadata(&path).unwrap().len() <= max_size.0);
    let heat = held(&store.load(now).unwrap());
    assert!(heat.contains_key(&(2, 99_999 << 12, 4096)));
    assert!(!heat.contains_key(&(2, 0, 4096)));

    // A smaller size takes effect with the next session's first ranges.
    let options = StoreOptions {
        half_life: None,
        max_size: Some(Bytes::kib(256)),
    };
    drop(store);
    let mut store = Store::create(&path, &options).unwrap();
    let id = session(&mut store, now);
    store
        .add(id, &[file(2)], &[tally(2, 99_999 << 12, 4096, 1)], now)
        .unwrap();
    assert!(fs::metadata(&path).unwrap().len() <= 256 << 10);
    assert_eq!(
        held(&store.load(now).unwrap())[&(2, 99_999 << 12, 4096)],
        100_001
    );
}

/// docs/profile.md tells how many ranges fit into a store of the default size.
#[test]
fn a_range_with_times_takes_about_80_bytes() {
    let (_folder, path) = folder();
    let mut store = Store::create(&path, &StoreOptions::default()).unwrap();
    let now = later(0);
    let id = session(&mut store, now);
    const RANGES: u64 = 20_000;
    let mut numbers = Numbers::new(1);
    let ranges: Vec<_> = (0..RANGES)
        .map(|i| Tally {
            writes: 0,
            ..tally(1, i << 17, 1 << 17, 1 + numbers.below(99_u64))
        })
        .collect();
    store.add(id, &[file(1)], &ranges, now).unwrap();
    let each = fs::metadata(&path).unwrap().len() as f64 / RANGES as f64;
    let most = DEFAULT_MAX_SIZE.0 as f64 / each;
    assert!((3e6..4e6).contains(&most), "{most}: {each} bytes each");
}

#[test]
fn stores_merge() {
    let (folder, path) = folder();
    let now = later(0);
    let half_life = |days| StoreOptions {
        half_life: Some(days * DAY),
        max_size: None,
    };
    let mut one = Store::create(&path, &half_life(1)).unwrap();
    let id = session(&mut one, now);
    one.add(id, &[file(1)], &[tally(1, 0, 4096, 100)], now)
        .unwrap();
    let mut two = Store::create(&folder.path().join("two"), &half_life(2)).unwrap();
    let id = session(&mut two, now);
    let tallies = [tally(1, 0, 4096, 64), tally(2, 0, 8192, 32)];
    two.add(id, &[file(1), file(2)], &tallies, now).unwrap();

    one.merge(&two, later(2)).unwrap();
    let heat = held(&one.load(later(2)).unwrap());
    assert_eq!(heat, [((1, 0, 4096), 57), ((2, 0, 8192), 16)].into());
    assert_eq!(one.sessions().unwrap().len(), 2);
    assert!(one.sessions().unwrap()[1].ended.is_some());
}

fn problem(result: Result<Store>) -> String {
    let error = result.unwrap_err();
    assert!(!error.may_pass(), "{error}");
    let text = error.to_string();
    assert!(text.contains("store") && !text.contains('\n'), "{text}");
    text
}

#[test]
fn what_is_no_store_is_refused_and_left_alone() {
    let (folder, path) = folder();
    assert!(problem_missing(&path).contains("No such file"));
    assert!(problem(Store::create(folder.path(), &never())).contains("no regular file"));
    let line_profile = b"indef-profile 1\nfile 1 - - /a\nread 1 0 1\n".repeat(9);
    for (bytes, what) in [
        (&line_profile[..], "no SQLite database"),
        (b"short", "too short"),
        (b"SQLite format 3\0 and no more", "cut off"),
    ] {
        fs::write(&path, bytes).unwrap();
        for result in [Store::create(&path, &never()), Store::open(&path)] {
            assert!(problem(result).contains(what), "{what}");
        }
        assert_eq!(fs::read(&path).unwrap(), bytes);
    }
    assert!(!Store::is_store(Path::new("/proc/self/status")).unwrap());
    fs::remove_file(&path).unwrap();
    let foreign = Connection::open(&path).unwrap();
    foreign.execute_batch("CREATE TABLE t (a)").unwrap();
    drop(foreign);
    assert!(Store::is_store(&path).unwrap());
    let before = fs::read(&path).unwrap();
    for result in [Store::create(&path, &never()), Store::open(&path)] {
        assert!(problem(result).contains("another program's database"));
    }
    assert_eq!(fs::read(&path).unwrap(), before);
}

fn problem_missing(path: &Path) -> String {
    Store::open(path).unwrap_err().to_string()
}

/// A store as version 1 wrote it.
fn of_version_1(path: &Path, ranges: i64) {
    let plain = Connection::open(path).unwrap();
    plain
        .execute_batch(
            "BEGIN; \
             CREATE TABLE settings (one INTEGER PRIMARY KEY CHECK (one = 1), half_life_ns INTEGER NOT NULL, epoch_ns INTEGER NOT NULL, max_size INTEGER NOT NULL); \
             CREATE TABLE sessions (id INTEGER PRIMARY KEY, began_ns INTEGER NOT NULL, latest_ns INTEGER NOT NULL, ended_ns INTEGER, layer TEXT NOT NULL, command TEXT NOT NULL, kernel TEXT NOT NULL, reads INTEGER NOT NULL, writes INTEGER NOT NULL, lost INTEGER NOT NULL); \
             CREATE TABLE files (id INTEGER PRIMARY KEY, identity BLOB NOT NULL UNIQUE, dev INTEGER NOT NULL, inode INTEGER NOT NULL, generation INTEGER NOT NULL, subvolume INTEGER NOT NULL, uuid BLOB NOT NULL, magic INTEGER NOT NULL, path BLOB, session INTEGER NOT NULL); \
             CREATE TABLE ranges (file INTEGER NOT NULL, start INTEGER NOT NULL, len INTEGER NOT NULL, reads REAL NOT NULL, writes REAL NOT NULL, requests REAL NOT NULL, timed REAL NOT NULL, time_ns REAL NOT NULL, PRIMARY KEY (file, start, len)) WITHOUT ROWID; \
             INSERT INTO settings VALUES (1, 0, 0, 268435456); \
             INSERT INTO sessions VALUES (1, 5, 6, 7, 'fs', 'sqlite3 main.db', '6.18.0', 9, 4, 0); \
             INSERT INTO files VALUES (1, x'0909090909090909090909090909090900000000000000000000ef53', 2049, 1, 7, 0, x'09090909090909090909090909090909', 61267, x'2f7372762f31', 1); \
             PRAGMA application_id = 1768834150; PRAGMA user_version = 1; COMMIT",
        )
        .unwrap();
    let mut insert = plain
        .prepare("INSERT INTO ranges VALUES (1, ?1 * 4096, 4096, 3, 1, 12, 3, 300)")
        .unwrap();
    plain.execute_batch("BEGIN").unwrap();
    for range in 0..ranges {
        insert.execute([range]).unwrap();
    }
    plain.execute_batch("COMMIT").unwrap();
}

#[test]
fn a_store_of_version_1_is_read_and_migrated() {
    let (_folder, path) = folder();
    let now = later(0);
    of_version_1(&path, 3000);
    let version = |path: &Path| {
        let plain = Connection::open(path).unwrap();
        tables::user_version(&plain).unwrap()
    };
    let before = Store::open(&path).unwrap().load(now).unwrap();
    assert_eq!(before.ranges.len(), 3000);
    assert_eq!(before.files[0].path.as_deref(), Some(Path::new("/srv/1")));
    assert_eq!(version(&path), 1, "reading changes nothing");
    let sessions = Store::open(&path).unwrap().sessions().unwrap();

    let mut store = Store::create(&path, &StoreOptions::default()).unwrap();
    assert_eq!(version(&path), format::VERSION);
    assert_eq!(store.load(now).unwrap(), before);
    assert_eq!(store.sessions().unwrap(), sessions);
    let id = session(&mut store, now);
    store
        .add(id, &[file(2)], &[tally(2, 0, 4096, 8)], now)
        .unwrap();
    drop(store);
    let after = Store::open(&path).unwrap().load(now).unwrap();
    assert_eq!(after.ranges.len(), 3001);
    drop(Store::create(&path, &StoreOptions::default()).unwrap());
    // An unknown table does not pass as a store of version 1.
    of_version_1(&path.with_extension("other"), 1);
    let plain = Connection::open(path.with_extension("other")).unwrap();
    plain.execute_batch("CREATE TABLE more (a)").unwrap();
    drop(plain);
    let refused = Store::create(&path.with_extension("other"), &never());
    assert!(problem(refused).contains("damaged"));
}

/// A store of version 4, from one of this version: only ranges have checksums.
fn back_to_version_4(plain: &Connection) {
    plain
        .execute_batch(
            "BEGIN; ALTER TABLE sessions DROP COLUMN checksum; ALTER TABLE files DROP COLUMN checksum; \
             ALTER TABLE settings DROP COLUMN checksum; ALTER TABLE settings RENAME COLUMN as_of_ns TO epoch_ns; \
             PRAGMA user_version = 4; COMMIT; VACUUM",
        )
        .unwrap();
}

/// A store of version 2, from one of this version: sessions and ranges lack a column each.
fn back_to_version_2(path: &Path) {
    let plain = Connection::open(path).unwrap();
    back_to_version_4(&plain);
    checksum::define(&plain).unwrap();
    let counts = "file, start, len, reads, writes, requests, timed, time_ns";
    plain
        .execute_batch(&format!(
            "BEGIN; ALTER TABLE sessions DROP COLUMN common_error; ALTER TABLE sessions DROP COLUMN one_in; ALTER TABLE ranges RENAME TO old; {}; \
             INSERT INTO ranges SELECT {counts}, row_checksum({counts}) FROM old; DROP TABLE old; \
             PRAGMA user_version = 2; COMMIT; VACUUM",
            tables::RANGES_CHECKED
        ))
        .unwrap();
}

#[test]
fn a_store_of_version_2_is_read_and_merged_with_a_sampled_one() {
    let (_folder, path) = folder();
    let now = later(0);
    let mut store = Store::create(&path, &never()).unwrap();
    let id = session(&mut store, now);
    store
        .add(id, &[file(1)], &[tally(1, 0, 4096, 10)], now)
        .unwrap();
    drop(store);
    back_to_version_2(&path);
    let old = Store::open(&path).unwrap();
    assert_eq!(old.load(now).unwrap().ranges.len(), 1);
    assert_eq!(old.sessions().unwrap()[0].one_in, 1.0);
    drop(old);

    // A sampled one, with the counts of an exact one and its own.
    let other = path.with_extension("other");
    let mut sampled = Store::create(&other, &never()).unwrap();
    let id = session(&mut sampled, now);
    sampled
        .add(id, &[file(1)], &[tally(1, 0, 4096, 160)], now)
        .unwrap();
    sampled.set_sampling(id, 15.5, 0.25).unwrap();
    sampled.finish(id, 0, now).unwrap();
    for (into, from) in [(&path, &other), (&other, &path)] {
        let from = Store::open(from).unwrap();
        let copy = into.with_extension("copy");
        fs::copy(into, &copy).unwrap();
        let mut into = Store::create(&copy, &never()).unwrap();
        into.merge(&from, now).unwrap();
        let heat = into.load(now).unwrap();
        assert_eq!(held(&heat), [((1, 0, 4096), 170)].into());
        let mut sampled: Vec<_> = into
            .sessions()
            .unwrap()
            .iter()
            .map(|session| (session.one_in, session.common_error))
            .collect();
        sampled.sort_by(|a, b| a.0.total_cmp(&b.0));
        assert_eq!(sampled, [(1.0, Some(0.0)), (15.5, Some(0.25))]);
        drop(into);
        fs::remove_file(&copy).unwrap();
    }
    let version = |path: &Path| tables::user_version(&Connection::open(path).unwrap()).unwrap();
    assert_eq!(version(&path), 2, "reading changes nothing");
    drop(Store::create(&path, &never()).unwrap());
    assert_eq!(version(&path), format::VERSION);
}

/// Version 3 knew in how many accesses one was counted, but not the error that all counts share.
#[test]
fn a_store_of_version_3_is_read_and_migrated() {
    let (_folder, path) = folder();
    let now = later(0);
    let mut store = Store::create(&path, &never()).unwrap();
    let exact = session(&mut store, now);
    let sampled = session(&mut store, later(1));
    store
        .add(exact, &[file(1)], &[tally(1, 0, 4096, 10)], now)
        .unwrap();
    store.set_sampling(sampled, 15.5, 0.25).unwrap();
    drop(store);
    let plain = Connection::open(&path).unwrap();
    back_to_version_4(&plain);
    plain
        .execute_batch(
            "ALTER TABLE sessions DROP COLUMN common_error; PRAGMA user_version = 3; VACUUM",
        )
        .unwrap();
    drop(plain);
    let errors = |store: &Store| {
        let sessions = store.sessions().unwrap();
        let errors = sessions
            .iter()
            .map(|session| (session.one_in, session.common_error));
        errors.collect::<Vec<_>>()
    };
    let unknown = [(1.0, Some(0.0)), (15.5, None)];
    let old = Store::open(&path).unwrap();
    assert_eq!(errors(&old), unknown);
    let before = old.load(now).unwrap();
    assert_eq!(tables::user_version(&old.connection).unwrap(), 3);
    drop(old);
    let mut store = Store::create(&path, &never()).unwrap();
    assert_eq!(
        tables::user_version(&store.connection).unwrap(),
        format::VERSION
    );
    assert_eq!(
        (errors(&store), store.load(now).unwrap()),
        (unknown.into(), before)
    );
    let more = session(&mut store, later(2));
    store.set_sampling(more, 4.0, 0.125).unwrap();
    // Of 300 calls, none was counted.
    let unmet = session(&mut store, later(3));
    store.set_sampling(unmet, 1.0, 300.0).unwrap();
    drop(store);
    let after = errors(&Store::open(&path).unwrap());
    assert_eq!(after[..2], unknown);
    assert_eq!(after[2..], [(4.0, Some(0.125)), (1.0, Some(300.0))]);
}

/// Version 2 had checksums, and did not know the requests ahead of timed reads.
#[test]
fn a_store_of_version_2_is_read_and_migrated() {
    let (_folder, path) = folder();
    let now = later(0);
    of_version_1(&path, 1000);
    let plain = Connection::open(&path).unwrap();
    checksum::define(&plain).unwrap();
    let counts = "file, start, len, reads, writes, requests, timed, time_ns";
    plain
        .execute_batch(&format!(
            "BEGIN; ALTER TABLE ranges RENAME TO old; {}; INSERT INTO ranges SELECT {counts}, \
             row_checksum({counts}) FROM old; DROP TABLE old; PRAGMA user_version = 2; COMMIT",
            tables::RANGES_CHECKED
        ))
        .unwrap();
    let before = Store::open(&path).unwrap().load(now).unwrap();
    assert_eq!(before.ranges.len(), 1000);
    let unknown = |range: &(u32, AccessRange)| {
        range.1.observed.timed == 3 && range.1.observed.ahead.is_none()
    };
    assert!(before.ranges.iter().all(unknown));
    let store = Store::create(&path, &never()).unwrap();
    assert_eq!(
        tables::user_version(&store.connection).unwrap(),
        format::VERSION
    );
    assert_eq!(store.load(now).unwrap(), before);
    drop(store);
    // A count that changed in version 2 is not blessed by the new checksum.
    of_version_1(&path.with_extension("two"), 3);
    let plain = Connection::open(path.with_extension("two")).unwrap();
    checksum::define(&plain).unwrap();
    plain
        .execute_batch(&format!(
            "BEGIN; ALTER TABLE ranges RENAME TO old; {}; INSERT INTO ranges SELECT {counts}, \
             row_checksum({counts}) + (start = 4096) FROM old; DROP TABLE old; \
             PRAGMA user_version = 2; COMMIT",
            tables::RANGES_CHECKED
        ))
        .unwrap();
    drop(plain);
    let refused = Store::create(&path.with_extension("two"), &never());
    assert!(problem(refused).contains("damaged"));
}

/// Version 4 had checksums of ranges alone.
#[test]
fn a_store_of_version_4_is_read_and_migrated() {
    let (_folder, path) = folder();
    let now = later(0);
    let options = StoreOptions {
        half_life: Some(DAY),
        max_size: Some(Bytes::mib(1)),
    };
    let mut store = Store::create(&path, &options).unwrap();
    let sampled = session(&mut store, now);
    store
        .add(sampled, &[file(1)], &[tally(1, 0, 4096, 10)], now)
        .unwrap();
    store.set_sampling(sampled, 15.5, 0.25).unwrap();
    store.finish(sampled, 3, now).unwrap();
    let nameless = TracedFile {
        path: None,
        ..file(2)
    };
    let running = session(&mut store, later(1));
    store
        .add(running, &[nameless], &[tally(2, 0, 8192, 7)], later(1))
        .unwrap();
    drop(store);
    let at = later(2);
    let contents = |store: &Store| {
        let heat = store.load(at).unwrap();
        (heat, store.sessions().unwrap(), store.settings().unwrap())
    };
    let plain = Connection::open(&path).unwrap();
    back_to_version_4(&plain);
    let old = Store::open(&path).unwrap();
    assert_eq!(tables::user_version(&old.connection).unwrap(), 4);
    let before = contents(&old);
    assert_eq!((before.0.files.len(), before.1.len()), (2, 2));
    drop(old);

    let mut store = Store::create(&path, &StoreOptions::default()).unwrap();
    assert_eq!(
        tables::user_version(&store.connection).unwrap(),
        format::VERSION
    );
    // All as before, but that running sessions have another number.
    let after = contents(&store);
    let numbers = |sessions: &[Session]| sessions.iter().map(|it| it.id).collect::<Vec<_>>();
    assert_eq!(numbers(&after.1), [sampled, SessionId(4)]);
    let renumbered = before.1.into_iter().zip(numbers(&after.1));
    let renumbered: Vec<_> = renumbered.map(|(it, id)| Session { id, ..it }).collect();
    assert_eq!(after, (before.0, renumbered, before.2));
    let of_session: i64 = plain
        .query_row("SELECT session FROM files ORDER BY id DESC", [], |row| {
            row.get(0)
        })
        .unwrap();
    assert_eq!(of_session, 4);
    // An indef of version 4 that has it open still, and asks for the settings first, adds nothing without a checksum.
    let asked = plain.query_row("SELECT epoch_ns FROM settings", [], |row| {
        row.get::<_, i64>(0)
    });
    assert!(asked.is_err());
    // Nor does it end its session, or tell what it sampled.
    for change in [
        "lost = 9, ended_ns = 1, latest_ns = max(latest_ns, 1)",
        "one_in = 2, common_error = 0.5",
    ] {
        let change = format!("UPDATE sessions SET {change} WHERE id = ?1");
        plain.execute(&change, [running.0]).unwrap();
    }
    let id = session(&mut store, later(2));
    store
        .add(id, &[file(1)], &[tally(1, 0, 4096, 1)], later(2))
        .unwrap();
    drop(store);
    let store = Store::create(&path, &StoreOptions::default()).unwrap();
    assert_eq!(contents(&store).1.len(), 3);
}

/// A count that is unknown for some of the timed reads of a range is unknown for all.
#[test]
fn requests_ahead_that_are_not_known_stay_unknown() {
    let (_folder, path) = folder();
    let now = later(0);
    let mut store = Store::create(&path, &never()).unwrap();
    let id = session(&mut store, now);
    let mut unknown = tally(1, 0, 4096, 4);
    unknown.observed.ahead = None;
    let known = tally(1, 4096, 4096, 4);
    let mut untimed = tally(1, 8192, 4096, 4);
    untimed.observed = Observed::default();
    store
        .add(id, &[file(1)], &[unknown, known, untimed], now)
        .unwrap();
    let again = [0, 4096, 8192].map(|start| tally(1, start, 4096, 4));
    store.add(id, &[], &again, now).unwrap();
    drop(store);
    let held = Store::open(&path).unwrap().load(now).unwrap();
    let ahead = |range: &(u32, AccessRange)| (range.1.observed.timed, range.1.observed.ahead);
    let found: Vec<_> = held.ranges.iter().map(ahead).collect();
    assert_eq!(found, [(8, None), (8, Some(24)), (4, Some(12))]);
}

/// Any byte of any range that changes on the disk.
#[test]
fn a_count_that_changed_is_noticed() {
    let (_folder, path) = folder();
    let now = later(0);
    let mut store = Store::create(&path, &never()).unwrap();
    let id = session(&mut store, now);
    let tallies: Vec<_> = (0..2000)
        .map(|i| tally(1, i << 12, 4096, 1000 + i))
        .collect();
    store.add(id, &[file(1)], &tallies, now).unwrap();
    drop(store);
    let whole = fs::read(&path).unwrap();
    // The reads of a range in the middle, as SQLite keeps them: an integer of two bytes.
    let reads = 2000_u16.to_be_bytes();
    let at = (whole.len() / 3..whole.len() - 2)
        .find(|at| whole[*at..*at + 2] == reads)
        .unwrap();
    for bit in 0..16 {
        let mut image = whole.clone();
        image[at + bit / 8] ^= 1 << (bit % 8);
        fs::write(&path, &image).unwrap();
        let error = Store::open(&path).unwrap().load(now).unwrap_err();
        assert!(
            matches!(error.problem, StoreProblem::Damaged(_)),
            "{bit}: {error}"
        );
        // What is added does not make it right.
        let added = Store::create(&path, &never()).and_then(|mut store| {
            let id = store.begin(&SessionInfo::default(), now)?;
            store.add(id, &[file(1)], &tallies, now)
        });
        assert!(added.is_err(), "bit {bit}");
    }
}

/// A file whose numbers are found in a store's bytes.
fn odd_file() -> TracedFile {
    let mut odd = file(1);
    odd.key.dev = 0x5E6F_7A1B;
    odd.key.inode = 0x1234_5678_9ABC;
    odd.fs.uuid = *b"0123456789abcdef";
    odd
}

/// Any bit of what is kept of a file, of a session, and of the store's settings.
#[test]
fn a_file_session_or_setting_that_changed_is_noticed() {
    let (_folder, path) = folder();
    let now = later(0);
    let half_life = Duration::from_nanos(0x1357_9BDF_2468);
    let options = StoreOptions {
        half_life: Some(half_life),
        max_size: Some(Bytes(0x0A1B_2C3D)),
    };
    let mut store = Store::create(&path, &options).unwrap();
    let id = session(&mut store, now);
    let odd = odd_file();
    let of_odd = Tally {
        file: odd.key,
        ..tally(1, 0, 4096, 10)
    };
    store.add(id, &[odd], &[of_odd], now).unwrap();
    store.set_sampling(id, 15.7, 0.3).unwrap();
    store.finish(id, 0x2E4F_6A7B, now).unwrap();
    drop(store);
    // Without what earlier states of rows have left in their pages.
    let plain = Connection::open(&path).unwrap();
    plain.execute_batch("VACUUM").unwrap();
    drop(plain);
    let whole = fs::read(&path).unwrap();
    let read = || {
        let store = Store::open(&path)?;
        store.load(now)?;
        store.sessions()?;
        store.settings()
    };
    assert_eq!(read().unwrap().half_life, half_life);
    let identity_of_inode = 0x1234_5678_9ABC_u64.to_be_bytes();
    let values: [(&str, &[u8]); 10] = [
        ("path", b"/srv/1"),
        ("device", &0x5E6F_7A1B_u32.to_be_bytes()),
        ("UUID", b"0123456789abcdef"),
        ("inode", &identity_of_inode[2..]),
        ("command", b"sqlite3 main.db"),
        ("kernel", b"6.18.0"),
        ("k", &15.7_f64.to_be_bytes()),
        ("lost", &0x2E4F_6A7B_u32.to_be_bytes()),
        ("half-life", &0x1357_9BDF_2468_u64.to_be_bytes()[2..]),
        ("size", &0x0A1B_2C3D_u32.to_be_bytes()),
    ];
    for (name, value) in values {
        let places: Vec<usize> = (0..whole.len() - value.len())
            .filter(|at| whole[*at..].starts_with(value))
            .collect();
        assert!(!places.is_empty(), "{name}");
        let mut unread = 0;
        for (at, bit) in places
            .iter()
            .flat_map(|at| (0..8 * value.len()).map(move |bit| (at, bit)))
        {
            let mut image = whole.clone();
            image[at + bit / 8] ^= 1 << (bit % 8);
            fs::write(&path, &image).unwrap();
            unread += usize::from(read().is_err());
            let added = Store::create(&path, &StoreOptions::default());
            assert!(problem(added).contains("damaged"), "{name}, bit {bit}");
        }
        // But for SQLite's index of files, which is not read for that.
        let in_rows = match name {
            "UUID" | "inode" => places.len() - 1,
            _ => places.len(),
        };
        assert_eq!(unread, in_rows * 8 * value.len(), "{name}");
    }
    // A statement that changes a damaged row makes it no better.
    for change in [
        "UPDATE files SET dev = dev + 1",
        "UPDATE sessions SET reads = reads + 1",
        "UPDATE settings SET max_size = max_size + 1",
    ] {
        fs::write(&path, &whole).unwrap();
        let mut store = Store::create(&path, &StoreOptions::default()).unwrap();
        let plain = Connection::open(&path).unwrap();
        plain.execute_batch(change).unwrap();
        let added = store.add(id, &[odd_file()], &[], now);
        assert!(added.is_err(), "{change}");
    }
}

#[test]
fn another_version_says_what_to_do() {
    let (_folder, path) = folder();
    drop(Store::create(&path, &never()).unwrap());
    let plain = Connection::open(&path).unwrap();
    plain
        .pragma_update(None, "user_version", format::VERSION + 1)
        .unwrap();
    drop(plain);
    for result in [Store::create(&path, &never()), Store::open(&path)] {
        let text = problem(result);
        assert!(
            text.contains("format 6") && text.contains("export"),
            "{text}"
        );
    }
}

#[test]
fn every_kind_of_damage_is_noticed_and_nothing_panics() {
    let (_folder, path) = folder();
    let now = later(0);
    let mut store = Store::create(&path, &never()).unwrap();
    let id = session(&mut store, now);
    let tallies: Vec<_> = (0..5000)
        .map(|i| tally(1 + i % 7, i << 12, 4096, 1))
        .collect();
    let files: Vec<_> = (1..8).map(file).collect();
    store.add(id, &files, &tallies, now).unwrap();
    drop(store);
    let whole = fs::read(&path).unwrap();

    // Tables of the wrong kind, and a trigger that SQLite would run.
    for change in [
        "ALTER TABLE ranges ADD COLUMN more",
        "CREATE TRIGGER t AFTER INSERT ON ranges BEGIN DELETE FROM files; END",
        "DROP TABLE sessions",
        "CREATE VIEW v AS SELECT 1",
    ] {
        let plain = Connection::open(&path).unwrap();
        plain.execute_batch(change).unwrap();
        drop(plain);
        assert!(
            problem(Store::create(&path, &never())).contains("damaged"),
            "{change}"
        );
        fs::write(&path, &whole).unwrap();
    }
    // Impossible values.
    for change in [
        "UPDATE ranges SET reads = -1",
        "UPDATE ranges SET reads = 'many'",
        "UPDATE ranges SET start = -4096 - start",
        "UPDATE ranges SET len = 0",
        "UPDATE files SET uuid = x'00'",
        "DELETE FROM files",
        "DELETE FROM settings",
    ] {
        let plain = Connection::open(&path).unwrap();
        plain.execute_batch(change).unwrap();
        drop(plain);
        let error = Store::open(&path).unwrap().load(now).unwrap_err();
        assert!(
            matches!(error.problem, StoreProblem::Damaged(_)),
            "{change}: {error}"
        );
        fs::write(&path, &whole).unwrap();
    }
    // Cut off, and pages overwritten.
    for length in [100, 1000, 4096, 8192, whole.len() - 4096, whole.len() - 1] {
        fs::write(&path, &whole[..length]).unwrap();
        let loaded = Store::open(&path).and_then(|store| store.load(now));
        let error = loaded.map(drop).expect_err(&format!("cut at {length}"));
        assert!(
            matches!(error.problem, StoreProblem::Damaged(_)),
            "{length}: {error}"
        );
    }
    for page in 1..whole.len() / 4096 {
        fs::write(&path, &whole).unwrap();
        let mut image = fs::OpenOptions::new().write(true).open(&path).unwrap();
        image.seek(SeekFrom::Start(page as u64 * 4096)).unwrap();
        image.write_all(&[0x5A; 4096]).unwrap();
        drop(image);
        // Some pages are only read for adding.
        let loaded = Store::open(&path).and_then(|store| store.load(now));
        let added = Store::create(&path, &never()).and_then(|mut store| {
            let id = store.begin(&SessionInfo::default(), now)?;
            store.add(id, &files, &tallies, now)
        });
        assert!(loaded.is_err() || added.is_err(), "page {page}");
    }
}

#[test]
fn a_locked_store_says_so() {
    let (_folder, path) = folder();
    let mut store = Store::create(&path, &never()).unwrap();
    store
        .connection
        .busy_timeout(Duration::from_millis(50))
        .unwrap();
    let other = Connection::open(&path).unwrap();
    other.execute_batch("BEGIN EXCLUSIVE").unwrap();
    let error = store.begin(&SessionInfo::default(), later(0)).unwrap_err();
    assert!(
        error.may_pass() && error.to_string().contains("locked"),
        "{error}"
    );
    other.execute_batch("ROLLBACK").unwrap();
    session(&mut store, later(0));
}

#[test]
fn a_store_is_made_anew_where_making_it_was_broken_off() {
    let (_folder, path) = folder();
    fs::write(&path, b"").unwrap();
    assert!(!Store::is_store(&path).unwrap());
    drop(Store::create(&path, &never()).unwrap());
    assert!(Store::is_store(&path).unwrap());
    assert_eq!(
        Store::open(&path).unwrap().load(later(0)).unwrap(),
        Heat::default()
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn the_order_of_merging_does_not_matter(
        adds in prop::collection::vec((0u32..40, prop::collection::vec((1u64..4, 0u64..6, 1u64..4, 1u64..1000), 1..20)), 1..8),
        turned in any::<prop::sample::Index>(),
    ) {
        let load = |order: &[(u32, Vec<_>)]| {
            let (_folder, path) = folder();
            let options = StoreOptions { half_life: Some(3 * DAY), max_size: None };
            let mut store = Store::create(&path, &options).unwrap();
            let id = session(&mut store, later(0));
            let files: Vec<_> = (1..4).map(file).collect();
            for (day, tallies) in order {
                let tallies: Vec<_> = tallies
                    .iter()
                    .map(|&(inode, start, len, reads)| tally(inode, start * 4096, len * 4096, reads))
                    .collect();
                store.add(id, &files, &tallies, later(*day)).unwrap();
            }
            held(&store.load(later(40)).unwrap())
        };
        let mut other = adds.clone();
        other.reverse();
        let at = turned.index(other.len());
        other.rotate_left(at);
        let (one, two) = (load(&adds), load(&other));
        for (range, reads) in &one {
            let other = two.get(range).copied().unwrap_or(0);
            prop_assert!(reads.abs_diff(other) <= 1, "{range:?}: {reads} and {other}");
        }
        prop_assert_eq!(one.len(), two.len());
    }
}

#[test]
fn times_of_what_was_moved_are_forgotten_and_reads_are_not() {
    let (_folder, path) = folder();
    let mut store = Store::create(&path, &never()).unwrap();
    let now = later(0);
    let of = session(&mut store, now);
    let tallies = [
        tally(1, 0, 4096, 8),
        tally(1, 8192, 4096, 8),
        tally(2, 0, 4096, 8),
    ];
    store.add(of, &[file(1), file(2)], &tallies, now).unwrap();
    let moved = |known: &TracedFile| match known.key.inode {
        1 => vec![FileRange::new(4096, 6000)],
        _ => Vec::new(),
    };
    store.forget_times(moved).unwrap();
    let heat = store.load(now).unwrap();
    let timed: Vec<_> = { heat.ranges.iter() }
        .map(|(_, range)| (range.reads, range.observed.requests, range.observed.timed))
        .collect();
    assert_eq!(timed, [(8, 32, 8), (8, 32, 0), (8, 32, 8)]);
    // What is added later are times of the new place; checksums hold.
    store.add(of, &[], &[tally(1, 8192, 4096, 1)], now).unwrap();
    drop(store);
    let mut store = Store::create(&path, &never()).unwrap();
    let heat = store.load(now).unwrap();
    let (_, range) = heat.ranges[1];
    assert_eq!(
        (range.reads, range.observed.timed, range.observed.time.0),
        (9, 1, 100)
    );
    assert_eq!(range.observed.ahead, Some(3));
    store.forget_times(|_| Vec::new()).unwrap();
}

#[test]
fn what_faded_below_one_access_is_a_fraction_where_parts_count() {
    let range = FileRange::new(0, 4096);
    let counts = [0.25, 0.0, 0.5, 0.25, 100.0, 0.0];
    let whole = counted(range, counts).unwrap();
    assert_eq!((whole.reads, whole.observed.requests), (1, 2));
    let parts = counted_in_parts(range, counts, 1024).unwrap();
    assert_eq!((parts.reads, parts.observed.requests), (256, 512));
    // Means hold: times are those of reads that were timed.
    assert_eq!((parts.observed.timed, parts.observed.time.0), (1, 400));
    let many = counted_in_parts(range, [3.0, 1.0, 6.0, 3.0, 90.0, 0.0], 1024).unwrap();
    assert_eq!(
        (many.reads, many.writes, many.observed.timed),
        (3072, 1024, 3)
    );
    assert_eq!(counted_in_parts(range, [0.0; 6], 1024), None);
}
