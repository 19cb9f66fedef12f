//! Get Log Page (Base §5.16).

use std::net::IpAddr;

use nvme_wire::{
    Status,
    admin::GetLogPage,
    ascii,
    discovery::{
        DISCOVERY_NQN, DiscoveryEntry, DiscoveryHeader, FAMILY_IPV4, FAMILY_IPV6,
        REQUIREMENTS_NONE, SUBSYSTEM_CURRENT_DISCOVERY, SUBSYSTEM_NVM, TRANSPORT_TCP,
    },
    feature::Feature,
    identify::CommandSet,
    log::{
        CHANGED_NAMESPACES_MAX, ChangedZones, EFFECT_CONTENT, EFFECT_SUPPORTED, Effects, Firmware,
        LOG_SUPPORTED, LogPage, SMART_DEGRADED, Smart,
    },
    nqn,
    opcode::{AdminOpcode, IoOpcode},
};
use zerocopy::{
    IntoBytes,
    little_endian::{U16, U32, U64},
};

use super::{
    super::{
        fdp::handles,
        limits::{ERROR_ENTRIES, QUEUE_ENTRIES_MAX},
        queue::HostQueue,
    },
    features::is_there,
    geometry::geometry,
    identify::supported,
    placement,
};

/// Pages that a controller of the subsystem has.
const PAGES: [LogPage; 9] = [
    LogPage::Supported,
    LogPage::Error,
    LogPage::Smart,
    LogPage::Firmware,
    LogPage::ChangedNamespaces,
    LogPage::Effects,
    LogPage::FeatureEffects,
    LogPage::ChangedZones,
    LogPage::Geometry,
];

/// Those that a controller has beside them with Flexible Data Placement.
const FDP_PAGES: [LogPage; 4] = [
    LogPage::FdpConfigurations,
    LogPage::ReclaimUnitHandleUsage,
    LogPage::FdpStatistics,
    LogPage::FdpEvents,
];

/// As much of a log page as is asked for, filled up with zeroes where it ends before.
pub(super) fn get(queue: &HostQueue, nsid: u32, ask: &GetLogPage) -> Result<Vec<u8>, Status> {
    let page = page(queue, nsid, ask)?;
    let mut part = ask.slice(&page)?.to_vec();
    part.resize(ask.len as usize, 0);
    if !ask.retain_event {
        queue.controller.events(|events| events.read(ask.page));
        queue.controller.tell();
    }
    Ok(part)
}

fn page(queue: &HostQueue, nsid: u32, ask: &GetLogPage) -> Result<Vec<u8>, Status> {
    if queue.controller.is_discovery {
        return match ask.page {
            LogPage::Discovery => Ok(discovery(queue)),
            LogPage::Supported => Ok(supported_pages(&[LogPage::Supported, LogPage::Discovery])),
            _ => Err(Status::InvalidLogPage),
        };
    }
    let has_fdp = handles(queue.device()) > 0;
    match ask.page {
        LogPage::Supported if has_fdp => Ok(supported_pages(&[&PAGES[..], &FDP_PAGES].concat())),
        LogPage::Supported => Ok(supported_pages(&PAGES)),
        LogPage::FdpConfigurations
        | LogPage::ReclaimUnitHandleUsage
        | LogPage::FdpStatistics
        | LogPage::FdpEvents => placement::page(queue, ask),
        LogPage::Error => {
            let mut page = queue.controller.errors.latest().as_bytes().to_vec();
            page.resize(ERROR_ENTRIES * nvme_wire::log::ErrorEntry::LEN, 0);
            Ok(page)
        }
        LogPage::Smart => {
            // Of the whole controller only (LPA bit 0).
            if !matches!(nsid, 0 | u32::MAX) {
                return Err(Status::InvalidField);
            }
            Ok(smart(queue).as_bytes().to_vec())
        }
        LogPage::Firmware => {
            let mut page = Firmware::zeroed();
            page.active = 1;
            page.revisions[0] = ascii(env!("CARGO_PKG_VERSION"));
            Ok(page.as_bytes().to_vec())
        }
        LogPage::ChangedNamespaces => Ok(changed_namespaces(queue)),
        LogPage::Effects => {
            let has_defragment = queue.subsystem.defragment_max > 0;
            let page = effects(supported(ask.set)?, has_fdp, has_defragment);
            Ok(page.as_bytes().to_vec())
        }
        LogPage::FeatureEffects => Ok(feature_effects(queue)),
        // No zone changes its state without a host's command.
        LogPage::ChangedZones => {
            queue.backend().namespace(nsid)?;
            Ok(ChangedZones::zeroed().as_bytes().to_vec())
        }
        LogPage::Geometry => Ok(geometry(queue)),
        LogPage::Discovery | LogPage::Unknown(_) => Err(Status::InvalidLogPage),
    }
}

fn supported_pages(pages: &[LogPage]) -> Vec<u8> {
    let mut list = [U32::new(0); 256];
    for page in pages {
        list[usize::from(page.raw())] = U32::new(LOG_SUPPORTED);
    }
    list.as_bytes().to_vec()
}

fn smart(queue: &HostQueue) -> Smart {
    /// A data unit (Base §5.16.1.3).
    const UNIT: u64 = 512 * 1000;
    const HOUR_NS: u64 = 3_600_000_000_000;
    let number = |value: u64| u128::from(value).to_le_bytes();
    let units = |bytes: u64| number(bytes.div_ceil(UNIT));
    let device = queue.device();
    let life = device.life_to_tell();
    let sick = (0..device.namespaces().len()).any(|index| !device.health(index).is_healthy());
    let mut page = Smart::zeroed();
    page.critical_warning = if sick { SMART_DEGRADED } else { 0 };
    page.temperature = U16::new(298);
    page.spare = 100;
    page.spare_threshold = 10;
    // 100 is the rated end of life; FFh stands for everything over 254 (Base §5.16.1.3).
    page.used = device.endurance_used_percent().min(255.0) as u8;
    page.units_read = units(life.read_bytes);
    page.units_written = units(life.written_bytes);
    page.reads = number(life.reads);
    page.writes = number(life.writes);
    page.power_cycles = number(life.power_cycles);
    page.power_on_hours = number(life.powered_ns / HOUR_NS);
    page.unsafe_shutdowns = number(life.unsafe_shutdowns);
    page.media_errors = number(life.media_errors);
    page.error_entries = number(queue.controller.errors.count());
    page
}

fn changed_namespaces(queue: &HostQueue) -> Vec<u8> {
    let ids: Vec<u32> = queue
        .controller
        .events(|events| events.changed_namespaces().collect());
    let ids = if ids.len() > CHANGED_NAMESPACES_MAX {
        vec![u32::MAX]
    } else {
        ids
    };
    let mut page: Vec<u8> = ids.into_iter().flat_map(u32::to_le_bytes).collect();
    page.resize(CHANGED_NAMESPACES_MAX * 4, 0);
    page
}

/// Commands Supported and Effects of an I/O command set.
fn effects(set: CommandSet, has_fdp: bool, has_defragment: bool) -> Effects {
    let mut page = Effects::zeroed();
    for opcode in AdminOpcode::ALL {
        page.admin[usize::from(opcode.raw())] = U32::new(EFFECT_SUPPORTED);
    }
    for opcode in IoOpcode::ALL {
        let changes = match opcode {
            IoOpcode::InDeviceDefragment if !has_defragment => continue,
            IoOpcode::Write
            | IoOpcode::WriteZeroes
            | IoOpcode::DatasetManagement
            | IoOpcode::Copy
            | IoOpcode::InDeviceDefragment => EFFECT_CONTENT,
            IoOpcode::ZoneManagementSend | IoOpcode::ZoneAppend if set == CommandSet::Zoned => {
                EFFECT_CONTENT
            }
            IoOpcode::ZoneManagementReceive if set == CommandSet::Zoned => 0,
            IoOpcode::IoManagementReceive | IoOpcode::IoManagementSend
                if has_fdp && set == CommandSet::Nvm =>
            {
                0
            }
            IoOpcode::Flush | IoOpcode::Read | IoOpcode::Compare | IoOpcode::Verify => 0,
            _ => continue,
        };
        page.io[usize::from(opcode.raw())] = U32::new(EFFECT_SUPPORTED | changes);
    }
    page
}

/// Feature Identifiers Supported and Effects.
fn feature_effects(queue: &HostQueue) -> Vec<u8> {
    const SUPPORTED: u32 = 1 << 0;
    const CONTROLLER_SCOPE: u32 = 1 << 22;
    let mut list = [U32::new(0); 256];
    for feature in Feature::ALL.iter().filter(|&&of| is_there(queue, of)) {
        list[usize::from(feature.raw())] = U32::new(SUPPORTED | CONTROLLER_SCOPE);
    }
    list.as_bytes().to_vec()
}

/// The addresses of this subsystem, and of this discovery service.
fn discovery(queue: &HostQueue) -> Vec<u8> {
    let subsystem = &queue.subsystem;
    let address = subsystem.advertise.or_else(|| queue.sender.local_address());
    let mut header = DiscoveryHeader::zeroed();
    header.generation = U64::new(1);
    let mut entries = Vec::new();
    if let Some(address) = address {
        let mut entry = DiscoveryEntry::zeroed();
        entry.transport = TRANSPORT_TCP;
        entry.family = match address.ip() {
            IpAddr::V4(_) => FAMILY_IPV4,
            IpAddr::V6(_) => FAMILY_IPV6,
        };
        entry.requirements = REQUIREMENTS_NONE;
        entry.port = U16::new(1);
        entry.controller = U16::new(u16::MAX);
        entry.admin_queue_size = U16::new(QUEUE_ENTRIES_MAX as u16);
        entry.service = ascii(&address.port().to_string());
        entry.address = ascii(&address.ip().to_string());
        for (kind, name) in [
            (SUBSYSTEM_CURRENT_DISCOVERY, DISCOVERY_NQN),
            (SUBSYSTEM_NVM, subsystem.nqn()),
        ] {
            entry.subsystem_type = kind;
            entry.subsystem = nqn(name);
            entries.push(entry);
        }
    }
    header.records = U64::new(entries.len() as u64);
    let mut page = header.as_bytes().to_vec();
    page.extend_from_slice(entries.as_bytes());
    page
}
