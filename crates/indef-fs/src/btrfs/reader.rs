//! Reading ahead in a thread of its own.
//!
//! Advice to read ahead waits where the device's queue is full, and a file in many fragments fills
//! it: 65,536 requests for 256 MiB. The thread takes that wait, while the ioctl copies and marks
//! the pages that have arrived. Small relocations do without it.

use std::{
    fs::File,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc},
    thread::{self, JoinHandle},
};

use units::FileRange;

use crate::cache::read_ahead;

/// Ranges on their way to the device, in order.
pub(super) struct Prefetch {
    thread: Option<(mpsc::Sender<FileRange>, JoinHandle<()>)>,
    asked: u64,
    done: Arc<ReadCount>,
}

#[derive(Default)]
struct ReadCount {
    count: Mutex<u64>,
    changed: Condvar,
}

impl ReadCount {
    fn count(&self) -> MutexGuard<'_, u64> {
        self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Prefetch {
    /// A reader; with `parallel`, in a thread of its own, if one can be had.
    pub(super) fn new(file: &File, parallel: bool) -> Self {
        let done = Arc::new(ReadCount::default());
        let (sender, ranges) = mpsc::channel::<FileRange>();
        let start = |file: File| {
            let done = Arc::clone(&done);
            let work = move || {
                for range in ranges {
                    read_ahead(&file, range);
                    *done.count() += 1;
                    done.changed.notify_all();
                }
            };
            thread::Builder::new().name("read ahead".into()).spawn(work)
        };
        let thread = parallel
            .then(|| file.try_clone().and_then(start).ok())
            .flatten();
        Self {
            thread: thread.map(|thread| (sender, thread)),
            asked: 0,
            done,
        }
    }

    /// Have `range` read.
    pub(super) fn ask(&mut self, file: &File, range: FileRange) {
        match &self.thread {
            Some((sender, _)) if sender.send(range).is_ok() => self.asked += 1,
            _ => read_ahead(file, range),
        }
    }

    /// How many ranges were asked for: a mark for [`Self::wait`].
    pub(super) fn asked(&self) -> u64 {
        self.asked
    }

    /// Wait until the first `mark` ranges are on their way, so that none of them enters the page
    /// cache after the cache was restored.
    pub(super) fn wait(&self, mark: u64) {
        let alive = || {
            let thread = self.thread.as_ref();
            thread.is_some_and(|(_, thread)| !thread.is_finished())
        };
        let mut count = self.done.count();
        while *count < mark && alive() {
            let patience = std::time::Duration::from_millis(100);
            let waited = self.done.changed.wait_timeout(count, patience);
            count = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Drop for Prefetch {
    fn drop(&mut self) {
        if let Some((sender, thread)) = self.thread.take() {
            drop(sender);
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_asked_for_is_done_when_waited_for() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(1 << 20).unwrap();
        for parallel in [false, true] {
            let mut reader = Prefetch::new(&file, parallel);
            for i in 0..8 {
                reader.ask(&file, FileRange::new(i << 17, 1 << 17));
            }
            assert_eq!(reader.asked(), if parallel { 8 } else { 0 });
            reader.wait(reader.asked());
            assert_eq!(*reader.done.count(), reader.asked());
        }
    }
}
