//! The command line of indef: parse, call, render; exit.
//!
//! Everything that decides or moves something is in the libraries. Results go to stdout, as text
//! or as one JSON document; messages and progress go to stderr. The exit status is a contract:
//! 0 done (skips are no failures), 1 something failed, 2 wrong usage, 3 stopped with work left and nothing failed.

#![forbid(unsafe_code)]

mod advice;
mod args;
mod chosen;
mod compact;
mod config;
mod demo;
mod doctor;
mod document;
#[cfg(test)]
#[path = "../tests/cli/common/documented.rs"]
mod documented;
mod excluded;
mod extent_map;
mod generate;
mod history;
mod made;
mod notes;
mod notify;
mod outcome;
mod output;
mod plan;
mod probe;
mod profile;
mod recorder;
mod refusal;
mod report;
mod run;
mod scan;
mod settings;
mod signals;
mod tend;
#[cfg(test)]
#[path = "../tests/cli/common/tmux.rs"]
#[allow(dead_code, reason = "other tests use more of it")]
mod tmux;
mod top;
mod trace;

use std::{env, ffi::OsString, io, path::Path, process::ExitCode};

use args::{Cli, Command, Internal};
use outcome::Outcome;
use output::{Console, LogLines, Name, Style, json, print_error};

fn main() -> ExitCode {
    let words: Vec<OsString> = env::args_os().collect();
    if let Some(verb) = Internal::of(&words) {
        return exit(internal(&verb), 0, Style::new(false));
    }
    let cli = Cli::of(&words).unwrap_or_else(|wrong| misused(&words, &wrong));
    let console = Console::new(&cli.common);
    log(&cli.common);
    let result = match &cli.command {
        Command::Scan(args) => scan::scan(args, &console),
        Command::Trace(args) => trace::trace(args, &console),
        Command::Profile(args) => profile::profile(args, &console),
        Command::Plan(args) => plan::plan(args, &console),
        Command::Run(args) => run::run(args, &console),
        Command::Top(args) => top::top(args, &console),
        Command::Probe(args) => probe::probe(args, &console),
        Command::Compact(args) => compact::compact(args, &console),
        Command::Watch(args) => tend::watch(args, &console),
        Command::Report(args) => report::report(args, &console),
        Command::Demo(args) => demo::demo(args, &console),
        Command::Config(args) => config::config(args, &console),
        Command::History(args) => history::history(args, &console),
        Command::Doctor(_) => doctor::doctor(&console),
    };
    if console.json
        && let Some(error) = failure(&result, &console)
    {
        let _ = json::end_failed(&error);
    }
    exit(result, console.errors(), console.err)
}

/// Wrong usage, or a call for help.
fn misused(words: &[OsString], wrong: &clap::Error) -> ! {
    if !wrong.use_stderr() {
        wrong.exit();
    }
    // Errors repeat words as they are: told is what is wrong with words that can be shown.
    let shown: Vec<OsString> = { words.iter() }
        .map(|word| Name(Path::new(word)).to_string().into())
        .collect();
    let told = Cli::of(&shown).err().filter(clap::Error::use_stderr);
    let text = told.as_ref().unwrap_or(wrong).to_string();
    // The error, without the tips and the usage that follow it.
    let said = text.split("\n\n").next().unwrap_or_default();
    let said: Vec<&str> = said.split_whitespace().skip(1).collect();
    let said = said.join(" ");
    // Of a command that is to be traced, no word is ours.
    let mut ours = words.iter().take_while(|word| *word != "--");
    if ours.any(|word| word == "--json") {
        let _ = json::end_failed(&said);
    }
    match told {
        Some(told) => told.exit(),
        // Only what cannot be shown was wrong with them.
        None => {
            print_error(Style::new(false), &said);
            std::process::exit(wrong.exit_code())
        }
    }
}

/// Why there may be no document on stdout, as one line.
fn failure(result: &anyhow::Result<Outcome>, console: &Console) -> Option<String> {
    match result {
        Ok(Outcome::Done) => console.first_error().map(str::to_owned),
        // A probe, say, has nothing to tell then.
        Ok(Outcome::Stopped) => Some(console.first_error().unwrap_or("stopped").to_owned()),
        Err(error) if is_broken_pipe(error) => None,
        Err(error) => Some(refusal::line(error)),
    }
}

/// Do what no person asks for.
fn internal(verb: &Internal) -> anyhow::Result<Outcome> {
    match verb {
        Internal::Generate(what) => generate::generate(what).map(|()| Outcome::Done),
        Internal::Held(args) => trace::held(args),
        Internal::DemoStep(args) => demo::step(args).map(|()| Outcome::Done),
        Internal::Tracer => tend::tracer().map(|()| Outcome::Done),
    }
}

/// The exit status of a command that printed this many errors. A failure needs somebody, what was stopped only another run:
/// of both, the failure is told.
fn exit(result: anyhow::Result<Outcome>, errors: u64, style: Style) -> ExitCode {
    match result {
        Ok(_) if errors > 0 => ExitCode::FAILURE,
        Ok(Outcome::Stopped) => ExitCode::from(3),
        Ok(Outcome::Done) => ExitCode::SUCCESS,
        // The reader of our output has closed it (`indef scan | head`), which makes up for no failure.
        Err(error) if is_broken_pipe(&error) && errors == 0 => ExitCode::SUCCESS,
        Err(error) if is_broken_pipe(&error) => ExitCode::FAILURE,
        Err(error) => {
            print_error(style, &refusal::line(&error));
            ExitCode::FAILURE
        }
    }
}

/// Direct the logs of the libraries to stderr with `-vv`.
fn log(common: &args::CommonArgs) {
    let level = match common.verbose {
        0 | 1 => tracing::Level::WARN,
        2 => tracing::Level::DEBUG,
        _ => tracing::Level::TRACE,
    };
    if common.verbose > 1 {
        tracing_subscriber::fmt()
            .with_max_level(level)
            .with_writer(|| LogLines(io::stderr()))
            .with_ansi(false)
            .without_time()
            .init();
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause
            .downcast_ref::<io::Error>()
            .is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
    })
}
