//! Who is at the other end of a local socket: `SO_PEERCRED` (unix(7); linux/socket.h, v6.1).
//!
//! The kernel's answer has the number of a process, too, which is 0 for one of another PID namespace; so the structure is
//! filled here, where that is a value as any other.

use std::{
    io,
    mem::size_of,
    os::fd::{AsFd, AsRawFd},
};

use crate::check;

/// The user id that the other end had when it connected or, of a socket that was connected to, when it began to listen;
/// `u32::MAX` for a socket that is no local one.
///
/// # Errors
///
/// `ENOTSOCK`: it is no socket.
pub fn user(socket: impl AsFd) -> io::Result<u32> {
    let mut peer = libc::ucred {
        pid: 0,
        uid: u32::MAX,
        gid: u32::MAX,
    };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes to `peer`, of which all values are valid, and their number to `len`.
    check(unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &raw mut len,
        )
    })?;
    Ok(peer.uid)
}

#[cfg(test)]
mod tests {
    use std::{
        fs::File,
        net::{TcpListener, TcpStream},
        os::unix::net::UnixStream,
    };

    use super::*;

    #[test]
    fn a_local_socket_tells_who_is_there() {
        let (one, _other) = UnixStream::pair().unwrap();
        assert_eq!(user(&one).unwrap(), rustix::process::geteuid().as_raw());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let remote = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        assert_eq!(user(&remote).unwrap(), u32::MAX);
        let file = File::open("/dev/null").unwrap();
        let error = user(&file).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENOTSOCK));
    }
}
