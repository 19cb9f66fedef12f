//! A connection: checks its PDUs, parses each command once, and hands it to its queue.

use std::{
    net::{SocketAddr, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use nvme_wire::{
    Command, QueueKind, Status, Submission,
    fabrics::FabricsCommand,
    pdu::{
        CapsuleCmd, DIGEST_LEN, Data, Fatal, FatalStatus, Header, IcReq, IcResp, Parts, PduType,
        TERM_REQ_TRAILER_MAX, TermReq,
    },
    status::connect,
};
use zerocopy::{IntoBytes, little_endian::U32};

use super::{
    admin, fabrics, io,
    limits::{ADMIN_IN_CAPSULE_MAX, H2C_DATA_MAX, IN_CAPSULE_MAX, QUEUE_ENTRIES_MAX},
    need::{DataSource, Need},
    queue::HostQueue,
    receive::{Patience, ReceiveError, Receiver},
    send::{Completed, Failed, NoPermit, Permit, Sender},
    subsystem::Subsystem,
    transfer::{DataRequest, Transfers},
};

/// The interval at which an idle connection is checked.
const TICK: Duration = Duration::from_millis(250);

/// The reason why a connection ends.
#[derive(Debug)]
pub(super) enum Ended {
    /// The host wants it so, it is gone, or its controller is.
    Quietly,
    /// The host has sent something after which the next PDU cannot be found.
    Fatally(Fatal),
}

impl From<ReceiveError> for Ended {
    fn from(_: ReceiveError) -> Self {
        Self::Quietly
    }
}

impl From<Fatal> for Ended {
    fn from(fatal: Fatal) -> Self {
        Self::Fatally(fatal)
    }
}

/// A connection.
#[derive(Debug)]
pub(super) struct Connection {
    receiver: Receiver,
    session: HostSession,
    /// After the session, whose end lets their permits go.
    transfers: Transfers<Waiting>,
}

/// A command that waits for its data.
#[derive(Debug)]
struct Waiting {
    permit: Permit,
    command: Command,
}

/// A connection without its input.
#[derive(Debug)]
struct HostSession {
    subsystem: Arc<Subsystem>,
    sender: Arc<Sender>,
    stop: Arc<AtomicBool>,
    queue: Option<Arc<HostQueue>>,
    opened: Instant,
    /// The last look at the timeouts.
    looked: Instant,
    /// The first wait for a part of the current PDU, its first byte if that was waited for.
    pdu_since: Option<Instant>,
    /// The R2T of the oldest data that the host owes.
    asked: Option<Instant>,
}

impl Connection {
    pub(super) fn new(
        stream: TcpStream,
        subsystem: Arc<Subsystem>,
        stop: Arc<AtomicBool>,
    ) -> std::io::Result<Self> {
        stream.set_nonblocking(false)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(TICK))?;
        let backend = Arc::clone(&subsystem.backend);
        let sender = Arc::new(Sender::new(&stream, backend, subsystem.timeouts.data)?);
        let room = Arc::clone(&subsystem.room);
        let now = Instant::now();
        Ok(Self {
            receiver: Receiver::new(stream),
            session: HostSession {
                subsystem,
                sender,
                stop,
                queue: None,
                opened: now,
                looked: now,
                pdu_since: None,
                asked: None,
            },
            transfers: Transfers::new(room),
        })
    }

    /// Serve it until it ends.
    pub(super) fn run(mut self, peer: SocketAddr) {
        let sender = Arc::clone(&self.session.sender);
        sender.receives_here();
        let sending = {
            let sender = Arc::clone(&sender);
            std::thread::Builder::new()
                .name("nvme send".to_owned())
                .spawn(move || sender.run())
        };
        let ended = loop {
            if let Err(ended) = self.step() {
                break ended;
            }
        };
        match ended {
            Ended::Quietly => tracing::debug!(%peer, "connection ended"),
            Ended::Fatally(fatal) => {
                tracing::warn!(%peer, %fatal, "connection terminated: the host's PDU is wrong");
                self.terminate(fatal);
            }
        }
        drop(self);
        if let Ok(sending) = sending {
            let _ = sending.join();
        }
    }

    /// Send the reason, and wait a moment so that the host can read it (TCP §3.5).
    fn terminate(&mut self, fatal: Fatal) {
        let in_error = self.receiver.peeked(TERM_REQ_TRAILER_MAX);
        let mut pdu = TermReq::to_host(fatal, in_error.len()).as_bytes().to_vec();
        pdu.extend_from_slice(in_error);
        self.session.sender.pdu(pdu);
        self.session.sender.flush();
        self.session.sender.end_of_stream();
        self.receiver.drain();
    }

    /// One PDU.
    fn step(&mut self) -> Result<(), Ended> {
        let Self {
            receiver,
            session,
            transfers,
        } = self;
        session.pdu_since = None;
        session.asked = transfers.asked();
        let bytes = receiver.peek(Header::LEN, false, session)?;
        let header = Header::first_of(bytes).ok_or(Ended::Quietly)?;
        if session.has_to_end() {
            return Err(Ended::Quietly);
        }
        let parts = session.check(&header)?;
        let bytes = receiver.peek(parts.data_start, true, session)?;
        if parts.header_digest && !digest_fits(bytes, parts.header) {
            return Err(Fatal::because(FatalStatus::HeaderDigest).into());
        }
        match header.pdu_type() {
            PduType::IcReq => {
                let request = IcReq::first_of(bytes).ok_or(Ended::Quietly)?;
                session.initialize(&request)?;
                receiver.consume(parts.total);
            }
            PduType::CapsuleCmd => {
                let bytes = receiver.peek(parts.total, true, session)?;
                let capsule = CapsuleCmd::first_of(bytes).ok_or(Ended::Quietly)?;
                let data = &bytes[parts.data_start..][..parts.data];
                let intact =
                    !parts.data_digest || digest_fits(&bytes[parts.data_start..], parts.data);
                session.capsule(transfers, &capsule.command, data, intact)?;
                receiver.consume(parts.total);
            }
            PduType::H2cData => {
                let pdu = Data::first_of(bytes).ok_or(Ended::Quietly)?;
                self.data(&pdu, &parts)?;
            }
            // The host names our mistake, and waits for us to close.
            PduType::H2cTermReq => {
                if let Some(request) = TermReq::first_of(bytes) {
                    tracing::warn!(fatal = %request.fatal(), "the host terminates the connection");
                }
                return Err(Ended::Quietly);
            }
            _ => return Err(Fatal::because(FatalStatus::SequenceError).into()),
        }
        self.ask()?;
        self.session.sender.flush_if_full();
        Ok(())
    }

    /// Data that the host was asked for.
    fn data(&mut self, pdu: &Data, parts: &Parts) -> Result<(), Ended> {
        let Self {
            receiver,
            session,
            transfers,
        } = self;
        let place = transfers.place(pdu, parts.data)?;
        receiver.consume(parts.data_start);
        receiver.take(place, session)?;
        let mut damaged = false;
        if parts.data_digest {
            let mut digest = [0; DIGEST_LEN];
            receiver.take(&mut digest, session)?;
            damaged = crc32c::crc32c(place) != u32::from_le_bytes(digest);
        }
        let done = transfers.received(pdu.transfer_tag.get(), parts.data, damaged);
        let Some(transfer) = done else {
            return Ok(());
        };
        let Waiting { permit, command } = transfer.command;
        if transfer.damaged {
            permit.complete(Err(damaged_in_transit()));
        } else {
            session.execute(permit, &command, &transfer.data)?;
        }
        Ok(())
    }

    /// Ask the host for the data that there is room for. Without any room the connection waits for
    /// it, and its later PDUs with it.
    fn ask(&mut self) -> Result<(), Ended> {
        let Self {
            session, transfers, ..
        } = self;
        loop {
            while let Some(DataRequest { cid, tag, len }) = transfers.next() {
                session.sender.ask(cid, tag, len);
            }
            session.sender.flush_if_full();
            if !transfers.is_starved() {
                return Ok(());
            }
            // The host owes no data now.
            session.asked = None;
            session.before_wait();
            transfers.wait_for_room(TICK);
            if session.is_over(false) {
                return Err(Ended::Quietly);
            }
        }
    }
}

/// Whether the `len` bytes at the start of `bytes` have the digest that follows them.
fn digest_fits(bytes: &[u8], len: usize) -> bool {
    bytes
        .split_at_checked(len)
        .and_then(|(what, rest)| Some((what, rest.first_chunk()?)))
        .is_some_and(|(what, digest)| crc32c::crc32c(what) == u32::from_le_bytes(*digest))
}

impl HostSession {
    fn check(&self, header: &Header) -> Result<Parts, Fatal> {
        let kind = header.pdu_type();
        let Some(digests) = self.sender.digests() else {
            if kind != PduType::IcReq {
                return Err(Fatal::because(FatalStatus::SequenceError));
            }
            return header.from_host(nvme_wire::pdu::Digests::default(), 0);
        };
        let max_data = match (kind, self.queue_kind()) {
            (PduType::IcReq, _) => return Err(Fatal::because(FatalStatus::SequenceError)),
            (PduType::H2cData, _) => H2C_DATA_MAX,
            (_, QueueKind::Io) => IN_CAPSULE_MAX,
            (_, QueueKind::Admin) => ADMIN_IN_CAPSULE_MAX,
        };
        header.from_host(digests, max_data)
    }

    fn initialize(&mut self, request: &IcReq) -> Result<(), Fatal> {
        let digests = request.digests()?;
        let mut response = IcResp::zeroed();
        response.header = Header::plain(
            PduType::IcResp,
            IcResp::LEN as u8,
            nvme_wire::pdu::Digests::default(),
        );
        response.digests = digests.raw();
        response.max_h2c_data = U32::new(H2C_DATA_MAX as u32);
        self.sender.agree(digests, request.alignment() as u8);
        self.sender.pdu(response.as_bytes().to_vec());
        Ok(())
    }

    fn queue_kind(&self) -> QueueKind {
        match &self.queue {
            Some(queue) => queue.kind(),
            None => QueueKind::Admin,
        }
    }

    /// A command, and the data in its capsule. It is parsed here, and nowhere else.
    fn capsule(
        &mut self,
        transfers: &mut Transfers<Waiting>,
        submission: &Submission,
        data: &[u8],
        intact: bool,
    ) -> Result<(), Ended> {
        let entries = self.queue.as_ref().map_or(1, |queue| queue.entries);
        let permit = match Permit::issue(&self.sender, submission, entries.min(QUEUE_ENTRIES_MAX)) {
            Ok(permit) => permit,
            Err(NoPermit::IdentifierInUse) => {
                self.sender.refuse_identifier(submission.cid.get());
                return Ok(());
            }
            Err(NoPermit::QueueFull) => {
                return Err(Fatal::because(FatalStatus::SequenceError).into());
            }
        };
        if !intact {
            permit.complete(Err(damaged_in_transit()));
            return Ok(());
        }
        let command = Command::parse(submission, self.queue_kind());
        let need = self.need(&command, submission);
        match need.and_then(|need| need.find(submission, data)) {
            Ok(DataSource::Nowhere) => self.execute(permit, &command, &[])?,
            Ok(DataSource::Capsule(data)) => self.execute(permit, &command, data)?,
            Ok(DataSource::Host(len)) => {
                transfers.want(permit.cid(), Waiting { permit, command }, len);
            }
            Err(status) => permit.complete(Err(status.into())),
        }
        Ok(())
    }

    /// The data that a command needs, as far as it can be done at all.
    fn need(&self, command: &Command, submission: &Submission) -> Result<Need, Status> {
        let Some(queue) = &self.queue else {
            return fabrics::need_to_connect(command, submission);
        };
        match command {
            Command::Fabrics(_) => Ok(Need::Nothing),
            _ if !queue.controller.is_ready() => Err(Status::SequenceError),
            Command::Admin { command, .. } => admin::need(queue, command),
            Command::Io { nsid, command } => io::need(queue, *nsid, command),
        }
    }

    /// Carry out a command that has all its data.
    fn execute(&mut self, permit: Permit, command: &Command, data: &[u8]) -> Result<(), Ended> {
        let Some(queue) = &self.queue else {
            let connected = fabrics::connect(&self.subsystem, &self.sender, command, data);
            permit.complete(connected.map(|queue| {
                let id = queue.controller.id;
                self.queue = Some(queue);
                Completed::Result(nvme_wire::fabrics::connected(id))
            }));
            return Ok(());
        };
        match command {
            Command::Fabrics(FabricsCommand::Disconnect { record_format }) => {
                return disconnect(queue, permit, *record_format);
            }
            Command::Fabrics(command) => {
                let result = fabrics::execute(queue, command);
                permit.complete(result.map(Completed::Result).map_err(Failed::from));
            }
            Command::Admin { nsid, command } => {
                admin::execute(queue, permit, *nsid, command, data);
            }
            Command::Io { nsid, command } => {
                let _held = self.sender.carry_out().ok_or(Ended::Quietly)?;
                // A shutdown may have begun while its data was on the way.
                if !queue.controller.is_ready() {
                    permit.complete(Err(Status::SequenceError.into()));
                    return Ok(());
                }
                io::execute(queue, permit, *nsid, command, data);
            }
        }
        Ok(())
    }

    fn has_to_end(&self) -> bool {
        self.stop.load(Ordering::Acquire) || self.sender.is_dead()
    }
}

/// A wrong data digest: a failure of the transport, and not of the command.
fn damaged_in_transit() -> Failed {
    Failed::unlogged(Status::TransientTransportError)
}

/// Disconnect (Base §6.4): an I/O queue ends once its answer is sent.
fn disconnect(queue: &HostQueue, permit: Permit, record_format: u16) -> Result<(), Ended> {
    let status = if queue.kind() == QueueKind::Admin {
        connect::INVALID_QUEUE_TYPE
    } else if record_format != 0 {
        connect::INCOMPATIBLE_FORMAT
    } else {
        permit.complete(Ok(Completed::Result(0)));
        queue.sender.flush();
        return Err(Ended::Quietly);
    };
    permit.complete(Err(status.into()));
    Ok(())
}

/// However the connection ends, by a panic, too: its queue is free, and its sending thread ends.
impl Drop for HostSession {
    fn drop(&mut self) {
        // The controller may go with its last queue, and the requests that wait in it owe an answer
        // for as long as the connection lives: the queue goes last.
        let queue = self.queue.take();
        if let Some(queue) = &queue {
            queue.gone();
        }
        self.sender.kill();
    }
}

impl Patience for HostSession {
    fn before_wait(&mut self) {
        self.sender.flush();
        self.pdu_since.get_or_insert_with(Instant::now);
    }

    fn received(&mut self, within: bool) -> bool {
        if let Some(queue) = &self.queue {
            queue.controller.keep_alive.note_traffic();
        }
        let now = Instant::now();
        if !within {
            self.pdu_since = Some(now);
        }
        // A host that never pauses, if only by a byte, is looked at like one that does.
        now - self.looked >= TICK && self.is_over(within)
    }

    fn is_over(&mut self, within: bool) -> bool {
        if self.has_to_end() {
            return true;
        }
        self.looked = Instant::now();
        match &self.queue {
            None if self.opened.elapsed() > self.subsystem.timeouts.connect => {
                tracing::debug!("the host does not connect");
                return true;
            }
            Some(queue) if queue.id == 0 && queue.controller.tick(queue.device()) => return true,
            _ => {}
        }
        // An event may have been reported.
        self.sender.flush();
        let timeouts = &self.subsystem.timeouts;
        let late = |since: Option<Instant>, limit| since.is_some_and(|at| at.elapsed() > limit);
        if within && late(self.pdu_since, timeouts.pdu) {
            tracing::warn!("the host does not finish its PDU");
            return true;
        }
        if late(self.asked, timeouts.data) {
            tracing::warn!("the host does not send the data that it was asked for");
            return true;
        }
        false
    }
}
