//! The effect of a request on the bytes.

use flash_model::NamespaceKind;

use super::{Device, Request, differs, restore_zones_if};
use crate::{
    lock::lock,
    store::{Change, StoreError, ZoneChange, ZoneRest},
};

/// Bytes that are copied at once inside of the device.
const COPY_STEP: u64 = 128 << 10;

impl Device {
    /// Apply a request that the model has accepted to the store.
    pub(super) fn carry_out(
        &self,
        namespace: usize,
        request: &Request<'_>,
        wrote_at: Option<u64>,
        zone_changes: &[(usize, ZoneChange)],
    ) -> Result<(), StoreError> {
        match *request {
            // Where data lies is the model's.
            Request::Read { .. } | Request::RenewHandle { .. } => Ok(()),
            Request::Write {
                offset, data, fua, ..
            } => self.apply(namespace, &Change::Write { offset, data, fua }),
            Request::Append { zone, data, fua } => {
                let offset = wrote_at.unwrap_or(zone);
                self.apply(namespace, &Change::Write { offset, data, fua })
            }
            Request::Flush => self.apply(namespace, &Change::Flush),
            Request::Deallocate { offset, len } => {
                match self.namespaces[namespace].kind {
                    // In a zone it is a hint that changes nothing.
                    NamespaceKind::Zoned => Ok(()),
                    NamespaceKind::Conventional => {
                        let fua = false;
                        self.apply(namespace, &Change::Zero { offset, len, fua })
                    }
                }
            }
            Request::WriteZeroes { offset, len, fua } => {
                self.apply(namespace, &Change::Zero { offset, len, fua })
            }
            Request::Zone { all, .. } => {
                let durable = if all {
                    self.store.namespaces[namespace].durable_zones()
                } else {
                    Vec::new()
                };
                for (zone, change) in zone_changes {
                    // Of all zones, only those that are not in the wanted state yet.
                    if !is_already(&durable, namespace, *zone, *change, self) {
                        let (zone, change) = (*zone, *change);
                        self.apply(namespace, &Change::Zone { zone, change })?;
                    }
                }
                if zone_changes.is_empty() {
                    return Ok(());
                }
                self.store.namespaces[namespace].sync()
            }
            Request::Copy {
                sources,
                destination,
            } => {
                let mut to = destination;
                for source in sources {
                    self.copy(namespace, source.offset, to, source.len)?;
                    to += source.len;
                }
                Ok(())
            }
            Request::Migrate { moves } => moves
                .iter()
                .try_for_each(|piece| self.copy(namespace, piece.from, piece.to, piece.len)),
        }
    }

    fn copy(&self, namespace: usize, from: u64, to: u64, len: u64) -> Result<(), StoreError> {
        let mut buffer = vec![0; len.min(COPY_STEP) as usize];
        let mut done = 0;
        while done < len {
            let part = &mut buffer[..(len - done).min(COPY_STEP) as usize];
            self.store.namespaces[namespace].read(from + done, part)?;
            let write = Change::Write {
                offset: to + done,
                data: part,
                fua: false,
            };
            self.apply(namespace, &write)?;
            done += part.len() as u64;
        }
        Ok(())
    }

    /// Change the store, and the recording with it if there is one.
    pub(super) fn apply(&self, namespace: usize, change: &Change<'_>) -> Result<(), StoreError> {
        let store = &self.store.namespaces[namespace];
        let recorded = self.recording.gate();
        if !*recorded {
            return store.apply(change);
        }
        // Held over both, so that the recording has the order of the store.
        let mut recording = self.recording.lock();
        if let Err(error) = store.apply(change) {
            recording.failed(change, &error);
            return Err(error);
        }
        // Without a cache hosts send no flush.
        let change = if store.makes_durable(change) {
            change.made_durable()
        } else {
            *change
        };
        recording.note(self.namespaces[namespace].id, &change);
        Ok(())
    }

    /// The store could not do what the model has accepted: zones that differ go back to the states of the
    /// store.
    pub(super) fn take_back(&self, namespace: usize) {
        if self.namespaces[namespace].kind == NamespaceKind::Zoned {
            let zones = self.store.namespaces[namespace].zones_now();
            restore_zones_if(&mut lock(&self.model), namespace, &zones, differs);
        }
    }
}

/// Whether a zone, in an action on all, is in the wanted state already, so that nothing needs to be
/// written.
fn is_already(
    durable: &[ZoneRest],
    namespace: usize,
    zone: usize,
    change: ZoneChange,
    device: &Device,
) -> bool {
    match (durable.get(zone), change) {
        (Some(ZoneRest::Written(0)), ZoneChange::Reset) => {
            device.store.namespaces[namespace].written_in_zone(zone) == 0
        }
        (Some(ZoneRest::Finished(_)), ZoneChange::Finish)
        | (Some(ZoneRest::Offline), ZoneChange::Offline) => true,
        _ => false,
    }
}
