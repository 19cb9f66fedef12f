//! The order of work among the workers: pieces of files that are open come before files that are
//! not.

use std::{
    collections::VecDeque,
    sync::{Condvar, Mutex, PoisonError},
};

use super::{file::Piece, job::FileJob, limits::Stop};
use crate::sync::lock;

pub(super) enum Task<'a> {
    /// Open a file, find out what is to be done, and begin.
    File(Box<FileJob>, Opening<'a>),
    /// Move a piece of a file.
    Piece(Piece),
}

pub(super) struct Schedule {
    state: Mutex<Backlog>,
    changed: Condvar,
}

struct Backlog {
    jobs: VecDeque<Box<FileJob>>,
    pieces: VecDeque<Piece>,
    /// Workers that open files, and so may add pieces.
    opening: usize,
}

impl Schedule {
    #[expect(
        clippy::vec_box,
        reason = "jobs are freed one by one while results take their place"
    )]
    pub(super) fn new(jobs: Vec<Box<FileJob>>) -> Self {
        Self {
            state: Mutex::new(Backlog {
                jobs: jobs.into(),
                pieces: VecDeque::new(),
                opening: 0,
            }),
            changed: Condvar::new(),
        }
    }

    /// The next task, of this file system only if one is given (its device number); `None` when there
    /// will be none any more. After a stop no file is begun, and the pieces of open ones are still
    /// handed out, so that their files come to an end.
    pub(super) fn next(&self, only: Option<u64>, stop: &Stop<'_>) -> Option<Task<'_>> {
        let fits = |dev| only.is_none_or(|only| only == dev);
        let mut state = lock(&self.state);
        loop {
            let piece = take(&mut state.pieces, |piece| fits(piece.file.target.id.dev));
            if let Some(piece) = piece {
                return Some(Task::Piece(piece));
            }
            if stop.cause().is_none()
                && let Some(job) = take(&mut state.jobs, |job| fits(job.id.dev))
            {
                state.opening += 1;
                return Some(Task::File(job, Opening(self)));
            }
            if state.opening == 0 {
                return None;
            }
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The jobs that nobody began.
    pub(super) fn rest(self) -> impl Iterator<Item = Box<FileJob>> {
        self.state
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner)
            .jobs
            .into_iter()
    }
}

/// Take the first one that fits.
fn take<T>(queue: &mut VecDeque<T>, fits: impl FnMut(&T) -> bool) -> Option<T> {
    let at = queue.iter().position(fits)?;
    queue.remove(at)
}

/// A worker that opens a file. Others wait for its findings, so its end is signalled even when it
/// panics.
pub(super) struct Opening<'a>(&'a Schedule);

impl Opening<'_> {
    /// The file is open: others may help with these pieces of it.
    pub(super) fn found(self, pieces: impl IntoIterator<Item = Piece>) {
        lock(&self.0.state).pieces.extend(pieces);
    }
}

impl Drop for Opening<'_> {
    fn drop(&mut self) {
        lock(&self.0.state).opening -= 1;
        self.0.changed.notify_all();
    }
}
