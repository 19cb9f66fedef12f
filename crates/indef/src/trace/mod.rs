//! `indef trace`: learn what applications really read.
//!
//! Collect, show, keep: the collector counts in the kernel; about once a second what it counted goes
//! to the view and into a table in memory, and from there now and then into the profile.

mod check;
mod command;
mod keep;
pub(crate) mod live;

use std::{
    io, thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use indef_engine::Cancel;
use indef_trace::collect::{Collector, Drained, TraceError};

use crate::{
    Outcome,
    args::TraceArgs,
    output::{Console, UNPRINTED},
    signals,
};
use command::Traced;
pub(crate) use command::held;
use keep::Keeper;
use live::{Batch, Document, Live, View, write_summary};

/// How long a signal or the end of the command may go unnoticed.
const TICK: Duration = Duration::from_millis(50);
/// How often what was counted is looked at.
const ROUND: Duration = Duration::from_secs(1);

/// Trace, and show.
pub(crate) fn trace(args: &TraceArgs, console: &Console) -> Result<Outcome> {
    if args.check {
        return check::check(console);
    }
    let cancel = Cancel::new();
    let options = args.options();
    for pid in &options.filter.pids {
        if !std::path::Path::new(&format!("/proc/{pid}")).exists() {
            bail!("there is no process {pid}");
        }
    }
    // Before anything runs: a profile that cannot be written should not cost a trace.
    let mut keeper = Keeper::open(args)?;
    let collector = Collector::start(&options)?;
    for source in collector.sources().iter().filter(|s| s.program.is_none()) {
        let why = source.why_not.as_deref().unwrap_or("unknown");
        console.note(format_args!("not seen: {}: {why}", source.what));
    }
    signals::watch_quietly(&cancel)?;
    let traced = match args.command.as_slice() {
        [] => None,
        command => {
            let traced = Traced::start(command)?;
            collector.follow(traced.id())?;
            traced.go_on()?;
            Some(traced)
        }
    };
    let mut session = Session {
        args,
        cancel: &cancel,
        console,
        live: Live::default(),
        view: View::new(console, traced.is_some()),
        began: Instant::now(),
    };
    let watched = session.watch(collector, traced.as_ref(), &mut keeper);
    session.view.finish();
    // Whatever happened, what was learned is kept.
    let kept = keeper.finish(session.live.lost());
    watched?;
    session.report().context(UNPRINTED)?;
    if let Some(traced) = traced {
        traced.wait(console)?;
    }
    kept?;
    Ok(Outcome::Done)
}

struct Session<'a> {
    args: &'a TraceArgs,
    cancel: &'a Cancel,
    console: &'a Console,
    live: Live,
    view: View,
    began: Instant,
}

impl Session<'_> {
    /// Until the command, the time or the user's patience ends.
    fn watch(
        &mut self,
        mut collector: Collector,
        traced: Option<&Traced>,
        keeper: &mut Keeper,
    ) -> Result<()> {
        let mut round = Instant::now();
        loop {
            thread::sleep(TICK);
            let many = collector.keep_up();
            let over = self.cancel.is_cancelled()
                || traced.is_some_and(Traced::has_ended)
                || self
                    .args
                    .duration
                    .is_some_and(|d| self.began.elapsed() >= d);
            if over {
                break;
            }
            if self.args.raw || many || round.elapsed() >= ROUND {
                round = Instant::now();
                self.take(keeper, |sink| collector.drain_into(sink))?;
            }
        }
        self.take(keeper, |sink| collector.finish_into(sink))
    }

    /// Take what `drain` hands out, part by part, and show it.
    fn take(
        &mut self,
        keeper: &mut Keeper,
        drain: impl FnOnce(&mut dyn FnMut(Drained)) -> Result<(), TraceError>,
    ) -> Result<()> {
        let mut kept = Ok(());
        let mut sink = |part: Drained| {
            let batch = Batch {
                tallies: &part.tallies,
                files: &part.files,
                lost: part.lost,
            };
            self.live.add(&batch, self.began.elapsed());
            match keeper.add(part) {
                Ok(None) => {}
                Ok(Some(problem)) => self.view.suspend(|| self.console.note(problem)),
                Err(error) => kept = Err(error),
            }
        };
        drain(&mut sink)?;
        self.view.show(&self.live);
        kept
    }

    fn report(&self) -> io::Result<()> {
        let total = self.live.total();
        if total.reads == 0 && total.writes == 0 {
            self.console.note(self.nothing());
        }
        if self.console.json {
            let document = Document::new(&self.live, self.args.top);
            let mut out = io::stdout().lock();
            serde_json::to_writer(&mut out, &document)?;
            return io::Write::write_all(&mut out, b"\n");
        }
        if self.console.quiet {
            return Ok(());
        }
        let mut out = io::stdout().lock();
        write_summary(&mut out, self.console, &self.live, self.args.top)
    }

    /// Why there may be nothing.
    fn nothing(&self) -> &'static str {
        match self.args.layer {
            crate::args::LayerName::Fs => {
                "nothing was seen: no file on a device was read or written that passes the filters. \
                 What is in the page cache is not read from the device (--layer syscall sees it)"
            }
            crate::args::LayerName::Syscall => {
                "nothing was seen: no file on a device was read or written that passes the filters"
            }
        }
    }
}
