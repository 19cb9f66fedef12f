//! The copier: ranges from one file to another, with many requests in flight.
//!
//! A fragmented file is slow to read because each fragment is a request of its own that waits for
//! the one before it. Here each range is split into pieces, every piece is a read that turns into a
//! write when it completes, and as many pieces as the queue depth allows are under way at once, so
//! that reads of one part overlap with writes of another (ScaleDefrag's idea inside one file).
//!
//! Invariants: when [`Copier::copy`](RangeCopier::copy) returns, with or without an error, no
//! request is in flight; no byte outside of the ranges is written; memory is bounded by the queue
//! depth, whatever the file size. Source bytes beyond its end count as zeros, so that the last
//! block can be written whole, as direct I/O demands. A hole of the source is copied as zeros: which
//! ranges hold data is the engine's knowledge.
//!
//! io_uring does the work where the kernel allows it (it may be switched off by sysctl or seccomp);
//! otherwise a few threads do, which is logged once through `tracing`.
//!
//! Both files are used as they were opened: with `O_DIRECT` if the engine wants that. Buffers,
//! offsets and lengths are aligned to [`pieces::ALIGNMENT`] if the ranges are.

mod pieces;
mod plain;
#[allow(unsafe_code)]
mod ring;

use std::{
    fs::File,
    io,
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use indef_fs::RangeCopier;
use units::FileRange;

use self::{pieces::CopyPieces, ring::Ring};
use crate::sync::lock;

/// The largest piece: larger ones gain nothing on flash, and cost memory.
const LARGEST_PIECE: usize = 256 << 10;

/// The smallest piece: below, the cost of requests shows.
const SMALLEST_PIECE: usize = 64 << 10;

/// Buffers of one copy in flight, in all.
const MEMORY: usize = 8 << 20;

/// Copies with io_uring, or with threads where that is not available. Can be used by any number of
/// workers at once, each of which gets a ring of its own.
#[derive(Debug)]
pub struct Copier {
    depth: usize,
    piece: usize,
    /// Rings that are not in use now.
    idle: Mutex<Vec<Ring>>,
    /// io_uring was refused once; it is not asked again.
    refused: AtomicBool,
}

impl Copier {
    /// A copier with up to `queue_depth` pieces in flight for each copy (at least 1, at most 128).
    #[must_use]
    pub fn new(queue_depth: u32) -> Self {
        let depth = queue_depth.clamp(1, 128) as usize;
        let piece = (MEMORY / depth).clamp(SMALLEST_PIECE, LARGEST_PIECE);
        Self {
            depth,
            piece,
            idle: Mutex::new(Vec::new()),
            refused: AtomicBool::new(false),
        }
    }

    /// The same, without io_uring.
    #[must_use]
    pub fn without_ring(queue_depth: u32) -> Self {
        let copier = Self::new(queue_depth);
        copier.refused.store(true, Ordering::Relaxed);
        copier
    }

    /// A ring: an idle one, a new one, or none.
    fn ring(&self) -> Option<Ring> {
        if self.refused.load(Ordering::Relaxed) {
            return None;
        }
        let idle = lock(&self.idle).pop();
        idle.or_else(|| match Ring::new(self.depth, self.piece) {
            Ok(ring) => Some(ring),
            Err(error) => {
                if !self.refused.swap(true, Ordering::Relaxed) {
                    tracing::info!(%error, "io_uring is not available; copying with threads");
                }
                None
            }
        })
    }
}

impl RangeCopier for Copier {
    fn copy(&self, from: &File, to: &File, ranges: &[FileRange]) -> io::Result<()> {
        let mut pieces = CopyPieces::new(ranges, self.piece);
        match self.ring() {
            None => plain::copy(from, to, pieces, self.depth, self.piece),
            Some(mut ring) => {
                let result = ring.copy(from, to, &mut pieces);
                // A ring that failed as such (not just a request of it) still has requests in
                // flight, waits for them when it is dropped, and is not used again.
                if ring.is_idle() {
                    lock(&self.idle).push(ring);
                }
                result
            }
        }
    }
}

#[cfg(test)]
mod tests;
