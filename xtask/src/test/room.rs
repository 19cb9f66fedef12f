//! The place of one test: its folder for temporary files, its output, its skips. Everything that a
//! test leaves there ends with it: processes, mounts, loop devices, files.

use std::{
    fs::{self, File, Permissions},
    io::{self, Read, Seek, SeekFrom},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use rustix::{
    mount::UnmountFlags,
    process::{Pid, Signal},
};
use tempfile::TempDir;

/// Number of bytes that are kept of a test's output: its end.
const KEPT_BYTES: u64 = 64 << 10;
/// Time limit for killed processes to be gone.
const GONE: Duration = Duration::from_secs(5);
/// Names the log of skips (see `scratch_fs::skip`). It is a file of this test alone, so it also
/// identifies the test of a process, whatever session or group that has moved to.
const SKIP_LOG: &str = "INDEF_SKIP_LOG";

/// The beginning of the name of a run's folder.
pub(super) const ROOMS: &str = "indef-tests-";

/// Files of this run of the runner.
#[derive(Debug)]
pub(crate) struct Run {
    folder: TempDir,
    rooms: AtomicU64,
}

impl Run {
    pub(crate) fn new() -> Result<Self> {
        let folder = tempfile::Builder::new()
            .prefix(ROOMS)
            .tempdir()
            .context("no folder for temporary files")?;
        // Some tests become another user.
        open_to_all(folder.path(), 0o755)?;
        Ok(Self {
            folder,
            rooms: AtomicU64::new(0),
        })
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The path of a file of this run.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A room for one more test.
    pub(crate) fn room(&self) -> Result<TestRoom> {
        let number = self.rooms.fetch_add(1, Ordering::Relaxed);
        // Short: sockets lie in it, whose paths have at most 107 bytes.
        let temporary = tempfile::Builder::new()
            .prefix("t")
            .tempdir_in(self.folder.path())?;
        open_to_all(temporary.path(), 0o1777)?;
        let skips = self.file(&format!("{number}.skips"));
        File::create(&skips)?;
        open_to_all(&skips, 0o666)?;
        Ok(TestRoom {
            temporary,
            skips,
            output: self.file(&format!("{number}.output")),
        })
    }
}

fn open_to_all(path: &Path, mode: u32) -> io::Result<()> {
    fs::set_permissions(path, Permissions::from_mode(mode))
}

/// The place of one test.
#[derive(Debug)]
pub(crate) struct TestRoom {
    temporary: TempDir,
    skips: PathBuf,
    output: PathBuf,
}

impl TestRoom {
    /// Set up a command to run here.
    pub(crate) fn furnish(&self, command: &mut Command) -> io::Result<()> {
        let output = File::create(&self.output)?;
        command
            .env("TMPDIR", self.temporary.path())
            .env(SKIP_LOG, &self.skips)
            .stdout(output.try_clone()?)
            .stderr(output);
        Ok(())
    }

    /// The end of the output, of both streams in the order in which it arrived.
    pub(crate) fn said(&self) -> io::Result<String> {
        let mut file = File::open(&self.output)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(KEPT_BYTES)))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// The reasons for which it was skipped, if it was: each reason once.
    pub(crate) fn skipped(&self) -> io::Result<Option<String>> {
        let log = fs::read_to_string(&self.skips)?;
        let mut reasons: Vec<&str> = log
            .lines()
            .map(|line| line.split_once('\t').map_or(line, |(_, reason)| reason))
            .collect();
        reasons.sort_unstable();
        reasons.dedup();
        Ok((!reasons.is_empty()).then(|| reasons.join("; ")))
    }

    /// End its remaining processes, mounts and loop devices.
    fn clear(&self) {
        end_processes(&format!("{SKIP_LOG}={}", self.skips.display()));
        for mount in mounts_below(self.temporary.path()) {
            let _ = rustix::mount::unmount(mount, UnmountFlags::DETACH);
        }
        for device in loops_below(self.temporary.path()) {
            let _ = Command::new("losetup").arg("-d").arg(device).status();
        }
        let _ = fs::remove_file(&self.output);
        let _ = fs::remove_file(&self.skips);
    }
}

impl Drop for TestRoom {
    fn drop(&mut self) {
        // The folder itself goes afterwards.
        self.clear();
    }
}

/// End the processes that have this in their environment.
pub(crate) fn end_processes(variable: &str) {
    let asked = Instant::now();
    loop {
        let left = processes_with(variable);
        if left.is_empty() || asked.elapsed() > GONE {
            return;
        }
        for process in left {
            let _ = rustix::process::kill_process(process, Signal::KILL);
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// Whether a process belongs to a test, as its environment says.
pub(crate) fn is_of_a_test(process: Pid) -> bool {
    let marker = format!("{SKIP_LOG}=");
    environment(process.as_raw_pid())
        .split(|byte| *byte == 0)
        .any(|one| one.starts_with(marker.as_bytes()))
}

fn environment(process: i32) -> Vec<u8> {
    fs::read(format!("/proc/{process}/environ")).unwrap_or_default()
}

/// The processes that have this in their environment.
pub(crate) fn processes_with(variable: &str) -> Vec<Pid> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|process| {
            environment(*process)
                .split(|byte| *byte == 0)
                .any(|one| one == variable.as_bytes())
        })
        .filter_map(Pid::from_raw)
        .collect()
}

/// The mount points below a folder, the innermost first.
pub(super) fn mounts_below(folder: &Path) -> Vec<PathBuf> {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mut below: Vec<PathBuf> = table
        .lines()
        .filter_map(|line| line.split(' ').nth(4))
        .map(PathBuf::from)
        .filter(|mount| mount.starts_with(folder))
        .collect();
    below.reverse();
    below
}

/// The loop devices whose files lie, or lay, below a folder.
pub(super) fn loops_below(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir("/sys/block") else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter(|entry| {
            let file = fs::read_to_string(entry.path().join("loop/backing_file"));
            file.is_ok_and(|file| Path::new(file.trim_end()).starts_with(folder))
        })
        .map(|entry| Path::new("/dev").join(entry.file_name()))
        .collect()
}
