//! The subsystem, which all controllers share: its name, its device, its controllers.

use std::{
    collections::HashMap,
    fmt::Write as _,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard},
};

use nvme_wire::discovery::DISCOVERY_NQN;

use super::{
    backend::Backend,
    controller::Controller,
    fdp::Fdp,
    limits::{CONTROLLERS_MAX, DEFRAGMENT_MOVES_MAX, Timeouts},
    room::Room,
};
use crate::{device::Device, lock::lock};

/// Options of a target.
#[derive(Clone, Debug, Default)]
pub struct TargetOptions {
    /// Name of the subsystem; one that is made of the first namespace's UUID if there is none.
    pub nqn: Option<String>,
    /// The address in the discovery log page; the one at which the host has reached the target if
    /// there is none. For hosts behind a translation of addresses.
    pub advertise: Option<SocketAddr>,
    /// Namespaces are private (Base §2.4.1): one controller at a time has them, and a host sees that
    /// there is no other path to them.
    pub private: bool,
    /// `In_Device_Defragment` is not offered: hosts have the standard Copy.
    pub standard_only: bool,
    /// The time that hosts may take.
    pub timeouts: Timeouts,
}

/// The NVM subsystem.
#[derive(Debug)]
pub(super) struct Subsystem {
    pub(super) backend: Arc<Backend>,
    pub(super) advertise: Option<SocketAddr>,
    pub(super) is_private: bool,
    /// Largest number of moves of an `In_Device_Defragment`; 0 if it is not offered.
    pub(super) defragment_max: u64,
    pub(super) timeouts: Timeouts,
    pub(super) room: Arc<Room>,
    pub(super) fdp: Fdp,
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
            fdp: Fdp::new(&device),
            backend: Arc::new(Backend::new(device)),
            advertise: options.advertise,
            is_private: options.private,
            defragment_max: if options.standard_only {
                0
            } else {
                DEFRAGMENT_MOVES_MAX
            },
            timeouts: options.timeouts,
            room: Arc::default(),
            nqn,
            serial,
            controllers: Mutex::default(),
        }
    }

    pub(super) fn nqn(&self) -> &str {
        &self.nqn
    }

    /// The serial number: 20 characters, the same whenever the same backing file is used.
    pub(super) fn serial(&self) -> &str {
        &self.serial
    }

    /// Whether a name is that of the discovery subsystem; `None` if it is not a name of this
    /// target.
    pub(super) fn is_discovery(&self, name: &str) -> Option<bool> {
        if name == DISCOVERY_NQN {
            Some(true)
        } else {
            (name == self.nqn).then_some(false)
        }
    }

    /// A new controller; `None` if there are too many, or another one has the private namespaces.
    pub(super) fn add_controller(
        &self,
        is_discovery: bool,
        make: impl FnOnce(u16) -> Controller,
    ) -> Option<Arc<Controller>> {
        let mut controllers = self.lock();
        let has_namespaces = |of: &Arc<Controller>| !of.is_discovery;
        let is_taken =
            self.is_private && !is_discovery && controllers.by_id.values().any(has_namespaces);
        if is_taken || controllers.by_id.len() >= CONTROLLERS_MAX {
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

    /// Identifiers of the controllers that have the namespaces, ascending. Those for discovery are of another subsystem.
    pub(super) fn controller_ids(&self) -> Vec<u16> {
        let controllers = self.lock();
        let with_namespaces = controllers.by_id.values().filter(|of| !of.is_discovery);
        let mut ids: Vec<u16> = with_namespaces.map(|of| of.id).collect();
        ids.sort_unstable();
        ids
    }

    fn lock(&self) -> MutexGuard<'_, Controllers> {
        lock(&self.controllers)
    }
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
