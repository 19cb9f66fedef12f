//! What probes found out, by drive, in indef's state directory: `drives/NAME.json`.
//!
//! A file is written beside its place and renamed, so it is there as a whole or not at all. One that
//! cannot be understood, or is of another drive, is as good as none.

use std::{
    fs, io,
    io::Write,
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

use indef_core::probe::{Findings, ReadModel};
use indef_engine::resume::state_directory;
use indef_fs::Drive;
use serde::{Deserialize, Serialize};

use super::Probed;

/// The version of the files.
const SCHEMA: u64 = 1;

/// The result of a probe, as it is stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stored {
    schema: u64,
    /// The drive ([`Drive::key`]).
    pub key: String,
    /// Its model, for people.
    pub model: Option<String>,
    /// Seconds since 1970.
    pub probed_at: u64,
    /// The result.
    pub findings: Findings,
}

/// A result is not stored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreProblem {
    /// The kernel tells no name of the drive that outlives a restart.
    #[error("the kernel tells neither a serial number nor another lasting name of {0}")]
    Nameless(String),
    /// There is no directory.
    #[error("no directory for indef's state: {0}")]
    NoDirectory(#[source] io::Error),
    /// It cannot be written.
    #[error("{path}: {source}", path = path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
}

impl Stored {
    /// Store the result of a probe, in place of an earlier one of the drive. Returns the file.
    ///
    /// # Errors
    ///
    /// The reason for which it is not stored.
    pub fn keep(probed: &Probed) -> Result<PathBuf, StoreProblem> {
        let directory = state_directory().map_err(StoreProblem::NoDirectory)?;
        Self::keep_in(&directory, probed)
    }

    fn keep_in(directory: &Path, probed: &Probed) -> Result<PathBuf, StoreProblem> {
        let drive = &probed.drive;
        let nameless = || StoreProblem::Nameless(drive.path.display().to_string());
        let key = drive.key.clone().ok_or_else(nameless)?;
        let path = place(directory, &key);
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let stored = Self {
            schema: SCHEMA,
            key,
            model: drive.model.clone(),
            probed_at: since.map_or(0, |since| since.as_secs()),
            findings: probed.findings.clone(),
        };
        let write = || -> io::Result<()> {
            let folder = path.parent().unwrap_or(directory);
            fs::create_dir_all(folder)?;
            let mut file = tempfile::NamedTempFile::new_in(folder)?;
            serde_json::to_writer_pretty(&mut file, &stored)?;
            file.write_all(b"\n")?;
            file.as_file().sync_all()?;
            file.persist(&path).map_err(|error| error.error)?;
            Ok(())
        };
        write().map_err(|source| StoreProblem::Write {
            path: path.clone(),
            source,
        })?;
        Ok(path)
    }

    /// What is stored of a drive.
    #[must_use]
    pub fn of(drive: &Drive) -> Option<Self> {
        let directory = state_directory_if_there()?;
        Self::read(&directory, drive.key.as_ref()?)
    }

    fn read(directory: &Path, key: &str) -> Option<Self> {
        let text = fs::read(place(directory, key)).ok()?;
        let stored: Self = serde_json::from_slice(&text).ok()?;
        (stored.schema == SCHEMA && stored.key == key).then_some(stored)
    }

    /// The model of reads on the drive, where all of it could be told.
    #[must_use]
    pub fn model(&self) -> Option<ReadModel> {
        ReadModel::of(&self.findings).ok()
    }
}

/// Looking for a result makes no directory.
fn state_directory_if_there() -> Option<PathBuf> {
    indef_engine::resume::find_state_directory()
}

/// The file of a drive. Keys hold anything, names of files do not; the key itself is in the file.
fn place(directory: &Path, key: &str) -> PathBuf {
    let plain = |c: char| match c.is_ascii_alphanumeric() || c == '-' || c == '.' {
        true => c,
        false => '_',
    };
    let mut name: String = key.chars().map(plain).take(80).collect();
    // FNV-1a: keys that look alike in this way have names of their own.
    let hash = key.bytes().fold(0xCBF2_9CE4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3)
    });
    name.push_str(&format!("-{hash:016x}.json"));
    directory.join("drives").join(name)
}
