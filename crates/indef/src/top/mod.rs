//! `indef top`: the hottest fragmented ranges, with the time that they cost, and repair at a key.
//!
//! ```text
//! feed ─▶ ranges ─▶ survey ─▶ snapshot ─▶ screen | text | JSON
//! (live    (hottest,  (where     (rows)       │
//!  or       fading,    they lie)              └▶ repair (the engine of `indef run`)
//!  profile) bounded)
//! ```
//!
//! The feed, the ranges and the survey live on a thread of their own ([`watch`]): a slow file system
//! never makes the keys slow. Nothing here decides what a fragment is or moves a byte; the first is
//! done by `indef-core`, the second by `indef-engine`, with all that it promises.

mod document;
mod feed;
mod ranges;
mod repair;
mod row;
mod screen;
mod survey;
mod terminal;
mod text;
mod watch;

#[cfg(test)]
mod tests;

use std::{
    io::{self, IsTerminal},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow};
use indef_engine::{Cancel, run::RunOptions};

use crate::{
    Outcome,
    args::TopArgs,
    output::{Console, Name, UNPRINTED, json},
    refusal::{advice, plain},
    run::run_options,
};
use feed::{Feed, LiveFeed, ProfileFeed};
use watch::Watch;

/// Show it, once or until it is enough.
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

/// Where the counts come from.
fn feed(args: &TopArgs, paths: &[PathBuf], console: &Console) -> Result<Box<dyn Feed>> {
    Ok(match &args.profile {
        Some(path) => Box::new(ProfileFeed::load(path, args.readahead, console)?),
        None => Box::new(LiveFeed::start(paths, console)?),
    })
}

/// Watch for a while, then print.
fn once(args: &TopArgs, mut watch: Watch, console: &Console, cancel: &Cancel) -> Result<Outcome> {
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, cancel.flag()).context("signals cannot be watched")?;
    }
    let begin = Instant::now();
    let limit = args.how.time_limit.unwrap_or(Duration::MAX).min(args.watch);
    if watch.is_live() {
        while begin.elapsed() < limit && !cancel.is_cancelled() {
            std::thread::sleep(Duration::from_millis(100).min(limit));
            watch.drain(begin.elapsed())?;
        }
    }
    watch.finish(begin.elapsed())?;
    watch.survey(begin.elapsed(), None, cancel);
    let snapshot = watch.snapshot(begin.elapsed(), None);
    let printed = if console.json {
        json::print(&document::Document::new(&snapshot))
    } else if console.quiet {
        Ok(())
    } else {
        text::write(&mut io::stdout().lock(), console, &snapshot, args.top)
    };
    printed.context(UNPRINTED)?;
    // What was seen until a signal came is what was asked for; a part of a profile is not.
    Ok(if cancel.is_cancelled() && !snapshot.live {
        Outcome::Stopped
    } else {
        Outcome::Done
    })
}

/// The paths as the kernel names them.
fn canonical(paths: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let canonical = |path: &PathBuf| {
        path.canonicalize()
            .map_err(|error| anyhow!("{}: {}: {}", Name(path), plain(&error), advice(&error)))
    };
    paths.iter().map(canonical).collect()
}

/// Whether a file is asked for.
fn is_below(path: &Path, paths: &[PathBuf]) -> bool {
    paths.is_empty() || paths.iter().any(|folder| path.starts_with(folder))
}
