//! Scratch file systems that killed tests have left: their mounts, loop devices and folders go when the next run begins.
//!
//! A folder of such a name may be anybody's. One is ours only if nobody but root can have made it as it is: it is root's,
//! nobody else may write to it, and it has root's file `owner`, which is locked as long as the process lives that made it
//! (`loop_fs`). What somebody still uses stays, with everything around it: a mount that is busy, or a device that is mounted
//! elsewhere.

use std::{
    fs::{self, File, Metadata},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    process::Command,
};

use rustix::{
    fs::{FlockOperation, OFlags, flock},
    mount::{UnmountFlags, unmount},
};

use super::room::{ROOMS, loops_below, mounts_below};

/// The beginning of their names (`loop_fs`).
const SCRATCH: &str = "indef-scratch-";

/// Clear away what is abandoned in a folder for temporary files, and in the rooms of earlier runs there. Returns what is
/// gone.
pub(crate) fn clear(temporary: &Path) -> Vec<PathBuf> {
    let rooms = below(temporary, ROOMS);
    let places = rooms.iter().flat_map(|run| below(run, "t"));
    let scratch = std::iter::once(temporary.to_owned())
        .chain(places)
        .flat_map(|place| below(&place, SCRATCH));
    scratch
        .filter(|folder| clear_one(folder).is_some())
        .collect()
}

/// The folders of root in a folder whose names begin so.
fn below(folder: &Path, prefix: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let named = entries.filter(|entry| {
        let name = entry.file_name();
        name.to_str().is_some_and(|name| name.starts_with(prefix))
    });
    // No link is followed.
    let roots = named.filter(|entry| {
        entry
            .metadata()
            .is_ok_and(|of| of.is_dir() && is_roots(&of))
    });
    roots.map(|entry| entry.path()).collect()
}

fn is_roots(metadata: &Metadata) -> bool {
    metadata.uid() == 0
}

/// The lock of a folder, if it is one of ours that nobody has.
fn abandoned(folder: &Path) -> Option<File> {
    if fs::symlink_metadata(folder).ok()?.mode() & 0o022 != 0 {
        return None;
    }
    let mut options = File::options();
    let options = options
        .read(true)
        .custom_flags(OFlags::NOFOLLOW.bits() as i32);
    let file = options.open(folder.join("owner")).ok()?;
    let metadata = file.metadata().ok()?;
    if !metadata.is_file() || !is_roots(&metadata) {
        return None;
    }
    flock(&file, FlockOperation::NonBlockingLockExclusive).ok()?;
    Some(file)
}

/// Clear a folder away, if it is abandoned and nobody uses anything of it.
fn clear_one(folder: &Path) -> Option<()> {
    let _lock = abandoned(folder)?;
    for mount in mounts_below(folder) {
        // Refused where it is busy.
        unmount(mount, UnmountFlags::NOFOLLOW).ok()?;
    }
    for device in loops_below(folder) {
        // A disk that is mounted, in whatever namespace, refuses O_EXCL (open(2)).
        let mut options = File::options();
        let options = options.read(true).custom_flags(OFlags::EXCL.bits() as i32);
        options.open(&device).ok()?;
        let detached = Command::new("losetup")
            .arg("-d")
            .arg(&device)
            .status()
            .ok()?;
        detached.success().then_some(())?;
    }
    // Nothing may be deleted through a mount.
    mounts_below(folder).is_empty().then_some(())?;
    fs::remove_dir_all(folder).ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, chown};

    use scratch_fs::{ScratchFs, require};
    use units::Bytes;

    use super::*;

    /// Tells a child where to leave a file system.
    const LEAVE: &str = "INDEF_LEAVE_IN";

    fn build(folder: &Path) -> Option<ScratchFs> {
        require(
            ScratchFs::builder("ext4", Bytes::mib(16))
                .folder(folder)
                .build(),
        )
    }

    /// Have a child leave a file system that is mounted. Returns its folder.
    fn leave(folder: &Path) -> PathBuf {
        let before = below(folder, SCRATCH);
        let this = "test::abandoned::tests::loop_what_killed_tests_left_goes_and_nothing_else";
        let mut child = Command::new(std::env::current_exe().unwrap());
        let ended = child.args(["--exact", this]).env(LEAVE, folder).status();
        assert!(ended.unwrap().success());
        let mut left = below(folder, SCRATCH);
        left.retain(|one| !before.contains(one));
        assert_eq!(left.len(), 1, "{left:?}");
        assert_eq!(mounts_below(&left[0]).len(), 1);
        left.remove(0)
    }

    #[test]
    fn loop_what_killed_tests_left_goes_and_nothing_else() {
        if let Some(folder) = std::env::var_os(LEAVE) {
            let _left = build(Path::new(&folder));
            // Without a destructor, as by SIGKILL.
            std::process::exit(0);
        }
        let temporary = tempfile::tempdir().unwrap();
        let temporary = temporary.path();
        let Some(alive) = build(temporary) else {
            return;
        };
        let room = temporary.join(format!("{ROOMS}a/t1"));
        fs::create_dir_all(&room).unwrap();
        let (plain, of_room, busy) = (leave(temporary), leave(&room), leave(temporary));
        let user = File::open(busy.join("mnt")).unwrap();
        // Like ours, but for one thing each: no file, somebody else's file, somebody else's folder, open to all.
        let others = ["none", "file", "folder", "open"].map(|name| {
            let other = temporary.join(format!("{SCRATCH}{name}"));
            fs::create_dir(&other).unwrap();
            fs::set_permissions(&other, fs::Permissions::from_mode(0o755)).unwrap();
            if name != "none" {
                fs::write(other.join("owner"), "").unwrap();
            }
            other
        });
        chown(others[1].join("owner"), Some(65534), None).unwrap();
        chown(&others[2], Some(65534), None).unwrap();
        fs::set_permissions(&others[3], fs::Permissions::from_mode(0o777)).unwrap();

        let mut gone = clear(temporary);
        gone.sort();
        let mut expected = [plain.clone(), of_room.clone()];
        expected.sort();
        assert_eq!(gone, expected);
        for folder in &expected {
            assert!(!folder.exists() && mounts_below(folder).is_empty());
            assert!(loops_below(folder).is_empty());
        }
        assert!(others.iter().all(|other| other.exists()));
        assert!(busy.join("image").exists() && mounts_below(&busy).len() == 1);
        fs::write(alive.path().join("file"), "still there").unwrap();
        drop(user);
        assert_eq!(clear(temporary), [busy]);
        assert!(alive.image().exists());
    }
}
