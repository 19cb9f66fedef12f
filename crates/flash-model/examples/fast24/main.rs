//! FAST'24's Figures 8, 11 and 12 as this model gives them, beside the published ones, and how they
//! change while garbage is collected: prints them, or with `--keep` writes figures/fast24.json, which
//! docs/fast24.md shows and explains (`make figures`).
//!
//! ```text
//! cargo run --release -p flash-model --example fast24 -- --keep
//! ```

#![forbid(unsafe_code)]

mod collecting;
mod compare;
mod dummy;
mod host;
mod placement;
mod published;
mod results;

use std::{path::Path, process::ExitCode};

use figures::{Record, Session};

fn main() -> ExitCode {
    let rows = [results::quick(), results::collecting(results::WHOLE)].concat();
    match std::env::args().nth(1).as_deref() {
        None => rows.iter().for_each(|row| println!("{row}")),
        Some("--keep") => {
            let command = "cargo run --release -p flash-model --example fast24 -- --keep";
            let record = Record::of(Session::in_virtual_time(command, rows));
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../figures");
            if let Err(error) = record.write(&folder.join("fast24.json")) {
                eprintln!("fast24: {error:#}");
                return ExitCode::FAILURE;
            }
        }
        Some(other) => {
            eprintln!("fast24: '{other}' is not --keep");
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}
