//! Commands of the admin queue (Base §5).

mod features;
mod geometry;
mod identify;
mod log;

use std::sync::Arc;

use nvme_wire::{
    Status, Submission, admin::AdminCommand, event::Event, fabrics::FabricsCommand,
    feature::Feature, identify::IDENTIFY_LEN,
};

use super::{connection::Need, controller::Queue, reply::Reply, subsystem::MAX_TRANSFER};

/// What data a command needs, as far as it can be done at all.
pub(super) fn need(queue: &Queue, command: &Submission) -> Result<Need, Status> {
    let to_host = |len: u64| {
        Ok(Need::ToHost {
            len,
            exactly: false,
        })
    };
    let is_discovery = queue.controller.is_discovery;
    match AdminCommand::parse(command) {
        AdminCommand::Identify(_) => to_host(IDENTIFY_LEN as u64),
        AdminCommand::GetLogPage(get) => {
            if get.len > MAX_TRANSFER as u64 {
                return Err(Status::InvalidField);
            }
            to_host(get.len)
        }
        AdminCommand::GetFeatures {
            feature, select, ..
        } => match features::data_len(feature).filter(|_| features::has_data(select)) {
            Some(len) => to_host(len),
            None => Ok(Need::Nothing),
        },
        AdminCommand::SetFeatures { feature, .. } => Ok(match features::data_len(feature) {
            Some(len) if feature != Feature::HostIdentifier => Need::FromHost {
                len,
                exactly: false,
            },
            _ => Need::Nothing,
        }),
        // Of the optional commands a discovery controller has these (Base §3.1.2.3).
        AdminCommand::Abort { .. } if is_discovery => Err(Status::InvalidOpcode),
        AdminCommand::Abort { .. }
        | AdminCommand::AsyncEventRequest
        | AdminCommand::KeepAlive
        | AdminCommand::Fabrics(_) => Ok(Need::Nothing),
        AdminCommand::Unknown(_) => Err(Status::InvalidOpcode),
    }
}

/// Carry out a command whose data is there.
pub(super) fn execute(queue: &Arc<Queue>, command: &Submission, data: &[u8]) {
    let cid = command.cid.get();
    match AdminCommand::parse(command) {
        AdminCommand::Identify(identify) => {
            match identify::identify(queue, command.nsid.get(), &identify) {
                Ok(page) => queue.sender.reply(Reply::Data(cid, page)),
                Err(status) => queue.fail(command, status),
            }
        }
        AdminCommand::GetLogPage(get) => match log::get(queue, command.nsid.get(), &get) {
            Ok(page) => queue.sender.reply(Reply::Data(cid, page)),
            Err(status) => queue.fail(command, status),
        },
        AdminCommand::GetFeatures {
            feature,
            select,
            value,
        } => match features::get(queue, feature, select, value) {
            Ok(features::Value::Number(number)) => queue.sender.success(cid, number.into()),
            Ok(features::Value::Data(data)) => queue.sender.reply(Reply::Data(cid, data)),
            Err(status) => queue.fail(command, status),
        },
        AdminCommand::SetFeatures {
            feature,
            save,
            value,
        } => queue.end(command, features::set(queue, feature, save, value, data)),
        AdminCommand::Abort { queue: of, cid } => abort(queue, command, of, cid),
        AdminCommand::AsyncEventRequest => {
            if queue.controller.events(|events| events.request(cid)) {
                queue.controller.tell();
            } else {
                queue.fail(command, Status::EventLimitExceeded);
            }
        }
        AdminCommand::KeepAlive => {
            queue.controller.seen();
            queue.sender.success(cid, 0);
        }
        AdminCommand::Fabrics(fabrics) => queue.end(command, property(queue, &fabrics)),
        AdminCommand::Unknown(_) => queue.fail(command, Status::InvalidOpcode),
    }
}

/// Properties (Base §6.5, §6.6).
fn property(queue: &Queue, command: &FabricsCommand) -> Result<u64, Status> {
    let controller = &queue.controller;
    match *command {
        FabricsCommand::PropertyGet { offset, size } => controller
            .property(offset, size)
            .ok_or(Status::InvalidField),
        FabricsCommand::PropertySet {
            offset,
            size,
            value,
        } => {
            if controller.set_property(offset, size, value, &queue.subsystem) {
                Ok(0)
            } else {
                Err(Status::InvalidField)
            }
        }
        // This connection is a queue already.
        FabricsCommand::Connect { .. } => Err(Status::SequenceError),
        FabricsCommand::Disconnect { .. } | FabricsCommand::Other(_) => Err(Status::InvalidOpcode),
    }
}

/// Abort (Base §5.1): of what the device has begun nothing can be stopped, so that it succeeds for
/// Asynchronous Event Requests alone. The result's bit 0 says that nothing was aborted.
fn abort(queue: &Queue, command: &Submission, of: u16, cid: u16) {
    const NOT_ABORTED: u64 = 1;
    if !queue.controller.has_queue(of) {
        queue.fail(command, Status::InvalidField);
        return;
    }
    if of == 0 && queue.controller.events(|events| events.abort(cid)) {
        queue.sender.done(cid, Status::AbortRequested);
        queue.sender.success(command.cid.get(), 0);
    } else {
        queue.sender.success(command.cid.get(), NOT_ABORTED);
    }
}

/// Events that a host can ask for: bits of OAES, and those of SMART.
fn known_events(is_discovery: bool) -> u32 {
    if is_discovery {
        Event::DiscoveryChanged.enabled_by()
    } else {
        Event::NamespaceChanged.enabled_by() | Event::Reliability.enabled_by()
    }
}
