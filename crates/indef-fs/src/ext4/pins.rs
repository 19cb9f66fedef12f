//! Pages of a file that stay in the page cache until they are let go.
//!
//! A part of the file is spliced into a pipe, which is never read: it refers to the pages themselves, and copies nothing. The
//! kernel neither reclaims a page that somebody refers to (`__remove_mapping`, mm/vmscan.c, v6.18) nor drops it on advice
//! (`mapping_evict_folio`, mm/truncate.c). Whoever writes to the file goes on writing to these pages. Locked memory would do
//! the same, with a mapping to be made for each part, and hardly any of it is allowed to those without `CAP_IPC_LOCK`.
//!
//! Only what takes a page out of the file ends that: truncation, a punched hole, direct I/O over it. Then the contents of the
//! page are not what the file has any more.

use std::{
    collections::VecDeque,
    fs::File,
    io,
    os::fd::{AsFd, OwnedFd},
    sync::atomic::{AtomicUsize, Ordering},
};

use rustix::{
    io::Errno,
    pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice},
};
use units::{Bytes, FileOffset, FileRange};

/// Room of a pipe: the most that users may ask for (`fs.pipe-max-size`, Documentation/admin-guide/sysctl/fs.rst, v6.18).
const PIPE: Bytes = Bytes::mib(1);
/// A relocation pins no more than this many pipes hold: of sixteen workers, half of the descriptors that a program usually may have.
const MOST: usize = 16;
/// Where all of a process have so many, each may still have one: whatever the number of workers, what nobody can reclaim stays
/// within a service's limit of memory.
const MOST_IN_ALL: usize = 16 * MOST;

/// The pipes of this process.
static PIPES: AtomicUsize = AtomicUsize::new(0);

/// Pinned pages, in the order in which they were pinned.
#[derive(Debug)]
pub(super) struct Pins {
    pipes: VecDeque<Pipe>,
    /// How many all have.
    in_all: &'static AtomicUsize,
    /// The last pipe takes no more.
    is_sealed: bool,
    /// No more pipes than this.
    pub(super) most: usize,
}

#[derive(Debug)]
struct Pipe {
    /// Kept open, as a pipe that nobody can read takes nothing.
    _read: OwnedFd,
    write: OwnedFd,
    /// Has everything that is pinned with it.
    hull: FileRange,
    in_all: &'static AtomicUsize,
}

impl Pipe {
    fn new(at: FileOffset, in_all: &'static AtomicUsize) -> io::Result<Self> {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
        // Where more is not allowed, less goes into it.
        let _ = fcntl_setpipe_size(&write, PIPE.get() as usize);
        in_all.fetch_add(1, Ordering::Relaxed);
        Ok(Self {
            _read: read,
            write,
            hull: FileRange::between(at, at),
            in_all,
        })
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        self.in_all.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Default for Pins {
    fn default() -> Self {
        Self {
            pipes: VecDeque::new(),
            in_all: &PIPES,
            is_sealed: false,
            most: MOST,
        }
    }
}

impl Pins {
    pub(super) fn is_empty(&self) -> bool {
        self.pipes.is_empty()
    }

    /// Wait until the pages of `part` are in memory, and keep them there. Returns for how much of it, from its beginning on,
    /// that is so: less than all, in whole pages, where limits do not allow more, or a page cannot be read. What lies behind
    /// the end of the file counts as pinned.
    pub(super) fn pin(&mut self, file: &File, part: FileRange) -> Bytes {
        let mut at = part.start;
        let mut is_new = false;
        while at < part.end() {
            if self.is_sealed || self.pipes.is_empty() {
                if self.pipes.len() >= self.allowed() {
                    break;
                }
                // Limits of descriptors or memory.
                let Ok(pipe) = Pipe::new(at, self.in_all) else {
                    break;
                };
                self.pipes.push_back(pipe);
                self.is_sealed = false;
                is_new = true;
            }
            let Some(pipe) = self.pipes.back_mut() else {
                break;
            };
            let (mut offset, left) = (at.get(), (part.end() - at).get() as usize);
            let spliced = splice(
                file.as_fd(),
                Some(&mut offset),
                &pipe.write,
                None,
                left,
                SpliceFlags::NONBLOCK,
            );
            match spliced {
                Ok(0) => return part.len,
                Ok(taken) => {
                    is_new = false;
                    let end = at + Bytes(taken as u64);
                    pipe.hull =
                        FileRange::between(pipe.hull.start.min(at), pipe.hull.end().max(end));
                    at = end;
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) if !is_new => self.seal(),
                // An error of reading is told to whoever reads. A pipe that takes nothing at all is none.
                Err(_) => {
                    if is_new {
                        self.pipes.pop_back();
                        self.seal();
                    }
                    break;
                }
            }
        }
        at - part.start
    }

    /// No more pipes than this, now.
    fn allowed(&self) -> usize {
        match self.in_all.load(Ordering::Relaxed) < MOST_IN_ALL {
            true => self.most,
            false => self.most.min(1),
        }
    }

    /// Whatever is pinned next can be let go without what was pinned before.
    pub(super) fn seal(&mut self) {
        self.is_sealed = true;
    }

    /// Let go of what lies in the range.
    pub(super) fn release(&mut self, range: FileRange) {
        self.pipes.retain(|pipe| !range.contains(pipe.hull));
    }

    /// Let go of everything.
    pub(super) fn clear(&mut self) {
        self.pipes.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use rustix::fs::{Advice, fadvise};

    use super::*;
    use crate::cache::{cached_pages, drop_clean, page};

    /// A file on a real file system, written back.
    fn file(len: Bytes) -> tempfile::NamedTempFile {
        let mut file = tempfile::Builder::new().tempfile_in(".").unwrap();
        file.write_all(&vec![1; len.get() as usize]).unwrap();
        file.as_file().sync_all().unwrap();
        file
    }

    fn range(start: u64, end: u64) -> FileRange {
        FileRange::between(FileOffset(start), FileOffset(end))
    }

    /// How many pages of a range are left once it was asked to drop all.
    fn left(file: &File, range: FileRange) -> u64 {
        drop_clean(file, range);
        cached_pages(file, range).expect("cachestat")
    }

    #[test]
    fn what_is_pinned_stays_until_it_is_let_go() {
        let (page, mib) = (page().get(), 1 << 20);
        // The last page is part of the file in part alone.
        let keep = file(Bytes(3 * mib + 1));
        let file = keep.as_file();
        if cached_pages(file, range(0, 1)).is_none() {
            eprintln!("skipped: no cachestat here");
            return;
        }
        // Of a large folio, no part would go without the others.
        fadvise(file, 0, None, Advice::Random).unwrap();
        let whole = range(0, 3 * mib + page);
        let mut pins = Pins::default();
        assert_eq!(left(file, whole), 0);
        // Across pipes.
        let first = range(mib / 2, 2 * mib);
        assert_eq!(pins.pin(file, first), first.len);
        pins.seal();
        let last = range(3 * mib, 3 * mib + page);
        assert_eq!(pins.pin(file, last), last.len);
        assert_eq!(left(file, whole), first.len.get() / page + 1);
        assert_eq!(left(file, first), first.len.get() / page);
        // Of what lies in a range in part, all stays.
        pins.release(range(0, mib));
        assert_eq!(left(file, first), first.len.get() / page);
        pins.release(first);
        assert_eq!(left(file, whole), 1);
        pins.clear();
        assert_eq!(left(file, whole), 0);
        assert_eq!(pins.pin(file, last), last.len);
        drop(pins);
        assert_eq!(left(file, whole), 0);
    }

    #[test]
    fn where_limits_are_reached_a_beginning_is_pinned() {
        let keep = file(Bytes::mib(3));
        let file = keep.as_file();
        let mut pins = Pins {
            most: 2,
            ..Pins::default()
        };
        let part = range(4096, 3 << 20);
        assert_eq!(pins.pin(file, part), Bytes::mib(2));
        assert_eq!(pins.pin(file, part), Bytes::ZERO);
        pins.clear();
        pins.most = 0;
        assert_eq!(pins.pin(file, part), Bytes::ZERO);
    }

    /// Of very many, all together have a bound, and each can still go on.
    #[test]
    fn many_workers_share_what_there_is() {
        let whole = Bytes::mib(16);
        let keep = file(whole);
        let in_all: &AtomicUsize = Box::leak(Box::default());
        let new = || Pins {
            in_all,
            ..Pins::default()
        };
        let mut workers: Vec<_> = (0..20).map(|_| new()).collect();
        let part = range(0, whole.get());
        let pinned: Vec<_> = { workers.iter_mut() }
            .map(|pins| pins.pin(keep.as_file(), part))
            .collect();
        if pinned[0] < whole {
            return scratch_fs::skip("users may not have so large pipes");
        }
        assert_eq!(pinned[..16], [whole; 16]);
        assert_eq!(pinned[16..], [Bytes::mib(1); 4]);
        workers.truncate(15);
        let mut next = new();
        assert_eq!(next.pin(keep.as_file(), part), whole);
        drop((workers, next));
        assert_eq!(in_all.load(Ordering::Relaxed), 0);
    }
}
