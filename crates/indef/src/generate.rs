//! Man pages and shell completions, from the definitions of the command line.

mod man;

use std::{fs, path::Path};

use anyhow::{Context, Result};
use clap::{Command, CommandFactory, ValueHint};
use clap_complete::Shell;

use crate::{
    args::{Cli, Generate},
    output::Name,
};

/// Write the requested files.
pub(crate) fn generate(what: &Generate) -> Result<()> {
    match what {
        Generate::Man { dir } => {
            create(dir)?;
            man::write(Cli::command(), dir)
                .with_context(|| format!("{}: cannot write man pages there", Name(dir)))
        }
        Generate::Completions { dir } => {
            create(dir)?;
            let mut command = without_files(Cli::command());
            for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
                clap_complete::generate_to(shell, &mut command, "indef", dir)
                    .with_context(|| format!("{}: cannot write completions there", Name(dir)))?;
            }
            Ok(())
        }
    }
}

/// Let shells offer files only where an option takes one: a size or a time is none.
fn without_files(command: Command) -> Command {
    command
        .mut_args(|arg| match arg.get_value_hint() {
            ValueHint::Unknown if arg.get_action().takes_values() => {
                arg.value_hint(ValueHint::Other)
            }
            _ => arg,
        })
        .mut_subcommands(without_files)
}

fn create(dir: &Path) -> Result<()> {
    fs::create_dir_all(dir).with_context(|| format!("{}: cannot make this directory", Name(dir)))
}
