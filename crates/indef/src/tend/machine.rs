//! Clocks, signals and readings of this machine.

use std::{
    collections::HashMap,
    io::{self, Read},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, Result};
use indef_pipeline::{
    Cancel,
    consider::{Limits, Looker, Machine, Reading, Source},
    tend::{Asked, Event, Moment, Round, Status, World},
};
use linux_abi::local_time::{LocalTime, local_time};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
};
use signal_hook::{
    consts::signal::{SIGHUP, SIGINT, SIGTERM},
    flag,
    low_level::pipe,
};

use super::{listen::unwritten, telling::Teller};
use crate::{
    notify::Notify,
    output::Console,
    recorder::{Recorder, of_round},
};

/// How often numbers are given out at most.
const PUBLISH_EVERY: Duration = Duration::from_secs(15);
/// The longest status line of the service manager.
const LONGEST_STATUS: usize = 200;

/// This machine.
pub(super) struct ThisMachine<'a, P> {
    clock: Machine,
    looker: Looker<Machine>,
    stop: Cancel,
    reload: Arc<AtomicBool>,
    /// Readable after a signal.
    woken: UnixStream,
    teller: Teller<'a>,
    console: &'a Console,
    /// By a path on the file system that moves are made on.
    records: HashMap<PathBuf, Recorder<'a>>,
    notify: Option<Notify>,
    alive: Instant,
    publish: P,
    published: Option<Instant>,
    is_unpublished_told: bool,
}

impl<'a, P: FnMut(&Status) -> io::Result<()>> ThisMachine<'a, P> {
    /// Listen to signals from now on.
    pub(super) fn begin(
        root: PathBuf,
        stop: &Cancel,
        teller: Teller<'a>,
        console: &'a Console,
        publish: P,
    ) -> Result<Self> {
        let reload = Arc::new(AtomicBool::new(false));
        let (woken, wake) = UnixStream::pair().context("cannot listen to signals")?;
        woken.set_nonblocking(true)?;
        let listen = || -> io::Result<()> {
            for signal in [SIGINT, SIGTERM] {
                // The second one ends it at once.
                flag::register_conditional_default(signal, stop.flag())?;
                flag::register(signal, stop.flag())?;
            }
            flag::register(SIGHUP, Arc::clone(&reload))?;
            // After the flags, so that who wakes up sees them.
            for signal in [SIGINT, SIGTERM, SIGHUP] {
                pipe::register(signal, wake.try_clone()?)?;
            }
            Ok(())
        };
        listen().context("cannot listen to signals")?;
        let notify = Notify::from_environment().context("the service manager's NOTIFY_SOCKET")?;
        Ok(Self {
            clock: Machine::at("/"),
            looker: Looker::new(Machine::at(root)),
            stop: stop.clone(),
            reload,
            woken,
            teller,
            console,
            records: HashMap::new(),
            notify,
            alive: Instant::now(),
            publish,
            published: None,
            is_unpublished_told: false,
        })
    }

    /// Set by SIGHUP. To be cleared before the settings are read, so that a signal meanwhile has them read again.
    pub(super) fn reload_flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.reload)
    }

    /// It ends: tell the service manager.
    pub(super) fn end(&self) {
        self.send("STOPPING=1");
    }

    fn send(&self, words: &str) {
        if let Some(notify) = &self.notify {
            notify.send(words);
        }
    }
}

impl<P: FnMut(&Status) -> io::Result<()>> World for ThisMachine<'_, P> {
    fn now(&self) -> Moment {
        Moment {
            since_boot: self.clock.now(),
            wall: SystemTime::now(),
        }
    }

    fn local(&self) -> LocalTime {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let seconds = since.map_or(0, |since| since.as_secs());
        // A year that nobody can count has no time of day either.
        local_time(i64::try_from(seconds).unwrap_or(0)).unwrap_or(LocalTime {
            weekday: 0,
            second: 0,
        })
    }

    fn wait(&mut self, time: Duration) {
        let end = Instant::now() + time.min(Duration::from_secs(24 * 3600));
        loop {
            if self.asked().is_some() {
                return;
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let every = self.notify.as_ref().and_then(Notify::alive_every);
            let left = every.map_or(left, |every| left.min(every));
            let mut fds = [PollFd::new(&self.woken, PollFlags::IN)];
            let timeout = Timespec {
                tv_sec: i64::try_from(left.as_secs()).unwrap_or(1),
                tv_nsec: left.subsec_nanos().into(),
            };
            match poll(&mut fds, Some(&timeout)) {
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => {
                    let mut bytes = [0; 64];
                    while matches!(self.woken.read(&mut bytes), Ok(1..)) {}
                }
                // It cannot be waited for a signal: look from time to time.
                Err(_) => std::thread::sleep(left.min(Duration::from_millis(200))),
            }
        }
    }

    fn asked(&mut self) -> Option<Asked> {
        let every = self.notify.as_ref().and_then(Notify::alive_every);
        if every.is_some_and(|every| self.alive.elapsed() >= every) {
            self.alive = Instant::now();
            self.send("WATCHDOG=1");
        }
        if self.stop.is_cancelled() {
            return Some(Asked::Stop);
        }
        self.reload.load(Ordering::Relaxed).then_some(Asked::Reload)
    }

    fn look(&mut self, drives: &[String], working: bool, limits: &Limits) -> Vec<Reading> {
        self.looker.look(drives, working, limits)
    }

    fn tell(&mut self, event: &Event<'_>) {
        if matches!(event, Event::Began { .. }) {
            self.send("READY=1");
        }
        let mut status: String = match event.place() {
            Some(place) => format!("{}: {event}", place.display()),
            None => event.to_string(),
        };
        status.retain(|character| !character.is_control());
        let end = status.char_indices().nth(LONGEST_STATUS);
        status.truncate(end.map_or(status.len(), |(at, _)| at));
        self.send(&format!("STATUS={status}"));
        self.teller.tell(event);
    }

    fn round(&mut self, place: &Path, round: Round<'_>) {
        match round {
            Round::Begins => {
                let record = Recorder::begin("watch", false, self.console);
                self.records.insert(place.to_owned(), record);
            }
            Round::Ends { done, left } => {
                if let Some(record) = self.records.remove(place) {
                    record.end(&[place.to_owned()], &[], of_round(done, left));
                }
            }
        }
    }

    fn publish(&mut self, status: &Status) {
        // Files wear the disk, too; who reads them looks seldom.
        let is_due = (self.published).is_none_or(|last| last.elapsed() >= PUBLISH_EVERY);
        if !is_due && !self.stop.is_cancelled() {
            return;
        }
        self.published = Some(Instant::now());
        match (self.publish)(status) {
            Ok(()) => self.is_unpublished_told = false,
            Err(error) if !self.is_unpublished_told => {
                self.is_unpublished_told = true;
                self.teller.fail(&unwritten(&error));
            }
            Err(_) => {}
        }
    }
}
