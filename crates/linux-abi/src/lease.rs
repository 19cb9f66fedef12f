//! File leases (fcntl(2), F_SETLEASE): as a question, whether anybody else has this file open; and
//! held, so that nobody opens it for a while.

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

/// Take a write lease: it is granted only where `file` (open for writing) is the only open file
/// description of its inode (fs/locks.c, v6.12). Memory mappings, and requests that io_uring or the
/// kernel's AIO still work on, hold a file open, so with a lease no write by anybody else is under
/// way, and whoever opens the file waits until it is given back, or for
/// `/proc/sys/fs/lease-break-time` (45 s). It ends with the description. `false` where somebody else
/// has the file open.
///
/// # Errors
///
/// `EACCES` where the caller neither owns the file nor has `CAP_LEASE`, `EINVAL` where the file
/// system has no leases.
pub fn take(file: impl AsFd) -> io::Result<bool> {
    // Should somebody open the file, the holder of the lease gets a signal, which would end the
    // process if it were the default SIGIO. SIGURG is ignored by default.
    fcntl(&file, F_SETSIG, libc::SIGURG)?;
    match fcntl(&file, libc::F_SETLEASE, libc::F_WRLCK) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whether somebody waits for the lease on `file`, or it is gone already.
///
/// # Errors
///
/// None that is known.
pub fn is_wanted(file: impl AsFd) -> io::Result<bool> {
    // One that is being broken is reported as what it will become.
    fcntl(file, libc::F_GETLEASE, 0).map(|kind| kind != libc::F_WRLCK)
}

/// Give the lease on `file` back: who waits goes on.
///
/// # Errors
///
/// `EAGAIN` where there is none any more.
pub fn give_back(file: impl AsFd) -> io::Result<()> {
    fcntl(file, libc::F_SETLEASE, libc::F_UNLCK).map(drop)
}

/// Whether `file` (open for writing) is the only open file description of its inode at this moment:
/// a lease is taken and given back at once.
///
/// # Errors
///
/// Those of [`take`].
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
