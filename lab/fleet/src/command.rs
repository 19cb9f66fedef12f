//! `cargo lab fleet`.

use std::{
    num::NonZero,
    sync::{Arc, atomic::AtomicBool},
    thread,
};

use anyhow::Result;
use clap::Args;
use figures::{Session, tree};

use crate::{
    report::{COMMAND, sensitivity, session},
    settings::Settings,
};

/// How large a fleet, and how long.
#[derive(Args, Debug)]
pub struct Options {
    /// Hosts that are simulated; 32 have each combination of workload, file system and drive once
    #[arg(long, value_name = "N", default_value_t = Settings::default().hosts)]
    pub hosts: u32,
    /// Days of virtual time
    #[arg(long, value_name = "DAYS", default_value_t = Settings::default().days)]
    pub days: u32,
    /// Seed of all that is drawn
    #[arg(long, value_name = "SEED", default_value_t = Settings::default().seed)]
    pub seed: u64,
    /// Threads [default: one for each processor]
    #[arg(long, value_name = "N")]
    pub jobs: Option<NonZero<usize>>,
    /// Only what is free, with other values, over some weeks: minutes more
    #[arg(long, conflicts_with = "keep")]
    pub sensitivity: bool,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
    /// Keep the result (figures/fleet.json); `make figures` then writes docs/fleet.md anew
    #[arg(long, conflicts_with_all = ["hosts", "days", "seed"])]
    pub keep: bool,
}

/// Simulates, prints, and keeps the result where that is asked for.
///
/// # Errors
///
/// A simulation failed, `stop` was set, or the result cannot be written.
pub fn run(options: &Options, stop: &Arc<AtomicBool>) -> Result<()> {
    let settings = Settings {
        hosts: options.hosts,
        days: options.days,
        seed: options.seed,
        ..Settings::default()
    };
    let jobs = options
        .jobs
        .or_else(|| thread::available_parallelism().ok());
    let threads = jobs.map_or(1, NonZero::get);
    let session = match options.sensitivity {
        true => Session::in_virtual_time(COMMAND, sensitivity(&settings, threads, stop)?),
        false => session(&settings, threads, stop)?,
    };
    if options.json {
        println!("{}", serde_json::to_string_pretty(&session)?);
    } else {
        session.rows.iter().for_each(|row| println!("{row}"));
    }
    if options.keep {
        let file = tree::keep(source_tree::root(), "fleet", session)?;
        eprintln!("kept {}", file.display());
    }
    Ok(())
}
