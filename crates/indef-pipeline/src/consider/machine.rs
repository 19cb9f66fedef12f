//! The kernel as a source of readings.

use std::{
    fs::{self, File},
    io::{self, Read},
    path::{Path, PathBuf},
    time::Duration,
};

use linux_abi::nvme::smart;
use rustix::time::{ClockId, clock_gettime};

use super::{
    reading::CannotTell,
    source::{Health, Source},
};

/// Longer files are none of those that are read.
const LONGEST: u64 = 1 << 20;

/// This machine; or a folder with `proc` and `sys` in it that stands for one, for tests.
#[derive(Clone, Debug)]
pub struct Machine {
    root: PathBuf,
}

impl Machine {
    /// The machine whose `/` this is.
    #[must_use]
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }
}

impl Source for Machine {
    fn text(&self, path: &str) -> io::Result<String> {
        let mut text = String::new();
        let file = File::open(self.root.join(path))?;
        file.take(LONGEST).read_to_string(&mut text)?;
        Ok(text)
    }

    fn names(&self, path: &str) -> io::Result<Vec<String>> {
        let entries = fs::read_dir(self.root.join(path))?;
        let mut names: Vec<String> = entries
            .flatten()
            .filter_map(|entry| entry.file_name().into_string().ok())
            .collect();
        names.sort();
        Ok(names)
    }

    fn health(&self, drive: &str) -> Result<Health, CannotTell> {
        // Nothing is sent to devices of other kinds, nor to those of this machine for another root.
        if !drive.starts_with("nvme") || self.root != Path::new("/") {
            return Err(CannotTell::NotTold);
        }
        let answer = File::open(Path::new("/dev").join(drive)).and_then(smart::read);
        let page = answer.map_err(|error| match error.kind() {
            io::ErrorKind::PermissionDenied => CannotTell::NotPermitted,
            _ => CannotTell::NoAnswer(error.to_string()),
        })?;
        Ok(Health {
            celsius: page.celsius().map(f64::from),
            used_pct: page.used.into(),
            critical: page.critical_warning,
        })
    }

    fn now(&self) -> Duration {
        let now = clock_gettime(ClockId::Boottime);
        Duration::new(
            now.tv_sec.unsigned_abs(),
            u32::try_from(now.tv_nsec).unwrap_or(0),
        )
    }
}
