//! `indef trace`: record the actual reads and writes of applications, and show
//! them.

pub(crate) mod check;
mod command;
pub(crate) mod live;

use std::{io, time::Duration};

use anyhow::{Context, Result, bail};
use indef_pipeline::{
    Cancel,
    learn::{Learned, Live, Session, TraceUpdate},
};
use rustix::{
    io::Errno,
    process::{Pid, test_kill_process},
};

use crate::{
    args::{LayerName, TraceArgs},
    made::Made,
    notes::hidden_layer,
    outcome::Outcome,
    output::{Console, UNPRINTED, json},
    refusal::{explain, line},
    signals,
};
use command::Traced;
pub(crate) use command::held;
use live::{TraceDocument, View, write_summary};

/// Trace, and show.
pub(crate) fn trace(args: &TraceArgs, console: &Console) -> Result<Outcome> {
    if args.check {
        return check::check(console);
    }
    let cancel = Cancel::new();
    let options = args.options();
    for pid in &options.filter.pids {
        if !is_alive(*pid) {
            bail!("there is no process {pid}");
        }
    }
    let session = Session::begin(&options, args.keep().as_ref()).map_err(explain)?;
    for source in session.sources() {
        if let Some(why) = &source.why_not {
            console.note(format_args!("not seen: {}: {why}", source.what));
        }
    }
    for layer in session.hidden_layers() {
        console.note(hidden_layer(layer));
    }
    signals::watch_quietly(&cancel)?;
    let traced = match args.command.as_slice() {
        [] => None,
        command => {
            let traced = Traced::start(command, console)?;
            session.follow(traced.id()).map_err(explain)?;
            traced.go_on()?;
            Some(traced)
        }
    };
    let mut view = View::new(console, traced.is_some());
    // Until the end of the command, the time limit, or a signal of the user.
    let is_over = |elapsed: Duration| {
        cancel.is_cancelled()
            || traced.as_ref().is_some_and(Traced::has_ended)
            || args.duration.is_some_and(|limit| elapsed >= limit)
    };
    let learned = session.learn(is_over, &mut || false, &mut |seen| match seen {
        TraceUpdate::Live(live) => view.show(live),
        TraceUpdate::NotStored(error) => view.suspend(|| {
            console.note(format_args!(
                "{error}; what was learned is kept in memory and tried again"
            ));
        }),
    });
    view.finish();
    let Learned {
        live,
        watched,
        kept,
    } = learned;
    let shown = || -> Result<()> {
        watched.map_err(explain)?;
        report(args, console, &live).context(UNPRINTED)?;
        match traced {
            Some(traced) => traced.wait(console),
            None => Ok(()),
        }
    };
    // Whatever cannot be shown: where the counts are is told.
    let shown = shown();
    if let Err(error) = kept {
        if let Err(other) = shown {
            console.error(line(&other), "");
        }
        return Err(explain(error));
    }
    shown?;
    Ok(Outcome::Done)
}

/// Whether there is a process of this number, as the PID namespace of this process counts them.
fn is_alive(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    pid.is_some_and(|pid| test_kill_process(pid) != Err(Errno::SRCH))
}

fn report(args: &TraceArgs, console: &Console, live: &Live) -> io::Result<()> {
    let total = live.total();
    if total.reads == 0 && total.writes == 0 {
        console.note(nothing(args.layer));
    }
    if console.json {
        let document = TraceDocument::new(live, args.top, args.bound_percent());
        return json::print(&document, &Made::of(args.output.as_slice()));
    }
    if console.quiet {
        return Ok(());
    }
    let bound = args.bound_percent();
    write_summary(&mut io::stdout().lock(), console, live, args.top, bound)
}

/// The possible reason for an empty result.
fn nothing(layer: LayerName) -> &'static str {
    match layer {
        LayerName::Fs => {
            "nothing was seen: no file on a device was read or written that passes the filters. \
             What is in the page cache is not read from the device (--layer syscall sees it)"
        }
        LayerName::Syscall => {
            "nothing was seen: no file on a device was read or written that passes the filters"
        }
    }
}
