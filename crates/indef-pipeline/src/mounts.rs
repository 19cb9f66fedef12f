//! The mounted file systems that a run can work on.

use std::{
    collections::HashMap,
    fs, io,
    path::{Path, PathBuf},
};

use indef_fs::{Drive, Filesystem, Mount};

use crate::{
    doctor::{file_system_at, is_served},
    engines::Engines,
};

/// The mount points of the file systems that are mounted for writing and have an engine that this user may use, each
/// file system once, and each mounted subvolume of Btrfs; by name. Network file systems, overlays and file systems
/// in memory have no engine, and are not asked for anything. Drives that somebody may unplug are left out, but for the
/// one that the system itself is on.
///
/// # Errors
///
/// There is no mount table.
pub fn all_mounts() -> io::Result<Vec<PathBuf>> {
    let engines = Engines::new(None, false);
    let mounts = Mount::all()?.into_iter();
    let usable = mounts.filter_map(|mount| Some((look(&engines, &mount)?, mount)));
    let usable: Vec<_> = usable
        .map(|(fs, mount)| (fs.dev, mount, Drive::of(&fs)))
        .collect();
    let of_system = (usable.iter())
        .find(|(_, mount, _)| mount.point == Path::new("/"))
        .and_then(|(_, _, drive)| drive.clone());
    let stays = |drive: &Option<Drive>| match drive {
        Some(drive) => !drive.is_removable() || Some(drive) == of_system.as_ref(),
        None => true,
    };
    let kept = usable.into_iter().filter(|(_, _, drive)| stays(drive));
    Ok(each_once(kept.map(|(dev, mount, _)| (dev, mount))))
}

/// The file system of a mount, if a run can work there.
fn look(engines: &Engines, mount: &Mount) -> Option<Filesystem> {
    if !is_served(mount) || mount.has_option("ro") {
        return None;
    }
    // Containers have single files mounted.
    if !fs::symlink_metadata(&mount.point).is_ok_and(|status| status.is_dir()) {
        return None;
    }
    let fs = file_system_at(mount).ok()?;
    // Else another one is mounted on top of it.
    let is_on_top = (fs.mount.as_ref()).is_some_and(|seen| seen.id == mount.id);
    let chosen = engines.of(&fs);
    (is_on_top && chosen.engine.is_some() && chosen.refused.is_none()).then_some(fs)
}

/// The points of mounts with their device numbers: of several that show the same files, the one that shows most.
fn each_once(mounts: impl Iterator<Item = (u64, Mount)>) -> Vec<PathBuf> {
    let mut by_device: HashMap<u64, Vec<Mount>> = HashMap::new();
    for (dev, mount) in mounts {
        by_device.entry(dev).or_default().push(mount);
    }
    let mut points = Vec::new();
    for mut mounts in by_device.into_values() {
        // Stable: of equals the one that was mounted first.
        mounts.sort_by_key(|mount| mount.root.components().count());
        let mut kept: Vec<&Mount> = Vec::new();
        for mount in &mounts {
            if kept
                .iter()
                .all(|other| !mount.root.starts_with(&other.root))
            {
                kept.push(mount);
            }
        }
        points.extend(kept.into_iter().map(|mount| mount.point.clone()));
    }
    points.sort();
    points
}

#[cfg(test)]
mod tests {
    use rustix::mount::{MountFlags, UnmountFlags, mount_bind, mount_remount, unmount};
    use scratch_fs::{ScratchFs, require};
    use units::Bytes;

    use super::*;

    fn mount(root: &str, point: &str) -> Mount {
        Mount {
            id: 1,
            root: root.into(),
            point: point.into(),
            fs_type: "ext4".into(),
            source: "/dev/sda1".into(),
            options: vec!["rw".into()],
        }
    }

    #[test]
    fn of_several_mounts_of_the_same_files_there_is_one() {
        let mounts = [
            (1, mount("/home/x", "/x")),
            (1, mount("/", "/")),
            (1, mount("/", "/mnt/again")),
            // Subvolumes have device numbers of their own.
            (2, mount("/@home", "/home")),
            (2, mount("/@home/y", "/y")),
            // In a container all of it is not to be seen.
            (3, mount("/a", "/mnt/a")),
            (3, mount("/ab", "/mnt/b")),
        ];
        let expected = ["/", "/home", "/mnt/a", "/mnt/b"].map(PathBuf::from);
        assert_eq!(each_once(mounts.into_iter()), expected);
    }

    #[test]
    fn loop_what_is_mounted_for_writing_is_found_once() {
        let made = ScratchFs::builder("ext4", Bytes::mib(64)).build();
        let Some(mut scratch) = require(made) else {
            return;
        };
        fs::create_dir(scratch.path().join("below")).unwrap();
        let (whole, elsewhere) = (scratch.path().to_owned(), tempfile::tempdir().unwrap());
        mount_bind(whole.join("below"), elsewhere.path()).unwrap();
        let found = all_mounts().unwrap();
        let flags = MountFlags::BIND | MountFlags::RDONLY;
        let for_reading = mount_remount(&whole, flags, "").map(|()| all_mounts().unwrap());
        let unmounted = unmount(elsewhere.path(), UnmountFlags::empty());
        assert_eq!(found.iter().filter(|point| **point == whole).count(), 1);
        assert!(!found.iter().any(|point| *point == elsewhere.path()));
        assert!(!found.iter().any(|point| point.starts_with("/proc")));
        // Of the two mounts the other one is for writing.
        let found = for_reading.unwrap();
        assert!(!found.contains(&whole), "{found:?}");
        assert!(found.iter().any(|point| *point == elsewhere.path()));
        unmounted.unwrap();
        scratch.remount().unwrap();
    }

    #[test]
    fn mounts_without_a_device_or_for_reading_are_left_out() {
        let engines = Engines::new(None, false);
        let of = |mount: Mount| look(&engines, &mount).is_some();
        for fs_type in ["tmpfs", "overlay", "nfs4", "proc", "fuse.sshfs"] {
            let fs_type = fs_type.into();
            assert!(!of(Mount {
                fs_type,
                ..mount("/", "/")
            }));
        }
        let options = vec!["ro".into()];
        assert!(!of(Mount {
            options,
            ..mount("/", "/")
        }));
        // What is there is not this mount.
        assert!(!of(Mount {
            id: u64::MAX,
            ..mount("/", "/")
        }));
    }
}
