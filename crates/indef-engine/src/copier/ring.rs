//! The copy with io_uring: one ring, a fixed number of buffers, each of which carries a piece from
//! its read to its write.
//!
//! The only unsafe code of this crate. It is sound for this reason: a request names memory of
//! [`Ring::buffers`] and the descriptors of two borrowed files; all of these outlive it because
//! [`Ring::copy`] returns only when nothing is in flight, and if waiting itself fails, the buffers
//! are leaked rather than freed under the kernel's hands, and the ring is closed.

use std::{
    fs::File,
    io, mem,
    os::fd::{AsRawFd, RawFd},
};

use io_uring::{IoUring, opcode, squeue::Entry, types::Fd};

use super::pieces::{AfterRead, Buffers, CopyPiece, CopyPieces, after_read};
use crate::uring;

/// The present use of a buffer.
#[derive(Clone, Copy, Debug)]
enum CopyStage {
    Read,
    Write,
}

/// A buffer in use: bytes from `begin` on are requested.
#[derive(Clone, Copy, Debug)]
struct RingSlot {
    piece: CopyPiece,
    stage: CopyStage,
    begin: usize,
}

/// The kernel completed a request that was not submitted.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("io_uring completed an unknown request")]
struct UnknownRequest;

/// A ring and its buffers.
pub(super) struct Ring {
    ring: IoUring,
    buffers: Buffers,
    slots: Vec<Option<RingSlot>>,
    in_flight: usize,
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring")
            .field("slots", &self.slots.len())
            .field("in_flight", &self.in_flight)
            .finish_non_exhaustive()
    }
}

impl Ring {
    /// Make a ring. Fails where io_uring is missing or not allowed.
    pub(super) fn new(depth: usize, piece: usize) -> io::Result<Self> {
        let operations = [opcode::Read::CODE, opcode::Write::CODE];
        Ok(Self {
            ring: uring::ring_for(depth.next_power_of_two() as u32, &operations)?,
            buffers: Buffers::new(depth, piece),
            slots: vec![None; depth],
            in_flight: 0,
        })
    }

    /// Whether it can be used again.
    pub(super) fn is_idle(&self) -> bool {
        self.in_flight == 0
    }

    /// Copy all pieces. After an error no new request is begun, and those in flight are waited for.
    pub(super) fn copy(
        &mut self,
        from: &File,
        to: &File,
        pieces: &mut CopyPieces<'_>,
    ) -> io::Result<()> {
        let mut failed = None;
        let mut done: Vec<(usize, i32)> = Vec::with_capacity(self.slots.len());
        let mut free: Vec<usize> = (0..self.slots.len()).rev().collect();
        loop {
            while failed.is_none() {
                let Some(&index) = free.last() else { break };
                let Some(piece) = pieces.next() else { break };
                free.pop();
                let slot = RingSlot {
                    piece,
                    stage: CopyStage::Read,
                    begin: 0,
                };
                if let Err(error) = self.request(index, slot, from, to) {
                    free.push(index);
                    failed = Some(error);
                }
            }
            if self.in_flight == 0 {
                return failed.map_or(Ok(()), Err);
            }
            uring::wait(&mut self.ring)?;
            done.extend(
                self.ring
                    .completion()
                    .map(|entry| (entry.user_data() as usize, entry.result())),
            );
            for (index, result) in done.drain(..) {
                self.in_flight -= 1;
                let next = match self.completed(index, result, from) {
                    // After a failure elsewhere, the read data is not worth writing.
                    Ok(Some(slot)) if failed.is_none() => self.request(index, slot, from, to),
                    Ok(_) => {
                        free.push(index);
                        Ok(())
                    }
                    Err(error) => Err(error),
                };
                if let Err(error) = next {
                    free.push(index);
                    failed.get_or_insert(error);
                }
            }
        }
    }

    /// Take the result of a request that is done. Returns the next request of its slot, if there is
    /// one.
    fn completed(
        &mut self,
        index: usize,
        result: i32,
        from: &File,
    ) -> io::Result<Option<RingSlot>> {
        let Some(slot) = self.slots[index].take() else {
            return Err(io::Error::other(UnknownRequest));
        };
        if result < 0 {
            let error = io::Error::from_raw_os_error(-result);
            return match error.kind() {
                io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock => Ok(Some(slot)),
                _ => Err(error),
            };
        }
        let done = slot.begin + result as usize;
        match slot.stage {
            CopyStage::Read => match after_read(from, slot.piece, done)? {
                AfterRead::From(begin) => Ok(Some(RingSlot { begin, ..slot })),
                AfterRead::Complete => {
                    self.buffers.get(index)[done..slot.piece.length].fill(0);
                    Ok(Some(RingSlot {
                        stage: CopyStage::Write,
                        begin: 0,
                        ..slot
                    }))
                }
            },
            CopyStage::Write if done == slot.piece.length => Ok(None),
            CopyStage::Write if result == 0 => Err(io::ErrorKind::WriteZero.into()),
            CopyStage::Write => Ok(Some(RingSlot {
                begin: done,
                ..slot
            })),
        }
    }

    /// Queue the request that `slot` describes. There is always room: one request for each slot.
    fn request(&mut self, index: usize, slot: RingSlot, from: &File, to: &File) -> io::Result<()> {
        let fd = match slot.stage {
            CopyStage::Read => from.as_raw_fd(),
            CopyStage::Write => to.as_raw_fd(),
        };
        let entry = self.entry(index, slot, fd);
        // SAFETY: the memory that the entry names belongs to `self.buffers`, is not touched while
        // its slot is in use, and outlives the request; so do the two files (see the module).
        unsafe { self.ring.submission().push(&entry) }.map_err(io::Error::other)?;
        self.slots[index] = Some(slot);
        self.in_flight += 1;
        Ok(())
    }

    fn entry(&mut self, index: usize, slot: RingSlot, fd: RawFd) -> Entry {
        let memory = &mut self.buffers.get(index)[slot.begin..slot.piece.length];
        let (pointer, length) = (memory.as_mut_ptr(), memory.len() as u32);
        let offset = slot.piece.offset + slot.begin as u64;
        match slot.stage {
            CopyStage::Read => opcode::Read::new(Fd(fd), pointer, length)
                .offset(offset)
                .build(),
            CopyStage::Write => opcode::Write::new(Fd(fd), pointer, length)
                .offset(offset)
                .build(),
        }
        .user_data(index as u64)
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        if self.in_flight > 0 {
            // Only after waiting failed for a reason that no retry helps. The kernel may still write
            // to the buffers: never give their memory to anybody else.
            mem::forget(mem::replace(&mut self.buffers, Buffers::new(0, 0)));
        }
    }
}
