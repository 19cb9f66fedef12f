//! A flashd that is stopped when it is dropped, and a loop device on its disk.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use units::Bytes;

use crate::measure::text;

/// A process that gets SIGTERM, and time to end.
struct Daemon(Child);

impl Daemon {
    fn stop(&mut self) -> Result<()> {
        kill_process(Pid::from_child(&self.0), Signal::TERM)?;
        let status = self.0.wait()?;
        ensure!(status.success(), "flashd: {status}");
        Ok(())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if matches!(self.0.try_wait(), Ok(None)) {
            let _ = self.stop();
        }
    }
}

/// `flashd mount`, in memory.
pub(super) struct Mounted {
    daemon: Daemon,
    flashd: PathBuf,
    folder: TempDir,
}

impl Mounted {
    pub(super) fn start(flashd: &Path, size: Bytes, arguments: &[String]) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let mount_point = folder.path().join("mnt");
        fs::create_dir(&mount_point)?;
        let child = Command::new(flashd)
            .arg("mount")
            .arg(&mount_point)
            .args(["--size", &size.get().to_string()])
            .args(arguments)
            .env("XDG_RUNTIME_DIR", folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(folder.path().join("log"))?)
            .spawn()
            .with_context(|| format!("cannot run {}", flashd.display()))?;
        let mut mounted = Self {
            daemon: Daemon(child),
            flashd: flashd.to_owned(),
            folder,
        };
        let patience = Instant::now() + Duration::from_secs(60);
        while !mounted.path().exists() {
            if mounted.daemon.0.try_wait()?.is_some() || Instant::now() > patience {
                let log = fs::read_to_string(mounted.folder.path().join("log"))?;
                bail!("flashd mount has no disk: {log}");
            }
            sleep(Duration::from_millis(10));
        }
        Ok(mounted)
    }

    /// The disk as a file.
    pub(super) fn path(&self) -> PathBuf {
        self.folder.path().join("mnt/disk")
    }

    pub(super) fn stats(&self) -> Result<serde_json::Value> {
        let mut command = Command::new(&self.flashd);
        command.args(["stats", "--json"]);
        command.env("XDG_RUNTIME_DIR", self.folder.path());
        Ok(serde_json::from_str(&text(&mut command)?)?)
    }

    pub(super) fn stop(mut self) -> Result<()> {
        self.daemon.stop()
    }
}

/// `flashd serve` on a free port of loopback.
pub(super) struct Served {
    daemon: Daemon,
    pub(super) address: String,
    pub(super) nqn: String,
    _folder: TempDir,
}

impl Served {
    pub(super) fn start(flashd: &Path, arguments: &[String]) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let child = Command::new(flashd)
            .args(["serve", "--listen", "127.0.0.1:0"])
            .args(arguments)
            .env("XDG_RUNTIME_DIR", folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("cannot run {}", flashd.display()))?;
        let mut daemon = Daemon(child);
        let said = daemon.0.stdout.take().context("a pipe was asked for")?;
        let mut line = String::new();
        BufReader::new(said).read_line(&mut line)?;
        let (address, nqn) = line
            .trim()
            .split_once(' ')
            .context("flashd serve has not begun")?;
        Ok(Self {
            address: address.to_owned(),
            nqn: nqn.to_owned(),
            daemon,
            _folder: folder,
        })
    }

    pub(super) fn stop(mut self) -> Result<()> {
        self.daemon.stop()
    }
}

/// A loop device that is detached when it is dropped.
pub(super) struct Loop(pub(super) String);

impl Loop {
    pub(super) fn attach(disk: &Path) -> Result<Self> {
        let mut command = Command::new("losetup");
        command.args(["--direct-io=on", "-b", "4096", "-f", "--show"]);
        Ok(Self(text(command.arg(disk))?.trim().to_owned()))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["-d", &self.0]).status();
    }
}
