//! Zones and their states (ZNS Command Set 1.1 §2.1.1.2).

mod layout;
mod table;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

pub(crate) use layout::ZoneLayout;
pub(crate) use table::{Transition, ZoneTable};

/// State of a zone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ZoneState {
    /// Nothing written.
    #[default]
    Empty,
    /// Opened by a write.
    ImplicitlyOpen,
    /// Opened by a command.
    ExplicitlyOpen,
    /// Written or opened before, and not full; not open.
    Closed,
    /// No more writes until a reset.
    Full,
    /// Readable only, because the flash is failing.
    ReadOnly,
    /// Neither readable nor writable.
    Offline,
}

impl ZoneState {
    /// Whether it counts against the limit of open zones.
    #[must_use]
    pub const fn is_open(self) -> bool {
        matches!(self, Self::ImplicitlyOpen | Self::ExplicitlyOpen)
    }

    /// Whether it counts against the limit of active zones.
    #[must_use]
    pub const fn is_active(self) -> bool {
        self.is_open() || matches!(self, Self::Closed)
    }
}

impl ZoneState {
    const ALL: [Self; 7] = [
        Self::Empty,
        Self::ImplicitlyOpen,
        Self::ExplicitlyOpen,
        Self::Closed,
        Self::Full,
        Self::ReadOnly,
        Self::Offline,
    ];

    /// Its number in a saved state.
    pub(crate) const fn code(self) -> u8 {
        self as u8
    }

    /// Returns the state with that number.
    pub(crate) fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code)).copied()
    }
}

/// A zone. All places are bytes in the namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Zone {
    /// First byte.
    pub start: u64,
    /// Distance to the next zone's start.
    pub size: u64,
    /// Bytes that can be written, from the start.
    pub capacity: u64,
    /// The place of the next write; meaningless when full, read only or offline.
    pub write_pointer: u64,
    /// State.
    pub state: ZoneState,
}

impl Zone {
    /// Returns one past the last byte that can be written.
    #[must_use]
    pub const fn writable_end(&self) -> u64 {
        self.start + self.capacity
    }

    /// Returns the bytes that are taken, by data or padding.
    #[must_use]
    pub const fn filled(&self) -> u64 {
        match self.state {
            ZoneState::Empty | ZoneState::Offline => 0,
            ZoneState::Full => self.capacity,
            ZoneState::ImplicitlyOpen
            | ZoneState::ExplicitlyOpen
            | ZoneState::Closed
            | ZoneState::ReadOnly => self.write_pointer - self.start,
        }
    }
}
