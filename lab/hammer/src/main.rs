//! `hammer run`: rounds on volumes, and a table of what came out.

#![forbid(unsafe_code)]

mod args;

use std::{
    env, fs,
    os::unix::process::CommandExt,
    process::{self, ExitCode},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use clap::Parser;
use hammer::{Hammer, Round, VOLUMES, Volume};

use args::{Cli, Command, RunArgs};

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Run(args) => in_own_namespace().and_then(|()| run(&args)),
        Command::Volumes => {
            for volume in VOLUMES {
                println!("{}", volume.name);
            }
            Ok(true)
        }
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("hammer: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Start again in a mount namespace of our own: a namespace that somebody else makes meanwhile would
/// have copies of our mounts in it, and keep file systems mounted that are to be looked at.
fn in_own_namespace() -> Result<()> {
    const DONE: &str = "HAMMER_NAMESPACE";
    if env::var_os(DONE).is_some() {
        return Ok(());
    }
    let mut unshare = process::Command::new("unshare");
    unshare.args(["--mount", "--propagation", "private", "--"]);
    unshare
        .arg(env::current_exe()?)
        .args(env::args_os().skip(1));
    Err(unshare.env(DONE, "1").exec()).context("unshare")
}

/// Whether all was in order.
fn run(args: &RunArgs) -> Result<bool> {
    let hammer = Hammer::new(&args.folder(), args.tools(), args.options()?)?;
    let volumes = args.volumes()?;
    let begun = Instant::now();
    let until = args.minutes.map(|m| Duration::from_secs(m * 60));
    let mut rounds: Vec<Round> = Vec::new();
    let seed = args.seed.first();
    for number in 0.. {
        let over = match until {
            Some(until) => begun.elapsed() >= until,
            None => number >= args.rounds,
        };
        if over {
            break;
        }
        for volume in &volumes {
            let round = hammer.round(volume, seed.wrapping_add(number))?;
            say(args, &round);
            if !round.violations.is_empty() {
                keep_log(args, &round)?;
                if args.shrink > 0 {
                    shrink(&hammer, volume, &round, args.shrink)?;
                }
            }
            rounds.push(round);
        }
    }
    ensure!(!rounds.is_empty(), "no round was run");
    if args.json {
        let document = serde_json::json!({ "schema": 1, "rounds": rounds });
        println!("{document}");
    } else {
        print!("{}", table(&volumes, &rounds));
    }
    Ok(rounds.iter().all(|round| round.violations.is_empty()))
}

fn say(args: &RunArgs, round: &Round) {
    let void = if round.is_void() {
        "  VOID: nothing was moved"
    } else {
        ""
    };
    eprintln!(
        "{}: seed {} ({}): {} operations, {} states, {} bytes moved, {} in the window, {} violations{void}",
        round.volume,
        round.seed,
        round.mood,
        round.operations,
        round.states,
        round.bytes_moved,
        round.window,
        round.violations.len(),
    );
    for violation in round.violations.iter().take(10) {
        eprintln!("  {}", violation.lines().next().unwrap_or_default());
    }
    if !round.violations.is_empty() {
        eprintln!(
            "  again: hammer run --volume {} --seed {} --states {}, and the same --mood and --mover",
            round.volume, round.seed, args.states
        );
    }
}

fn keep_log(args: &RunArgs, round: &Round) -> Result<()> {
    let Some(folder) = &args.log else {
        return Ok(());
    };
    fs::create_dir_all(folder)?;
    let path = folder.join(format!("{}-{}.log", round.volume, round.seed));
    let mut text = round.log.join("\n");
    for violation in &round.violations {
        text.push('\n');
        text.push_str(violation);
    }
    text.push('\n');
    fs::write(&path, text).with_context(|| path.display().to_string())?;
    eprintln!("  log: {}", path.display());
    Ok(())
}

fn shrink(hammer: &Hammer, volume: &'static Volume, round: &Round, tries: u32) -> Result<()> {
    eprintln!("  shrinking: at most {tries} rounds");
    let (lines, violations) = hammer.shrink(volume, round.seed, tries)?;
    eprintln!("  {} steps are left:", lines.len());
    for line in lines.iter().chain(&violations) {
        eprintln!("    {line}");
    }
    Ok(())
}

/// One line for each volume.
fn table(volumes: &[&'static Volume], rounds: &[Round]) -> String {
    use std::fmt::Write;
    let mut text = format!(
        "{:<16} {:>7} {:>10} {:>6} {:>6} {:>6} {:>7} {:>9} {:>7} {:>10}\n",
        "volume",
        "rounds",
        "operations",
        "kills",
        "cuts",
        "states",
        "void",
        "MiB moved",
        "window",
        "violations"
    );
    for volume in volumes {
        let of: Vec<&Round> = { rounds.iter() }
            .filter(|round| round.volume == volume.name)
            .collect();
        let sum = |value: fn(&Round) -> u64| of.iter().map(|round| value(round)).sum::<u64>();
        let _ = writeln!(
            text,
            "{:<16} {:>7} {:>10} {:>6} {:>6} {:>6} {:>7} {:>9} {:>7} {:>10}",
            volume.name,
            of.len(),
            sum(|round| round.operations),
            sum(|round| round.kills),
            sum(|round| round.cuts),
            sum(|round| round.states),
            sum(|round| u64::from(round.is_void())),
            sum(|round| round.bytes_moved) >> 20,
            sum(|round| round.window),
            sum(|round| round.violations.len() as u64),
        );
    }
    text
}
