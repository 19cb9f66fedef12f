//! Requests of a host to the device, and their outcomes.

use std::sync::Arc;

use flash_model::{Command, Move, Placement, Refused, Span, Zone, ZoneAction, ZoneState};
use serde::{Deserialize, Serialize};

use crate::store::{StoreError, StoreFault, ZoneChange};

/// An access to a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Access {
    /// It is read.
    Read,
    /// It is written.
    Write,
}

/// A request to one namespace. Offsets and lengths are bytes, whole logical blocks.
#[derive(Clone, Copy, Debug)]
pub enum Request<'a> {
    /// Read. The bytes are taken with [`super::Device::read_into`], when it is done or before.
    Read {
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
    },
    /// Write.
    Write {
        /// First byte.
        offset: u64,
        /// The data.
        data: &'a [u8],
        /// Force unit access: durable when it is done.
        fua: bool,
        /// The choice of the die (FAST'24).
        placement: Placement,
    },
    /// Write at a zone's write pointer.
    Append {
        /// First byte of the zone.
        zone: u64,
        /// The data.
        data: &'a [u8],
        /// Force unit access.
        fua: bool,
    },
    /// Make everything durable that has been done.
    Flush,
    /// This range is of no use any more; it reads as zeroes then (in a zone: as before).
    Deallocate {
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
    },
    /// Write zeroes.
    WriteZeroes {
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
        /// Force unit access.
        fua: bool,
    },
    /// Give a reclaim unit handle an empty reclaim unit.
    RenewHandle {
        /// Its number in the namespace.
        handle: u32,
    },
    /// Zone Management Send.
    Zone {
        /// First byte of the zone; ignored with `all`.
        start: u64,
        /// Whether the action is done to every zone for which it makes sense.
        all: bool,
        /// The action.
        action: ZoneAction,
    },
    /// Copy: sources, one after the other, to a destination.
    Copy {
        /// The sources.
        sources: &'a [Span],
        /// First byte of the destination.
        destination: u64,
    },
    /// Many moves in one command (`In_Device_Defragment`).
    Migrate {
        /// The moves, done in this order.
        moves: &'a [Move],
    },
}

impl<'a> Request<'a> {
    /// The command for the model: the same without the data.
    pub(super) fn command(&self) -> Command<'a> {
        match *self {
            Self::Read { offset, len } => Command::Read { offset, len },
            Self::Write {
                offset,
                data,
                fua,
                placement,
            } => Command::Write {
                offset,
                len: data.len() as u64,
                fua,
                placement,
            },
            Self::Append { zone, data, fua } => Command::Append {
                zone,
                len: data.len() as u64,
                fua,
            },
            Self::Flush => Command::Flush,
            Self::Deallocate { offset, len } => Command::Deallocate { offset, len },
            Self::WriteZeroes { offset, len, .. } => Command::WriteZeroes { offset, len },
            Self::RenewHandle { handle } => Command::RenewHandle { handle },
            Self::Zone { start, all, action } => Command::Zone { start, all, action },
            Self::Copy {
                sources,
                destination,
            } => Command::Copy {
                sources,
                destination,
            },
            Self::Migrate { moves } => Command::Migrate { moves },
        }
    }

    /// Whether all of its places and lengths are whole logical blocks.
    pub(super) fn is_whole(&self, block: u64) -> bool {
        let whole = |places: &[u64]| places.iter().all(|place| place.is_multiple_of(block));
        match *self {
            Self::Read { offset, len }
            | Self::Deallocate { offset, len }
            | Self::WriteZeroes { offset, len, .. } => whole(&[offset, len]),
            Self::Write { offset, data, .. } => whole(&[offset, data.len() as u64]),
            Self::Append { zone, data, .. } => whole(&[zone, data.len() as u64]),
            Self::Flush | Self::RenewHandle { .. } | Self::Zone { .. } => true,
            Self::Copy {
                sources,
                destination,
            } => {
                let mut sources = sources.iter();
                whole(&[destination]) && sources.all(|span| whole(&[span.offset, span.len]))
            }
            Self::Migrate { moves } => {
                let mut moves = moves.iter();
                moves.all(|piece| whole(&[piece.from, piece.to, piece.len]))
            }
        }
    }

    /// The zones that a zone management request has changed for good: `zones` are those of the
    /// model after it.
    pub(super) fn zone_changes(&self, zones: &[Zone]) -> Vec<(usize, ZoneChange)> {
        let Self::Zone { start, all, action } = *self else {
            return Vec::new();
        };
        let (then, change) = match action {
            ZoneAction::Reset => (ZoneState::Empty, ZoneChange::Reset),
            ZoneAction::Finish => (ZoneState::Full, ZoneChange::Finish),
            ZoneAction::Offline => (ZoneState::Offline, ZoneChange::Offline),
            // Whether a zone is open does not outlive the power.
            ZoneAction::Open | ZoneAction::Close => return Vec::new(),
        };
        zones
            .iter()
            .enumerate()
            .filter(|(_, zone)| zone.state == then && (all || zone.start == start))
            .map(|(index, _)| (index, change))
            .collect()
    }

    /// Call `access` with every range that it reads and writes, first byte and bytes; `append_at`
    /// gives the write pointer of the zone that begins at an offset.
    pub(super) fn accesses(
        &self,
        append_at: impl Fn(u64) -> u64,
        mut access: impl FnMut(Access, u64, u64),
    ) {
        match *self {
            Self::Read { offset, len } => access(Access::Read, offset, len),
            Self::Write { offset, data, .. } => access(Access::Write, offset, data.len() as u64),
            Self::Append { zone, data, .. } => {
                access(Access::Write, append_at(zone), data.len() as u64);
            }
            Self::WriteZeroes { offset, len, .. } => access(Access::Write, offset, len),
            Self::Flush
            | Self::Deallocate { .. }
            | Self::RenewHandle { .. }
            | Self::Zone { .. } => {}
            Self::Copy {
                sources,
                destination,
            } => {
                for source in sources {
                    access(Access::Read, source.offset, source.len);
                }
                let len = sources.iter().map(|source| source.len).sum();
                access(Access::Write, destination, len);
            }
            Self::Migrate { moves } => {
                for piece in moves {
                    access(Access::Read, piece.from, piece.len);
                    access(Access::Write, piece.to, piece.len);
                }
            }
        }
    }

    /// Whether it leaves everything as it is.
    pub(super) fn only_reads(&self) -> bool {
        matches!(self, Self::Read { .. })
    }
}

/// A request that was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Success {
    /// The place that an append was written to.
    pub wrote_at: Option<u64>,
}

/// The reason why a request was not done.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Failure {
    /// The device refuses it, and nothing has changed.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// The store has no space for the data.
    #[error(transparent)]
    NoSpace(Arc<StoreError>),
    /// The bytes cannot be read or written.
    #[error(transparent)]
    Media(Arc<StoreError>),
    /// A fault that was injected fails this access, and nothing has changed.
    #[error("{}", match .0 { Access::Read => "an injected read error", Access::Write => "an injected write error" })]
    Injected(Access),
    /// The power was cut before it was done.
    #[error("the power was cut")]
    PowerLost,
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        match error.fault() {
            StoreFault::Full => Self::NoSpace(Arc::new(error)),
            StoreFault::Media => Self::Media(Arc::new(error)),
        }
    }
}

/// Failures of the store are equal if they are the same one.
impl PartialEq for Failure {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Refused(one), Self::Refused(other)) => one == other,
            (Self::NoSpace(one), Self::NoSpace(other)) | (Self::Media(one), Self::Media(other)) => {
                Arc::ptr_eq(one, other)
            }
            (Self::Injected(one), Self::Injected(other)) => one == other,
            (Self::PowerLost, Self::PowerLost) => true,
            _ => false,
        }
    }
}

impl Eq for Failure {}

/// The end of a request.
pub type RequestResult = Result<Success, Failure>;
