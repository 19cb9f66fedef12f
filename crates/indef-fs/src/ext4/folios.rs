//! Whether files of a file system are cached in large folios.
//!
//! The kernel does not say. So a file without blocks is read front to back, which costs no I/O, and is dropped from
//! the cache page by page: a page alone goes, a part of a larger folio stays.

use std::{fs::File, io, os::unix::fs::FileExt};

use rustix::fs::{Advice, fadvise};
use units::{Bytes, FileRange};

use crate::cache::{READ_PIECE, cached_pages, drop_clean, page};

/// The kernel begins with single pages, and makes folios larger with each read-ahead.
const LEN: Bytes = Bytes::mib(2);

/// Whether the kernel caches this file, which is empty and nobody else's, in folios of several pages. `None` where it does
/// not count cached pages: before Linux 6.5, or where the call is filtered, as service managers that are older than the
/// kernel do. The file is empty again afterwards.
pub(super) fn are_large(file: &File) -> io::Result<Option<bool>> {
    if cached_pages(file, FileRange::new(0, page().get())).is_none() {
        return Ok(None);
    }
    file.set_len(LEN.get())?;
    let _ = fadvise(file, 0, None, Advice::Sequential);
    let mut buffer = vec![0; READ_PIECE.get() as usize];
    for at in (0..LEN.get()).step_by(buffer.len()) {
        file.read_exact_at(&mut buffer, at)?;
    }
    let large = !are_single(file, FileRange::new(0, LEN.get()));
    file.set_len(0)?;
    Ok(Some(large))
}

/// Drop a part of a file, whole pages, from the cache page by page. Returns whether each cached page went.
fn are_single(file: &File, range: FileRange) -> bool {
    // The last folios of a reader are the largest.
    (0..range.len.div_ceil(page())).rev().all(|number| {
        let alone = FileRange {
            start: range.start + page() * number,
            len: page(),
        };
        let is_gone = || cached_pages(file, alone).is_none_or(|pages| pages == 0);
        is_gone() || {
            drop_clean(file, alone);
            is_gone()
        }
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use rustix::fs::{MemfdFlags, memfd_create};
    use scratch_fs::{ScratchFs, require};

    use super::*;
    use crate::cache::read_ahead;

    fn file(scratch: &ScratchFs) -> File {
        let mut options = File::options();
        options.read(true).write(true).create_new(true);
        options.open(scratch.path().join("file")).unwrap()
    }

    #[test]
    fn loop_large_folios_are_seen() {
        let built = ScratchFs::builder("ext4", Bytes::mib(64)).build();
        let Some(scratch) = require(built) else {
            return;
        };
        let file = file(&scratch);
        let fs = crate::detect(&file, scratch.path()).unwrap();
        // Large folios came to ext4 in 6.16; kernels without large pages have none (linux/pagemap.h,
        // `mapping_set_folio_order_range`, v6.18).
        let has_large_pages = Path::new("/sys/kernel/mm/transparent_hugepage").exists();
        let expected = fs.kernel_at_least(6, 16) && has_large_pages;
        assert_eq!(are_large(&file).unwrap().unwrap_or(expected), expected);
        assert_eq!(file.metadata().unwrap().len(), 0);
    }

    /// The kernel counts no pages of such a file.
    #[test]
    fn where_pages_are_not_counted_nothing_is_told() {
        let flags = MemfdFlags::HUGETLB | MemfdFlags::CLOEXEC;
        let Ok(file) = memfd_create("uncounted", flags) else {
            return scratch_fs::skip("no files of huge pages");
        };
        assert_eq!(are_large(&File::from(file)).unwrap(), None);
    }

    /// All moves depend on it.
    #[test]
    fn loop_what_is_read_ahead_of_moves_is_single_pages() {
        let built = ScratchFs::builder("ext4", Bytes::mib(64)).build();
        let Some(scratch) = require(built) else {
            return;
        };
        let file = file(&scratch);
        let len = 4 * READ_PIECE.get();
        file.write_all_at(&vec![1; len as usize], 0).unwrap();
        file.sync_all().unwrap();
        let whole = FileRange::new(0, len);
        drop_clean(&file, whole);
        fadvise(&file, 0, None, Advice::Random).unwrap();
        read_ahead(&file, whole);
        file.read_exact_at(&mut vec![0; len as usize], 0).unwrap();
        let cached = cached_pages(&file, whole);
        assert!(cached.is_none_or(|pages| pages == len / page().get()));
        assert!(are_single(&file, whole));
    }
}
