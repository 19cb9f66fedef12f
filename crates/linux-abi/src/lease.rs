//! File leases (fcntl(2), F_SETLEASE): taken for a moment, a lease shows whether anybody else has the
//! file open; held, it keeps others from opening the file for a while.

use std::{
    io,
    os::fd::{AsFd, AsRawFd},
};

/// `F_SETSIG` (asm-generic/fcntl.h, v6.1; the same on every architecture).
const F_SETSIG: i32 = 10;

fn fcntl(fd: impl AsFd, command: i32, argument: i32) -> io::Result<i32> {
    // SAFETY: the commands used here take an integer and no pointer.
    match unsafe { libc::fcntl(fd.as_fd().as_raw_fd(), command, argument) } {
        -1 => Err(io::Error::last_os_error()),
        result => Ok(result),
    }
}

/// Take a write lease. The kernel grants it only if `file` (open for writing) is the only open file
/// description of its inode (fs/locks.c, v6.12). Memory mappings, and requests that io_uring or the
/// kernel's AIO still work on, hold a file open; so with a lease, nobody else has a write under way.
/// An open of the file waits until the lease is given back, or for `/proc/sys/fs/lease-break-time`
/// (45 s). The lease ends with the description. `false` means that somebody else has the file open.
///
/// # Errors
///
/// `EACCES` where the caller neither owns the file nor has `CAP_LEASE`, `EINVAL` where the file
/// system has no leases.
pub fn take(file: impl AsFd) -> io::Result<bool> {
    // If somebody opens the file, the holder of the lease gets a signal. The default, SIGIO, would
    // end the process; SIGURG is ignored by default.
    fcntl(&file, F_SETSIG, libc::SIGURG)?;
    match fcntl(&file, libc::F_SETLEASE, libc::F_WRLCK) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whether somebody waits for the lease on `file`, or the lease is gone already.
///
/// # Errors
///
/// No error is known.
pub fn is_wanted(file: impl AsFd) -> io::Result<bool> {
    // The kernel reports a lease that is being broken as the type that it will become.
    fcntl(file, libc::F_GETLEASE, 0).map(|kind| kind != libc::F_WRLCK)
}

/// Give the lease on `file` back; waiting opens then go on.
///
/// # Errors
///
/// `EAGAIN` if there is no lease any more.
pub fn give_back(file: impl AsFd) -> io::Result<()> {
    fcntl(file, libc::F_SETLEASE, libc::F_UNLCK).map(drop)
}

/// Whether `file` (open for writing) is the only open file description of its inode at this moment.
/// Takes a lease and gives it back at once.
///
/// # Errors
///
/// As for [`take`].
pub fn is_sole_opener(file: impl AsFd) -> io::Result<bool> {
    let sole = take(&file)?;
    if sole {
        give_back(&file)?;
    }
    Ok(sole)
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

    #[test]
    fn who_opens_a_leased_file_waits_until_it_is_given_back() {
        let (file, path) = tempfile::NamedTempFile::new().unwrap().into_parts();
        match take(&file) {
            Ok(taken) => assert!(taken),
            Err(error) => {
                eprintln!("skipped: no leases on the temporary directory: {error}");
                return;
            }
        }
        assert!(!is_wanted(&file).unwrap());
        std::thread::scope(|scope| {
            let opener = scope.spawn(|| OpenOptions::new().read(true).open(&path).unwrap());
            while !is_wanted(&file).unwrap() {
                std::thread::yield_now();
            }
            assert!(!opener.is_finished());
            give_back(&file).unwrap();
            opener.join().unwrap();
        });
    }
}
