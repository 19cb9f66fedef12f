//! The program of the crate, for the guest: writes files as its words say, and prints their extents.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let written = die_hints::inside::run(&words);
    match written.and_then(|written| Ok(serde_json::to_string(&written)?)) {
        Ok(json) => {
            println!("{json}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("die-hints: {error:?}");
            ExitCode::FAILURE
        }
    }
}
