//! `hammer run`: rounds on volumes, and a table of the results.

#![forbid(unsafe_code)]

mod args;
mod guest;

use std::{
    env, fs,
    os::unix::{fs::MetadataExt, process::CommandExt},
    path::Path,
    process::{self, ExitCode},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use clap::{Parser, ValueEnum};
use hammer::{Hammer, MediumKind, Round, VOLUMES, Volume, serve_medium};
use rustix::mount::{UnmountFlags, unmount};
use signal_hook::consts::{SIGINT, SIGTERM};

use args::{Cli, Command, RunArgs};

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Run(args) if guest::is_wanted(&args) => return guest::run(&args),
        Command::Run(args) => in_own_namespace(&args.folder()).and_then(|()| run(&args)),
        Command::Volumes => {
            for volume in VOLUMES {
                println!("{}", volume.name);
            }
            Ok(ExitCode::SUCCESS)
        }
        Command::Medium {
            folder,
            attach,
            beginning,
        } => serve_medium(&folder, attach, beginning).map(|()| ExitCode::SUCCESS),
    };
    match result {
        Ok(status) => status,
        Err(error) => {
            eprintln!("hammer: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Start again in a mount namespace of our own: a namespace that another process makes meanwhile would
/// contain copies of our mounts, and keep file systems mounted that are to be examined.
fn in_own_namespace(folder: &Path) -> Result<()> {
    const DONE: &str = "HAMMER_NAMESPACE";
    if env::var_os(DONE).is_some() {
        return let_others_go(folder);
    }
    let mut unshare = process::Command::new("unshare");
    unshare.args(["--mount", "--propagation", "private", "--"]);
    unshare
        .arg(env::current_exe()?)
        .args(env::args_os().skip(1));
    Err(unshare.env(DONE, "1").exec()).context("unshare")
}

/// The same in the other direction: unmount, in this namespace, file systems on loop devices that others
/// have mounted. Not the one that `folder` lies on.
fn let_others_go(folder: &Path) -> Result<()> {
    let ours = fs::metadata(folder)
        .with_context(|| folder.display().to_string())?
        .dev();
    let table = fs::read_to_string("/proc/self/mountinfo")?;
    // The last mounts come first: they may lie on the others.
    for line in table.lines().rev() {
        // ID PARENT MAJOR:MINOR ROOT POINT OPTIONS … - TYPE SOURCE OPTIONS (proc_pid_mountinfo(5))
        let source = line
            .split(" - ")
            .nth(1)
            .and_then(|rest| rest.split(' ').nth(1));
        let Some(point) = line.split(' ').nth(4) else {
            continue;
        };
        let point = Path::new(point);
        let holds_ours = fs::metadata(point).is_ok_and(|meta| meta.dev() == ours);
        if source.is_some_and(|source| source.starts_with("/dev/loop")) && !holds_ours {
            // A name with escaped characters (a blank) is not found; the mount then stays.
            let _ = unmount(point, UnmountFlags::DETACH);
        }
    }
    Ok(())
}

/// Run all rounds and return the exit status.
fn run(args: &RunArgs) -> Result<ExitCode> {
    let signal = watch_signals()?;
    let options = args.options(&signal)?;
    let program = env::current_exe()?;
    let hammer = Hammer::new(&args.folder(), args.tools(), program, options)?;
    let volumes = args.volumes()?;
    let mut rounds = Vec::new();
    // Also report the findings before an error.
    let ended = all_rounds(args, &hammer, &volumes, &signal, &mut rounds);
    let interrupted = signal.load(Ordering::Relaxed) != 0;
    if args.json {
        let document = serde_json::json!({ "schema": 1, "rounds": rounds });
        println!("{document}");
    } else if !rounds.is_empty() {
        print!("{}", table(&volumes, &rounds));
    }
    ended?;
    ensure!(!rounds.is_empty() || interrupted, "no round was run");
    Ok(match signal.load(Ordering::Relaxed) {
        0 if rounds.iter().all(|round| round.violations.is_empty()) => ExitCode::SUCCESS,
        0 => ExitCode::FAILURE,
        signal => ExitCode::from(128 + signal as u8),
    })
}

/// Run round after round, until there are enough, the time is over, or a signal comes.
fn all_rounds(
    args: &RunArgs,
    hammer: &Hammer,
    volumes: &[&'static Volume],
    signal: &AtomicUsize,
    rounds: &mut Vec<Round>,
) -> Result<()> {
    let begun = Instant::now();
    let until = args.minutes.map(|m| Duration::from_secs(m * 60));
    let seed = args.seed.first();
    let interrupted = || signal.load(Ordering::Relaxed) != 0;
    for number in 0.. {
        let over = match until {
            Some(until) => begun.elapsed() >= until,
            None => number >= args.rounds,
        };
        let enough = args.until_shown && volumes.iter().all(|volume| have_shown(volume, rounds));
        if over || enough || interrupted() {
            break;
        }
        for volume in volumes {
            if interrupted() {
                break;
            }
            let round = hammer.round(volume, seed.wrapping_add(number))?;
            say(args, &round);
            if !round.violations.is_empty() {
                keep_log(args, &round)?;
                if args.shrink > 0 && !interrupted() {
                    shrink(hammer, volume, &round, args.shrink)?;
                }
            }
            rounds.push(round);
        }
    }
    Ok(())
}

/// Whether the rounds on a volume have shown something.
fn have_shown(volume: &Volume, rounds: &[Round]) -> bool {
    let of = || rounds.iter().filter(|round| round.volume == volume.name);
    of().any(|round| !round.void) && of().any(|round| round.in_doubt > 0)
}

/// The number of the signal that ends the run, once it has come. Further signals change nothing:
/// timeout(1) sends each twice, to its child and to the process group.
fn watch_signals() -> Result<Arc<AtomicUsize>> {
    let number = Arc::new(AtomicUsize::new(0));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register_usize(signal, Arc::clone(&number), signal as usize)?;
    }
    Ok(number)
}

fn say(args: &RunArgs, round: &Round) {
    let void = if round.interrupted {
        "  INTERRUPTED"
    } else if round.void {
        "  VOID: nothing was moved, or not by the device"
    } else {
        ""
    };
    eprintln!(
        "{} on {}: seed {} ({}): {} operations, {} states, {} bytes moved, {} by the device, {} in the window, {} violations{void}",
        round.volume,
        round.medium,
        round.seed,
        round.mood,
        round.operations,
        round.states,
        round.bytes_moved,
        round.bytes_offloaded,
        round.window,
        round.violations.len(),
    );
    for violation in round.violations.iter().take(10) {
        eprintln!("  {}", violation.lines().next().unwrap_or_default());
    }
    if !round.violations.is_empty() {
        eprintln!(
            "  again: hammer run --volume {} --medium {} --seed {} --states {}, and the same --mood and --mover",
            round.volume, round.medium, round.seed, args.states
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

/// One line for each volume on each medium.
fn table(volumes: &[&'static Volume], rounds: &[Round]) -> String {
    use std::fmt::Write;
    let mut text = format!(
        "{:<16} {:<12} {:>7} {:>10} {:>6} {:>6} {:>6} {:>7} {:>9} {:>9} {:>7} {:>10}\n",
        "volume",
        "medium",
        "rounds",
        "operations",
        "kills",
        "cuts",
        "states",
        "void",
        "MiB moved",
        "by device",
        "window",
        "violations"
    );
    let media = MediumKind::value_variants().iter();
    let media: Vec<&str> = media.map(|medium| medium.as_str()).collect();
    let lines = volumes
        .iter()
        .flat_map(|volume| media.iter().map(move |medium| (volume.name, *medium)));
    for (volume, medium) in lines {
        let of: Vec<&Round> = { rounds.iter() }
            .filter(|round| round.volume == volume && round.medium == medium)
            .collect();
        if of.is_empty() {
            continue;
        }
        let sum = |value: fn(&Round) -> u64| of.iter().map(|round| value(round)).sum::<u64>();
        let _ = writeln!(
            text,
            "{volume:<16} {medium:<12} {:>7} {:>10} {:>6} {:>6} {:>6} {:>7} {:>9} {:>9} {:>7} {:>10}",
            of.len(),
            sum(|round| round.operations),
            sum(|round| round.kills),
            sum(|round| round.cuts),
            sum(|round| round.states),
            sum(|round| u64::from(round.void)),
            sum(|round| round.bytes_moved) >> 20,
            sum(|round| round.bytes_offloaded) >> 20,
            sum(|round| round.window),
            sum(|round| round.violations.len() as u64),
        );
    }
    text
}
