//! A shared file mapping, as applications have it (`mmap`, sys/mman.h), for tests with mapped files.

use std::{
    io,
    os::fd::{AsFd, AsRawFd},
    sync::atomic::{AtomicU8, Ordering},
};

use crate::check;

/// The first bytes of a file, mapped for reading and writing, accessed a byte at a time with
/// atomics, so that others may change them at the same time.
///
/// If the file is cut shorter than the mapping, an access past its end is a SIGBUS, as in any program.
#[derive(Debug)]
pub struct SharedBytes {
    address: *mut libc::c_void,
    len: usize,
}

impl SharedBytes {
    /// Map `len` bytes from the beginning of a file that is open for reading and writing.
    ///
    /// # Errors
    ///
    /// The errno of `mmap`.
    pub fn map(file: impl AsFd, len: usize) -> io::Result<Self> {
        // SAFETY: a new mapping at an address that the kernel chooses touches no existing memory.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_fd().as_raw_fd(),
                0,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let map = Self { address, len };
        // A process that this one forks would keep the file in use.
        map.advise(libc::MADV_DONTFORK)?;
        Ok(map)
    }

    /// Announce random access (`MADV_RANDOM`): the kernel then reads no pages ahead.
    ///
    /// # Errors
    ///
    /// The errno of `madvise`.
    pub fn expect_random(&self) -> io::Result<()> {
        self.advise(libc::MADV_RANDOM)
    }

    /// Announce sequential access (`MADV_SEQUENTIAL`): the kernel then reads further ahead.
    ///
    /// # Errors
    ///
    /// The errno of `madvise`.
    pub fn expect_sequential(&self) -> io::Result<()> {
        self.advise(libc::MADV_SEQUENTIAL)
    }

    /// Have the kernel reclaim the pages, as if memory were short (`MADV_PAGEOUT`, Linux 5.4): those that were accessed through
    /// this mapping, and that it can do without.
    ///
    /// # Errors
    ///
    /// The errno of `madvise`.
    pub fn page_out(&self) -> io::Result<()> {
        self.advise(libc::MADV_PAGEOUT)
    }

    /// Give a piece of advice that changes no memory.
    fn advise(&self, advice: libc::c_int) -> io::Result<()> {
        // SAFETY: the range is that of our mapping, and the advice changes no memory.
        check(unsafe { libc::madvise(self.address, self.len, advice) })
    }

    /// The byte at `at`.
    ///
    /// # Panics
    ///
    /// If `at` is past the end of the mapping.
    #[must_use]
    pub fn load(&self, at: usize) -> u8 {
        self.byte(at).load(Ordering::Relaxed)
    }

    /// Set the byte at `at`.
    ///
    /// # Panics
    ///
    /// If `at` is past the end of the mapping.
    pub fn store(&self, at: usize, value: u8) {
        self.byte(at).store(value, Ordering::Relaxed);
    }

    fn byte(&self, at: usize) -> &AtomicU8 {
        assert!(at < self.len, "{at} is past the mapping");
        let byte = self.address.cast::<u8>().wrapping_add(at);
        // SAFETY: inside of the mapping, which lives as long as `self` and is only ever accessed
        // through atomics; a byte has no alignment.
        unsafe { AtomicU8::from_ptr(byte) }
    }
}

impl Drop for SharedBytes {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping that `map` made; references into it borrow `self`.
        unsafe { libc::munmap(self.address, self.len) };
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn what_is_stored_is_in_the_file() {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(b"abc", 0).unwrap();
        let map = SharedBytes::map(&file, 3).unwrap();
        assert_eq!(map.load(1), b'b');
        map.store(1, b'x');
        let mut bytes = [0; 3];
        file.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(&bytes, b"axc");
    }
}
