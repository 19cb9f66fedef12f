//! The pieces of work of a thread.

use std::{collections::VecDeque, ops::Range};

use units::Nanos;

use super::reading::{Access, Reading};
use crate::{files::FileId, log::Checkpoint};

/// Who carries the data that is given new places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// The device: `In_Device_Defragment`.
    Device,
    /// The host, which reads so.
    Host(Access),
}

/// A piece of work.
#[derive(Debug)]
pub(super) enum Work {
    /// Takes processor time.
    Compute(Nanos),
    /// Gives blocks of a file a place and writes them, turn by turn.
    Place { file: FileId, blocks: Range<u32> },
    /// Writes the dirty nodes of a file.
    PlaceNodes(FileId),
    /// Submits the requests in the making, and waits for all that were submitted.
    Submit,
    /// Has the device empty its buffer.
    Flush,
    /// Gives up the blocks that are kept for a file whose writer is gone, once nothing of it is dirty.
    Close(FileId),
    /// Reads a file.
    Read(FileId, Box<Reading>),
    /// Gives blocks of a file new places, as contiguous as can be.
    Relocate {
        file: FileId,
        runs: VecDeque<Range<u32>>,
        inside: bool,
    },
    /// Waits while there are too many dirty pages.
    Throttle,
    /// Lets those go on that wait for fewer dirty pages.
    Unthrottle,
    /// Cleans until the reserve is whole again, or waits for the thread that does.
    MakeRoom,
    /// Reads the valid blocks of a segment.
    ReadSegment(u32),
    /// Writes them elsewhere.
    MoveSegment(u32),
    /// Makes everything that has been placed durable.
    Checkpoint,
    /// Frees the sections that the checkpoint before did not know.
    Release(Checkpoint),
    /// Lets those go on that wait for room.
    RoomIsMade,
}
