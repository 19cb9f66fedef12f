//! A controller: the settings of a host, the events for it, and its queues.
//!
//! It lives from the Connect of its admin queue to the end of that connection.

#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use nvme_wire::{
    Status,
    event::AsyncEvent,
    feature::{HostBehavior, Timestamp},
    property::{
        CC_READY_INDEPENDENT_OF_MEDIA, CSTS_FATAL, CSTS_READY, CSTS_SHUTDOWN_COMPLETE,
        CSTS_SHUTDOWN_OCCURRING, Capabilities, Configuration, Property, VERSION_2_0,
    },
};

use super::{
    error_log::ErrorLog,
    events::Events,
    keep_alive::KeepAlive,
    limits::{IO_QUEUES_MAX, QUEUE_ENTRIES_MAX},
    send::{Completed, Failed, Permit, Sender},
};
use crate::{
    device::{Device, Failure},
    lock::lock,
};

/// How long enabling may take, in units of 500 ms. It takes no time.
const READY_TIMEOUT: u8 = 20;

/// A controller.
#[derive(Debug)]
pub(super) struct Controller {
    pub(super) id: u16,
    pub(super) is_discovery: bool,
    pub(super) host: String,
    pub(super) host_id: [u8; 16],
    configuration: AtomicU32,
    status: AtomicU32,
    queues: Mutex<BTreeMap<u16, Arc<Sender>>>,
    /// For each namespace, whether it was healthy at the last look.
    healthy: Mutex<Vec<bool>>,
    pub(super) errors: Arc<ErrorLog>,
    pub(super) keep_alive: Arc<KeepAlive>,
    events: Mutex<Events<Permit>>,
    pub(super) settings: Settings,
}

/// The values that a host sets with Set Features; a reset puts them back.
#[derive(Debug)]
pub(super) struct Settings {
    pub(super) io_queues: AtomicU32,
    pub(super) event_configuration: AtomicU32,
    pub(super) write_cache: AtomicBool,
    pub(super) die_hints: AtomicBool,
    pub(super) behavior: Mutex<HostBehavior>,
    timestamp: Mutex<Option<(u64, Instant)>>,
}

impl Controller {
    pub(super) fn new(
        id: u16,
        is_discovery: bool,
        host: &str,
        host_id: [u8; 16],
        keep_alive_ms: u32,
        device: &Device,
    ) -> Self {
        Self {
            id,
            is_discovery,
            host: host.to_owned(),
            host_id,
            configuration: AtomicU32::new(0),
            status: AtomicU32::new(0),
            queues: Mutex::default(),
            healthy: Mutex::new(health(device)),
            errors: Arc::default(),
            keep_alive: Arc::new(KeepAlive::new(keep_alive_ms)),
            events: Mutex::default(),
            settings: Settings {
                io_queues: AtomicU32::new(IO_QUEUES_MAX),
                event_configuration: AtomicU32::new(0),
                write_cache: AtomicBool::new(true),
                die_hints: AtomicBool::new(false),
                behavior: Mutex::new(HostBehavior::zeroed()),
                timestamp: Mutex::new(None),
            },
        }
    }

    /// Check the keep alive timer and the namespaces; true if the controller has to end, as its
    /// host is gone (Base §3.9).
    pub(super) fn tick(&self, device: &Device) -> bool {
        if let Some(silent) = self.keep_alive.expired() {
            tracing::warn!(controller = self.id, ?silent, "keep alive timer expired");
            self.status.fetch_or(CSTS_FATAL, Ordering::AcqRel);
            return true;
        }
        self.look_at_namespaces(device);
        false
    }

    /// Tell the host of namespaces that are no longer healthy, or are again.
    fn look_at_namespaces(&self, device: &Device) {
        let now = health(device);
        let mut healthy = lock(&self.healthy);
        if *healthy == now {
            return;
        }
        let namespaces = device.namespaces().iter();
        let mut events = lock(&self.events);
        for (namespace, (before, now)) in namespaces.zip(healthy.iter().zip(&now)) {
            if before != now {
                tracing::warn!(nsid = namespace.id, healthy = now, "namespace has changed");
                self.raise_if_wanted(&mut events, AsyncEvent::NamespaceChanged, |events| {
                    events.namespace_changed(namespace.id);
                });
                if !now {
                    self.raise_if_wanted(&mut events, AsyncEvent::Reliability, |events| {
                        events.raise(AsyncEvent::Reliability);
                    });
                }
            }
        }
        *healthy = now;
        drop(events);
        self.tell();
    }

    fn raise_if_wanted(
        &self,
        events: &mut Events<Permit>,
        event: AsyncEvent,
        raise: impl FnOnce(&mut Events<Permit>),
    ) {
        let wanted = self.settings.event_configuration.load(Ordering::Acquire);
        if wanted & event.enabled_by() != 0 {
            raise(events);
        }
    }

    /// Complete Asynchronous Event Requests for which there is an event.
    pub(super) fn tell(&self) {
        loop {
            // Not in the condition of the loop: that would hold the lock over the completion.
            let next = lock(&self.events).next();
            let Some((request, event)) = next else {
                return;
            };
            request.complete(Ok(Completed::Result(event.result().into())));
        }
    }

    /// Keep an Asynchronous Event Request until there is an event.
    pub(super) fn wait_for_event(&self, permit: Permit) {
        match self.events(|events| events.request(permit.cid(), permit)) {
            Ok(()) => self.tell(),
            Err(permit) => permit.complete(Err(Status::EventLimitExceeded.into())),
        }
    }

    /// Abort an Asynchronous Event Request; false if no one with this identifier waits.
    pub(super) fn abort(&self, cid: u16) -> bool {
        let Some(request) = self.events(|events| events.abort(cid)) else {
            return false;
        };
        request.complete(Err(Failed::unlogged(Status::AbortRequested)));
        true
    }

    /// Read or change the events.
    pub(super) fn events<T>(&self, with: impl FnOnce(&mut Events<Permit>) -> T) -> T {
        with(&mut lock(&self.events))
    }

    /// I/O queues that a host may connect.
    pub(super) fn io_queues(&self) -> u32 {
        self.settings.io_queues.load(Ordering::Acquire)
    }

    /// Enable or disable the volatile write cache (Base §5.27.1.4). Once it is disabled, all is durable that has
    /// ended or ends.
    pub(super) fn set_write_cache(&self, enabled: bool, device: &Device) -> Result<(), Failure> {
        self.settings.write_cache.store(enabled, Ordering::Release);
        if enabled {
            return Ok(());
        }
        // A command may have seen it enabled, and not have changed the device yet.
        self.wait_for_io();
        device.flush_all()
    }

    /// Wait until the I/O commands that are being carried out have changed the device.
    fn wait_for_io(&self) {
        let queues: Vec<_> = lock(&self.queues)
            .range(1..)
            .map(|of| Arc::clone(of.1))
            .collect();
        for queue in queues {
            queue.wait_until_carried_out();
        }
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

    /// A connection is gone: its place is free, unless another one has it since a reset.
    pub(super) fn remove_queue(&self, id: u16, sender: &Arc<Sender>) {
        let mut queues = lock(&self.queues);
        if queues.get(&id).is_some_and(|of| Arc::ptr_eq(of, sender)) {
            queues.remove(&id);
        }
    }

    /// The admin connection is gone, and the controller with it. On return none of its commands
    /// changes the device any more.
    pub(super) fn end(&self) {
        self.status.store(0, Ordering::Release);
        self.end_io_queues();
        lock(&self.queues).clear();
    }

    /// A command of an old queue that was done after this would undo one of a new queue.
    fn end_io_queues(&self) {
        let queues: Vec<_> = {
            let mut queues = lock(&self.queues);
            let mut io = queues.split_off(&1);
            std::mem::take(&mut io).into_values().collect()
        };
        for sender in queues {
            sender.kill_and_wait();
        }
    }

    /// Whether commands other than those of Fabrics are processed.
    pub(super) fn is_ready(&self) -> bool {
        self.status.load(Ordering::Acquire) & CSTS_READY != 0
    }

    /// The value of a property; `None` if there is none of this size.
    pub(super) fn property(&self, offset: u32, size: Option<u8>) -> Option<u64> {
        let property = Property::from_raw(offset);
        if property.size()? != size? {
            return None;
        }
        Some(match property {
            Property::Capabilities => Capabilities {
                max_queue_entries: QUEUE_ENTRIES_MAX,
                timeout: READY_TIMEOUT,
                command_sets: !self.is_discovery,
                admin_only: self.is_discovery,
            }
            .raw(),
            Property::Version => VERSION_2_0.into(),
            Property::Configuration => self.configuration.load(Ordering::Acquire).into(),
            Property::Status => self.status.load(Ordering::Acquire).into(),
            Property::ReadyTimeouts => READY_TIMEOUT.into(),
            Property::SubsystemReset | Property::Unknown(_) => return None,
        })
    }

    /// Set a property; false if that cannot be.
    pub(super) fn set_property(
        &self,
        offset: u32,
        size: Option<u8>,
        value: u64,
        device: &Device,
    ) -> bool {
        if Property::from_raw(offset) != Property::Configuration || size != Some(4) {
            return false;
        }
        // This mode is not supported, and its bit stays 0 (Base §3.1.3.5).
        let now = Configuration(value as u32 & !CC_READY_INDEPENDENT_OF_MEDIA);
        let before = Configuration(self.configuration.swap(now.0, Ordering::AcqRel));
        if now.enabled() && !before.enabled() {
            self.enable(now);
        }
        if !now.enabled() && before.enabled() {
            self.reset();
        }
        if now.shutdown() != 0 && before.shutdown() == 0 {
            // Once it is complete nothing is volatile, and the power may go (Base §3.6.1).
            self.status.fetch_and(!CSTS_READY, Ordering::AcqRel);
            self.wait_for_io();
            let status = match device.flush_all() {
                Ok(()) => CSTS_SHUTDOWN_COMPLETE,
                Err(failure) => {
                    tracing::error!(%failure, "flush at shutdown");
                    CSTS_SHUTDOWN_OCCURRING | CSTS_FATAL
                }
            };
            self.status.fetch_or(status, Ordering::AcqRel);
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
        let forgotten = lock(&self.events).clear();
        forgotten.for_each(Permit::forget);
        let settings = &self.settings;
        settings.io_queues.store(IO_QUEUES_MAX, Ordering::Release);
        settings.event_configuration.store(0, Ordering::Release);
        settings.write_cache.store(true, Ordering::Release);
        settings.die_hints.store(false, Ordering::Release);
        *lock(&settings.behavior) = HostBehavior::zeroed();
    }
}

impl Settings {
    /// Whether the I/O follows the hints in Write.
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

fn health(device: &Device) -> Vec<bool> {
    (0..device.namespaces().len())
        .map(|namespace| device.health(namespace).is_healthy())
        .collect()
}
