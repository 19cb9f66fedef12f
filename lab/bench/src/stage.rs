//! A file system on a loop device, whose file lies on this machine's disk or on flashd.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result};
use tempfile::TempDir;
use units::Bytes;

use crate::{
    daemon::{Loop, Mounted},
    measure::text,
};

/// See the module. Taken down when it is dropped: unmounted, then its fields in their order.
pub(super) struct Stage {
    mounted: bool,
    _device: Loop,
    _flashd: Option<Mounted>,
    folder: TempDir,
}

impl Stage {
    /// ext4 on this device: `loop`, or a profile of flashd.
    pub(super) fn new(device: &str, size: Bytes, images: &Path, time_scale: f64) -> Result<Self> {
        let folder = tempfile::tempdir_in(images)?;
        let (flashd, disk) = match device {
            "loop" => {
                let disk = folder.path().join("disk");
                fs::File::create(&disk)?.set_len(size.get())?;
                (None, disk)
            }
            profile => {
                let arguments = [
                    "--profile",
                    profile,
                    "--time-scale",
                    &time_scale.to_string(),
                ];
                let program = source_tree::release_binary("flashd")?;
                let flashd = Mounted::start(&program, size, &arguments.map(str::to_owned))?;
                let disk = flashd.path();
                (Some(flashd), disk)
            }
        };
        let device = Loop::attach(&disk)?;
        let name = device.0.clone();
        let mut stage = Self {
            mounted: false,
            _device: device,
            _flashd: flashd,
            folder,
        };
        fs::create_dir(stage.path())?;
        text(Command::new("mkfs.ext4").args(["-q", "-E", "nodiscard,lazy_itable_init=0", &name]))?;
        text(
            Command::new("mount")
                .args(["-o", "noatime", &name])
                .arg(stage.path()),
        )?;
        stage.mounted = true;
        Ok(stage)
    }

    /// Where it is mounted.
    pub(super) fn path(&self) -> PathBuf {
        self.folder.path().join("mounted")
    }

    /// Write everything back and drop everything that is cached.
    pub(super) fn drop_caches(&self) -> Result<()> {
        text(Command::new("sync").arg("-f").arg(self.path()))?;
        fs::write("/proc/sys/vm/drop_caches", "3").context("cannot drop caches")
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        if self.mounted
            && let Err(error) = text(Command::new("umount").arg(self.path()))
        {
            eprintln!("{error:#}");
        }
    }
}
