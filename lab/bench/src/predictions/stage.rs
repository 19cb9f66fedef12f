//! A file system on a loop device, whose file lies on this machine's disk or on flashd.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use tempfile::TempDir;
use units::Bytes;

/// How long flashd may take to appear: it touches all its memory first.
const PATIENCE: Duration = Duration::from_secs(60);

/// See the module. Taken down when it is dropped.
pub(super) struct Stage {
    loop_device: Option<String>,
    mounted: bool,
    flashd: Option<Child>,
    folder: TempDir,
}

impl Stage {
    /// ext4 on this device: `loop`, or a profile of flashd.
    pub(super) fn new(device: &str, size: Bytes, images: &Path, time_scale: f64) -> Result<Self> {
        let mut stage = Self {
            loop_device: None,
            mounted: false,
            flashd: None,
            folder: tempfile::tempdir_in(images)?,
        };
        fs::create_dir(stage.path())?;
        let disk = match device {
            "loop" => {
                let disk = stage.folder.path().join("disk");
                fs::File::create(&disk)?.set_len(size.get())?;
                disk
            }
            profile => stage.start_flashd(profile, size, time_scale)?,
        };
        let attached = run(Command::new("losetup")
            .args(["--find", "--show", "--direct-io=on", "-b", "4096"])
            .arg(&disk))?;
        let device = attached.trim().to_owned();
        stage.loop_device = Some(device.clone());
        run(Command::new("mkfs.ext4").args(["-q", "-E", "nodiscard,lazy_itable_init=0", &device]))?;
        run(Command::new("mount")
            .args(["-o", "noatime", &device])
            .arg(stage.path()))?;
        stage.mounted = true;
        Ok(stage)
    }

    fn start_flashd(&mut self, profile: &str, size: Bytes, time_scale: f64) -> Result<PathBuf> {
        let folder = self.folder.path().join("flashd");
        fs::create_dir(&folder)?;
        let child = Command::new(source_tree::release_binary("flashd")?)
            .arg("mount")
            .arg(&folder)
            .args(["--profile", profile, "--size", &size.get().to_string()])
            .args(["--time-scale", &time_scale.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .context("cannot start flashd")?;
        self.flashd = Some(child);
        let disk = folder.join("disk");
        let began = Instant::now();
        while !disk.exists() {
            let flashd = self.flashd.as_mut().context("flashd was started")?;
            if let Some(status) = flashd.try_wait()? {
                bail!("flashd mount --profile {profile}: {status}");
            }
            ensure!(began.elapsed() < PATIENCE, "flashd does not appear");
            sleep(Duration::from_millis(50));
        }
        Ok(disk)
    }

    /// Where it is mounted.
    pub(super) fn path(&self) -> PathBuf {
        self.folder.path().join("mounted")
    }

    /// Write everything back and drop everything that is cached.
    pub(super) fn drop_caches(&self) -> Result<()> {
        run(Command::new("sync").arg("-f").arg(self.path()))?;
        fs::write("/proc/sys/vm/drop_caches", "3").context("cannot drop caches")
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let told = |result: Result<String>| {
            if let Err(error) = result {
                eprintln!("{error:#}");
            }
        };
        if self.mounted {
            told(run(Command::new("umount").arg(self.path())));
        }
        if let Some(device) = &self.loop_device {
            told(run(Command::new("losetup").args(["--detach", device])));
        }
        if let Some(mut flashd) = self.flashd.take() {
            // It ends by itself once nothing is mounted there.
            told(run(
                Command::new("umount").arg(self.folder.path().join("flashd"))
            ));
            let _ = flashd.wait();
        }
    }
}

fn run(command: &mut Command) -> Result<String> {
    let output = command
        .env("PATH", super::super::measure::path_with_sbin())
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot run {command:?}"))?;
    ensure!(
        output.status.success(),
        "{command:?}: {}: {}",
        output.status,
        String::from_utf8_lossy(&output.stderr).trim_end()
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
