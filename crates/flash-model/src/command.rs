//! The commands of a host to the device, and its answers.
//!
//! The terms are those of the NVMe NVM and ZNS command sets; this module does not know the
//! encoding. All addresses and lengths are bytes in the namespace.

use units::Nanos;

/// A part of a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Span {
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
}

impl Span {
    /// One past the last byte; the largest number where it would overflow.
    #[must_use]
    pub const fn end(self) -> u64 {
        self.offset.saturating_add(self.len)
    }
}

/// One contiguous piece of an in-device migration (`In_Device_Defragment`, InDeF §III-D).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Move {
    /// First byte of the data.
    pub from: u64,
    /// First byte of its destination.
    pub to: u64,
    /// Bytes.
    pub len: u64,
}

/// The place of a write on a conventional namespace: the die that its first unit goes to (FAST'24
/// §5), or the data that shares its blocks. Zoned namespaces ignore it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Placement {
    /// The die after the one that was written last: in order of arrival.
    #[default]
    RoundRobin,
    /// "append": the die after the one that holds the block before the appended data.
    After {
        /// A byte of that preceding block.
        predecessor: u64,
    },
    /// "overwrite": the die that holds the data that is overwritten.
    Overwrite,
    /// To the reclaim unit of a handle, see [`crate::ReclaimUnits`]; every other write goes to that
    /// of handle 0, as does one with a handle that there is not.
    Handle(u32),
}

/// An action on a zone (ZNS Command Set 1.1 §3.4.3, Zone Send Action).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ZoneAction {
    /// To Explicitly Opened.
    Open,
    /// From opened to Closed.
    Close,
    /// To Full; the rest of the zone is padded.
    Finish,
    /// To Empty; the zone's flash blocks are erased.
    Reset,
    /// From Read Only to Offline.
    Offline,
}

/// A command. The model does not see the data bytes; only where they are and how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command<'a> {
    /// Reads bytes.
    Read {
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
    },
    /// Writes bytes; in a zone only at its write pointer.
    Write {
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
        /// Force unit access: done when the data is on flash.
        fua: bool,
        /// The choice of the die, on a conventional namespace.
        placement: Placement,
    },
    /// Writes at the zone's write pointer, wherever it stands.
    Append {
        /// Start of the zone.
        zone: u64,
        /// Bytes.
        len: u64,
        /// Force unit access.
        fua: bool,
    },
    /// Brings everything written so far to flash.
    Flush,
    /// Gives up bytes that are of no use any more (Dataset Management, Deallocate).
    Deallocate {
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
    },
    /// Writes zeroes, without a transfer from the host.
    WriteZeroes {
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
    },
    /// Gives a reclaim unit handle an empty reclaim unit.
    RenewHandle {
        /// Its number.
        handle: u32,
    },
    /// Zone Management Send.
    Zone {
        /// Start of the zone; ignored if `all` is set.
        start: u64,
        /// Whether the action is done to all zones for which it makes sense.
        all: bool,
        /// The action.
        action: ZoneAction,
    },
    /// The Copy command: sources one after the other to one destination.
    Copy {
        /// The places of the data.
        sources: &'a [Span],
        /// First byte of the destination; on a zoned namespace, a zone's write pointer.
        destination: u64,
    },
    /// Many copies in one command (`In_Device_Defragment`), in this order.
    Migrate {
        /// The pieces; on a zoned namespace the destination of each is the write pointer of its
        /// zone after the pieces before it.
        moves: &'a [Move],
    },
}

/// A command that owns its lists, to keep it for later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnedCommand {
    /// One without a list.
    Plain(Command<'static>),
    /// [`Command::Copy`].
    Copy {
        /// The places of the data.
        sources: Vec<Span>,
        /// First byte of the destination.
        destination: u64,
    },
    /// [`Command::Migrate`].
    Migrate(Vec<Move>),
}

impl OwnedCommand {
    /// Returns the command that it is.
    #[must_use]
    pub fn as_command(&self) -> Command<'_> {
        match self {
            Self::Plain(command) => *command,
            Self::Copy {
                sources,
                destination,
            } => Command::Copy {
                sources,
                destination: *destination,
            },
            Self::Migrate(moves) => Command::Migrate { moves },
        }
    }
}

impl From<Command<'_>> for OwnedCommand {
    fn from(command: Command<'_>) -> Self {
        Self::Plain(match command {
            Command::Copy {
                sources,
                destination,
            } => {
                return Self::Copy {
                    sources: sources.to_vec(),
                    destination,
                };
            }
            Command::Migrate { moves } => return Self::Migrate(moves.to_vec()),
            Command::Read { offset, len } => Command::Read { offset, len },
            Command::Write {
                offset,
                len,
                fua,
                placement,
            } => Command::Write {
                offset,
                len,
                fua,
                placement,
            },
            Command::Append { zone, len, fua } => Command::Append { zone, len, fua },
            Command::Flush => Command::Flush,
            Command::Deallocate { offset, len } => Command::Deallocate { offset, len },
            Command::WriteZeroes { offset, len } => Command::WriteZeroes { offset, len },
            Command::RenewHandle { handle } => Command::RenewHandle { handle },
            Command::Zone { start, all, action } => Command::Zone { start, all, action },
        })
    }
}

/// Identifies a command whose end is not known yet; [`crate::Device::advance`] returns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// The time at which a command is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done {
    /// At this time, whatever comes after it.
    At(Nanos),
    /// Not known yet: in-device migration goes on in the background and lets host requests pass.
    Later(Ticket),
}

/// A command that was accepted. Its effect on zones and mapping takes place at once, in submission
/// order, as for a controller that fetches one command after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// The time at which the host learns that it is done.
    pub done: Done,
    /// The byte at which an append put its data.
    pub wrote_at: Option<u64>,
}

/// The reason why a command was refused; a refused command changed nothing.
///
/// Zoned ones carry the status of the ZNS Command Set 1.1, figure "Command Specific Status Values".
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Refused {
    /// Zone Boundary Error (0x1B8).
    #[error("the write crosses the end of its zone's capacity")]
    ZoneBoundary,
    /// Zone Is Full (0x1B9).
    #[error("the zone is full; reset it or write to another")]
    ZoneFull,
    /// Zone Is Read Only (0x1BA).
    #[error("the zone is read only")]
    ZoneReadOnly,
    /// Zone Is Offline (0x1BB).
    #[error("the zone is offline; its data is lost")]
    ZoneOffline,
    /// Zone Invalid Write (0x1BC).
    #[error("the write is not at the zone's write pointer")]
    InvalidWrite,
    /// Too Many Active Zones (0x1BD).
    #[error("too many zones are active; finish or reset one")]
    TooManyActive,
    /// Too Many Open Zones (0x1BE).
    #[error("too many zones are explicitly open; close one")]
    TooManyOpen,
    /// Invalid Zone State Transition (0x1BF).
    #[error("the zone's state does not allow this action")]
    InvalidTransition,
    /// LBA Out of Range (0x80).
    #[error("the address is beyond the end of the namespace")]
    OutOfRange,
    /// Invalid Field in Command (0x02): an address or a length that is no multiple of
    /// [`crate::SECTOR`], a zone that does not begin there, or no bytes at all.
    #[error("the address or length is not aligned, or empty")]
    Unaligned,
    /// Invalid Command Opcode (0x01): a zone command for a conventional namespace.
    #[error("the namespace has no zones")]
    NotZoned,
    /// Invalid Field in Command (0x02): a reclaim unit handle that the namespace does not have.
    #[error("the namespace has no such reclaim unit handle")]
    NoSuchHandle,
    /// Invalid Namespace or Format (0x0B).
    #[error("there is no such namespace")]
    NoSuchNamespace,
    /// Overlapping I/O Range: a source of a copy overlaps its destination.
    #[error("source and destination of the copy overlap")]
    Overlap,
    /// Capacity Exceeded (0x81): no free flash page is left, nor one that could be reclaimed.
    #[error("no free flash is left in the namespace")]
    CapacityExceeded,
}
