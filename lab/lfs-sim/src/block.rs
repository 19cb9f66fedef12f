//! Places on a volume, counted in blocks.

use flash_model::Span;
use units::Bytes;

/// A file system block (F2FS: always; ext4: the usual size).
pub const BLOCK: Bytes = Bytes::kib(4);

/// A block of the volume, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Block(pub u32);

impl Block {
    /// Its first byte on the device.
    #[must_use]
    pub const fn offset(self) -> u64 {
        self.0 as u64 * BLOCK.0
    }

    /// The block `count` after it.
    #[must_use]
    pub const fn after(self, count: u32) -> Self {
        Self(self.0 + count)
    }
}

/// Consecutive blocks of the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The first one.
    pub start: Block,
    /// Their number.
    pub len: u32,
}

impl Run {
    /// The block after the last one.
    #[must_use]
    pub const fn end(self) -> Block {
        self.start.after(self.len)
    }

    /// The bytes on the device.
    #[must_use]
    pub const fn span(self) -> Span {
        Span {
            offset: self.start.offset(),
            len: self.len as u64 * BLOCK.0,
        }
    }

    /// Its blocks.
    pub fn blocks(self) -> impl Iterator<Item = Block> {
        (self.start.0..self.end().0).map(Block)
    }

    /// Adds blocks to the end of a list of runs: to the last run, if they continue it.
    pub fn push(runs: &mut Vec<Self>, run: Self) {
        match runs.last_mut() {
            Some(last) if last.end() == run.start => last.len += run.len,
            _ => runs.push(run),
        }
    }
}

/// A block that has been given another place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moved {
    /// The place that it had.
    pub from: Block,
    /// The place that it has.
    pub to: Block,
}

/// No block that a write could go to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the volume is full: {free} blocks are free, none of them where this write could go")]
pub struct Full {
    /// Free blocks all the same: invalid ones that cleaning would give back.
    pub free: u32,
}
