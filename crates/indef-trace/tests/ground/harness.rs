//! A file system, a collector that watches it, and its results in a form that can be compared.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::Duration,
};

use indef_trace::{
    FileKey, TracedFile,
    collect::{Access, Collector, Drained, Filter, Layer, Sampled, Spent, TraceOptions},
};
pub(crate) use scratch_fs::undisturbed;
use scratch_fs::{FragmentOptions, ScratchFs, Segment, Shape, fragment, require};
use units::Bytes;
use workloads::Numbers;

pub(crate) const KINDS: [&str; 3] = ["ext4", "xfs", "btrfs"];
pub(crate) const KIB: u64 = 1024;
pub(crate) const MIB: u64 = 1024 * KIB;
pub(crate) const BLOCK: u64 = 4 * KIB;

/// A mounted file system of this kind; `None` is a reported skip.
pub(crate) fn scratch(kind: &str) -> Option<ScratchFs> {
    require(ScratchFs::builder(kind, Bytes::mib(512)).build())
}

/// A file in one piece of bytes that do not compress, written back, and not in the cache.
pub(crate) fn plain_file(path: &Path, size: u64) -> String {
    pieces_file(path, size, size)
}

/// A file system with one such file, and its name.
pub(crate) fn scratch_file(kind: &str, size: u64) -> Option<(ScratchFs, PathBuf, String)> {
    let fs = scratch(kind)?;
    let file = fs.path().join("file");
    let name = plain_file(&file, size);
    Some((fs, file, name))
}

/// A plain file, in pieces.
pub(crate) fn pieces_file(path: &Path, size: u64, piece: u64) -> String {
    let options = FragmentOptions {
        size: Bytes(size),
        piece: Bytes(piece),
        seed: size ^ piece,
    };
    fragment(path, options).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    forget(path);
    name(path)
}

/// Data, a hole, data: each so long.
pub(crate) fn holey_file(path: &Path, part: u64) -> String {
    let data = Segment::Data {
        len: Bytes(part),
        piece: Bytes(part),
    };
    Shape::new(5)
        .with(data)
        .with(Segment::Hole(Bytes(part)))
        .with(data)
        .make(path)
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    forget(path);
    name(path)
}

/// Write a file back, and drop its pages.
pub(crate) fn forget(path: &Path) {
    let file = fs::File::open(path).unwrap();
    file.sync_all().unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
}

/// Forget everything of a file system, its metadata, too. Whoever looks at all mounts of the machine
/// may keep it busy for a while.
pub(crate) fn forget_all(fs: &mut ScratchFs) {
    for _ in 0..10 {
        if fs.remount().is_ok() {
            return;
        }
    }
    panic!("{} stays busy", fs.path().display());
}

pub(crate) fn name(path: &Path) -> String {
    path.to_str().expect("a plain temporary path").to_owned()
}

/// All accesses on this mount.
pub(crate) fn options(layer: Layer, mount: &Path) -> TraceOptions {
    TraceOptions {
        layer,
        filter: Filter {
            paths: vec![mount.to_owned()],
            ..Filter::default()
        },
        readahead: Some(Bytes(0)),
        ..TraceOptions::default()
    }
}

/// The accesses to a range: reads, writes.
pub(crate) type Counts = (u64, u64);
/// By first byte and length.
pub(crate) type Ranges = BTreeMap<(u64, u64), Counts>;

/// All that a collector handed out.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) files: Vec<TracedFile>,
    pub(crate) accesses: Vec<Access>,
    pub(crate) lost: u64,
    pub(crate) sampled: Sampled,
    pub(crate) untold: u64,
    pub(crate) spent: Spent,
    ranges: BTreeMap<FileKey, Ranges>,
    requests: BTreeMap<FileKey, BTreeMap<(u64, u64), u64>>,
    timed: u64,
    /// Timed reads of which the requests ahead are known, and these.
    ahead: (u64, u64),
}

impl Seen {
    pub(crate) fn add(&mut self, drained: Drained) {
        self.files.extend(drained.files);
        self.accesses.extend(drained.accesses);
        self.lost += drained.lost;
        self.sampled.add(drained.sampled);
        self.untold += drained.untold;
        self.spent.add(drained.spent);
        for tally in drained.tallies {
            let place = (tally.range.start.0, tally.range.len.0);
            let ranges = self.ranges.entry(tally.file).or_default();
            let counts = ranges.entry(place).or_default();
            counts.0 += tally.reads;
            counts.1 += tally.writes;
            let requests = self.requests.entry(tally.file).or_default();
            *requests.entry(place).or_default() += tally.observed.requests;
            self.timed += tally.observed.timed;
            if let Some(ahead) = tally.observed.ahead {
                self.ahead.0 += tally.observed.timed;
                self.ahead.1 += ahead;
            }
        }
        for ranges in self.ranges.values_mut() {
            // Time may be handed out after the count; alone it is no access.
            ranges.retain(|_, counts| *counts != (0, 0));
        }
        self.ranges.retain(|_, ranges| !ranges.is_empty());
    }

    /// The key by which a file was seen.
    #[track_caller]
    pub(crate) fn key_of(&self, path: &Path) -> Option<FileKey> {
        let status = fs::metadata(path).unwrap();
        let mut keys = self.ranges.keys();
        keys.find(|key| (key.dev, key.inode) == (status.dev(), status.ino()))
            .copied()
    }

    /// The ranges that were seen of a file.
    #[track_caller]
    pub(crate) fn of(&self, path: impl AsRef<Path>) -> Ranges {
        let key = self.key_of(path.as_ref());
        key.map_or_else(Ranges::new, |key| self.ranges[&key].clone())
    }

    /// Requests to the device, by range.
    #[track_caller]
    pub(crate) fn requests_of(&self, path: impl AsRef<Path>) -> BTreeMap<(u64, u64), u64> {
        let key = self.key_of(path.as_ref());
        key.map_or_else(BTreeMap::new, |key| self.requests[&key].clone())
    }

    /// Reads of a file, of all ranges together.
    pub(crate) fn reads_of(&self, path: impl AsRef<Path>) -> u64 {
        self.of(path).values().map(|counts| counts.0).sum()
    }

    /// Every file of which an access was seen.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&FileKey, &Ranges)> {
        self.ranges.iter()
    }

    /// The number of files of which an access was seen.
    pub(crate) fn touched(&self) -> usize {
        self.ranges.len()
    }

    pub(crate) fn timed(&self) -> u64 {
        self.timed
    }

    /// The mean number of requests that timed reads found in flight; `None` if it is not known of all.
    pub(crate) fn mean_ahead(&self) -> Option<f64> {
        let (known, ahead) = self.ahead;
        (known > 0 && known == self.timed).then(|| ahead as f64 / known as f64)
    }

    /// By path, as the collector found it.
    pub(crate) fn paths(&self) -> Vec<PathBuf> {
        let mut paths: Vec<_> = self.files.iter().filter_map(|f| f.path.clone()).collect();
        paths.sort();
        paths
    }
}

/// A collector at work.
pub(crate) struct Watch {
    collector: Collector,
    seen: Seen,
}

impl Watch {
    #[track_caller]
    pub(crate) fn start(options: &TraceOptions) -> Self {
        let collector = Collector::start(options).unwrap_or_else(|error| panic!("{error}"));
        Self {
            collector,
            seen: Seen::default(),
        }
    }

    /// Layers in which nothing is seen.
    pub(crate) fn hidden_layers(&self) -> &[PathBuf] {
        self.collector.hidden_layers()
    }

    /// Count the accesses of this process, too.
    pub(crate) fn follow(&self, pid: u32) {
        self.collector.follow(pid).unwrap();
    }

    /// See what it costs, as a long trace does many times a second.
    pub(crate) fn keep_up(&mut self) {
        self.collector.keep_up();
    }

    /// Take the counts in the middle of it, as a long trace does.
    pub(crate) fn drain(&mut self) {
        let drained = self.collector.drain().unwrap();
        self.seen.add(drained);
    }

    pub(crate) fn finish(mut self) -> Seen {
        // A request that completes in an interrupt may be a moment late.
        thread::sleep(Duration::from_millis(20));
        let drained = self.collector.finish().unwrap();
        self.seen.add(drained);
        self.seen
    }
}

/// Ranges that follow one another, each read once.
pub(crate) fn reads_at(offsets: impl IntoIterator<Item = u64>, len: u64) -> Ranges {
    let mut ranges = Ranges::new();
    for offset in offsets {
        let start = offset / BLOCK * BLOCK;
        let end = (offset + len).next_multiple_of(BLOCK);
        ranges.entry((start, end - start)).or_default().0 += 1;
    }
    ranges
}

/// The same, written.
pub(crate) fn writes_at(offsets: impl IntoIterator<Item = u64>, len: u64) -> Ranges {
    let reads = reads_at(offsets, len);
    reads.into_iter().map(|(at, (n, _))| (at, (0, n))).collect()
}

/// Check that the ranges are read once each, touch and cover exactly `from` up to `to`.
#[track_caller]
pub(crate) fn assert_once(ranges: &Ranges, from: u64, to: u64) {
    let mut at = from;
    for ((start, len), counts) in ranges {
        assert_eq!((*start, *counts), (at, (1, 0)), "{ranges:?}");
        at += len;
    }
    assert_eq!(at, to, "{ranges:?}");
}

/// All bytes that were told as read of a file, each as often as it was.
pub(crate) fn bytes_read(ranges: &Ranges) -> u64 {
    let bytes = ranges.iter().map(|((_, len), counts)| len * counts.0);
    bytes.sum()
}

/// Bytes that the device has read until now. It counts a request when it is done, and nobody waits for
/// read-ahead.
#[track_caller]
pub(crate) fn device_read(fs: &ScratchFs) -> u64 {
    let now = || fs.device_bytes().unwrap().read.0;
    let mut read = now();
    loop {
        thread::sleep(Duration::from_millis(30));
        let again = now();
        if again == read {
            return read;
        }
        read = again;
    }
}

/// Run a command; its standard output.
#[track_caller]
pub(crate) fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program)
        .args(arguments)
        .env("LC_ALL", "C")
        .output()
        .unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(
        output.status.success(),
        "{program} {arguments:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A pseudo-random order that is always the same: `count` multiples of `step` below `size`, none
/// twice.
pub(crate) fn scattered(size: u64, step: u64, count: usize) -> Vec<u64> {
    let slots = size / step;
    let mut offsets: Vec<u64> = (0..slots).map(|n| n * step).collect();
    Numbers::new(1).shuffle(&mut offsets);
    offsets.truncate(count);
    offsets
}

/// All parts together.
pub(crate) fn joined(parts: impl IntoIterator<Item = Ranges>) -> Ranges {
    let mut all = Ranges::new();
    for (place, counts) in parts.into_iter().flatten() {
        let sum = all.entry(place).or_insert((0, 0));
        sum.0 += counts.0;
        sum.1 += counts.1;
    }
    all
}
