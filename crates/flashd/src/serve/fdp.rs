//! Flexible Data Placement (TP4146): one endurance group with one configuration, the profile's, which
//! is always enabled.
//!
//! Each conventional namespace has the profile's number of reclaim unit handles: placement handle `p`
//! of the `n`th of them is reclaim unit handle `n × handles + p`. There is one reclaim group, so a
//! placement identifier is a placement handle.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard},
};

use nvme_wire::{
    fdp::{
        EVENT_HAS_LOCATION, EVENT_HAS_NAMESPACE, EVENT_HAS_PLACEMENT_ID, EVENTS_MAX, EventKind,
        FdpEvent,
    },
    feature::Timestamp,
};
use zerocopy::little_endian::{U16, U32};

use crate::{device::Device, lock::lock};

/// The endurance group that all namespaces with handles belong to.
pub(super) const ENDURANCE_GROUP: u16 = 1;

/// The events that are reported, if they are enabled.
pub(super) const EVENTS: [EventKind; 2] =
    [EventKind::NotFullyWritten, EventKind::InvalidPlacementId];

/// The host events of the device, and which are enabled for each reclaim unit handle.
#[derive(Debug)]
pub(super) struct Fdp {
    state: Mutex<FdpEvents>,
}

#[derive(Debug)]
struct FdpEvents {
    /// The oldest first; at most [`EVENTS_MAX`].
    events: VecDeque<FdpEvent>,
    /// For each reclaim unit handle, a bit for each of [`EVENTS`].
    enabled: Vec<u8>,
}

/// A placement handle of a namespace.
#[derive(Clone, Copy, Debug)]
pub(super) struct Handle {
    pub(super) nsid: u32,
    pub(super) placement: u16,
    /// Among those of the device.
    pub(super) number: u16,
}

impl Fdp {
    pub(super) fn new(device: &Device) -> Self {
        let enabled = vec![u8::MAX; handles(device)];
        let events = VecDeque::new();
        Self {
            state: Mutex::new(FdpEvents { events, enabled }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, FdpEvents> {
        lock(&self.state)
    }

    /// The events so far, the oldest first.
    pub(super) fn events(&self) -> Vec<FdpEvent> {
        self.lock().events.iter().copied().collect()
    }

    /// Note an event of a handle, if it is enabled there.
    pub(super) fn note(&self, kind: EventKind, handle: Handle, placement_id: u16, time: Timestamp) {
        let mut state = self.lock();
        let enabled = state.enabled.get(usize::from(handle.number)).copied();
        if enabled.unwrap_or(0) & bit(kind) == 0 {
            return;
        }
        let mut event = FdpEvent::zeroed();
        event.kind = kind.raw();
        event.flags = EVENT_HAS_PLACEMENT_ID | EVENT_HAS_NAMESPACE;
        event.placement_id = U16::new(placement_id);
        event.time = time;
        event.nsid = U32::new(handle.nsid);
        if kind != EventKind::InvalidPlacementId {
            event.flags |= EVENT_HAS_LOCATION;
            event.handle = u8::try_from(handle.number).unwrap_or(u8::MAX);
        }
        if state.events.len() == EVENTS_MAX {
            state.events.pop_front();
        }
        state.events.push_back(event);
    }

    /// The events that a handle can have, and whether each is enabled.
    pub(super) fn enabled(&self, handle: Handle) -> Vec<(EventKind, bool)> {
        let bits = self.lock().enabled[usize::from(handle.number)];
        EVENTS.map(|kind| (kind, bits & bit(kind) != 0)).to_vec()
    }

    /// Enable or disable events of a handle.
    pub(super) fn enable(
        &self,
        handle: Handle,
        kinds: impl Iterator<Item = EventKind>,
        enable: bool,
    ) {
        let bits = kinds.map(bit).fold(0, |bits, bit| bits | bit);
        let enabled = &mut self.lock().enabled[usize::from(handle.number)];
        *enabled = if enable {
            *enabled | bits
        } else {
            *enabled & !bits
        };
    }
}

/// The bit of an event; 0 for one that is not reported.
fn bit(kind: EventKind) -> u8 {
    let at = EVENTS.iter().position(|&known| known == kind);
    at.map_or(0, |at| 1 << at)
}

/// The reclaim unit handles of the device; 0 if it has no Flexible Data Placement.
pub(super) fn handles(device: &Device) -> usize {
    (0..device.namespaces().len())
        .map(|index| device.reclaim_unit_handles(index) as usize)
        .sum()
}

/// A placement handle of a namespace; `None` if it has no such one.
pub(super) fn handle(device: &Device, index: usize, placement: u16) -> Option<Handle> {
    if u32::from(placement) >= device.reclaim_unit_handles(index) {
        return None;
    }
    let before = (0..index).map(|index| device.reclaim_unit_handles(index));
    Some(Handle {
        nsid: device.namespaces()[index].id,
        placement,
        number: before.sum::<u32>() as u16 + placement,
    })
}
