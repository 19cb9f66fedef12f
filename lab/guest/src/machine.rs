//! One QEMU process: start it, read its output, and end it in every case.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs,
    io::{BufRead, BufReader},
    os::unix::net::{UnixListener, UnixStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::mpsc::{self, Receiver},
    thread,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};

use crate::{Cache, LabError, programs};

const QEMU: &str = "qemu-system-x86_64";

/// Check that QEMU is installed.
pub(crate) fn require_qemu() -> Result<(), LabError> {
    match programs::find(Path::new(QEMU)) {
        Some(_) => Ok(()),
        None => Err(LabError::missing(format!(
            "{QEMU} (package qemu-system-x86) is not installed"
        ))),
    }
}

/// Warnings and worse go to the console; a kernel that panics or has an oops ends the guest.
/// Features that only cost time are left out: mitigations in a machine that is emulated or runs for
/// seconds, self-tests of the cryptography, measuring each processor's speed, zeroing memory before
/// every use, security modules and other hardening: a fifth of a guest's time. The kernel comes up
/// on one processor, and init adds the others: it patches its own code while it comes up, and under
/// QEMU's translator a processor that is just executing that code can see half of a patch (QEMU
/// 7.2, Linux 6.12: one guest in 40 died so, in `sched_clock_tick`). The test of the timer counts
/// interrupts within a time that the processor's cycles give: where other work takes the host's
/// processors meanwhile, it finds none and panics ("IO-APIC + timer doesn't work").
const KERNEL_ARGUMENTS: &str = "console=ttyS0 quiet loglevel=5 panic=-1 oops=panic mitigations=off \
                                random.trust_cpu=on cryptomgr.notests maxcpus=1 noreplace-smp \
                                lpj=4000000 no_timer_check init_on_alloc=0 hardened_usercopy=off \
                                randomize_kstack_offset=off lsm=capability audit=0";

/// The processor of QEMU's translator: one without features that are faster in silicon only. With `erms`
/// the kernel clears and copies memory byte by byte; `la57` adds a level to each walk of the page tables,
/// `smap` ends a translated block at each access to a program's memory, and `xsave`, with the vector units
/// that need it, makes each change between programs longer. With all that QEMU has (`max`), guests take a
/// fifth more time.
const TRANSLATED: &str = "Westmere,rdrand=on,fsgsbase=on,rdtscp=on,arat=on,pdpe1gb=on";

/// The executor of the guest's instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Accelerator {
    /// The processor itself.
    Kvm,
    /// QEMU's translator: slow, and works everywhere.
    Tcg,
}

impl Accelerator {
    /// The accelerators to try, best first. The existence of `/dev/kvm` proves nothing: on some
    /// machines a guest aborts at once on it. An accelerator that has failed since this machine was
    /// booted is not tried again.
    pub(crate) fn candidates(cache: &Cache) -> Vec<Self> {
        let usable = fs::File::options()
            .read(true)
            .write(true)
            .open("/dev/kvm")
            .is_ok();
        let failed = fs::read_to_string(failure_note(cache));
        if usable && failed.ok() != Some(boot_id()) {
            vec![Self::Kvm, Self::Tcg]
        } else {
            vec![Self::Tcg]
        }
    }

    /// Record that a guest did not come up on it.
    pub(crate) fn note_failure(self, cache: &Cache) -> Result<(), LabError> {
        let path = failure_note(cache);
        fs::create_dir_all(cache.folder()).map_err(LabError::at(cache.folder()))?;
        fs::write(&path, boot_id()).map_err(LabError::at(&path))
    }

    /// Time limit for a kernel to come up. Other guests and builds may be running at the same time.
    pub(crate) fn patience(self) -> Duration {
        match self {
            Self::Kvm => Duration::from_secs(8),
            Self::Tcg => Duration::from_secs(120),
        }
    }

    fn arguments(self) -> [&'static str; 4] {
        match self {
            Self::Kvm => ["-accel", "kvm", "-cpu", "host"],
            Self::Tcg => ["-accel", "tcg,thread=multi", "-cpu", TRANSLATED],
        }
    }
}

fn failure_note(cache: &Cache) -> PathBuf {
    cache.folder().join("kvm-failed-in-boot")
}

fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default()
}

/// Description of the machine to start.
#[derive(Debug)]
pub(crate) struct Design {
    pub(crate) kernel: PathBuf,
    pub(crate) archive: PathBuf,
    pub(crate) cpus: u32,
    pub(crate) memory_mib: u32,
    /// Raw images, in order: `/dev/vda`, `/dev/vdb` …
    pub(crate) disks: Vec<PathBuf>,
    /// More of the kernel's arguments.
    pub(crate) kernel_arguments: Vec<String>,
    /// Folders of the host, by the tag that the guest mounts them with.
    pub(crate) shares: Vec<(&'static str, PathBuf)>,
    /// More arguments for QEMU.
    pub(crate) more: Vec<OsString>,
}

impl Design {
    /// The command line, without the console and the ports.
    fn command(&self, accelerator: Accelerator) -> Command {
        let mut kernel_arguments = KERNEL_ARGUMENTS.to_owned();
        for argument in &self.kernel_arguments {
            kernel_arguments.push(' ');
            kernel_arguments.push_str(argument);
        }
        // QEMU is killed when we are, even when no code of ours can run any more.
        let mut command = Command::new("setpriv");
        command
            .args(["--pdeathsig", "KILL", "--", QEMU])
            .args(["-no-user-config", "-nodefaults", "-display", "none"])
            .args(["-no-reboot", "-machine", "q35"])
            .args(accelerator.arguments())
            .args(["-smp", &self.cpus.to_string()])
            .args(["-m", &format!("{}M", self.memory_mib)])
            .args(["-append", &kernel_arguments])
            .arg("-kernel")
            .arg(&self.kernel)
            .arg("-initrd")
            .arg(&self.archive);
        for (number, disk) in self.disks.iter().enumerate() {
            // The image is deleted with the guest: its content need not survive us.
            let drive = format!(
                "if=none,id=disk{number},format=raw,cache=unsafe,discard=unmap,file={}",
                value(disk)
            );
            let device = format!("virtio-blk-pci,drive=disk{number}");
            command.args(["-drive", &drive, "-device", &device]);
        }
        for (tag, folder) in &self.shares {
            let folder = format!(
                "local,id={tag},security_model=none,multidevs=remap,path={}",
                value(folder)
            );
            let device = format!("virtio-9p-pci,fsdev={tag},mount_tag={tag}");
            command.args(["-fsdev", &folder, "-device", &device]);
        }
        command.args(&self.more);
        command
    }
}

/// A path, escaped for one of QEMU's lists of options.
fn value(path: &Path) -> String {
    path.display().to_string().replace(',', ",,")
}

/// A message of the guest's init.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Word {
    /// It is up, and starts the command.
    Ready,
    /// It cannot reach the requested state.
    Failed(String),
    /// The command has ended with this status.
    Exit(i32),
    /// Of a guest that stays: the command with this number has ended with this status.
    Ended(u64, i32),
    /// Of a guest that stays: the command with this number could not begin.
    Lost(u64),
    /// Of a guest that stays: the shell at its terminal has ended.
    ShellEnded,
    /// No more words follow.
    Silence,
}

/// A running QEMU, with its output streams.
pub(crate) struct Machine {
    process: Process,
    console: PathBuf,
    /// The file with QEMU's own messages.
    errors: PathBuf,
    pub(crate) words: Receiver<Word>,
    /// The other ports, by name.
    pub(crate) ports: BTreeMap<String, UnixStream>,
}

/// The name of the file with the kernel's output.
pub(crate) const CONSOLE: &str = "console";

/// The port at which the guest has a terminal (`/dev/hvc0`).
pub(crate) const TERMINAL: &str = "terminal";

impl Machine {
    /// Start QEMU with these ports beside the one for `words`. `folder` is for its sockets and
    /// console; it must outlive the machine.
    pub(crate) fn start(
        design: &Design,
        accelerator: Accelerator,
        folder: &Path,
        ports: &[&str],
    ) -> Result<Self, LabError> {
        let console = folder.join(CONSOLE);
        let mut command = design.command(accelerator);
        command
            .args(["-serial", &format!("file:{}", value(&console))])
            .args(["-device", "virtio-serial-pci"]);
        let mut listeners = Vec::new();
        for name in ["status"].iter().chain(ports) {
            let path = folder.join(name);
            // A socket may be left over from an accelerator that did not work.
            let _ = fs::remove_file(&path);
            let listener = UnixListener::bind(&path).map_err(LabError::at(&path))?;
            let chardev = format!("socket,id={name},path={}", value(&path));
            let port = match *name {
                TERMINAL => format!("virtconsole,chardev={name}"),
                name => format!("virtserialport,chardev={name},name={name}"),
            };
            command.args(["-chardev", &chardev, "-device", &port]);
            listeners.push((*name, path, listener));
        }
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let errors = folder.join("qemu");
        command.stderr(fs::File::create(&errors).map_err(LabError::at(&errors))?);
        let mut machine = Self {
            process: Process::start(&mut command)?,
            console,
            errors,
            words: mpsc::channel().1,
            ports: BTreeMap::new(),
        };
        for (name, path, listener) in listeners {
            let stream = machine.process.connection(&listener);
            let Some(stream) = stream.map_err(LabError::at(&path))? else {
                let said = machine.complaint();
                return Err(machine.died(&format!("QEMU did not start: {said}")));
            };
            if name == "status" {
                machine.words = listen(stream);
            } else {
                machine.ports.insert(name.to_owned(), stream);
            }
        }
        Ok(machine)
    }

    /// End QEMU, for a guest that has powered off or must end.
    pub(crate) fn end(&mut self, patience: Duration) {
        self.process.end(patience);
    }

    /// QEMU's messages: empty, as long as all is well.
    pub(crate) fn complaint(&self) -> String {
        let said = fs::read(&self.errors).unwrap_or_default();
        String::from_utf8_lossy(&said).trim().to_owned()
    }

    /// Whether KVM has given up. QEMU then keeps the guest as it is, for inspection.
    pub(crate) fn is_stuck(&self) -> bool {
        self.complaint().contains("KVM internal error")
    }

    /// The kernel's output so far.
    pub(crate) fn console(&self) -> String {
        let said = fs::read(&self.console).unwrap_or_default();
        String::from_utf8_lossy(&said).replace('\r', "")
    }

    pub(crate) fn died(&self, why: &str) -> LabError {
        LabError::Died {
            why: why.to_owned(),
            console: self.end_of_console(),
        }
    }

    pub(crate) fn end_of_console(&self) -> String {
        let console = self.console();
        let lines: Vec<&str> = console.lines().collect();
        lines[lines.len().saturating_sub(40)..].join("\n")
    }
}

/// Run a guest with its console at our terminal, until it powers off.
pub(crate) fn interactive(design: &Design, accelerator: Accelerator) -> Result<(), LabError> {
    let mut command = design.command(accelerator);
    command.args(["-chardev", "stdio,id=terminal,mux=on,signal=off"]);
    command.args(["-serial", "chardev:terminal", "-mon", "chardev=terminal"]);
    let mut process = Process::start(&mut command)?;
    let status = process
        .child
        .wait()
        .map_err(LabError::at(Path::new(QEMU)))?;
    if status.success() {
        return Ok(());
    }
    Err(LabError::Command {
        command: QEMU.into(),
        output: status.to_string(),
    })
}

/// The words of init, as they arrive.
fn listen(stream: UnixStream) -> Receiver<Word> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            let word = word(&line).unwrap_or(Word::Silence);
            // After the guest was given up, the receiver is gone.
            if sender.send(word).is_err() {
                return;
            }
        }
        let _ = sender.send(Word::Silence);
    });
    receiver
}

fn word(line: &str) -> Option<Word> {
    match line.split_once(' ') {
        None if line == "ready" => Some(Word::Ready),
        None if line == "shell-ended" => Some(Word::ShellEnded),
        Some(("failed", why)) => Some(Word::Failed(why.to_owned())),
        Some(("exit", code)) => code.parse().ok().map(Word::Exit),
        Some(("lost", job)) => job.parse().ok().map(Word::Lost),
        Some(("ended", rest)) => {
            let (job, code) = rest.split_once(' ')?;
            Some(Word::Ended(job.parse().ok()?, code.parse().ok()?))
        }
        _ => None,
    }
}

/// A child that does not outlive its owner.
struct Process {
    child: Child,
}

impl Process {
    fn start(command: &mut Command) -> Result<Self, LabError> {
        match command.spawn() {
            Ok(child) => Ok(Self { child }),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                Err(LabError::missing("setpriv (package util-linux) is missing"))
            }
            Err(error) => Err(LabError::at(Path::new(QEMU))(error)),
        }
    }

    /// Accept QEMU's connection to us; `None` when it ends instead.
    fn connection(&mut self, listener: &UnixListener) -> std::io::Result<Option<UnixStream>> {
        listener.set_nonblocking(true)?;
        loop {
            match listener.accept() {
                Ok((stream, _)) => {
                    stream.set_nonblocking(false)?;
                    return Ok(Some(stream));
                }
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
            if self.child.try_wait()?.is_some() {
                return Ok(None);
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    fn end(&mut self, patience: Duration) {
        let deadline = Instant::now() + patience;
        while Instant::now() < deadline {
            if let Ok(Some(_)) = self.child.try_wait() {
                return;
            }
            thread::sleep(Duration::from_millis(10));
        }
        // Both fail only for a child that has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end(Duration::ZERO);
    }
}
