//! A guest, from the request to the result.

use std::{
    ffi::OsStr,
    fs::{self, File},
    io::{self, Read, Write},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::RecvTimeoutError,
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use units::Bytes;

use crate::{
    Accelerator, Cache, Kernel, LabError, Outcome, Output, Patched, Release, Zns, ZnsDevice,
    ZnsSetup,
    job::{Files, Job},
    machine::{self, Design, Machine, Word},
    programs,
    scratch::scratch,
    shared::{Request, Spec},
};

/// Interval of the check for a requested end.
const GLANCE: Duration = Duration::from_millis(50);

/// What a shared guest empties between two commands (files/reset).
const SWEPT: &str = "/tmp";

/// How long a guest may take to power off.
const POWER_OFF: Duration = Duration::from_secs(10);

/// Description of a guest to be started.
#[derive(Debug)]
pub struct Guest {
    kernel: Kernel,
    cache: Cache,
    job: Job,
    cpus: u32,
    memory_mib: u32,
    disks: Vec<Bytes>,
    share: Option<PathBuf>,
    more: Vec<std::ffi::OsString>,
    kernel_arguments: Vec<String>,
    device: Option<ZnsDevice>,
    timeout: Duration,
    output: Output,
    stop: Arc<AtomicBool>,
    may_be_shared: bool,
}

impl Guest {
    /// A guest with Debian's kernel of this series, fetched where it is not in the project's cache.
    ///
    /// # Errors
    ///
    /// [`LabError::Unavailable`] where this machine has no guests, or the failure.
    pub fn with(release: Release) -> Result<Self, LabError> {
        Self::from_cache(release, &Cache::of_project())
    }

    /// The same with the kernels in `cache`.
    ///
    /// # Errors
    ///
    /// [`LabError::Unavailable`] where this machine has no guests, or the failure.
    pub fn from_cache(release: Release, cache: &Cache) -> Result<Self, LabError> {
        machine::require_qemu()?;
        Ok(Self::booting(Kernel::fetch(release, cache)?, cache))
    }

    /// A guest with the kernel that looks for its own faults ([`Kernel::debug`]): several times
    /// slower, and its findings are in its log.
    ///
    /// # Errors
    ///
    /// [`LabError::Unavailable`] where this machine has no guests, or the failure.
    pub fn with_debug_kernel() -> Result<Self, LabError> {
        let cache = Cache::of_project();
        machine::require_qemu()?;
        Ok(Self::booting(Kernel::debug(&cache)?, &cache))
    }

    /// A guest with the kernel whose ext4 gives die hints ([`Kernel::die_hints`]), if it was built.
    ///
    /// # Errors
    ///
    /// [`LabError::Unavailable`] where this machine has no guests or the kernel was not built, or the
    /// failure.
    pub fn with_die_hints() -> Result<Self, LabError> {
        let cache = Cache::of_project();
        machine::require_qemu()?;
        Ok(Self::booting(
            Kernel::die_hints_built(&cache, false)?,
            &cache,
        ))
    }

    /// The same with a kernel that looks for its own faults ([`Kernel::die_hints_debug`]).
    ///
    /// # Errors
    ///
    /// As of [`with_die_hints`](Self::with_die_hints).
    pub fn with_die_hints_debug() -> Result<Self, LabError> {
        let cache = Cache::of_project();
        machine::require_qemu()?;
        Ok(Self::booting(
            Kernel::die_hints_built(&cache, true)?,
            &cache,
        ))
    }

    fn booting(kernel: Kernel, cache: &Cache) -> Self {
        Self {
            kernel,
            cache: cache.clone(),
            job: Job::default(),
            cpus: 2,
            memory_mib: 1024,
            disks: Vec::new(),
            share: None,
            more: Vec::new(),
            kernel_arguments: Vec::new(),
            device: None,
            timeout: Duration::from_secs(300),
            output: Output::default(),
            stop: Arc::default(),
            may_be_shared: false,
        }
    }

    /// Put this file or program into the guest, with its libraries, at the same path as on the
    /// host. A name without a slash is looked up on the `PATH`.
    #[must_use]
    pub fn copy(mut self, file: impl AsRef<Path>) -> Self {
        self.job.copy.push(file.as_ref().to_owned());
        self
    }

    /// The same if the host has the file.
    #[must_use]
    pub fn copy_if_there(self, file: impl AsRef<Path>) -> Self {
        if programs::find(file.as_ref()).is_some() {
            self.copy(file)
        } else {
            self
        }
    }

    /// Put the makers and checkers of file systems into the guest, as far as the host has them.
    #[must_use]
    pub fn with_tools(mut self) -> Self {
        self.job.with_tools = true;
        self
    }

    /// Load this module, with its dependencies, before the command. (Mounting a file system loads
    /// its module anyway; see [`crate::modules::KEPT`].)
    #[must_use]
    pub fn load(mut self, module: &str) -> Self {
        self.job.load.push(module.to_owned());
        self
    }

    /// Put this module into the guest, to be loaded when it is first needed.
    #[must_use]
    pub fn keep(mut self, module: &str) -> Self {
        self.job.keep.push(module.to_owned());
        self
    }

    /// Replace the kernel's own module of this file system with one that has the project's
    /// patches. The module is built where it is not in the cache yet: some 150 MB over the network,
    /// and a minute.
    ///
    /// # Errors
    ///
    /// [`LabError::Unavailable`] where this machine cannot, or the failure.
    pub fn with_patched(mut self, patched: Patched) -> Result<Self, LabError> {
        let module = patched.module(&self.kernel, &self.cache)?;
        self.job.replace.push((patched.name().to_owned(), module));
        Ok(self)
    }

    /// Add an empty disk of this size: `/dev/vda`, the next `/dev/vdb` …
    #[must_use]
    pub fn disk(mut self, size: Bytes) -> Self {
        self.disks.push(size);
        self
    }

    /// Make this folder of the host available as `/share`, to read and to write.
    #[must_use]
    pub fn share(mut self, folder: &Path) -> Self {
        self.share = Some(folder.to_owned());
        self
    }

    /// Number of vCPUs (default 2).
    #[must_use]
    pub fn cpus(mut self, cpus: u32) -> Self {
        self.cpus = cpus;
        self
    }

    /// Memory in MiB (default 1024). The files of the guest are part of it.
    #[must_use]
    pub fn memory_mib(mut self, memory: u32) -> Self {
        self.memory_mib = memory;
        self
    }

    /// One more argument for QEMU: other devices.
    #[must_use]
    pub fn qemu(mut self, argument: impl AsRef<OsStr>) -> Self {
        self.more.push(argument.as_ref().to_owned());
        self
    }

    /// One more argument for the kernel: a module's parameter, say.
    #[must_use]
    pub fn kernel_argument(mut self, argument: &str) -> Self {
        self.kernel_arguments.push(argument.to_owned());
        self
    }

    /// Add this zoned SSD, set up so far. [`Zns`] describes what the command finds.
    ///
    /// # Errors
    ///
    /// [`LabError::Unavailable`] where a program for it is missing.
    pub fn zns(mut self, zns: &Zns, setup: ZnsSetup) -> Result<Self, LabError> {
        self.job.zns = zns.settings(setup, self.cpus)?;
        self.device = Some(zns.options().device);
        for program in zns.programs(setup)? {
            self = self.copy(program);
        }
        self = self.load("f2fs").kernel_argument("nvme_core.multipath=N");
        let Some(device) = zns.qemu_device()? else {
            return Ok(self.with_network());
        };
        self.disks.insert(0, device.first_disk);
        self.more.extend(device.arguments);
        Ok(self.load("nvme"))
    }

    /// Add a network with the host at 10.0.2.2, and NVMe/TCP to connect to a device there. The
    /// command configures `eth0`.
    #[must_use]
    pub fn with_network(self) -> Self {
        self.load("virtio_net")
            .load("nvme_tcp")
            .qemu("-netdev")
            .qemu("user,id=net")
            .qemu("-device")
            .qemu("virtio-net-pci,netdev=net")
    }

    /// Let the command run in a guest that is up already and that others use before and after it, where
    /// the environment offers such guests ([`crate::shared`]). It must leave the kernel usable, and it does not
    /// get QEMU's zoned SSD there. Its disks are empty, as those of a guest of its own.
    #[must_use]
    pub fn shared(mut self) -> Self {
        self.may_be_shared = true;
        self
    }

    /// Time limit of the command (default 5 minutes).
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Destination of the command's output (default: it is kept).
    #[must_use]
    pub fn output(mut self, output: Output) -> Self {
        self.output = output;
        self
    }

    /// End the guest soon after this is set.
    #[must_use]
    pub fn stop(mut self, stop: Arc<AtomicBool>) -> Self {
        self.stop = stop;
        self
    }

    /// The kernel that the guest boots.
    #[must_use]
    pub fn kernel(&self) -> &Kernel {
        &self.kernel
    }

    /// The kind of its zoned SSD, if it has one.
    #[must_use]
    pub fn device(&self) -> Option<ZnsDevice> {
        self.device
    }

    /// Boot, run the command, and end the guest. The program comes from the host (a path, or a
    /// name on the `PATH`), else from busybox; it runs as root, in a folder named like the current
    /// one.
    ///
    /// # Errors
    ///
    /// The guest could not be made, died, or took too long. A command that fails is no error.
    pub fn run<S: AsRef<OsStr>>(
        mut self,
        command: impl IntoIterator<Item = S>,
    ) -> Result<Outcome, LabError> {
        self.job.command = command
            .into_iter()
            .map(|word| word.as_ref().to_owned())
            .collect();
        if self.job.command.is_empty() {
            return Err(LabError::Request("no command for the guest".into()));
        }
        if let Some(outcome) = self.run_shared()? {
            return Ok(outcome);
        }
        let folder = scratch()?;
        let (design, _) = self.design(folder.path())?;
        self.on_best(|accelerator| self.try_run(&design, accelerator, folder.path()))
    }

    /// Run the command in a shared guest; `None` where it needs one of its own.
    fn run_shared(&self) -> Result<Option<Outcome>, LabError> {
        let is_wanted = self.may_be_shared
            && self.device != Some(ZnsDevice::Qemu)
            && self.output == Output::Kept
            && !are_programs_swept();
        if !is_wanted {
            return Ok(None);
        }
        let request = Request {
            spec: self.spec(),
            job: &self.job,
            share: self.share.as_deref(),
            timeout: self.timeout,
            stop: &self.stop,
        };
        request.run()
    }

    /// The properties that are settled when it boots.
    fn spec(&self) -> Spec {
        Spec {
            kernel: self.kernel.clone(),
            cache: self.cache.folder().to_owned(),
            cpus: self.cpus,
            memory_mib: self.memory_mib,
            disks: self.disks.iter().map(|size| size.get()).collect(),
            kernel_arguments: self.kernel_arguments.clone(),
            more: self.more.clone(),
            modules: self
                .job
                .load
                .iter()
                .chain(&self.job.keep)
                .cloned()
                .collect(),
            replace: self.job.replace.clone(),
        }
    }

    /// The guest with these properties, and these files from the start.
    pub(crate) fn of_spec(spec: Spec, copy: Vec<PathBuf>, with_tools: bool) -> Self {
        let mut guest = Self::booting(spec.kernel, &Cache::at(&spec.cache))
            .cpus(spec.cpus)
            .memory_mib(spec.memory_mib);
        guest.disks = spec.disks.into_iter().map(Bytes).collect();
        guest.kernel_arguments = spec.kernel_arguments;
        guest.more = spec.more;
        guest.job.keep = spec.modules.into_iter().collect();
        guest.job.replace = spec.replace;
        guest.job.copy = copy;
        guest.job.with_tools = with_tools;
        guest
    }

    /// Boot the guest and leave it running with its sockets in `folder`; commands arrive at these
    /// ports. Returns it with the files of the host that it has.
    pub(crate) fn stay(
        &mut self,
        folder: &Path,
        ports: &[&str],
    ) -> Result<(Machine, Accelerator, Files), LabError> {
        self.job.standing = true;
        let (mut design, files) = self.design(folder)?;
        let jobs = folder.join("jobs");
        fs::create_dir_all(&jobs).map_err(LabError::at(&jobs))?;
        design.shares.push(("jobs", jobs));
        let (machine, accelerator) = self.on_best(|accelerator| {
            let started = Instant::now();
            let mut machine =
                Machine::start(&design, accelerator, folder, ports).map_err(Failure::AtBoot)?;
            self.come_up(&mut machine, started, accelerator)?;
            Ok((machine, accelerator))
        })?;
        Ok((machine, accelerator, files))
    }

    /// Boot on the best accelerator on which the guest comes up.
    fn on_best<T>(&self, boot: impl Fn(Accelerator) -> Result<T, Failure>) -> Result<T, LabError> {
        for accelerator in Accelerator::candidates(&self.cache) {
            match boot(accelerator) {
                Ok(made) => return Ok(made),
                Err(Failure::InGuest(error)) => return Err(error),
                Err(Failure::AtBoot(error)) if accelerator == Accelerator::Tcg => {
                    return Err(error);
                }
                Err(Failure::AtBoot(error)) => {
                    tracing::info!("KVM does not work here, going on without: {error}");
                    accelerator.note_failure(&self.cache)?;
                }
            }
        }
        Err(LabError::missing("QEMU runs no guest here"))
    }

    /// Boot, and give the terminal to a shell there until it ends.
    ///
    /// # Errors
    ///
    /// The guest could not be made.
    pub fn shell(mut self) -> Result<(), LabError> {
        // A separate guest finds out whether KVM works: that one can be tried again.
        let probe = Self {
            kernel: self.kernel.clone(),
            cache: self.cache.clone(),
            job: Job::default(),
            disks: Vec::new(),
            share: None,
            more: Vec::new(),
            kernel_arguments: Vec::new(),
            device: None,
            stop: Arc::clone(&self.stop),
            ..self
        };
        let candidates = Accelerator::candidates(&self.cache);
        let accelerator = match candidates.as_slice() {
            [only] => *only,
            _ => probe.run(["true"])?.accelerator,
        };
        self.job.command.clear();
        let folder = scratch()?;
        let (design, _) = self.design(folder.path())?;
        machine::interactive(&design, accelerator)
    }

    fn design(&mut self, folder: &Path) -> Result<(Design, Files), LabError> {
        let archive = folder.join("archive");
        self.job.share = self.share.is_some();
        let files = self.job.write(&self.kernel, &archive)?;
        let mut disks = Vec::new();
        for (number, size) in self.disks.iter().enumerate() {
            let disk = folder.join(format!("disk{number}"));
            File::create(&disk)
                .and_then(|file| file.set_len(size.get()))
                .map_err(LabError::at(&disk))?;
            disks.push(disk);
        }
        let mut shares = Vec::new();
        if let Some(share) = &self.share {
            let folder = fs::canonicalize(share).map_err(LabError::at(share))?;
            shares.push(("share", folder));
        }
        let design = Design {
            kernel: self.kernel.image(),
            archive,
            cpus: self.cpus,
            memory_mib: self.memory_mib,
            disks,
            kernel_arguments: self.kernel_arguments.clone(),
            shares,
            more: self.more.clone(),
        };
        Ok((design, files))
    }

    fn try_run(
        &self,
        design: &Design,
        accelerator: Accelerator,
        folder: &Path,
    ) -> Result<Outcome, Failure> {
        let started = Instant::now();
        let mut machine = Machine::start(design, accelerator, folder, &["stdout", "stderr"])
            .map_err(Failure::AtBoot)?;
        let stdout = self.collect(machine.ports.remove("stdout"), io::stdout());
        let stderr = self.collect(machine.ports.remove("stderr"), io::stderr());
        self.come_up(&mut machine, started, accelerator)?;
        let boot = started.elapsed();
        tracing::debug!("the guest is up after {boot:?}");
        let began = Instant::now();
        let last = self
            .word(&mut machine, began, self.timeout)
            .map_err(Failure::InGuest)?;
        let elapsed = began.elapsed();
        let Word::Exit(status) = last else {
            machine.end(POWER_OFF);
            return Err(Failure::InGuest(machine.died("it went down")));
        };
        machine.end(POWER_OFF);
        Ok(Outcome {
            status,
            stdout: joined(stdout),
            stderr: joined(stderr),
            console: machine.console(),
            accelerator,
            boot,
            elapsed,
        })
    }

    /// Wait until the guest is up.
    fn come_up(
        &self,
        machine: &mut Machine,
        started: Instant,
        accelerator: Accelerator,
    ) -> Result<(), Failure> {
        let up = self
            .word(machine, started, accelerator.patience())
            .map_err(Failure::AtBoot)?;
        match up {
            Word::Ready => Ok(()),
            Word::Failed(why) => Err(Failure::InGuest(machine.died(&why))),
            _ => {
                let said = machine.complaint();
                Err(Failure::AtBoot(
                    machine.died(&format!("it did not come up {said}")),
                ))
            }
        }
    }

    /// The next word of init, within the time limit.
    fn word(
        &self,
        machine: &mut Machine,
        since: Instant,
        patience: Duration,
    ) -> Result<Word, LabError> {
        loop {
            match machine.words.recv_timeout(GLANCE) {
                Ok(word) => return Ok(word),
                Err(RecvTimeoutError::Disconnected) => return Ok(Word::Silence),
                Err(RecvTimeoutError::Timeout) => {}
            }
            if self.stop.load(Ordering::Relaxed) {
                return Err(LabError::Stopped);
            }
            if machine.is_stuck() {
                return Err(machine.died("the processor does not run it"));
            }
            if since.elapsed() > patience {
                return Err(LabError::TimedOut {
                    after: patience,
                    console: machine.end_of_console(),
                });
            }
        }
    }

    /// Collect the output in a thread of its own that ends with the machine.
    fn collect(
        &self,
        stream: Option<impl Read + Send + 'static>,
        mut ours: impl Write + Send + 'static,
    ) -> Option<JoinHandle<Vec<u8>>> {
        let mut stream = stream?;
        let output = self.output;
        Some(thread::spawn(move || {
            let mut kept = Vec::new();
            match output {
                // A connection breaks when the machine ends: the output received so far counts.
                Output::Kept => drop(stream.read_to_end(&mut kept)),
                Output::Forwarded => drop(io::copy(&mut stream, &mut ours)),
            }
            kept
        }))
    }
}

/// Whether another accelerator is worth a try.
enum Failure {
    AtBoot(LabError),
    InGuest(LabError),
}

fn joined(thread: Option<JoinHandle<Vec<u8>>>) -> Vec<u8> {
    thread
        .and_then(|thread| thread.join().ok())
        .unwrap_or_default()
}

/// Whether the programs that were built with this one lie where a shared guest would lose them: a clone of the
/// project below the temporary folder.
fn are_programs_swept() -> bool {
    std::env::current_exe().is_ok_and(|program| program.starts_with(SWEPT))
}
