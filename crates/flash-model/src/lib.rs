//! A flash SSD in virtual time: when would a real one have answered?
//!
//! [`Device::submit`] takes a command and the time, and returns when it is done. The crate contains
//! no NVMe, no socket, no thread, no wall clock and no data: only addresses, lengths and
//! nanoseconds. The same commands at the same times give the same answers, to the nanosecond.
//!
//! docs/flash-model.md describes the model, the costs that are not charged, and how the built-in
//! profiles compare with published figures.

#![forbid(unsafe_code)]

mod command;
mod conventional;
mod core;
mod device;
mod flash;
pub mod ftl;
mod geometry;
mod migration;
mod profile;
mod stats;
mod zone;
mod zoned;

pub use self::{
    command::{
        Accepted, Command, Done, Move, OwnedCommand, Placement, Refused, Span, Ticket, ZoneAction,
    },
    conventional::{ReclaimUnits, Spare},
    device::{ConfigError, Device, ImageError, NamespaceKind, NamespaceSpec},
    geometry::{FlashGeometry, ZoneGeometry},
    profile::{BUILTIN, Kind, Parameter, Profile, ProfileError, ProfileMistake, Value, ValueFault},
    stats::{ByCause, DieStats, HintStats, Stats, Wear},
    zone::{Zone, ZoneState},
};

/// The smallest unit of addresses and lengths in bytes: NVMe's smallest logical block.
pub const SECTOR: u64 = 512;
