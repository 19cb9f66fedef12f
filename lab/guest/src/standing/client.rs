//! The clients of a standing guest: commands, the shell, and the end.

use std::{
    io::{self, Read, Write},
    os::unix::net::UnixStream,
    path::Path,
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc::{self, Receiver, RecvTimeoutError},
    },
    thread,
    time::{Duration, Instant},
};

use rustix::{
    fs::FlockOperation,
    termios::{self, OptionalActions, Termios},
};

use super::{
    Place, State,
    wire::{Ask, Command, Frame},
};
use crate::{Cache, LabError, programs};

/// Time limit for a keeper to end: the guest's power-off, and a margin.
const DOWN: Duration = Duration::from_secs(30);
/// Interval of the check for a requested end.
const GLANCE: Duration = Duration::from_millis(50);
/// Ctrl-], as in telnet.
const DETACH: u8 = 0x1d;

/// A standing guest that is running.
#[derive(Debug)]
pub struct Standing {
    place: Place,
    state: State,
}

/// The output and the status of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    /// Its exit status; 128 and a signal's number where a signal ended it.
    pub status: i32,
    /// Its standard output.
    pub stdout: Vec<u8>,
    /// Its standard error.
    pub stderr: Vec<u8>,
}

/// How a shell ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The shell itself ended.
    Shell,
    /// We detached and left it running.
    Detached,
}

impl Standing {
    /// The guest with this name; `None` where there is none (the remains of an earlier one are
    /// removed).
    ///
    /// # Errors
    ///
    /// The cache cannot be used; or a keeper is running that has not published its address yet.
    pub fn find(cache: &Cache, name: &str) -> Result<Option<Self>, LabError> {
        let place = Place::of(cache, name)?;
        if let Some(_lock) = place.lock(FlockOperation::NonBlockingLockExclusive)? {
            place.clear();
            return Ok(None);
        }
        match place.read()? {
            Some(state) => Ok(Some(Self { place, state })),
            None => Err(LabError::Request(
                "a standing guest is just starting, or ending; try again".into(),
            )),
        }
    }

    /// The known facts about it.
    #[must_use]
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Run a command there. Its output goes to our own as it arrives; its status is returned. It
    /// ends when `stop` is set. Programs and files are looked up on this side.
    ///
    /// # Errors
    ///
    /// It could not be started, took too long, or the guest ended.
    pub fn run(&self, command: Command, stop: &AtomicBool) -> Result<i32, LabError> {
        let (mut out, mut err) = (io::stdout(), io::stderr());
        self.take(command, stop, |frame| match frame {
            // The reader of our output may have closed it: the command goes on, as elsewhere.
            Frame::Out(bytes) => drop(out.write_all(&bytes).and_then(|()| out.flush())),
            Frame::Err(bytes) => drop(err.write_all(&bytes)),
            Frame::Ended(_) | Frame::Failed(_) => {}
        })
    }

    /// The same, but returns the output to the caller.
    ///
    /// # Errors
    ///
    /// It could not be started, took too long, or the guest ended.
    pub fn output(&self, command: Command, stop: &AtomicBool) -> Result<Said, LabError> {
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        let status = self.take(command, stop, |frame| match frame {
            Frame::Out(bytes) => stdout.extend(bytes),
            Frame::Err(bytes) => stderr.extend(bytes),
            Frame::Ended(_) | Frame::Failed(_) => {}
        })?;
        Ok(Said {
            status,
            stdout,
            stderr,
        })
    }

    fn take(
        &self,
        mut command: Command,
        stop: &AtomicBool,
        mut take: impl FnMut(Frame),
    ) -> Result<i32, LabError> {
        for name in command.words.iter_mut().take(1).chain(&mut command.copy) {
            if let Some(file) = programs::find(Path::new(&*name)) {
                *name = file.into();
            }
        }
        let stream = self.ask(&Ask::Run(command))?;
        let frames = frames(
            stream
                .try_clone()
                .map_err(LabError::at(&self.state.socket))?,
        );
        loop {
            match frames.recv_timeout(GLANCE) {
                Ok(Frame::Ended(status)) => return Ok(status),
                Ok(Frame::Failed(why)) => return Err(LabError::Request(why)),
                Ok(frame) => take(frame),
                Err(RecvTimeoutError::Disconnected) => return Err(gone()),
                Err(RecvTimeoutError::Timeout) if stop.load(Ordering::Relaxed) => {
                    // The end of the connection ends the command.
                    let _ = stream.shutdown(std::net::Shutdown::Both);
                    return Err(LabError::Stopped);
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    /// Connect our terminal to the guest's, until the shell ends or Ctrl-] is typed.
    ///
    /// # Errors
    ///
    /// Another client is at the terminal, or the guest ended.
    pub fn shell(&self) -> Result<Ended, LabError> {
        let input = io::stdin();
        let size = termios::tcgetwinsize(&input).ok();
        let stream = self.ask(&Ask::Shell {
            rows: size.map_or(24, |size| size.ws_row),
            columns: size.map_or(80, |size| size.ws_col),
        })?;
        let raw = Raw::set();
        let detached = std::sync::Arc::new(AtomicBool::new(false));
        let left = std::sync::Arc::clone(&detached);
        let typing = stream
            .try_clone()
            .map_err(LabError::at(&self.state.socket))?;
        // This thread ends with the process: waiting for a key cannot be interrupted.
        thread::spawn(move || {
            type_into(typing, &left);
        });
        let ended = loop {
            match Frame::read(&mut &stream) {
                Ok(Some(Frame::Out(bytes) | Frame::Err(bytes))) => {
                    let mut out = io::stdout();
                    let _ = out.write_all(&bytes).and_then(|()| out.flush());
                }
                Ok(Some(Frame::Ended(_))) => break Ok(Ended::Shell),
                Ok(Some(Frame::Failed(why))) => break Err(LabError::Request(why)),
                Ok(None) | Err(_) if detached.load(Ordering::Acquire) => break Ok(Ended::Detached),
                Ok(None) | Err(_) => break Err(gone()),
            }
        };
        drop(raw);
        ended
    }

    /// End it, and wait until nothing of it is left.
    ///
    /// # Errors
    ///
    /// It does not end.
    pub fn down(self) -> Result<(), LabError> {
        // A keeper that does not listen any more is ending, or stuck.
        let asked = self.ask(&Ask::Down);
        let begun = Instant::now();
        let mut killed = false;
        loop {
            if let Some(_lock) = self.place.lock(FlockOperation::NonBlockingLockExclusive)? {
                self.place.clear();
                return Ok(());
            }
            if begun.elapsed() > DOWN && !killed {
                killed = true;
                // It has the lock, so the process id is still its own.
                if let Some(pid) = i32::try_from(self.state.pid)
                    .ok()
                    .and_then(rustix::process::Pid::from_raw)
                {
                    let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
                }
            }
            if begun.elapsed() > 2 * DOWN {
                asked?;
                return Err(LabError::Request(format!(
                    "the keeper (process {}) does not end",
                    self.state.pid
                )));
            }
            thread::sleep(GLANCE);
        }
    }

    fn ask(&self, ask: &Ask) -> Result<UnixStream, LabError> {
        let path = &self.state.socket;
        let mut stream = UnixStream::connect(path).map_err(LabError::at(path))?;
        ask.write(&mut stream).map_err(LabError::at(path))?;
        Ok(stream)
    }
}

fn gone() -> LabError {
    LabError::Request("the standing guest has ended".into())
}

/// The frames from the keeper, as they arrive.
fn frames(mut stream: UnixStream) -> Receiver<Frame> {
    let (sender, receiver) = mpsc::sync_channel(16);
    thread::spawn(move || {
        while let Ok(Some(frame)) = Frame::read(&mut stream) {
            if sender.send(frame).is_err() {
                return;
            }
        }
    });
    receiver
}

/// Send the typed keys, up to Ctrl-].
fn type_into(mut stream: UnixStream, detached: &AtomicBool) {
    let mut keys = [0; 256];
    while let Ok(n @ 1..) = io::stdin().read(&mut keys) {
        let typed = &keys[..n];
        let end = typed.iter().position(|key| *key == DETACH);
        if stream.write_all(&typed[..end.unwrap_or(n)]).is_err() {
            return;
        }
        if end.is_some() {
            break;
        }
    }
    detached.store(true, Ordering::Release);
    let _ = stream.shutdown(std::net::Shutdown::Both);
}

/// Our terminal in raw mode, passing every key on; restored when this is dropped.
struct Raw(Option<Termios>);

impl Raw {
    fn set() -> Self {
        let before = termios::tcgetattr(io::stdin()).ok();
        if let Some(mut raw) = before.clone() {
            raw.make_raw();
            let _ = termios::tcsetattr(io::stdin(), OptionalActions::Now, &raw);
        }
        Self(before)
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            let _ = termios::tcsetattr(io::stdin(), OptionalActions::Now, before);
        }
    }
}
