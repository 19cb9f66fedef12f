//! The command line of flashd: parse, call, render; exit.
//!
//! Results go to stdout, as text or as one JSON document; messages go to stderr. The exit status:
//! 0 done, 1 something failed (or answers were later than `--max-lateness`), 2 wrong usage.

#![forbid(unsafe_code)]

mod args;
mod commands;

use std::process::ExitCode;

use clap::Parser;

use args::{Cli, Command};

fn main() -> ExitCode {
    let cli = Cli::parse();
    log(cli.verbose);
    let result = match &cli.command {
        Command::Profiles(args) => commands::profiles(args),
        Command::Serve(args) => commands::serve(args),
        Command::Mount(args) => commands::mount(args),
        Command::Status(args) => commands::status(args),
        Command::Stats(args) => commands::stats(args),
        Command::PowerCut(args) => commands::power_cut(args),
        Command::Record(args) => commands::record(args),
        Command::Replay(args) => commands::replay(args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("flashd: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn log(verbose: u8) {
    let level = match verbose {
        0 => tracing::Level::INFO,
        1 => tracing::Level::DEBUG,
        _ => tracing::Level::TRACE,
    };
    tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()))
        .with_target(false)
        .init();
}
