//! The copy without io_uring: a few threads, each of which reads and writes one piece at a time.

use std::{
    fs::File,
    io,
    os::unix::fs::FileExt,
    sync::{Mutex, PoisonError},
    thread,
};

use super::pieces::{AfterRead, Buffers, CopyPiece, CopyPieces, after_read};
use crate::sync::lock;

/// More threads than this cost more than they bring.
const MOST_THREADS: usize = 16;

/// The work that is left, or the error that ended it.
struct WorkLeft<'a> {
    pieces: CopyPieces<'a>,
    error: Option<io::Error>,
}

/// Copy all pieces.
pub(super) fn copy(
    from: &File,
    to: &File,
    pieces: CopyPieces<'_>,
    depth: usize,
    size: usize,
) -> io::Result<()> {
    let work = Mutex::new(WorkLeft {
        pieces,
        error: None,
    });
    thread::scope(|scope| {
        let mut threads = 0;
        while threads < depth.min(MOST_THREADS) - 1 {
            if thread::Builder::new()
                .spawn_scoped(scope, || work_off(&work, from, to, size))
                .is_err()
            {
                break; // This thread does what the missing ones would have done.
            }
            threads += 1;
        }
        work_off(&work, from, to, size);
    });
    let work = work.into_inner().unwrap_or_else(PoisonError::into_inner);
    work.error.map_or(Ok(()), Err)
}

fn work_off(work: &Mutex<WorkLeft<'_>>, from: &File, to: &File, size: usize) {
    let mut buffers = Buffers::new(1, size);
    loop {
        let mut guard = lock(work);
        let next = if guard.error.is_none() {
            guard.pieces.next()
        } else {
            None
        };
        drop(guard);
        let Some(piece) = next else { return };
        if let Err(error) = copy_piece(from, to, piece, buffers.get(0)) {
            let mut guard = lock(work);
            guard.error.get_or_insert(error);
        }
    }
}

fn copy_piece(from: &File, to: &File, piece: CopyPiece, buffer: &mut [u8]) -> io::Result<()> {
    let buffer = &mut buffer[..piece.length];
    let mut begin = 0;
    loop {
        let got = match from.read_at(&mut buffer[begin..], piece.offset + begin as u64) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            result => result?,
        };
        let done = begin + got;
        match after_read(from, piece, done)? {
            AfterRead::Complete => {
                buffer[done..].fill(0);
                return to.write_all_at(buffer, piece.offset);
            }
            AfterRead::From(resume) => begin = resume,
        }
    }
}
