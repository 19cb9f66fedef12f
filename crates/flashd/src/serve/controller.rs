//! A controller: what a host has set, what it is to be told, and its queues.
//!
//! It lives from the Connect of its admin queue to the end of that connection.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use nvme_wire::{
    Status, Submission,
    discovery::DISCOVERY_NQN,
    event::Event,
    feature::{HostBehavior, Timestamp},
    log::ErrorEntry,
    opcode::AdminOpcode,
    property::{
        CSTS_FATAL, CSTS_READY, CSTS_SHUTDOWN_COMPLETE, Capabilities, Configuration, Property,
        VERSION_2_0,
    },
};
use zerocopy::little_endian::{U16, U32, U64};

use super::{
    admin,
    connection::Need,
    events::Events,
    io,
    reply::{End, Reply},
    send::Sender,
    subsystem::{ERROR_ENTRIES, IO_QUEUES_MAX, QUEUE_ENTRIES_MAX, Subsystem, lock},
};

/// A controller.
#[derive(Debug)]
pub(super) struct Controller {
    pub(super) id: u16,
    pub(super) is_discovery: bool,
    pub(super) host: String,
    pub(super) host_id: [u8; 16],
    configuration: AtomicU32,
    status: AtomicU32,
    made: Instant,
    seen_ms: AtomicU64,
    queues: Mutex<BTreeMap<u16, Arc<Sender>>>,
    /// Which namespaces were healthy when they were looked at.
    healthy: Mutex<Vec<bool>>,
    errors: Mutex<Errors>,
    events: Mutex<Events>,
    pub(super) settings: Settings,
}

/// What a host can set with Set Features; a reset puts all of it back.
#[derive(Debug)]
pub(super) struct Settings {
    /// 0 where the host does not want it.
    pub(super) keep_alive_ms: AtomicU32,
    pub(super) io_queues: AtomicU32,
    pub(super) event_configuration: AtomicU32,
    pub(super) write_cache: AtomicBool,
    pub(super) die_hints: AtomicBool,
    pub(super) behavior: Mutex<HostBehavior>,
    timestamp: Mutex<Option<(u64, Instant)>>,
}

#[derive(Debug, Default)]
struct Errors {
    count: u64,
    latest: VecDeque<ErrorEntry>,
}

impl Controller {
    pub(super) fn new(
        id: u16,
        is_discovery: bool,
        host: &str,
        host_id: [u8; 16],
        keep_alive_ms: u32,
        subsystem: &Subsystem,
    ) -> Self {
        Self {
            id,
            is_discovery,
            host: host.to_owned(),
            host_id,
            configuration: AtomicU32::new(0),
            status: AtomicU32::new(0),
            made: Instant::now(),
            seen_ms: AtomicU64::new(0),
            queues: Mutex::default(),
            healthy: Mutex::new(health(subsystem)),
            errors: Mutex::default(),
            events: Mutex::default(),
            settings: Settings {
                keep_alive_ms: AtomicU32::new(keep_alive_ms),
                io_queues: AtomicU32::new(IO_QUEUES_MAX),
                event_configuration: AtomicU32::new(0),
                write_cache: AtomicBool::new(true),
                die_hints: AtomicBool::new(false),
                behavior: Mutex::new(HostBehavior::zeroed()),
                timestamp: Mutex::new(None),
            },
        }
    }

    /// The name of the subsystem that it belongs to.
    pub(super) fn subsystem_nqn<'a>(&self, subsystem: &'a Subsystem) -> &'a str {
        if self.is_discovery {
            DISCOVERY_NQN
        } else {
            subsystem.nqn()
        }
    }

    /// The host was heard of: on any queue, as Traffic Based Keep Alive has it (Base §3.9).
    pub(super) fn seen(&self) {
        self.seen_ms.store(self.age_ms(), Ordering::Release);
    }

    fn age_ms(&self) -> u64 {
        self.made.elapsed().as_millis() as u64
    }

    /// Look after it, now and then. Whether it is to end, as its host is gone (Base §3.9).
    pub(super) fn tick(&self, subsystem: &Subsystem) -> bool {
        let timeout = u64::from(self.settings.keep_alive_ms.load(Ordering::Acquire));
        let silent = self
            .age_ms()
            .saturating_sub(self.seen_ms.load(Ordering::Acquire));
        if timeout > 0 && silent > timeout {
            tracing::warn!(
                controller = self.id,
                silent_ms = silent,
                "keep alive timer expired"
            );
            self.status.fetch_or(CSTS_FATAL, Ordering::AcqRel);
            return true;
        }
        self.look_at_namespaces(subsystem);
        false
    }

    /// Tell the host of namespaces that are no longer healthy, or are again.
    fn look_at_namespaces(&self, subsystem: &Subsystem) {
        let now = health(subsystem);
        let mut healthy = lock(&self.healthy);
        if *healthy == now {
            return;
        }
        let namespaces = subsystem.device.namespaces().iter();
        let mut events = lock(&self.events);
        for (namespace, (before, now)) in namespaces.zip(healthy.iter().zip(&now)) {
            if before != now {
                tracing::warn!(nsid = namespace.id, healthy = now, "namespace has changed");
                self.raise_if_wanted(&mut events, Event::NamespaceChanged, |events| {
                    events.namespace_changed(namespace.id);
                });
                if !now {
                    self.raise_if_wanted(&mut events, Event::Reliability, |events| {
                        events.raise(Event::Reliability);
                    });
                }
            }
        }
        *healthy = now;
        drop(events);
        self.tell();
    }

    fn raise_if_wanted(&self, events: &mut Events, event: Event, raise: impl FnOnce(&mut Events)) {
        let wanted = self.settings.event_configuration.load(Ordering::Acquire);
        if wanted & event.enabled_by() != 0 {
            raise(events);
        }
    }

    /// Answer Asynchronous Event Requests for which there is something.
    pub(super) fn tell(&self) {
        loop {
            let next = lock(&self.events).next();
            let (Some((cid, event)), Some(sender)) = (next, self.queue(0)) else {
                return;
            };
            sender.success(cid, event.result().into());
        }
    }

    /// What is known of events, to read or change.
    pub(super) fn events<T>(&self, with: impl FnOnce(&mut Events) -> T) -> T {
        with(&mut lock(&self.events))
    }

    /// I/O queues that a host may connect.
    pub(super) fn io_queues(&self) -> u32 {
        self.settings.io_queues.load(Ordering::Acquire)
    }

    fn queue(&self, id: u16) -> Option<Arc<Sender>> {
        lock(&self.queues).get(&id).cloned()
    }

    /// Whether there is a queue with this identifier.
    pub(super) fn has_queue(&self, id: u16) -> bool {
        lock(&self.queues).contains_key(&id)
    }

    /// Whether a host has connected I/O queues.
    pub(super) fn has_io_queues(&self) -> bool {
        lock(&self.queues).range(1..).next().is_some()
    }

    /// A connection becomes a queue; false if there is one with this identifier.
    pub(super) fn add_queue(&self, id: u16, sender: &Arc<Sender>) -> bool {
        let mut queues = lock(&self.queues);
        if queues.contains_key(&id) {
            return false;
        }
        queues.insert(id, Arc::clone(sender));
        true
    }

    fn end_io_queues(&self) {
        let queues: Vec<_> = {
            let mut queues = lock(&self.queues);
            let mut io = queues.split_off(&1);
            std::mem::take(&mut io).into_values().collect()
        };
        for sender in queues {
            sender.kill();
        }
    }

    /// Whether commands other than those of Fabrics are processed.
    pub(super) fn is_ready(&self) -> bool {
        self.status.load(Ordering::Acquire) & CSTS_READY != 0
    }

    /// The value of a property; nothing if there is none of this size.
    pub(super) fn property(&self, offset: u32, size: Option<u8>) -> Option<u64> {
        let property = Property::from_raw(offset);
        if property.size()? != size? {
            return None;
        }
        Some(match property {
            Property::Capabilities => Capabilities {
                max_queue_entries: QUEUE_ENTRIES_MAX,
                timeout: 20,
                command_sets: !self.is_discovery,
                admin_only: self.is_discovery,
            }
            .raw(),
            Property::Version => VERSION_2_0.into(),
            Property::Configuration => self.configuration.load(Ordering::Acquire).into(),
            Property::Status => self.status.load(Ordering::Acquire).into(),
            Property::SubsystemReset | Property::Unknown(_) => return None,
        })
    }

    /// Set a property; false if that cannot be.
    pub(super) fn set_property(
        &self,
        offset: u32,
        size: Option<u8>,
        value: u64,
        subsystem: &Subsystem,
    ) -> bool {
        if Property::from_raw(offset) != Property::Configuration || size != Some(4) {
            return false;
        }
        let before = Configuration(self.configuration.swap(value as u32, Ordering::AcqRel));
        let now = Configuration(value as u32);
        if now.enabled() && !before.enabled() {
            self.enable(now);
        }
        if !now.enabled() && before.enabled() {
            self.reset();
        }
        if now.shutdown() != 0 && before.shutdown() == 0 {
            // What a normal shutdown promises (Base §3.6.1): nothing volatile is left.
            if let Err(failure) = subsystem.device.flush_all() {
                tracing::error!(%failure, "flush at shutdown");
            }
            self.status.fetch_and(!CSTS_READY, Ordering::AcqRel);
            self.status
                .fetch_or(CSTS_SHUTDOWN_COMPLETE, Ordering::AcqRel);
        }
        true
    }

    fn enable(&self, configuration: Configuration) {
        let possible = match configuration.command_sets() {
            0 | 6 => true,
            7 => self.is_discovery,
            _ => false,
        };
        let fits = possible
            && configuration.page_size() == 0
            && configuration.arbitration() == 0
            && matches!(configuration.submission_size(), 0 | 6)
            && matches!(configuration.completion_size(), 0 | 4);
        let status = if fits { CSTS_READY } else { CSTS_FATAL };
        self.status.store(status, Ordering::Release);
    }

    /// Controller reset (Base §3.7.2): I/O queues and settings are gone.
    fn reset(&self) {
        self.status.store(0, Ordering::Release);
        self.end_io_queues();
        lock(&self.events).clear();
        let settings = &self.settings;
        settings.io_queues.store(IO_QUEUES_MAX, Ordering::Release);
        settings.event_configuration.store(0, Ordering::Release);
        settings.write_cache.store(true, Ordering::Release);
        settings.die_hints.store(false, Ordering::Release);
        *lock(&settings.behavior) = HostBehavior::zeroed();
    }

    /// The error log, the latest first.
    pub(super) fn errors(&self) -> Vec<ErrorEntry> {
        lock(&self.errors).latest.iter().copied().collect()
    }

    /// Errors since it was made.
    pub(super) fn error_count(&self) -> u64 {
        lock(&self.errors).count
    }

    fn note_error(&self, mut entry: ErrorEntry) {
        let mut errors = lock(&self.errors);
        errors.count += 1;
        entry.count = U64::new(errors.count);
        errors.latest.push_front(entry);
        errors.latest.truncate(ERROR_ENTRIES);
    }
}

impl Settings {
    /// Whether the I/O goes by the hints in Write.
    pub(super) fn hints(&self) -> bool {
        self.die_hints.load(Ordering::Relaxed)
    }

    /// The host's time.
    pub(super) fn timestamp(&self) -> Timestamp {
        match *lock(&self.timestamp) {
            Some((milliseconds, since)) => {
                let passed = since.elapsed().as_millis() as u64;
                Timestamp::new(milliseconds.wrapping_add(passed), true)
            }
            None => {
                let now = SystemTime::now().duration_since(UNIX_EPOCH);
                Timestamp::new(now.unwrap_or(Duration::ZERO).as_millis() as u64, false)
            }
        }
    }

    pub(super) fn set_timestamp(&self, timestamp: &Timestamp) {
        *lock(&self.timestamp) = Some((timestamp.get(), Instant::now()));
    }
}

fn health(subsystem: &Subsystem) -> Vec<bool> {
    (0..subsystem.device.namespaces().len())
        .map(|namespace| subsystem.device.health(namespace).is_healthy())
        .collect()
}

/// A connection that is a queue of a controller.
#[derive(Debug)]
pub(super) struct Queue {
    pub(super) id: u16,
    pub(super) entries: u32,
    pub(super) subsystem: Arc<Subsystem>,
    pub(super) controller: Arc<Controller>,
    pub(super) sender: Arc<Sender>,
}

impl Queue {
    /// What data a command needs.
    pub(super) fn need(&self, command: &Submission) -> Result<Need, Status> {
        let is_fabrics = command.opcode == AdminOpcode::Fabrics.raw();
        if !is_fabrics && !self.controller.is_ready() {
            return Err(Status::SequenceError);
        }
        if self.id == 0 {
            admin::need(self, command)
        } else {
            io::need(self, command)
        }
    }

    /// Carry out a command whose data is there.
    pub(super) fn execute(self: &Arc<Self>, command: &Submission, data: &[u8]) {
        if self.id == 0 {
            admin::execute(self, command, data);
        } else {
            io::execute(self, command, data);
        }
    }

    /// A command has failed.
    pub(super) fn fail(&self, command: &Submission, status: Status) {
        self.fail_at(command, status, 0);
    }

    /// A command has failed after `result`.
    pub(super) fn fail_at(&self, command: &Submission, status: Status, result: u64) {
        let mut entry = ErrorEntry::zeroed();
        entry.queue = U16::new(self.id);
        entry.cid = command.cid;
        entry.status = U16::new(status.field());
        entry.location = U16::new(u16::MAX);
        entry.nsid = U32::new(command.nsid.get());
        if self.id > 0 {
            entry.lba = U64::new(command.cdw10_11());
        }
        entry.transport = nvme_wire::discovery::TRANSPORT_TCP;
        self.controller.note_error(entry);
        self.sender.reply(Reply::Done(End {
            cid: command.cid.get(),
            status,
            result,
        }));
    }

    /// A command has ended in some way.
    pub(super) fn end(&self, command: &Submission, result: Result<u64, Status>) {
        match result {
            Ok(result) => self.sender.success(command.cid.get(), result),
            Err(status) => self.fail(command, status),
        }
    }

    /// The connection is gone: an I/O queue's place is free, an admin queue takes its controller along.
    pub(super) fn gone(&self) {
        if self.id > 0 {
            let mut queues = lock(&self.controller.queues);
            // After a reset another connection may have its place.
            if queues
                .get(&self.id)
                .is_some_and(|sender| Arc::ptr_eq(sender, &self.sender))
            {
                queues.remove(&self.id);
            }
            return;
        }
        self.subsystem.remove_controller(self.controller.id);
        self.controller.status.store(0, Ordering::Release);
        self.controller.end_io_queues();
        lock(&self.controller.queues).clear();
    }
}
