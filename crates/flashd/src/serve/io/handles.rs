//! Reclaim unit handles (TP4146): placement identifiers of writes, I/O Management.

use flash_model::Placement;
use nvme_wire::{
    Status,
    fdp::{EventKind, HandleStatus, StatusHeader},
};
use zerocopy::{
    IntoBytes,
    little_endian::{U16, U64},
};

use super::super::{
    fdp::{Handle, handle},
    queue::HostQueue,
};

/// The place of a write with a placement identifier. With an invalid one it goes where others go,
/// and that is an event; a namespace without handles refuses the directive.
pub(super) fn of_write(queue: &HostQueue, index: usize, id: u16) -> Result<Placement, Status> {
    if let Some(handle) = handle(queue.device(), index, id) {
        return Ok(Placement::Handle(handle.placement.into()));
    }
    let first = handle(queue.device(), index, 0).ok_or(Status::InvalidField)?;
    let time = queue.controller.settings.timestamp();
    let kind = EventKind::InvalidPlacementId;
    queue.subsystem.fdp.note(kind, first, id, time);
    Ok(Placement::RoundRobin)
}

/// Reclaim Unit Handle Status of a namespace, in as many bytes as the host has asked for.
pub(super) fn status(queue: &HostQueue, index: usize, len: usize) -> Result<Vec<u8>, Status> {
    let units = queue.device().reclaim_units(index);
    let units = units.ok_or(Status::FdpDisabled)?;
    let block = queue.device().namespaces()[index].block_bytes;
    let mut header = StatusHeader::zeroed();
    header.handles = U16::new(units.left_bytes.len() as u16);
    let mut data = header.as_bytes().to_vec();
    for (placement, left) in (0..).zip(units.left_bytes) {
        let Some(handle) = handle(queue.device(), index, placement) else {
            break;
        };
        let mut entry = HandleStatus::zeroed();
        entry.placement_id = U16::new(placement);
        entry.handle = U16::new(handle.number);
        entry.available_blocks = U64::new(left / block);
        data.extend_from_slice(entry.as_bytes());
    }
    data.resize(len, 0);
    Ok(data)
}

/// Reclaim Unit Handle Update: the handles of the placement identifiers in `data`, none of which
/// gets a new unit if one is invalid; an event for each whose unit was not full.
pub(super) fn update(
    queue: &HostQueue,
    index: usize,
    data: &[u8],
    count: usize,
) -> Result<Vec<u32>, Status> {
    let units = queue.device().reclaim_units(index);
    let units = units.ok_or(Status::FdpDisabled)?;
    // Each handle once, so no list is longer.
    if count > queue.device().reclaim_unit_handles(index) as usize {
        return Err(Status::InvalidField);
    }
    let (ids, _) = data.as_chunks::<2>();
    let found = ids.iter().take(count).map(|id| {
        let id = u16::from_le_bytes(*id);
        handle(queue.device(), index, id).ok_or(Status::InvalidField)
    });
    let mut found: Vec<Handle> = found.collect::<Result<_, _>>()?;
    found.sort_unstable_by_key(|handle| handle.placement);
    found.dedup_by_key(|handle| handle.placement);
    let time = queue.controller.settings.timestamp();
    for &handle in &found {
        let left = units.left_bytes[usize::from(handle.placement)];
        if left < units.size_bytes {
            let kind = EventKind::NotFullyWritten;
            let fdp = &queue.subsystem.fdp;
            fdp.note(kind, handle, handle.placement, time);
        }
    }
    Ok(found.iter().map(|handle| handle.placement.into()).collect())
}
