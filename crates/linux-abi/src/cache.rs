//! The page cache of a file: its pages, and writing them back in pieces
//! (linux/mman.h, v6.5, for `cachestat`; linux/fs.h, v6.1, for `sync_file_range`).

use std::{
    io,
    mem::{offset_of, size_of},
    os::fd::{AsFd, AsRawFd, BorrowedFd},
};

use crate::{abi::AbiItem, check};

/// `struct cachestat_range`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct CachestatRange {
    off: u64,
    len: u64,
}

/// `struct cachestat`: numbers of pages of a range, by state.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cachestat {
    /// In the cache.
    pub nr_cache: u64,
    /// Of these, dirty.
    pub nr_dirty: u64,
    /// Of these, under writeback.
    pub nr_writeback: u64,
    /// Evicted, ever.
    pub nr_evicted: u64,
    /// Evicted a short while ago.
    pub nr_recently_evicted: u64,
}

const _: () = {
    assert!(size_of::<CachestatRange>() == 16);
    assert!(size_of::<Cachestat>() == 40);
    assert!(offset_of!(Cachestat, nr_recently_evicted) == 32);
};

/// Structures and numbers of this module, for `cargo xtask abi-check`.
pub const ABI: &[AbiItem] = &[
    AbiItem {
        header: "linux/mman.h",
        c_type: "struct cachestat_range",
        size: size_of::<CachestatRange>(),
        fields: &[
            ("off", offset_of!(CachestatRange, off)),
            ("len", offset_of!(CachestatRange, len)),
        ],
        requests: &[],
    },
    AbiItem {
        header: "linux/mman.h",
        c_type: "struct cachestat",
        size: size_of::<Cachestat>(),
        fields: &[
            ("nr_cache", offset_of!(Cachestat, nr_cache)),
            ("nr_dirty", offset_of!(Cachestat, nr_dirty)),
            ("nr_writeback", offset_of!(Cachestat, nr_writeback)),
            ("nr_evicted", offset_of!(Cachestat, nr_evicted)),
            (
                "nr_recently_evicted",
                offset_of!(Cachestat, nr_recently_evicted),
            ),
        ],
        requests: &[],
    },
    AbiItem {
        header: "linux/fs.h",
        c_type: "",
        size: 0,
        fields: &[],
        requests: &[
            ("SYNC_FILE_RANGE_WAIT_BEFORE", WAIT_BEFORE),
            ("SYNC_FILE_RANGE_WRITE", WRITE),
            ("SYNC_FILE_RANGE_WAIT_AFTER", WAIT_AFTER),
        ],
    },
];

/// Number of `cachestat(2)`: the same on every architecture that came to share the table (all but
/// Alpha).
const SYS_CACHESTAT: libc::c_long = 451;

/// Count the pages of a range that are in the cache. A `len` of 0 means up to the end.
///
/// # Errors
///
/// `ENOSYS` before Linux 6.5; `EPERM` since 6.16 for a file that the caller neither owns nor may
/// write; `EOPNOTSUPP` for hugetlbfs.
pub fn cachestat(fd: impl AsFd, off: u64, len: u64) -> io::Result<Cachestat> {
    let range = CachestatRange { off, len };
    let mut counts = Cachestat::default();
    // SAFETY: both structures have the kernel's layout and live for the call; the kernel reads the
    // first, writes the second, and takes no other pointer.
    let result = unsafe {
        libc::syscall(
            SYS_CACHESTAT,
            fd.as_fd().as_raw_fd(),
            &raw const range,
            &raw mut counts,
            0,
        )
    };
    check(result)?;
    Ok(counts)
}

/// Which pages of a range are in the cache and up to date, one `bool` for each page from the one
/// that holds `offset`. The call reads nothing in: it maps the file without access for its own
/// duration. Mapping a file counts as reading it, so use a descriptor with `O_NOATIME`.
///
/// # Errors
///
/// The errno of `mmap` or `mincore`. For a file that the caller may not write, the kernel reports
/// every page as present.
pub fn resident_pages(fd: impl AsFd, offset: u64, len: usize) -> io::Result<Vec<bool>> {
    let page = rustix::param::page_size();
    let start = offset - offset % page as u64;
    let len = len + (offset - start) as usize;
    if len == 0 {
        return Ok(Vec::new());
    }
    let mapping = Mapping::new(fd.as_fd(), start, len)?;
    let mut bytes = vec![0_u8; len.div_ceil(page)];
    // SAFETY: the mapping covers `len` bytes from its address, and the vector has one byte for each
    // page of them, which is what mincore writes.
    check(unsafe { libc::mincore(mapping.address, len, bytes.as_mut_ptr()) })?;
    Ok(bytes.iter().map(|byte| byte & 1 != 0).collect())
}

/// A mapping that cannot be accessed, unmapped when dropped.
struct Mapping {
    address: *mut libc::c_void,
    len: usize,
}

impl Mapping {
    fn new(fd: BorrowedFd<'_>, start: u64, len: usize) -> io::Result<Self> {
        let start = libc::off_t::try_from(start).map_err(|_| io::ErrorKind::InvalidInput)?;
        // SAFETY: a new mapping at an address that the kernel chooses touches no existing memory;
        // PROT_NONE means that no reference into it can ever be used.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_NONE,
                libc::MAP_SHARED,
                fd.as_raw_fd(),
                start,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { address, len })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping that `new` made; nothing refers into it.
        unsafe { libc::munmap(self.address, self.len) };
    }
}

const WAIT_BEFORE: u32 = libc::SYNC_FILE_RANGE_WAIT_BEFORE;
const WRITE: u32 = libc::SYNC_FILE_RANGE_WRITE;
const WAIT_AFTER: u32 = libc::SYNC_FILE_RANGE_WAIT_AFTER;

/// Start writing dirty pages of a range back, without waiting for them. A `len` of 0 means up to
/// the end. It makes nothing durable: metadata and device caches are not flushed.
///
/// # Errors
///
/// The kernel's errno.
pub fn start_writeback(fd: impl AsFd, offset: u64, len: u64) -> io::Result<()> {
    sync_file_range(fd.as_fd(), offset, len, WRITE)
}

/// Wait for the pages of a range that are being written back.
///
/// # Errors
///
/// The kernel's errno, including that of an earlier I/O error.
pub fn wait_writeback(fd: impl AsFd, offset: u64, len: u64) -> io::Result<()> {
    sync_file_range(fd.as_fd(), offset, len, WAIT_BEFORE)
}

/// Write dirty pages of a range back and wait for them, and for those already under writeback.
///
/// # Errors
///
/// The kernel's errno.
pub fn write_and_wait(fd: impl AsFd, offset: u64, len: u64) -> io::Result<()> {
    sync_file_range(fd.as_fd(), offset, len, WAIT_BEFORE | WRITE | WAIT_AFTER)
}

fn sync_file_range(fd: BorrowedFd<'_>, offset: u64, len: u64, flags: u32) -> io::Result<()> {
    let signed = |n: u64| i64::try_from(n).map_err(|_| io::ErrorKind::InvalidInput);
    // SAFETY: takes plain numbers and a descriptor that is borrowed for the call.
    check(unsafe { libc::sync_file_range(fd.as_raw_fd(), signed(offset)?, signed(len)?, flags) })
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn fresh_pages_are_resident_and_counted() {
        let page = rustix::param::page_size();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&vec![1; 5 * page]).unwrap();
        let pages = resident_pages(&file, page as u64, 3 * page).unwrap();
        assert_eq!(pages, [true; 3]);
        match cachestat(&file, 0, 0) {
            Ok(counts) => assert_eq!(counts.nr_cache, 5),
            Err(error) => assert_eq!(error.raw_os_error(), Some(libc::ENOSYS)),
        }
        write_and_wait(&file, 0, 0).unwrap();
        start_writeback(&file, 0, 0).unwrap();
        wait_writeback(&file, 0, 0).unwrap();
    }

    #[test]
    fn a_range_that_begins_inside_a_page_counts_that_page() {
        let page = rustix::param::page_size();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&vec![1; 2 * page]).unwrap();
        assert_eq!(resident_pages(&file, page as u64 - 1, 2).unwrap().len(), 2);
        assert!(resident_pages(&file, 0, 0).unwrap().is_empty());
    }
}
