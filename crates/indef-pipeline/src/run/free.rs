//! The free space of file systems, before and after.

use std::{collections::BTreeMap, os::fd::OwnedFd};

use rustix::fs::{fstatvfs, syncfs};

use super::claim::FileSystemOf;

/// File systems of which the free space is asked for, by a planned file of each, which is opened once.
pub(super) struct FreeSpace(Option<Vec<OwnedFd>>);

impl FreeSpace {
    /// Of these file systems.
    pub(super) fn on(file_systems: &[FileSystemOf]) -> Self {
        let once: BTreeMap<_, _> = file_systems.iter().map(|of| (&of.key, of)).collect();
        let open = |of: &FileSystemOf| of.file.open_to_map().ok();
        Self(once.into_values().map(open).collect())
    }

    /// Free bytes in all, with everything written back and committed. `None` where there is no file system, or one
    /// cannot tell.
    pub(super) fn bytes(&self) -> Option<u64> {
        let free = |file: &OwnedFd| {
            syncfs(file).ok()?;
            let space = fstatvfs(file).ok()?;
            Some(space.f_bfree.saturating_mul(space.f_frsize))
        };
        let files = self.0.as_ref().filter(|files| !files.is_empty())?;
        files.iter().map(free).sum()
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink, path::PathBuf};

    use indef_core::plan::FilePlan;
    use indef_fs::{Mounts, Root, Roots};
    use scratch_fs::{ScratchFs, require};
    use units::Bytes;

    use super::{super::claim::file_systems, *};

    fn plan(root: PathBuf, below: &str) -> FilePlan {
        let entry = Root::open(&root, Mounts::Stay).unwrap();
        let id = entry.find(below.as_ref()).unwrap().id();
        FilePlan {
            path: root.join(below),
            root_len: Some(root.as_os_str().len()),
            dev: id.dev,
            inode: id.inode,
            born: None,
            size: Bytes(7),
            block_size: Bytes::kib(4),
            fs: "ext4".into(),
            engine: None,
            extents_before: 1,
            named: None,
            skip: None,
            chunks: Vec::new(),
        }
    }

    /// A user who swaps directories does not have another file system written back, or taken for this one.
    #[test]
    fn loop_the_file_system_of_the_planned_file_is_meant() {
        let made = ScratchFs::builder("ext4", Bytes::mib(64)).build();
        let Some(scratch) = require(made) else {
            return;
        };
        let dir = scratch.path().join("dir");
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join("file"), "content").unwrap();
        let planned = [plan(dir.clone(), "file")];
        let found = file_systems(&Roots::new(), &planned);
        fs::rename(&dir, scratch.path().join("away")).unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        symlink(elsewhere.path(), &dir).unwrap();
        let space = FreeSpace::on(&found);
        let (bytes, here) = (
            space.bytes().unwrap(),
            rustix::fs::statvfs(scratch.path()).unwrap(),
        );
        assert_eq!(bytes, here.f_bfree * here.f_frsize);
        assert_eq!(FreeSpace::on(&[]).bytes(), None);
    }
}
