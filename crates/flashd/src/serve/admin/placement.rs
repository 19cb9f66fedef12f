//! Log pages and features of Flexible Data Placement (TP4146).

use nvme_wire::{
    Status,
    admin::GetLogPage,
    fdp::{
        CONFIGURATION_VALID, CONFIGURATION_WRITE_CACHE, Configuration, ConfigurationsHeader,
        EventKind, EventsHeader, FEATURE_ENABLED, HANDLE_INITIALLY_ISOLATED, HandleDescriptor,
        LSP_HOST_EVENTS, Statistics, SupportedEvent, USED_BY_HOST, Usage, UsageHeader, event_types,
        placement_handle,
    },
    log::LogPage,
};
use zerocopy::{
    IntoBytes,
    little_endian::{U16, U32, U64},
};

use super::super::{
    fdp::{self, ENDURANCE_GROUP, Handle, handles},
    need::Need,
    queue::HostQueue,
    send::Completed,
};

/// A log page of the endurance group.
pub(super) fn page(queue: &HostQueue, ask: &GetLogPage) -> Result<Vec<u8>, Status> {
    if handles(queue.device()) == 0 {
        return Err(match ask.page {
            LogPage::FdpConfigurations => Status::InvalidLogPage,
            _ => Status::FdpDisabled,
        });
    }
    if ask.specific_id != ENDURANCE_GROUP {
        return Err(Status::InvalidField);
    }
    match ask.page {
        LogPage::FdpConfigurations => Ok(configurations(queue)),
        LogPage::ReclaimUnitHandleUsage => Ok(usage(queue)),
        LogPage::FdpStatistics => Ok(statistics(queue).as_bytes().to_vec()),
        LogPage::FdpEvents => Ok(events_page(queue, ask.specific & LSP_HOST_EVENTS != 0)),
        _ => Err(Status::InvalidLogPage),
    }
}

fn configurations(queue: &HostQueue) -> Vec<u8> {
    let device = queue.device();
    let count = handles(device);
    let size = Configuration::LEN + count * HandleDescriptor::LEN;
    let mut header = ConfigurationsHeader::zeroed();
    header.size = U32::new((ConfigurationsHeader::LEN + size) as u32);
    let units = (0..device.namespaces().len()).find_map(|index| device.reclaim_units(index));
    let mut configuration = Configuration::zeroed();
    configuration.size = U16::new(u16::try_from(size).unwrap_or(u16::MAX));
    configuration.attributes = CONFIGURATION_VALID;
    if device.has_volatile_cache() {
        configuration.attributes |= CONFIGURATION_WRITE_CACHE;
    }
    configuration.groups = U32::new(1);
    configuration.handles = U16::new(count as u16);
    let each = device.profile().reclaim_unit_handles();
    configuration.max_placement_ids = U16::new((each.saturating_sub(1)) as u16);
    configuration.namespaces = U32::new(device.namespaces().len() as u32);
    configuration.unit_size = U64::new(units.map_or(0, |units| units.size_bytes));
    let mut page = header.as_bytes().to_vec();
    page.extend_from_slice(configuration.as_bytes());
    let mut handle = HandleDescriptor::zeroed();
    handle.kind = HANDLE_INITIALLY_ISOLATED;
    page.extend(std::iter::repeat_n(handle.as_bytes(), count).flatten());
    page
}

fn usage(queue: &HostQueue) -> Vec<u8> {
    let count = handles(queue.device());
    let mut header = UsageHeader::zeroed();
    header.handles = U16::new(count as u16);
    let mut handle = Usage::zeroed();
    handle.attributes = USED_BY_HOST;
    let mut page = header.as_bytes().to_vec();
    page.extend(std::iter::repeat_n(handle.as_bytes(), count).flatten());
    page
}

/// Of the whole device, zoned namespaces included: all of it is the endurance group.
fn statistics(queue: &HostQueue) -> Statistics {
    let device = queue.device();
    let (stats, geometry) = (device.stats().model, device.geometry());
    let block = geometry.program_unit().get() * u64::from(geometry.pages_per_block);
    let erases: u64 = stats.dies.iter().map(|die| die.erases).sum();
    let written = stats.programmed_bytes.total() + stats.copied_back_bytes.total();
    let number = |value: u64| u128::from(value).to_le_bytes();
    let mut page = Statistics::zeroed();
    page.host_written = number(stats.host_written_bytes);
    page.media_written = number(written);
    page.media_erased = number(erases * block);
    page
}

/// No controller event is reported.
fn events_page(queue: &HostQueue, of_host: bool) -> Vec<u8> {
    let events = if of_host {
        queue.subsystem.fdp.events()
    } else {
        Vec::new()
    };
    let mut header = EventsHeader::zeroed();
    header.events = U32::new(events.len() as u32);
    let mut page = header.as_bytes().to_vec();
    page.extend_from_slice(events.as_bytes());
    page
}

/// Flexible Data Placement of an endurance group: enabled, with configuration 0.
pub(super) fn enabled(value: u32) -> Result<Completed, Status> {
    if value as u16 == ENDURANCE_GROUP {
        Ok(Completed::Result(FEATURE_ENABLED.into()))
    } else {
        Err(Status::InvalidField)
    }
}

/// Set Features: nothing but what is so already, as there are namespaces (TP4146).
pub(super) fn enable(queue: &HostQueue, value: u32, dword12: u32) -> Result<u64, Status> {
    let has_handles = !queue.controller.is_discovery && handles(queue.device()) > 0;
    if !has_handles || value as u16 != ENDURANCE_GROUP {
        Err(Status::InvalidField)
    } else if dword12 == FEATURE_ENABLED {
        Ok(0)
    } else {
        Err(Status::SequenceError)
    }
}

/// The room that a host has for the events of a placement handle.
pub(super) fn room_for_events(value: u32) -> Need {
    match event_types(value) {
        0 => Need::Nothing,
        count => Need::room_for((count * SupportedEvent::LEN) as u64),
    }
}

/// The data of Set Features for events of a placement handle: a byte for each.
pub(super) fn events_need(value: u32) -> Need {
    match event_types(value) {
        0 => Need::Nothing,
        count => Need::at_least(count),
    }
}

fn placement(queue: &HostQueue, nsid: u32, value: u32) -> Result<Handle, Status> {
    // A discovery controller has no namespaces (Base §3.1.2.3).
    if queue.controller.is_discovery {
        return Err(Status::InvalidField);
    }
    let (index, _) = queue.backend().namespace(nsid)?;
    fdp::handle(queue.device(), index, placement_handle(value)).ok_or(Status::InvalidField)
}

/// The events that a placement handle of a namespace can have; the result is their number.
pub(super) fn events(queue: &HostQueue, nsid: u32, value: u32) -> Result<Completed, Status> {
    let events = queue.subsystem.fdp.enabled(placement(queue, nsid, value)?);
    let result = events.len() as u64;
    let entries = events.into_iter().flat_map(|(kind, enabled)| {
        let mut event = SupportedEvent::zeroed();
        event.kind = kind.raw();
        event.attributes = enabled.into();
        event.as_bytes().to_vec()
    });
    let mut data: Vec<u8> = entries.collect();
    data.resize(event_types(value) * SupportedEvent::LEN, 0);
    if data.is_empty() {
        return Ok(Completed::Result(result));
    }
    Ok(Completed::DataAndResult { data, result })
}

/// Enable or disable events of a placement handle of a namespace. Ones that are never reported may
/// not be named.
pub(super) fn enable_events(
    queue: &HostQueue,
    nsid: u32,
    (value, dword12): (u32, u32),
    data: &[u8],
) -> Result<u64, Status> {
    let handle = placement(queue, nsid, value)?;
    let kinds = data.iter().take(event_types(value));
    let kinds: Vec<_> = kinds.map(|&kind| EventKind::from_raw(kind)).collect();
    if kinds.iter().any(|kind| !fdp::EVENTS.contains(kind)) {
        return Err(Status::InvalidField);
    }
    let enable = dword12 & FEATURE_ENABLED != 0;
    queue
        .subsystem
        .fdp
        .enable(handle, kinds.into_iter(), enable);
    Ok(0)
}
