//! The results of measurements, as a table and as JSON.

use std::{
    collections::BTreeMap,
    fmt::{self, Write},
    path::Path,
    process::Command,
    time::Duration,
};

use anyhow::Result;
use figures::{Machine, Session, Value};
use serde::{Deserialize, Serialize};
use units::Bytes;

use super::median::median;

/// One run of one contender.
#[derive(Clone, Debug, Serialize, Deserialize)]
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
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct ContenderRuns {
    pub(super) case: String,
    pub(super) contender: String,
    pub(super) command: String,
    pub(super) extents_before: Option<u64>,
    pub(super) samples: Vec<Sample>,
}

impl ContenderRuns {
    fn median(&self, value: impl Fn(&Sample) -> u64) -> u64 {
        median(self.samples.iter().map(value))
    }

    /// Median and spread of all that was measured.
    fn summary(&self) -> figures::Row {
        let mut row = figures::Row::new(&self.case, &self.contender);
        let mut add = |quantity: &str, value: &dyn Fn(&Sample) -> Option<u64>| {
            let samples: Vec<f64> = self
                .samples
                .iter()
                .filter_map(value)
                .map(|it| it as f64)
                .collect();
            if samples.iter().any(|sample| *sample > 0.0) {
                row.values.insert(quantity.to_owned(), Value::of(&samples));
            }
        };
        add("time_ns", &|sample| Some(sample.duration_ns));
        add("read_bytes", &|sample| Some(sample.device_read_bytes));
        add("written_bytes", &|sample| Some(sample.device_written_bytes));
        add("memory_bytes", &|sample| sample.max_resident_bytes);
        add("extents_after", &|sample| sample.extents_after);
        if let Some(before) = self.extents_before {
            row.values
                .insert("extents_before".to_owned(), Value::Exact(before as f64));
        }
        row
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

/// Everything that one benchmark measured.
#[derive(Serialize)]
pub(super) struct Report {
    schema: u32,
    /// The benchmark, as it is called.
    pub(super) name: &'static str,
    machine: Machine,
    /// Runs of each contender.
    pub(super) runs: usize,
    /// A circumstance that a reader has to know.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) note: Option<String>,
    pub(super) rows: Vec<ContenderRuns>,
    /// Figures that are no times and no bytes of rows.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    figures: Vec<figures::Row>,
    /// Results that are no rows, by the name of their list.
    #[serde(flatten)]
    lists: BTreeMap<&'static str, Vec<serde_json::Value>>,
    /// Their table.
    #[serde(skip)]
    table: String,
    pub(super) verdicts: Vec<Verdict>,
}

impl Report {
    /// An empty report of a benchmark whose files lie in `folder`.
    pub(super) fn new(name: &'static str, folder: &Path, runs: usize) -> Self {
        let tools = [
            ("e4defrag", "e2fsprogs"),
            ("xfs_fsr", "xfsdump"),
            ("btrfs", "btrfs-progs"),
            ("filefrag", "e2fsprogs"),
            ("fio", "fio"),
        ]
        .map(|(tool, package)| format!("{tool}: {package} {}", version(package)))
        .to_vec();
        Self {
            schema: 2,
            name,
            machine: Machine {
                tools,
                ..Machine::here(folder)
            },
            runs,
            note: None,
            rows: Vec::new(),
            figures: Vec::new(),
            lists: BTreeMap::new(),
            table: String::new(),
            verdicts: Vec::new(),
        }
    }

    /// The release of the kernel that runs.
    pub(super) fn kernel(&self) -> Option<&str> {
        self.machine.kernel.as_deref()
    }

    /// Add a figure that is no time and no bytes of a row: all samples of one quantity.
    pub(super) fn figure(&mut self, case: &str, contender: &str, quantity: &str, samples: &[f64]) {
        let value = Value::of(samples);
        let is_it = |row: &&mut figures::Row| row.case == case && row.contender == contender;
        match self.figures.iter_mut().find(is_it) {
            Some(row) => {
                row.values.insert(quantity.to_owned(), value);
            }
            None => {
                let row = figures::Row::new(case, contender).with(quantity, value);
                self.figures.push(row);
            }
        }
    }

    /// Add a result that is no row: to this list, and to the table.
    pub(super) fn add(
        &mut self,
        list: &'static str,
        result: &(impl Serialize + fmt::Display),
    ) -> Result<()> {
        let value = serde_json::to_value(result)?;
        self.lists.entry(list).or_default().push(value);
        Ok(writeln!(self.table, "{result}")?)
    }

    /// Add a heading to the table.
    pub(super) fn heading(&mut self, line: &str) {
        self.table.push_str(line);
        self.table.push('\n');
    }

    /// The result to keep: median and spread of everything.
    pub(super) fn session(&self, command: String) -> Session {
        let mut rows: Vec<figures::Row> = self.rows.iter().map(ContenderRuns::summary).collect();
        for more in &self.figures {
            let is_it = |row: &&mut figures::Row| {
                (&row.case, &row.contender) == (&more.case, &more.contender)
            };
            match rows.iter_mut().find(is_it) {
                Some(row) => row.values.extend(more.values.clone()),
                None => rows.push(more.clone()),
            }
        }
        Session {
            command,
            machine: Some(self.machine.clone()),
            date: Some(figures::today()),
            version: figures::version(source_tree::root()),
            runs: u32::try_from(self.runs).ok(),
            note: self.note.clone(),
            rows,
        }
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
        writeln!(f, "{}\n", self.machine)?;
        if let Some(note) = &self.note {
            writeln!(f, "{note}\n")?;
        }
        f.write_str(&self.table)?;
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

    fn row(durations: &[u64]) -> ContenderRuns {
        let sample = |&duration_ns: &u64| Sample {
            duration_ns,
            device_read_bytes: 0,
            device_written_bytes: 0,
            max_resident_bytes: Some(duration_ns),
            extents_after: None,
        };
        ContenderRuns {
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
