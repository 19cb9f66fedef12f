//! `indef watch`: the service of `indef_pipeline::tend` on this machine.
//!
//! (`indef_pipeline::watch` is the list that `indef top` shows.)

mod configured;
mod journal;
mod json;
mod last;
mod listen;
mod machine;
mod telling;
mod tracer;

use std::{
    fs, io,
    path::PathBuf,
    sync::{OnceLock, atomic::Ordering},
};

use anyhow::{Context, Result, anyhow};
use indef_pipeline::{
    Cancel,
    tend::{
        Duties, Event, Kept, Ledger, Status, Tender, World,
        metrics::{Form, render},
    },
};

use crate::{
    args::WatchArgs,
    config::{ensure_said, required},
    made::{Made, about},
    outcome::Outcome,
    output::{Console, UNPRINTED, json::print},
    refusal::unusable,
    settings::{Metrics, load},
};
use configured::Configured;
use last::be_last;
use listen::Listener;
use machine::ThisMachine;
use telling::Teller;
pub(crate) use tracer::tracer;

/// Another `/` for readings and the journal, for tests: a folder with `proc`, `sys` and `run` in it. No part of the
/// interface.
const ROOT: &str = "INDEF_WATCH_ROOT";

/// The socket of whoever traces for the service (`indef-trace.socket`).
const TRACER: &str = "INDEF_TRACE_SOCKET";

/// Look after file systems.
pub(crate) fn watch(args: &WatchArgs, console: &Console) -> Result<Outcome> {
    be_last();
    let has_paths = !args.paths.is_empty() || args.choose.all_mounts;
    let loaded = match &args.config {
        Some(file) => Some(required(file.as_deref(), has_paths, console)?),
        None => None,
    };
    let Configured {
        settings,
        metrics,
        in_vain,
    } = Configured::new(args, loaded).map_err(|why| anyhow!(why))?;
    for path in &settings.paths {
        fs::metadata(path).map_err(|error| unusable(path, &error))?;
    }
    let listener = OnceLock::new();
    let stop = Cancel::new();
    let root = std::env::var_os(ROOT).map_or_else(|| PathBuf::from("/"), PathBuf::from);
    let teller = || Teller::new(console, args.is_once(), &root);
    let mut world = ThisMachine::begin(root.clone(), &stop, teller(), console, |status| {
        publish(&metrics, listener.get(), status)
    })?;
    let teller = teller();
    if let Some(in_vain) = in_vain {
        teller.remark(&in_vain);
    }
    // A dry run makes nothing, and so needs no state of its own.
    let kept = match settings.dry_run {
        true => None,
        false => Some(Kept::take()?),
    };
    // Not before: a second service is told that it is one, whatever else the first has taken.
    if let Some(address) = &metrics.listen {
        let nothing = about(std::iter::empty());
        let nothing = render(&Status::default(), &nothing, Form::OpenMetrics);
        let begun = Listener::begin(address, nothing)?;
        listener.get_or_init(|| begun);
    }
    let profile = match &kept {
        Some(kept) => Some(kept.profile()),
        None => Kept::find_profile(),
    };
    let ledger: Option<Ledger> = match &kept {
        Some(kept) => {
            let (ledger, is_damaged) = kept.ledger(world.now(), &settings.budgets)?;
            if is_damaged {
                world.tell(&Event::LedgerDamaged);
            }
            Some(ledger)
        }
        None => None,
    };
    let (paths, reload) = (settings.paths.clone(), world.reload_flag());
    let socket = std::env::var_os(TRACER).filter(|socket| !socket.is_empty());
    let mut duties =
        Duties::new(settings.clone(), profile, stop.clone()).with_tracer(socket.map(PathBuf::from));
    if let Some(why) = duties.forgotten() {
        teller.warn(why);
    }
    let mut tender = Tender::new(settings, &mut world, &mut duties, ledger);
    let ended = tender.run(&mut || {
        reload.store(false, Ordering::SeqCst);
        let loaded = match &args.config {
            Some(file) => {
                let file = file.as_deref();
                let loaded = load(file).map_err(|errors| configured::kept(file, &errors))?;
                ensure_said(&loaded, has_paths)?;
                Some(loaded)
            }
            None => None,
        };
        let configured = Configured::new(args, loaded)?;
        if let Some(in_vain) = configured.in_vain {
            teller.remark(&in_vain);
        }
        if configured.metrics != metrics {
            teller.remark("the metrics stay where they are until the next start");
        }
        Ok(configured.settings)
    });
    let status = tender.status().clone();
    // They are given out every few seconds only, and a single round may be over before that.
    if let Err(error) = publish(&metrics, listener.get(), &status) {
        teller.fail(&listen::unwritten(&error));
    }
    world.end();
    let work_left = ended.map_err(|why| anyhow!(why))?;
    if console.json {
        let document = json::WatchDocument::new(&status, work_left, args.dry_run);
        print(&document, &Made::of(&paths)).context(UNPRINTED)?;
    }
    Ok(match work_left && args.is_once() {
        true => Outcome::Stopped,
        false => Outcome::Done,
    })
}

/// Give the numbers to whoever asked for them.
fn publish(metrics: &Metrics, listener: Option<&Listener>, status: &Status) -> io::Result<()> {
    if listener.is_none() && metrics.file.is_none() {
        return Ok(());
    }
    let about = about(status.places.iter().map(|place| place.path.clone()));
    if let Some(listener) = listener {
        listener.set(render(status, &about, Form::OpenMetrics));
    }
    if let Some(path) = &metrics.file {
        listen::write_file(path, &render(status, &about, Form::Prometheus))?;
    }
    Ok(())
}
