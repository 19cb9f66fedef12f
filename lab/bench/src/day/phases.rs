//! What is done with the files in a day: reads of a database in the morning, appends that fragment at noon, and sequential
//! reads of what was appended in the evening. Each hour has as many operations as any other day's, at a fixed pace, so that two
//! days end with the same contents.

use std::{
    fs::{File, OpenOptions},
    io::Write,
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
    thread::sleep,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use rustix::fs::OFlags;
use scratch_fs::{AlignedBuffer, Segment, Shape, content};
use units::{Bytes, FileOffset};
use workloads::{Numbers, zipf::Zipf};

use crate::measure;

/// The database, its fragments, and a read of it.
pub(super) const DATABASE: Bytes = Bytes::mib(64);
const PIECE: Bytes = Bytes::kib(4);
const PAGE: Bytes = Bytes::kib(16);
/// Reads of the database in a second, in the morning and at other times.
const PAGES_PER_S: f64 = 100.0;
const FEW_PAGES_PER_S: f64 = 10.0;
/// By Zipf's law, as YCSB has it ("zipfian", 0.99).
const SKEW: f64 = 0.99;
/// Files that grow, and appends in a second, each durable: of one to four blocks.
const LOGS: u32 = 8;
const APPENDS_PER_S: f64 = 20.0;
const BLOCK: u64 = 4 << 10;
/// Sequential reads of what was appended, in a second.
const SCAN: Bytes = Bytes::kib(128);
const SCANS_PER_S: f64 = 32.0;

/// A third of a day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Morning,
    Noon,
    Evening,
}

impl Phase {
    pub(super) const ALL: [Self; 3] = [Self::Morning, Self::Noon, Self::Evening];
    pub(super) const HOURS: u32 = 8;

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Morning => "morning",
            Self::Noon => "noon",
            Self::Evening => "evening",
        }
    }

    /// What is done: pages of the database, appends and sequential reads in a second.
    const fn rates(self) -> [f64; 3] {
        match self {
            Self::Morning => [PAGES_PER_S, 0.0, 0.0],
            Self::Noon => [FEW_PAGES_PER_S, APPENDS_PER_S, 0.0],
            Self::Evening => [FEW_PAGES_PER_S, 0.0, SCANS_PER_S],
        }
    }
}

/// What was done in some time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Tally {
    pub(super) reads: u64,
    pub(super) read_time: Duration,
    pub(super) appended: u64,
    /// How long the hour took more than it should.
    pub(super) late: Duration,
}

impl std::ops::AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.reads += other.reads;
        self.read_time += other.read_time;
        self.appended += other.appended;
        self.late += other.late;
    }
}

/// The files, and who uses them.
pub(super) struct Workload {
    folder: PathBuf,
    database: File,
    /// Pages in the order of their reads, again and again.
    pages: Vec<u32>,
    next_page: usize,
    numbers: Numbers,
    next_log: u32,
    sizes: Vec<u64>,
    /// The log that is read, and where.
    scan: (u32, u64),
    buffer: AlignedBuffer,
}

impl Workload {
    /// Make the files below `folder`, with a database of this size.
    pub(super) fn begin(folder: &Path, database: Bytes) -> Result<Self> {
        let path = folder.join("database");
        let shape = Shape::new(1).with(Segment::Data {
            len: database,
            piece: PIECE,
        });
        let made = shape.roughly().make(&path);
        made.with_context(|| format!("cannot make {}", path.display()))?;
        let zipf = Zipf {
            skew: SKEW,
            ranges: database.get() / PAGE.get(),
            reads: 1 << 20,
            seed: 1,
        };
        Ok(Self {
            folder: folder.to_owned(),
            database: open_direct(&path)?,
            pages: zipf.sequence(),
            next_page: 0,
            numbers: Numbers::new(2),
            next_log: 0,
            sizes: vec![0; LOGS as usize],
            scan: (0, 0),
            buffer: AlignedBuffer::new(SCAN.get() as usize),
        })
    }

    /// An hour, which takes so long.
    pub(super) fn hour(&mut self, phase: Phase, hour: Duration) -> Result<Tally> {
        let began = Instant::now();
        let mut tally = Tally::default();
        for (at, operation) in schedule(phase, hour) {
            sleep((began + at).saturating_duration_since(Instant::now()));
            measure::ensure_not_stopped()?;
            match operation {
                Operation::Page => self.page(&mut tally)?,
                Operation::Append => self.append(&mut tally)?,
                Operation::Scan => self.scan(&mut tally)?,
            }
        }
        tally.late = began.elapsed().saturating_sub(hour);
        sleep((began + hour).saturating_duration_since(Instant::now()));
        Ok(tally)
    }

    fn page(&mut self, tally: &mut Tally) -> Result<()> {
        let page = self.pages[self.next_page % self.pages.len()];
        self.next_page += 1;
        let buffer = &mut self.buffer.slice()[..PAGE.get() as usize];
        let began = Instant::now();
        self.database
            .read_exact_at(buffer, u64::from(page) * PAGE.get())?;
        tally.read_time += began.elapsed();
        tally.reads += 1;
        Ok(())
    }

    fn log(&self, log: u32) -> PathBuf {
        self.folder.join(format!("log{log}"))
    }

    /// As who opens a log for each entry: what the file system keeps for a file that grows is given up each time.
    fn append(&mut self, tally: &mut Tally) -> Result<()> {
        let log = self.next_log;
        self.next_log = (log + 1) % LOGS;
        let bytes = BLOCK * (1 + self.numbers.below(4_u64));
        let path = self.log(log);
        let size = &mut self.sizes[log as usize];
        let mut entry = vec![0; bytes as usize];
        content(&mut entry, u64::from(log), FileOffset(*size));
        let file = OpenOptions::new().create(true).append(true).open(&path);
        let mut file = file.with_context(|| format!("cannot open {}", path.display()))?;
        file.write_all(&entry)?;
        file.sync_data()?;
        *size += bytes;
        tally.appended += bytes;
        Ok(())
    }

    fn scan(&mut self, tally: &mut Tally) -> Result<()> {
        ensure!(
            self.sizes.iter().all(|size| *size > 0),
            "nothing was appended"
        );
        let (log, at) = self.scan;
        let file = open_direct(&self.log(log))?;
        let began = Instant::now();
        let read = file.read_at(self.buffer.slice(), at)? as u64;
        tally.read_time += began.elapsed();
        tally.reads += 1;
        self.scan = match at + read < self.sizes[log as usize] {
            true => (log, at + read),
            false => ((log + 1) % LOGS, 0),
        };
        Ok(())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Page,
    Append,
    Scan,
}

/// The operations of an hour, with the time from its beginning at which each is due.
fn schedule(phase: Phase, hour: Duration) -> Vec<(Duration, Operation)> {
    let kinds = [Operation::Page, Operation::Append, Operation::Scan];
    let mut all: Vec<(Duration, Operation)> = (kinds.into_iter().zip(phase.rates()))
        .flat_map(|(operation, rate)| {
            let many = (rate * hour.as_secs_f64()) as u64;
            let due = move |nth| hour.mul_f64(nth as f64 / many as f64);
            (0..many).map(move |nth| (due(nth), operation))
        })
        .collect();
    all.sort_by_key(|(at, _)| *at);
    all
}

fn open_direct(path: &Path) -> Result<File> {
    let mut options = OpenOptions::new();
    let options = options
        .read(true)
        .custom_flags(OFlags::DIRECT.bits() as i32);
    let file = options.open(path);
    file.with_context(|| format!("cannot open {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_hour_has_its_operations_at_an_even_pace() {
        let hour = Duration::from_secs(10);
        for phase in Phase::ALL {
            let all = schedule(phase, hour);
            let wanted: f64 = phase.rates().iter().sum::<f64>() * 10.0;
            assert_eq!(all.len() as f64, wanted, "{phase:?}");
            assert!(all.is_sorted_by_key(|(at, _)| *at));
            assert!(all.iter().all(|(at, _)| *at < hour));
            let first_half = all.iter().filter(|(at, _)| *at < hour / 2).count();
            assert_eq!(first_half * 2, all.len(), "{phase:?}");
        }
    }

    /// Two days that did the same end with the same contents, and what was appended is all read in the evening.
    #[test]
    fn a_small_day_is_the_same_each_time() {
        let day = || {
            // Where direct reads are possible, which tmpfs refused before Linux 6.6.
            let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
            let mut workload = Workload::begin(folder.path(), Bytes::mib(1)).unwrap();
            let mut tally = Tally::default();
            for phase in [Phase::Noon, Phase::Evening] {
                tally += workload.hour(phase, Duration::from_millis(500)).unwrap();
            }
            assert_eq!(tally.appended, workload.sizes.iter().sum::<u64>());
            // 5 pages in each, 10 appends, 16 scans of logs that are one or two entries long.
            assert_eq!(tally.reads, 26);
            assert_eq!(workload.scan.0, 0);
            measure::hash(&measure::files_below(folder.path()).unwrap()).unwrap()
        };
        assert_eq!(day(), day());
    }
}
