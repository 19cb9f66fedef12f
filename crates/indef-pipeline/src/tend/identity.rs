//! Which file system it is that a path leads to: mount points outlive what is mounted there.

use std::{
    io,
    path::{Path, PathBuf},
};

use indef_fs::FileSystemKey;
use rustix::fs::{Mode, OFlags, fstat, open};

use crate::place::places;

/// A file system, as it was found.
#[derive(Clone, Debug)]
pub(super) struct Identity {
    key: FileSystemKey,
    /// Device numbers are given again: what is mounted next may have the same one.
    uuid: Option<String>,
}

impl Identity {
    /// The file system that has this key, and these paths.
    pub(super) fn new(key: FileSystemKey, paths: &[PathBuf]) -> Self {
        Self {
            key,
            uuid: uuid(paths),
        }
    }

    /// Whether these paths still lead to it.
    pub(super) fn is_at(&self, paths: &[PathBuf]) -> bool {
        let is_it = |path: &PathBuf| found(path).is_ok_and(|(_, key)| key == self.key);
        // Where udev does not tell both, the key alone decides.
        let is_other = match (&self.uuid, uuid(paths)) {
            (Some(then), Some(now)) => *then != now,
            _ => false,
        };
        paths.iter().all(is_it) && !is_other
    }
}

/// The device number and the key of the file system that a path leads to.
pub(super) fn found(path: &Path) -> io::Result<(u64, FileSystemKey)> {
    // Opened only to find its file system: opening a device may have effects.
    let file = open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    Ok((fstat(&file)?.st_dev, FileSystemKey::of(file)?))
}

fn uuid(paths: &[PathBuf]) -> Option<String> {
    places(paths).into_iter().find_map(|place| place.uuid)
}

#[cfg(test)]
mod tests {
    use scratch_fs::{ScratchFs, require};
    use units::Bytes;

    use super::*;

    #[test]
    fn loop_what_is_mounted_over_or_gone_is_another_one() {
        let made = || require(ScratchFs::builder("ext4", Bytes::mib(64)).build());
        let (Some(one), Some(other)) = (made(), made()) else {
            return;
        };
        let of = |paths: &[PathBuf]| Identity::new(found(&paths[0]).unwrap().1, paths);
        let (here, there) = ([one.path().to_owned()], [other.path().to_owned()]);
        let identity = of(&here);
        assert!(identity.is_at(&here) && !identity.is_at(&there));
        assert!(!identity.is_at(&[here[0].clone(), there[0].clone()]));
        assert!(!of(&there).is_at(&[there[0].join("gone")]));
        // The same device number, and another UUID.
        let formatted = |uuid: Option<&str>| Identity {
            uuid: uuid.map(str::to_owned),
            ..identity.clone()
        };
        assert!(formatted(None).is_at(&here));
        assert_eq!(formatted(Some("other")).is_at(&here), uuid(&here).is_none());
    }
}
