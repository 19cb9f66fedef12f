//! The files of filebench's personality `oltp`.
//!
//! `oltp.f` has data files and a log that are there before it begins; what its writers do then overwrites them where they
//! lie. So on a file system that writes in place, all that decides how they lie is how they are made: here each by a thread
//! of its own, at the same time (filebench: `paralloc`).

use super::{IO_BYTES, Op};

/// Files in the making, one for each thread: how much of each is written.
#[derive(Debug)]
pub struct Oltp {
    written: Vec<Option<u64>>,
    bytes: u64,
}

impl Oltp {
    /// So many files of `bytes` each.
    #[must_use]
    pub fn new(files: usize, bytes: u64) -> Self {
        Self {
            written: vec![None; files],
            bytes,
        }
    }

    /// The next operation of a thread, which is taken for done; `None` when it has nothing more to do.
    pub fn next(&mut self, thread: usize) -> Option<Op> {
        let written = self.written.get_mut(thread)?;
        let Some(at) = *written else {
            *written = Some(0);
            return Some(Op::Create(thread));
        };
        let bytes = IO_BYTES.min(self.bytes - at);
        *written = Some(at + bytes);
        (bytes > 0).then_some(Op::Append {
            id: thread,
            generation: 1,
            at,
            bytes,
        })
    }
}
