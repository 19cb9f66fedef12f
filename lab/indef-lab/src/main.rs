//! The laboratory's command line: parse, call, exit.
//!
//! Nothing of indef depends on it. `indef demo --zns` runs it, where it is installed, as a program of
//! its own ([`demo`]).

#![forbid(unsafe_code)]

mod demo;
mod guests;
mod signals;

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;

/// indef's laboratory: guests with Debian's kernels and zoned SSDs, benchmarks, experiments
#[derive(Parser)]
#[command(name = "indef-lab", version, disable_help_subcommand = true)]
enum Command {
    #[command(flatten)]
    Guests(guests::Guests),
    /// Measure indef, beside the conventional tools
    #[command(subcommand)]
    Bench(bench::Bench),
    /// Measure one of the papers' figures in a guest, with F2FS on flashd's zones (experiments/)
    Experiment(experiments::Options),
    /// Measure the papers' figures, ours beside theirs (experiments/PAPER/, docs/experiments.md)
    Experiments(experiments::suite::Options),
    /// A year of a fleet in virtual time: policies of defragmenting beside each other (docs/fleet.md)
    Fleet(fleet::command::Options),
    /// Do a step of an experiment, in the guest
    #[command(hide = true, subcommand)]
    Inside(experiments::inside::Inside),
    /// Be the virtual machine of `indef demo --zns`
    #[command(hide = true)]
    Demo(demo::DemoArgs),
}

fn main() -> ExitCode {
    let done = match Command::parse() {
        Command::Guests(guests) => guests::run(guests),
        Command::Bench(bench) => bench::run(&bench).map(|()| ExitCode::SUCCESS),
        Command::Experiment(options) => experiments::run(&options).map(|()| ExitCode::SUCCESS),
        Command::Experiments(options) => suite(&options),
        Command::Fleet(options) => signals::stop_on_signals()
            .and_then(|stop| fleet::command::run(&options, &stop))
            .map(|()| ExitCode::SUCCESS),
        Command::Inside(inside) => experiments::inside::run(&inside).map(|()| ExitCode::SUCCESS),
        Command::Demo(args) => demo::run(&args),
    };
    done.unwrap_or_else(|error| {
        eprintln!("indef-lab: {error:#}");
        ExitCode::FAILURE
    })
}

/// Fails if a figure did not come out as it is committed.
fn suite(options: &experiments::suite::Options) -> Result<ExitCode> {
    let stop = signals::stop_on_signals()?;
    let as_committed = experiments::suite::run(options, &stop)?;
    Ok(if as_committed {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
