//! Connect: a connection becomes a queue of a controller (Base §6.3).

use std::sync::Arc;

use nvme_wire::{
    Status, Submission,
    command::SglKind,
    fabrics::{
        CATTR_NO_FLOW_CONTROL, CNTLID_DYNAMIC, ConnectData, ConnectPart, FabricsCommand,
        invalid_parameter,
    },
    nqn_of,
    opcode::AdminOpcode,
    status::connect,
};

use super::{
    connection::Need,
    controller::{Controller, Queue},
    reply::End,
    send::Sender,
    subsystem::{QUEUE_ENTRIES_MAX, Subsystem},
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

/// Before a connection is a queue it takes nothing but Connect.
pub(super) fn need(command: &Submission) -> Result<Need, Status> {
    let is_connect = command.opcode == AdminOpcode::Fabrics.raw()
        && matches!(
            FabricsCommand::parse(command),
            FabricsCommand::Connect { .. }
        );
    if !is_connect {
        return Err(Status::SequenceError);
    }
    if command.sgl.kind() != SglKind::InCapsule {
        return Err(Status::SglTypeInvalid);
    }
    Ok(Need::FromHost {
        len: ConnectData::LEN as u64,
        exactly: true,
    })
}

/// What Connect asks for.
struct Wanted<'a> {
    queue: u16,
    entries: u32,
    no_flow_control: bool,
    keep_alive_ms: u32,
    host_id: [u8; 16],
    host: &'a str,
    controller: u16,
}

/// Carry out Connect.
///
/// # Errors
///
/// How the command ends instead.
pub(super) fn connect(
    subsystem: &Arc<Subsystem>,
    sender: &Arc<Sender>,
    command: &Submission,
    data: &[u8],
) -> Result<Arc<Queue>, End> {
    let cid = command.cid.get();
    let FabricsCommand::Connect {
        record_format,
        queue,
        entries,
        attributes,
        keep_alive_ms,
    } = FabricsCommand::parse(command)
    else {
        return Err(End::new(cid, Status::SequenceError));
    };
    if record_format != 0 {
        return Err(End::new(cid, connect::INCOMPATIBLE_FORMAT));
    }
    let Some(parameters) = ConnectData::first_of(data) else {
        return Err(End::new(cid, Status::SglLengthInvalid));
    };
    if !(2..=QUEUE_ENTRIES_MAX).contains(&entries) {
        return Err(invalid(cid, ConnectPart::Command, at::QUEUE_SIZE));
    }
    let Some(is_discovery) =
        nqn_of(&parameters.subsystem).and_then(|name| subsystem.is_discovery(name))
    else {
        return Err(invalid(cid, ConnectPart::Data, at::SUBSYSTEM));
    };
    let Some(host) = nqn_of(&parameters.host) else {
        return Err(invalid(cid, ConnectPart::Data, at::HOST));
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
    if queue == 0 {
        connect_admin(subsystem, sender, cid, &wanted, is_discovery)
    } else {
        connect_io(subsystem, sender, cid, &wanted, is_discovery)
    }
}

fn invalid(cid: u16, part: ConnectPart, offset: u16) -> End {
    End {
        cid,
        status: connect::INVALID_PARAMETERS,
        result: invalid_parameter(part, offset),
    }
}

fn connect_admin(
    subsystem: &Arc<Subsystem>,
    sender: &Arc<Sender>,
    cid: u16,
    wanted: &Wanted<'_>,
    is_discovery: bool,
) -> Result<Arc<Queue>, End> {
    // Controllers are made when they are asked for; there is none to choose.
    if wanted.controller != CNTLID_DYNAMIC {
        return Err(invalid(cid, ConnectPart::Data, at::CONTROLLER));
    }
    let controller = subsystem.add_controller(|id| {
        Controller::new(
            id,
            is_discovery,
            wanted.host,
            wanted.host_id,
            wanted.keep_alive_ms,
            subsystem,
        )
    });
    let Some(controller) = controller else {
        return Err(End::new(cid, connect::CONTROLLER_BUSY));
    };
    tracing::info!(
        controller = controller.id,
        host = wanted.host,
        is_discovery,
        "connected"
    );
    Ok(join(subsystem, sender, wanted, controller))
}

fn connect_io(
    subsystem: &Arc<Subsystem>,
    sender: &Arc<Sender>,
    cid: u16,
    wanted: &Wanted<'_>,
    is_discovery: bool,
) -> Result<Arc<Queue>, End> {
    let Some(controller) = subsystem.controller(wanted.controller) else {
        return Err(invalid(cid, ConnectPart::Data, at::CONTROLLER));
    };
    if controller.is_discovery || is_discovery {
        return Err(End::new(cid, connect::INVALID_QUEUE_TYPE));
    }
    if controller.host != wanted.host {
        return Err(invalid(cid, ConnectPart::Data, at::HOST));
    }
    if controller.host_id != wanted.host_id {
        return Err(invalid(cid, ConnectPart::Data, at::HOST_ID));
    }
    if !controller.is_ready() {
        return Err(End::new(cid, Status::SequenceError));
    }
    if u32::from(wanted.queue) > controller.io_queues() {
        return Err(invalid(cid, ConnectPart::Command, at::QUEUE));
    }
    if !controller.add_queue(wanted.queue, sender) {
        // It is there already.
        return Err(End::new(cid, Status::SequenceError));
    }
    Ok(join(subsystem, sender, wanted, controller))
}

fn join(
    subsystem: &Arc<Subsystem>,
    sender: &Arc<Sender>,
    wanted: &Wanted<'_>,
    controller: Arc<Controller>,
) -> Arc<Queue> {
    if wanted.queue == 0 {
        controller.add_queue(0, sender);
    }
    sender.connected(wanted.entries, wanted.no_flow_control);
    Arc::new(Queue {
        id: wanted.queue,
        entries: wanted.entries,
        subsystem: Arc::clone(subsystem),
        controller,
        sender: Arc::clone(sender),
    })
}
