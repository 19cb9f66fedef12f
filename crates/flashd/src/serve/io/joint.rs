//! A command that is several requests to the device: it ends when the last of them does.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicUsize, Ordering},
};

use nvme_wire::{Status, Submission};

use super::{super::controller::Queue, failed};
use crate::device::{Failure, Request};

/// What the requests of one command share.
#[derive(Debug)]
pub(super) struct Joint {
    queue: Arc<Queue>,
    command: Submission,
    result: u64,
    open: AtomicUsize,
    failure: OnceLock<Failure>,
}

impl Joint {
    /// `count` (at least one) requests for `command`, which ends with `result` if all go well, and
    /// else with the first failure.
    pub(super) fn new(
        queue: &Arc<Queue>,
        command: &Submission,
        count: usize,
        result: u64,
    ) -> Arc<Self> {
        Arc::new(Self {
            queue: Arc::clone(queue),
            command: *command,
            result,
            open: AtomicUsize::new(count),
            failure: OnceLock::new(),
        })
    }

    /// One of the requests.
    pub(super) fn submit(self: &Arc<Self>, namespace: usize, request: &Request<'_>) {
        let joint = Arc::clone(self);
        let device = &self.queue.subsystem.device;
        device.submit(namespace, request, move |outcome| {
            if let Err(failure) = outcome {
                let _ = joint.failure.set(failure);
            }
            if joint.open.fetch_sub(1, Ordering::AcqRel) > 1 {
                return;
            }
            match joint.failure.get() {
                None => joint
                    .queue
                    .sender
                    .success(joint.command.cid.get(), joint.result),
                Some(failure) => {
                    failed(&joint.queue, &joint.command, failure, Status::WriteFault);
                }
            }
        });
    }
}
