//! `cargo xtask lab`: a command, or a shell, in a guest with one of Debian's kernels.

use std::{
    ffi::OsString,
    path::PathBuf,
    process::ExitCode,
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use lab::{Cache, Guest, Kernel, Output, Release};
use signal_hook::consts::{SIGINT, SIGTERM};
use units::Bytes;

/// A guest with one of Debian's kernels (see docs/lab.md).
#[derive(Subcommand)]
pub(crate) enum Lab {
    /// Boot, run a command, print what it prints, exit as it exits
    Run {
        #[command(flatten)]
        machine: Machine,
        /// Give the command so many seconds
        #[arg(long, value_name = "SECONDS", default_value_t = 300)]
        timeout: u64,
        /// Say on standard error how long it took, and what the kernel said
        #[arg(long)]
        verbose: bool,
        /// A program of this machine (it is copied), else one of busybox's
        #[arg(last = true, required = true, value_name = "CMD")]
        command: Vec<OsString>,
    },
    /// Boot and open a shell; its end, or Ctrl-A X, ends the guest
    Shell {
        #[command(flatten)]
        machine: Machine,
    },
    /// Which kernels there are, and which of them are here
    Kernels {
        /// Fetch those that are missing
        #[arg(long)]
        fetch: bool,
    },
}

/// What the guest is like.
#[derive(Args)]
pub(crate) struct Machine {
    /// 6.1 or 6.12
    #[arg(long, default_value_t = Release::Linux6_12)]
    kernel: Release,
    /// Have this file or program there, at the place that it has here, with its libraries
    #[arg(long, value_name = "FILE")]
    copy: Vec<PathBuf>,
    /// Have the makers and checkers of file systems there
    #[arg(long)]
    with_tools: bool,
    /// Load this kernel module before the command
    #[arg(long, value_name = "NAME")]
    module: Vec<String>,
    /// Add an empty disk of this size (like 512M or 2G): /dev/vda, then /dev/vdb …
    #[arg(long, value_name = "SIZE")]
    disk: Vec<Bytes>,
    /// Have this folder there as /share, to read and to write
    #[arg(long, value_name = "FOLDER")]
    share: Option<PathBuf>,
    /// Processors
    #[arg(long, default_value_t = 2)]
    cpus: u32,
    /// Memory in MiB; the guest's files are part of it
    #[arg(long, value_name = "MIB", default_value_t = 1024)]
    memory: u32,
    /// One more argument for QEMU
    #[arg(long, value_name = "ARGUMENT", allow_hyphen_values = true)]
    qemu: Vec<OsString>,
}

/// Do it.
///
/// # Errors
///
/// That there is no guest here, or that it came to no result. A command that fails is no error:
/// its exit status is ours.
pub(crate) fn run(lab: Lab) -> Result<ExitCode> {
    match lab {
        Lab::Run {
            machine,
            timeout,
            verbose,
            command,
        } => {
            // Not to die of it: the guest and its files are cleared away first.
            let stop = Arc::new(AtomicBool::new(false));
            for signal in [SIGINT, SIGTERM] {
                signal_hook::flag::register(signal, Arc::clone(&stop))
                    .context("cannot wait for signals")?;
            }
            let guest = guest(machine)?
                .timeout(Duration::from_secs(timeout))
                .output(Output::Forwarded)
                .stop(stop);
            let kernel = guest.kernel().version().to_owned();
            let outcome = guest.run(command)?;
            if verbose {
                eprint!("{}", outcome.console);
                eprintln!(
                    "lab: Linux {kernel} on {:?}: up after {:.1} s, command took {:.1} s",
                    outcome.accelerator,
                    outcome.boot.as_secs_f64(),
                    outcome.elapsed.as_secs_f64()
                );
            }
            Ok(u8::try_from(outcome.status).map_or(ExitCode::FAILURE, ExitCode::from))
        }
        Lab::Shell { machine } => {
            guest(machine)?.shell()?;
            Ok(ExitCode::SUCCESS)
        }
        Lab::Kernels { fetch } => {
            let cache = Cache::of_project();
            for release in Release::ALL {
                if fetch {
                    Kernel::fetch(release, &cache)?;
                }
                let version = Kernel::cached(release, &cache)
                    .map_or("not fetched yet".to_owned(), |kernel| {
                        kernel.version().to_owned()
                    });
                println!("{release:<5} {version}");
            }
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn guest(machine: Machine) -> Result<Guest> {
    let mut guest = Guest::with(machine.kernel)?
        .cpus(machine.cpus)
        .memory_mib(machine.memory);
    if machine.with_tools {
        guest = guest.with_tools();
    }
    if let Some(folder) = &machine.share {
        guest = guest.share(folder);
    }
    for file in &machine.copy {
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
    Ok(guest)
}
