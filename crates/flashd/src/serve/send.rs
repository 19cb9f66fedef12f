//! Replies to a host: a queue, and whoever sends what is in it.
//!
//! Replies that the receiving thread makes itself are sent by it before it waits for the socket again.
//! Those of other threads (the device's deadlines, other connections) are sent by that thread if few
//! commands are on their way and the socket takes them at once: an answer at its deadline must not wait
//! for another thread to wake up. Else they wake the connection's sending thread, which sends many with
//! one call, so that nobody but this connection waits for a slow host. A command's identifier is free
//! again before the host can know that the command is done, never later.

use std::{
    io::Write,
    net::{Shutdown, TcpStream},
    sync::{
        Arc, Condvar, Mutex, OnceLock,
        atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering},
    },
    thread::ThreadId,
};

use nvme_wire::{Status, pdu::Digests};
use rustix::{io::Errno, net::SendFlags};

use super::{
    reply::{End, Format, Reply},
    subsystem::{Subsystem, lock},
};

/// Bytes that are sent with one call, about.
const BATCH: usize = 256 << 10;
/// Bytes of replies that wait before the receiving thread sends them in between.
const WAITING_MAX: usize = 512 << 10;
/// Commands on their way up to which an answer is sent by whoever has it. With more, sending several
/// with one call saves more than the waking costs.
const FEW: usize = 4;
/// Bytes that may be sent so: what a socket's buffer takes, and is copied quickly.
const AT_ONCE_MAX: usize = 64 << 10;

/// The sending side of a connection.
#[derive(Debug)]
pub(super) struct Sender {
    subsystem: Arc<Subsystem>,
    receiver: OnceLock<ThreadId>,
    queue: Mutex<Queue>,
    wake: Condvar,
    waiting: AtomicUsize,
    wire: Mutex<Wire>,
    /// The same socket, to be shut down by whoever wants the connection to end.
    stream: TcpStream,
    agreed: OnceLock<(Digests, u8)>,
    flow: Flow,
    pub(super) inflight: Inflight,
    power_cuts: u64,
    dead: AtomicBool,
}

#[derive(Debug, Default)]
struct Queue {
    replies: Vec<Reply>,
    late: bool,
    closed: bool,
}

#[derive(Debug)]
struct Wire {
    stream: TcpStream,
    /// PDUs, as far as the socket has not taken them.
    bytes: Vec<u8>,
    batch: Vec<Reply>,
    /// What these are of [`Sender::waiting`].
    owed: usize,
}

/// SQHD: how many commands were taken off the submission queue.
#[derive(Debug, Default)]
struct Flow {
    disabled: AtomicBool,
    entries: AtomicU32,
    taken: AtomicU32,
}

impl Sender {
    pub(super) fn new(stream: &TcpStream, subsystem: Arc<Subsystem>) -> std::io::Result<Self> {
        Ok(Self {
            power_cuts: subsystem.device.power_cuts(),
            subsystem,
            receiver: OnceLock::new(),
            queue: Mutex::default(),
            wake: Condvar::new(),
            waiting: AtomicUsize::new(0),
            wire: Mutex::new(Wire {
                stream: stream.try_clone()?,
                bytes: Vec::new(),
                batch: Vec::new(),
                owed: 0,
            }),
            stream: stream.try_clone()?,
            agreed: OnceLock::new(),
            flow: Flow::default(),
            inflight: Inflight::new(),
            dead: AtomicBool::new(false),
        })
    }

    /// The calling thread is the one that receives.
    pub(super) fn receives_here(&self) {
        let _ = self.receiver.set(std::thread::current().id());
    }

    /// What ICReq and ICResp have agreed on; false if they had before.
    pub(super) fn agree(&self, digests: Digests, alignment: u8) -> bool {
        self.agreed.set((digests, alignment)).is_ok()
    }

    /// Digests; none before anything is agreed on.
    pub(super) fn digests(&self) -> Option<Digests> {
        self.agreed.get().map(|agreed| agreed.0)
    }

    /// What Connect has said about the submission queue.
    pub(super) fn connected(&self, entries: u32, no_flow_control: bool) {
        self.flow.entries.store(entries, Ordering::Release);
        self.flow.disabled.store(no_flow_control, Ordering::Release);
    }

    /// One more command was taken off the submission queue.
    pub(super) fn command_taken(&self) {
        self.flow.taken.fetch_add(1, Ordering::AcqRel);
    }

    /// The connection can no longer be used. Whoever waits for its socket stops waiting.
    pub(super) fn kill(&self) {
        self.dead.store(true, Ordering::Release);
        let _ = self.stream.shutdown(Shutdown::Both);
        self.close();
    }

    pub(super) fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Acquire) || self.subsystem.device.power_cuts() != self.power_cuts
    }

    /// Where the host has reached it.
    pub(super) fn local_address(&self) -> Option<std::net::SocketAddr> {
        self.stream.local_addr().ok()
    }

    /// End the sending thread.
    pub(super) fn close(&self) {
        lock(&self.queue).closed = true;
        self.wake.notify_all();
    }

    /// Nothing more is sent, and the host sees it.
    pub(super) fn end_of_stream(&self) {
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    pub(super) fn done(&self, cid: u16, status: Status) {
        self.reply(Reply::Done(End::new(cid, status)));
    }

    pub(super) fn success(&self, cid: u16, result: u64) {
        self.reply(Reply::Done(End::success(cid, result)));
    }

    /// Have a reply sent.
    pub(super) fn reply(&self, reply: Reply) {
        let late = self.receiver.get() != Some(&std::thread::current().id());
        self.waiting.fetch_add(reply.len(), Ordering::AcqRel);
        let mut queue = lock(&self.queue);
        if queue.closed {
            return;
        }
        queue.replies.push(reply);
        drop(queue);
        if late && !self.send_at_once() {
            let mut queue = lock(&self.queue);
            if !std::mem::replace(&mut queue.late, true) {
                drop(queue);
                self.wake.notify_one();
            }
        }
    }

    /// Send what waits, if it is much. On the receiving thread.
    pub(super) fn flush_if_full(&self) {
        if self.waiting.load(Ordering::Acquire) > WAITING_MAX {
            self.flush();
        }
    }

    /// Send what waits.
    pub(super) fn flush(&self) {
        if self.waiting.load(Ordering::Acquire) == 0 {
            return;
        }
        let mut wire = lock(&self.wire);
        while self.take(&mut wire) || !wire.bytes.is_empty() {
            if self.send(&mut wire).is_err() {
                drop(wire);
                self.kill();
                return;
            }
        }
    }

    /// Send what waits, without waiting for anything; false if somebody else has to go on.
    fn send_at_once(&self) -> bool {
        if self.inflight.count() > FEW || self.waiting.load(Ordering::Acquire) > AT_ONCE_MAX {
            return false;
        }
        let Ok(mut wire) = self.wire.try_lock() else {
            return false;
        };
        self.take(&mut wire);
        match self.send_some(&mut wire) {
            Ok(()) => wire.bytes.is_empty(),
            Err(_) => {
                drop(wire);
                self.kill();
                true
            }
        }
    }

    /// Take the replies that wait; false if there are none.
    fn take(&self, wire: &mut Wire) -> bool {
        std::mem::swap(&mut lock(&self.queue).replies, &mut wire.batch);
        wire.owed += wire.batch.iter().map(Reply::len).sum::<usize>();
        !wire.batch.is_empty()
    }

    /// Send what was taken.
    fn send(&self, wire: &mut Wire) -> std::io::Result<()> {
        self.put(wire, |wire| {
            if wire.bytes.len() >= BATCH {
                wire.stream.write_all(&wire.bytes)?;
                wire.bytes.clear();
            }
            Ok(())
        })?;
        wire.stream.write_all(&wire.bytes)?;
        self.sent(wire);
        Ok(())
    }

    /// Send of what was taken as much as the socket has room for.
    fn send_some(&self, wire: &mut Wire) -> std::io::Result<()> {
        self.put(wire, |_| Ok(()))?;
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        while !wire.bytes.is_empty() {
            match rustix::net::send(&wire.stream, &wire.bytes, flags) {
                Ok(len) => drop(wire.bytes.drain(..len)),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
        self.sent(wire);
        Ok(())
    }

    fn sent(&self, wire: &mut Wire) {
        wire.bytes.clear();
        wire.bytes.shrink_to(4 * BATCH);
        let owed = std::mem::take(&mut wire.owed);
        self.waiting.fetch_sub(owed, Ordering::AcqRel);
    }

    /// Make PDUs of what was taken.
    fn put(
        &self,
        wire: &mut Wire,
        mut after_each: impl FnMut(&mut Wire) -> std::io::Result<()>,
    ) -> std::io::Result<()> {
        let mut batch = std::mem::take(&mut wire.batch);
        for reply in batch.drain(..) {
            // What waited for a power cut is not answered: the host has to find out by itself.
            if self.is_dead() {
                return Err(std::io::ErrorKind::ConnectionAborted.into());
            }
            if let Some(cid) = reply.ends() {
                self.inflight.end(cid);
            }
            self.format().put(&reply, &self.subsystem, &mut wire.bytes);
            after_each(wire)?;
        }
        wire.batch = batch;
        Ok(())
    }

    fn format(&self) -> Format {
        let (digests, alignment) = self
            .agreed
            .get()
            .copied()
            .unwrap_or((Digests::default(), 4));
        let entries = self.flow.entries.load(Ordering::Acquire);
        let sq_head = if self.flow.disabled.load(Ordering::Acquire) {
            None
        } else {
            let taken = self.flow.taken.load(Ordering::Acquire);
            Some((taken.checked_rem(entries).unwrap_or(0)) as u16)
        };
        Format {
            digests,
            alignment,
            sq_head,
        }
    }

    /// Send what other threads have to say, until the connection ends.
    pub(super) fn run(&self) {
        loop {
            let mut queue = lock(&self.queue);
            while !queue.late && !queue.closed {
                queue = self
                    .wake
                    .wait(queue)
                    .unwrap_or_else(std::sync::PoisonError::into_inner);
            }
            if queue.closed {
                return;
            }
            queue.late = false;
            drop(queue);
            self.flush();
        }
    }
}

/// Which command identifiers are in use.
#[derive(Debug)]
pub(super) struct Inflight {
    bits: Vec<AtomicU64>,
    count: AtomicUsize,
}

impl Inflight {
    fn new() -> Self {
        Self {
            bits: (0..1 << 16 >> 6).map(|_| AtomicU64::new(0)).collect(),
            count: AtomicUsize::new(0),
        }
    }

    /// A command begins; false if one with its identifier is not done yet.
    pub(super) fn begin(&self, cid: u16) -> bool {
        let bit = 1 << (cid % 64);
        let before = self.bits[usize::from(cid / 64)].fetch_or(bit, Ordering::AcqRel);
        if before & bit != 0 {
            return false;
        }
        self.count.fetch_add(1, Ordering::AcqRel);
        true
    }

    fn end(&self, cid: u16) {
        let bit = 1 << (cid % 64);
        if self.bits[usize::from(cid / 64)].fetch_and(!bit, Ordering::AcqRel) & bit != 0 {
            self.count.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// Commands that are not done.
    pub(super) fn count(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }
}
