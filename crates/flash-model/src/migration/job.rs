//! The work that a migration still has to do.

use std::collections::VecDeque;

use super::gather::Gather;
use crate::{
    command::Move,
    core::{Cause, DieWork, Owner, QueuedOperation},
    flash::CellPage,
};

/// One command that is carried out in pieces.
#[derive(Clone, Debug)]
pub(crate) struct MoveJob {
    pub(crate) number: u32,
    /// When the controller began to work on it.
    pub(crate) ready: u64,
    pub(crate) kind: JobKind,
}

/// The kind of a job.
#[derive(Clone, Debug)]
pub(crate) enum JobKind {
    /// Moves data in a namespace.
    Move {
        ns: usize,
        cursor: MoveCursor,
        gather: Gather,
    },
    /// Fills the rest of zones that were finished.
    Pad { zones: VecDeque<Padding> },
}

/// The pages of a finished zone that are still to be filled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Padding {
    pub(crate) ns: usize,
    pub(crate) zone: usize,
    pub(crate) page: u64,
    pub(crate) end: u64,
}

impl JobKind {
    /// Returns whether some of it was not put in motion yet.
    pub(crate) fn has_more(&self) -> bool {
        match self {
            Self::Move { cursor, .. } => cursor.peek().is_some(),
            Self::Pad { zones } => !zones.is_empty(),
        }
    }
}

/// The progress in a list of moves.
#[derive(Clone, Debug)]
pub(crate) struct MoveCursor {
    moves: Vec<Move>,
    at: usize,
    done: u64,
}

impl MoveCursor {
    /// Joins moves that go on where the one before ended, but none beyond a multiple of
    /// `boundary` (the zone size).
    pub(crate) fn new(moves: impl Iterator<Item = Move>, boundary: u64) -> Self {
        let mut joined: Vec<Move> = Vec::new();
        for next in moves {
            match joined.last_mut() {
                Some(last)
                    if last.from.checked_add(last.len) == Some(next.from)
                        && last.to.checked_add(last.len) == Some(next.to)
                        && !next.to.is_multiple_of(boundary) =>
                {
                    last.len += next.len;
                }
                _ => joined.push(next),
            }
        }
        joined.shrink_to_fit();
        Self {
            moves: joined,
            at: 0,
            done: 0,
        }
    }

    /// Returns all moves, joined.
    pub(crate) fn moves(&self) -> &[Move] {
        &self.moves
    }

    /// Returns the rest of the current move.
    pub(crate) fn peek(&self) -> Option<Move> {
        let current = self.moves.get(self.at)?;
        Some(Move {
            from: current.from + self.done,
            to: current.to + self.done,
            len: current.len - self.done,
        })
    }

    /// Notes that `bytes` of the current move were put in motion.
    pub(crate) fn advance(&mut self, bytes: u64) {
        self.done += bytes;
        if self
            .moves
            .get(self.at)
            .is_some_and(|current| self.done >= current.len)
        {
            self.at += 1;
            self.done = 0;
        }
    }
}

/// The part of a page that a task reads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadPart {
    pub(crate) die: u32,
    pub(crate) page: CellPage,
    pub(crate) bytes: u64,
}

/// The operations of one task: one page.
#[derive(Clone, Debug, Default)]
pub(crate) struct PageWork {
    /// It does not begin before this.
    pub(crate) ready: u64,
    pub(crate) reads: Vec<ReadPart>,
    /// Dies and operations that need the data that was read.
    pub(crate) programs: Vec<(u32, QueuedOperation)>,
    /// Operations that need not wait for the reads: collection that makes room.
    pub(crate) others: Vec<(u32, QueuedOperation)>,
}

impl PageWork {
    pub(crate) fn clear(&mut self) {
        self.ready = 0;
        self.reads.clear();
        self.programs.clear();
        self.others.clear();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.reads.is_empty() && self.programs.is_empty() && self.others.is_empty()
    }

    pub(crate) fn program(
        &mut self,
        die: u32,
        page: CellPage,
        work: DieWork,
        bytes: u64,
        cause: Cause,
    ) {
        let entry = QueuedOperation {
            work,
            page,
            ready: 0,
            bytes,
            release: 0,
            cause,
            owner: Owner::Nobody,
            number: 0,
        };
        self.programs.push((die, entry));
    }
}
