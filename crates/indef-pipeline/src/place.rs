//! The file systems that paths are on, by names that outlive this boot.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use indef_fs::{Drive, FsKind, Mount};

use crate::geometry::file_systems;

/// Where udev names file systems by what their superblocks say.
const BY_UUID: &str = "/dev/disk/by-uuid";

/// A file system, and what is below it.
#[derive(Clone, Debug)]
pub struct Place {
    /// Its kind.
    pub kind: FsKind,
    /// Its UUID, where udev tells it.
    pub uuid: Option<String>,
    /// Its entry in the mount table, where `/proc` shows one.
    pub mount: Option<Mount>,
    /// The drive, where the kernel tells it.
    pub drive: Option<Drive>,
}

/// The file systems that these paths are on, each once, in the order of the paths. What cannot be opened is left out.
#[must_use]
pub fn places(paths: &[PathBuf]) -> Vec<Place> {
    file_systems(paths)
        .into_iter()
        .map(|(_, fs)| Place {
            uuid: fs.mount.as_ref().and_then(|mount| uuid(&mount.source)),
            drive: Drive::of(&fs),
            kind: fs.kind,
            mount: fs.mount,
        })
        .collect()
}

/// The UUID of the file system on this block device.
fn uuid(device: &Path) -> Option<String> {
    if !device.is_absolute() {
        return None;
    }
    let number = |path: &Path| fs::metadata(path).ok().map(|status| status.rdev());
    let wanted = number(device).filter(|number| *number != 0)?;
    fs::read_dir(BY_UUID).ok()?.flatten().find_map(|entry| {
        let is_it = number(&entry.path()) == Some(wanted);
        is_it.then(|| entry.file_name().to_string_lossy().into_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_is_told_once_and_what_is_not_there_not_at_all() {
        let dir = tempfile::tempdir().unwrap();
        let paths = [
            dir.path().to_owned(),
            dir.path().join("no"),
            dir.path().to_owned(),
        ];
        assert_eq!(places(&paths).len(), 1);
        assert!(places(&[]).is_empty());
    }

    #[test]
    fn only_a_device_has_a_uuid() {
        for path in ["tmpfs", "/", "/dev/null/x"] {
            assert_eq!(uuid(Path::new(path)), None);
        }
    }
}
