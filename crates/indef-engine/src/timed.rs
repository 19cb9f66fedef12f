//! Reads with io_uring that are timed together: so many in flight, and the time until all are done.
//!
//! Unsafe code is sound for the reason that [`copier::ring`](crate::copier) gives: a request names memory
//! of [`TimedReads::memory`] and the descriptor of a borrowed file; both outlive it because
//! [`TimedReads::read`] returns only when nothing is in flight, and if waiting itself fails, the
//! memory is leaked rather than freed under the kernel's hands.

use std::{
    fs::File,
    io, mem,
    os::fd::AsRawFd,
    time::{Duration, Instant},
};

use io_uring::{IoUring, opcode, types::Fd};
use units::FileRange;

use crate::uring;

/// Direct reads are aligned to this: the largest logical block size that is in use.
const ALIGNMENT: usize = 4096;

/// The most reads in flight.
pub(crate) const DEEPEST: usize = 128;

/// Bytes in flight at most.
pub(crate) const MOST_IN_FLIGHT: usize = 16 << 20;

/// A ring and its memory.
pub struct TimedReads {
    ring: IoUring,
    memory: Vec<u8>,
    in_flight: usize,
}

impl std::fmt::Debug for TimedReads {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TimedReads")
            .field("in_flight", &self.in_flight)
            .finish_non_exhaustive()
    }
}

impl TimedReads {
    /// A ring for up to [`DEEPEST`] reads.
    ///
    /// # Errors
    ///
    /// io_uring is missing or not allowed here.
    pub fn new() -> io::Result<Self> {
        let ring = uring::ring_for(DEEPEST as u32, &[opcode::Read::CODE])?;
        // Every page of it is touched: Btrfs reads into others through the page cache.
        let memory = vec![0xA5; MOST_IN_FLIGHT + ALIGNMENT];
        Ok(Self {
            ring,
            memory,
            in_flight: 0,
        })
    }

    /// Do all of these reads in their order, `depth` of them at a time; returns the time from before the
    /// first until after the last. The data is not looked at.
    ///
    /// # Errors
    ///
    /// The first error of a read, after which no further one begins; a read that ends short; more
    /// bytes than [`MOST_IN_FLIGHT`].
    pub fn read(&mut self, file: &File, reads: &[FileRange], depth: usize) -> io::Result<Duration> {
        let depth = depth.clamp(1, DEEPEST).min(reads.len());
        let largest = reads.iter().map(|read| read.len.0).max().unwrap_or(0);
        let room = usize::try_from(largest).unwrap_or(usize::MAX);
        let room = room.checked_next_multiple_of(ALIGNMENT);
        let Some(room) = room.filter(|room| room.saturating_mul(depth) <= MOST_IN_FLIGHT) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let mut free: Vec<usize> = (0..depth).collect();
        let mut next = reads.iter();
        let mut failed = None;
        let mut done = Vec::with_capacity(depth);
        let mut slots = vec![FileRange::default(); depth];
        let began = Instant::now();
        loop {
            while failed.is_none()
                && let Some(&slot) = free.last()
                && let Some(read) = next.next()
            {
                free.pop();
                slots[slot] = *read;
                if let Err(error) = self.request(file, *read, slot, room) {
                    failed = Some(error);
                }
            }
            if self.in_flight == 0 {
                break;
            }
            uring::wait(&mut self.ring)?;
            let completed = self.ring.completion();
            done.extend(completed.map(|entry| (entry.user_data() as usize, entry.result())));
            for (slot, result) in done.drain(..) {
                self.in_flight -= 1;
                free.push(slot);
                let whole = slots.get(slot).map(|read| read.len.0);
                if let Err(error) = check(result, whole) {
                    failed.get_or_insert(error);
                }
            }
        }
        match failed {
            None => Ok(began.elapsed()),
            Some(error) => Err(error),
        }
    }

    fn request(
        &mut self,
        file: &File,
        read: FileRange,
        slot: usize,
        room: usize,
    ) -> io::Result<()> {
        let start = self.memory.as_ptr().align_offset(ALIGNMENT) + slot * room;
        let memory = &mut self.memory[start..start + read.len.0 as usize];
        let entry = opcode::Read::new(
            Fd(file.as_raw_fd()),
            memory.as_mut_ptr(),
            memory.len() as u32,
        )
        .offset(read.start.0)
        .build()
        .user_data(slot as u64);
        // SAFETY: the memory that the entry names belongs to `self.memory`, is touched by no other request
        // as long as its slot is in use, and outlives the request; so does the file (see the module).
        unsafe { self.ring.submission().push(&entry) }.map_err(io::Error::other)?;
        self.in_flight += 1;
        Ok(())
    }
}

/// Whether a read brought all of its bytes.
fn check(result: i32, wanted: Option<u64>) -> io::Result<()> {
    match u64::try_from(result) {
        Err(_) => Err(io::Error::from_raw_os_error(-result)),
        Ok(bytes) if Some(bytes) == wanted => Ok(()),
        Ok(_) => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

impl Drop for TimedReads {
    fn drop(&mut self) {
        if self.in_flight > 0 {
            // Only after waiting failed for a reason that no retry helps. The kernel may still write
            // to the memory: never give it to anybody else.
            mem::forget(mem::take(&mut self.memory));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn all_reads_are_done_and_a_short_one_is_an_error() {
        let Ok(mut reads) = TimedReads::new() else {
            eprintln!("skipped: no io_uring here");
            return;
        };
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&vec![7; 1 << 20]).unwrap();
        let all: Vec<_> = (0..256).map(|i| FileRange::new(i * 4096, 4096)).collect();
        for depth in [1, 2, 128, 1000] {
            assert!(reads.read(&file, &all, depth).unwrap() > Duration::ZERO);
        }
        assert_eq!(reads.read(&file, &[], 4).unwrap().as_secs(), 0);
        let past = [FileRange::new(0, 4096), FileRange::new(1 << 20, 4096)];
        let error = reads.read(&file, &past, 2).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        let large = vec![FileRange::new(0, 1 << 20); 64];
        assert!(reads.read(&file, &large, 64).is_err());
        // It can still be used.
        assert!(reads.read(&file, &all, 8).is_ok() && reads.in_flight == 0);
    }
}
