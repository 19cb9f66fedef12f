//! One file that is read: directly, or through the page cache, which is left as it was.

use std::{
    fs::File,
    os::unix::fs::FileExt,
    time::{Duration, Instant},
};

use indef_fs::{CacheRecord, TargetId, reopen};
use rustix::fs::{Advice, OFlags, fadvise};
use units::FileRange;

/// Direct I/O is aligned to this.
const ALIGNED: usize = 4096;

/// How the reads of a profile are repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replay {
    /// With `O_DIRECT`: how long reads wait for the device.
    Direct,
    /// Through the page cache: whole calls of programs that read so.
    Buffered,
}

/// What became of a read.
pub(super) enum Answer {
    /// It was done in this time.
    Took(Duration),
    /// It was not done, as a part of it is in the page cache: it would not wait for the device.
    Cached,
    Failed,
}

/// A file of the profile, open in the ways in which it is read.
pub(super) struct Source {
    direct: File,
    /// Where calls are asked for that read through the page cache.
    buffered: Option<File>,
    pub(super) id: TargetId,
}

impl Source {
    /// `None` where it cannot be read so that its access time stays.
    pub(super) fn open(file: &File, id: TargetId, replay: Replay) -> Option<Self> {
        // Without O_NOATIME, which only the owner and root get, it would not be left as it was.
        let flags = OFlags::RDONLY | OFlags::NOATIME;
        let direct = reopen(file, flags | OFlags::DIRECT).ok()?.into();
        let buffered = match replay {
            Replay::Direct => None,
            Replay::Buffered => {
                let file: File = reopen(file, flags).ok()?.into();
                // A range is read as it is: nothing beside it enters the cache.
                fadvise(&file, 0, None, Advice::Random).ok()?;
                Some(file)
            }
        };
        Some(Self {
            direct,
            buffered,
            id,
        })
    }

    pub(super) fn read(&self, range: FileRange, replay: Replay, buffer: &mut Vec<u8>) -> Answer {
        let Ok(len) = usize::try_from(range.len.get()) else {
            return Answer::Failed;
        };
        if buffer.len() < len + ALIGNED {
            *buffer = vec![0; len + ALIGNED];
        }
        let shift = buffer.as_ptr().align_offset(ALIGNED);
        let Some(into) = buffer.get_mut(shift..shift + len) else {
            return Answer::Failed;
        };
        let timed = |file: &File, into: &mut [u8]| {
            let started = Instant::now();
            let done = file.read_exact_at(into, range.start.get());
            done.map_or(Answer::Failed, |()| Answer::Took(started.elapsed()))
        };
        match (&self.buffered, replay) {
            (Some(file), Replay::Buffered) => {
                // In whole pages: one that is read in part is cached as a whole, and goes as a whole.
                let before = CacheRecord::of_file(file, true, range);
                if before.any() {
                    return Answer::Cached;
                }
                let answer = timed(file, into);
                // Clean pages that nobody maps: those of this read, or another one's that came at the same time.
                before.restore(file);
                answer
            }
            _ => timed(&self.direct, into),
        }
    }
}
