//! What traces for the service, where that has not the rights for it: one trace, for whoever connected to
//! `indef-trace.socket`. The service manager starts it with the connection as its stdin.

use std::{
    io::stdin,
    os::{fd::AsFd, unix::net::UnixStream},
    time::Instant,
};

use anyhow::{Context, Result};
use indef_pipeline::{Cancel, apart::serve};

use super::last::be_last;
use crate::{notify::Notify, signals};

/// Make the trace that is asked for.
pub(crate) fn tracer() -> Result<()> {
    be_last();
    let connection = stdin().as_fd().try_clone_to_owned();
    let connection = UnixStream::from(connection.context("stdin")?);
    let stop = Cancel::new();
    signals::watch_quietly(&stop).context("cannot listen to signals")?;
    let notify = Notify::from_environment().context("the service manager's NOTIFY_SOCKET")?;
    let mut alive = Instant::now();
    let mut is_stopped = || {
        if let Some(notify) = &notify
            && let Some(every) = notify.alive_every()
            && alive.elapsed() >= every
        {
            alive = Instant::now();
            notify.send("WATCHDOG=1");
        }
        stop.is_cancelled()
    };
    Ok(serve(&connection, &mut is_stopped)?)
}
