//! The process that keeps old blocks if this one is killed.

use std::{io, os::fd::AsFd, sync::OnceLock};

use linux_abi::keeper::{Keeper, Kept};

/// Started with the first file that moves.
#[derive(Debug, Default)]
pub(super) struct OldBlocks(OnceLock<Keeper>);

impl OldBlocks {
    /// Have a file kept open beyond our end, until everything that was changed before is durable.
    pub(super) fn keep(&self, file: impl AsFd) -> io::Result<Kept<'_>> {
        let keeper = match self.0.get() {
            Some(keeper) => keeper,
            None => {
                let new = Keeper::start()?;
                // If another worker was faster, ours ends.
                self.0.get_or_init(|| new)
            }
        };
        keeper.keep(file)
    }
}
