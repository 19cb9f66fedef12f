//! The device as commands reach it: namespaces by NSID, NVMe status for failures.

use std::sync::Arc;

use flash_model::Refused;
use nvme_wire::Status;

use crate::device::{Access, Device, Failure, NamespaceInfo};

/// The device.
#[derive(Debug)]
pub(super) struct Backend {
    pub(super) device: Arc<Device>,
}

impl Backend {
    pub(super) fn new(device: Arc<Device>) -> Self {
        Self { device }
    }

    /// The namespace with this identifier, and its index in the device.
    pub(super) fn namespace(&self, nsid: u32) -> Result<(usize, &NamespaceInfo), Status> {
        self.device
            .namespaces()
            .iter()
            .enumerate()
            .find(|(_, namespace)| namespace.id == nsid)
            .ok_or(Status::InvalidNamespace)
    }

    /// The largest identifier of a namespace.
    pub(super) fn largest_nsid(&self) -> u32 {
        let ids = self.device.namespaces().iter().map(|n| n.id);
        ids.max().unwrap_or(0)
    }

    /// The status for a failure of the device; `media` for a failure of the store.
    pub(super) fn status_of(&self, failure: &Failure, media: Status) -> Status {
        match failure {
            Failure::Refused(refused) => status_of_refusal(*refused),
            Failure::NoSpace(_) => Status::CapacityExceeded,
            Failure::Media(error) => {
                self.device.count_media_error();
                tracing::error!(reason = %error, "the store failed");
                media
            }
            Failure::Injected(access) => {
                self.device.count_media_error();
                match access {
                    Access::Read => Status::UnrecoveredRead,
                    Access::Write => Status::WriteFault,
                }
            }
            Failure::PowerLost => Status::AbortedPowerLoss,
        }
    }
}

fn status_of_refusal(refused: Refused) -> Status {
    match refused {
        Refused::ZoneBoundary => Status::ZoneBoundary,
        Refused::ZoneFull => Status::ZoneFull,
        Refused::ZoneReadOnly => Status::ZoneReadOnly,
        Refused::ZoneOffline => Status::ZoneOffline,
        Refused::InvalidWrite => Status::ZoneInvalidWrite,
        Refused::TooManyActive => Status::TooManyActive,
        Refused::TooManyOpen => Status::TooManyOpen,
        Refused::InvalidTransition => Status::InvalidZoneTransition,
        Refused::OutOfRange => Status::LbaOutOfRange,
        Refused::Unaligned | Refused::NoSuchHandle => Status::InvalidField,
        Refused::NotZoned => Status::InvalidOpcode,
        Refused::NoSuchNamespace => Status::InvalidNamespace,
        Refused::Overlap => Status::OverlappingRange,
        Refused::CapacityExceeded => Status::CapacityExceeded,
    }
}
