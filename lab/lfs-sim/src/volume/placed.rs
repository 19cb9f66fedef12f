//! The places that an allocator hands to the host.

use crate::{block::Run, log::Log};

/// Blocks to write, and the stream of writes that they belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    /// The blocks.
    pub run: Run,
    /// The log; none for blocks that the writer's own requests carry.
    pub log: Option<Log>,
}

impl Placed {
    /// Adds a run to a list: to the last one, if it continues that.
    pub(crate) fn push(list: &mut Vec<Self>, placed: Self) {
        match list.last_mut() {
            Some(last) if last.log == placed.log && last.run.end() == placed.run.start => {
                last.run.len += placed.run.len;
            }
            _ => list.push(placed),
        }
    }
}
