//! FAST'24's files while garbage is collected, which the published emulator never does with its approach on:
//! prints the result, or with `--keep` writes figures/fast24.json, which docs/fast24.md shows and explains
//! (`make figures`). It takes minutes.
//!
//! ```text
//! cargo run --release -p experiments --example fast24-collecting -- --keep
//! ```

#![forbid(unsafe_code)]

use std::process::ExitCode;

use anyhow::{Result, bail};
use experiments::{
    fast24::results::{WHOLE, collecting},
    figure,
};
use figures::{Record, Session};

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("fast24-collecting: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let keep = match std::env::args().nth(1).as_deref() {
        None => false,
        Some("--keep") => true,
        Some(other) => bail!("'{other}' is not --keep"),
    };
    let root = source_tree::root();
    let rows = collecting(&figure::fast24_target(root)?, WHOLE);
    if keep {
        let command = "cargo run --release -p experiments --example fast24-collecting -- --keep";
        let record = Record::of(Session::in_virtual_time(command, rows));
        record.write(&root.join("figures/fast24.json"))?;
    } else {
        rows.iter().for_each(|row| println!("{row}"));
    }
    Ok(())
}
