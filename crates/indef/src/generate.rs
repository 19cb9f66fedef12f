//! Man pages and shell completions, from the definitions of the command line.

use std::{fs, path::Path};

use anyhow::{Context, Result};
use clap::CommandFactory;
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
            clap_mangen::generate_to(Cli::command(), dir)
                .with_context(|| format!("{}: cannot write man pages there", Name(dir)))
        }
        Generate::Completions { dir } => {
            create(dir)?;
            let mut command = Cli::command();
            for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
                clap_complete::generate_to(shell, &mut command, "indef", dir)
                    .with_context(|| format!("{}: cannot write completions there", Name(dir)))?;
            }
            Ok(())
        }
    }
}

fn create(dir: &Path) -> Result<()> {
    fs::create_dir_all(dir).with_context(|| format!("{}: cannot make this directory", Name(dir)))
}
