//! SIGINT and SIGTERM: the first one requests an orderly end, the second one ends at once.

use std::{io, thread};

use indef_engine::Cancel;
use signal_hook::{
    consts::signal::{SIGINT, SIGTERM},
    iterator::Signals,
    low_level,
};

use crate::output::Console;

/// The effect of a second signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Second {
    /// Ends the process: whenever that happens, it leaves nothing of its own in the user's files.
    Abort,
    /// Has no effect: there is something to clean up, and it takes moments.
    Patience,
}

/// Set `cancel` at the first signal, and print nothing: a command that ends at once needs no
/// explanation. The third one ends the process.
///
/// # Errors
///
/// The kernel's error where a handler cannot be installed.
pub(crate) fn watch_quietly(cancel: &Cancel) -> io::Result<()> {
    let cancel = cancel.clone();
    on_signals(move |n, signal| {
        if n > 1 {
            let _ = low_level::emulate_default_handler(signal);
        }
        cancel.cancel();
    })
}

/// Set `cancel` at the first signal.
///
/// # Errors
///
/// The kernel's error where a handler cannot be installed.
pub(crate) fn watch(console: &Console, cancel: &Cancel, second: Second) -> io::Result<()> {
    let (cancel, quiet) = (cancel.clone(), console.quiet);
    on_signals(move |n, signal| {
        if n > 0 && second == Second::Abort {
            let _ = low_level::emulate_default_handler(signal);
        }
        cancel.cancel();
        if n == 0 && !quiet {
            let how = match second {
                Second::Abort => "finishing the current step; once more to stop at once",
                Second::Patience => "stopping and cleaning up",
            };
            let _ = io::Write::write_fmt(&mut io::stderr(), format_args!("\nindef: {how}\n"));
        }
    })
}

/// Call `act` with the index of each signal, from 0, and its number, in a thread of its own.
fn on_signals(mut act: impl FnMut(usize, i32) + Send + 'static) -> io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            for (n, signal) in signals.forever().enumerate() {
                act(n, signal);
            }
        })?;
    Ok(())
}
