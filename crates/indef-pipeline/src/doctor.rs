//! A look at this machine: which file systems are mounted and what serves them, and what earlier runs have left.
//!
//! Nothing is changed, and nothing is asked of file systems that indef does not serve: a network mount whose server is
//! gone would never answer.

use std::{
    collections::HashSet,
    fs, io,
    path::{Path, PathBuf},
};

use indef_core::SkipReason;
use indef_engine::resume::{Remnant, find_state_directory, remnants};
use indef_fs::{Drive, EngineKind, Filesystem, FsKind, Mount, detect};
use rustix::fs::{Mode, OFlags, open};
use units::Bytes;

use crate::engines::Engines;

/// The kinds of file systems that there are engines for.
pub const SERVED: [FsKind; 4] = [FsKind::Ext4, FsKind::Xfs, FsKind::Btrfs, FsKind::F2fs];

/// A mounted file system.
#[derive(Debug)]
pub struct Mounted {
    /// Where, from what, with which options.
    pub mount: Mount,
    /// What serves it; an error where it cannot be looked at.
    pub served: io::Result<Served>,
}

/// What a run would find.
#[derive(Clone, Debug)]
pub struct Served {
    /// The engine that a run would use, or the one of this kind of file system that refuses; `None` if there is none.
    pub engine: Option<EngineKind>,
    /// Why a run would move nothing.
    pub refused: Option<SkipReason>,
    /// Free for this user, and all of it; `None` where the file system was not asked.
    pub space: Option<(Bytes, Bytes)>,
    /// The drive, where the kernel tells it.
    pub drive: Option<Drive>,
}

impl Served {
    /// Whether a run can move something.
    #[must_use]
    pub fn works(&self) -> bool {
        self.engine.is_some() && self.refused.is_none()
    }

    /// Where there is no engine.
    const fn none() -> Self {
        Self {
            engine: None,
            refused: Some(SkipReason::NoEngine),
            space: None,
            drive: None,
        }
    }
}

/// The file systems on devices that this process sees, and that of `/`, each once.
///
/// # Errors
///
/// There is no mount table.
pub fn mounted() -> io::Result<Vec<Mounted>> {
    let engines = Engines::new(None, false);
    let mut mounts = Mount::all()?;
    mounts.retain(|mount| is_served(mount) || is_on_device(mount) || mount.point == Path::new("/"));
    // Of several mounts of one file system, one of a directory: containers have single files mounted.
    mounts.sort_by_cached_key(|mount| !mount.point.is_dir());
    let mut seen = HashSet::new();
    let mut found = Vec::new();
    for mount in mounts {
        let key = (mount.source.clone(), mount.fs_type.clone());
        if seen.contains(&key) {
            continue;
        }
        let served = match is_served(&mount) {
            false => Ok(Served::none()),
            true => match look(&mount) {
                Ok(Some(fs)) => Ok(serve(&engines, &fs)),
                // Another one is mounted on top of it.
                Ok(None) => continue,
                Err(error) => Err(error),
            },
        };
        seen.insert(key);
        found.push(Mounted { mount, served });
    }
    found.sort_by(|a, b| a.mount.point.cmp(&b.mount.point));
    Ok(found)
}

/// Whether there is an engine for its type, by its name.
pub(crate) fn is_served(mount: &Mount) -> bool {
    SERVED.iter().any(|kind| kind.to_string() == mount.fs_type)
}

fn is_on_device(mount: &Mount) -> bool {
    // Squashed images, of which some systems mount a dozen, cannot be fragmented.
    mount.source.starts_with("/dev/") && mount.fs_type != "squashfs"
}

/// The file system that is mounted there, if it is this one.
fn look(mount: &Mount) -> io::Result<Option<Filesystem>> {
    let fs = file_system_at(mount)?;
    Ok((fs.kind.to_string() == mount.fs_type).then_some(fs))
}

/// The file system that is seen at a mount point: another one may be mounted on top.
pub(crate) fn file_system_at(mount: &Mount) -> io::Result<Filesystem> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let point = open(&mount.point, flags, Mode::empty())?;
    detect(&point, &mount.point).map_err(|error| error.source)
}

fn serve(engines: &Engines, fs: &Filesystem) -> Served {
    let chosen = engines.of(fs);
    Served {
        engine: chosen.engine,
        refused: chosen.refused,
        space: Some((fs.free, fs.total)),
        drive: Drive::of(fs),
    }
}

/// What indef keeps for this user.
#[derive(Clone, Debug)]
pub struct State {
    /// Where.
    pub directory: PathBuf,
    /// It is there.
    pub exists: bool,
    /// Size of all files in it.
    pub bytes: Bytes,
    /// Runs that were stopped with work left, or go on, the oldest first.
    pub runs: Vec<Remnant>,
}

impl State {
    /// How many of the runs go on.
    #[must_use]
    pub fn running(&self) -> u64 {
        self.runs.iter().filter(|run| run.is_running).count() as u64
    }

    /// How many were stopped with work left.
    #[must_use]
    pub fn stopped(&self) -> u64 {
        self.runs.len() as u64 - self.running()
    }
}

/// Look into the state directory; `None` if nothing tells where it belongs.
///
/// # Errors
///
/// It cannot be read.
pub fn state() -> io::Result<Option<State>> {
    let Some(directory) = find_state_directory() else {
        return Ok(None);
    };
    Ok(Some(State {
        exists: directory.is_dir(),
        bytes: size_below(&directory, 0)?,
        runs: remnants(&directory)?,
        directory,
    }))
}

/// Size of all files below a directory of ours, which has one level of folders.
fn size_below(directory: &Path, depth: u32) -> io::Result<Bytes> {
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Bytes::ZERO),
        Err(error) => return Err(error),
    };
    let mut size = Bytes::ZERO;
    for entry in entries {
        let entry = entry?;
        // It may have gone meanwhile.
        let Ok(status) = entry.metadata() else {
            continue;
        };
        size = size.saturating_add(match status.is_dir() && depth < 2 {
            true => size_below(&entry.path(), depth + 1)?,
            false => Bytes(status.len()),
        });
    }
    Ok(size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_system_is_there_once_and_so_is_the_root() {
        let mounted = mounted().unwrap();
        let mut points: Vec<_> = mounted.iter().map(|one| one.mount.point.clone()).collect();
        points.dedup();
        assert_eq!(points.len(), mounted.len());
        for one in &mounted {
            if let Ok(served) = &one.served {
                assert_eq!(served.works(), served.refused.is_none());
            }
        }
        // In a chroot, the root need not be mounted.
        let root = Mount::all().unwrap();
        let root = root.iter().any(|mount| mount.point == Path::new("/"));
        let told = points.iter().any(|point| point == Path::new("/"));
        assert_eq!(told, root, "{points:?}");
    }

    #[test]
    fn files_of_folders_count() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("drives")).unwrap();
        fs::write(dir.path().join("a"), [0; 10]).unwrap();
        fs::write(dir.path().join("drives/b"), [0; 5]).unwrap();
        assert_eq!(size_below(dir.path(), 0).unwrap(), Bytes(15));
        assert_eq!(size_below(&dir.path().join("no"), 0).unwrap(), Bytes::ZERO);
    }
}
