//! A queue: many commands on their way on one connection.

use std::net::SocketAddr;

use nvme_wire::{
    Completion, Sgl, Status, Submission,
    command::SglKind,
    fabrics::{CATTR_NO_FLOW_CONTROL, ConnectCommand, ConnectData},
    nqn,
    pdu::Digests,
};
use zerocopy::{FromBytes, IntoBytes, little_endian::U16};

use crate::{Error, Incoming, Wire};

/// Options of a queue.
#[derive(Clone, Debug)]
pub struct QueueOptions {
    /// Name of the subsystem.
    pub subsystem: String,
    /// Name of the host.
    pub host: String,
    /// Identifier of the host.
    pub host_id: [u8; 16],
    /// 0 for the admin queue.
    pub id: u16,
    /// Identifier of the controller; FFFFh for a new one.
    pub controller: u16,
    /// Entries, 2 to 65535.
    pub entries: u16,
    /// Keep alive timeout in milliseconds, of the admin queue; 0 for none.
    pub keep_alive_ms: u32,
    /// Digests to ask for.
    pub digests: Digests,
    /// Alignment of data to the host, in dwords, zero-based.
    pub hpda: u8,
    /// No flow control of the submission queue: responses of reads can be left out.
    pub no_flow_control: bool,
    /// Most bytes of data in a command capsule; larger data waits for an R2T.
    pub in_capsule: usize,
}

impl QueueOptions {
    /// An admin queue of a new controller of `subsystem`.
    #[must_use]
    pub fn admin(subsystem: &str) -> Self {
        Self {
            subsystem: subsystem.to_owned(),
            host: "nqn.2014-08.org.nvmexpress:uuid:7d3c2ffe-0000-4000-8000-6e766d652d69".to_owned(),
            host_id: *b"nvme-initiator 0",
            id: 0,
            controller: nvme_wire::fabrics::CNTLID_DYNAMIC,
            entries: 32,
            keep_alive_ms: 0,
            digests: Digests::default(),
            hpda: 0,
            no_flow_control: false,
            in_capsule: 8192,
        }
    }
}

/// A command that has ended.
#[derive(Debug)]
pub struct Done {
    /// Identifier of the command.
    pub cid: u16,
    /// Its status.
    pub status: Status,
    /// Its result.
    pub result: u64,
    /// The data that it was started with, or that the target has sent.
    pub data: Vec<u8>,
}

impl Done {
    /// Return the command itself if it has succeeded.
    ///
    /// # Errors
    ///
    /// It has not.
    pub fn ok(self, what: &'static str) -> Result<Self, Error> {
        if self.status.is_success() {
            return Ok(self);
        }
        Err(Error::Failed {
            what,
            status: self.status,
            result: self.result,
        })
    }
}

#[derive(Debug, Default)]
struct Slot {
    busy: bool,
    reads: bool,
    data: Vec<u8>,
    received: usize,
}

/// A queue.
#[derive(Debug)]
pub struct Queue {
    wire: Wire,
    options: QueueOptions,
    slots: Vec<Slot>,
    free: Vec<u16>,
    busy: usize,
    h2c_max: usize,
    /// CNTLID that Connect has returned.
    controller: u16,
}

impl Queue {
    /// Connect a queue.
    ///
    /// # Errors
    ///
    /// The target refuses the queue.
    pub fn connect(address: SocketAddr, options: QueueOptions) -> Result<Self, Error> {
        let mut wire = Wire::open(address)?;
        let response = wire.initialize(options.digests, options.hpda)?;
        let count = options.entries.saturating_sub(1).max(1);
        let mut this = Self {
            wire,
            slots: (0..count).map(|_| Slot::default()).collect(),
            free: (0..count).rev().collect(),
            busy: 0,
            h2c_max: response.max_h2c_data.get() as usize,
            controller: 0,
            options,
        };
        let (command, data) = this.connect_command();
        // The data of Connect is always in its capsule.
        let in_capsule = std::mem::replace(&mut this.options.in_capsule, data.len());
        let done = this.run(command, data, 0)?.ok("Connect")?;
        this.options.in_capsule = in_capsule;
        this.controller = done.result as u16;
        Ok(this)
    }

    fn connect_command(&self) -> (Submission, Vec<u8>) {
        let options = &self.options;
        let mut command = ConnectCommand::zeroed();
        command.opcode = 0x7F;
        command.kind = 0x01;
        command.queue = U16::new(options.id);
        command.queue_size = U16::new(options.entries.saturating_sub(1));
        command.keep_alive_ms.set(options.keep_alive_ms);
        if options.no_flow_control {
            command.attributes = CATTR_NO_FLOW_CONTROL;
        }
        let mut data = ConnectData::zeroed();
        data.host_id = options.host_id;
        data.controller = U16::new(options.controller);
        data.subsystem = nqn(&options.subsystem);
        data.host = nqn(&options.host);
        let mut submission = Submission::zeroed();
        if let Ok(same) = Submission::read_from_bytes(command.as_bytes()) {
            submission = same;
        }
        (submission, data.as_bytes().to_vec())
    }

    /// CNTLID.
    #[must_use]
    pub fn controller(&self) -> u16 {
        self.controller
    }

    /// The connection, for PDUs that a queue would not send.
    pub fn wire(&mut self) -> &mut Wire {
        &mut self.wire
    }

    /// Commands that are on their way.
    #[must_use]
    pub fn busy(&self) -> usize {
        self.busy
    }

    /// Start a command that sends `data` (none: an empty one) or receives `read` bytes. SGL and CID
    /// are filled in. It is sent by [`Queue::flush`] or [`Queue::wait`].
    ///
    /// # Errors
    ///
    /// The queue is full.
    pub fn start(
        &mut self,
        mut command: Submission,
        data: Vec<u8>,
        read: usize,
    ) -> Result<u16, Error> {
        let cid = self
            .free
            .pop()
            .ok_or_else(|| Error::Protocol("more commands than entries".to_owned()))?;
        let slot = &mut self.slots[usize::from(cid)];
        slot.busy = true;
        slot.reads = read > 0;
        slot.received = 0;
        slot.data = data;
        self.busy += 1;
        command.cid = U16::new(cid);
        command.flags |= 0b01 << 6;
        if read > 0 {
            slot.data.resize(read, 0);
            command.sgl = Sgl::new(SglKind::Transport, read as u32);
            self.wire.put_command(&command, &[]);
        } else if slot.data.is_empty() || slot.data.len() > self.options.in_capsule {
            command.sgl = Sgl::new(SglKind::Transport, slot.data.len() as u32);
            self.wire.put_command(&command, &[]);
        } else {
            command.sgl = Sgl::new(SglKind::InCapsule, slot.data.len() as u32);
            self.wire.put_command(&command, &slot.data);
        }
        Ok(cid)
    }

    /// Send the commands that were started.
    ///
    /// # Errors
    ///
    /// The connection is gone.
    pub fn flush(&mut self) -> Result<(), Error> {
        self.wire.flush()
    }

    /// Whether [`Queue::wait`] can probably return a command without waiting.
    #[must_use]
    pub fn has_more(&self) -> bool {
        self.wire.has_buffered()
    }

    /// Wait for a command to end.
    ///
    /// # Errors
    ///
    /// The connection is gone, or the target breaks the protocol.
    pub fn wait(&mut self) -> Result<Done, Error> {
        self.wire.flush()?;
        loop {
            let slots = &mut self.slots;
            let incoming = self.wire.receive_into(|pdu, len| {
                let slot = slots
                    .get_mut(usize::from(pdu.cid.get()))
                    .filter(|slot| slot.busy && slot.reads)
                    .ok_or_else(|| Error::Protocol(format!("data nobody wants: {pdu:?}")))?;
                let offset = pdu.offset.get() as usize;
                if offset != slot.received {
                    return Err(Error::Protocol(format!("data out of order: {pdu:?}")));
                }
                slot.received += len;
                slot.data
                    .get_mut(offset..offset + len)
                    .ok_or_else(|| Error::Protocol(format!("too much data: {pdu:?}")))
            })?;
            match incoming {
                Incoming::Data {
                    cid, success, last, ..
                } => {
                    if success && !last {
                        return Err(Error::Protocol("success before the last data".to_owned()));
                    }
                    if success {
                        return self.end(&Completion::new(cid, 0, Status::Success, 0));
                    }
                }
                Incoming::Done(completion) => return self.end(&completion),
                Incoming::Ready(r2t) => {
                    let slot = self
                        .slots
                        .get(usize::from(r2t.cid.get()))
                        .filter(|slot| slot.busy && !slot.reads)
                        .filter(|slot| {
                            let end = u64::from(r2t.offset.get()) + u64::from(r2t.length.get());
                            end <= slot.data.len() as u64
                        })
                        .ok_or_else(|| Error::Protocol(format!("asks for nothing: {r2t:?}")))?;
                    self.wire.put_data(&r2t, &slot.data, self.h2c_max);
                    self.wire.flush()?;
                }
                Incoming::Terminated(request) => return Err(Error::Terminated(request.fatal())),
                Incoming::Initialized(_) => {
                    return Err(Error::Protocol("a second ICResp".to_owned()));
                }
            }
        }
    }

    fn end(&mut self, completion: &Completion) -> Result<Done, Error> {
        let cid = completion.cid.get();
        let slot = self
            .slots
            .get_mut(usize::from(cid))
            .filter(|slot| slot.busy)
            .ok_or_else(|| Error::Protocol(format!("ends no command: {completion:?}")))?;
        let status = completion.status();
        if slot.reads && status.is_success() && slot.received != slot.data.len() {
            return Err(Error::Protocol(format!(
                "{} bytes of {} for {completion:?}",
                slot.received,
                slot.data.len()
            )));
        }
        slot.busy = false;
        self.busy -= 1;
        self.free.push(cid);
        Ok(Done {
            cid,
            status,
            result: completion.result.get(),
            data: std::mem::take(&mut slot.data),
        })
    }

    /// Start a command and wait for it. No others may be on their way.
    ///
    /// # Errors
    ///
    /// As [`Queue::wait`].
    pub fn run(&mut self, command: Submission, data: Vec<u8>, read: usize) -> Result<Done, Error> {
        self.start(command, data, read)?;
        self.wait()
    }
}
