//! The command line of flashd: parse, call, render; exit.
//!
//! Results go to stdout, as text or as one JSON document; messages go to stderr. The exit status:
//! 0 done, 1 something failed (or answers were later than `--max-lateness`), 2 wrong usage.

#![forbid(unsafe_code)]

mod args;
mod commands;
mod table;

use std::process::ExitCode;

use clap::Parser;
use tracing_subscriber::{
    Layer,
    filter::{LevelFilter, Targets},
    layer::SubscriberExt,
    util::SubscriberInitExt,
};

use args::{Cli, Command};

fn main() -> ExitCode {
    let cli = Cli::parse();
    log(cli.verbose);
    let result = match &cli.command {
        Command::Profiles(args) => commands::profiles(args),
        Command::Serve(args) => commands::serve(args),
        Command::Mount(args) => commands::mount_disk(args),
        Command::Status(args) => commands::status(args),
        Command::Stats(args) => commands::stats(args),
        Command::PowerCut(args) => commands::power_cut(args),
        Command::Inject(args) => commands::inject(args),
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
        0 => LevelFilter::INFO,
        1 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    };
    // The FUSE library's warnings are about features that the kernel tries out.
    let library = if verbose < 2 {
        LevelFilter::ERROR
    } else {
        level
    };
    let levels = Targets::new()
        .with_default(level)
        .with_target("fuser", library);
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()))
        .with_target(false);
    tracing_subscriber::registry()
        .with(lines.with_filter(levels))
        .init();
}
