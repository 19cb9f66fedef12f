//! A thread that reads a file from one place to another.

use std::{collections::VecDeque, ops::Range};

use flash_model::Command;
use indef_core::layout::Layout;
use units::{Bytes, FileRange, Nanos};

use super::{cpus::Cpus, plug::Limits};
use crate::{
    block::{BLOCK, Block, Run},
    cache::Windows,
    disk::{Batch, Disk, Failure, Next},
    parameters::HostParameters,
};

/// How a program reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Through the page cache, with calls of this size: the kernel reads windows, the next one while the program works
    /// on this one.
    Buffered {
        /// Bytes of a call.
        call: Bytes,
        /// The longest window.
        readahead: Bytes,
    },
    /// Past the cache, with calls of this size: each waits for all of its requests.
    Direct {
        /// Bytes of a call.
        call: Bytes,
    },
}

impl Access {
    fn windows(self, blocks: Range<u32>) -> Windows {
        let count = |bytes: Bytes| bytes.div_ceil(BLOCK) as u32;
        match self {
            Self::Buffered { call, readahead } => {
                Windows::new(blocks, count(call), count(readahead))
            }
            Self::Direct { call } => Windows::of_calls(blocks, count(call)),
        }
    }
}

/// A window on its way into memory.
#[derive(Clone, Copy, Debug)]
struct Fetch {
    batch: Batch,
    blocks: u32,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// Looks for the next window.
    Plan,
    /// Submits the requests of a window, one after the other.
    Submit(Fetch),
    /// Waits for a window.
    Wait(Fetch),
    /// Works on a window that is there, while another may be under way.
    Work { blocks: u32, ahead: Option<Fetch> },
}

/// The reading of one file.
///
/// ```text
/// buffered   fetch 0 ─ wait 0 ─ fetch 1 ─ work on 0 ─ wait 1 ─ fetch 2 ─ work on 1 …
/// direct     fetch 0 ─ wait 0 ─ fetch 1 ─ wait 1 …
/// ```
#[derive(Clone, Debug)]
pub struct Reading {
    layout: Layout,
    windows: Windows,
    is_buffered: bool,
    requests: VecDeque<Run>,
    state: State,
    /// Blocks of a window that is there, and that the program has not worked on.
    arrived: Option<u32>,
}

impl Reading {
    /// The blocks of a file that lies so.
    #[must_use]
    pub fn new(layout: Layout, blocks: Range<u32>, access: Access) -> Self {
        Self {
            layout,
            windows: access.windows(blocks),
            is_buffered: matches!(access, Access::Buffered { .. }),
            requests: VecDeque::new(),
            state: State::Plan,
            arrived: None,
        }
    }

    /// Does a step; `None` when the file has been read. `missing` tells which blocks of a window are not in memory.
    ///
    /// # Errors
    ///
    /// The device refused a read.
    pub fn step(
        &mut self,
        host: &HostParameters,
        limits: Limits,
        cpus: &mut Cpus,
        disk: &mut Disk,
        mut missing: impl FnMut(Range<u32>) -> Vec<Range<u32>>,
    ) -> Result<Option<Next>, Failure> {
        loop {
            match self.state {
                State::Plan => {
                    if let Some(window) = self.windows.next() {
                        let blocks = window.end - window.start;
                        for range in missing(window) {
                            self.requests.extend(requests(&self.layout, range, limits));
                        }
                        let batch = disk.begin();
                        self.state = State::Submit(Fetch { batch, blocks });
                        return Ok(Some(Next::At(cpus.work(disk.now(), host.call))));
                    }
                    let Some(blocks) = self.arrived.take() else {
                        return Ok(None);
                    };
                    self.state = State::Work {
                        blocks,
                        ahead: None,
                    };
                }
                State::Submit(fetch) => {
                    if let Some(run) = self.requests.pop_front() {
                        let span = run.span();
                        let (offset, len) = (span.offset, span.len);
                        disk.submit(&Command::Read { offset, len }, &[fetch.batch])?;
                        return Ok(Some(Next::At(cpus.work(disk.now(), host.request))));
                    }
                    self.state = match self.arrived.take() {
                        Some(blocks) => State::Work {
                            blocks,
                            ahead: Some(fetch),
                        },
                        None => State::Wait(fetch),
                    };
                }
                State::Wait(Fetch { batch, blocks }) => {
                    if self.is_buffered {
                        self.arrived = Some(blocks);
                        self.state = State::Plan;
                    } else {
                        // The device has written to the program's own memory: nothing to copy.
                        self.state = State::Plan;
                    }
                    return Ok(Some(Next::Done(batch)));
                }
                State::Work { blocks, ahead } => {
                    self.state = ahead.map_or(State::Plan, State::Wait);
                    let time = Nanos(host.block.0 * u64::from(blocks));
                    return Ok(Some(Next::At(cpus.work(disk.now(), time))));
                }
            }
        }
    }
}

/// The requests for blocks of a file, in order.
fn requests(layout: &Layout, blocks: Range<u32>, limits: Limits) -> impl Iterator<Item = Run> + '_ {
    let runs = layout.clipped(bytes_of(&blocks)).map(|extent| Run {
        start: Block((extent.phys.0 / BLOCK.0) as u32),
        len: (extent.len.0 / BLOCK.0) as u32,
    });
    runs.flat_map(move |run| limits.cut(run))
}

/// The bytes of blocks of a file.
pub(super) fn bytes_of(blocks: &Range<u32>) -> FileRange {
    let byte = |block: u32| u64::from(block) * BLOCK.0;
    FileRange::new(byte(blocks.start), byte(blocks.end - blocks.start))
}
