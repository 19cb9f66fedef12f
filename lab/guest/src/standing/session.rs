//! A standing guest within a process.

use std::{
    ffi::{OsStr, OsString},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread::JoinHandle,
    time::Duration,
};

use super::{Command, Limits, Said, Standing, keep};
use crate::{Cache, Guest, LabError, scratch::scratch};

const NAME: &str = "session";

/// A guest that takes commands until it is dropped. Commands may run at the same time, from several
/// threads. No other process can reach it.
#[derive(Debug)]
pub struct Session {
    standing: Standing,
    stop: Arc<AtomicBool>,
    /// Our own flag: the session was dropped.
    over: Arc<AtomicBool>,
    copy: Vec<OsString>,
    keeper: Option<JoinHandle<Result<(), LabError>>>,
    // Its state; dropped after the keeper has ended.
    _folder: tempfile::TempDir,
}

impl Session {
    /// Boot it. It, with everything that runs there, ends when `stop` is set, and after an hour in
    /// any case.
    ///
    /// # Errors
    ///
    /// It does not come up.
    pub fn start(guest: Guest, stop: Arc<AtomicBool>) -> Result<Self, LabError> {
        let folder = scratch()?;
        let cache = Cache::at(folder.path());
        let over = Arc::new(AtomicBool::new(false));
        let (announce, announced) = mpsc::channel();
        let keeper = {
            let guest = guest.stop(Arc::clone(&stop));
            let (stop, over, cache) = (Arc::clone(&stop), Arc::clone(&over), cache.clone());
            let ends = move || stop.load(Ordering::Relaxed) || over.load(Ordering::Relaxed);
            let limits = Limits {
                idle: Duration::from_secs(3600),
                life: Duration::from_secs(3600),
            };
            std::thread::Builder::new()
                .name("keeper".into())
                .spawn(move || {
                    keep(&cache, NAME, guest, limits, ends, |_| {
                        let _ = announce.send(());
                    })
                })
                .map_err(LabError::at(folder.path()))?
        };
        if announced.recv().is_err() {
            return Err(match keeper.join() {
                Ok(Err(error)) => error,
                _ => LabError::Stopped,
            });
        }
        let Some(standing) = Standing::find(&cache, NAME)? else {
            return Err(LabError::Stopped);
        };
        Ok(Self {
            standing,
            stop,
            over,
            copy: Vec::new(),
            keeper: Some(keeper),
            _folder: folder,
        })
    }

    /// Make this file or program available to every command.
    #[must_use]
    pub fn copy(mut self, file: impl AsRef<OsStr>) -> Self {
        self.copy.push(file.as_ref().to_owned());
        self
    }

    /// Run a command with this time limit.
    ///
    /// # Errors
    ///
    /// It could not be started, took too long, or the guest ended. A command that fails is no error.
    pub fn run<S: AsRef<OsStr>>(
        &self,
        words: impl IntoIterator<Item = S>,
        timeout: Duration,
    ) -> Result<Said, LabError> {
        let command = Command {
            words: words
                .into_iter()
                .map(|word| word.as_ref().to_owned())
                .collect(),
            here: "/root".into(),
            copy: self.copy.clone(),
            with_tools: false,
            timeout_s: timeout.as_secs(),
        };
        self.standing.output(command, &self.stop)
    }

    /// Run a command, as [`run`](Self::run) does, that has to succeed. Returns its standard output.
    ///
    /// # Errors
    ///
    /// As of `run`; or the command failed, with all that it said.
    pub fn output<S: AsRef<OsStr>>(
        &self,
        words: impl IntoIterator<Item = S>,
        timeout: Duration,
    ) -> Result<String, LabError> {
        let words: Vec<S> = words.into_iter().collect();
        let said = self.run(&words, timeout)?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if said.status == 0 {
            return Ok(text(&said.stdout));
        }
        let words: Vec<&OsStr> = words.iter().map(AsRef::as_ref).collect();
        Err(LabError::Command {
            command: format!("in the guest, {words:?}"),
            output: format!(
                "status {}: {}{}",
                said.status,
                text(&said.stderr),
                text(&said.stdout)
            ),
        })
    }

    /// End it, and report whether it was well until then.
    ///
    /// # Errors
    ///
    /// The guest had ended by itself, with a panic or an oops.
    pub fn end(mut self) -> Result<(), LabError> {
        self.join()
    }

    fn join(&mut self) -> Result<(), LabError> {
        self.over.store(true, Ordering::Relaxed);
        match self.keeper.take().map(JoinHandle::join) {
            Some(Ok(ended)) => ended,
            Some(Err(_)) => Err(LabError::Request("the keeper panicked".into())),
            None => Ok(()),
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Err(error) = self.join() {
            tracing::warn!("the guest: {error}");
        }
    }
}
