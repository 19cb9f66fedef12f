//! Files that come and go, after Geriatrix.

use anyhow::Result;
use workloads::{change::Change, geriatrix::Geriatrix};

use super::{
    life::{Life, Setting},
    perform::Performer,
};

/// Part of the file system's free space that files fill, in percent (Geriatrix's README: "around 80 % is reasonable").
const FILL_PCT: u64 = 80;
/// How many times as much as fits a life before the repair writes, for ages to be as wanted (`workloads::geriatrix`).
const ROUNDS: u64 = 30;

pub(super) struct Files {
    ageing: Geriatrix,
    performer: Performer,
    /// Bytes that are written in a day.
    daily: u64,
}

impl Files {
    pub(super) fn begin(setting: &Setting<'_>) -> Result<Self> {
        let &Setting {
            folder, days, seed, ..
        } = setting;
        let space = rustix::fs::statvfs(folder)?;
        let full = space.f_bavail * space.f_frsize / 100 * FILL_PCT;
        let mut files = Self {
            ageing: Geriatrix::new(full, seed),
            performer: Performer::new(folder.to_owned(), seed),
            daily: full * ROUNDS / u64::from(days),
        };
        while !files.ageing.is_full() {
            files.step()?;
        }
        Ok(files)
    }

    /// Returns the bytes written.
    fn step(&mut self) -> Result<u64> {
        let mut written = 0;
        for change in self.ageing.next() {
            self.performer.perform(change)?;
            if let Change::Append { bytes, .. } = change {
                written += bytes;
            }
        }
        Ok(written)
    }
}

impl Life for Files {
    fn day(&mut self) -> Result<()> {
        let mut left = self.daily;
        while left > 0 {
            left = left.saturating_sub(self.step()?);
        }
        Ok(())
    }
}
