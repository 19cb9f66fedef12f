//! The SSD: the model gives the time, the store the bytes, and the pace sends the answer at that
//! time.
//!
//! The NVMe/TCP target and the FUSE mount share a [`Device`]. A request's effect on zones, mapping
//! and bytes is complete when [`Device::submit`] returns; its completion is called at the model's
//! time, on the pace's thread, or at once on the caller's if there is no latency. It knows no
//! protocol.
//!
//! Locks, in this order: the power, the store's for the model's state while that is saved, a zoned
//! namespace's `order` (zone writes reach the store in the order in which the model placed them), the
//! recording, the model, the faults, the store's others.

mod effect;
mod fault;
mod inject;
mod life;
mod lived;
mod log;
mod options;
mod persist;
mod request;
mod stats;
#[cfg(test)]
pub(crate) mod tests;

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard,
        atomic::{AtomicU64, Ordering},
    },
};

use flash_model::{
    Done, FlashGeometry, NamespaceKind, Profile, ReclaimUnits, Ticket, Zone, ZoneState,
};
use units::Nanos;

pub use fault::{ErrorFault, FaultError, FaultReport, SLOWEST, SlowDie};
pub use log::LoggedCommand;
pub use options::{DeviceOptions, NamespaceOptions, OpenError, StoreOptions};
pub use request::{Access, Failure, Request, RequestResult, Success};
pub use stats::{DeviceStats, NamespaceStats};

use crate::{
    lock::lock,
    pace::{Clock, LatencyHold, Lateness, Pace, Spinners},
    record::Recording,
    store::{Health, Store, StoreKind, ZoneRest},
};

/// The time after which the model is advanced again if it names none.
const LOOK_AGAIN_NS: u64 = 1_000_000;

/// A namespace as a host sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceInfo {
    /// NVMe's identifier: 1, 2 …
    pub id: u32,
    /// With zones or without.
    pub kind: NamespaceKind,
    /// Bytes of a logical block.
    pub block_bytes: u64,
    /// Bytes of all.
    pub size_bytes: u64,
    /// Unique, and the same whenever the same backing file is used.
    pub uuid: [u8; 16],
}

/// One SSD.
#[derive(Debug)]
pub struct Device {
    profile: Profile,
    namespaces: Vec<NamespaceInfo>,
    store: Store,
    /// One for each namespace; held over model and store where there are zones.
    order: Vec<Mutex<()>>,
    model: Mutex<flash_model::Device>,
    recording: Recording,
    log: log::CommandLog,
    clock: Clock,
    lateness: Arc<Lateness>,
    pace: Pace,
    /// Commands whose end the model does not know yet.
    pending: Mutex<Pending>,
    /// When the model is advanced next, in real nanoseconds.
    next_tick_ns: AtomicU64,
    /// Number of power cuts.
    power_cuts: Arc<AtomicU64>,
    /// See [`Self::hold_power`].
    powered: RwLock<()>,
    lived: lived::Lived,
    cache_bytes: u64,
    faults: fault::Faults,
    kinds: Vec<StoreKind>,
    _awake: Option<LatencyHold>,
    _spinners: Option<Spinners>,
}

/// Commands whose end the model reports later.
#[derive(Debug, Default)]
struct Pending {
    waiting: HashMap<Ticket, Waiting>,
    /// Ends that were reported before their command had been put into `waiting`.
    early: HashMap<Ticket, Nanos>,
    /// Commands that a power cut ended; nobody waits for their ends.
    lost: HashSet<Ticket>,
}

/// A completion for later.
struct Waiting(Box<dyn FnOnce(RequestResult) + Send>);

impl std::fmt::Debug for Waiting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Waiting")
    }
}

/// The time at which a request is answered.
enum AnswerTime {
    Now(RequestResult),
    /// In real nanoseconds.
    At(u64, Success),
    /// The same.
    FailsAt(u64, Failure),
    Later(Ticket, Success),
}

impl Device {
    /// The profile that it was opened with.
    #[must_use]
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// The namespaces, in the order of their identifiers. Requests name them by their index here.
    #[must_use]
    pub fn namespaces(&self) -> &[NamespaceInfo] {
        &self.namespaces
    }

    /// The health of a namespace's store.
    ///
    /// # Panics
    ///
    /// There is no such namespace.
    #[must_use]
    pub fn health(&self, namespace: usize) -> Health {
        self.store.namespaces[namespace].health()
    }

    /// Whether there is a volatile cache, so that a flush has an effect.
    #[must_use]
    pub fn has_volatile_cache(&self) -> bool {
        self.cache_bytes > 0
    }

    /// Do a request, and call `complete` at the time at which the model has it done. Unknown
    /// namespaces and addresses are refused; `data` must be whole logical blocks.
    pub fn submit<C>(self: &Arc<Self>, namespace: usize, request: &Request<'_>, complete: C)
    where
        C: FnOnce(RequestResult) + Send + 'static,
    {
        let power_cuts = Arc::clone(&self.power_cuts);
        let cuts = power_cuts.load(Ordering::Acquire);
        // What was done may be lost by the time of the answer.
        let complete = move |outcome: RequestResult| {
            let is_powered = power_cuts.load(Ordering::Acquire) == cuts;
            complete(if is_powered {
                outcome
            } else {
                Err(Failure::PowerLost)
            });
        };
        match self.start(namespace, request) {
            AnswerTime::Now(outcome) => complete(outcome),
            AnswerTime::At(deadline, success) => {
                self.pace.answer_at(deadline, move || complete(Ok(success)));
            }
            AnswerTime::FailsAt(deadline, failure) => {
                self.pace.run_at(deadline, move || complete(Err(failure)));
            }
            AnswerTime::Later(ticket, success) => {
                let waiting = Waiting(Box::new(move |outcome: RequestResult| {
                    complete(outcome.map(|_| success));
                }));
                self.wait_for(ticket, waiting);
            }
        }
    }

    /// Do a request and account for it in the model, but answer at once.
    ///
    /// # Errors
    ///
    /// As for the completion of [`Self::submit`].
    pub fn account(self: &Arc<Self>, namespace: usize, request: &Request<'_>) -> RequestResult {
        let cuts = self.power_cuts();
        let outcome = match self.start(namespace, request) {
            AnswerTime::Now(outcome) => outcome,
            AnswerTime::At(_, success) => Ok(success),
            AnswerTime::FailsAt(_, failure) => Err(failure),
            AnswerTime::Later(ticket, success) => {
                self.wait_for(ticket, Waiting(Box::new(|_| {})));
                Ok(success)
            }
        };
        if self.power_cuts() != cuts {
            return Err(Failure::PowerLost);
        }
        outcome
    }

    /// Run something on the thread that sends answers, soon; at once if the device has no latencies
    /// and so no such thread.
    pub fn on_pace(&self, job: impl FnOnce() + Send + 'static) {
        if self.profile.is_instant() {
            job();
        } else {
            self.pace.run_at(0, job);
        }
    }

    /// Fill `into` with the data of a namespace at `offset`.
    ///
    /// # Errors
    ///
    /// The range is not whole logical blocks of the namespace, or cannot be read.
    pub fn read_into(&self, namespace: usize, offset: u64, into: &mut [u8]) -> Result<(), Failure> {
        self.check_range(namespace, offset, into.len() as u64)?;
        Ok(self.store.namespaces[namespace].read(offset, into)?)
    }

    /// The same with data that a power cut leaves: if need be it becomes durable, without the model's time.
    ///
    /// # Errors
    ///
    /// As for [`Self::read_into`], and it cannot be made durable, or the power was cut meanwhile.
    pub fn read_durably(
        &self,
        namespace: usize,
        offset: u64,
        into: &mut [u8],
    ) -> Result<(), Failure> {
        let cuts = self.power_cuts();
        self.read_into(namespace, offset, into)?;
        // In this order: others may write until it is read.
        self.apply(namespace, &crate::store::Change::Flush)?;
        if self.power_cuts() != cuts {
            return Err(Failure::PowerLost);
        }
        Ok(())
    }

    /// Make everything durable, in all namespaces, without the model's time. One that is out of service has nothing
    /// that is not.
    ///
    /// # Errors
    ///
    /// The failure of the first namespace that failed; the others are flushed all the same.
    pub fn flush_all(&self) -> Result<(), Failure> {
        let mut result = Ok(());
        for namespace in 0..self.namespaces.len() {
            if matches!(self.health(namespace), Health::Failed(_)) {
                continue;
            }
            let flushed = self.apply(namespace, &crate::store::Change::Flush);
            result = result.and(flushed.map_err(Failure::from));
        }
        result
    }

    /// Cut the power, and have it back at once: data that no flush or FUA covered is gone, write
    /// pointers are where the durable data ends, open zones are closed, requests that wait for
    /// their answer get [`Failure::PowerLost`]. Return the number of bytes that were lost.
    pub fn power_cut(&self) -> u64 {
        let _alone = self.powered.write().unwrap_or_else(PoisonError::into_inner);
        let _orders: Vec<MutexGuard<'_, ()>> = self.order.iter().map(lock).collect();
        let mut recording = self.recording.lock();
        let mut model = lock(&self.model);
        self.power_cuts.fetch_add(1, Ordering::AcqRel);
        let mut lost = 0;
        for (index, namespace) in self.store.namespaces.iter().enumerate() {
            lost += namespace.volatile_bytes();
            restore_zones(&mut model, index, &namespace.power_cut());
        }
        recording.power_cut();
        drop((model, recording));
        let mut pending = lock(&self.pending);
        let waiting: Vec<(Ticket, Waiting)> = pending.waiting.drain().collect();
        pending
            .lost
            .extend(waiting.iter().map(|(ticket, _)| *ticket));
        drop(pending);
        for (_, Waiting(complete)) in waiting {
            complete(Err(Failure::PowerLost));
        }
        tracing::warn!(lost_bytes = lost, "power cut");
        lost
    }

    /// Have a power cut wait until the result is dropped. A command that is carried out meanwhile changes nothing after
    /// it, when its host may be connected again.
    pub(crate) fn hold_power(&self) -> RwLockReadGuard<'_, ()> {
        self.powered.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// How often the power was cut. A connection that sees it grow has lost its controller.
    #[must_use]
    pub fn power_cuts(&self) -> u64 {
        self.power_cuts.load(Ordering::Acquire)
    }

    /// The zones of a namespace; none for a conventional one.
    #[must_use]
    pub fn zones(&self, namespace: usize) -> Vec<Zone> {
        lock(&self.model).zones(namespace).to_vec()
    }

    /// The geometry of the flash.
    #[must_use]
    pub fn geometry(&self) -> FlashGeometry {
        lock(&self.model).geometry()
    }

    /// A copy of the model as it is now, to ask it what something would take.
    #[must_use]
    pub fn model(&self) -> flash_model::Device {
        lock(&self.model).clone()
    }

    /// The bytes of a namespace that hold data, by the model's mapping and zones.
    #[must_use]
    pub fn used_bytes(&self, namespace: usize) -> u64 {
        lock(&self.model).used_bytes(namespace)
    }

    /// The reclaim units of a namespace; none of a zoned one, or if the profile has no handles.
    #[must_use]
    pub fn reclaim_units(&self, namespace: usize) -> Option<ReclaimUnits> {
        lock(&self.model).reclaim_units(namespace)
    }

    /// The reclaim unit handles of a namespace; 0 if it has none.
    ///
    /// # Panics
    ///
    /// There is no such namespace.
    #[must_use]
    pub fn reclaim_unit_handles(&self, namespace: usize) -> u32 {
        match self.namespaces[namespace].kind {
            NamespaceKind::Conventional => self.profile.reclaim_unit_handles(),
            NamespaceKind::Zoned => 0,
        }
    }

    /// The part of the rated erases that the most worn namespace has used, in percent, on average
    /// over its blocks or zones. May be over 100; 0 if the profile rates none.
    #[must_use]
    pub fn endurance_used_percent(&self) -> f64 {
        let wear = lock(&self.model).stats().wear;
        let mean = wear.iter().map(|wear| wear.mean).fold(0.0, f64::max);
        let rated = self.profile.endurance();
        rated.map_or(0.0, |rated| mean * 100.0 / f64::from(rated))
    }

    /// The recording of all changes to the device.
    #[must_use]
    pub fn recording(&self) -> &Recording {
        &self.recording
    }

    /// Begin to log commands, in memory; an earlier log is dropped.
    pub fn begin_command_log(&self) {
        self.log.begin();
    }

    /// End the log, and return the commands in the order in which the model took them.
    #[must_use]
    pub fn take_command_log(&self) -> Vec<LoggedCommand> {
        self.log.take()
    }

    /// How late answers were.
    #[must_use]
    pub fn lateness(&self) -> &Lateness {
        &self.lateness
    }

    /// The clock that the model goes by.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// From now on the model's time goes `scale` times slower than the real one. Commands that are
    /// under way may still be answered at the times that they were given. `None` for a scale that
    /// is no positive number: nothing changes.
    pub fn set_time_scale(self: &Arc<Self>, scale: f64) -> Option<()> {
        self.clock.set_scale(scale)?;
        // A tick that was planned for later may be due sooner.
        self.next_tick_ns.store(u64::MAX, Ordering::Release);
        self.look_after_model();
        Some(())
    }

    fn start(self: &Arc<Self>, namespace: usize, request: &Request<'_>) -> AnswerTime {
        let Some(&NamespaceInfo {
            id,
            kind,
            block_bytes,
            ..
        }) = self.namespaces.get(namespace)
        else {
            return AnswerTime::Now(Err(flash_model::Refused::NoSuchNamespace.into()));
        };
        if !request.is_whole(block_bytes) {
            return AnswerTime::Now(Err(flash_model::Refused::Unaligned.into()));
        }
        if let Health::Failed(damage) = self.health(namespace) {
            return AnswerTime::Now(Err(Failure::Media(damage)));
        }
        let ordered = kind == NamespaceKind::Zoned && !request.only_reads();
        let _order = ordered.then(|| lock(&self.order[namespace]));
        let mut model = lock(&self.model);
        let append_at = |zone| write_pointer(model.zones(namespace), zone);
        match self.faults.strike(id, request, append_at) {
            None => {}
            Some((access, 0)) => return AnswerTime::Now(Err(Failure::Injected(access))),
            Some((access, delay_ns)) => {
                let deadline = self.clock.real_ns().saturating_add(delay_ns);
                return AnswerTime::FailsAt(deadline, Failure::Injected(access));
            }
        }
        let now = self.clock.model_now();
        let accepted = match model.submit(now, namespace, &request.command()) {
            Ok(accepted) => accepted,
            Err(refused) => return AnswerTime::Now(Err(refused.into())),
        };
        self.log
            .note(namespace, request.command(), now, accepted.done);
        let changes = request.zone_changes(model.zones(namespace));
        drop(model);
        if let Err(error) = self.carry_out(namespace, request, accepted.wrote_at, &changes) {
            self.take_back(namespace);
            if let Done::Later(ticket) = accepted.done {
                // The model reports its end all the same.
                self.wait_for(ticket, Waiting(Box::new(|_| {})));
            }
            return AnswerTime::Now(Err(error.into()));
        }
        let success = Success {
            wrote_at: accepted.wrote_at,
        };
        match accepted.done {
            Done::At(at) if at <= now => AnswerTime::Now(Ok(success)),
            Done::At(at) => AnswerTime::At(self.clock.deadline_ns(at), success),
            Done::Later(ticket) => AnswerTime::Later(ticket, success),
        }
    }

    fn check_range(&self, namespace: usize, offset: u64, len: u64) -> Result<(), Failure> {
        let refused = flash_model::Refused::NoSuchNamespace;
        let of = self.namespaces.get(namespace).ok_or(refused)?;
        if !offset.is_multiple_of(of.block_bytes) || !len.is_multiple_of(of.block_bytes) {
            return Err(flash_model::Refused::Unaligned.into());
        }
        match offset.checked_add(len) {
            Some(end) if end <= of.size_bytes => Ok(()),
            _ => Err(flash_model::Refused::OutOfRange.into()),
        }
    }

    /// Have `waiting` called when the model reports that a command is done.
    fn wait_for(self: &Arc<Self>, ticket: Ticket, waiting: Waiting) {
        let mut pending = lock(&self.pending);
        match pending.early.remove(&ticket) {
            Some(at) => {
                drop(pending);
                self.answer(at, waiting);
            }
            None => {
                pending.waiting.insert(ticket, waiting);
                drop(pending);
                self.look_after_model();
            }
        }
    }

    /// Answer a command that was done at `at`. Its end is known only then, so nothing can be taken
    /// off for the path.
    fn answer(&self, at: Nanos, Waiting(complete): Waiting) {
        let deadline = self.clock.real_of(at);
        self.pace
            .answer_at(deadline, move || complete(Ok(Success::default())));
    }

    /// Have the model finish its background work, at the times at which it is due.
    fn look_after_model(self: &Arc<Self>) {
        let next = lock(&self.model).next_event();
        let at = match next {
            Some(next) => self.clock.real_of(next).max(1),
            // Somebody waits, so something will be in motion.
            None => self.clock.real_ns() + LOOK_AGAIN_NS,
        };
        // A tick before that one looks again anyway.
        if self.next_tick_ns.fetch_min(at, Ordering::AcqRel) <= at {
            return;
        }
        let device = Arc::downgrade(self);
        self.pace.run_at(at, move || {
            if let Some(device) = device.upgrade() {
                device.tick();
            }
        });
    }

    fn tick(self: &Arc<Self>) {
        self.next_tick_ns.store(u64::MAX, Ordering::Release);
        let mut finished = Vec::new();
        lock(&self.model).advance(self.clock.model_now(), &mut finished);
        self.log.finish(&finished);
        let mut done = Vec::with_capacity(finished.len());
        let mut pending = lock(&self.pending);
        for (ticket, at) in finished {
            match pending.waiting.remove(&ticket) {
                Some(waiting) => done.push((at, waiting)),
                None if pending.lost.remove(&ticket) => {}
                None => {
                    pending.early.insert(ticket, at);
                }
            }
        }
        let more = !pending.waiting.is_empty();
        drop(pending);
        for (at, waiting) in done {
            self.answer(at, waiting);
        }
        if more {
            self.look_after_model();
        }
    }
}

/// The write pointer of the zone that begins at `start`; `start` if none does.
fn write_pointer(zones: &[Zone], start: u64) -> u64 {
    let zone = zones.binary_search_by_key(&start, |zone| zone.start);
    zone.map_or(start, |index| zones[index].write_pointer)
}

/// Put the model's zones into the states of the store's.
fn restore_zones(model: &mut flash_model::Device, namespace: usize, zones: &[ZoneRest]) {
    restore_zones_if(model, namespace, zones, |_, _| true);
}

/// The same with those for which `wanted` says so.
fn restore_zones_if(
    model: &mut flash_model::Device,
    namespace: usize,
    zones: &[ZoneRest],
    wanted: fn(&Zone, ZoneRest) -> bool,
) {
    for (index, rest) in zones.iter().enumerate() {
        let Some(zone) = model.zones(namespace).get(index).copied() else {
            return;
        };
        if !wanted(&zone, *rest) {
            continue;
        }
        let (state, written) = match *rest {
            ZoneRest::Written(0) => (ZoneState::Empty, 0),
            ZoneRest::Written(bytes) if bytes == zone.capacity => (ZoneState::Full, bytes),
            ZoneRest::Written(bytes) => (ZoneState::Closed, bytes),
            ZoneRest::Finished(bytes) => (ZoneState::Full, bytes),
            ZoneRest::ReadOnly(bytes) => (ZoneState::ReadOnly, bytes),
            ZoneRest::Offline => (ZoneState::Offline, 0),
        };
        model.restore_zone(namespace, index, state, zone.start + written);
    }
}

/// Whether a zone of the model is not as the store's; that one knows nothing of zones that are open.
fn differs(zone: &Zone, rest: ZoneRest) -> bool {
    match rest {
        ZoneRest::Written(bytes) if bytes == zone.capacity => zone.state != ZoneState::Full,
        ZoneRest::Written(bytes) => {
            let is_writable = zone.state == ZoneState::Empty || zone.state.is_active();
            !is_writable || zone.write_pointer != zone.start + bytes
        }
        ZoneRest::Finished(_) => zone.state != ZoneState::Full,
        ZoneRest::ReadOnly(_) => zone.state != ZoneState::ReadOnly,
        ZoneRest::Offline => zone.state != ZoneState::Offline,
    }
}
