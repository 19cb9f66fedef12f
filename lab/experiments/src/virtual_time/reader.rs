//! A program that reads, call by call: files from end to end (`grep -r`), say.

use std::collections::VecDeque;

use flash_model::Command;

use super::{Host, Submission, ZONED};
use crate::layout::{Extent, Layout};

/// One request after the other; the pieces of a request at the same time, as the kernel submits them.
pub(crate) struct Reader {
    requests: VecDeque<Vec<Extent>>,
    pieces: Vec<Extent>,
    waits_for: usize,
}

impl Reader {
    /// Of all files, in requests of `io_bytes`.
    pub(crate) fn of(layout: &Layout, io_bytes: u64) -> Self {
        Self::of_calls(layout.reads(io_bytes))
    }

    /// With these commands for each call.
    pub(crate) fn of_calls(calls: impl IntoIterator<Item = Vec<Extent>>) -> Self {
        Self {
            requests: calls.into_iter().collect(),
            pieces: Vec::new(),
            waits_for: 0,
        }
    }
}

impl Host for Reader {
    fn next(&mut self) -> Option<Submission> {
        if self.pieces.is_empty() && self.waits_for == 0 {
            self.pieces = self.requests.pop_front()?;
            self.pieces.reverse();
        }
        let piece = self.pieces.pop()?;
        self.waits_for += 1;
        let command = Command::Read {
            offset: piece.place,
            len: piece.bytes,
        };
        Some(Submission {
            number: 0,
            namespace: ZONED,
            command: command.into(),
        })
    }

    fn done(&mut self, _: usize) {
        self.waits_for -= 1;
    }

    fn is_over(&self) -> bool {
        self.waits_for == 0 && self.pieces.is_empty() && self.requests.is_empty()
    }
}
