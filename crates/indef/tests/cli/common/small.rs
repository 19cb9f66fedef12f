//! A file system that is soon full.

use std::{fs::File, io::Write, path::Path, process::Command};

use tempfile::TempDir;

/// 512 KiB of tmpfs, unmounted when dropped.
pub(crate) struct Small(TempDir);

impl Small {
    /// `None` without root.
    pub(crate) fn new() -> Option<Self> {
        if !super::is_root() {
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=512k", "tmpfs"])
            .arg(dir.path())
            .status();
        assert!(mounted.unwrap().success());
        Some(Self(dir))
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    /// Fill it to the last page with a file of this name.
    pub(crate) fn fill(&self, name: &str) {
        let mut ballast = File::create(self.path().join(name)).unwrap();
        while ballast.write_all(&[1; 4096]).is_ok() {}
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.path()).status();
    }
}
