//! File leases, used as a question: does anybody else have this file open? (fcntl(2), F_SETLEASE)

use std::{
    io,
    os::fd::{AsFd, AsRawFd},
};

/// `F_SETSIG` (asm-generic/fcntl.h, v6.1; the same on every architecture).
const F_SETSIG: i32 = 10;

fn fcntl(fd: impl AsFd, command: i32, argument: i32) -> io::Result<()> {
    // SAFETY: the commands used here take an integer and no pointer.
    match unsafe { libc::fcntl(fd.as_fd().as_raw_fd(), command, argument) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Whether `file` (open for writing) is the only open file description of its inode at this moment.
/// Memory mappings, and requests that io_uring or the kernel's AIO still work on, hold a file open,
/// so `true` also means that no write by anybody else is under way.
///
/// A write lease is only granted to a sole opener (fs/locks.c, v6.12). It is given back at once;
/// whoever opens the file in between waits for some microseconds.
///
/// # Errors
///
/// `EACCES` where the caller neither owns the file nor has `CAP_LEASE`, `EINVAL` where the file
/// system has no leases.
pub fn is_sole_opener(file: impl AsFd) -> io::Result<bool> {
    // Should somebody open the file just now, the holder of the lease gets a signal, which would
    // end the process if it were the default SIGIO. SIGURG is ignored by default.
    fcntl(&file, F_SETSIG, libc::SIGURG)?;
    match fcntl(&file, libc::F_SETLEASE, libc::F_WRLCK) {
        Ok(()) => {
            fcntl(&file, libc::F_SETLEASE, libc::F_UNLCK)?;
            Ok(true)
        }
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;

    use super::*;

    #[test]
    fn another_opener_is_noticed_and_so_is_its_end() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let (file, path) = file.into_parts();
        match is_sole_opener(&file) {
            Ok(sole) => assert!(sole),
            Err(error) => {
                eprintln!("skipped: no leases on the temporary directory: {error}");
                return;
            }
        }
        let reader = OpenOptions::new().read(true).open(&path).unwrap();
        assert!(!is_sole_opener(&file).unwrap());
        drop(reader);
        assert!(is_sole_opener(&file).unwrap());
        let duplicate = file.try_clone().unwrap();
        assert!(is_sole_opener(&duplicate).unwrap(), "the same description");
    }
}
