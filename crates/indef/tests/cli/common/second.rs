use std::{fs::File, process::Command};

use units::Bytes;

use super::Run;

/// A loop device on a file of its own, for a file system on two devices, which has to be dropped first.
pub(crate) struct Second {
    pub(crate) device: String,
    _folder: tempfile::TempDir,
}

impl Second {
    pub(crate) fn of(size: Bytes) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("image");
        let file = File::create(&image).unwrap();
        file.set_len(size.get()).unwrap();
        let ran = Command::new("losetup")
            .args(["--show", "-f"])
            .arg(&image)
            .ran();
        assert_eq!(ran.status, 0, "{ran:?}");
        Self {
            device: ran.out.trim().to_owned(),
            _folder: folder,
        }
    }
}

impl Drop for Second {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["-d", &self.device]).status();
    }
}
