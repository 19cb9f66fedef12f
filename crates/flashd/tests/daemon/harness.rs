//! A daemon with a mounted disk, for tests that kill it; and the layers on top of it.

use std::{
    fs::{self, File},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Output, Stdio},
    time::{Duration, Instant},
};

use scratch_fs::{require_program, skip};

/// A `flashd mount` that is killed when it is dropped.
pub(crate) struct Daemon {
    child: Option<Child>,
    folder: PathBuf,
    /// Number of its FUSE connection; asking for it later could wait for the daemon.
    connection: u32,
}

/// Whether this machine can mount FUSE and attach loop devices; if not, the skip is reported.
#[must_use]
pub(crate) fn can_mount() -> bool {
    if !rustix::process::geteuid().is_root() {
        skip("it needs root (FUSE, loop devices)");
        return false;
    }
    if !Path::new("/dev/fuse").exists() {
        skip("this kernel has no FUSE");
        return false;
    }
    true
}

/// Whether a file system can be made and checked here; if not, the skip is reported.
#[must_use]
pub(crate) fn can_make(kind: &str) -> bool {
    let supported = fs::read_to_string("/proc/filesystems").unwrap();
    if !supported.lines().any(|line| line.trim() == kind) {
        skip(&format!("this kernel has no {kind}"));
        return false;
    }
    require_program(&format!("mkfs.{kind}"))
}

impl Daemon {
    /// Start it in `folder`, where its disk (`mnt/disk`), log and control socket are.
    pub(crate) fn start(folder: &Path, arguments: &[&str]) -> Self {
        Self::start_by(
            Command::new(env!("CARGO_BIN_EXE_flashd")),
            folder,
            arguments,
        )
    }

    /// The same, with the beginning of the command line given.
    pub(crate) fn start_by(mut command: Command, folder: &Path, arguments: &[&str]) -> Self {
        let mount_point = folder.join("mnt");
        if !mount_point.is_dir() {
            // The daemon removes the mount of a daemon that is dead already.
            let _ = fs::create_dir(&mount_point);
        }
        let log = fs::File::options()
            .create(true)
            .append(true)
            .open(folder.join("log"))
            .unwrap();
        let before = fs::read_to_string(folder.join("log")).unwrap().len();
        let child = command
            .arg("mount")
            .arg(&mount_point)
            .args(arguments)
            .env("XDG_RUNTIME_DIR", folder)
            .stderr(log)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let mut daemon = Self {
            child: Some(child),
            folder: folder.to_owned(),
            connection: 0,
        };
        let patience = Instant::now() + Duration::from_secs(60);
        while !daemon.log()[before..].contains("mounted;") {
            let ended = daemon.child.as_mut().unwrap().try_wait().unwrap();
            assert!(
                ended.is_none() && Instant::now() < patience,
                "no disk: {ended:?}\n{}",
                daemon.log()
            );
            std::thread::sleep(Duration::from_millis(10));
        }
        let device = fs::metadata(daemon.disk()).unwrap().dev();
        daemon.connection = rustix::fs::minor(device);
        daemon
    }

    pub(crate) fn disk(&self) -> PathBuf {
        self.folder.join("mnt/disk")
    }

    /// The disk, to read and to write.
    pub(crate) fn open(&self) -> File {
        let mut options = File::options();
        options.read(true).write(true).open(self.disk()).unwrap()
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.as_ref().unwrap().id()
    }

    /// The most memory that it ever had.
    pub(crate) fn most_memory(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmHWM:"));
        let kib = line.unwrap().split_whitespace().nth(1).unwrap();
        kib.parse::<u64>().unwrap() << 10
    }

    /// Print on stderr where each of its threads is, for a test that finds it stuck.
    pub(crate) fn show_threads(&self) {
        for thread in fs::read_dir(format!("/proc/{}/task", self.pid()))
            .into_iter()
            .flatten()
        {
            let thread = thread.unwrap().path();
            for what in ["comm", "syscall", "stack"] {
                let text = fs::read_to_string(thread.join(what)).unwrap_or_default();
                eprintln!("{what}: {}", text.trim_end());
            }
        }
        let maps = fs::read_to_string(format!("/proc/{}/maps", self.pid()));
        eprintln!("{}", maps.unwrap_or_default());
    }

    /// Have the kernel give up the FUSE connection: processes that wait for it get errors, even
    /// where killing the daemon would not help because it waits itself.
    pub(crate) fn abort(&self) {
        let connections = "/sys/fs/fuse/connections";
        let abort = format!("{connections}/{}/abort", self.connection);
        if !Path::new(&abort).exists() {
            let _ = run("mount", &["-t", "fusectl", "fusectl", connections]);
        }
        let _ = fs::write(abort, "1");
    }

    /// Kill it with SIGKILL: nothing is tidied up.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// SIGTERM, and wait for the end.
    pub(crate) fn stop(&mut self) -> ExitStatus {
        let mut child = self.child.take().unwrap();
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        child.wait().unwrap()
    }

    /// Send it a command.
    pub(crate) fn ask(&self, arguments: &[&str]) -> Output {
        ask(&self.folder, arguments)
    }
}

/// Run `flashd` with the control sockets of `folder`.
pub(crate) fn ask(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_flashd"))
        .args(arguments)
        .env("XDG_RUNTIME_DIR", folder)
        .output()
        .unwrap()
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.kill();
        let _ = run(
            "umount",
            &["--lazy", self.folder.join("mnt").to_str().unwrap()],
        );
        if std::thread::panicking() {
            eprintln!("the daemon's log:\n{}", self.log());
        }
    }
}

/// A loop device that is detached when it is dropped.
pub(crate) struct Loop(pub(crate) String);

impl Loop {
    pub(crate) fn attach(disk: &Path) -> Self {
        Self::attach_as("-f", disk)
    }

    /// Attach it as the loop device of this name.
    pub(crate) fn attach_as(name: &str, disk: &Path) -> Self {
        let disk = disk.to_str().unwrap();
        let arguments = ["--direct-io=on", "-b", "4096", "--show", name, disk];
        let output = run("losetup", &arguments);
        assert!(output.status.success(), "{}", text(&output));
        let device = Self(String::from_utf8(output.stdout).unwrap().trim().to_owned());
        // A loop device keeps what its last user set, and a hammer that was killed may have told it that
        // nothing needs a flush.
        let name = device.0.trim_start_matches("/dev/");
        let setting = format!("/sys/block/{name}/queue/write_cache");
        fs::write(&setting, "write back").unwrap_or_else(|error| panic!("{setting}: {error}"));
        device
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = run("losetup", &["-d", &self.0]);
    }
}

/// A mounted file system that is unmounted when it is dropped.
pub(crate) struct Fs {
    pub(crate) root: PathBuf,
    mounted: bool,
}

impl Fs {
    pub(crate) fn mount(device: &str, kind: &str, root: &Path) -> Self {
        fs::create_dir_all(root).unwrap();
        let output = run("mount", &["-t", kind, device, root.to_str().unwrap()]);
        assert!(output.status.success(), "{}", text(&output));
        Self {
            root: root.to_owned(),
            mounted: true,
        }
    }

    pub(crate) fn unmount(mut self) {
        let output = self.try_unmount();
        assert!(output.status.success(), "{}", text(&output));
        self.mounted = false;
    }

    /// "Busy" is tried again for a while: a child that another thread is just starting holds a copy
    /// of every open file of this process until its `execve`.
    fn try_unmount(&self) -> Output {
        let umount = || run("umount", &[self.root.to_str().unwrap()]);
        let mut output = umount();
        for _ in 0..100 {
            if output.status.success() || !text(&output).contains("target is busy") {
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
            output = umount();
        }
        output
    }
}

impl Drop for Fs {
    fn drop(&mut self) {
        // One that is only hidden is still there for the next mount: XFS refuses its UUID a second time.
        if self.mounted && !self.try_unmount().status.success() {
            let root = self.root.to_str().unwrap();
            let _ = run("umount", &["--lazy", root]);
        }
    }
}

/// Make a file system.
pub(crate) fn mkfs(kind: &str, device: &str) {
    let quick: &[&str] = match kind {
        "ext4" => &["-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"],
        _ => &["-q", "-f"],
    };
    let output = run(&format!("mkfs.{kind}"), &[quick, &[device]].concat());
    assert!(output.status.success(), "{}", text(&output));
}

/// Check one that is not mounted, without repairing anything.
pub(crate) fn fsck(kind: &str, device: &str) {
    let output = match kind {
        "ext4" => run("e2fsck", &["-f", "-n", device]),
        "xfs" => run("xfs_repair", &["-n", device]),
        _ => run("btrfs", &["check", device]),
    };
    assert!(output.status.success(), "fsck of {kind}: {}", text(&output));
}

/// Run a program of the system, also where root's folders are not in PATH.
pub(crate) fn run(program: &str, arguments: &[&str]) -> Output {
    let path = std::env::var("PATH").unwrap_or_default();
    Command::new(program)
        .args(arguments)
        .env("PATH", format!("{path}:/usr/sbin:/sbin"))
        .env("LC_ALL", "C")
        .output()
        .unwrap_or_else(|error| panic!("{program}: {error}"))
}

pub(crate) fn text(output: &Output) -> String {
    format!(
        "{}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}
