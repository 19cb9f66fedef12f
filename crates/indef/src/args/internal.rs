//! Verbs that no person types: indef calls itself by them, or its packagers do. They are no part of
//! [`Cli`](super::Cli), so neither help nor completions, suggestions or man pages name them.

use std::{
    ffi::{OsStr, OsString},
    path::PathBuf,
};

use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};
use units::Bytes;

use super::values;

#[derive(Debug, Parser)]
#[command(name = "indef", disable_help_subcommand = true)]
struct InternalCli {
    #[command(subcommand)]
    verb: Internal,
}

/// The verbs.
#[derive(Debug, Subcommand)]
pub(crate) enum Internal {
    #[command(subcommand)]
    Generate(Generate),
    Held(HeldArgs),
    DemoStep(DemoStepArgs),
    /// Make the trace that `indef watch` asks for over the connection that is stdin (`indef-trace@.service`)
    Tracer,
}

impl Internal {
    /// The verb of this command line, whose first word is the program; `None` if it is for people. Wrong usage of
    /// such a verb ends the program.
    pub(crate) fn of(words: &[OsString]) -> Option<Self> {
        let verb = words.get(1).map(OsString::as_os_str)?;
        let command = InternalCli::command();
        let is_one = command
            .get_subcommands()
            .any(|one| OsStr::new(one.get_name()) == verb);
        is_one.then(|| InternalCli::parse_from(words).verb)
    }
}

/// Write the files that packages ship.
#[derive(Debug, Subcommand)]
pub(crate) enum Generate {
    /// Man pages, one for each command
    Man {
        /// Target folder
        dir: PathBuf,
    },
    /// Completions for bash, zsh and fish
    Completions {
        /// Target folder
        dir: PathBuf,
    },
}

/// Wait to be continued, then become the command (`indef trace -- CMD` starts the command through
/// this, so that the trace misses nothing of it).
#[derive(Debug, Args)]
pub(crate) struct HeldArgs {
    #[arg(last = true, required = true)]
    pub(crate) command: Vec<OsString>,
}

/// A part of `demo --zns`, in the guest.
#[derive(Debug, Args)]
pub(crate) struct DemoStepArgs {
    /// The part to run
    pub(crate) step: DemoStep,
    /// The folder to work in
    pub(crate) dir: PathBuf,
    /// How much data to age
    #[arg(long, value_parser = values::demo_size, default_value = "32MiB")]
    pub(crate) size: Bytes,
}

/// The parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DemoStep {
    /// Make aged files
    Age,
    /// Hash and measure them
    Measure,
    /// Read them
    Read,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_their_own_names_are_internal() {
        InternalCli::command().debug_assert();
        let of =
            |words: &[&str]| Internal::of(&words.iter().map(OsString::from).collect::<Vec<_>>());
        assert!(matches!(
            of(&["indef", "held", "--", "true"]),
            Some(Internal::Held(_))
        ));
        assert!(matches!(
            of(&["indef", "generate", "man", "x"]),
            Some(Internal::Generate(_))
        ));
        assert!(matches!(of(&["indef", "tracer"]), Some(Internal::Tracer)));
        for words in [
            &["indef"][..],
            &["indef", "help"],
            &["indef", "scan", "held"],
        ] {
            assert!(of(words).is_none(), "{words:?}");
        }
    }
}
