//! The built-in profiles beside closed forms and published figures: prints them, or with `--keep`
//! writes figures/profiles.json, which docs/flash-model.md shows (`make figures`).
//!
//! ```text
//! cargo run --release -p flash-model --example profiles -- --keep
//! ```

#![forbid(unsafe_code)]

mod collection;
mod drive;
mod indef_femu;
mod qlc;
mod results;
mod tlc;
mod zn540;

use std::{path::Path, process::ExitCode};

use figures::{Record, Session};

fn main() -> ExitCode {
    let rows = results::all();
    match std::env::args().nth(1).as_deref() {
        None => rows.iter().for_each(|row| println!("{row}")),
        Some("--keep") => {
            let command = "cargo run --release -p flash-model --example profiles -- --keep";
            let record = Record::of(Session::in_virtual_time(command, rows));
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../figures");
            if let Err(error) = record.write(&folder.join("profiles.json")) {
                eprintln!("profiles: {error:#}");
                return ExitCode::FAILURE;
            }
        }
        Some(other) => {
            eprintln!("profiles: '{other}' is not --keep");
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}
