//! Commands of Fabrics: Connect, by which a connection becomes a queue, and properties (Base §6).

use std::sync::Arc;

use nvme_wire::{
    Command, QueueKind, Status, Submission,
    command::SglKind,
    fabrics::{
        CATTR_NO_FLOW_CONTROL, CNTLID_DYNAMIC, ConnectData, ConnectPart, FabricsCommand,
        invalid_parameter,
    },
    nqn_of,
    status::connect,
};

use super::{
    controller::Controller,
    limits::QUEUE_ENTRIES_MAX,
    need::Need,
    queue::HostQueue,
    send::{Failed, Sender},
    subsystem::Subsystem,
};

/// Offsets of parameters, for the host to know which one is wrong.
mod at {
    pub(super) const QUEUE: u16 = 42;
    pub(super) const QUEUE_SIZE: u16 = 44;
    pub(super) const HOST_ID: u16 = 0;
    pub(super) const CONTROLLER: u16 = 16;
    pub(super) const SUBSYSTEM: u16 = 256;
    pub(super) const HOST: u16 = 512;
}

/// The data that a command needs before the connection is a queue: only Connect is taken.
pub(super) fn need_to_connect(command: &Command, submission: &Submission) -> Result<Need, Status> {
    if !matches!(command, Command::Fabrics(FabricsCommand::Connect { .. })) {
        return Err(Status::SequenceError);
    }
    if submission.sgl.kind() != SglKind::InCapsule {
        return Err(Status::SglTypeInvalid);
    }
    Ok(Need::FromHost {
        len: ConnectData::LEN as u64,
        exactly: true,
    })
}

/// Carry out a command on a connection that is a queue; its result.
pub(super) fn execute(queue: &HostQueue, command: &FabricsCommand) -> Result<u64, Status> {
    let controller = &queue.controller;
    match (queue.kind(), *command) {
        (QueueKind::Admin, FabricsCommand::PropertyGet { offset, size }) => controller
            .property(offset, size)
            .ok_or(Status::InvalidField),
        (
            QueueKind::Admin,
            FabricsCommand::PropertySet {
                offset,
                size,
                value,
            },
        ) => {
            if controller.set_property(offset, size, value, queue.device()) {
                Ok(0)
            } else {
                Err(Status::InvalidField)
            }
        }
        // This connection is a queue already.
        (_, FabricsCommand::Connect { .. }) => Err(Status::SequenceError),
        _ => Err(Status::InvalidOpcode),
    }
}

/// The parameters of Connect.
struct Wanted<'a> {
    queue: u16,
    entries: u32,
    no_flow_control: bool,
    keep_alive_ms: u32,
    host_id: [u8; 16],
    host: &'a str,
    controller: u16,
}

/// Carry out the first command of a connection, which has to be Connect.
///
/// # Errors
///
/// The status with which the command ends instead.
pub(super) fn connect(
    subsystem: &Arc<Subsystem>,
    sender: &Arc<Sender>,
    command: &Command,
    data: &[u8],
) -> Result<Arc<HostQueue>, Failed> {
    let Command::Fabrics(FabricsCommand::Connect {
        record_format,
        queue,
        entries,
        attributes,
        keep_alive_ms,
    }) = *command
    else {
        return Err(Status::SequenceError.into());
    };
    if record_format != 0 {
        return Err(connect::INCOMPATIBLE_FORMAT.into());
    }
    let Some(parameters) = ConnectData::first_of(data) else {
        return Err(Status::SglLengthInvalid.into());
    };
    if !(2..=QUEUE_ENTRIES_MAX).contains(&entries) {
        return Err(invalid(ConnectPart::Command, at::QUEUE_SIZE));
    }
    let Some(is_discovery) =
        nqn_of(&parameters.subsystem).and_then(|name| subsystem.is_discovery(name))
    else {
        return Err(invalid(ConnectPart::Data, at::SUBSYSTEM));
    };
    let Some(host) = nqn_of(&parameters.host) else {
        return Err(invalid(ConnectPart::Data, at::HOST));
    };
    let wanted = Wanted {
        queue,
        entries,
        no_flow_control: attributes & CATTR_NO_FLOW_CONTROL != 0,
        keep_alive_ms,
        host_id: parameters.host_id,
        host,
        controller: parameters.controller.get(),
    };
    let controller = if queue == 0 {
        connect_admin(subsystem, sender, &wanted, is_discovery)?
    } else {
        connect_io(subsystem, sender, &wanted, is_discovery)?
    };
    sender.connected(
        wanted.queue,
        wanted.entries,
        wanted.no_flow_control,
        &controller.errors,
        &controller.keep_alive,
    );
    Ok(Arc::new(HostQueue {
        id: wanted.queue,
        entries: wanted.entries,
        subsystem: Arc::clone(subsystem),
        controller,
        sender: Arc::clone(sender),
    }))
}

fn invalid(part: ConnectPart, offset: u16) -> Failed {
    Failed::with_result(connect::INVALID_PARAMETERS, invalid_parameter(part, offset))
}

/// Make a controller.
fn connect_admin(
    subsystem: &Subsystem,
    sender: &Arc<Sender>,
    wanted: &Wanted<'_>,
    is_discovery: bool,
) -> Result<Arc<Controller>, Failed> {
    // Controllers are made when they are asked for; there is none to choose.
    if wanted.controller != CNTLID_DYNAMIC {
        return Err(invalid(ConnectPart::Data, at::CONTROLLER));
    }
    let controller = subsystem.add_controller(is_discovery, |id| {
        Controller::new(
            id,
            is_discovery,
            wanted.host,
            wanted.host_id,
            wanted.keep_alive_ms,
            &subsystem.backend.device,
        )
    });
    let controller = controller.ok_or(connect::CONTROLLER_BUSY)?;
    tracing::info!(
        controller = controller.id,
        host = wanted.host,
        is_discovery,
        "connected"
    );
    controller.add_queue(0, sender);
    Ok(controller)
}

/// Find the controller that the host has already.
fn connect_io(
    subsystem: &Subsystem,
    sender: &Arc<Sender>,
    wanted: &Wanted<'_>,
    is_discovery: bool,
) -> Result<Arc<Controller>, Failed> {
    let Some(controller) = subsystem.controller(wanted.controller) else {
        return Err(invalid(ConnectPart::Data, at::CONTROLLER));
    };
    if controller.is_discovery || is_discovery {
        return Err(connect::INVALID_QUEUE_TYPE.into());
    }
    if controller.host != wanted.host {
        return Err(invalid(ConnectPart::Data, at::HOST));
    }
    if controller.host_id != wanted.host_id {
        return Err(invalid(ConnectPart::Data, at::HOST_ID));
    }
    if !controller.is_ready() {
        return Err(Status::SequenceError.into());
    }
    if u32::from(wanted.queue) > controller.io_queues() {
        return Err(invalid(ConnectPart::Command, at::QUEUE));
    }
    if !controller.add_queue(wanted.queue, sender) {
        // It is there already.
        return Err(Status::SequenceError.into());
    }
    // A reset or an end meanwhile may have looked for queues before this one was there.
    if !controller.is_ready() {
        controller.remove_queue(wanted.queue, sender);
        return Err(Status::SequenceError.into());
    }
    Ok(controller)
}
