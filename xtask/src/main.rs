//! `cargo xtask`: the project's own chores. Nothing of indef depends on this.

#![forbid(unsafe_code)]

mod abi;
mod advisories;
mod command;
mod dist;
mod fresh;
mod licences;
mod packages;
mod sources;
mod test;

use std::process::ExitCode;

use clap::Parser;
use debian_mirror::Mirror;

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
    Advisories(advisories::Advisories),
    /// Write the figures of README.md and docs/ anew, from the results in figures/
    Figures,
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
    /// Check the licences of all dependencies against the list in deny.toml
    Licences,
    /// Make release tarballs of indef and of indef-lab below target/dist
    Dist,
    Packages(packages::Packages),
    Test(test::Test),
}

fn main() -> ExitCode {
    let done = match Chore::parse() {
        Chore::AbiCheck => abi::check(),
        Chore::Advisories(advisories) => advisories::check(&advisories),
        Chore::Figures => regenerate_figures(),
        Chore::Fresh(fresh) => fresh::run(&fresh),
        Chore::DebianSource {
            suites,
            architecture,
        } => debian_source(&suites, &architecture),
        Chore::Licences => licences::check(),
        Chore::Dist => dist::tarballs(),
        Chore::Packages(packages) => packages::run(&packages),
        Chore::Test(test) => return exit_code(test::run(&test)),
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

fn regenerate_figures() -> anyhow::Result<()> {
    for page in figures::tree::regenerate(source_tree::root())? {
        println!("{}", page.display());
    }
    Ok(())
}

fn debian_source(suites: &[String], architecture: &str) -> anyhow::Result<()> {
    let suites: Vec<&str> = suites.iter().map(String::as_str).collect();
    print!("{}", Mirror::of_machine()?.entry(&suites, architecture));
    Ok(())
}
