//! A connection that is a queue of a controller.

use std::sync::Arc;

use nvme_wire::QueueKind;

use super::{backend::Backend, controller::Controller, send::Sender, subsystem::Subsystem};
use crate::device::Device;

/// A queue. Its commands are ended through [`super::send::Permit`].
#[derive(Debug)]
pub(super) struct HostQueue {
    pub(super) id: u16,
    pub(super) entries: u32,
    pub(super) subsystem: Arc<Subsystem>,
    pub(super) controller: Arc<Controller>,
    pub(super) sender: Arc<Sender>,
}

impl HostQueue {
    /// Which commands it takes.
    pub(super) fn kind(&self) -> QueueKind {
        if self.id == 0 {
            QueueKind::Admin
        } else {
            QueueKind::Io
        }
    }

    pub(super) fn backend(&self) -> &Backend {
        &self.subsystem.backend
    }

    pub(super) fn device(&self) -> &Arc<Device> {
        &self.backend().device
    }

    /// The connection is gone: an I/O queue's place is free, an admin queue takes its controller
    /// along.
    pub(super) fn gone(&self) {
        match self.kind() {
            QueueKind::Io => self.controller.remove_queue(self.id, &self.sender),
            QueueKind::Admin => {
                // Private namespaces are free only once nobody writes to them.
                self.controller.end();
                self.subsystem.remove_controller(self.controller.id);
            }
        }
    }
}
