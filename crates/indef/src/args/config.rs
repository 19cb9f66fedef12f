//! The options of `indef config`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};

/// Show and check the configuration
///
/// The services (indef.service and indef-watch.service), `indef run --config` and `indef watch --config` take paths,
/// limits and further options from /etc/indef/indef.toml, and from drop-ins in /etc/indef/indef.toml.d: *.toml, in the order of their names, a
/// later value in the place of an earlier one. No other command reads it.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    indef config show                         what holds, and which file and line says so\n  \
    indef config check                        are there mistakes?\n  \
    indef config example > indef.toml         all keys, their meaning and defaults")]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    pub(crate) command: ConfigCommand,
}

/// What to do with it.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    Show(ShowConfigArgs),
    Check(CheckConfigArgs),
    Example(ExampleConfigArgs),
}

/// Show the values that hold, and where each comes from
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    indef config show\n  \
    indef config show ./new.toml              before it is put in place\n  \
    indef config show --json | jq '.settings[] | select(.file) | .key'")]
pub(crate) struct ShowConfigArgs {
    /// The configuration, with its drop-ins in FILE.d [default: /etc/indef/indef.toml]
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: Option<PathBuf>,
}

/// Find mistakes
///
/// Names file, line and key of each, what is allowed, and what was meant perhaps. Exit status: 0 none, 1 there are
/// mistakes or a file cannot be read, 2 wrong usage.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    indef config check\n  \
    indef config check ./new.toml             before it is put in place")]
pub(crate) struct CheckConfigArgs {
    /// Configurations, each with its drop-ins in FILE.d [default: /etc/indef/indef.toml]
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) files: Vec<PathBuf>,
}

/// Print a configuration with all keys, their meaning and their defaults
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    mkdir -p /etc/indef && indef config example > /etc/indef/indef.toml")]
pub(crate) struct ExampleConfigArgs {}
