//! Signals that ask for the end.

use std::sync::{Arc, atomic::AtomicBool};

use anyhow::{Context, Result};
use signal_hook::consts::{SIGINT, SIGTERM};

/// A flag that SIGINT and SIGTERM set. They do not end this process: the guest and its files are
/// removed first.
pub(crate) fn stop_on_signals() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop))
            .context("cannot wait for signals")?;
    }
    Ok(stop)
}
