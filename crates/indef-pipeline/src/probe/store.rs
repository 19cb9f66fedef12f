//! The findings of probes, by drive, in indef's state directory: `drives/NAME.json`.
//!
//! A file is written beside its place and renamed, so it is there as a whole or not at all. One that
//! cannot be understood, or is of another drive or user, is as good as none.

use std::{
    fs, io,
    io::{Read, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

use indef_core::{
    layout::Geometry,
    probe::{CannotTell, Findings, ReadModel},
};
use indef_engine::resume::state_directory;
use indef_fs::Drive;
use rustix::{fs::OFlags, process::geteuid};
use serde::{Deserialize, Serialize};

use super::Probed;

/// The version of the files.
const SCHEMA: u64 = 2;
/// A longer file is none of ours.
const LONGEST: u64 = 1 << 20;

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

/// The answers of a drive that are in use after a probe of it: the file that they are in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kept {
    /// Those of this probe.
    New(PathBuf),
    /// Those of an earlier one, which told the placement; this one could not.
    Earlier(PathBuf, Geometry),
}

/// A result is not stored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreProblem {
    /// The kernel tells no name of the drive that outlives a restart.
    #[error("the kernel tells neither a serial number nor another lasting name of {0}")]
    Nameless(String),
    /// They are not of the drive alone.
    #[error("they are not of {0} alone: {1}")]
    Elsewhere(String, CannotTell),
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
    /// Store the result of a probe, in place of an earlier one of the drive; unless only the earlier one
    /// told the placement, and this one did not show on a file of its own that there are no units.
    ///
    /// # Errors
    ///
    /// The reason for which it is not stored.
    pub fn keep(probed: &Probed) -> Result<Kept, StoreProblem> {
        let directory = state_directory().map_err(StoreProblem::NoDirectory)?;
        Self::keep_in(&directory, probed)
    }

    fn keep_in(directory: &Path, probed: &Probed) -> Result<Kept, StoreProblem> {
        let drive = &probed.drive;
        let name = || drive.path.display().to_string();
        if let Err(why @ CannotTell::Elsewhere { .. }) = probed.findings.placement {
            return Err(StoreProblem::Elsewhere(name(), why));
        }
        let nameless = || StoreProblem::Nameless(name());
        let key = drive.key.clone().ok_or_else(nameless)?;
        let path = place(directory, &key);
        let replaces = match probed.findings.placement {
            Ok(_) => true,
            Err(CannotTell::NoContrast { .. }) => probed.file.is_some(),
            Err(_) => false,
        };
        let earlier = Self::read(directory, &key);
        let earlier = earlier.and_then(|stored| stored.findings.geometry());
        if let Some(geometry) = earlier.filter(|_| !replaces) {
            return Ok(Kept::Earlier(path, geometry));
        }
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
        Ok(Kept::New(path))
    }

    /// The stored findings of a drive.
    #[must_use]
    pub fn of(drive: &Drive) -> Option<Self> {
        let directory = state_directory_if_there()?;
        Self::read(&directory, drive.key.as_ref()?)
    }

    fn read(directory: &Path, key: &str) -> Option<Self> {
        let text = own_text(&place(directory, key)).ok()??;
        let stored: Self = serde_json::from_slice(&text).ok()?;
        let is_sound = stored.schema == SCHEMA && stored.key == key && stored.is_geometry();
        is_sound.then_some(stored)
    }

    /// Whether its geometry, where there is one, is one that `--geometry` takes.
    fn is_geometry(&self) -> bool {
        let placement = self.findings.placement.ok();
        placement.is_none_or(|told| told.value.is_possible())
    }

    /// The model of reads on the drive, where all of it could be told.
    #[must_use]
    pub fn model(&self) -> Option<ReadModel> {
        let model = ReadModel::of(&self.findings).ok()?;
        model.is_sound().then_some(model)
    }
}

/// The content of a file of this user that is no longer than ours; `None` for anything else.
fn own_text(path: &Path) -> io::Result<Option<Vec<u8>>> {
    // Neither a link is followed nor a FIFO waited for; what is opened is closed on exec in any case.
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = fs::OpenOptions::new()
        .read(true)
        .custom_flags(flags.bits() as i32)
        .open(path)?;
    let status = file.metadata()?;
    if !status.is_file() || status.uid() != geteuid().as_raw() || status.len() > LONGEST {
        return Ok(None);
    }
    let mut text = Vec::new();
    file.take(LONGEST).read_to_end(&mut text)?;
    Ok(Some(text))
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

#[cfg(test)]
mod tests {
    use indef_core::probe::{Measured, Placement};
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    use units::{Bytes, Nanos};

    use super::{super::FileFacts, *};

    const PLACEMENT: Placement = Placement {
        granule: Bytes::kib(32),
        units: 8,
    };
    const NO_CONTRAST: CannotTell = CannotTell::NoContrast {
        up_to: Bytes::mib(32),
    };

    /// Any drive of this machine, with a name.
    fn drive() -> Option<Drive> {
        let disks = fs::read_dir("/sys/block").into_iter().flatten().flatten();
        let mut drives = disks.filter_map(|entry| {
            let path = Path::new("/dev").join(entry.file_name());
            Drive::at(&path).ok()
        });
        let mut drive = drives.next()?;
        drive.key = Some("test:1".to_owned());
        Some(drive)
    }

    fn told(placement: Placement) -> Findings {
        Findings {
            placement: Ok(Measured {
                value: placement,
                confidence: 0.9,
            }),
            ..Findings::nothing(CannotTell::TimeUp)
        }
    }

    fn probed(drive: &Drive, has_file: bool, findings: Findings) -> Probed {
        let file = FileFacts {
            written: Bytes::mib(16),
            pieces: 1,
            usable: Bytes::mib(16),
        };
        Probed {
            drive: drive.clone(),
            fs: None,
            file: has_file.then_some(file),
            findings,
            took: Nanos(1),
        }
    }

    #[test]
    fn a_probe_that_tells_no_placement_leaves_the_one_that_is_known() {
        let Some(drive) = drive() else { return };
        let folder = tempfile::tempdir().unwrap();
        let path = place(folder.path(), "test:1");
        let keep = |has_file, findings| {
            Stored::keep_in(folder.path(), &probed(&drive, has_file, findings)).unwrap()
        };
        let known = || Stored::read(folder.path(), "test:1").and_then(|it| it.findings.geometry());
        let new = Kept::New(path.clone());
        let earlier = Kept::Earlier(path, PLACEMENT.geometry());
        let nothing = Findings::nothing;
        // Nothing is lost where nothing was known.
        assert_eq!(keep(true, nothing(CannotTell::TimeUp)), new);
        assert_eq!(keep(true, told(PLACEMENT)), new);
        for why in [CannotTell::TimeUp, CannotTell::NoGround] {
            assert_eq!(keep(true, nothing(why)), earlier);
        }
        // Where nobody wrote, a device may show nothing.
        assert_eq!(keep(false, nothing(NO_CONTRAST)), earlier);
        assert_eq!(known(), Some(PLACEMENT.geometry()));
        assert_eq!(keep(true, nothing(NO_CONTRAST)), new);
        assert_eq!(known(), None);
    }

    /// Later versions ask more; what an earlier one found stays in use.
    #[test]
    fn what_an_earlier_version_kept_is_read() {
        let Some(drive) = drive() else { return };
        let folder = tempfile::tempdir().unwrap();
        Stored::keep_in(folder.path(), &probed(&drive, true, told(PLACEMENT))).unwrap();
        let path = place(folder.path(), "test:1");
        let text = fs::read(&path).unwrap();
        let mut json: serde_json::Value = serde_json::from_slice(&text).unwrap();
        let findings = json["findings"].as_object_mut().unwrap();
        assert!(findings.remove("inner").is_some());
        fs::write(&path, json.to_string()).unwrap();
        let stored = Stored::read(folder.path(), "test:1").expect("it is sound");
        assert_eq!(stored.findings.inner, Err(CannotTell::NotMeasured));
        assert_eq!(stored.findings.geometry(), Some(PLACEMENT.geometry()));
    }

    #[test]
    fn what_is_of_another_drive_too_is_not_kept() {
        let Some(drive) = drive() else { return };
        let folder = tempfile::tempdir().unwrap();
        let why = CannotTell::Elsewhere { percent: 50.0 };
        let kept = Stored::keep_in(folder.path(), &probed(&drive, true, Findings::nothing(why)));
        assert!(matches!(kept, Err(StoreProblem::Elsewhere(..))), "{kept:?}");
        assert_eq!(Stored::read(folder.path(), "test:1"), None);
    }

    #[test]
    fn only_a_file_of_this_user_with_a_possible_geometry_is_read() {
        let Some(drive) = drive() else { return };
        let folder = tempfile::tempdir().unwrap();
        let path = place(folder.path(), "test:1");
        let read = || Stored::read(folder.path(), "test:1");
        let keep = |placement| {
            Stored::keep_in(folder.path(), &probed(&drive, true, told(placement))).unwrap();
        };
        for (granule, units) in [(0, 8), (u64::MAX, 8), (32 << 10, 0), (32 << 10, u32::MAX)] {
            let granule = Bytes(granule);
            keep(Placement { granule, units });
            assert_eq!(read(), None, "{granule} on {units}");
        }
        keep(PLACEMENT);
        assert!(read().is_some());
        let elsewhere = folder.path().join("elsewhere");
        fs::rename(&path, &elsewhere).unwrap();
        std::os::unix::fs::symlink(&elsewhere, &path).unwrap();
        assert_eq!(read(), None);
        fs::remove_file(&path).unwrap();
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR, 0).unwrap();
        assert_eq!(read(), None);
        fs::rename(&elsewhere, &path).unwrap();
        assert!(read().is_some());
        if geteuid().is_root() {
            std::os::unix::fs::chown(&path, Some(65_534), None).unwrap();
            assert_eq!(read(), None);
            std::os::unix::fs::chown(&path, Some(0), None).unwrap();
        }
        // Blanks at the end of JSON are nothing, but so many are not ours.
        let mut text = fs::read(&path).unwrap();
        text.resize(LONGEST as usize + 1, b' ');
        fs::write(&path, text).unwrap();
        assert_eq!(read(), None);
    }
}
