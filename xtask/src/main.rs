//! `cargo xtask`: the project's own chores. Nothing of indef depends on this.

#![forbid(unsafe_code)]

mod abi;
mod bench;
mod dist;
mod experiment;
mod fresh;
mod lab;
mod licences;

use std::{path::PathBuf, process::ExitCode};

use guest::debian::Mirror;
use clap::Parser;

/// indef's own chores.
#[derive(Parser)]
#[command(
    name = "cargo xtask",
    bin_name = "cargo xtask",
    disable_help_subcommand = true
)]
enum Chore {
    /// Hold linux-abi's structures and ioctl numbers against the installed kernel headers
    AbiCheck,
    /// Measure indef, beside the conventional tools
    #[command(subcommand)]
    Bench(bench::Bench),
    Fresh(fresh::Fresh),
    /// Print an apt source (deb822) for suites of Debian, from the archive that this machine uses
    DebianSource {
        /// Which suites (bookworm, trixie …)
        #[arg(required = true)]
        suites: Vec<String>,
        /// For which machines
        #[arg(long, default_value = "amd64")]
        architecture: String,
    },
    /// Run commands in guests with Debian's kernels
    #[command(subcommand)]
    Lab(lab::Lab),
    /// Check the licences of all dependencies against the list in deny.toml
    Licences,
    /// Put what an installation consists of into a folder: binary, man pages, completions, docs
    Stage {
        /// The folder; created
        folder: PathBuf,
    },
    /// Make a release tarball below target/dist
    Dist,
}

fn main() -> ExitCode {
    let done = match Chore::parse() {
        Chore::AbiCheck => abi::check(),
        Chore::Bench(bench) => bench::run(&bench),
        Chore::Fresh(fresh) => fresh::run(&fresh),
        Chore::DebianSource {
            suites,
            architecture,
        } => debian_source(&suites, &architecture),
        Chore::Lab(lab) => return exit_code(lab::run(lab)),
        Chore::Licences => licences::check(),
        Chore::Stage { folder } => dist::stage(&folder),
        Chore::Dist => dist::tarball(),
    };
    exit_code(done.map(|()| ExitCode::SUCCESS))
}

fn exit_code(done: anyhow::Result<ExitCode>) -> ExitCode {
    match done {
        Ok(code) => code,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn debian_source(suites: &[String], architecture: &str) -> anyhow::Result<()> {
    let suites: Vec<&str> = suites.iter().map(String::as_str).collect();
    print!("{}", Mirror::of_machine()?.entry(&suites, architecture));
    Ok(())
}

/// The root of the repository.
fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("xtask is a folder of the repository")
        .to_owned()
}

/// A command that runs cargo as it runs us, from the root.
fn cargo() -> std::process::Command {
    let mut command =
        std::process::Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    command
}
