//! The changes to a namespace's bytes: the units of recording and replaying.

use super::{StoreError, StoredNamespace, zones::ZoneRest};

/// A change to one namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change<'a> {
    /// Bytes are written.
    Write {
        /// First byte.
        offset: u64,
        /// The data.
        data: &'a [u8],
        /// Whether the bytes are durable at once.
        fua: bool,
    },
    /// A range reads as zeroes from now on.
    Zero {
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
        /// Whether the bytes are durable at once.
        fua: bool,
    },
    /// Everything written before becomes durable.
    Flush,
    /// A zone changes, durably.
    Zone {
        /// Number of the zone, from 0.
        zone: usize,
        /// The change.
        change: ZoneChange,
    },
}

/// The change of a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZoneChange {
    /// The zone becomes empty.
    Reset,
    /// The zone becomes full, with the data that it has.
    Finish,
    /// The zone can no longer be written.
    ReadOnly,
    /// The zone is gone.
    Offline,
}

impl Change<'_> {
    /// The same change, durable at once.
    pub(crate) fn made_durable(self) -> Self {
        match self {
            Self::Write { offset, data, .. } => {
                let fua = true;
                Self::Write { offset, data, fua }
            }
            Self::Zero { offset, len, .. } => {
                let fua = true;
                Self::Zero { offset, len, fua }
            }
            Self::Flush | Self::Zone { .. } => self,
        }
    }
}

impl StoredNamespace {
    /// Whether a change is durable on return, as it asks for that or never enters the cache.
    pub(crate) fn makes_durable(&self, change: &Change<'_>) -> bool {
        match *change {
            Change::Write { fua, .. } => fua || !self.has_cache(),
            Change::Zero { len, fua, .. } => fua || self.zeroes_bypass_cache(len),
            Change::Flush | Change::Zone { .. } => true,
        }
    }

    /// Make the change.
    ///
    /// # Errors
    ///
    /// The backing file cannot be written.
    pub fn apply(&self, change: &Change<'_>) -> Result<(), StoreError> {
        match *change {
            Change::Write { offset, data, fua } => self.write(offset, data, fua),
            Change::Zero { offset, len, fua } => self.zero(offset, len, fua),
            Change::Flush => self.flush(),
            Change::Zone { zone, change } => match change {
                ZoneChange::Reset => self.reset_zone(zone),
                ZoneChange::Finish => self.set_zone(zone, ZoneRest::Finished),
                ZoneChange::ReadOnly => self.set_zone(zone, ZoneRest::ReadOnly),
                ZoneChange::Offline => self.set_zone(zone, |_| ZoneRest::Offline),
            },
        }
    }
}
