//! Commands, or a shell, in a guest with one of Debian's kernels; a guest that stays.

use std::{
    ffi::OsString,
    io::{BufRead, BufReader, Write},
    os::unix::process::CommandExt,
    path::PathBuf,
    process::{Command, ExitCode, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use guest::{
    Cache, Guest, Kernel, Output, Patched, Release, Zns, ZnsDevice, ZnsOptions, ZnsSetup,
    standing::{self, Ended, Limits, Standing},
};
use signal_hook::consts::SIGHUP;
use units::Bytes;

use crate::signals::stop_on_signals;

/// Commands on guests (docs/lab.md).
#[derive(Subcommand)]
pub(crate) enum Guests {
    /// Boot a guest that stays until `down`; `run` and `shell` then use it
    Up {
        #[command(flatten)]
        keep: KeepArgs,
    },
    /// Run a command in the standing guest, or in one of its own; exit as it exits
    Run {
        #[command(flatten)]
        which: Which,
        #[command(flatten)]
        setup: Setup,
        /// Give the command so many seconds
        #[arg(long, value_name = "SECONDS", default_value_t = 300)]
        timeout: u64,
        /// Say on standard error how long it took, and what the kernel said (in a guest of its own)
        #[arg(long)]
        verbose: bool,
        /// A program of this machine (it is copied), else one of busybox's
        #[arg(last = true, required = true, value_name = "CMD")]
        command: Vec<OsString>,
    },
    /// Open a shell in the standing guest (Ctrl-] leaves it), or in one that ends with it (Ctrl-A X)
    Shell {
        #[command(flatten)]
        which: Which,
        #[command(flatten)]
        setup: Setup,
    },
    /// End the standing guest
    Down {
        #[command(flatten)]
        which: Which,
    },
    /// Say whether a guest is standing, and which
    Status {
        #[command(flatten)]
        which: Which,
    },
    /// Which kernels there are, and which of them are here
    Kernels {
        /// Fetch those that are missing
        #[arg(long)]
        fetch: bool,
        /// Build the one with lockdep and KASAN, too, if it is missing (a quarter of an hour and more)
        #[arg(long)]
        debug: bool,
        /// Build the one whose ext4 and F2FS give die hints, too, if it is missing (ten minutes and more)
        #[arg(long)]
        die_hints: bool,
        /// The same with lockdep and KASAN (twice as long)
        #[arg(long)]
        die_hints_debug: bool,
    },
    /// Keep the guest that `up` has asked for, in the background
    #[command(hide = true)]
    Keep {
        #[command(flatten)]
        keep: KeepArgs,
    },
    /// Keep a guest that several tests use
    #[command(hide = true)]
    KeepShared {
        /// Its name in the folder of shared guests
        name: OsString,
    },
}

/// Which standing guest.
#[derive(Args)]
pub(crate) struct Which {
    /// The standing guest's name: there can be several
    #[arg(long, default_value = "lab")]
    name: String,
    /// Not the standing guest: one of its own
    #[arg(long)]
    fresh: bool,
}

/// A guest that stays.
#[derive(Args)]
pub(crate) struct KeepArgs {
    /// A name, to have several
    #[arg(long, default_value = "lab")]
    name: String,
    #[command(flatten)]
    setup: Setup,
    /// End it when nobody has used it for so many minutes
    #[arg(long, value_name = "MINUTES", default_value_t = 60)]
    idle: u64,
    /// End it after so many minutes in any case
    #[arg(long, value_name = "MINUTES", default_value_t = 720)]
    limit: u64,
}

/// All of what a guest can be.
#[derive(Args)]
pub(crate) struct Setup {
    #[command(flatten)]
    machine: MachineArgs,
    #[command(flatten)]
    files: FilesArgs,
    #[command(flatten)]
    ssd: Ssd,
}

/// The machine: kernel, disks, processors, memory.
#[derive(Args)]
pub(crate) struct MachineArgs {
    /// 6.1, 6.12 or newest [default: 6.12]
    #[arg(long)]
    kernel: Option<Release>,
    /// Add an empty disk of this size (like 512M or 2G): /dev/vda, then /dev/vdb …
    #[arg(long, value_name = "SIZE")]
    disk: Vec<Bytes>,
    /// Have this folder there as /share, to read and to write
    #[arg(long, value_name = "FOLDER")]
    share: Option<PathBuf>,
    /// Processors [default: 2]
    #[arg(long)]
    cpus: Option<u32>,
    /// Memory in MiB; the guest's files are part of it [default: 1024]
    #[arg(long, value_name = "MIB")]
    memory: Option<u32>,
    /// Load this kernel module before the command
    #[arg(long, value_name = "NAME")]
    module: Vec<String>,
    /// Have this file system with the patches of kernel/ in place of the kernel's own (built at first
    /// use: some minutes)
    #[arg(long, value_name = "ext4|f2fs")]
    patched: Vec<Patched>,
    /// One more argument for QEMU
    #[arg(long, value_name = "ARGUMENT", allow_hyphen_values = true)]
    qemu: Vec<OsString>,
}

/// Files that go along.
#[derive(Args)]
pub(crate) struct FilesArgs {
    /// Have this file or program there, at the place that it has here, with its libraries
    #[arg(long, value_name = "FILE")]
    copy: Vec<PathBuf>,
    /// Have the makers and checkers of file systems there
    #[arg(long)]
    with_tools: bool,
}

/// A zoned SSD in the guest.
#[derive(Args)]
pub(crate) struct Ssd {
    /// A zoned SSD with F2FS at /mnt/f2fs: flashd's, or QEMU's
    #[arg(long, value_name = "flashd|qemu")]
    device: Option<ZnsDevice>,
    /// Size of its zones together, of 32 MiB each
    #[arg(long, value_name = "SIZE", default_value = "2G")]
    zoned: Bytes,
    /// flashd's profile (`flashd profiles`)
    #[arg(long, value_name = "NAME", default_value = "indef-femu")]
    profile: String,
    /// How many times slower than its model flashd goes
    #[arg(long, value_name = "K", default_value_t = 1.0)]
    time_scale: f64,
    /// How far to set it up: attached, formatted or mounted
    #[arg(long, value_name = "STATE", default_value_t = ZnsSetup::Mounted)]
    setup: ZnsSetup,
}

impl MachineArgs {
    fn is_default(&self) -> bool {
        self.kernel.is_none()
            && self.disk.is_empty()
            && self.share.is_none()
            && self.cpus.is_none()
            && self.memory.is_none()
            && self.module.is_empty()
            && self.patched.is_empty()
            && self.qemu.is_empty()
    }
}

impl Ssd {
    fn make(&self) -> Result<Option<Zns>> {
        let Some(device) = self.device else {
            return Ok(None);
        };
        Ok(Some(Zns::new(ZnsOptions {
            device,
            size: self.zoned,
            profile: self.profile.clone(),
            time_scale: self.time_scale,
            ..ZnsOptions::default()
        })?))
    }
}

/// Run one of the commands.
///
/// # Errors
///
/// There is no guest here, or it came to no result. A command that fails is no error: its exit
/// status is ours.
pub(crate) fn run(guests: Guests) -> Result<ExitCode> {
    match guests {
        Guests::Up { keep } => up(&keep),
        Guests::Keep { keep } => self::keep(keep),
        Guests::KeepShared { name } => {
            let stop = stop_on_signals()?;
            guest::shared::keep(&name, || stop.load(Ordering::Relaxed))?;
            Ok(ExitCode::SUCCESS)
        }
        Guests::Run {
            which,
            setup,
            timeout,
            verbose,
            command,
        } => {
            let stop = stop_on_signals()?;
            if let Some(standing) = standing(&which, &setup)? {
                return run_there(&standing, setup.files, timeout, command, &stop);
            }
            let zns = setup.ssd.make()?;
            let guest = guest(setup, zns.as_ref())?
                .timeout(Duration::from_secs(timeout))
                .output(Output::Forwarded)
                .stop(stop);
            run_alone(guest, verbose, command)
        }
        Guests::Shell { which, setup } => {
            if let Some(standing) = standing(&which, &setup)? {
                match standing.shell()? {
                    Ended::Shell => {}
                    Ended::Detached => eprintln!("\nindef-lab: left; `indef-lab shell` goes back"),
                }
                return Ok(ExitCode::SUCCESS);
            }
            let zns = setup.ssd.make()?;
            guest(setup, zns.as_ref())?.shell()?;
            Ok(ExitCode::SUCCESS)
        }
        Guests::Down { which } => {
            match Standing::find(&Cache::of_project(), &which.name)? {
                Some(standing) => standing.down()?,
                None => eprintln!("indef-lab: no guest is standing"),
            }
            Ok(ExitCode::SUCCESS)
        }
        Guests::Status { which } => {
            match Standing::find(&Cache::of_project(), &which.name)? {
                Some(standing) => println!("{}", described(standing.state())),
                None => println!("no guest is standing"),
            }
            Ok(ExitCode::SUCCESS)
        }
        Guests::Kernels {
            fetch,
            debug,
            die_hints,
            die_hints_debug,
        } => kernels(fetch, debug, die_hints, die_hints_debug),
    }
}

/// The standing guest, if it is requested.
fn standing(which: &Which, setup: &Setup) -> Result<Option<Standing>> {
    if which.fresh {
        return Ok(None);
    }
    let Some(standing) = Standing::find(&Cache::of_project(), &which.name)? else {
        return Ok(None);
    };
    let Setup { machine, ssd, .. } = setup;
    if !machine.is_default() || ssd.device.is_some() {
        bail!(
            "a guest is standing, and is as `indef-lab up` has made it; --fresh is one with these options"
        );
    }
    Ok(Some(standing))
}

fn run_there(
    standing: &Standing,
    files: FilesArgs,
    timeout: u64,
    words: Vec<OsString>,
    stop: &AtomicBool,
) -> Result<ExitCode> {
    let here = std::env::current_dir().context("cannot tell the current folder")?;
    let command = standing::Command {
        words,
        here: here.into(),
        copy: files.copy.into_iter().map(OsString::from).collect(),
        with_tools: files.with_tools,
        timeout_s: timeout,
    };
    Ok(exit_code(standing.run(command, stop)?))
}

fn run_alone(guest: Guest, verbose: bool, command: Vec<OsString>) -> Result<ExitCode> {
    let kernel = guest.kernel().version().to_owned();
    let outcome = guest.run(command)?;
    if verbose {
        eprint!("{}", outcome.console);
        eprintln!(
            "indef-lab: Linux {kernel} on {:?}: up after {:.1} s, command took {:.1} s",
            outcome.accelerator,
            outcome.boot.as_secs_f64(),
            outcome.elapsed.as_secs_f64()
        );
    }
    Ok(exit_code(outcome.status))
}

fn exit_code(status: i32) -> ExitCode {
    u8::try_from(status).map_or(ExitCode::FAILURE, ExitCode::from)
}

/// Start the keeper, and wait until it reports that the guest is up.
fn up(keep: &KeepArgs) -> Result<ExitCode> {
    let cache = Cache::of_project();
    if let Some(standing) = Standing::find(&cache, &keep.name)? {
        bail!("a guest is standing: {}", described(standing.state()));
    }
    let log = cache
        .folder()
        .join("standing")
        .join(format!("{}.log", keep.name));
    let file = std::fs::File::create(&log).with_context(|| log.display().to_string())?;
    // The same options, with `keep` in the place of `up`.
    let mut words: Vec<OsString> = std::env::args_os().skip(1).collect();
    if let Some(word) = words.iter_mut().find(|word| *word == "up") {
        *word = "keep".into();
    }
    let mut keeper = Command::new(std::env::current_exe()?)
        .args(words)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(file)
        // Ctrl-C here must not reach it.
        .process_group(0)
        .spawn()
        .context("cannot start the keeper")?;
    let mut said = String::new();
    if let Some(out) = keeper.stdout.take() {
        BufReader::new(out).read_line(&mut said)?;
    }
    if said.is_empty() {
        keeper.wait()?;
        let why = std::fs::read_to_string(&log).unwrap_or_default();
        bail!("it does not come up:\n{}", why.trim());
    }
    print!("{said}");
    Ok(ExitCode::SUCCESS)
}

/// Run the keeper.
fn keep(keep: KeepArgs) -> Result<ExitCode> {
    let stop = stop_on_signals()?;
    // The terminal may close: we stay.
    signal_hook::flag::register(SIGHUP, Arc::default()).context("cannot wait for signals")?;
    let zns = keep.setup.ssd.make()?;
    let control = match zns.as_ref().and_then(Zns::flashd) {
        Some(device) => Some(flashd::operate::Operation::start(
            device,
            &flashd::operate::OperateOptions::default(),
        )?),
        None => None,
    };
    let guest = guest(keep.setup, zns.as_ref())?.stop(Arc::clone(&stop));
    let limits = Limits {
        idle: Duration::from_secs(60 * keep.idle),
        life: Duration::from_secs(60 * keep.limit),
    };
    let cache = Cache::of_project();
    standing::keep(
        &cache,
        &keep.name,
        guest,
        limits,
        || stop.load(Ordering::Relaxed),
        |state| {
            // The process that started us may have ended.
            let _ = writeln!(std::io::stdout(), "{}", described(state));
        },
    )?;
    drop(control);
    Ok(ExitCode::SUCCESS)
}

fn described(state: &standing::State) -> String {
    let device = match &state.device {
        Some(device) => format!(", zoned SSD of {device}"),
        None => String::new(),
    };
    format!("Linux {}{device}, keeper {}", state.kernel, state.pid)
}

fn kernels(fetch: bool, debug: bool, die_hints: bool, die_hints_debug: bool) -> Result<ExitCode> {
    let cache = Cache::of_project();
    for release in Release::ALL {
        if fetch {
            Kernel::fetch(release, &cache)?;
        }
        let version = Kernel::cached(release, &cache)
            .map_or("not fetched yet".to_owned(), |kernel| {
                kernel.version().to_owned()
            });
        println!("{release:<6} {version}");
    }
    if debug {
        println!("debug {}", Kernel::debug(&cache)?.version());
    }
    if die_hints {
        println!("die-hints {}", Kernel::die_hints(&cache)?.version());
    }
    if die_hints_debug {
        let kernel = Kernel::die_hints_debug(&cache)?;
        println!("die-hints-debug {}", kernel.version());
    }
    Ok(ExitCode::SUCCESS)
}

fn guest(setup: Setup, zns: Option<&Zns>) -> Result<Guest> {
    let Setup {
        machine,
        files,
        ssd,
    } = setup;
    let mut guest = Guest::with(machine.kernel.unwrap_or(Release::Linux6_12))?
        .cpus(machine.cpus.unwrap_or(2))
        .memory_mib(machine.memory.unwrap_or(1024));
    for patched in machine.patched {
        guest = guest.with_patched(patched)?;
    }
    if files.with_tools {
        guest = guest.with_tools();
    }
    if let Some(folder) = &machine.share {
        guest = guest.share(folder);
    }
    for file in &files.copy {
        guest = guest.copy(file);
    }
    for module in &machine.module {
        guest = guest.load(module);
    }
    for size in machine.disk {
        guest = guest.disk(size);
    }
    for argument in &machine.qemu {
        guest = guest.qemu(argument);
    }
    if let Some(zns) = zns {
        guest = guest.zns(zns, ssd.setup)?;
    }
    Ok(guest)
}
