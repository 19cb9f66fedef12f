//! Operating a daemon: signals, the control socket, Prometheus, and the end of a run.
//!
//! An [`Operation`] runs beside the code that attaches the device. It owns the control socket,
//! answers there ([`control`]), serves Prometheus ([`metrics`]) if asked to, saves the model's
//! state now and then, and at the end makes everything durable and judges how late the answers
//! were.

mod control;
mod error;
mod metrics;
mod runtime;
#[cfg(test)]
mod tests;

use std::{
    io,
    net::SocketAddr,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

pub use control::{Ask, AskError, Told, ask};
pub use error::OperateError;
pub use runtime::{RuntimeError, find_socket, runtime_dir};
use signal_hook::{
    consts::{SIGINT, SIGTERM},
    iterator::Signals,
};

use crate::{
    device::Device,
    pace::{LatenessLimit, LatenessReport},
};

/// The interval at which the model's state is saved while the device is in use.
const SAVE_EVERY: Duration = Duration::from_secs(30);

/// How a daemon is operated.
#[derive(Clone, Debug, Default)]
pub struct OperateOptions {
    /// Its name; `None` takes the process id.
    pub name: Option<String>,
    /// The address for Prometheus; a loopback address.
    pub metrics: Option<SocketAddr>,
    /// How late answers may be.
    pub max_lateness: Option<LatenessLimit>,
}

/// A daemon that runs.
#[derive(Debug)]
pub struct Operation {
    device: Arc<Device>,
    options: OperateOptions,
    socket: PathBuf,
    signals: Signals,
    stop: Arc<AtomicBool>,
}

impl Operation {
    /// Begin: from now on signals are handled here, and the control socket answers.
    ///
    /// # Errors
    ///
    /// The socket or the endpoint cannot be made.
    pub fn start(device: &Arc<Device>, options: &OperateOptions) -> Result<Self, OperateError> {
        let signals = Signals::new([SIGINT, SIGTERM])?;
        let name = options
            .name
            .clone()
            .unwrap_or_else(|| std::process::id().to_string());
        let (listener, socket) = runtime::listen(&name)?;
        control::serve(listener, device)?;
        if let Some(address) = options.metrics {
            metrics::serve(address, device)?;
        }
        let stop = Arc::new(AtomicBool::new(false));
        if device.is_persistent() {
            save_now_and_then(device, &stop)?;
        }
        tracing::info!(socket = %socket.display(), "ready");
        Ok(Self {
            device: Arc::clone(device),
            options: options.clone(),
            socket,
            signals,
            stop,
        })
    }

    /// Wait for SIGINT or SIGTERM. Can be called again for the next one.
    pub fn wait_for_signal(&mut self) {
        if let Some(signal) = self.signals.forever().next() {
            tracing::info!(signal, "stopping");
        }
    }

    /// Whether another signal has come meanwhile.
    pub fn signal_came(&mut self) -> bool {
        self.signals.pending().next().is_some()
    }

    /// A function that makes [`Self::wait_for_signal`] return as a signal would.
    pub fn stopper(&self) -> impl Fn() + Send + Sync + 'static + use<> {
        || {
            // To this process: the signal thread wakes up and nothing else notices.
            let _ = signal_hook::low_level::raise(SIGTERM);
        }
    }

    /// End: make everything durable, and judge the answers.
    ///
    /// # Errors
    ///
    /// The data could not be made durable, or answers were later than allowed.
    pub fn finish(self) -> Result<LatenessReport, OperateError> {
        self.stop.store(true, Ordering::Release);
        let closed = self.device.close();
        let report = self.device.lateness().report();
        if report.answers > 0 {
            tracing::info!("{report}");
        }
        closed?;
        match self.options.max_lateness {
            Some(limit) => match self.device.lateness().check(&limit) {
                Ok(()) => Ok(report),
                Err(late) => Err(OperateError::Late {
                    late,
                    percentile: limit.percentile,
                    allowed: limit.at_most_ns,
                    report,
                }),
            },
            None => Ok(report),
        }
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        // Another process may have removed it already.
        let _ = std::fs::remove_file(&self.socket);
    }
}

fn save_now_and_then(device: &Arc<Device>, stop: &Arc<AtomicBool>) -> io::Result<()> {
    let device = Arc::downgrade(device);
    let stop = Arc::clone(stop);
    let save = move || {
        let mut waited = Duration::ZERO;
        let step = Duration::from_millis(500);
        loop {
            std::thread::sleep(step);
            waited += step;
            let Some(device) = device.upgrade() else {
                return;
            };
            if stop.load(Ordering::Acquire) {
                return;
            }
            if waited >= SAVE_EVERY {
                waited = Duration::ZERO;
                if let Err(error) = device.save_model() {
                    tracing::error!(%error, "mapping and wear were not saved");
                }
            }
        }
    };
    std::thread::Builder::new()
        .name("flashd-save".to_owned())
        .spawn(save)?;
    Ok(())
}
