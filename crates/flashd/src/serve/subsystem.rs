//! What all controllers share: the device, its name, its limits, what it has counted.

use std::{
    collections::HashMap,
    fmt::Write as _,
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use flash_model::Refused;
use nvme_wire::{Status, discovery::DISCOVERY_NQN};

use super::controller::Controller;
use crate::device::{Device, Failure, Namespace};

/// Most data of one command, in bytes.
pub const MAX_TRANSFER: usize = 1 << MAX_TRANSFER_SHIFT << 12;
/// The same as MDTS has it: a power of two over 4 KiB.
pub(super) const MAX_TRANSFER_SHIFT: u8 = 8;
/// Most entries of a queue.
pub(super) const QUEUE_ENTRIES_MAX: u32 = 1024;
/// Most I/O queues of a controller.
pub(super) const IO_QUEUES_MAX: u32 = 64;
/// Most data in a command capsule of an I/O queue, in bytes.
pub(super) const IN_CAPSULE_MAX: usize = 16 << 10;
/// Most data in a command capsule of an admin queue: what Fabrics asks for (TCP §3.3.2).
pub(super) const ADMIN_IN_CAPSULE_MAX: usize = 8 << 10;
/// Most data in one H2CData PDU.
pub(super) const H2C_DATA_MAX: usize = 256 << 10;
/// Asynchronous Event Requests and Aborts at a time.
pub(super) const EVENT_REQUESTS_MAX: usize = 4;
/// Entries of the error log.
pub(super) const ERROR_ENTRIES: usize = 64;
/// Source ranges of one Copy.
pub(super) const COPY_RANGES_MAX: usize = 128;
/// Bytes of one Copy.
pub(super) const COPY_BYTES_MAX: u64 = 128 << 20;
/// Moves of one In_Device_Defragment: a full command's data.
pub(super) const DEFRAGMENT_MOVES_MAX: u64 = (MAX_TRANSFER / 8) as u64;
/// Controllers at a time.
const CONTROLLERS_MAX: usize = 64;

/// What can be chosen about a target.
#[derive(Clone, Debug, Default)]
pub struct TargetOptions {
    /// Name of the subsystem; one that is made of the first namespace's UUID if there is none.
    pub nqn: Option<String>,
    /// Where the discovery log page says that it listens; where the host has reached it if there is
    /// none. For hosts behind a translation of addresses.
    pub advertise: Option<SocketAddr>,
}

/// What hosts did, of all controllers.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) reads: AtomicU64,
    pub(super) writes: AtomicU64,
    pub(super) read_bytes: AtomicU64,
    pub(super) written_bytes: AtomicU64,
    pub(super) media_errors: AtomicU64,
}

impl Counters {
    pub(super) fn read(&self, bytes: u64) {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.read_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn written(&self, bytes: u64) {
        self.writes.fetch_add(1, Ordering::Relaxed);
        self.written_bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// The NVM subsystem.
#[derive(Debug)]
pub(super) struct Subsystem {
    pub(super) device: Arc<Device>,
    pub(super) counters: Counters,
    pub(super) advertise: Option<SocketAddr>,
    pub(super) started: Instant,
    nqn: String,
    serial: String,
    controllers: Mutex<Controllers>,
}

#[derive(Debug, Default)]
struct Controllers {
    by_id: HashMap<u16, Arc<Controller>>,
    last: u16,
}

impl Subsystem {
    pub(super) fn new(device: Arc<Device>, options: TargetOptions) -> Self {
        let uuid = device.namespaces().first().map_or([0; 16], |n| n.uuid);
        let nqn = options
            .nqn
            .unwrap_or_else(|| format!("nqn.2014-08.org.nvmexpress:uuid:{}", uuid_text(&uuid)));
        let serial = uuid.iter().take(10).fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        });
        Self {
            device,
            counters: Counters::default(),
            advertise: options.advertise,
            started: Instant::now(),
            nqn,
            serial,
            controllers: Mutex::default(),
        }
    }

    pub(super) fn nqn(&self) -> &str {
        &self.nqn
    }

    /// 20 characters that are the same whenever the same backing file is used.
    pub(super) fn serial(&self) -> &str {
        &self.serial
    }

    /// Which subsystem a host wants: whether it is that of discovery; nothing if it is none of ours.
    pub(super) fn is_discovery(&self, name: &str) -> Option<bool> {
        if name == DISCOVERY_NQN {
            Some(true)
        } else {
            (name == self.nqn).then_some(false)
        }
    }

    /// The namespace with this identifier and its index in the device.
    pub(super) fn namespace(&self, nsid: u32) -> Option<(usize, &Namespace)> {
        self.device
            .namespaces()
            .iter()
            .enumerate()
            .find(|(_, namespace)| namespace.id == nsid)
    }

    /// The largest identifier of a namespace.
    pub(super) fn largest_nsid(&self) -> u32 {
        let ids = self.device.namespaces().iter().map(|n| n.id);
        ids.max().unwrap_or(0)
    }

    /// The status for what the device could not do; `media` for what went wrong below it.
    pub(super) fn status_of(&self, failure: &Failure, media: Status) -> Status {
        match failure {
            Failure::Refused(refused) => status_of_refusal(*refused),
            Failure::NoSpace(_) => Status::CapacityExceeded,
            Failure::Media(reason) => {
                self.counters.media_errors.fetch_add(1, Ordering::Relaxed);
                tracing::error!(reason, "the store failed");
                media
            }
            Failure::PowerLost => Status::AbortedPowerLoss,
        }
    }

    /// A new controller; nothing if there are too many.
    pub(super) fn add_controller(
        &self,
        make: impl FnOnce(u16) -> Controller,
    ) -> Option<Arc<Controller>> {
        let mut controllers = self.lock();
        if controllers.by_id.len() >= CONTROLLERS_MAX {
            return None;
        }
        let mut id = controllers.last;
        loop {
            // FFF0h and above are reserved (Base §6.3).
            id = if id >= 0xFFEF { 1 } else { id + 1 };
            if !controllers.by_id.contains_key(&id) {
                break;
            }
        }
        controllers.last = id;
        let controller = Arc::new(make(id));
        controllers.by_id.insert(id, Arc::clone(&controller));
        Some(controller)
    }

    pub(super) fn controller(&self, id: u16) -> Option<Arc<Controller>> {
        self.lock().by_id.get(&id).cloned()
    }

    pub(super) fn remove_controller(&self, id: u16) {
        self.lock().by_id.remove(&id);
    }

    pub(super) fn controllers(&self) -> usize {
        self.lock().by_id.len()
    }

    /// Identifiers of all controllers, ascending.
    pub(super) fn controller_ids(&self) -> Vec<u16> {
        let mut ids: Vec<u16> = self.lock().by_id.keys().copied().collect();
        ids.sort_unstable();
        ids
    }

    fn lock(&self) -> MutexGuard<'_, Controllers> {
        lock(&self.controllers)
    }
}

fn status_of_refusal(refused: Refused) -> Status {
    match refused {
        Refused::ZoneBoundary => Status::ZoneBoundary,
        Refused::ZoneFull => Status::ZoneFull,
        Refused::ZoneReadOnly => Status::ZoneReadOnly,
        Refused::ZoneOffline => Status::ZoneOffline,
        Refused::InvalidWrite => Status::ZoneInvalidWrite,
        Refused::TooManyActive => Status::TooManyActive,
        Refused::TooManyOpen => Status::TooManyOpen,
        Refused::InvalidTransition => Status::InvalidZoneTransition,
        Refused::OutOfRange => Status::LbaOutOfRange,
        Refused::Unaligned => Status::InvalidField,
        Refused::NotZoned => Status::InvalidOpcode,
        Refused::NoSuchNamespace => Status::InvalidNamespace,
        Refused::Overlap => Status::OverlappingRange,
        Refused::CapacityExceeded => Status::CapacityExceeded,
    }
}

/// What a thread that panicked has left is still consistent: critical sections here only insert,
/// remove and assign.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn uuid_text(uuid: &[u8; 16]) -> String {
    let mut text = String::with_capacity(36);
    for (index, byte) in uuid.iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        let _ = write!(text, "{byte:02x}");
    }
    text
}
