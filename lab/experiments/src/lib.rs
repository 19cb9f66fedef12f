//! The papers' figures, ours beside theirs.
//!
//! A figure is a file `experiments/PAPER/FIGURE.toml` and a module of [`figure`]; [`suite`] measures all of a
//! tier, and [`report`] shows them (docs/experiments.md). [`fast24`] has what the figures of one paper share.
//!
//! Beside them stand experiments with a whole system, in guests with F2FS on flashd: a file in `experiments/` has
//! the ageing, the device and the options. `headline` runs it, has [`inside`] run in the guests, and the model
//! tell times (`virtual_time`).

#![forbid(unsafe_code)]

mod aged;
mod ageing;
mod bench;
mod calls;
mod cost;
mod experiment;
pub mod fast24;
pub mod figure;
mod headline;
mod image;
pub mod inside;
mod keep;
mod layout;
mod migration;
mod pieces;
pub mod report;
mod room;
pub mod suite;
mod text;
mod virtual_time;
mod way;

use anyhow::Result;

pub use self::experiment::Options;

/// Run one, print the result, store it as JSON.
///
/// # Errors
///
/// There is no such experiment, or it came to no result.
pub fn run(options: &Options) -> Result<()> {
    let Some(name) = &options.name else {
        println!("{}", experiment::names()?.join("\n"));
        return Ok(());
    };
    let experiment = experiment::load(name, options)?;
    let result = headline::run(&experiment, options)?;
    let kept = guest::Cache::of_project().folder().join("experiments");
    std::fs::create_dir_all(&kept)?;
    let trial = if options.trial { "-trial" } else { "" };
    let aged = if options.age_only { "-aged" } else { "" };
    let kept = kept.join(format!("{name}{trial}{aged}.json"));
    std::fs::write(&kept, serde_json::to_vec_pretty(&result)?)?;
    println!("{}", text::table(&result));
    println!("all of it: {}", kept.display());
    if options.keep {
        let file = keep::keep(name, options.age_only, &result)?;
        println!("kept: {} (`make figures` writes the pages)", file.display());
    }
    Ok(())
}
