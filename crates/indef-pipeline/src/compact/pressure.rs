//! Others come first: what is held while a region is emptied is let go as soon as the space runs short.

use std::{
    fs::File,
    io,
    sync::mpsc::{RecvTimeoutError, channel},
    thread,
    time::Duration,
};

use indef_engine::Cancel;
use indef_fs::{Balloon, Space};
use units::Bytes;

/// The time between two looks at what is free.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// What others need.
#[derive(Debug)]
pub(super) struct Pressure<'a> {
    /// A file on the file system.
    pub(super) root: &'a File,
    /// The space runs short when less than this share of it is free, in percent.
    pub(super) least_pct: f64,
    /// Ends the work.
    pub(super) cancel: &'a Cancel,
}

impl Pressure<'_> {
    fn is_short(&self) -> bool {
        Space::of(self.root).is_ok_and(|space| !space.allows(Bytes::ZERO, self.least_pct))
    }

    /// Do the work, which has to end soon once its flag is set, with the balloon held beside it. Where the space runs
    /// short, the balloon goes at once and the flag is set. Returns whether that happened.
    ///
    /// # Errors
    ///
    /// There is no other thread to look. Nothing was done.
    pub(super) fn beside<T>(
        &self,
        balloon: Option<Balloon>,
        work: impl FnOnce(&Cancel) -> T,
    ) -> io::Result<(T, bool)> {
        let cancel = self.cancel.child();
        thread::scope(|scope| {
            let (ends, is_over) = channel::<()>();
            let (looks, flag) = (self, &cancel);
            let look = move || {
                let mut balloon = balloon;
                // The other end is dropped when the work is done, or has panicked.
                while is_over.recv_timeout(LOOK_EVERY) == Err(RecvTimeoutError::Timeout) {
                    if looks.is_short() {
                        drop(balloon.take());
                        flag.cancel();
                        return true;
                    }
                }
                false
            };
            let looking = thread::Builder::new().spawn_scoped(scope, look)?;
            let done = work(&cancel);
            drop(ends);
            Ok((done, looking.join().unwrap_or(false)))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_goes_on_until_the_space_runs_short() {
        let root = tempfile::tempfile().unwrap();
        let cancel = Cancel::new();
        let with = |least_pct| Pressure {
            root: &root,
            least_pct,
            cancel: &cancel,
        };
        let plenty = with(0.0).beside(None, |cancel| cancel.is_cancelled());
        assert_eq!(plenty.unwrap(), (false, false));
        // It would never end by itself.
        let short = with(101.0).beside(None, |cancel| {
            while !cancel.is_cancelled() {
                thread::sleep(Duration::from_millis(1));
            }
        });
        assert_eq!(short.unwrap(), ((), true));
        assert!(!cancel.is_cancelled(), "only this work");
    }
}
