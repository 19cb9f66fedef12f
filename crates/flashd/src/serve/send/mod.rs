//! Replies to a host: an outbox, and the threads that send its content.
//!
//! A command is ended through its [`Permit`], and in no other way. Replies that the receiving
//! thread makes itself are sent by it before it waits for the socket again. Those of other threads
//! (the device's deadlines, other connections) are sent by that thread if few commands are on their
//! way and the socket takes them at once: an answer at its deadline must not wait for another
//! thread to wake up. Else they wake the connection's sending thread, which sends many with one
//! call, so that nobody but this connection waits for a slow host. A command's identifier is free
//! again before the host can know that the command is done, never later.

mod inflight;
mod permit;
mod reply;

use std::{
    io::{ErrorKind, Write},
    net::{Shutdown, TcpStream},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, OnceLock, RwLockReadGuard,
        atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering},
    },
    thread::ThreadId,
    time::{Duration, Instant},
};

use nvme_wire::pdu::Digests;
use rustix::{io::Errno, net::SendFlags};

use self::{
    inflight::Inflight,
    reply::{Format, Reply},
};
use super::{backend::Backend, error_log::ErrorLog, keep_alive::KeepAlive};
use crate::lock::lock;
#[cfg(test)]
pub(super) use permit::tests::connected;
pub(super) use permit::{NoPermit, Permit};
pub(super) use reply::{Completed, Failed};

/// Bytes that are sent with one call, about.
const BATCH: usize = 256 << 10;
/// Bytes of replies that wait before the receiving thread sends them in between.
const WAITING_MAX: usize = 512 << 10;
/// With at most this many commands on their way, the thread that has an answer sends it. With more,
/// sending several with one call saves more than the waking costs.
const FEW: usize = 4;
/// The most bytes that may be sent so: a socket's buffer takes them, and they are copied quickly.
const AT_ONCE_MAX: usize = 64 << 10;

/// The sending side of a connection.
#[derive(Debug)]
pub(super) struct Sender {
    backend: Arc<Backend>,
    receiver: OnceLock<ThreadId>,
    outbox: Mutex<Outbox>,
    wake: Condvar,
    waiting: AtomicUsize,
    wire: Mutex<Wire>,
    /// The same socket, to be shut down by any thread that wants the connection to end.
    stream: TcpStream,
    agreed: OnceLock<(Digests, u8)>,
    flow: Flow,
    inflight: Inflight,
    /// Held while a command of the connection changes the device.
    carrying_out: Mutex<()>,
    /// Set once the connection is a queue.
    queue: OnceLock<OfQueue>,
    /// The time for one call to the socket.
    timeout: Duration,
    power_cuts: u64,
    dead: AtomicBool,
}

/// The queue that a connection is, as far as sending is concerned.
#[derive(Debug)]
struct OfQueue {
    id: u16,
    error_log: Arc<ErrorLog>,
    keep_alive: Arc<KeepAlive>,
}

#[derive(Debug, Default)]
struct Outbox {
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
    /// Their part of [`Sender::waiting`].
    owed: usize,
}

/// SQHD: the number of commands that were taken off the submission queue.
#[derive(Debug, Default)]
struct Flow {
    disabled: AtomicBool,
    entries: AtomicU32,
    taken: AtomicU32,
}

impl Sender {
    /// The sending side of `stream`, whose host may take `timeout` for what is sent with one call.
    pub(super) fn new(
        stream: &TcpStream,
        backend: Arc<Backend>,
        timeout: Duration,
    ) -> std::io::Result<Self> {
        stream.set_write_timeout(Some(timeout))?;
        Ok(Self {
            power_cuts: backend.device.power_cuts(),
            backend,
            receiver: OnceLock::new(),
            outbox: Mutex::default(),
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
            carrying_out: Mutex::default(),
            queue: OnceLock::new(),
            timeout,
            dead: AtomicBool::new(false),
        })
    }

    /// The calling thread is the one that receives.
    pub(super) fn receives_here(&self) {
        let _ = self.receiver.set(std::thread::current().id());
    }

    /// Use the format on which ICReq and ICResp have agreed; the first one counts.
    pub(super) fn agree(&self, digests: Digests, alignment: u8) {
        let _ = self.agreed.set((digests, alignment));
    }

    /// Digests; none before anything is agreed on.
    pub(super) fn digests(&self) -> Option<Digests> {
        self.agreed.get().map(|agreed| agreed.0)
    }

    /// The connection is queue `id` now, with the submission queue that Connect has described.
    pub(super) fn connected(
        &self,
        id: u16,
        entries: u32,
        no_flow_control: bool,
        error_log: &Arc<ErrorLog>,
        keep_alive: &Arc<KeepAlive>,
    ) {
        let _ = self.queue.set(OfQueue {
            id,
            error_log: Arc::clone(error_log),
            keep_alive: Arc::clone(keep_alive),
        });
        self.flow.entries.store(entries, Ordering::Release);
        self.flow.disabled.store(no_flow_control, Ordering::Release);
    }

    /// The queue that the connection is; none before Connect.
    fn queue_id(&self) -> Option<u16> {
        self.queue.get().map(|queue| queue.id)
    }

    /// One more command was taken off the submission queue.
    fn command_taken(&self) {
        self.flow.taken.fetch_add(1, Ordering::AcqRel);
    }

    /// The connection can no longer be used. Threads that wait for its socket stop waiting.
    pub(super) fn kill(&self) {
        self.dead.store(true, Ordering::Release);
        let _ = self.stream.shutdown(Shutdown::Both);
        self.close();
    }

    /// As [`Self::kill`]; on return no command of the connection is being carried out, and none
    /// will be.
    pub(super) fn kill_and_wait(&self) {
        self.kill();
        self.wait_until_carried_out();
    }

    /// On return the command that was being carried out has changed the device.
    pub(super) fn wait_until_carried_out(&self) {
        drop(lock(&self.carrying_out));
    }

    /// To be held while a command is carried out; `None` where the connection is dead, and its
    /// commands may no longer change the device. The power is not cut meanwhile.
    pub(super) fn carry_out(&self) -> Option<(MutexGuard<'_, ()>, RwLockReadGuard<'_, ()>)> {
        let held = (lock(&self.carrying_out), self.backend.device.hold_power());
        (!self.is_dead()).then_some(held)
    }

    pub(super) fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Acquire) || self.backend.device.power_cuts() != self.power_cuts
    }

    /// The address at which the host has reached it.
    pub(super) fn local_address(&self) -> Option<std::net::SocketAddr> {
        self.stream.local_addr().ok()
    }

    /// End the sending thread.
    pub(super) fn close(&self) {
        lock(&self.outbox).closed = true;
        self.wake.notify_all();
    }

    /// End the stream to the host: nothing more is sent, and the host sees that.
    pub(super) fn end_of_stream(&self) {
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    /// Have a PDU sent.
    pub(super) fn pdu(&self, bytes: Vec<u8>) {
        self.reply(Reply::Pdu(bytes));
    }

    /// Ask the host for the data of a command.
    pub(super) fn ask(&self, cid: u16, tag: u16, len: u32) {
        self.reply(Reply::Ready { cid, tag, len });
    }

    /// Refuse a command whose identifier is in use; the command that has it goes on.
    pub(super) fn refuse_identifier(&self, cid: u16) {
        tracing::warn!(
            queue = self.queue_id(),
            cid,
            "a command came with the identifier of one that is not done: was it sent twice?"
        );
        self.reply(Reply::Conflict { cid });
    }

    /// Have a reply sent. Those that end a command come from its [`Permit`].
    fn reply(&self, reply: Reply) {
        let late = self.receiver.get() != Some(&std::thread::current().id());
        self.waiting.fetch_add(reply.len(), Ordering::AcqRel);
        let mut outbox = lock(&self.outbox);
        if outbox.closed {
            return;
        }
        outbox.replies.push(reply);
        drop(outbox);
        if late && !self.send_at_once() {
            let mut outbox = lock(&self.outbox);
            if !std::mem::replace(&mut outbox.late, true) {
                drop(outbox);
                self.wake.notify_one();
            }
        }
    }

    /// Send the replies that wait, if they are many bytes. On the receiving thread.
    pub(super) fn flush_if_full(&self) {
        if self.waiting.load(Ordering::Acquire) > WAITING_MAX {
            self.flush();
        }
    }

    /// Send the replies that wait.
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

    /// Send the replies that wait, without waiting for anything; false if another thread has to go
    /// on.
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
        std::mem::swap(&mut lock(&self.outbox).replies, &mut wire.batch);
        wire.owed += wire.batch.iter().map(Reply::len).sum::<usize>();
        !wire.batch.is_empty()
    }

    /// Send the replies that were taken.
    fn send(&self, wire: &mut Wire) -> std::io::Result<()> {
        self.put(wire, |wire| {
            if wire.bytes.len() >= BATCH {
                write_within(&mut wire.stream, &wire.bytes, self.timeout)?;
                wire.bytes.clear();
            }
            Ok(())
        })?;
        write_within(&mut wire.stream, &wire.bytes, self.timeout)?;
        self.sent(wire);
        Ok(())
    }

    /// Send as many of the taken replies' bytes as the socket has room for.
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
        if owed > 0
            && let Some(queue) = self.queue.get()
        {
            queue.keep_alive.note_traffic();
        }
    }

    /// Make PDUs of the replies that were taken.
    fn put(
        &self,
        wire: &mut Wire,
        mut after_each: impl FnMut(&mut Wire) -> std::io::Result<()>,
    ) -> std::io::Result<()> {
        let mut batch = std::mem::take(&mut wire.batch);
        for reply in batch.drain(..) {
            // After a power cut the connection ends without the answers that wait.
            if self.is_dead() {
                return Err(ErrorKind::ConnectionAborted.into());
            }
            if let Some(cid) = reply.ends() {
                tracing::trace!(queue = self.queue_id(), cid, "ended");
                if !self.inflight.end(cid) {
                    tracing::error!(
                        queue = self.queue_id(),
                        cid,
                        "a command would end twice; its connection ends"
                    );
                    return Err(ErrorKind::InvalidData.into());
                }
            }
            self.format().put(&reply, &self.backend, &mut wire.bytes);
            // What was read amid a power cut, which counts before it takes what is volatile, is not sent.
            if self.is_dead() {
                return Err(ErrorKind::ConnectionAborted.into());
            }
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

    /// Send the replies of other threads, until the connection ends.
    pub(super) fn run(&self) {
        loop {
            let mut outbox = lock(&self.outbox);
            while !outbox.late && !outbox.closed {
                outbox = self
                    .wake
                    .wait(outbox)
                    .unwrap_or_else(std::sync::PoisonError::into_inner);
            }
            if outbox.closed {
                return;
            }
            outbox.late = false;
            drop(outbox);
            self.flush();
        }
    }
}

/// Write all of `bytes`. A host that takes a byte now and then is given `limit` for them, and at
/// most as long again: the socket's own timeout ends the last wait.
fn write_within(stream: &mut TcpStream, bytes: &[u8], limit: Duration) -> std::io::Result<()> {
    let began = Instant::now();
    let mut rest = bytes;
    while !rest.is_empty() {
        match stream.write(rest) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(len) => rest = &rest[len..],
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        if !rest.is_empty() && began.elapsed() > limit {
            return Err(ErrorKind::TimedOut.into());
        }
    }
    Ok(())
}
