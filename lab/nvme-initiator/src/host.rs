//! A host: a controller of its own, and queues.

use std::net::SocketAddr;

use nvme_wire::{
    feature::{Feature, Queues},
    identify::IDENTIFY_LEN,
    property::{CSTS_READY, Property},
};
use zerocopy::FromBytes;

use crate::{Done, Error, Queue, QueueOptions, command};

/// Options of a host.
#[derive(Clone, Debug)]
pub struct HostOptions {
    /// Its admin queue; the other queues have the same names and digests.
    pub admin: QueueOptions,
    /// Most bytes of data in a command capsule of an I/O queue.
    pub in_capsule: usize,
}

impl HostOptions {
    /// The usual options for a subsystem.
    #[must_use]
    pub fn new(subsystem: &str) -> Self {
        Self {
            admin: QueueOptions::admin(subsystem),
            in_capsule: 8192,
        }
    }
}

/// A host with its controller.
#[derive(Debug)]
pub struct Host {
    address: SocketAddr,
    options: HostOptions,
    admin: Queue,
}

impl Host {
    /// Connect, and enable the controller.
    ///
    /// # Errors
    ///
    /// The target refuses the connection, or does not become ready.
    pub fn connect(address: SocketAddr, options: HostOptions) -> Result<Self, Error> {
        let admin = Queue::connect(address, options.admin.clone())?;
        let mut this = Self {
            address,
            options,
            admin,
        };
        // EN, all I/O command sets, entries of 64 and 16 bytes; none at all for discovery.
        let sets = if this.property(Property::Capabilities, 8)? >> 43 & 1 != 0 {
            6
        } else {
            7
        };
        this.set_property(Property::Configuration, 1 | sets << 4 | 6 << 16 | 4 << 20)?;
        let status = this.property(Property::Status, 4)?;
        if status & u64::from(CSTS_READY) == 0 {
            return Err(Error::Protocol(format!("not ready: CSTS is {status:#x}")));
        }
        Ok(this)
    }

    /// The admin queue.
    pub fn admin(&mut self) -> &mut Queue {
        &mut self.admin
    }

    /// CNTLID.
    #[must_use]
    pub fn controller(&self) -> u16 {
        self.admin.controller()
    }

    /// Run an admin command.
    ///
    /// # Errors
    ///
    /// It fails.
    pub fn run(
        &mut self,
        what: &'static str,
        command: nvme_wire::Submission,
        data: Vec<u8>,
        read: usize,
    ) -> Result<Done, Error> {
        self.admin.run(command, data, read)?.ok(what)
    }

    /// A property.
    ///
    /// # Errors
    ///
    /// There is none.
    pub fn property(&mut self, property: Property, size: u8) -> Result<u64, Error> {
        let command = command::property_get(property.raw(), size);
        Ok(self.run("Property Get", command, Vec::new(), 0)?.result)
    }

    /// Set a property.
    ///
    /// # Errors
    ///
    /// It cannot be set.
    pub fn set_property(&mut self, property: Property, value: u32) -> Result<(), Error> {
        let command = command::property_set(property.raw(), value);
        self.run("Property Set", command, Vec::new(), 0)?;
        Ok(())
    }

    /// Identify: 4096 bytes.
    ///
    /// # Errors
    ///
    /// It fails.
    pub fn identify(&mut self, nsid: u32, cns: u8, set: u8) -> Result<Vec<u8>, Error> {
        let command = command::identify(nsid, cns, set);
        Ok(self
            .run("Identify", command, Vec::new(), IDENTIFY_LEN)?
            .data)
    }

    /// Identify, as a `T`; an error if `T` is larger than the data.
    ///
    /// # Errors
    ///
    /// It fails.
    pub fn identify_as<T: FromBytes>(&mut self, nsid: u32, cns: u8, set: u8) -> Result<T, Error> {
        let page = self.identify(nsid, cns, set)?;
        T::read_from_prefix(&page)
            .map(|(page, _)| page)
            .map_err(|_| Error::Protocol("Identify is too short".to_owned()))
    }

    /// A log page's first `len` bytes.
    ///
    /// # Errors
    ///
    /// It fails.
    pub fn log(&mut self, nsid: u32, page: u8, set: u8, len: usize) -> Result<Vec<u8>, Error> {
        let command = command::get_log(nsid, page, set, 0, len);
        Ok(self.run("Get Log Page", command, Vec::new(), len)?.data)
    }

    /// Ask for I/O queues; return how many there may be.
    ///
    /// # Errors
    ///
    /// It fails.
    pub fn ask_queues(&mut self, count: u32) -> Result<u32, Error> {
        let queues = Queues {
            submission: count,
            completion: count,
        };
        let command = command::set_features(Feature::NumberOfQueues.raw(), queues.raw());
        let done = self.run("Set Features", command, Vec::new(), 0)?;
        Ok(Queues::from_raw(done.result as u32).submission)
    }

    /// Connect an I/O queue (from 1) with this many entries.
    ///
    /// # Errors
    ///
    /// The target refuses the queue.
    pub fn queue(&self, id: u16, entries: u16) -> Result<Queue, Error> {
        Queue::connect(
            self.address,
            QueueOptions {
                id,
                entries,
                controller: self.controller(),
                keep_alive_ms: 0,
                in_capsule: self.options.in_capsule,
                ..self.options.admin.clone()
            },
        )
    }
}
