//! The results of measurements, as a table and as JSON.

use std::{fmt, fs, process::Command, time::Duration};

use anyhow::Result;
use serde::Serialize;
use units::Bytes;

use super::{predictions::Prediction, zipf::Curve};

/// One run of one contender.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Sample {
    /// Time of the command and the write-back of its dirty data.
    pub(super) duration_ns: u64,
    /// Bytes read from the device, by its own count.
    pub(super) device_read_bytes: u64,
    /// Bytes written to the device, by its own count.
    pub(super) device_written_bytes: u64,
    /// Peak of resident memory; absent for work that runs in this process.
    pub(super) max_resident_bytes: Option<u64>,
    /// Extents of the files afterwards; absent where none were to be moved.
    pub(super) extents_after: Option<u64>,
}

/// All runs of one contender in one case.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    pub(super) case: String,
    pub(super) contender: String,
    pub(super) command: String,
    pub(super) extents_before: Option<u64>,
    pub(super) samples: Vec<Sample>,
}

impl Row {
    fn median(&self, value: impl Fn(&Sample) -> u64) -> u64 {
        let mut values: Vec<u64> = self.samples.iter().map(value).collect();
        values.sort_unstable();
        // Of an even number the lower middle one: a value that was really measured.
        values[(values.len() - 1) / 2]
    }

    /// Median time.
    pub(super) fn duration(&self) -> Duration {
        Duration::from_nanos(self.median(|sample| sample.duration_ns))
    }

    /// Median of the bytes written to the device.
    pub(super) fn written(&self) -> Bytes {
        Bytes(self.median(|sample| sample.device_written_bytes))
    }

    /// Largest peak of all runs.
    pub(super) fn memory(&self) -> Option<Bytes> {
        let peaks = self
            .samples
            .iter()
            .filter_map(|sample| sample.max_resident_bytes);
        peaks.max().map(Bytes)
    }
}

/// A target, and the measured value.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Verdict {
    pub(super) what: String,
    /// The value, in the unit of the text.
    pub(super) measured: f64,
    pub(super) wanted: f64,
    pub(super) met: bool,
    unit: &'static str,
    at_least: bool,
}

impl Verdict {
    pub(super) fn at_least(what: String, measured: f64, wanted: f64, unit: &'static str) -> Self {
        let met = measured >= wanted;
        Self {
            what,
            measured,
            wanted,
            met,
            unit,
            at_least: true,
        }
    }

    pub(super) fn at_most(what: String, measured: f64, wanted: f64, unit: &'static str) -> Self {
        let met = measured <= wanted;
        Self {
            what,
            measured,
            wanted,
            met,
            unit,
            at_least: false,
        }
    }
}

/// Everything that one invocation measured.
#[derive(Serialize)]
pub(super) struct Report {
    schema: u32,
    machine: Machine,
    pub(super) rows: Vec<Row>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) curves: Vec<Curve>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) predictions: Vec<Prediction>,
    pub(super) verdicts: Vec<Verdict>,
}

#[derive(Serialize)]
struct Machine {
    kernel: String,
    processors: usize,
    memory: String,
    tools: Vec<String>,
}

impl Report {
    pub(super) fn new() -> Result<Self> {
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease")?
            .trim()
            .to_owned();
        let meminfo = fs::read_to_string("/proc/meminfo")?;
        let memory = meminfo
            .lines()
            .find_map(|line| line.strip_prefix("MemTotal:"))
            .map_or_else(String::new, |value| value.trim().to_owned());
        let tools = [
            ("e4defrag", "e2fsprogs"),
            ("xfs_fsr", "xfsdump"),
            ("btrfs", "btrfs-progs"),
            ("filefrag", "e2fsprogs"),
        ]
        .map(|(tool, package)| format!("{tool}: {package} {}", version(package)))
        .to_vec();
        Ok(Self {
            schema: 1,
            machine: Machine {
                kernel,
                processors: std::thread::available_parallelism()?.get(),
                memory,
                tools,
            },
            rows: Vec::new(),
            curves: Vec::new(),
            predictions: Vec::new(),
            verdicts: Vec::new(),
        })
    }
}

fn version(package: &str) -> String {
    Command::new("dpkg-query")
        .args(["--show", "--showformat=${Version}", package])
        .output()
        .ok()
        .filter(|output| output.status.success())
        .map_or_else(
            || "of unknown version".into(),
            |output| String::from_utf8_lossy(&output.stdout).into_owned(),
        )
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Machine {
            kernel,
            processors,
            memory,
            tools,
        } = &self.machine;
        writeln!(
            f,
            "Linux {kernel}, {processors} processors, {memory}; {}\n",
            tools.join(", ")
        )?;
        self.curves.iter().try_for_each(|curve| curve.fmt(f))?;
        for prediction in &self.predictions {
            writeln!(f, "{prediction}")?;
        }
        self.write_rows(f)?;
        self.write_verdicts(f)
    }
}

impl Report {
    fn write_rows(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.rows.is_empty() {
            return Ok(());
        }
        let width = self
            .rows
            .iter()
            .map(|row| row.case.len())
            .max()
            .unwrap_or(0)
            .max(4);
        writeln!(
            f,
            "{:width$}  {:22} {:>9} {:>19} {:>10} {:>10} {:>15} {:>9}",
            "case",
            "contender",
            "median",
            "fastest..slowest",
            "read",
            "written",
            "extents",
            "memory",
        )?;
        let mut last = "";
        for row in &self.rows {
            let case = if row.case == last { "" } else { &row.case };
            last = &row.case;
            let (fastest, slowest) = row
                .samples
                .iter()
                .fold((u64::MAX, 0), |(low, high), sample| {
                    (low.min(sample.duration_ns), high.max(sample.duration_ns))
                });
            let extents = match (row.extents_before, row.samples.last()) {
                (
                    Some(before),
                    Some(Sample {
                        extents_after: Some(after),
                        ..
                    }),
                ) => {
                    format!("{before}→{after}")
                }
                _ => "-".into(),
            };
            writeln!(
                f,
                "{case:width$}  {:22} {:>9} {:>19} {:>10} {:>10} {extents:>15} {:>9}",
                row.contender,
                seconds(row.median(|sample| sample.duration_ns)),
                format!("{}..{}", seconds(fastest), seconds(slowest)),
                Bytes(row.median(|sample| sample.device_read_bytes)).to_string(),
                row.written().to_string(),
                row.memory()
                    .map_or_else(|| "-".into(), |peak| peak.to_string()),
            )?;
        }
        Ok(())
    }

    fn write_verdicts(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.verdicts.is_empty() {
            writeln!(f, "\nwanted")?;
        }
        for Verdict {
            what,
            measured,
            wanted,
            met,
            unit,
            at_least,
        } in &self.verdicts
        {
            let bound = if *at_least { "at least" } else { "at most" };
            let verdict = if *met { "met" } else { "MISSED" };
            writeln!(
                f,
                "  {verdict:6}  {what}: {measured:.2}{unit}, {bound} {wanted:.2}{unit}"
            )?;
        }
        Ok(())
    }
}

fn seconds(nanos: u64) -> String {
    format!("{:.3} s", nanos as f64 / 1e9)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(durations: &[u64]) -> Row {
        let sample = |&duration_ns: &u64| Sample {
            duration_ns,
            device_read_bytes: 0,
            device_written_bytes: 0,
            max_resident_bytes: Some(duration_ns),
            extents_after: None,
        };
        Row {
            case: "case".into(),
            contender: "contender".into(),
            command: "command".into(),
            extents_before: None,
            samples: durations.iter().map(sample).collect(),
        }
    }

    #[test]
    fn the_median_is_a_measured_value() {
        assert_eq!(row(&[5, 1, 9]).duration(), Duration::from_nanos(5));
        assert_eq!(row(&[5, 1, 9, 7]).duration(), Duration::from_nanos(5));
        assert_eq!(row(&[5]).duration(), Duration::from_nanos(5));
    }

    #[test]
    fn of_memory_the_worst_counts() {
        assert_eq!(row(&[5, 1, 9]).memory(), Some(Bytes(9)));
    }

    #[test]
    fn a_bound_that_is_just_kept_is_met() {
        assert!(Verdict::at_least("x".into(), 4.0, 4.0, "x").met);
        assert!(!Verdict::at_least("x".into(), 3.9, 4.0, "x").met);
        assert!(Verdict::at_most("x".into(), 4.0, 4.0, "x").met);
        assert!(!Verdict::at_most("x".into(), 4.1, 4.0, "x").met);
    }
}
