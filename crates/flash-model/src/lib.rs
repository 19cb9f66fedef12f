//! A flash SSD in virtual time: when would a real one have answered?
//!
//! [`Device::submit`] takes a command and the time, and says when it is done. There is no NVMe in
//! here, no socket, no thread, no wall clock and no data: only addresses, lengths and nanoseconds.
//! The same commands at the same times give the same answers, to the nanosecond.
//!
//! What is modelled, what is not charged, and how the built-in profiles compare with published
//! figures stands in docs/flash-model.md.

#![forbid(unsafe_code)]

mod command;
mod device;
pub mod ftl;
mod geometry;
mod profile;
mod stats;
mod zone;

pub use command::{Accepted, Command, Done, Move, Placement, Refused, Span, Ticket, ZoneAction};
pub use device::{ConfigError, Device, ImageError, NamespaceKind, NamespaceSpec};
pub use geometry::{Geometry, ZoneGeometry};
pub use profile::{BUILTIN, Profile, ProfileError};
pub use stats::Stats;
pub use zone::{Zone, ZoneState};

/// The smallest unit of addresses and lengths in bytes: NVMe's smallest logical block.
pub const SECTOR: u64 = 512;
