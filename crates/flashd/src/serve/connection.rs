//! A connection: what its PDUs have to be, and whom they go to.

use std::{
    net::{SocketAddr, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use nvme_wire::{
    Status, Submission,
    command::SglKind,
    fabrics::FabricsCommand,
    opcode::AdminOpcode,
    pdu::{
        CapsuleCmd, DIGEST_LEN, Data, Fatal, FatalStatus, Header, IcReq, IcResp, Parts, PduType,
        TERM_REQ_TRAILER_MAX, TermReq,
    },
};
use zerocopy::{IntoBytes, little_endian::U32};

use super::{
    connect,
    controller::Queue,
    receive::{Patience, ReceiveError, Receiver},
    reply::{End, Reply},
    send::Sender,
    subsystem::{
        ADMIN_IN_CAPSULE_MAX, H2C_DATA_MAX, IN_CAPSULE_MAX, MAX_TRANSFER, QUEUE_ENTRIES_MAX,
        Subsystem,
    },
    transfer::{Ask, Transfers},
};

/// How often a connection on which nothing happens is looked after.
const TICK: Duration = Duration::from_millis(250);
/// How long a host may take to become a queue.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a host may take for the rest of a PDU, or to take what it is sent.
const STALL_TIMEOUT: Duration = Duration::from_secs(30);

/// Why a connection ends.
#[derive(Debug)]
pub(super) enum Ended {
    /// The host wants it so, it is gone, or its controller is.
    Quietly,
    /// The host has done what nobody can go on after.
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

/// What data a command comes with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// None.
    Nothing,
    /// This many bytes from the host, or at least as many.
    FromHost { len: u64, exactly: bool },
    /// This many bytes to the host; it may have room for more if not `exactly`.
    ToHost { len: u64, exactly: bool },
}

/// A connection.
#[derive(Debug)]
pub(super) struct Connection {
    receiver: Receiver,
    session: Session,
}

/// All of a connection but what it receives from.
#[derive(Debug)]
struct Session {
    subsystem: Arc<Subsystem>,
    sender: Arc<Sender>,
    stop: Arc<AtomicBool>,
    queue: Option<Arc<Queue>>,
    transfers: Transfers,
    opened: Instant,
    waiting_since: Instant,
    active: bool,
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
        stream.set_write_timeout(Some(STALL_TIMEOUT))?;
        let sender = Arc::new(Sender::new(&stream, Arc::clone(&subsystem))?);
        let now = Instant::now();
        Ok(Self {
            receiver: Receiver::new(stream),
            session: Session {
                subsystem,
                sender,
                stop,
                queue: None,
                transfers: Transfers::default(),
                opened: now,
                waiting_since: now,
                active: false,
            },
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

    /// Say why, and wait a moment so that the host can read it (TCP §3.5).
    fn terminate(&mut self, fatal: Fatal) {
        let in_error = self.receiver.peeked(TERM_REQ_TRAILER_MAX);
        let mut pdu = TermReq::to_host(fatal, in_error.len()).as_bytes().to_vec();
        pdu.extend_from_slice(in_error);
        self.session.sender.reply(Reply::Pdu(pdu));
        self.session.sender.flush();
        self.session.sender.end_of_stream();
        self.receiver.drain();
    }

    /// One PDU.
    fn step(&mut self) -> Result<(), Ended> {
        let Self { receiver, session } = self;
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
                session.capsule(&capsule.command, data, intact)?;
                receiver.consume(parts.total);
            }
            PduType::H2cData => {
                let pdu = Data::first_of(bytes).ok_or(Ended::Quietly)?;
                self.data(&pdu, &parts)?;
            }
            // The host says what we did wrong, and waits for us to close.
            PduType::H2cTermReq => {
                if let Some(request) = TermReq::first_of(bytes) {
                    tracing::warn!(fatal = %request.fatal(), "the host terminates the connection");
                }
                return Err(Ended::Quietly);
            }
            _ => return Err(Fatal::because(FatalStatus::SequenceError).into()),
        }
        self.session.sender.flush_if_full();
        Ok(())
    }

    /// Data that the host was asked for.
    fn data(&mut self, pdu: &Data, parts: &Parts) -> Result<(), Ended> {
        let Self { receiver, session } = self;
        let mut transfers = std::mem::take(&mut session.transfers);
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
        session.transfers = transfers;
        let Some(transfer) = done else {
            return Ok(());
        };
        if transfer.damaged {
            let cid = transfer.command.cid.get();
            session.sender.done(cid, Status::TransientTransportError);
        } else {
            session.execute(&transfer.command, &transfer.data)?;
        }
        session.transfers.give_back(transfer.data);
        while let Some(ask) = session.transfers.next() {
            session.ask(ask);
        }
        Ok(())
    }
}

/// Whether the `len` bytes at the start of `bytes` have the digest that follows them.
fn digest_fits(bytes: &[u8], len: usize) -> bool {
    bytes
        .split_at_checked(len)
        .and_then(|(what, rest)| Some((what, rest.first_chunk()?)))
        .is_some_and(|(what, digest)| crc32c::crc32c(what) == u32::from_le_bytes(*digest))
}

impl Session {
    fn check(&self, header: &Header) -> Result<Parts, Fatal> {
        let kind = header.pdu_type();
        let Some(digests) = self.sender.digests() else {
            if kind != PduType::IcReq {
                return Err(Fatal::because(FatalStatus::SequenceError));
            }
            return header.from_host(nvme_wire::pdu::Digests::default(), 0);
        };
        let max_data = match (kind, &self.queue) {
            (PduType::IcReq, _) => return Err(Fatal::because(FatalStatus::SequenceError)),
            (PduType::H2cData, _) => H2C_DATA_MAX,
            (_, Some(queue)) if queue.id > 0 => IN_CAPSULE_MAX,
            _ => ADMIN_IN_CAPSULE_MAX,
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
        self.sender.reply(Reply::Pdu(response.as_bytes().to_vec()));
        Ok(())
    }

    /// A command, with what data there was in its capsule.
    fn capsule(&mut self, command: &Submission, data: &[u8], intact: bool) -> Result<(), Ended> {
        let cid = command.cid.get();
        self.active = true;
        if !self.sender.inflight.begin(cid) {
            let end = End::new(cid, Status::CommandIdConflict);
            self.sender.reply(Reply::Conflict(end));
            return Ok(());
        }
        let entries = self.queue.as_ref().map_or(1, |queue| queue.entries);
        if self.sender.inflight.count() > entries.min(QUEUE_ENTRIES_MAX) as usize {
            return Err(Fatal::because(FatalStatus::SequenceError).into());
        }
        self.sender.command_taken();
        if !intact {
            self.sender.done(cid, Status::TransientTransportError);
            return Ok(());
        }
        let need = match &self.queue {
            None => connect::need(command),
            Some(queue) => queue.need(command),
        };
        match need.and_then(|need| Self::data_of(need, command, data)) {
            Ok(DataFrom::Nowhere) => self.execute(command, &[]),
            Ok(DataFrom::Capsule(data)) => self.execute(command, data),
            Ok(DataFrom::Host(len)) => {
                if let Some(ask) = self.transfers.want(*command, len) {
                    self.ask(ask);
                }
                Ok(())
            }
            Err(status) => {
                self.refuse(command, status);
                Ok(())
            }
        }
    }

    /// Where the data of a command is that needs `need`.
    fn data_of<'a>(
        need: Need,
        command: &Submission,
        capsule: &'a [u8],
    ) -> Result<DataFrom<'a>, Status> {
        let (len, exactly, to_host) = match need {
            Need::Nothing if capsule.is_empty() => return Ok(DataFrom::Nowhere),
            Need::Nothing => return Err(Status::InvalidField),
            Need::FromHost { len, exactly } => (len, exactly, false),
            Need::ToHost { len, exactly } => (len, exactly, true),
        };
        // Fabrics knows only SGLs (Base §3.3.3.1: PSDT), and fused commands do not exist here.
        if command.psdt() != 0b01 || command.fuse() != 0 {
            return Err(Status::InvalidField);
        }
        let room = u64::from(command.sgl.length.get());
        if room < len || (exactly && room > len) {
            return Err(Status::SglLengthInvalid);
        }
        match (command.sgl.kind(), to_host) {
            (SglKind::Transport, _) if !capsule.is_empty() => Err(Status::InvalidField),
            (SglKind::Transport, true) => Ok(DataFrom::Nowhere),
            (SglKind::Transport, false) if room == 0 => Ok(DataFrom::Nowhere),
            (SglKind::Transport, false) => match usize::try_from(room) {
                Ok(room) if room <= MAX_TRANSFER => Ok(DataFrom::Host(room)),
                _ => Err(Status::SglLengthInvalid),
            },
            (SglKind::InCapsule, false) => {
                let from = usize::try_from(command.sgl.address.get());
                let from = from.map_err(|_| Status::SglOffsetInvalid)?;
                let rest = capsule.get(from..).ok_or(Status::SglOffsetInvalid)?;
                let data = rest.get(..room as usize).ok_or(Status::SglLengthInvalid)?;
                Ok(DataFrom::Capsule(data))
            }
            (SglKind::InCapsule, true) | (SglKind::Unknown(_), _) => Err(Status::SglTypeInvalid),
        }
    }

    /// A command and all its data.
    fn execute(&mut self, command: &Submission, data: &[u8]) -> Result<(), Ended> {
        if let Some(queue) = &self.queue {
            let is_fabrics = command.opcode == AdminOpcode::Fabrics.raw();
            if is_fabrics
                && let FabricsCommand::Disconnect { record_format } = FabricsCommand::parse(command)
            {
                return self.disconnect(command, record_format);
            }
            queue.execute(command, data);
            return Ok(());
        }
        match connect::connect(&self.subsystem, &self.sender, command, data) {
            Ok(queue) => {
                self.sender.success(
                    command.cid.get(),
                    nvme_wire::fabrics::connected(queue.controller.id),
                );
                self.queue = Some(queue);
            }
            Err(end) => self.sender.reply(Reply::Done(end)),
        }
        Ok(())
    }

    /// Disconnect (Base §6.4): an I/O queue ends once its answer is sent.
    fn disconnect(&self, command: &Submission, record_format: u16) -> Result<(), Ended> {
        let cid = command.cid.get();
        let is_io = self.queue.as_ref().is_some_and(|queue| queue.id > 0);
        if !is_io {
            self.refuse(command, nvme_wire::status::connect::INVALID_QUEUE_TYPE);
            return Ok(());
        }
        if record_format != 0 {
            self.refuse(command, nvme_wire::status::connect::INCOMPATIBLE_FORMAT);
            return Ok(());
        }
        self.sender.success(cid, 0);
        self.sender.flush();
        Err(Ended::Quietly)
    }

    fn refuse(&self, command: &Submission, status: Status) {
        match &self.queue {
            Some(queue) => queue.fail(command, status),
            None => self.sender.done(command.cid.get(), status),
        }
    }

    fn ask(&self, ask: Ask) {
        self.sender.reply(Reply::Ready {
            cid: ask.cid,
            tag: ask.tag,
            len: ask.len,
        });
    }

    fn has_to_end(&self) -> bool {
        self.stop.load(Ordering::Acquire) || self.sender.is_dead()
    }
}

/// However the connection ends, by a panic, too: its queue is free, and its sending thread ends.
impl Drop for Session {
    fn drop(&mut self) {
        if let Some(queue) = self.queue.take() {
            queue.gone();
        }
        self.sender.kill();
    }
}

enum DataFrom<'a> {
    Nowhere,
    Capsule(&'a [u8]),
    Host(usize),
}

impl Patience for Session {
    fn before_wait(&mut self) {
        self.sender.flush();
        if std::mem::take(&mut self.active)
            && let Some(queue) = &self.queue
        {
            queue.controller.seen();
        }
        self.waiting_since = Instant::now();
    }

    fn is_over(&mut self, within: bool) -> bool {
        if self.has_to_end() {
            return true;
        }
        match &self.queue {
            None if self.opened.elapsed() > CONNECT_TIMEOUT => {
                tracing::debug!("the host does not connect");
                return true;
            }
            Some(queue) if queue.id == 0 && queue.controller.tick(&self.subsystem) => return true,
            _ => {}
        }
        // An event may have been told.
        self.sender.flush();
        if within && self.waiting_since.elapsed() > STALL_TIMEOUT {
            tracing::warn!("the host does not go on with its PDU");
            return true;
        }
        false
    }
}
