//! The vendor log page: geometry and statistics of the flash, for host tools.

use flash_model::NamespaceKind;
use nvme_wire::vendor::{DieEntry, GEOMETRY_MAGIC, GeometryLog, NamespaceEntry};
use zerocopy::{
    IntoBytes,
    little_endian::{U16, U32, U64},
};

use super::super::queue::HostQueue;

/// The page.
pub(super) fn geometry(queue: &HostQueue) -> Vec<u8> {
    let device = queue.device();
    let geometry = device.geometry();
    let stats = device.stats();
    let dies = geometry.dies() as usize;
    let dies_at = GeometryLog::LEN;
    let namespaces_at = dies_at + dies * DieEntry::LEN;
    let count = device.namespaces().len();
    let len = namespaces_at + count * NamespaceEntry::LEN;

    let mut page = GeometryLog::zeroed();
    page.magic = GEOMETRY_MAGIC;
    page.version = U16::new(1);
    page.die_entry = U16::new(DieEntry::LEN as u16);
    page.namespace_entry = U16::new(NamespaceEntry::LEN as u16);
    page.hints = u8::from(queue.controller.settings.hints());
    page.len = U32::new(len as u32);
    page.dies_at = U32::new(dies_at as u32);
    page.namespaces_at = U32::new(namespaces_at as u32);
    page.namespaces = U32::new(count as u32);
    page.channels = U32::new(geometry.channels);
    page.dies_per_channel = U32::new(geometry.dies_per_channel);
    page.planes = U32::new(geometry.planes);
    page.page = U32::new(geometry.page.get() as u32);
    page.pages_per_block = U32::new(geometry.pages_per_block);
    page.defragment_max = U32::new(queue.subsystem.defragment_max as u32);
    page.unit = U64::new(geometry.unit.get());
    page.now_ns = U64::new(stats.model.now_ns.get());
    page.host_read_bytes = U64::new(stats.model.host_read_bytes);
    page.host_written_bytes = U64::new(stats.model.host_written_bytes);
    page.migrated_bytes = U64::new(stats.model.migrated_bytes);

    page.programmed_bytes = U64::new(stats.model.programmed_bytes.total());
    page.erased_blocks = U64::new(stats.model.dies.iter().map(|die| die.erases).sum());
    page.collisions = U64::new(stats.model.collisions());

    let mut bytes = page.as_bytes().to_vec();
    for die in stats.model.dies.iter().take(dies) {
        let mut entry = DieEntry::zeroed();
        entry.busy_ns = U64::new(die.busy_ns);
        entry.erased_blocks = U64::new(die.erases);
        bytes.extend_from_slice(entry.as_bytes());
    }
    bytes.resize(namespaces_at, 0);
    for namespace in device.namespaces() {
        let mut entry = NamespaceEntry::zeroed();
        entry.nsid = U32::new(namespace.id);
        entry.size = U64::new(namespace.size_bytes);
        if namespace.kind == NamespaceKind::Zoned {
            let zone = &geometry.zone;
            entry.zoned = 1;
            entry.zone_size = U64::new(zone.size.get());
            entry.zone_capacity = U64::new(zone.capacity.get());
            entry.interleave = U64::new(zone.interleave.get());
            entry.zone_dies = U32::new(zone.dies);
            entry.max_active = U32::new(zone.max_active);
            entry.max_open = U32::new(zone.max_open);
        }
        bytes.extend_from_slice(entry.as_bytes());
    }
    bytes
}
