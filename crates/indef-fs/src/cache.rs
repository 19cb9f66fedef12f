//! Leaving the page cache as it was found: cached pages stay cached, all others are dropped.
//!
//! An engine takes a [`CacheRecord`] of a range before it touches it, and restores it afterwards.
//! Ranges are windows of a few MiB, so a record is small whatever the file's size. Dropping needs
//! clean pages, so it comes after writeback, which takes time: a [`Settler`] keeps finished ranges
//! until theirs is over, so that nobody waits for it, and the next file can go on meanwhile.
//!
//! Pages are counted with `cachestat` (Linux 6.5) and, where only a part is cached or the call is
//! missing, told apart with `mincore`. Where neither may be asked, everything counts as cached: a
//! cache that is too full harms nobody who relied on it.

use std::{
    collections::{BTreeMap, VecDeque},
    fs::File,
    num::NonZeroU64,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use linux_abi::cache::{cachestat, resident_pages, wait_writeback};
use rustix::{
    fs::{Advice, fadvise},
    param::page_size,
};
use units::{Bytes, FileOffset, FileRange};

use crate::{FsError, Target};

/// The cached part of a range.
#[derive(Clone, Debug, PartialEq, Eq)]
enum CachedPages {
    Nothing,
    Everything,
    /// One for each page.
    Pages(Vec<bool>),
}

/// Which pages of a range were in the page cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheRecord {
    /// Whole pages.
    range: FileRange,
    found: CachedPages,
}

/// One call reads at most this much ahead: `force_page_cache_ra` cuts off all that exceeds the
/// larger of the device's read-ahead and request size (mm/readahead.c, v6.1).
pub(crate) const READ_PIECE: Bytes = Bytes::kib(128);

/// The size of a page.
pub(crate) fn page() -> Bytes {
    Bytes(page_size() as u64)
}

impl CacheRecord {
    /// Look at `range`, grown outward to whole pages. Reads nothing in.
    #[must_use]
    pub fn of(target: &Target, range: FileRange) -> Self {
        Self::of_file(&target.file, target.noatime, range)
    }

    /// The same for a file of which `noatime` tells whether reads leave its access time alone.
    #[must_use]
    pub fn of_file(file: &File, noatime: bool, range: FileRange) -> Self {
        let range = range.align_outward(page());
        let pages = range.len.div_ceil(page());
        let counted = cached_pages(file, range);
        let found = match counted {
            Some(0) => CachedPages::Nothing,
            Some(count) if count >= pages => CachedPages::Everything,
            // Mapping a file touches its access time, unless O_NOATIME was granted.
            _ if !noatime => CachedPages::Everything,
            _ => match resident_pages(file, range.start.get(), range.len.get() as usize) {
                Ok(pages) if pages.iter().any(|cached| *cached) => CachedPages::Pages(pages),
                Ok(_) => CachedPages::Nothing,
                Err(_) => CachedPages::Everything,
            },
        };
        Self { range, found }
    }

    /// The range that it is about, in whole pages.
    #[must_use]
    pub fn range(&self) -> FileRange {
        self.range
    }

    /// Whether anything was cached.
    #[must_use]
    pub fn any(&self) -> bool {
        self.found != CachedPages::Nothing
    }

    /// Drop the pages that were not cached, as far as they are clean, and read those back that were
    /// and are not any more. A page that is still being read in or written back is not clean: wait
    /// before.
    pub fn restore(&self, file: &File) {
        match &self.found {
            CachedPages::Nothing => drop_clean(file, self.range),
            CachedPages::Everything => self.read_back(file, self.range),
            CachedPages::Pages(pages) => {
                let page = page().get();
                let mut at = self.range.start.get();
                for run in pages.chunk_by(|a, b| a == b) {
                    let range = FileRange::new(at, run.len() as u64 * page);
                    at += range.len.get();
                    if run[0] {
                        self.read_back(file, range);
                    } else {
                        drop_clean(file, range);
                    }
                }
            }
        }
    }

    fn read_back(&self, file: &File, range: FileRange) {
        let pages = range.len.div_ceil(page());
        if cached_pages(file, range).is_none_or(|cached| cached < pages) {
            read_ahead(file, range);
        }
    }
}

/// How many pages of the range are cached; `None` where the kernel does not say.
pub(crate) fn cached_pages(file: &File, range: FileRange) -> Option<u64> {
    // A length of 0 would mean up to the end of the file.
    if range.is_empty() {
        return Some(0);
    }
    cachestat(file, range.start.get(), range.len.get())
        .ok()
        .map(|counts| counts.nr_cache)
}

/// Drop the clean, unmapped pages that lie in the range as a whole.
pub(crate) fn drop_clean(file: &File, range: FileRange) {
    // Advice that the kernel does not take costs nothing but the cache.
    if let Some(len) = NonZeroU64::new(range.len.get()) {
        let _ = fadvise(file, range.start.get(), Some(len), Advice::DontNeed);
    }
}

/// Begin to read the range into the cache, in single pages.
pub(crate) fn read_ahead(file: &File, range: FileRange) {
    let mut at = range.start;
    while at < range.end() {
        let len = READ_PIECE.min(range.end() - at);
        if let Some(len) = NonZeroU64::new(len.get()) {
            let _ = fadvise(file, at.get(), Some(len), Advice::WillNeed);
        }
        at = at + len;
    }
}

/// A range that was moved: written back in the background, and then to be restored.
#[derive(Debug)]
struct Pending {
    file: Arc<File>,
    path: PathBuf,
    record: CacheRecord,
}

impl Pending {
    fn settle(&self) -> Result<(), FsError> {
        settle(&self.file, &self.record).map_err(|source| FsError {
            path: self.path.clone(),
            operation: "write back moved data",
            offset: Some(self.record.range.start),
            source,
        })
    }
}

/// Wait until the range is written back, and restore the cache.
///
/// # Errors
///
/// Writing back failed. Then what is cached stays: it may be all that there is.
fn settle(file: &File, record: &CacheRecord) -> std::io::Result<()> {
    let FileRange {
        start: FileOffset(start),
        len: Bytes(len),
    } = record.range;
    let written = if len > 0 {
        wait_writeback(file, start, len)
    } else {
        Ok(())
    };
    written.inspect(|()| record.restore(file))
}

/// Ranges whose writeback is under way, of any number of files and threads.
#[derive(Debug)]
pub struct Settler {
    settling: Mutex<Settling>,
    /// At most this many bytes wait.
    limit: Bytes,
}

#[derive(Debug, Default)]
struct Settling {
    pending: VecDeque<Pending>,
    bytes: Bytes,
    /// The first failure of each file.
    failed: BTreeMap<PathBuf, FsError>,
}

/// Each range that waits holds a descriptor; more are not needed to hide the latency.
const MAX_PENDING: usize = 64;

impl Settler {
    /// A settler for at most `limit` bytes at a time.
    #[must_use]
    pub fn new(limit: Bytes) -> Self {
        Self {
            settling: Mutex::default(),
            limit,
        }
    }

    /// Take over a range that was moved and whose writeback was started.
    pub fn push(&self, file: &Arc<File>, path: PathBuf, record: CacheRecord) {
        let mut settling = self.lock();
        settling.bytes += record.range.len;
        settling.pending.push_back(Pending {
            file: Arc::clone(file),
            path,
            record,
        });
        drop(settling);
        self.settle_down_to(self.limit, MAX_PENDING);
    }

    /// Wait for everything. Returns the first error of each file since the last call.
    pub fn finish(&self) -> Vec<FsError> {
        self.settle_down_to(Bytes::ZERO, 0);
        std::mem::take(&mut self.lock().failed)
            .into_values()
            .collect()
    }

    /// Whether something of this file could not be written. Of all that wait for data of one open file, the kernel tells only
    /// one of that: if it told this settler, others have to ask.
    pub(crate) fn has_failed(&self, path: &Path) -> bool {
        self.lock().failed.contains_key(path)
    }

    /// Waits without holding the lock, so that other threads can hand in meanwhile.
    fn settle_down_to(&self, limit: Bytes, count: usize) {
        loop {
            let mut settling = self.lock();
            if settling.bytes <= limit && settling.pending.len() <= count {
                return;
            }
            let Some(oldest) = settling.pending.pop_front() else {
                return;
            };
            settling.bytes = settling.bytes.saturating_sub(oldest.record.range.len);
            drop(settling);
            if let Err(error) = oldest.settle() {
                tracing::warn!(%error, "moved data is not on the device");
                let path = error.path.clone();
                self.lock().failed.entry(path).or_insert(error);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Settling> {
        self.settling.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Settler {
    fn drop(&mut self) {
        self.settle_down_to(Bytes::ZERO, 0);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn target(pages: usize) -> (tempfile::NamedTempFile, Target) {
        // tmpfs keeps its pages: a directory on a real file system is needed.
        let mut file = tempfile::Builder::new().tempfile_in(".").unwrap();
        file.write_all(&vec![1; pages * page_size()]).unwrap();
        file.as_file().sync_all().unwrap();
        let target = Target::open(file.path()).unwrap();
        (file, target)
    }

    fn read(target: &Target, range: FileRange) {
        use std::os::unix::fs::FileExt;
        read_ahead(&target.file, range);
        let mut bytes = vec![0; range.len.get() as usize];
        target
            .file
            .read_exact_at(&mut bytes, range.start.get())
            .unwrap();
    }

    fn resident(target: &Target, pages: usize) -> Vec<bool> {
        resident_pages(&target.file, 0, pages * page_size()).unwrap()
    }

    #[test]
    fn what_was_not_cached_is_dropped_again() {
        let (_keep, target) = target(8);
        let range = FileRange::new(0, 8 * page().get());
        drop_clean(&target.file, range);
        let record = CacheRecord::of(&target, range);
        assert!(!record.any());
        read(&target, range);
        record.restore(&target.file);
        assert_eq!(resident(&target, 8), [false; 8]);
    }

    #[test]
    fn of_a_partly_cached_range_each_page_is_as_before() {
        scratch_fs::undisturbed(partly_cached_range_stays);
    }

    fn partly_cached_range_stays() {
        use std::os::unix::fs::FileExt;
        let (_keep, target) = target(8);
        let range = FileRange::new(0, 8 * page().get());
        drop_clean(&target.file, range);
        fadvise(&target.file, 0, None, Advice::Random).unwrap();
        for at in [2, 3, 6] {
            target.file.read_at(&mut [0], at * page().get()).unwrap();
        }
        let before = resident(&target, 8);
        let record = CacheRecord::of(&target, range);
        assert!(record.any());
        drop_clean(&target.file, range);
        read(&target, FileRange::new(0, 4 * page().get()));
        record.restore(&target.file);
        // Pages that are read back come some time later.
        let mut now = resident(&target, 8);
        for _ in 0..1000 {
            if now == before {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
            now = resident(&target, 8);
        }
        assert_eq!(now, before);
    }

    #[test]
    fn a_settler_restores_what_it_was_given() {
        let (_keep, target) = target(8);
        let range = FileRange::new(0, 8 * page().get());
        drop_clean(&target.file, range);
        let record = CacheRecord::of(&target, range);
        read(&target, range);
        let settler = Settler::new(Bytes::mib(1));
        let file = Arc::new(target.file.try_clone().unwrap());
        settler.push(&file, target.path.clone(), record);
        assert!(settler.finish().is_empty());
        assert_eq!(resident(&target, 8), [false; 8]);
    }

    #[test]
    fn each_file_that_cannot_be_written_back_is_told_once() {
        let (_keep, target) = target(8);
        let settler = Settler::new(Bytes::mib(1));
        // No file that could be written back.
        let file = Arc::new(File::open("/dev/null").unwrap());
        for path in ["b", "a", "b"] {
            let record = CacheRecord::of(&target, FileRange::new(0, page().get()));
            settler.push(&file, path.into(), record);
        }
        settler.settle_down_to(Bytes::ZERO, 0);
        let is_told = ["a", "c"].map(|path| settler.has_failed(Path::new(path)));
        assert_eq!(is_told, [true, false]);
        let failed = settler.finish();
        let paths: Vec<_> = failed.iter().map(|error| error.path.as_path()).collect();
        assert_eq!(paths, [Path::new("a"), Path::new("b")]);
        assert!(settler.finish().is_empty());
    }
}
