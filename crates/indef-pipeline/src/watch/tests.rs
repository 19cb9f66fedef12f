use std::{
    collections::VecDeque,
    fs, io,
    os::unix::fs::MetadataExt,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use indef_core::access::Observed;
use indef_engine::{Cancel, run::RunOptions};
use indef_trace::{
    FileKey, FsId, Tally, TracedFile,
    collect::{Sampled, Windowed},
};
use scratch_fs::{FragmentOptions, ScratchFs, fragment, require};
use units::{Bytes, FileRange, Nanos};

use super::{
    Watch,
    feed::{Batch, Feed, ProfileFeed},
    ranges::{MAX_RANGES, RangeKey, Ranges},
    row::Lost,
};
use crate::{decay::Decay, error::Error};

const IO: u64 = 131_072;

fn key(inode: u64) -> FileKey {
    FileKey {
        dev: 0x801,
        inode,
        generation: 1,
        subvolume: 0,
    }
}

fn tally(file: FileKey, n: u64, reads: u64) -> Tally {
    Tally {
        file,
        range: FileRange::new(n * IO, IO),
        reads,
        writes: 0,
        observed: Observed::default(),
    }
}

fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// A feed written beforehand; when it is used up it fails, or has no more counts.
struct Script {
    batches: VecDeque<Batch>,
    live: bool,
    then_fail: bool,
    /// How often it was looked after.
    kept_up: Arc<AtomicU32>,
}

impl Feed for Script {
    fn drain(&mut self) -> Result<Batch, Error> {
        match self.batches.pop_front() {
            Some(batch) => Ok(batch),
            None if self.then_fail => Err(Error::Open {
                path: "script".into(),
                source: io::Error::other("the script is over"),
            }),
            None => Ok(Batch::default()),
        }
    }

    fn keep_up(&mut self) -> bool {
        self.kept_up.fetch_add(1, Ordering::Relaxed);
        false
    }

    fn is_live(&self) -> bool {
        self.live
    }
}

fn live(batches: impl IntoIterator<Item = Batch>) -> Box<Script> {
    Box::new(Script {
        batches: batches.into_iter().collect(),
        live: true,
        then_fail: false,
        kept_up: Arc::default(),
    })
}

/// Between two snapshots, the feed is looked after some twenty times a second.
#[test]
fn the_feed_is_looked_after_within_an_interval() {
    let feed = live([]);
    let kept_up = Arc::clone(&feed.kept_up);
    let watch = Watch::new(feed, Vec::new(), &RunOptions::default());
    let (asking, requests) = mpsc::channel();
    let (snapshots, shown) = mpsc::sync_channel(2);
    let interval = Duration::from_millis(500);
    let watching =
        thread::spawn(move || watch.run(interval, &requests, &snapshots, &Cancel::new()));
    shown.recv().unwrap();
    let before = kept_up.load(Ordering::Relaxed);
    shown.recv().unwrap();
    let times = kept_up.load(Ordering::Relaxed) - before;
    drop(asking);
    watching.join().unwrap().unwrap();
    // Ten, on a machine that is not too busy.
    assert!((4..=11).contains(&times), "{times}");
}

#[test]
fn snapshots_that_nobody_takes_do_not_add_up() {
    let feed = live([]);
    let kept_up = Arc::clone(&feed.kept_up);
    let watch = Watch::new(feed, Vec::new(), &RunOptions::default());
    let (asking, requests) = mpsc::channel();
    let (snapshots, shown) = mpsc::sync_channel(2);
    let interval = Duration::from_millis(1);
    let watching =
        thread::spawn(move || watch.run(interval, &requests, &snapshots, &Cancel::new()));
    while kept_up.load(Ordering::Relaxed) < 10 {
        thread::sleep(interval);
    }
    drop(asking);
    watching.join().unwrap().unwrap();
    assert_eq!(shown.try_iter().count(), 2);
}

#[test]
fn memory_is_bounded_and_the_hottest_ranges_stay() {
    for decay in [Decay::NONE, Decay::half_life(seconds(10))] {
        let mut ranges = Ranges::new(decay);
        ranges.add(Vec::new(), &[tally(key(1), 0, 1000)], seconds(1));
        for round in 0..4 {
            let many: Vec<_> = (0..MAX_RANGES as u64 / 2)
                .map(|n| tally(key(2 + round), n, 1))
                .collect();
            ranges.add(Vec::new(), &many, seconds(2));
            assert!(ranges.len() <= MAX_RANGES, "{}", ranges.len());
        }
        assert!(ranges.len() >= MAX_RANGES / 2);
        let first = ranges.to_look_at(seconds(0), 2);
        assert_eq!((first.len(), first[0].file), (2, key(1)));
        assert_eq!(ranges.to_look_at(seconds(0), usize::MAX)[..2], first);
    }
}

#[test]
fn what_is_no_longer_read_goes_and_writes_do_not_count() {
    let mut ranges = Ranges::new(Decay::half_life(seconds(10)));
    let written = Tally {
        writes: 5,
        ..tally(key(1), 0, 0)
    };
    ranges.add(Vec::new(), &[written, tally(key(1), 1, 1)], seconds(1));
    assert_eq!(ranges.len(), 1);
    ranges.add(Vec::new(), &[], seconds(30));
    assert_eq!(ranges.len(), 1);
    ranges.add(Vec::new(), &[], seconds(90));
    assert_eq!(ranges.len(), 0);
}

#[test]
fn files_that_cannot_be_looked_at_are_counted_and_the_feed_may_fail() {
    let gone = TracedFile {
        key: key(1),
        fs: FsId::default(),
        path: Some("/no/such/file".into()),
    };
    let batch = Batch {
        tallies: vec![tally(key(1), 0, 7), tally(key(2), 0, 7)],
        files: vec![gone],
        lost: 3,
        ..Batch::default()
    };
    let mut script = live([batch]);
    script.then_fail = true;
    let mut watch = Watch::new(script, Vec::new(), &RunOptions::default());
    watch.drain(seconds(1)).unwrap();
    let before = watch.snapshot(seconds(1), None);
    assert_eq!((before.waiting, before.out_of_reach), (2, 0));
    watch.survey(seconds(1), None, &Cancel::new());
    let after = watch.snapshot(seconds(1), None);
    assert_eq!((after.waiting, after.out_of_reach), (0, 2));
    assert_eq!((after.rows.len(), after.lost), (0, 3));
    assert!(watch.drain(seconds(2)).is_err());
}

/// Two windows in 13 s, which tell of 1,000 reads in each second: the rate is that, whenever they come.
#[test]
fn windows_do_not_make_rates_jump() {
    let second = |second: u64| {
        let is_window = [5, 9].contains(&(second % 13));
        Batch {
            tallies: is_window
                .then(|| tally(key(1), 0, 6500))
                .into_iter()
                .collect(),
            windows: Some(Windowed {
                windows: is_window.into(),
                time: Duration::from_millis(if is_window { 6500 } else { 0 }),
            }),
            // One in 130.
            sampled: Sampled {
                counted: if is_window { 6500 } else { 0 },
                variance: if is_window { 129 * 6500 } else { 0 },
                common: 0,
            },
            ..Batch::default()
        }
    };
    let script = live((1..=120).map(second));
    let mut watch = Watch::new(script, Vec::new(), &RunOptions::default());
    for second in 1..=120 {
        watch.drain(seconds(second)).unwrap();
        let shown = watch.snapshot(seconds(second), None);
        // Counted at the end of each second, rates come out some per cent too high.
        let is_right = (950.0..1100.0).contains(&shown.reads);
        assert!(second < 40 || is_right, "{} at {second} s", shown.reads);
        // Two windows with 50 chosen reads each.
        let error = shown.error.unwrap().relative(shown.reads);
        assert!(second < 40 || (error - 0.1).abs() < 0.01, "{error}");
    }
}

/// A fragmented file on a file system of its own, as a collector would name it.
fn aged(kind: &str) -> Option<(ScratchFs, TracedFile)> {
    let scratch = require(ScratchFs::builder(kind, Bytes::mib(512)).build())?;
    let path = scratch.path().join("file");
    let options = FragmentOptions {
        size: Bytes::mib(2),
        piece: Bytes::kib(16),
        seed: 7,
    };
    fragment(&path, options).unwrap();
    scratch.sync().unwrap();
    let status = fs::metadata(&path).unwrap();
    let file = TracedFile {
        key: FileKey {
            dev: status.dev(),
            inode: status.ino(),
            generation: 0,
            subvolume: 0,
        },
        fs: FsId::default(),
        path: Some(path),
    };
    Some((scratch, file))
}

#[test]
fn loop_time_lost_is_that_of_the_reads_or_estimated_from_others() {
    let Some((_scratch, file)) = aged("ext4") else {
        return;
    };
    // Eight fragments in each range. Timed reads of 800 µs: 700 of them are lost.
    let timed = |n, reads| Tally {
        observed: Observed {
            requests: reads * 8,
            timed: reads,
            time: Nanos(reads * 800_000),
            ahead: None,
        },
        ..tally(file.key, n, reads)
    };
    let second = |first| Batch {
        tallies: vec![timed(0, 100), tally(file.key, 1, 10)],
        files: if first {
            vec![file.clone()]
        } else {
            Vec::new()
        },
        ..Batch::default()
    };
    let script = live((0..30).map(|n| second(n == 0)));
    let mut watch = Watch::new(script, Vec::new(), &RunOptions::default());
    for n in 1..=30 {
        watch.drain(seconds(n)).unwrap();
    }
    watch.survey(seconds(30), None, &Cancel::new());
    let selected = RangeKey {
        file: file.key,
        range: FileRange::new(0, IO),
    };
    let shown = watch.snapshot(seconds(30), Some(selected));
    assert!(shown.live && shown.timed);
    assert_eq!((shown.ranges, shown.fragmented), (2, 2));
    let [hot, other] = &shown.rows[..] else {
        panic!("{shown:?}")
    };
    assert_eq!(
        (hot.dolf, hot.extra, hot.requests_per_read),
        (8, 7, Some(8.0))
    );
    assert_eq!((hot.mean_ns, other.mean_ns), (Some(800_000.0), None));
    // Counted at the end of each second, rates come out some per cent too high.
    let near = |value: f64, expected: f64| (value / expected - 1.0).abs() < 0.05;
    assert!(
        near(hot.reads, 100.0) && near(other.reads, 10.0),
        "{shown:?}"
    );
    let (Lost::Timed(lost), Lost::Estimated(estimated)) = (hot.lost, other.lost) else {
        panic!("{shown:?}")
    };
    assert!(near(lost, 100.0 * 700_000.0), "{lost}");
    assert!(near(estimated, 10.0 * 7.0 * 100_000.0), "{estimated}");
    let Some((key, Some(extents))) = &shown.details else {
        panic!("{shown:?}")
    };
    assert_eq!((*key, extents.len()), (selected, 8));
}

#[test]
fn of_a_large_store_the_hottest_ranges_are_shown() {
    use indef_trace::store::{SessionInfo, Store, StoreOptions};
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let now = std::time::SystemTime::now();
    let mut store = Store::create(&path, &StoreOptions::default()).unwrap();
    let session = store.begin(&SessionInfo::default(), now).unwrap();
    let many = MAX_RANGES as u64 * 4 + 100;
    let files = [1, 2].map(|inode| TracedFile {
        key: key(inode),
        fs: FsId::default(),
        path: Some(format!("/file{inode}").into()),
    });
    let tallies: Vec<_> = (0..many)
        .map(|n| tally(key(1), n, 2 + n % 7))
        .chain([tally(key(2), 0, 1000)])
        .collect();
    store.add(session, &files, &tallies, now).unwrap();
    store.finish(session, 0, now).unwrap();
    let mut feed = ProfileFeed::load(&path, None, &()).unwrap();
    let batch = feed.drain().unwrap();
    assert_eq!(batch.tallies.len(), MAX_RANGES);
    assert_eq!(batch.files.len(), 2);
    assert!(batch.tallies.iter().any(|tally| tally.reads == 1000));
    assert!(batch.tallies.iter().all(|tally| tally.reads >= 7));
    assert!(feed.drain().unwrap().tallies.is_empty());
}
