//! Ageing of a file system by filebench's personalities fileserver and varmail.
//!
//! [`flow`] decides what each flow does next, from a seed and the state of the [`fileset`]: it does no
//! I/O and knows no clock. [`perform`] does it with one thread for each flow, as filebench does, so the
//! order of the flows among each other, and with it the places of the data, are the kernel's.
//!
//! The flows are those of filebench's `workloads/fileserver.f` and `varmail.f` (commit ca9b7af), with the
//! files of InDeF §V-A. Three things are different, and for reasons:
//!
//! - **A flow deletes before it creates, and only while the data fills the device as far as the paper's
//!   does** ([`Plan::fill_bytes`]). With a delete in every iteration, 50 files in the making do not fit beside
//!   a fileset that is scaled down; and varmail's would shrink: an iteration deletes a file, and gives new and
//!   old ones two appends of 16 KiB at most, so after one turn of the fileset the paper's 6496 × 2 MB would be
//!   files of some 16 KiB.
//! - **varmail begins without files.** So all of its data was appended, as after a long time; files that
//!   filebench had made beforehand would be contiguous, and how many of them are left would be a question of
//!   when we stop.
//! - **Whole-file reads are done only now and then** ([`Plan::reads_percent`]): they change no place.
//!
//! filebench makes the first files of fileserver itself, one after the other, through the page cache; so
//! they are contiguous. They are on the device before the flows begin.

mod fileset;
mod flow;
mod perform;
mod size;
#[cfg(test)]
mod tests;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

pub(crate) use self::perform::{Aged, age};

/// Zones of the paper's device: 16 GiB of 32 MiB.
const ZONES: u64 = 512;
/// Zones and files of a small trial: enough for F2FS, and too few for a figure.
const ZONES_OF_TRIAL: u64 = 128;
const FILES_OF_TRIAL: usize = 32;
/// Bytes of a zone of it.
const ZONE_BYTES: u64 = 32 << 20;
/// Flows (InDeF §V-A: "They both have 50 threads").
pub(crate) const FLOWS: usize = 50;
/// filebench's `$iosize`: a file is written in pieces of this size.
pub(crate) const IO_BYTES: u64 = 1 << 20;
/// filebench's `$meanappendsize`: the most that `appendfilerand` appends.
pub(crate) const APPEND_BYTES: u64 = 16 << 10;
/// filebench's `prealloc`: the percentage of the fileset's files that are there at the beginning.
const PREALLOC_PERCENT: usize = 80;

/// A personality of filebench.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Personality {
    /// Creates and writes whole files, appends, reads, deletes.
    Fileserver,
    /// Deletes, creates, appends and makes durable, reads.
    Varmail,
}

impl Personality {
    /// Its name, as in options.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Fileserver => "fileserver",
            Self::Varmail => "varmail",
        }
    }

    /// The paper's files: their number, and their mean size.
    const fn files(self) -> (usize, u64) {
        match self {
            Self::Fileserver => (3072, 4 << 20),
            Self::Varmail => (6496, 2 << 20),
        }
    }
}

/// How the flows write: filebench's attribute `directio`, or without it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Writes {
    /// Into the page cache, from which the kernel's one thread for a file system writes file by file.
    #[default]
    Cached,
    /// `O_DIRECT`. On zones, F2FS has each flow write its pages to the log by itself and wait for them.
    Direct,
}

impl Writes {
    /// Its name, as in options.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Cached => "cached",
            Self::Direct => "direct",
        }
    }
}

/// How much ageing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Plan {
    pub(crate) personality: Personality,
    pub(crate) writes: Writes,
    /// The paper's device, its zones and the number of files are divided by this.
    pub(crate) factor: u64,
    /// The flows end when they have written this many times the data.
    pub(crate) rounds: f64,
    /// Percentage of whole-file reads that are done.
    pub(crate) reads_percent: u32,
    pub(crate) seed: u64,
    /// Only a trial: fewer zones, and far fewer files.
    pub(crate) is_trial: bool,
}

impl Plan {
    /// The number of files that are there on average.
    fn files(self) -> usize {
        let files = (self.personality.files().0 / self.factor as usize).max(1);
        if self.is_trial {
            files.min(FILES_OF_TRIAL)
        } else {
            files
        }
    }

    /// Bytes of all files at which deleting begins: 75 % (fileserver) and 79 % (varmail) of the device.
    pub(crate) fn fill_bytes(self) -> u64 {
        self.files() as u64 * self.personality.files().1
    }

    /// Bytes of the device.
    pub(crate) const fn device_bytes(self) -> u64 {
        let zones = if self.is_trial { ZONES_OF_TRIAL } else { ZONES };
        zones * self.zone_bytes()
    }

    /// Bytes of a zone.
    pub(crate) const fn zone_bytes(self) -> u64 {
        ZONE_BYTES / self.factor
    }

    /// Bytes that the flows write.
    fn bytes_to_write(self) -> u64 {
        (self.fill_bytes() as f64 * self.rounds) as u64
    }
}
