//! Zones (ZNS §3.4): reports, actions, appends.

use flash_model::{Zone, ZoneAction as Action, ZoneState as State};
use nvme_wire::{
    Status,
    zone::{ReportFilter, ReportHeader, ReportKind, ZoneAction, ZoneDescriptor, ZoneState},
};
use zerocopy::{IntoBytes, little_endian::U64};

use super::work::{Ending, IoWork, offset_of};
use crate::device::{Device, NamespaceInfo, Request};

/// Zone Management Send.
pub(super) fn send(
    namespace: &NamespaceInfo,
    zone: u64,
    all: bool,
    action: ZoneAction,
) -> Result<IoWork<'static>, Status> {
    let action = match action {
        ZoneAction::Close => Action::Close,
        ZoneAction::Finish => Action::Finish,
        ZoneAction::Open => Action::Open,
        ZoneAction::Reset => Action::Reset,
        ZoneAction::Offline => Action::Offline,
        // Neither descriptor extensions nor random write areas are supported.
        ZoneAction::SetDescriptorExtension
        | ZoneAction::CommitRandomWriteArea
        | ZoneAction::Unknown(_) => return Err(Status::InvalidField),
    };
    let start = if all { 0 } else { offset_of(namespace, zone)? };
    let request = Request::Zone { start, all, action };
    Ok(IoWork::One(request, Ending::Changed(0)))
}

/// Zone Management Receive.
pub(super) struct ZoneReport {
    pub(super) from: u64,
    pub(super) len: u64,
    pub(super) kind: ReportKind,
    pub(super) filter: ReportFilter,
    pub(super) partial: bool,
}

impl ZoneReport {
    /// The report, in as many bytes as the host has asked for.
    pub(super) fn build(
        &self,
        device: &Device,
        (index, namespace): (usize, &NamespaceInfo),
    ) -> Result<Vec<u8>, Status> {
        // Extended Report Zones is for descriptor extensions, of which there are none.
        if self.kind != ReportKind::Report || matches!(self.filter, ReportFilter::Unknown(_)) {
            return Err(Status::InvalidField);
        }
        let from = offset_of(namespace, self.from)?;
        let len = self.len as usize;
        let mut report = vec![0; len];
        let mut at = ReportHeader::LEN;
        let mut listed = 0;
        let mut matching = 0;
        for zone in device.zones(index) {
            let state = state_of(&zone);
            if zone.start + zone.size <= from || !self.filter.takes(state) {
                continue;
            }
            matching += 1;
            let Some(to) = report.get_mut(at..at + ZoneDescriptor::LEN) else {
                continue;
            };
            let descriptor = describe(&zone, state, namespace.block_bytes);
            to.copy_from_slice(descriptor.as_bytes());
            at += ZoneDescriptor::LEN;
            listed += 1;
        }
        let mut header = ReportHeader::zeroed();
        header.zones = U64::new(if self.partial { listed } else { matching });
        let header = header.as_bytes();
        let fits = len.min(header.len());
        report[..fits].copy_from_slice(&header[..fits]);
        Ok(report)
    }
}

fn state_of(zone: &Zone) -> ZoneState {
    match zone.state {
        State::Empty => ZoneState::Empty,
        State::ImplicitlyOpen => ZoneState::ImplicitlyOpened,
        State::ExplicitlyOpen => ZoneState::ExplicitlyOpened,
        State::Closed => ZoneState::Closed,
        State::Full => ZoneState::Full,
        State::ReadOnly => ZoneState::ReadOnly,
        State::Offline => ZoneState::Offline,
    }
}

fn describe(zone: &Zone, state: ZoneState, block_bytes: u64) -> ZoneDescriptor {
    let write_pointer = match state {
        // Invalid in this state (ZNS §2.1.1.2); hosts that look all the same expect this.
        ZoneState::Full => zone.start + zone.size,
        _ => zone.write_pointer,
    };
    ZoneDescriptor::new(
        state,
        zone.start / block_bytes,
        zone.capacity / block_bytes,
        write_pointer / block_bytes,
    )
}
