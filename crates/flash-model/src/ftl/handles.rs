//! Reclaim unit handles (NVMe's Flexible Data Placement): the host names one with each write, and the
//! data of each handle is written to blocks of its own, so that data which dies together lies
//! together.
//!
//! Handles are *initially isolated*: garbage collection puts what it moves into blocks that all
//! handles share. A *reclaim unit* is a block of each die. Data goes to the dies in turn, and each
//! die opens its next block when one is full; so the blocks of a unit need not begin at once, and
//! what is left of it is a count, not a place.

use super::{FlashWork, Ftl, blocks::Stream};

impl Ftl {
    /// Counts a logical page that was written with a handle.
    pub(super) fn count_written(&mut self, handle: u32) {
        let unit = self.geometry.slots_per_reclaim_unit();
        let written = &mut self.written[handle as usize];
        *written = (*written + 1) % unit;
    }

    /// Returns, for each handle, the logical pages that its reclaim unit still takes.
    pub fn reclaim_units_left(&self) -> impl ExactSizeIterator<Item = u64> {
        let unit = self.geometry.slots_per_reclaim_unit();
        self.written.iter().map(move |written| unit - written)
    }

    /// Gives a handle an empty reclaim unit: its open blocks are closed as they are, with what is
    /// not complete programmed. Returns the logical pages that the old one was not filled with;
    /// 0 for one that is empty and stays, and for a handle that there is not.
    pub fn renew(&mut self, handle: u32, work: &mut Vec<FlashWork>) -> u64 {
        let Some(written) = self.written.get_mut(handle as usize).map(std::mem::take) else {
            return 0;
        };
        for die in 0..self.geometry.dies {
            for parts in [false, true] {
                let stream = Stream { handle, parts };
                self.pad_stream(die, stream, work);
                let state = &mut self.dies[die as usize];
                if state.host[stream.index()].is_some() {
                    state.close_host(stream);
                }
            }
        }
        match written {
            0 => 0,
            written => self.geometry.slots_per_reclaim_unit() - written,
        }
    }
}
