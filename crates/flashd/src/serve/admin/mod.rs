//! Commands of the admin queue (Base §5).

mod features;
mod geometry;
mod identify;
mod log;
mod placement;

use nvme_wire::{Status, admin::AdminCommand, feature::Feature, identify::IDENTIFY_LEN};

use super::{
    limits::MAX_TRANSFER,
    need::Need,
    queue::HostQueue,
    send::{Completed, Failed, Permit},
};

/// The data that a command needs, as far as it can be done at all.
pub(super) fn need(queue: &HostQueue, command: &AdminCommand) -> Result<Need, Status> {
    match *command {
        AdminCommand::Identify(_) => Ok(Need::room_for(IDENTIFY_LEN as u64)),
        AdminCommand::GetLogPage(get) if get.len > MAX_TRANSFER as u64 => Err(Status::InvalidField),
        AdminCommand::GetLogPage(get) => Ok(Need::room_for(get.len)),
        AdminCommand::GetFeatures {
            feature: Feature::FdpEvents,
            select,
            value,
        } if features::has_data(select) => Ok(placement::room_for_events(value)),
        AdminCommand::SetFeatures {
            feature: Feature::FdpEvents,
            value,
            ..
        } => Ok(placement::events_need(value)),
        AdminCommand::GetFeatures {
            feature, select, ..
        } => Ok(features::data_len(feature)
            .filter(|_| features::has_data(select))
            .map_or(Need::Nothing, |len| Need::room_for(len as u64))),
        AdminCommand::SetFeatures { feature, .. } => Ok(features::data_len(feature)
            .filter(|_| feature != Feature::HostIdentifier)
            .map_or(Need::Nothing, Need::at_least)),
        // Of the optional commands a discovery controller has only these (Base §3.1.2.3).
        AdminCommand::Abort { .. } if queue.controller.is_discovery => Err(Status::InvalidOpcode),
        AdminCommand::Abort { .. } | AdminCommand::AsyncEventRequest | AdminCommand::KeepAlive => {
            Ok(Need::Nothing)
        }
        AdminCommand::Unknown(_) => Err(Status::InvalidOpcode),
    }
}

/// Carry out a command whose data is there.
pub(super) fn execute(
    queue: &HostQueue,
    permit: Permit,
    nsid: u32,
    command: &AdminCommand,
    data: &[u8],
) {
    let result = match *command {
        AdminCommand::Identify(ask) => identify::identify(queue, nsid, &ask).map(Completed::Data),
        AdminCommand::GetLogPage(ask) => log::get(queue, nsid, &ask).map(Completed::Data),
        AdminCommand::GetFeatures {
            feature: Feature::FdpEvents,
            select,
            value,
        } if features::has_data(select) => placement::events(queue, nsid, value),
        AdminCommand::GetFeatures {
            feature,
            select,
            value,
        } => features::get(queue, feature, select, value),
        AdminCommand::SetFeatures {
            feature: Feature::FdpEvents,
            save: false,
            value,
            dword12,
        } => placement::enable_events(queue, nsid, (value, dword12), data).map(Completed::Result),
        AdminCommand::SetFeatures {
            feature: Feature::FlexibleDataPlacement,
            save: false,
            value,
            dword12,
        } => placement::enable(queue, value, dword12).map(Completed::Result),
        AdminCommand::SetFeatures {
            feature,
            save,
            value,
            ..
        } => features::set(queue, feature, save, value, data).map(Completed::Result),
        AdminCommand::Abort { queue: of, cid } => abort(queue, of, cid).map(Completed::Result),
        AdminCommand::AsyncEventRequest => return queue.controller.wait_for_event(permit),
        // Its bytes have restarted the timer.
        AdminCommand::KeepAlive => Ok(Completed::Result(0)),
        AdminCommand::Unknown(_) => Err(Status::InvalidOpcode),
    };
    permit.complete(result.map_err(Failed::from));
}

/// Abort (Base §5.1): nothing that the device has begun can be stopped, so that only Asynchronous
/// Event Requests are aborted. Bit 0 of the result says that nothing was.
fn abort(queue: &HostQueue, of: u16, cid: u16) -> Result<u64, Status> {
    const NOT_ABORTED: u64 = 1;
    if !queue.controller.has_queue(of) {
        return Err(Status::InvalidField);
    }
    if of == 0 && queue.controller.abort(cid) {
        Ok(0)
    } else {
        Ok(NOT_ABORTED)
    }
}
