//! `indef top`: the hottest fragmented ranges, with the time that they cost, and repair at a key.
//!
//! The pipeline watches on a thread of its own ([`Watch`]): a slow file system never makes the keys
//! slow.

mod document;
mod ending;
mod screen;
mod terminal;
mod text;

#[cfg(test)]
mod tests;

use std::{
    io::{self, IsTerminal},
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use indef_engine::run::RunOptions;
use indef_pipeline::{
    Cancel, Note,
    watch::{Feed, LiveFeed, ProfileFeed, TICK, Watch},
};

use crate::{
    args::TopArgs,
    made::Made,
    notes::tell,
    outcome::Outcome,
    output::{Console, UNPRINTED, json},
    refusal::{explain, unusable},
    run::run_options,
};

/// Show the list, once or until the user leaves it.
pub(crate) fn top(args: &TopArgs, console: &Console) -> Result<Outcome> {
    let paths = canonical(&args.paths)?;
    let options = RunOptions {
        keep_maps: 0,
        ..run_options(&args.how, &args.bounds, args.workers)
    };
    let cancel = Cancel::new();
    let feed = feed(args, &paths, console)?;
    let watch = Watch::new(feed, paths, &options);
    if console.json || args.once || !io::stdout().is_terminal() {
        return once(args, watch, console, &cancel);
    }
    screen::show(args, watch, options, console, &cancel)
}

/// The source of the counts.
fn feed(args: &TopArgs, paths: &[PathBuf], console: &Console) -> Result<Box<dyn Feed>> {
    let notes = |note: Note<'_>| tell(console, note);
    Ok(match &args.profile {
        Some(path) => Box::new(ProfileFeed::load(path, args.readahead, &notes).map_err(explain)?),
        None => Box::new(LiveFeed::start(paths, &notes).map_err(explain).context(
            "what is read now cannot be watched (a recorded profile can be shown: --profile)",
        )?),
    })
}

/// Watch for a while, then print.
fn once(args: &TopArgs, mut watch: Watch, console: &Console, cancel: &Cancel) -> Result<Outcome> {
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, cancel.flag()).context("signals cannot be watched")?;
    }
    let begin = Instant::now();
    let limit = args
        .how
        .time_limit()
        .unwrap_or(Duration::MAX)
        .min(args.watch);
    if watch.is_live() {
        while begin.elapsed() < limit && !cancel.is_cancelled() {
            std::thread::sleep(TICK.min(limit));
            watch.keep_up(begin.elapsed()).map_err(explain)?;
            watch.drain(begin.elapsed()).map_err(explain)?;
        }
    }
    watch.finish(begin.elapsed()).map_err(explain)?;
    watch.survey(begin.elapsed(), None, cancel);
    let snapshot = watch.snapshot(begin.elapsed(), None);
    let printed = if console.json {
        json::print(
            &document::TopDocument::new(&snapshot),
            &Made::of(&args.paths),
        )
    } else if console.quiet {
        Ok(())
    } else {
        text::write(&mut io::stdout().lock(), console, &snapshot, args.top)
    };
    printed.context(UNPRINTED)?;
    // The accesses seen before a signal are a complete result; a part of a profile is not.
    Ok(if cancel.is_cancelled() && !snapshot.live {
        Outcome::Stopped
    } else {
        Outcome::Done
    })
}

/// The paths as the kernel names them.
fn canonical(paths: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let canonical = |path: &PathBuf| path.canonicalize().map_err(|error| unusable(path, &error));
    paths.iter().map(canonical).collect()
}
