//! The terminal as a screen, and its restoration.
//!
//! It is restored on every way out: at the end, on an error, on a panic of the thread that draws,
//! and after SIGINT, SIGTERM and SIGHUP, which only request an orderly end. Panics of other threads
//! are results (the engine reports them in the file's result), and must not tear the screen.

use std::{
    fs::File,
    io::{self, IsTerminal, Stdout, stdin, stdout},
    os::fd::AsFd,
    panic,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use ratatui::{
    Terminal,
    backend::CrosstermBackend,
    crossterm::{
        cursor::Show,
        event::{self, Event},
        execute,
        terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode},
    },
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// A screen, until it is dropped.
pub(super) struct Screen {
    pub(super) terminal: Terminal<CrosstermBackend<Stdout>>,
    /// The source of keys: stdin, if it is the terminal.
    keys: Keys,
    /// Whether the terminal is still in our mode.
    open: Arc<AtomicBool>,
}

impl Screen {
    /// Take over the terminal.
    ///
    /// # Errors
    ///
    /// The terminal cannot be used as a screen.
    pub(super) fn open() -> Result<Self> {
        let open = Arc::new(AtomicBool::new(true));
        give_back_on_panic(&open);
        let terminal = take()
            .context("the terminal cannot be used as a screen; --once prints the list instead")?;
        Ok(Self {
            terminal,
            keys: Keys::open().context("there is no terminal to read keys from; try --once")?,
            open,
        })
    }

    /// Wait at most this long for input, or for a new size of the terminal.
    ///
    /// # Errors
    ///
    /// The terminal is gone.
    pub(super) fn event(&self, at_most: Duration) -> Result<Option<Event>> {
        // A terminal that is gone is always ready to be read, and yields no data: the reader of
        // keys would try for ever.
        if self.keys.is_gone(at_most) {
            bail!("the terminal is gone");
        }
        if event::poll(Duration::ZERO).context("keys cannot be read")? {
            Ok(Some(event::read().context("keys cannot be read")?))
        } else {
            Ok(None)
        }
    }
}

/// The terminal from which keys are read.
enum Keys {
    Stdin,
    Terminal(File),
}

impl Keys {
    fn open() -> io::Result<Self> {
        if stdin().is_terminal() {
            Ok(Self::Stdin)
        } else {
            File::open("/dev/tty").map(Self::Terminal)
        }
    }

    /// Wait for keys. Returns whether none can arrive any more.
    fn is_gone(&self, at_most: Duration) -> bool {
        let stdin = stdin();
        let keys = match self {
            Self::Stdin => stdin.as_fd(),
            Self::Terminal(file) => file.as_fd(),
        };
        let mut fds = [PollFd::from_borrowed_fd(keys, PollFlags::IN)];
        let at_most = Timespec::try_from(at_most).ok();
        // A signal may interrupt the wait; the caller checks for signals.
        let _ = poll(&mut fds, at_most.as_ref());
        let gone = PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL;
        fds[0].revents().intersects(gone)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back(&self.open);
    }
}

fn take() -> io::Result<Terminal<CrosstermBackend<Stdout>>> {
    enable_raw_mode()?;
    let taken = execute!(stdout(), EnterAlternateScreen)
        .and_then(|()| Terminal::new(CrosstermBackend::new(stdout())));
    if taken.is_err() {
        let _ = disable_raw_mode();
    }
    taken
}

/// Restore the terminal, once. A failure cannot be reported anywhere.
fn give_back(open: &AtomicBool) {
    if open.swap(false, Ordering::SeqCst) {
        let _ = disable_raw_mode();
        let _ = execute!(stdout(), LeaveAlternateScreen, Show);
    }
}

fn give_back_on_panic(open: &Arc<AtomicBool>) {
    let (open, drawing) = (Arc::clone(open), thread::current().id());
    let before = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        if thread::current().id() == drawing {
            give_back(&open);
        }
        if !open.load(Ordering::SeqCst) {
            before(info);
        }
    }));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tmux::Tmux;

    /// Set for the part of a test that runs in a terminal of its own.
    const INSIDE: &str = "INDEF_TEST_INSIDE";

    fn panic_with_the_screen_open() {
        let mut screen = Screen::open().unwrap();
        // Drawing hides the cursor.
        screen.terminal.draw(|_| {}).unwrap();
        let elsewhere = thread::spawn(|| panic!("not to be seen")).join();
        assert!(elsewhere.is_err());
        thread::sleep(std::time::Duration::from_secs(2));
        panic!("on purpose");
    }

    #[test]
    fn a_panic_gives_the_terminal_back_and_is_told() {
        if std::env::var_os(INSIDE).is_some() {
            panic_with_the_screen_open();
        }
        let Some(tmux) = Tmux::start(80, 24) else {
            return;
        };
        let tests = std::env::current_exe().unwrap();
        tmux.command(&format!(
            "clear; {INSIDE}=1 RUST_BACKTRACE=0 {} --nocapture --exact \
             top::terminal::tests::a_panic_gives_the_terminal_back_and_is_told; echo status=$?",
            tests.display()
        ));
        tmux.wait_until("the screen", |_| tmux.property("alternate_on") == "1");
        let told = tmux.wait_for("status=101");
        assert!(
            told.contains("on purpose") && !told.contains("not to be seen"),
            "{told}"
        );
        tmux.assert_as_before();
    }
}
