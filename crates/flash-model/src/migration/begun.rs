//! The state of a command between its namespace and the device.

use std::collections::VecDeque;

use super::job::{MoveCursor, Padding};
use crate::command::{Move, Refused, Span};

/// A command that its namespace has accepted, and the part that is left to the device.
#[derive(Debug)]
pub(crate) enum Begun {
    /// Nothing is left to do: it is done at this time.
    Done { at: u64, wrote_at: Option<u64> },
    /// Its data comes in. `programs`: it ends with those from this number on.
    Written {
        programs: Option<u64>,
        wrote_at: Option<u64>,
    },
    /// Flush all namespaces.
    Flush,
    /// Pad zones that were finished, in the background.
    Padding {
        zones: VecDeque<Padding>,
        ready: u64,
    },
    /// Move data, in the background.
    Moves(Moves),
}

impl Begun {
    /// Done at this time.
    pub(crate) const fn at(at: u64) -> Self {
        Self::Done { at, wrote_at: None }
    }
}

/// The moves of one command.
#[derive(Debug)]
pub(crate) struct Moves {
    pub(crate) cursor: MoveCursor,
    /// Bytes of the list on the wire.
    pub(crate) list_bytes: u64,
}

impl Moves {
    /// Returns the moves of a Copy, whose list has 32 bytes for each source (NVM Command Set 1.0
    /// §3.2.2).
    pub(crate) fn of_copy(
        sources: &[Span],
        destination: u64,
        boundary: u64,
    ) -> Result<Self, Refused> {
        let mut to = destination;
        let mut moves = Vec::with_capacity(sources.len());
        let total = sources
            .iter()
            .try_fold(0_u64, |sum, span| sum.checked_add(span.len))
            .and_then(|total| destination.checked_add(total).map(|_| total))
            .ok_or(Refused::OutOfRange)?;
        for span in sources {
            if span.offset < destination + total && destination < span.end() {
                return Err(Refused::Overlap);
            }
            moves.push(Move {
                from: span.offset,
                to,
                len: span.len,
            });
            to += span.len;
        }
        Ok(Self {
            cursor: MoveCursor::new(moves.into_iter(), boundary),
            list_bytes: 32 * sources.len() as u64,
        })
    }

    /// Returns the moves of a migration, whose list has 8 bytes for each 4 KiB (InDeF §III-D).
    pub(crate) fn of_migration(moves: &[Move], boundary: u64) -> Self {
        let blocks: u64 = moves.iter().map(|wanted| wanted.len.div_ceil(4096)).sum();
        Self {
            cursor: MoveCursor::new(moves.iter().copied(), boundary),
            list_bytes: 8 * blocks,
        }
    }
}
