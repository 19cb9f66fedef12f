//! `indef probe`: what a drive is like, and what defragmenting can gain on it.

mod json;
mod text;
mod toml;

use std::{
    io::{self, Write},
    slice,
};

use anyhow::{Context, Result};
use indef_core::probe::Phase;
use indef_pipeline::{
    Cancel,
    probe::{ProbeError, ProbeStep, Prober, Stored},
};

use crate::{
    args::ProbeArgs,
    made::Made,
    outcome::Outcome,
    output::{Console, Progress, UNPRINTED, json::print},
    signals::{self, Second},
};

/// Probe, keep, and show.
pub(crate) fn probe(args: &ProbeArgs, console: &Console) -> Result<Outcome> {
    let cancel = Cancel::new();
    signals::watch(console, &cancel, Second::Abort)?;
    let prober = Prober {
        size: args.size,
        time_limit: args.time_limit,
        ..Prober::new(&args.path)
    };
    let progress = Progress::saying(console, "writing the probe's file");
    let probed = prober.probe(&cancel, &|step| match step {
        ProbeStep::Writing(done, all) => {
            progress.message(format!("writing the probe's file: {done} of {all}"));
        }
        ProbeStep::Reading(part) => progress.message(format!("reading: {}", doing(part))),
    });
    drop(progress);
    let probed = match probed {
        Err(ProbeError::Stopped) => {
            console.note("stopped; nothing is left of the probe");
            return Ok(Outcome::Stopped);
        }
        probed => probed?,
    };
    let kept = match args.forget {
        true => None,
        false => match Stored::keep(&probed) {
            Ok(kept) => Some(kept),
            Err(why) => {
                console.note(format_args!("the answers are not kept: {why}"));
                None
            }
        },
    };
    let printed = match (console.json, args.toml) {
        (true, _) => print(
            &json::ProbeDocument::new(&probed, kept.as_ref()),
            &Made::of(slice::from_ref(&args.path)),
        ),
        (_, true) => io::stdout()
            .lock()
            .write_all(toml::profile(&probed).as_bytes()),
        (false, false) if console.quiet => Ok(()),
        (false, false) => text::write(&mut io::stdout().lock(), console, &probed, kept.as_ref()),
    };
    printed.context(UNPRINTED)?;
    Ok(Outcome::Done)
}

fn doing(part: Phase) -> &'static str {
    match part {
        Phase::Latency => "one at a time",
        Phase::Speed => "all sizes",
        Phase::Placement => "pairs at growing distances",
        Phase::Service => "chains on one unit",
        Phase::Depth => "many at a time",
        Phase::Inner => "within and between units",
    }
}
