//! The pages of a file in the page cache, for tests that nothing but indef changes them.
//!
//! The kernel takes pages back when it likes: under memory pressure, and on hosts that reclaim
//! what nobody uses (DAMON, mm/damon/paddr.c, v6.18) also seconds after they were read. Such a page
//! leaves a shadow entry (mm/workingset.c), which cachestat(2) counts; a page that was dropped with
//! its blocks leaves none.

use std::{fs::File, io, thread::sleep, time::Duration};

use linux_abi::cache::{cachestat, resident_pages};
use rustix::{
    fs::{Advice, fadvise},
    param::page_size,
};

/// Changes of the cached pages of a file. Pages by number, from the start of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CacheChange {
    /// Were cached, are not, and were not reclaimed.
    pub dropped: Vec<usize>,
    /// Were not cached, and are.
    pub added: Vec<usize>,
}

/// Which pages of the file are cached.
///
/// # Errors
///
/// Those of `fstat` and of [`resident_pages`].
pub fn cached_pages(file: &File) -> io::Result<Vec<bool>> {
    resident_pages(file, 0, file.metadata()?.len() as usize)
}

/// Which pages of the file are cached after `read`, which is called again on an empty cache while
/// the kernel takes away what it read.
///
/// # Errors
///
/// The errors of `read` and of the calls on the page cache.
pub fn cached_pages_after(
    file: &File,
    mut read: impl FnMut() -> io::Result<()>,
) -> io::Result<Vec<bool>> {
    loop {
        fadvise(file, 0, None, Advice::DontNeed)?;
        read()?;
        let pages = cached_pages(file)?;
        if !(0..pages.len()).any(|page| !pages[page] && is_reclaimed(file, page)) {
            return Ok(pages);
        }
    }
}

/// Compare the cached pages of the file with those of before, once the pages that are read back are there: whoever asks for
/// them does not wait, and a busy disk takes its time. Waits as long as it goes on.
///
/// Before Linux 6.5 a reclaimed page counts as dropped.
///
/// # Errors
///
/// Those of `fstat` and of [`resident_pages`].
pub fn settled_cache_change(file: &File, before: &[bool]) -> io::Result<CacheChange> {
    const STEP: Duration = Duration::from_millis(10);
    /// Steps in which nothing comes any more.
    const STILL: usize = 200;
    let mut change = cache_change(file, before)?;
    let mut still = 0;
    while !change.dropped.is_empty() && still < STILL {
        sleep(STEP);
        let now = cache_change(file, before)?;
        still = match now.dropped.len() < change.dropped.len() {
            true => 0,
            false => still + 1,
        };
        change = now;
    }
    Ok(change)
}

fn cache_change(file: &File, before: &[bool]) -> io::Result<CacheChange> {
    let now = cached_pages(file)?;
    let mut change = CacheChange::default();
    for (page, cached) in now.iter().enumerate() {
        match (before[page], *cached) {
            (true, false) if !is_reclaimed(file, page) => change.dropped.push(page),
            (false, true) => change.added.push(page),
            _ => {}
        }
    }
    Ok(change)
}

fn is_reclaimed(file: &File, page: usize) -> bool {
    let size = page_size() as u64;
    cachestat(file, page as u64 * size, size).is_ok_and(|counts| counts.nr_evicted > 0)
}

#[cfg(test)]
mod tests {
    use std::{fs::OpenOptions, os::unix::fs::FileExt};

    use super::*;

    #[test]
    fn drops_and_reads_are_told() {
        crate::undisturbed(tell_drops_and_reads);
    }

    fn tell_drops_and_reads() {
        let path = std::env::temp_dir().join(format!("cache-change-{}", std::process::id()));
        let file = OpenOptions::new()
            .create_new(true)
            .read(true)
            .write(true)
            .open(&path)
            .unwrap();
        std::fs::remove_file(&path).unwrap();
        let mut bytes = vec![1; 64 * page_size()];
        file.write_all_at(&bytes, 0).unwrap();
        file.sync_all().unwrap();
        let before = cached_pages_after(&file, || file.read_exact_at(&mut bytes, 0)).unwrap();
        assert_eq!(before, [true; 64]);
        fadvise(&file, 0, None, Advice::DontNeed).unwrap();
        if cached_pages(&file).unwrap() == before {
            return crate::skip("temporary files stay in memory");
        }
        let CacheChange { dropped, added } = cache_change(&file, &before).unwrap();
        assert_eq!((dropped, added), ((0..64).collect(), vec![]));

        file.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(
            cache_change(&file, &before).unwrap(),
            CacheChange::default()
        );
        let added = cache_change(&file, &[false; 64]).unwrap().added;
        assert!(!added.is_empty());
    }
}
