//! fio as two jobs: the load, on a file of its own in one piece, and a slow reader of the aged file, whose reads
//! `indef watch` finds.

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, Result};
use fio::Report;
use tempfile::TempDir;
use units::Bytes;

/// Bytes of the file of the load.
pub(super) const SIZE: Bytes = Bytes::mib(256);
/// Reads of the aged file in a second, each of [`PIECE`].
const AGED_IOPS: u32 = 40;
const PIECE: Bytes = Bytes::kib(128);
/// Percent of the load that reads.
const READS: f64 = 70.0;

/// How much of what the device can carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Load {
    /// As much as it can.
    Full,
    /// Half of that.
    Half,
    /// 2 % of that.
    Light,
}

impl Load {
    pub(super) const ALL: [Self; 3] = [Self::Full, Self::Half, Self::Light];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Half => "half",
            Self::Light => "light",
        }
    }

    /// The part of the rate of a full load.
    pub(super) const fn part(self) -> Option<f64> {
        match self {
            Self::Full => None,
            Self::Half => Some(0.5),
            Self::Light => Some(0.02),
        }
    }
}

/// Latencies of reads or writes, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Latency {
    pub(super) p50: f64,
    pub(super) p99: f64,
}

/// What fio reports of the load.
#[derive(Clone, Debug)]
pub(super) struct Measured {
    pub(super) reads: Latency,
    pub(super) writes: Latency,
    /// Reads and writes in a second.
    pub(super) iops: f64,
    /// Of the aged file's reader.
    pub(super) aged: Latency,
    /// Each read of the load: when it ended, in milliseconds since 1970, and its latency in nanoseconds.
    pub(super) each: Vec<(u64, u64)>,
}

impl Measured {
    /// The 99th percentile of the reads that ended in one of these times, and how many there were.
    pub(super) fn p99_within(&self, times: &[(SystemTime, SystemTime)]) -> Option<(f64, usize)> {
        let ms = |time: &SystemTime| {
            let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
            u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
        };
        let within = |at: u64| {
            times
                .iter()
                .any(|(from, to)| (ms(from)..=ms(to)).contains(&at))
        };
        let of = self.each.iter().filter(|(at, _)| within(*at));
        let mut latencies: Vec<u64> = of.map(|(_, latency)| *latency).collect();
        latencies.sort_unstable();
        let nth = (latencies.len() * 99).div_ceil(100).checked_sub(1)?;
        Some((latencies[nth] as f64, latencies.len()))
    }
}

/// fio at work; ended when it is dropped.
pub(super) struct Fio {
    fio: fio::Fio,
    log: TempDir,
}

impl Fio {
    /// Begin; `iops`: so many reads and writes a second, at most.
    pub(super) fn start(
        load: &Path,
        aged: &Path,
        iops: Option<f64>,
        time: Duration,
    ) -> Result<Self> {
        let log = tempfile::tempdir()?;
        let arguments = arguments(load, aged, iops, time, &log.path().join("load"));
        Ok(Self {
            fio: fio::Fio::start(arguments)?,
            log,
        })
    }

    /// Wait for its end.
    pub(super) fn finish(self) -> Result<Measured> {
        let report = self.fio.finish()?;
        let log: PathBuf = self.log.path().join("load_clat.1.log");
        let each = fs::read_to_string(&log);
        let each = each.with_context(|| format!("fio has kept no {}", log.display()))?;
        measured(&report, &each)
    }
}

fn arguments(
    load: &Path,
    aged: &Path,
    iops: Option<f64>,
    time: Duration,
    log: &Path,
) -> Vec<OsString> {
    let with = |name: &str, path: &Path| {
        let mut word = OsString::from(name);
        word.push(path);
        word
    };
    let mut words: Vec<OsString> = [
        "--ioengine=libaio",
        "--direct=1",
        "--time_based",
        "--randrepeat=1",
        "--randseed=7",
        "--norandommap=1",
        "--log_unix_epoch=1",
    ]
    .map(OsString::from)
    .to_vec();
    words.push(format!("--runtime={}", time.as_secs_f64()).into());
    // The load.
    words.extend(["--name=load", "--rw=randrw", "--bs=4k", "--iodepth=8"].map(OsString::from));
    words.push(format!("--rwmixread={READS}").into());
    words.push(with("--filename=", load));
    words.push(with("--write_lat_log=", log));
    if let Some(iops) = iops {
        let reads = (iops * READS / 100.0).max(1.0);
        let writes = (iops - reads).max(1.0);
        words.push(format!("--rate_iops={reads:.0},{writes:.0}").into());
        words.push("--rate_process=poisson".into());
    }
    // The reader of the aged file.
    words.extend(["--name=aged", "--rw=randread", "--iodepth=1"].map(OsString::from));
    words.push(format!("--bs={}", PIECE.get()).into());
    words.push(format!("--rate_iops={AGED_IOPS}").into());
    words.push(with("--filename=", aged));
    words
}

fn measured(report: &Report, each: &str) -> Result<Measured> {
    let latency = |of: &fio::Direction| {
        anyhow::Ok(Latency {
            p50: of.completion.percentile(50.0)?,
            p99: of.completion.percentile(99.0)?,
        })
    };
    let load = report.job("load")?;
    // time, latency, direction (0: a read), bytes, offset …
    let reads = each.lines().filter_map(|line| {
        let mut fields = line.split(',').map(|field| field.trim().parse::<u64>());
        let mut field = || fields.next().and_then(Result::ok);
        let (at, latency, direction) = (field()?, field()?, field()?);
        (direction == 0).then_some((at, latency))
    });
    Ok(Measured {
        reads: latency(&load.read)?,
        writes: latency(&load.write)?,
        iops: load.read.iops + load.write.iops,
        aged: latency(&report.job("aged")?.read)?,
        each: reads.collect(),
    })
}

#[cfg(test)]
mod tests {
    use fio::{Direction, Job};

    use super::*;

    fn at(ms: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_millis(ms)
    }

    #[test]
    fn a_report_is_understood_and_percentiles_of_a_part_of_it_follow() {
        let of = |p50: f64, p99: f64| Direction {
            iops: 7.5,
            completion: fio::Latency {
                percentile: [("50.000000".into(), p50), ("99.000000".into(), p99)].into(),
                ..fio::Latency::default()
            },
            ..Direction::default()
        };
        let job = |name: &str, read, write| Job {
            name: name.to_owned(),
            read,
            write,
            ..Job::default()
        };
        let report = Report {
            jobs: vec![
                job("load", of(1.0, 2.0), of(3.0, 4.0)),
                job("aged", of(5.0, 6.0), Direction::default()),
            ],
        };
        // One hundred reads of 1 to 100 ns, a write, and something that is no line of a log.
        let mut log: String = (1..=100)
            .map(|n| format!("{n}, {n}, 0, 4096, 0\n"))
            .collect();
        log.push_str("50, 9999, 1, 4096, 0\nnonsense\n");
        let found = measured(&report, &log).unwrap();
        assert_eq!(found.reads, Latency { p50: 1.0, p99: 2.0 });
        assert_eq!(
            (found.writes.p99, found.aged.p50, found.iops),
            (4.0, 5.0, 15.0)
        );
        assert_eq!(found.p99_within(&[(at(1), at(100))]), Some((99.0, 100)));
        assert_eq!(
            found.p99_within(&[(at(10), at(20)), (at(1), at(5))]),
            Some((20.0, 16))
        );
        assert_eq!(found.p99_within(&[(at(200), at(300))]), None);
        assert_eq!(found.p99_within(&[]), None);
        assert!(measured(&Report::default(), "").is_err());
    }

    #[test]
    fn rates_are_divided_between_reads_and_writes() {
        let words = |iops| {
            let words = arguments(
                Path::new("a"),
                Path::new("b"),
                iops,
                Duration::from_secs(1),
                Path::new("l"),
            );
            crate::measure::describe(&words)
        };
        assert!(words(Some(1000.0)).contains("--rate_iops=700,300 "));
        // The load has no rate then; the reader of the aged file always has.
        assert_eq!(words(None).matches("--rate_iops").count(), 1);
    }
}
