//! The report that fio prints with `--output-format=json` (fio(1), "JSON OUTPUT"; seen with version 3.33).

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::FioError;

/// The report of a run.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Report {
    /// Its jobs; threads of one (`--numjobs`) are reported one by one.
    pub jobs: Vec<Job>,
}

/// The work of a job.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Job {
    /// Its `--name`.
    #[serde(rename = "jobname")]
    pub name: String,
    /// The errno with which it ended, or 0.
    pub error: i64,
    /// Its reads.
    pub read: Direction,
    /// Its writes.
    pub write: Direction,
    /// Percent of a processor's time, outside of the kernel.
    #[serde(rename = "usr_cpu")]
    pub user_pct: f64,
    /// And in the kernel.
    #[serde(rename = "sys_cpu")]
    pub system_pct: f64,
}

/// The reads or writes of a job; zeroes where it has none.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Direction {
    /// Calls.
    #[serde(rename = "total_ios")]
    pub calls: u64,
    /// Calls in a second.
    pub iops: f64,
    /// Bytes in a second.
    #[serde(rename = "bw_bytes")]
    pub bytes_per_s: f64,
    /// Milliseconds from the first call to the last.
    #[serde(rename = "runtime")]
    pub runtime_ms: u64,
    /// Of calls from when they are made to their end.
    #[serde(rename = "lat_ns")]
    pub whole: Latency,
    /// Of calls from when they are submitted to their end.
    #[serde(rename = "clat_ns")]
    pub completion: Latency,
}

/// How long calls take, in nanoseconds.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Latency {
    /// The longest.
    pub max: u64,
    /// By names such as `99.000000`; empty where fio was not asked for them, or there were no calls.
    #[serde(default)]
    pub percentile: BTreeMap<String, f64>,
}

impl Report {
    /// Read what fio printed; warnings may precede the report.
    ///
    /// # Errors
    ///
    /// It is no report, or a job failed.
    pub fn parse(text: &str) -> Result<Self, FioError> {
        let json = text.find('{').map_or("", |start| &text[start..]);
        let report: Self = serde_json::from_str(json).map_err(FioError::Report)?;
        match report.jobs.iter().find(|job| job.error != 0) {
            Some(job) => Err(FioError::Job {
                job: job.name.clone(),
                error: job.error,
            }),
            None => Ok(report),
        }
    }

    /// The first job with this name.
    ///
    /// # Errors
    ///
    /// There is none.
    pub fn job(&self, name: &str) -> Result<&Job, FioError> {
        let found = self.jobs.iter().find(|job| job.name == name);
        found.ok_or_else(|| FioError::Missing(format!("job '{name}'")))
    }
}

impl Latency {
    /// The time that so many percent of the calls do not exceed.
    ///
    /// # Errors
    ///
    /// It was not reported.
    pub fn percentile(&self, percent: f64) -> Result<f64, FioError> {
        let found = self.percentile.get(&format!("{percent:.6}"));
        found
            .copied()
            .ok_or_else(|| FioError::Missing(format!("percentile {percent}")))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn direction(calls: u64, percentile: &Value) -> Value {
        json!({ "total_ios": calls, "iops": 7.5, "bw_bytes": 30720, "runtime": 1500,
                "lat_ns": { "min": 1, "max": 9 }, "clat_ns": percentile })
    }

    fn report(error: i64) -> String {
        let percentile = json!({ "max": 8, "percentile": { "50.000000": 3, "99.000000": 5 } });
        let job = json!({ "jobname": "load", "error": error, "usr_cpu": 1.5, "sys_cpu": 2.5,
                          "read": direction(10, &percentile), "write": direction(0, &json!({ "max": 0 })) });
        format!("fio: a warning\n{}", json!({ "jobs": [job] }))
    }

    #[test]
    fn a_report_is_understood() {
        let report = Report::parse(&report(0)).unwrap();
        let job = report.job("load").unwrap();
        assert_eq!((job.read.calls, job.read.runtime_ms), (10, 1500));
        assert_eq!((job.read.iops, job.read.bytes_per_s), (7.5, 30720.0));
        assert_eq!((job.user_pct, job.system_pct), (1.5, 2.5));
        assert_eq!((job.read.whole.max, job.read.completion.max), (9, 8));
        assert_eq!(job.read.completion.percentile(99.0).unwrap(), 5.0);
        let error = job
            .write
            .completion
            .percentile(50.0)
            .unwrap_err()
            .to_string();
        assert_eq!(error, "fio reports no percentile 50");
        let error = report.job("other").unwrap_err().to_string();
        assert_eq!(error, "fio reports no job 'other'");
    }

    #[test]
    fn what_is_no_report_of_success_is_an_error() {
        let error = Report::parse(&report(5)).unwrap_err().to_string();
        assert_eq!(error, "fio reports error 5 of its job 'load'");
        for text in ["nonsense", "{}", "", "{\"jobs\": [{}]}"] {
            assert!(matches!(Report::parse(text), Err(FioError::Report(_))));
        }
    }
}
