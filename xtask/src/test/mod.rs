//! `cargo xtask test`: all tests, two at a time, one that mostly waits, and more while a processor is
//! idle; the longest first.
//!
//! Every test is a process of its own, started by the harness of its program with `--exact`. So each has
//! a time limit, a time, a folder for temporary files and a log of skips of its own; one that hangs ends
//! alone; and the result is the process's exit status, whatever the test prints. Data flows one way:
//!
//! ```text
//! programs ──▶ tiers ──▶ schedule ──▶ running (room) ──▶ outcome ──▶ report, record
//! (build,      (which,    (order,     (one process,      (passed,
//!  list)        how long)  company)    limit, remains)    failed, skipped)
//! ```
//!
//! Only guests that several tests use, one after the other, live longer than a test (`guests`). What tests have left that
//! were killed goes when a run begins (`abandoned`).
//!
//! The last line is `N passed, N failed, N skipped`. If `INDEF_SUMMARY` names a file, that line is
//! written there, for a caller that wants to print it last.

mod abandoned;
mod company;
mod guests;
mod outcome;
mod process;
mod programs;
mod record;
mod report;
mod room;
mod running;
mod schedule;
mod spare;
#[cfg(test)]
mod tests;
mod tiers;

use std::{
    path::PathBuf,
    process::ExitCode,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use anyhow::{Context, Result};
use clap::Args;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use guests::Guests;
use outcome::{TestOutcome, TestResult};
use process::TICK;
use programs::Built;
use record::Times;
use report::Report;
use room::Run;
use running::Running;
use schedule::{Queue, TestJob};
use spare::Spare;
use tiers::Tier;

/// Run the tests: two at a time, one that mostly waits, and more while a processor is idle; the longest first
#[derive(Args)]
pub(crate) struct Test {
    /// Which of them
    #[arg(long, value_enum, default_value = "test")]
    tier: Tier,
    /// Those of this package only (several times for several)
    #[arg(short, long = "package", value_name = "NAME")]
    packages: Vec<String>,
    /// How many run at the same time, beside one that mostly waits, and two while a processor is idle
    #[arg(long, value_name = "N", default_value_t = 2)]
    jobs: usize,
    /// Give every test so many seconds, instead of what its tier gives
    #[arg(long, value_name = "SECONDS")]
    limit: Option<u64>,
    /// Print the tests' names instead
    #[arg(long)]
    list: bool,
    /// Those only whose `PROGRAM TEST` contains one of these
    filters: Vec<String>,
}

/// cargo's exit status for failed tests.
const FAILED: u8 = 101;
/// The exit status after a signal, as in a shell.
const INTERRUPTED: u8 = 130;

pub(crate) fn run(arguments: &Test) -> Result<ExitCode> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    let mut report = Report::begin(arguments.tier);
    if !arguments.list && rustix::process::geteuid().is_root() {
        for folder in abandoned::clear(&std::env::temp_dir()) {
            eprintln!(
                "xtask: cleared {}, which a killed test has left",
                folder.display()
            );
        }
    }
    let run = Run::new()?;
    let built = match programs::build(arguments.tier, &arguments.packages, &run, &stop) {
        Ok(built) => built,
        // Nothing was run, and that is no success.
        Err(error) => {
            eprintln!("xtask: {error:#}");
            report.add(TestResult::of_runner(
                "build",
                TestOutcome::Failed("no programs".into()),
            ));
            return conclude(&report, &stop);
        }
    };
    report.built(built.programs.len());
    let times = Times::load();
    let (jobs, listed) = jobs(arguments, &built, &times)?;
    if arguments.list {
        for job in &jobs {
            println!("{}", job.full_name());
        }
        return Ok(ExitCode::SUCCESS);
    }
    // A list entry for a test that no longer exists would silently stop having an effect.
    if arguments.packages.is_empty() && arguments.tier != Tier::Check {
        for entry in tiers::stale(&listed).chain(company::stale(&listed)) {
            let gone = TestOutcome::Failed("this entry matches no test".into());
            report.add(TestResult::of_runner(&entry, gone));
        }
    }
    report.expect(&jobs);
    let guests = match &built.lab {
        Some(keeper) => Some(Guests::new(&run, keeper)?),
        None => None,
    };
    let equipment = Equipment {
        run: &run,
        shared: &built.shared,
        guests: guests.as_ref(),
    };
    let at_once = arguments.jobs.max(1);
    execute(Queue::new(jobs), at_once, &equipment, &mut report, &stop)?;
    record::save(&report, times)?;
    conclude(&report, &stop)
}

/// `(target, test)`.
type TestId = (String, String);

/// The jobs to run; and `(target, test)` of all existing tests, of every tier.
fn jobs(arguments: &Test, built: &Built, times: &Times) -> Result<(Vec<TestJob>, Vec<TestId>)> {
    let (mut jobs, mut listed) = (Vec::new(), Vec::new());
    for program in &built.programs {
        let program = Rc::new(program.clone());
        for test in program.list()? {
            listed.push((program.target.clone(), test.clone()));
            let Some(environment) = arguments.tier.takes(&program.target, &test) else {
                continue;
            };
            let company = company::of(&program.target, &test);
            let job = TestJob {
                expected: times.expect(&program.name, &test),
                limit: arguments
                    .limit
                    .map_or_else(|| arguments.tier.limit(&test), Duration::from_secs),
                company,
                environment,
                program: Rc::clone(&program),
                test,
            };
            let name = job.full_name();
            let wanted = |filter: &String| name.contains(filter.as_str());
            if arguments.filters.is_empty() || arguments.filters.iter().any(wanted) {
                jobs.push(job);
            }
        }
    }
    Ok((jobs, listed))
}

/// The things of a run that all tests get.
struct Equipment<'a> {
    run: &'a Run,
    shared: &'a [(&'static str, PathBuf)],
    guests: Option<&'a Guests>,
}

/// Run everything that is in the queue, or as much as is possible until the stop.
fn execute(
    mut queue: Queue,
    at_once: usize,
    equipment: &Equipment<'_>,
    report: &mut Report,
    stop: &AtomicBool,
) -> Result<()> {
    let mut running: Vec<Running> = Vec::new();
    let mut spare = Spare::new();
    while !stop.load(Ordering::Relaxed) {
        loop {
            let company: Vec<_> = running.iter().map(|one| one.job.company).collect();
            let fits = running.len() < at_once + spare::MORE && spare.is_there();
            let at_once = if fits { running.len() + 1 } else { at_once };
            let Some(job) = queue.take(&company, at_once) else {
                break;
            };
            running.push(start(job, equipment)?);
        }
        if running.is_empty() {
            report.guests = equipment.guests.map(Guests::processor);
            return Ok(());
        }
        thread::sleep(TICK);
        let mut index = 0;
        while index < running.len() {
            let Some(results) = running[index].poll()? else {
                index += 1;
                continue;
            };
            let ended = running.swap_remove(index);
            for result in results {
                report.add(result);
            }
            report.ended(&ended.job);
        }
        report.still_running(&running);
        if let Some(guests) = equipment.guests {
            guests.watch();
        }
    }
    // A dropped test ends with all processes that it has started.
    Ok(())
}

fn start(job: TestJob, equipment: &Equipment<'_>) -> Result<Running> {
    let room = equipment.run.room()?;
    let mut command = job.program.command(&job.test);
    command.envs(job.environment.iter().copied());
    // Tests that need them would otherwise request them from cargo, each anew.
    command.envs(equipment.shared.iter().map(|(name, path)| (name, path)));
    if let Some(guests) = equipment.guests {
        guests.offer(&mut command);
    }
    let name = job.full_name();
    Running::start(command, job, room).with_context(|| format!("cannot run {name}"))
}

fn conclude(report: &Report, stop: &AtomicBool) -> Result<ExitCode> {
    let interrupted = stop.load(Ordering::Relaxed);
    report.conclude(interrupted)?;
    Ok(match (interrupted, report.has_failed()) {
        (true, _) => INTERRUPTED.into(),
        (false, true) => FAILED.into(),
        (false, false) => ExitCode::SUCCESS,
    })
}
