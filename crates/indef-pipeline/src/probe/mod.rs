//! `probe`: what a drive is like, by reads of it, and what defragmenting can gain there.
//!
//! On a mounted file system the probe writes a file of its own, of bounded size, which never has a name: it
//! is gone with its descriptor, whatever ends the process. Its data is random, so that nothing on the way
//! makes it smaller, and is written in order, so that a distance in it is one on the drive's units. On
//! a block device nothing is written: what lies there is read as it is.

mod error;
mod file;
mod store;

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::{FileTypeExt, OpenOptionsExt},
    path::{Path, PathBuf},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use indef_core::probe::{self, CannotTell, Findings, Ground, Phase, ProbeTerms};
use indef_engine::{Cancel, TimedReads};
use indef_fs::{Drive, FsKind, detect};
use rustix::fs::{OFlags, SeekFrom, seek};
use units::{Bytes, FileRange, Nanos};

pub use error::ProbeError;
use error::failed;
pub use file::{FileFacts, SMALLEST};
pub use store::{Kept, StoreProblem, Stored};

/// The usual size of the probe's file.
pub const USUAL_SIZE: Bytes = Bytes::mib(256);
/// The usual time of everything.
pub const USUAL_LIMIT: Duration = Duration::from_secs(30);
/// Part of the time that writing the file may take.
const WRITING: f64 = 0.4;
/// Part of the file system that stays free for others.
const STAYS_FREE_PCT: f64 = 5.0;
/// The part of its file that a drive may miss in its count of written bytes; more of it lies elsewhere.
const ELSEWHERE: f64 = 0.1;
/// The part of the bytes read that a drive has to count, or something else answered.
const COUNTED: f64 = 0.5;

/// A probe of one drive.
#[derive(Clone, Debug)]
pub struct Prober {
    /// A path on a file system, or a block device.
    pub path: PathBuf,
    /// Bytes of the probe's file.
    pub size: Bytes,
    /// No part begins after this time.
    pub time_limit: Duration,
}

impl Prober {
    /// A probe with the usual bounds.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            size: USUAL_SIZE,
            time_limit: USUAL_LIMIT,
        }
    }
}

/// The step that a probe is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeStep {
    /// Writing its file: bytes written, of so many.
    Writing(Bytes, Bytes),
    /// Reading.
    Reading(Phase),
}

/// The result of a probe: the drive, and the findings.
#[derive(Clone, Debug)]
pub struct Probed {
    /// The drive.
    pub drive: Drive,
    /// The kind of the file system; `None` for a block device.
    pub fs: Option<FsKind>,
    /// The probe's file; `None` for a block device.
    pub file: Option<FileFacts>,
    /// Everything else.
    pub findings: Findings,
    /// The time of all of it.
    pub took: Nanos,
}

/// Reads of an open file.
struct Timed<'a> {
    reads: TimedReads,
    read: Bytes,
    file: &'a File,
    began: Instant,
    cancel: &'a Cancel,
    step: &'a dyn Fn(ProbeStep),
}

/// The reason for which reading ended.
enum Ended {
    Stopped,
    Failed(io::Error),
}

impl probe::Drive for Timed<'_> {
    type Error = Ended;

    fn read(&mut self, reads: &[FileRange], depth: usize) -> Result<Nanos, Ended> {
        if self.cancel.is_cancelled() {
            return Err(Ended::Stopped);
        }
        let time = self
            .reads
            .read(self.file, reads, depth)
            .map_err(Ended::Failed)?;
        self.read += reads.iter().map(|read| read.len).sum::<Bytes>();
        Ok(Nanos::from(time))
    }

    fn elapsed(&self) -> Nanos {
        Nanos::from(self.began.elapsed())
    }

    fn begins(&mut self, part: Phase) {
        (self.step)(ProbeStep::Reading(part));
    }
}

impl Prober {
    /// Probe. `step` hears how far it is.
    ///
    /// # Errors
    ///
    /// The drive cannot be probed, fails meanwhile, or `cancel` was set. Nothing is left in any case.
    pub fn probe(&self, cancel: &Cancel, step: &dyn Fn(ProbeStep)) -> Result<Probed, ProbeError> {
        let began = Instant::now();
        let reads = TimedReads::new().map_err(ProbeError::NoRing)?;
        let fail = |operation| failed(&self.path, operation);
        // A link may lead to another file system.
        let real = fs::canonicalize(&self.path).map_err(fail("look at it"))?;
        let status = fs::metadata(&real).map_err(fail("look at it"))?;
        let kind = status.file_type();
        let timed = |drive: &Drive, file: &File, ground, foreign| {
            let before = drive.read();
            let mut timed = Timed {
                reads,
                read: Bytes::ZERO,
                file,
                began,
                cancel,
                step,
            };
            let ask = ProbeTerms {
                ground,
                seed: seed(),
                limit: Nanos::from(self.time_limit),
                foreign,
            };
            let findings = probe::probe(&mut timed, ask).map_err(|ended| match ended {
                Ended::Stopped => ProbeError::Stopped,
                Ended::Failed(source) => failed(&self.path, "read")(source),
            })?;
            self.were_of(drive, before, timed.read)?;
            Ok(findings)
        };
        if kind.is_block_device() {
            let drive = Drive::at(&self.path).map_err(fail("look at the device"))?;
            let file = self.open_device()?;
            let len = seek(&file, SeekFrom::End(0))
                .map_err(|errno| fail("ask for its size")(errno.into()))?;
            let ground = Ground::new([FileRange::new(0, len)]);
            let findings = timed(&drive, &file, ground, 0.0)?;
            return Ok(Probed {
                drive,
                fs: None,
                file: None,
                findings,
                took: Nanos::from(began.elapsed()),
            });
        }
        let directory = match (kind.is_dir(), kind.is_file()) {
            (true, _) => real.as_path(),
            (false, true) => real.parent().unwrap_or(Path::new("/")),
            (false, false) => {
                return Err(ProbeError::NoTarget {
                    path: self.path.clone(),
                });
            }
        };
        let opened = File::open(directory).map_err(fail("open it"))?;
        let fs = detect(&opened, directory)
            .map_err(|error| fail("look at its file system")(error.source))?;
        let drive = Drive::of(&fs).ok_or_else(|| ProbeError::NoDrive {
            path: self.path.clone(),
            kind: fs.kind,
        })?;
        if fs.read_only {
            return Err(ProbeError::ReadOnly {
                path: self.path.clone(),
            });
        }
        let size = self.fitting(&fs)?;
        let before = drive.written();
        let until = began + self.time_limit.mul_f64(WRITING);
        let own = file::Own::write(directory, size, until, cancel, &|done| {
            step(ProbeStep::Writing(done, size));
        })
        .map_err(|problem| problem.told(&self.path, &fs))?;
        let (foreign, elsewhere) = match (before, drive.written()) {
            (Some(before), Some(after)) => {
                let all = after.saturating_sub(before);
                (own.part_of_others(all), own.part_elsewhere(all))
            }
            _ => (0.0, 0.0),
        };
        let facts = own.facts();
        let ground = own.ground();
        let findings = match ground.longest() {
            _ if elsewhere > ELSEWHERE => Findings::nothing(CannotTell::Elsewhere {
                percent: elsewhere * 100.0,
            }),
            Bytes::ZERO => Findings::nothing(CannotTell::NoGround),
            _ => timed(&drive, &own.file, ground, foreign)?,
        };
        Ok(Probed {
            drive,
            fs: Some(fs.kind),
            file: Some(facts),
            findings,
            took: Nanos::from(began.elapsed()),
        })
    }

    /// Whether the drive has counted what was read since it had counted so much. Some file systems take
    /// direct I/O and answer from the page cache (ext4 with `data=journal`, or for encrypted files).
    fn were_of(&self, drive: &Drive, before: Option<u64>, read: Bytes) -> Result<(), ProbeError> {
        let (Some(before), Some(after)) = (before, drive.read()) else {
            return Ok(());
        };
        let counted = Bytes(after.saturating_sub(before));
        match (counted.0 as f64) < COUNTED * read.0 as f64 {
            true => Err(ProbeError::NotOfDrive {
                path: self.path.clone(),
                device: drive.path.clone(),
                counted,
                read,
            }),
            false => Ok(()),
        }
    }

    fn open_device(&self) -> Result<File, ProbeError> {
        let mut options = OpenOptions::new();
        options
            .read(true)
            .custom_flags(OFlags::DIRECT.bits() as i32);
        options
            .open(&self.path)
            .map_err(failed(&self.path, "open it"))
    }

    /// The size of the file that fits; smaller than wanted where there is less room.
    fn fitting(&self, fs: &indef_fs::Filesystem) -> Result<Bytes, ProbeError> {
        let kept = (fs.total.0 as f64 * STAYS_FREE_PCT / 100.0) as u64;
        let room = fs.free.0.saturating_sub(kept) / Bytes::mib(1).0 * Bytes::mib(1).0;
        let size = self.size.0.min(room);
        match size < SMALLEST.0.min(self.size.0) {
            true => Err(ProbeError::Full {
                path: self.path.clone(),
                free: fs.free,
                needed: SMALLEST.min(self.size),
            }),
            false => Ok(Bytes(size)),
        }
    }
}

fn seed() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(1, |since| since.as_nanos() as u64)
}
