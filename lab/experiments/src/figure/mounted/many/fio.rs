//! fio beside a defragmenter: calls of 4 KiB anywhere in a file of its own, past the page cache.

use std::{ffi::OsString, path::Path};

use fio::Report;
use units::Bytes;

use super::super::{
    super::{error::FigureError, parameters::Parameters},
    ground::Failed,
};

/// See the module.
#[derive(Clone, Debug)]
pub(in super::super::super) struct Fio {
    /// The size of its file, which is in one piece.
    pub(super) file: Bytes,
    /// `randread` or `randwrite`.
    kind: &'static str,
    /// Of all threads.
    calls: u64,
    /// Each with one call at a time.
    threads: u64,
    seed: u64,
}

/// fio at work; ended when it is dropped.
pub(super) struct Running {
    fio: fio::Fio,
    calls: u64,
}

impl Fio {
    pub(in super::super::super) fn new(parameters: &Parameters) -> Result<Self, FigureError> {
        let threads = parameters.count("fio_threads")?.max(1);
        Ok(Self {
            file: Bytes(parameters.bytes("fio_file")?),
            kind: match parameters.text("fio_direction")? {
                "read" => "randread",
                "write" => "randwrite",
                other => {
                    let text = format!("fio reads or writes; '{other}' is neither");
                    return Err(FigureError::simulation(text));
                }
            },
            // As many for each.
            calls: parameters.count("fio_calls")? / threads * threads,
            threads,
            seed: parameters.count("seed")?,
        })
    }

    /// Begin, on this file.
    pub(super) fn start(&self, file: &Path) -> Result<Running, Failed> {
        Ok(Running {
            fio: fio::Fio::start(self.arguments(file))?,
            calls: self.calls,
        })
    }

    fn arguments(&self, file: &Path) -> Vec<OsString> {
        let mut filename = OsString::from("--filename=");
        filename.push(file);
        let mut words: Vec<OsString> = [
            "--name=load",
            "--ioengine=psync",
            "--direct=1",
            "--bs=4k",
            "--thread",
            "--norandommap=1",
            "--randrepeat=1",
        ]
        .map(OsString::from)
        .to_vec();
        words.extend(
            [
                format!("--rw={}", self.kind),
                format!("--numjobs={}", self.threads),
                format!("--size={}", self.file.0),
                format!("--io_size={}", self.calls / self.threads * 4096),
                format!("--randseed={}", self.seed),
            ]
            .map(OsString::from),
        );
        words.push(filename);
        words
    }
}

impl Running {
    /// Wait for its end. Returns the seconds of its slowest thread.
    pub(super) fn finish(self) -> Result<f64, Failed> {
        seconds(&self.fio.finish()?, self.calls)
    }
}

/// Of a report, which must be of so many calls.
fn seconds(report: &Report, calls: u64) -> Result<f64, Failed> {
    let ways = report.jobs.iter().flat_map(|job| [&job.read, &job.write]);
    let done: u64 = ways.clone().map(|way| way.calls).sum();
    let slowest = ways.map(|way| way.runtime_ms).max().unwrap_or(0);
    if done != calls || slowest == 0 {
        return Err(format!("fio reports {done} of {calls} calls in {slowest} ms").into());
    }
    Ok(slowest as f64 / 1000.0)
}

#[cfg(test)]
mod tests {
    use fio::{Direction, Job};

    use super::*;

    #[test]
    fn the_slowest_thread_counts_and_all_calls_must_be_there() {
        let job = |calls, runtime_ms| Job {
            read: Direction {
                calls,
                runtime_ms,
                ..Direction::default()
            },
            ..Job::default()
        };
        let two = Report {
            jobs: vec![job(10, 1500), job(10, 2500)],
        };
        assert_eq!(seconds(&two, 20).unwrap(), 2.5);
        assert!(seconds(&two, 21).is_err());
        assert!(seconds(&Report::default(), 0).is_err());
    }
}
