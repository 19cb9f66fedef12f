//! The NVMe/TCP target: a [`Device`] for any host with an NVMe/TCP initiator.
//!
//! A connection is a queue (TCP §2), and has two threads: one receives, and carries out each
//! command as it comes; the other sends the later answers of the device. Where the device answers
//! at once, the receiving thread sends, too: all answers to the commands that one read from the
//! socket has brought go out with one write. No thread waits for the device.
//!
//! The memory that a host can make the target hold is bounded for each connection: capsules that
//! carry data are carried out straight from the receive buffer, other data is asked for (R2T) only
//! while there is room for it (all connections share it), and data to the host is read from the
//! store when it is sent. A host that does not send or take what it owes in time is dropped, however
//! many single bytes it sends meanwhile ([`Timeouts`]).
//!
//! Bad input gets the status that the specification names where there is a command to answer, and
//! else ends the connection with a C2HTermReq. Admin connection and controller live and die
//! together; I/O connections die with their controller.
//!
//! Not supported: TLS, authentication, reservations, metadata and protection information,
//! namespace management, firmware updates. Sources: see `nvme-wire`.

mod admin;
mod backend;
mod connection;
mod controller;
mod error_log;
mod events;
mod fabrics;
mod fdp;
mod io;
mod keep_alive;
mod limits;
mod need;
mod queue;
mod receive;
mod room;
mod send;
mod subsystem;
mod transfer;

use std::{
    io::ErrorKind,
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

pub use limits::{MAX_TRANSFER, Timeouts};
pub use subsystem::TargetOptions;

use crate::device::Device;
use connection::Connection;
use subsystem::Subsystem;

/// Connections at a time; more are closed when they come.
const CONNECTIONS_MAX: usize = 256;
/// How long accepting waits before it looks whether it should end.
const ACCEPT_TICK: Duration = Duration::from_millis(100);

/// A target that listens. Ends, with all its connections, when it is dropped.
#[derive(Debug)]
pub struct Target {
    address: SocketAddr,
    subsystem: Arc<Subsystem>,
    stop: Arc<AtomicBool>,
    open: Arc<AtomicUsize>,
    acceptor: Option<JoinHandle<()>>,
}

impl Target {
    /// Listen at `address` and serve `device`.
    ///
    /// # Errors
    ///
    /// The target cannot listen at the address, or threads cannot be started.
    pub fn listen(
        device: Arc<Device>,
        address: SocketAddr,
        options: TargetOptions,
    ) -> std::io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let subsystem = Arc::new(Subsystem::new(device, options));
        let stop = Arc::new(AtomicBool::new(false));
        let open = Arc::new(AtomicUsize::new(0));
        let acceptor = Acceptor {
            listener,
            subsystem: Arc::clone(&subsystem),
            stop: Arc::clone(&stop),
            open: Arc::clone(&open),
        };
        let acceptor = std::thread::Builder::new()
            .name("nvme accept".to_owned())
            .spawn(move || acceptor.run())?;
        tracing::info!(%address, nqn = subsystem.nqn(), "serving NVMe/TCP");
        Ok(Self {
            address,
            subsystem,
            stop,
            open,
            acceptor: Some(acceptor),
        })
    }

    /// The address at which it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The name of the subsystem that it serves, for `nvme connect -n`.
    #[must_use]
    pub fn nqn(&self) -> &str {
        self.subsystem.nqn()
    }

    /// Connections that are open.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.open.load(Ordering::Acquire)
    }

    /// Controllers that hosts have made, discovery controllers included.
    #[must_use]
    pub fn controllers(&self) -> usize {
        self.subsystem.controllers()
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
        // They look at the flag between two PDUs, and once every tick.
        for _ in 0..100 {
            if self.connections() == 0 {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        tracing::warn!(open = self.connections(), "connections that do not end");
    }
}

struct Acceptor {
    listener: TcpListener,
    subsystem: Arc<Subsystem>,
    stop: Arc<AtomicBool>,
    open: Arc<AtomicUsize>,
}

impl Acceptor {
    fn run(self) {
        while !self.stop.load(Ordering::Acquire) {
            match self.listener.accept() {
                Ok((stream, peer)) => self.admit(stream, peer),
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.wait(),
                Err(error) => {
                    // Such as no file descriptor left: others may close some.
                    tracing::warn!(%error, "cannot accept a connection");
                    std::thread::sleep(ACCEPT_TICK);
                }
            }
        }
    }

    fn wait(&self) {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let tick = Timespec {
            tv_sec: 0,
            tv_nsec: ACCEPT_TICK.subsec_nanos().into(),
        };
        // Whatever wakes it, accept is tried again.
        let _ = poll(
            &mut [PollFd::new(&self.listener, PollFlags::IN)],
            Some(&tick),
        );
    }

    fn admit(&self, stream: TcpStream, peer: SocketAddr) {
        let slot = ConnectionSlot::take(&self.open);
        if slot.number > CONNECTIONS_MAX {
            tracing::warn!(%peer, "closed: {CONNECTIONS_MAX} connections are open already");
            return;
        }
        let subsystem = Arc::clone(&self.subsystem);
        let stop = Arc::clone(&self.stop);
        let spawned = std::thread::Builder::new()
            .name("nvme receive".to_owned())
            .spawn(move || {
                let _slot = slot;
                match Connection::new(stream, subsystem, stop) {
                    Ok(connection) => connection.run(peer),
                    Err(error) => tracing::warn!(%peer, %error, "cannot serve the connection"),
                }
            });
        if let Err(error) = spawned {
            tracing::warn!(%peer, %error, "closed: no thread for the connection");
        }
    }
}

/// Counts a connection for as long as it lives.
struct ConnectionSlot {
    open: Arc<AtomicUsize>,
    number: usize,
}

impl ConnectionSlot {
    fn take(open: &Arc<AtomicUsize>) -> Self {
        Self {
            number: open.fetch_add(1, Ordering::AcqRel) + 1,
            open: Arc::clone(open),
        }
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.open.fetch_sub(1, Ordering::AcqRel);
    }
}
