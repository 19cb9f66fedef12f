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

/// Whether the kernel caches this file, which is empty and nobody else's, in folios of several pages. `false` before
/// Linux 6.5, which does not count cached pages: ext4 has had no large folios then. The file is empty again afterwards.
pub(super) fn are_large(file: &File) -> io::Result<bool> {
    file.set_len(LEN.get())?;
    let _ = fadvise(file, 0, None, Advice::Sequential);
    let mut buffer = vec![0; READ_PIECE.get() as usize];
    for at in (0..LEN.get()).step_by(buffer.len()) {
        file.read_exact_at(&mut buffer, at)?;
    }
    let large = !are_single(file, FileRange::new(0, LEN.get()));
    file.set_len(0)?;
    Ok(large)
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
        // Large folios came to ext4 in 6.16.
        assert_eq!(are_large(&file).unwrap(), fs.kernel_at_least(6, 16));
        assert_eq!(file.metadata().unwrap().len(), 0);
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
