//! A flashd that is stopped when it is dropped, and a loop device on its disk.

use std::{
    fs,
    io::{self, BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use units::Bytes;

use crate::{StageError, text};

/// How long flashd may take to have its disk.
const PATIENCE: Duration = Duration::from_secs(60);
/// The first of the loop devices that are tried where the first free one passes no discards on.
const FIRST_OTHER: u32 = 64;
/// How many of them.
const OTHERS: u32 = 64;

/// A process that gets SIGTERM, and time to end.
struct Daemon(Child);

impl Daemon {
    fn stop(&mut self) -> Result<(), StageError> {
        let ended = kill_process(Pid::from_child(&self.0), Signal::TERM)
            .map_err(io::Error::from)
            .and_then(|()| self.0.wait());
        let status = ended.map_err(StageError::io("cannot stop flashd"))?;
        if status.success() {
            Ok(())
        } else {
            Err(StageError::Flashd(status))
        }
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
pub struct Mounted {
    daemon: Daemon,
    flashd: PathBuf,
    folder: TempDir,
}

impl Mounted {
    /// Start this program, with its arguments after `--size`, and wait for its disk.
    ///
    /// # Errors
    ///
    /// It cannot be started, or has no disk; the error has what it said.
    pub fn start(flashd: &Path, size: Bytes, arguments: &[String]) -> Result<Self, StageError> {
        let folder = folder_of_flashd()?;
        let mount_point = folder.path().join("mnt");
        let log = folder.path().join("log");
        let opened = fs::create_dir(&mount_point).and_then(|()| fs::File::create(&log));
        let opened = opened.map_err(StageError::io(log.display().to_string()))?;
        let child = Command::new(flashd)
            .arg("mount")
            .arg(&mount_point)
            .args(["--size", &size.get().to_string()])
            .args(arguments)
            .env("XDG_RUNTIME_DIR", folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(opened)
            .spawn()
            .map_err(|source| StageError::Start {
                program: flashd.to_owned(),
                source,
            })?;
        let mut mounted = Self {
            daemon: Daemon(child),
            flashd: flashd.to_owned(),
            folder,
        };
        let patience = Instant::now() + PATIENCE;
        while !mounted.path().exists() {
            let ended = mounted.daemon.0.try_wait();
            let has_ended = !matches!(ended, Ok(None));
            if has_ended || Instant::now() > patience {
                let said = fs::read_to_string(&log).unwrap_or_default();
                return Err(StageError::NoDisk(said));
            }
            sleep(Duration::from_millis(10));
        }
        Ok(mounted)
    }

    /// The disk as a file.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.folder.path().join("mnt/disk")
    }

    /// What `flashd stats --json` prints.
    ///
    /// # Errors
    ///
    /// It has ended, or prints no JSON.
    pub fn stats(&self) -> Result<serde_json::Value, StageError> {
        let mut command = Command::new(&self.flashd);
        command.args(["stats", "--json"]);
        command.env("XDG_RUNTIME_DIR", self.folder.path());
        let text = text(&mut command)?;
        serde_json::from_str(&text).map_err(|_| StageError::Said {
            what: "flashd stats".to_owned(),
            text,
        })
    }

    /// End it.
    ///
    /// # Errors
    ///
    /// It ends with an error.
    pub fn stop(mut self) -> Result<(), StageError> {
        self.daemon.stop()
    }
}

/// `flashd serve` on a free port of loopback.
pub struct Served {
    daemon: Daemon,
    /// Where it listens.
    pub address: String,
    /// The name of its subsystem.
    pub nqn: String,
    _folder: TempDir,
}

impl Served {
    /// Start this program, with its arguments after `--listen`.
    ///
    /// # Errors
    ///
    /// It cannot be started, or tells no address.
    pub fn start(flashd: &Path, arguments: &[String]) -> Result<Self, StageError> {
        let folder = folder_of_flashd()?;
        let child = Command::new(flashd)
            .args(["serve", "--listen", "127.0.0.1:0"])
            .args(arguments)
            .env("XDG_RUNTIME_DIR", folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|source| StageError::Start {
                program: flashd.to_owned(),
                source,
            })?;
        let mut daemon = Daemon(child);
        let said = daemon.0.stdout.take().ok_or(StageError::NotServed)?;
        let mut line = String::new();
        BufReader::new(said)
            .read_line(&mut line)
            .map_err(StageError::io("cannot read what flashd serve prints"))?;
        let words = line.trim().split_once(' ');
        let (address, nqn) = words.ok_or(StageError::NotServed)?;
        Ok(Self {
            address: address.to_owned(),
            nqn: nqn.to_owned(),
            daemon,
            _folder: folder,
        })
    }

    /// End it.
    ///
    /// # Errors
    ///
    /// It ends with an error.
    pub fn stop(mut self) -> Result<(), StageError> {
        self.daemon.stop()
    }
}

/// Where a flashd has its socket, and what else is its own.
fn folder_of_flashd() -> Result<TempDir, StageError> {
    tempfile::tempdir().map_err(StageError::io("cannot make a folder for flashd"))
}

/// A loop device, as `/dev/loop3`, that is detached when it is dropped.
pub struct Loop(pub String);

impl Loop {
    /// The first free one.
    ///
    /// # Errors
    ///
    /// The output of a failed `losetup`.
    pub fn attach(disk: &Path) -> Result<Self, StageError> {
        let mut command = Command::new("losetup");
        command.args(["--direct-io=on", "-b", "4096", "-f", "--show"]);
        Ok(Self(text(command.arg(disk))?.trim().to_owned()))
    }

    /// One that passes discards on: the first free one, or a later one where somebody has forbidden them to that
    /// (`discard_max_bytes` 0, which Linux 6.18 does not take back).
    ///
    /// # Errors
    ///
    /// The output of a failed `losetup`; or no device does.
    pub fn with_discards(disk: &Path) -> Result<Self, StageError> {
        let first = Self::attach(disk)?;
        if first.passes_discards() {
            return Ok(first);
        }
        drop(first);
        for number in FIRST_OTHER..FIRST_OTHER + OTHERS {
            let device = format!("/dev/loop{number}");
            let mut command = Command::new("losetup");
            command.args(["--direct-io=on", "-b", "4096", &device]);
            // One that somebody has is refused.
            if text(command.arg(disk)).is_ok() {
                let other = Self(device);
                if other.passes_discards() {
                    return Ok(other);
                }
            }
        }
        Err(StageError::NoDiscards)
    }

    fn passes_discards(&self) -> bool {
        let file = format!("/sys/block/{}/queue/discard_max_bytes", self.name());
        fs::read_to_string(file).is_ok_and(|most| most.trim() != "0")
    }

    /// As sysfs has it.
    pub(crate) fn name(&self) -> &str {
        self.0.trim_start_matches("/dev/")
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["-d", &self.0]).status();
    }
}
