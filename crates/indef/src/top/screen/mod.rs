//! The screen: its content and its keys, and the loop that connects both with watching and
//! repairing.

mod columns;
mod draw;
mod keys;
mod state;

#[cfg(test)]
mod tests;
#[cfg(test)]
pub(super) use tests::sample_row;

use std::{
    io::{self, Write},
    sync::{
        atomic::Ordering,
        mpsc::{self, Receiver, Sender, TryRecvError},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow};
use indef_engine::run::RunOptions;
use indef_pipeline::{
    Cancel, Error,
    watch::{End, EndKind, Repair, Snapshot, Watch, WatchRequest},
};
use ratatui::crossterm::event::{Event, KeyEventKind};
use signal_hook::consts::signal::{SIGHUP, SIGINT, SIGTERM};

use super::{ending::sentence, terminal::Screen};
use crate::{
    args::TopArgs,
    outcome::Outcome,
    output::{Console, Name, Tone},
    refusal::explain,
};
pub(super) use columns::{count, lost, time};
use state::{Action, ScreenState};

/// The longest time for which a key waits for other events.
const TICK: Duration = Duration::from_millis(100);
/// The longest time for which leaving the screen waits for the current step of a repair.
const PATIENCE: Duration = Duration::from_secs(30);

/// Show the screen until the user leaves it.
pub(super) fn show(
    args: &TopArgs,
    watch: Watch,
    options: RunOptions,
    console: &Console,
    cancel: &Cancel,
) -> Result<Outcome> {
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        // The first signal requests an end, a second one enforces it.
        signal_hook::flag::register_conditional_default(signal, cancel.flag())
            .and_then(|_| signal_hook::flag::register(signal, cancel.flag()))
            .context("signals cannot be watched")?;
    }
    let (requests, asked) = mpsc::channel();
    let (snapshots, shown) = mpsc::sync_channel(2);
    let (interval, stop) = (args.interval, cancel.clone());
    let watcher = thread::Builder::new()
        .name("watch".into())
        .spawn(move || watch.run(interval, &asked, &snapshots, &stop))
        .context("no thread to watch with")?;
    let mut app = App {
        state: ScreenState::new(console.out),
        repair: None,
        ends: Vec::new(),
        options,
        requests,
        // A limit beyond the clock's range is no limit.
        deadline: args
            .how
            .time_limit()
            .and_then(|limit| Instant::now().checked_add(limit)),
    };
    let mut screen = Screen::open()?;
    let left = app.until_left(&mut screen, &shown, cancel);
    drop(screen);
    app.finish(console, cancel, watcher, left)
}

struct App {
    state: ScreenState,
    repair: Option<Repair>,
    /// Results of finished repairs.
    ends: Vec<End>,
    options: RunOptions,
    requests: Sender<WatchRequest>,
    deadline: Option<Instant>,
}

/// The reason for which the screen was left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    Asked,
    /// The watching thread ended: it has an error.
    NothingComes,
}

impl App {
    fn until_left(
        &mut self,
        screen: &mut Screen,
        shown: &Receiver<Snapshot>,
        cancel: &Cancel,
    ) -> Result<Left> {
        let mut dirty = true;
        loop {
            let is_over = self.deadline.is_some_and(|end| Instant::now() >= end);
            if cancel.is_cancelled() || is_over {
                return Ok(Left::Asked);
            }
            match shown.try_recv() {
                Ok(snapshot) => {
                    let action = self.state.update(snapshot);
                    self.act(action);
                    dirty = true;
                    continue;
                }
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Disconnected) => return Ok(Left::NothingComes),
            }
            dirty |= self.look_after_repair();
            if dirty {
                let state = &mut self.state;
                screen.terminal.draw(|frame| draw::draw(frame, state))?;
                dirty = false;
            }
            let Some(event) = screen.event(TICK)? else {
                continue;
            };
            dirty = true;
            if let Event::Key(key) = event
                && key.kind != KeyEventKind::Release
            {
                let action = self.state.key(key);
                if action == Action::Quit {
                    return Ok(Left::Asked);
                }
                self.act(action);
            }
        }
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::None | Action::Quit => {}
            Action::Details(key) => {
                // If the receiver is gone, the loop finds out.
                let _ = self.requests.send(WatchRequest::Details(key));
            }
            Action::Stop => match &self.repair {
                Some(repair) => repair.stop(),
                None => self.state.say(Tone::Plain, "no repair is going on"),
            },
            Action::Repair(order) if self.repair.is_none() => {
                match Repair::start(order, self.options) {
                    Ok(repair) => self.repair = Some(repair),
                    Err(error) => {
                        let text = format!("no thread for the repair: {error}");
                        self.state.say(Tone::Bad, text);
                    }
                }
            }
            Action::Repair(_) => {
                self.state.say(
                    Tone::Warn,
                    "a repair is going on; wait for it, or stop it with x",
                );
            }
        }
    }

    /// Show the progress of the repair. Returns whether there is something new to show.
    fn look_after_repair(&mut self) -> bool {
        match self.repair.take() {
            None => false,
            Some(repair) if !repair.is_finished() => {
                let (done, planned) = repair.progress();
                let name = Name(&repair.order.path);
                let text = format!("repairing: {done} of {planned} (x stops)  {name}");
                self.state.say(Tone::Plain, text);
                self.repair = Some(repair);
                true
            }
            Some(repair) => {
                self.ended(repair.end());
                true
            }
        }
    }

    fn ended(&mut self, end: End) {
        if let Some(budget) = &mut self.options.budget {
            *budget = budget.saturating_sub(end.written);
        }
        let (tone, word) = match end.ending.kind() {
            EndKind::Repaired => (Tone::Good, "repaired"),
            EndKind::Left => (Tone::Warn, "left as it was"),
            EndKind::Stopped => (Tone::Warn, "stopped"),
            EndKind::Failed => (Tone::Bad, "failed"),
        };
        self.state.say(
            tone,
            format!("{word}: {}  {}", sentence(&end), Name(&end.order.path)),
        );
        let _ = self.requests.send(WatchRequest::LookAgain(end.order.file));
        self.ends.push(end);
    }

    /// After the screen was left: end all running work, and report the repairs.
    fn finish(
        mut self,
        console: &Console,
        cancel: &Cancel,
        watcher: JoinHandle<Result<(), Error>>,
        left: Result<Left>,
    ) -> Result<Outcome> {
        if let Some(repair) = self.repair.take() {
            cancel.flag().store(false, Ordering::Relaxed);
            repair.stop();
            console.note("finishing the current step of the repair; Ctrl-C ends at once");
            let patience = Instant::now() + PATIENCE;
            while !repair.is_finished() && !cancel.is_cancelled() && Instant::now() < patience {
                thread::sleep(Duration::from_millis(20));
            }
            if repair.is_finished() {
                self.ended(repair.end());
            } else {
                console.note("left; the contents are whole, and nothing stays behind");
            }
        }
        for end in &self.ends {
            let line = format!("{}: {}", Name(&end.order.path), sentence(end));
            match end.ending.kind() {
                EndKind::Failed => console.error(line, ""),
                _ => console.note(line),
            }
        }
        let stopped = self
            .ends
            .last()
            .is_some_and(|end| end.ending.kind() == EndKind::Stopped);
        cancel.cancel();
        drop(self.requests);
        let left = left?;
        // It ends by itself, since its receiver is gone, and removes its programs from the
        // kernel; a file system that does not answer is not waited for.
        let patience = Instant::now() + Duration::from_secs(2);
        while !watcher.is_finished() && Instant::now() < patience {
            thread::sleep(Duration::from_millis(5));
        }
        if watcher.is_finished() || left == Left::NothingComes {
            watcher
                .join()
                .map_err(|_| anyhow!("the watching thread panicked; please report this"))?
                .map_err(explain)?;
        }
        let _ = io::stdout().flush();
        Ok(if stopped {
            Outcome::Stopped
        } else {
            Outcome::Done
        })
    }
}
