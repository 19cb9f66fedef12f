//! A clean root: made, entered, and removed whatever happens.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::Duration,
};

use anyhow::{Context, Result};
use rustix::{
    fs::{major, minor},
    process::{Pid, Signal},
};

use super::{machine::MachineParts, run::Runner};
use crate::{command::output_of, sources};

const ENTER: &str = include_str!("enter.sh");
/// Prefix of a root's name: a folder with it that is not ours was left over.
const PREFIX: &str = "root-";
/// Number of attempts to end the processes in a root.
const TRIES: u32 = 50;

/// A root below `target/fresh`.
pub(super) struct Root {
    folder: PathBuf,
}

impl Root {
    /// A root of this suite, with the toolchain's and cargo's folders in place.
    pub(super) fn make(
        suite: &str,
        machine: &MachineParts,
        runner: &Runner,
        below: &Path,
        log: &Path,
    ) -> Result<Self> {
        let files = tempfile::tempdir_in(below)?;
        let settings = files.path().join("apt.conf");
        fs::write(&settings, &machine.apt)?;
        let sources = files.path().join("debian.sources");
        let entry = machine.mirror.entry(&[suite], &machine.architecture);
        fs::write(&sources, &entry)?;

        // Removed also if it is half made.
        let root = Self {
            folder: below.join(format!("{PREFIX}{suite}")),
        };
        let command = machine.make(suite, &root.folder, &settings, &sources)?;
        runner.run(command, log)?;
        root.fill(machine, &entry)?;
        Ok(root)
    }

    /// Add the files that the root gets beside Debian's packages.
    fn fill(&self, machine: &MachineParts, sources: &str) -> Result<()> {
        for folder in [
            "opt/rust",
            "root/.cargo/registry/cache",
            "root/.cargo/registry/index",
            "srv/indef",
        ] {
            fs::create_dir_all(self.folder.join(folder))?;
        }
        self.write("root/.cargo/config.toml", &machine.cargo_config()?)?;
        // The two programs that make roots write these in different ways, or not at all.
        for old in ["etc/apt/sources.list", "etc/apt/sources.list.d"] {
            let old = self.folder.join(old);
            if old.is_dir() {
                fs::remove_dir_all(old)?;
            } else if old.exists() {
                fs::remove_file(old)?;
            }
        }
        self.write("etc/apt/sources.list.d/debian.sources", sources)?;
        self.write("etc/apt/apt.conf.d/90machine", &machine.apt)?;
        // Certificates of a proxy that looks into TLS, say.
        let certificates = PathBuf::from("/etc/ssl/certs/ca-certificates.crt");
        let network = ["/etc/resolv.conf", "/etc/hosts"].map(PathBuf::from);
        for file in machine
            .files_of_apt()
            .into_iter()
            .chain([certificates])
            .chain(network)
        {
            if let Ok(content) = fs::read(&file) {
                self.write(file.strip_prefix("/")?, content)?;
            }
        }
        Ok(())
    }

    /// Where it is.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Write a file of it.
    pub(super) fn write(&self, path: impl AsRef<Path>, content: impl AsRef<[u8]>) -> Result<()> {
        let path = self.folder.join(path);
        let context = || format!("cannot write {}", path.display());
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).with_context(context)?;
        }
        // A link in the root would lead out of it.
        if path.is_symlink() {
            fs::remove_file(&path).with_context(context)?;
        }
        fs::write(&path, content).with_context(context)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).with_context(context)
    }

    /// Put the committed files into `/srv/indef`.
    pub(super) fn unpack_sources(&self) -> Result<()> {
        if sources::are_changed()? {
            println!("fresh: what is changed and not committed is not tried");
        }
        sources::unpack(&self.folder.join("srv/indef"))
    }

    /// Put files into `/srv/indef`.
    pub(super) fn copy_in(&self, files: &[PathBuf]) -> Result<()> {
        for file in files {
            let name = file.file_name().context("a file without a name")?;
            fs::copy(file, self.folder.join("srv/indef").join(name))
                .with_context(|| format!("cannot copy {}", file.display()))?;
        }
        Ok(())
    }

    /// A command as this user, in the root and in the folder with the sources.
    pub(super) fn enter(&self, machine: &MachineParts, user: u32, command: &[&str]) -> Command {
        let mut enter = Command::new("unshare");
        enter
            .args(["--mount", "--propagation=private", "sh", "-c", ENTER, "sh"])
            .arg(&self.folder)
            .arg(user.to_string())
            .arg(&machine.toolchain)
            .arg(&machine.cargo_home)
            .args(command)
            .env_clear()
            .envs(MachineParts::proxies())
            .env("PATH", "/opt/rust/bin:/usr/sbin:/usr/bin:/sbin:/bin")
            .env("HOME", if user == 0 { "/root" } else { "/tmp" })
            .env("LANG", "C.UTF-8")
            .env("TERM", "dumb")
            .env("CARGO_TERM_COLOR", "never")
            .env("CARGO_NET_OFFLINE", "true");
        enter
    }

    /// End its processes and remove it.
    pub(super) fn remove(self) -> Result<()> {
        // Then nothing is left to do for `drop`.
        remove(&self.folder)
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        if let Err(error) = remove(&self.folder) {
            eprintln!("xtask: {} is not removed: {error:#}", self.folder.display());
        }
    }
}

/// Remove the roots of a run that was killed.
pub(super) fn remove_left_over(below: &Path) -> Result<()> {
    for entry in fs::read_dir(below)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(PREFIX) {
            println!(
                "fresh: removing what an earlier run left: {}",
                entry.path().display()
            );
            remove(&entry.path())?;
        }
    }
    Ok(())
}

fn remove(root: &Path) -> Result<()> {
    if !root.exists() {
        return Ok(());
    }
    end_processes(root)?;
    detach_loops(root)?;
    // If something is mounted there in spite of all, rm does not descend into it.
    output_of(
        Command::new("rm")
            .args(["--recursive", "--force", "--one-file-system", "--"])
            .arg(root),
    )?;
    Ok(())
}

/// Kill every process whose root this is, until there is none.
fn end_processes(root: &Path) -> Result<()> {
    for _ in 0..TRIES {
        let running = processes_in(root)?;
        if running.is_empty() {
            return Ok(());
        }
        for process in running {
            let _ = rustix::process::kill_process(process, Signal::KILL);
        }
        thread::sleep(Duration::from_millis(100));
    }
    anyhow::bail!("processes do not end")
}

/// The processes whose root this folder is: told by its inode, since a link's path begins elsewhere
/// where a process is in other mounts and we are in a changed root ourselves.
fn processes_in(root: &Path) -> Result<Vec<Pid>> {
    let identity = |path: &Path| fs::metadata(path).map(|found| (found.dev(), found.ino()));
    let wanted = identity(root)?;
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")?.filter_map(Result::ok) {
        let number = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok());
        let Some(process) = number.and_then(Pid::from_raw) else {
            continue;
        };
        // It may have ended meanwhile.
        if identity(&entry.path().join("root")).is_ok_and(|its| its == wanted) {
            found.push(process);
        }
    }
    Ok(found)
}

/// Detach the loop devices whose files are in this root.
fn detach_loops(root: &Path) -> Result<()> {
    let columns = "NAME,BACK-INO,BACK-MAJ:MIN,BACK-FILE";
    let list = output_of(Command::new("losetup").args([
        "--list",
        "--noheadings",
        "--raw",
        "--output",
        columns,
    ]))?;
    for line in list.lines() {
        let columns: Vec<&str> = line.splitn(4, ' ').collect();
        if let [name, inode, device, file] = columns[..]
            && is_below(root, Path::new(file), inode, device)
        {
            output_of(Command::new("losetup").args(["--detach", name]))?;
        }
    }
    Ok(())
}

/// Whether a loop device's file is below this root. Its path may begin with something else: that of a
/// file in another mount namespace begins at that namespace's root, which is not ours where we are
/// in a changed root ourselves. The file is then the same one below the root.
fn is_below(root: &Path, file: &Path, inode: &str, device: &str) -> bool {
    let is_it = |path: PathBuf| {
        fs::symlink_metadata(path).is_ok_and(|found| {
            let (major, minor) = (major(found.dev()), minor(found.dev()));
            found.ino().to_string() == inode && format!("{major}:{minor}") == device
        })
    };
    let mut rest = file.components();
    file.starts_with(root)
        || std::iter::from_fn(|| rest.next().map(|_| rest.as_path().to_owned()))
            .any(|part| !part.as_os_str().is_empty() && is_it(root.join(part)))
}
