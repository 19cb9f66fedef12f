//! [fio](https://github.com/axboe/fio) as a load: a process that does not outlive its owner, and the report that it prints.
//!
//! What it does is said by its own options; that its report is JSON is added here. A report of a job that failed is an
//! error. It knows nothing of what is measured.

#![forbid(unsafe_code)]

mod error;
mod report;

use std::{
    ffi::OsStr,
    process::{Child, Command, Stdio},
};

pub use error::FioError;
pub use report::{Direction, Job, Latency, Report};

/// fio at work; ended when it is dropped.
#[derive(Debug)]
pub struct Fio(Option<Child>);

impl Fio {
    /// Begin, with these options.
    ///
    /// # Errors
    ///
    /// It cannot be started: it is not installed, say.
    pub fn start(options: impl IntoIterator<Item: AsRef<OsStr>>) -> Result<Self, FioError> {
        let child = Command::new("fio")
            .arg("--output-format=json")
            .args(options)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(FioError::Start)?;
        Ok(Self(Some(child)))
    }

    /// The number of its process; jobs that are no threads are its children.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.0.as_ref().map_or(0, Child::id)
    }

    /// Wait for its end.
    ///
    /// # Errors
    ///
    /// It failed, or one of its jobs did; or its report cannot be understood.
    pub fn finish(mut self) -> Result<Report, FioError> {
        let Some(child) = self.0.take() else {
            unreachable!("it is taken here alone");
        };
        let output = child.wait_with_output().map_err(FioError::Wait)?;
        let text = String::from_utf8_lossy(&output.stdout);
        if !output.status.success() {
            return Err(FioError::Failed {
                status: output.status,
                output: format!("{text}{}", String::from_utf8_lossy(&output.stderr)),
            });
        }
        Report::parse(&text)
    }
}

impl Drop for Fio {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
