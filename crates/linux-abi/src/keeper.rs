//! A process that keeps files open beyond the end of ours: however ours ends, it closes them only when everything that
//! changed on their file systems before is durable.
//!
//! It is a child that was forked and runs nothing but [`keep_until_the_end`]. Files come to it over a socket
//! (`SCM_RIGHTS`, unix(7)). When we say that a file is not needed any more, it closes it. When we end without that, by
//! `SIGKILL` say, the socket ends; then it changes each of its files a little, waits until that is durable, and with it
//! all that was changed before, and ends as well. It takes no signals, and is in no group with us. Who kills all
//! processes of a control group at once kills it, too.

use std::{
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    ptr::null_mut,
    sync::{Arc, Mutex, PoisonError},
};

use rustix::{
    fs::{Mode, fchmod, fsync},
    io::Errno,
    net::{
        AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
        SendAncillaryMessage, SendFlags, Shutdown, SocketFlags, SocketType, recvmsg, sendmsg,
        shutdown, socketpair,
    },
    process::{Resource, getrlimit},
};

use crate::check;

/// Files at the same time: fewer than a process may usually have open. Where it may have fewer, it keeps as many as it may.
pub const PLACES: usize = 256;
/// Room for one descriptor beside a message.
const ROOM: usize = rustix::cmsg_space!(ScmRights(1));

/// The process.
#[derive(Debug)]
pub struct Keeper {
    socket: OwnedFd,
    child: libc::pid_t,
    /// Places for which it has descriptors: one that it could not have would be lost without a word (unix(7)).
    places: usize,
    /// Places that are taken.
    taken: Mutex<[bool; PLACES]>,
}

/// A file that is kept, until this is dropped.
#[derive(Debug)]
pub struct Kept {
    keeper: Arc<Keeper>,
    place: u8,
}

impl Keeper {
    /// Start the process.
    ///
    /// # Errors
    ///
    /// The kernel's error: there are too many processes, say.
    pub fn start() -> io::Result<Self> {
        let (kind, flags) = (SocketType::SEQPACKET, SocketFlags::CLOEXEC);
        let (ours, theirs) = socketpair(AddressFamily::UNIX, kind, flags, None)?;
        // It has the same limit from us, and the socket beside the files.
        let descriptors = getrlimit(Resource::Nofile).current;
        let most = descriptors.and_then(|most| usize::try_from(most.saturating_sub(1)).ok());
        // No signal may reach the child before it is on its own.
        let before = block_signals()?;
        // SAFETY: the child of a process with several threads may do what a signal handler may: it makes system calls
        // only, on memory of its own stack, and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            keep_until_the_end(theirs.as_fd());
            // SAFETY: ends the process at once; nothing of the parent's is run.
            unsafe { libc::_exit(0) };
        }
        let failed = io::Error::last_os_error();
        // SAFETY: the set is the one that was filled before, and outlives the call.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, null_mut()) };
        match child {
            -1 => Err(failed),
            child => Ok(Self {
                socket: ours,
                child,
                places: most.map_or(PLACES, |most| most.min(PLACES)),
                taken: Mutex::new([false; PLACES]),
            }),
        }
    }

    /// Keep a file.
    ///
    /// # Errors
    ///
    /// `EMFILE` where it keeps as many files as it can already; `EPIPE` where the process is gone.
    pub fn keep(self: &Arc<Self>, file: impl AsFd) -> io::Result<Kept> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(place) = taken[..self.places].iter().position(|taken| !taken) else {
            return Err(Errno::MFILE.into());
        };
        self.send(place as u8, Some(file.as_fd()))?;
        taken[place] = true;
        Ok(Kept {
            keeper: Arc::clone(self),
            place: place as u8,
        })
    }

    /// Tell the process to keep a file at a place, or nothing any more.
    fn send(&self, place: u8, file: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let files = [file.unwrap_or(self.socket.as_fd())];
        let mut room = [MaybeUninit::uninit(); ROOM];
        let mut beside = SendAncillaryBuffer::new(&mut room);
        if file.is_some() {
            beside.push(SendAncillaryMessage::ScmRights(&files));
        }
        loop {
            let message = [place];
            let message = [IoSlice::new(&message)];
            match sendmsg(&self.socket, &message, &mut beside, SendFlags::NOSIGNAL) {
                Err(Errno::INTR) => {}
                sent => return Ok(sent.map(drop)?),
            }
        }
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let mut taken = (self.keeper.taken.lock()).unwrap_or_else(PoisonError::into_inner);
        // It goes with the process if not now.
        if self.keeper.send(self.place, None).is_ok() {
            taken[usize::from(self.place)] = false;
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        let _ = shutdown(&self.socket, Shutdown::Both);
        loop {
            // SAFETY: the child is ours and was not waited for; no status is asked for.
            let waited = unsafe { libc::waitpid(self.child, null_mut(), 0) };
            if waited >= 0 || io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
                return;
            }
        }
    }
}

/// Block all signals of this thread. Returns those that were blocked before.
fn block_signals() -> io::Result<libc::sigset_t> {
    let mut all = MaybeUninit::uninit();
    let mut before = MaybeUninit::uninit();
    // SAFETY: there is room for a set, which the call fills.
    check(unsafe { libc::sigfillset(all.as_mut_ptr()) })?;
    // SAFETY: the first set is filled, and for the second there is room.
    let failed =
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) };
    match failed {
        // SAFETY: the call has filled it.
        0 => Ok(unsafe { before.assume_init() }),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}

/// What the process does. Only system calls, without memory but what is on the stack: it was forked from a process with
/// several threads.
fn keep_until_the_end(socket: BorrowedFd<'_>) {
    let _ = rustix::process::setsid();
    let _ = rustix::thread::set_name(c"indef-keeper");
    // Whatever else our parent has open: pipes that somebody reads to their end, locks, leases.
    let number = socket.as_raw_fd() as libc::c_uint;
    if number > 0 {
        close_range(0, number - 1);
    }
    close_range(number + 1, libc::c_uint::MAX);
    let mut files = [const { None::<OwnedFd> }; PLACES];
    loop {
        let mut place = [0];
        let mut room = [MaybeUninit::uninit(); ROOM];
        let mut beside = RecvAncillaryBuffer::new(&mut room);
        let mut message = [IoSliceMut::new(&mut place)];
        match recvmsg(socket, &mut message, &mut beside, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => continue,
            Ok(got) if got.bytes > 0 => {}
            _ => break,
        }
        let mut file = None;
        for message in beside.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                rights.for_each(|right| file = Some(right));
            }
        }
        if let Some(kept) = files.get_mut(usize::from(place[0])) {
            *kept = file;
        }
    }
    for file in files.iter().flatten() {
        let _ = fchmod(file, Mode::RUSR);
        let _ = fsync(file);
    }
}

/// Close all descriptors from `first` to `last`, which nobody uses any more.
fn close_range(first: libc::c_uint, last: libc::c_uint) {
    // SAFETY: a system call without memory.
    if unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) } == 0 {
        return;
    }
    // Before Linux 5.9.
    for one in first..=last.min(65_535) {
        // SAFETY: as above.
        unsafe { libc::close(one as i32) };
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs::File,
        io::{Read, Write},
        process::Command,
        time::Duration,
    };

    use super::*;

    /// Whether somebody else has the other end of a pipe open.
    fn is_open(reader: &mut File) -> bool {
        let fd = reader.as_raw_fd();
        let mut one = libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one entry, which outlives the call.
        unsafe { libc::poll(&raw mut one, 1, 0) };
        one.revents & libc::POLLHUP == 0
    }

    fn pipe() -> (File, File) {
        let (reader, writer) = io::pipe().unwrap();
        let [reader, writer] = [OwnedFd::from(reader), OwnedFd::from(writer)].map(File::from);
        (reader, writer)
    }

    #[test]
    fn a_file_is_kept_until_it_is_given_back() {
        let keeper = Arc::new(Keeper::start().unwrap());
        let (mut reader, writer) = pipe();
        let kept = keeper.keep(&writer).unwrap();
        drop(writer);
        assert!(is_open(&mut reader));
        drop(kept);
        // It ends with a read of nothing, once the process has closed it.
        assert_eq!(reader.read(&mut [0]).unwrap(), 0);
        let (mut reader, writer) = pipe();
        let kept = keeper.keep(&writer).unwrap();
        (&writer).write_all(b"x").unwrap();
        drop((keeper, writer));
        assert!(is_open(&mut reader));
        drop(kept);
        // The process is gone when its keeper is.
        assert_eq!(reader.read(&mut [0; 2]).unwrap(), 1);
        assert_eq!(reader.read(&mut [0]).unwrap(), 0);
    }

    /// In a process that may open few files, and so may its child.
    #[test]
    fn as_many_are_kept_as_there_are_descriptors_for() {
        const VARIABLE: &str = "INDEF_TEST_DESCRIPTORS";
        if std::env::var_os(VARIABLE).is_none() {
            let name = "keeper::tests::as_many_are_kept_as_there_are_descriptors_for";
            let output = Command::new("sh")
                .args(["-c", r#"ulimit -n 40 && exec "$0" "$@""#])
                .arg(std::env::current_exe().unwrap())
                .args(["--exact", name])
                .env(VARIABLE, "40")
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success(), "{said}");
            assert!(said.contains("1 passed"), "{said}");
            return;
        }
        let keeper = Arc::new(Keeper::start().unwrap());
        let null = File::open("/dev/null").unwrap();
        let mut all = Vec::new();
        let error = loop {
            match keeper.keep(&null) {
                Ok(kept) => all.push(kept),
                Err(error) => break error,
            }
        };
        assert_eq!(error.raw_os_error(), Some(libc::EMFILE));
        assert_eq!(all.len(), 39);
        // The last one is kept, too.
        drop(all.pop());
        let (mut reader, writer) = pipe();
        let kept = keeper.keep(&writer).unwrap();
        drop(writer);
        std::thread::sleep(Duration::from_millis(100));
        assert!(is_open(&mut reader));
        drop(kept);
        assert_eq!(reader.read(&mut [0]).unwrap(), 0);
    }

    #[test]
    fn no_other_file_is_kept() {
        let (mut reader, writer) = pipe();
        let keeper = Arc::new(Keeper::start().unwrap());
        drop(writer);
        assert_eq!(reader.read(&mut [0]).unwrap(), 0);
        let all: Vec<_> = (0..PLACES).map(|_| keeper.keep(&reader).unwrap()).collect();
        let error = keeper.keep(&reader).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EMFILE));
        drop(all);
        drop(keeper.keep(&reader).unwrap());
    }
}
