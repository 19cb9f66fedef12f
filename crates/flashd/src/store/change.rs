//! What can be done to a namespace's bytes: the unit of recording and replaying.

use super::{Namespace, StoreError, zones::ZoneRest};

/// A change to one namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change<'a> {
    /// Bytes are written.
    Write {
        /// First byte.
        offset: u64,
        /// What.
        data: &'a [u8],
        /// Durable at once.
        fua: bool,
    },
    /// A range reads as zeroes from now on.
    Zero {
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
        /// Durable at once.
        fua: bool,
    },
    /// Everything before is durable.
    Flush,
    /// A zone changes, durably.
    Zone {
        /// Number of the zone, from 0.
        zone: usize,
        /// How.
        change: ZoneChange,
    },
}

/// What happens to a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZoneChange {
    /// It is empty.
    Reset,
    /// It is full, with the data that it has.
    Finish,
    /// It can no longer be written.
    ReadOnly,
    /// It is gone.
    Offline,
}

impl Namespace {
    /// Do it.
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
