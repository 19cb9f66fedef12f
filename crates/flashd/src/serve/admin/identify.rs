//! Identify (Base §5.17).

use flash_model::NamespaceKind;
use nvme_wire::{
    ALL_NAMESPACES, Status, ascii,
    discovery::DISCOVERY_NQN,
    identify::{
        CTRATT_ENDURANCE_GROUPS, CTRATT_FDP, CTRATT_HOST_ID_128, CTRATT_TRAFFIC_KEEP_ALIVE, Cns,
        CommandSet, Controller, DLFEAT_ZEROES, IDENTIFY_LEN, IndependentNamespace, LPA_EFFECTS,
        LPA_EXTENDED, LbaFormat, NSFEAT_OPTIMAL, Namespace, NvmController, NvmNamespace,
        OAES_NAMESPACE, ONCS_COMPARE, ONCS_COPY, ONCS_DATASET_MANAGEMENT, ONCS_TIMESTAMP,
        ONCS_VERIFY, ONCS_WRITE_ZEROES, OZCS_READ_ACROSS_ZONES, SglSupport, ZonedController,
        ZonedLbaFormat, ZonedNamespace, descriptors,
    },
    nqn,
    pdu::CapsuleResp,
    property::VERSION_2_0,
};
use zerocopy::{
    IntoBytes,
    little_endian::{U16, U32, U64},
};

use super::super::{
    fdp::{ENDURANCE_GROUP, handles},
    limits::{
        ADMIN_IN_CAPSULE_MAX, COPY_BYTES_MAX, COPY_RANGES_MAX, ERROR_ENTRIES, EVENT_REQUESTS_MAX,
        IN_CAPSULE_MAX, MAX_TRANSFER_SHIFT, QUEUE_ENTRIES_MAX, copy_range_blocks,
    },
    queue::HostQueue,
};
use crate::device;

/// The data structure that is asked for.
pub(super) fn identify(
    queue: &HostQueue,
    nsid: u32,
    ask: &nvme_wire::admin::Identify,
) -> Result<Vec<u8>, Status> {
    if queue.controller.is_discovery && ask.cns != Cns::Controller {
        return Err(Status::InvalidField);
    }
    let namespaces = queue.device().namespaces();
    let bytes = |structure: &[u8]| Ok(structure.to_vec());
    match ask.cns {
        Cns::Namespace | Cns::AllocatedNamespace => match queue.backend().namespace(nsid) {
            Ok((index, of)) => bytes(namespace(index, of, queue).as_bytes()),
            // Identifiers that could be used and are not (Base §5.17.2.1): zeroes.
            Err(_) if nsid == ALL_NAMESPACES => bytes(common(queue).as_bytes()),
            Err(_) if is_possible(queue, nsid) => bytes(&[0; IDENTIFY_LEN]),
            Err(status) => Err(status),
        },
        Cns::Controller => bytes(controller(queue).as_bytes()),
        Cns::ActiveNamespaces | Cns::AllocatedNamespaces => list(namespaces.iter(), nsid),
        Cns::CommandSetActiveNamespaces => {
            let set = supported(ask.set)?;
            list(namespaces.iter().filter(|of| command_set(of) == set), nsid)
        }
        Cns::NamespaceDescriptors => {
            let (_, of) = queue.backend().namespace(nsid)?;
            bytes(&descriptors(&of.uuid, &of.uuid, command_set(of)))
        }
        Cns::CommandSetNamespace => {
            let set = supported(ask.set)?;
            let (index, of) = queue.backend().namespace(nsid)?;
            match (set, of.kind) {
                (CommandSet::Nvm, _) => bytes(NvmNamespace::zeroed().as_bytes()),
                (_, NamespaceKind::Zoned) => bytes(zoned(index, of, queue).as_bytes()),
                _ => Err(Status::InvalidCommandSet),
            }
        }
        Cns::CommandSetController => match supported(ask.set)? {
            CommandSet::Zoned => bytes(ZonedController::zeroed().as_bytes()),
            _ => bytes(NvmController::zeroed().as_bytes()),
        },
        Cns::IndependentNamespace => {
            let (index, of) = queue.backend().namespace(nsid)?;
            bytes(independent(index, of, queue).as_bytes())
        }
        Cns::NamespaceControllers => {
            queue.backend().namespace(nsid)?;
            Ok(controllers(queue, ask.controller))
        }
        Cns::Controllers => Ok(controllers(queue, ask.controller)),
        Cns::CommandSets => {
            let mut page = vec![0; IDENTIFY_LEN];
            let sets = [CommandSet::Nvm, CommandSet::Zoned];
            page[0] = sets.iter().fold(0, |bits, set| bits | 1 << set.raw());
            Ok(page)
        }
        Cns::EnduranceGroups if handles(queue.device()) > 0 => {
            // Groups from the wanted one on: there is one.
            let ids: &[u16] = match ask.cns_specific {
                0..=ENDURANCE_GROUP => &[1, ENDURANCE_GROUP],
                _ => &[0],
            };
            let mut page: Vec<u8> = ids.iter().flat_map(|id| id.to_le_bytes()).collect();
            page.resize(IDENTIFY_LEN, 0);
            Ok(page)
        }
        Cns::EnduranceGroups | Cns::NvmSets | Cns::Unknown(_) => Err(Status::InvalidField),
    }
}

fn is_possible(queue: &HostQueue, nsid: u32) -> bool {
    (1..=queue.backend().largest_nsid()).contains(&nsid)
}

/// The I/O command set, if it is supported.
pub(super) fn supported(set: CommandSet) -> Result<CommandSet, Status> {
    match set {
        CommandSet::Nvm | CommandSet::Zoned => Ok(set),
        CommandSet::KeyValue | CommandSet::Unknown(_) => Err(Status::InvalidField),
    }
}

fn command_set(namespace: &device::NamespaceInfo) -> CommandSet {
    match namespace.kind {
        NamespaceKind::Zoned => CommandSet::Zoned,
        NamespaceKind::Conventional => CommandSet::Nvm,
    }
}

/// A namespace list (Base §4.4.2): identifiers above `nsid`, ascending.
fn list<'a>(
    namespaces: impl Iterator<Item = &'a device::NamespaceInfo>,
    nsid: u32,
) -> Result<Vec<u8>, Status> {
    if nsid >= ALL_NAMESPACES - 1 {
        return Err(Status::InvalidNamespace);
    }
    let mut ids: Vec<u32> = namespaces.map(|of| of.id).filter(|&id| id > nsid).collect();
    ids.sort_unstable();
    let mut page: Vec<u8> = ids.into_iter().flat_map(u32::to_le_bytes).collect();
    page.resize(IDENTIFY_LEN, 0);
    Ok(page)
}

/// A controller list (Base §4.4.1): identifiers from `first` on, ascending.
fn controllers(queue: &HostQueue, first: u16) -> Vec<u8> {
    let ids = queue.subsystem.controller_ids();
    let ids: Vec<u16> = ids.into_iter().filter(|&id| id >= first).collect();
    let mut page = (ids.len() as u16).to_le_bytes().to_vec();
    page.extend(ids.into_iter().flat_map(u16::to_le_bytes));
    page.resize(IDENTIFY_LEN, 0);
    page
}

fn controller(queue: &HostQueue) -> Controller {
    let of = &queue.controller;
    let subsystem = &queue.subsystem;
    let mut page = Controller::zeroed();
    page.serial = ascii(subsystem.serial());
    page.model = ascii("flashd");
    page.firmware = ascii(env!("CARGO_PKG_VERSION"));
    page.max_transfer = MAX_TRANSFER_SHIFT;
    page.controller_id = U16::new(of.id);
    page.version = U32::new(VERSION_2_0);
    page.attributes = U32::new(CTRATT_HOST_ID_128 | CTRATT_TRAFFIC_KEEP_ALIVE);
    page.event_limit = (EVENT_REQUESTS_MAX - 1) as u8;
    page.log_attributes = LPA_EXTENDED;
    page.error_entries = (ERROR_ENTRIES - 1) as u8;
    page.keep_alive_granularity = U16::new(1);
    page.max_commands = U16::new(QUEUE_ENTRIES_MAX as u16);
    page.sgl = U32::new(SglSupport::raw());
    page.subsystem = nqn(if of.is_discovery {
        DISCOVERY_NQN
    } else {
        subsystem.nqn()
    });
    if of.is_discovery {
        page.controller_type = 2;
        page.command_capsule = U32::new(((64 + ADMIN_IN_CAPSULE_MAX) / 16) as u32);
        page.response_capsule = U32::new(1);
        page.async_events = U32::new(1 << 31);
        return page;
    }
    page.controller_type = 1;
    if handles(queue.device()) > 0 {
        let more = CTRATT_ENDURANCE_GROUPS | CTRATT_FDP;
        page.attributes = U32::new(page.attributes.get() | more);
        page.max_endurance_group = U16::new(ENDURANCE_GROUP);
    }
    // Several controllers can be there at a time.
    page.multipath = u8::from(!subsystem.is_private) << 1;
    page.async_events = U32::new(OAES_NAMESPACE);
    page.abort_limit = (EVENT_REQUESTS_MAX - 1) as u8;
    page.log_attributes |= LPA_EFFECTS;
    // One slot, which cannot be written.
    page.firmware_updates = 1 | 1 << 1;
    page.warning_temperature = U16::new(343);
    page.critical_temperature = U16::new(353);
    let namespaces = queue.device().namespaces().iter();
    let total: u64 = namespaces.map(|n| n.size_bytes).sum();
    page.total_capacity = u128::from(total).to_le_bytes();
    page.submission_size = 0x66;
    page.completion_size = 0x44;
    page.namespaces = U32::new(queue.backend().largest_nsid());
    page.nvm_commands = U16::new(
        ONCS_COMPARE
            | ONCS_DATASET_MANAGEMENT
            | ONCS_WRITE_ZEROES
            | ONCS_TIMESTAMP
            | ONCS_VERIFY
            | ONCS_COPY,
    );
    // Flush takes the identifier of all namespaces (bits 2:1).
    page.write_cache = 0b11 << 1 | u8::from(queue.device().has_volatile_cache());
    page.io_vendor = 0;
    page.copy_formats = U16::new(0b1111);
    page.command_capsule = U32::new(((64 + IN_CAPSULE_MAX) / 16) as u32);
    page.response_capsule = U32::new((size_of_completion() / 16) as u32);
    page.max_sgl = 1;
    // Disconnect.
    page.fabrics_commands = U16::new(1);
    page
}

const fn size_of_completion() -> usize {
    CapsuleResp::LEN - nvme_wire::pdu::Header::LEN
}

/// The page of all namespaces: the formats, which they share.
fn common(queue: &HostQueue) -> Namespace {
    let mut page = Namespace::zeroed();
    if let Some(first) = queue.device().namespaces().first() {
        page.lba_formats[0] = lba_format(first);
    }
    page
}

fn lba_format(of: &device::NamespaceInfo) -> LbaFormat {
    let mut format = LbaFormat::zeroed();
    format.block_shift = of.block_bytes.trailing_zeros() as u8;
    format
}

fn namespace(index: usize, of: &device::NamespaceInfo, queue: &HostQueue) -> Namespace {
    let mut page = Namespace::zeroed();
    let blocks = of.size_bytes / of.block_bytes;
    page.size = U64::new(blocks);
    page.capacity = U64::new(blocks);
    page.in_use = U64::new(queue.device().used_bytes(index).div_ceil(of.block_bytes));
    page.multipath = u8::from(!queue.subsystem.is_private);
    page.deallocation = DLFEAT_ZEROES;
    page.nvm_capacity = u128::from(of.size_bytes).to_le_bytes();
    page.copy_range_blocks = U16::new(copy_range_blocks(of.block_bytes));
    page.copy_blocks = U32::new((COPY_BYTES_MAX / of.block_bytes) as u32);
    page.copy_ranges = (COPY_RANGES_MAX - 1) as u8;
    page.nguid = of.uuid;
    page.lba_formats[0] = lba_format(of);
    page.endurance_group = U16::new(endurance_group(index, queue));
    // A host should write in units that go to flash at once.
    let page_blocks = queue.device().geometry().page.get() / of.block_bytes;
    if of.kind == NamespaceKind::Conventional && (2..=1 << 16).contains(&page_blocks) {
        page.features = NSFEAT_OPTIMAL;
        let granularity = U16::new((page_blocks - 1) as u16);
        page.write_granularity = granularity;
        page.optimal_write = granularity;
    }
    page
}

/// ENDGID: hosts take it from either page.
fn endurance_group(index: usize, queue: &HostQueue) -> u16 {
    match queue.device().reclaim_unit_handles(index) {
        0 => 0,
        _ => ENDURANCE_GROUP,
    }
}

fn zoned(index: usize, of: &device::NamespaceInfo, queue: &HostQueue) -> ZonedNamespace {
    let geometry = queue.device().geometry().zone;
    let zones = queue.device().zones(index);
    let size = zones.first().map_or(geometry.size.get(), |zone| zone.size);
    // Zero-based, all ones for no limit, which is 0 here.
    let limit = |max: u32| U32::new(max.wrapping_sub(1));
    let mut page = ZonedNamespace::zeroed();
    page.optional_commands = U16::new(OZCS_READ_ACROSS_ZONES);
    page.max_active = limit(geometry.max_active);
    page.max_open = limit(geometry.max_open);
    let mut format = ZonedLbaFormat::zeroed();
    format.zone_size = U64::new(size / of.block_bytes);
    page.lba_formats[0] = format;
    page
}

fn independent(
    index: usize,
    of: &device::NamespaceInfo,
    queue: &HostQueue,
) -> IndependentNamespace {
    let mut page = IndependentNamespace::zeroed();
    page.multipath = u8::from(!queue.subsystem.is_private);
    page.endurance_group = U16::new(endurance_group(index, queue));
    // Ready, whatever its health: failures are reported command by command.
    page.status = u8::from(of.size_bytes > 0);
    page
}
