//! The kernel's state, and the calls of threads.

use std::collections::VecDeque;

use flash_model::{Command, ZoneAction};
use units::{Bytes, Nanos};

use super::{
    cpus::Cpus,
    plug::{Limits, Plug},
    reading::{Access, Reading},
    work::Work,
};
use crate::{
    block::{BLOCK, Moved},
    cache::{DirtyPages, PageCache},
    disk::{Batch, Disk, Failure, Next},
    files::FileId,
    log::Log,
    parameters::Parameters,
    volume::{Placed, Volume},
};

/// Time after which the flusher looks for work again.
const FLUSHER_LOOKS: Nanos = Nanos(50_000_000);

/// How a program writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Writes {
    /// Into the page cache.
    #[default]
    Cached,
    /// Past it: the thread writes its blocks to the device itself, and waits for them.
    Direct,
}

/// The host's work so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Blocks of files' data that were placed.
    pub placed_blocks: u64,
    /// Sections that were cleaned.
    pub cleaned_sections: u64,
    /// Valid blocks that cleaning moved.
    pub cleaned_blocks: u64,
    /// Blocks that a defragmenter moved.
    pub relocated_blocks: u64,
    /// Checkpoints.
    pub checkpoints: u64,
    /// Most blocks in memory at once: dirty pages and clean ones.
    pub most_in_memory: u64,
}

/// A thread in the kernel.
#[derive(Debug, Default)]
pub(super) struct Thread {
    /// Its work to come, in order.
    pub(super) work: VecDeque<Work>,
    /// Requests that it has submitted and not waited for.
    pub(super) batch: Option<Batch>,
    /// Requests of its own, where there are no logs.
    pub(super) plug: Plug,
}

/// The kernel, its volume, and its memory.
#[derive(Debug)]
pub struct Host {
    pub(super) parameters: Parameters,
    pub(super) limits: Limits,
    pub(super) volume: Volume,
    pub(super) threads: Vec<Thread>,
    /// The requests of each log.
    pub(super) plugs: [Plug; Log::ALL.len()],
    pub(super) cpus: Cpus,
    pub(super) dirty: DirtyPages,
    pub(super) pages: PageCache,
    /// The thread that makes room.
    pub(super) cleaner: Option<usize>,
    pub(super) waiting_for_room: Vec<usize>,
    /// Writers of too many dirty pages.
    pub(super) throttled: Vec<usize>,
    pub(super) checkpoint_at: Nanos,
    pub(super) counters: Counters,
    /// Kept for their memory.
    pub(super) placed: Vec<Placed>,
    pub(super) moves: Vec<Moved>,
}

impl Host {
    /// A host with so many threads.
    #[must_use]
    pub fn new(parameters: &Parameters, volume: Volume, threads: usize) -> Self {
        let boundary = match volume {
            Volume::Log(_) => parameters.log.section,
            Volume::InPlace(_) => parameters.groups.group,
        };
        Self {
            limits: Limits {
                blocks: parameters.host.max_request.div_ceil(BLOCK) as u32,
                boundary: boundary.div_ceil(BLOCK) as u32,
            },
            volume,
            threads: (0..threads).map(|_| Thread::default()).collect(),
            plugs: Default::default(),
            cpus: Cpus::new(parameters.host.cpus),
            dirty: DirtyPages::default(),
            pages: PageCache::new(parameters.cache.pages.div_ceil(BLOCK)),
            cleaner: None,
            waiting_for_room: Vec::new(),
            throttled: Vec::new(),
            checkpoint_at: parameters.log.checkpoint_interval,
            counters: Counters::default(),
            placed: Vec::new(),
            moves: Vec::new(),
            parameters: parameters.clone(),
        }
    }

    /// The volume.
    #[must_use]
    pub const fn volume(&self) -> &Volume {
        &self.volume
    }

    /// The volume alone: the host is shut down. Dirty pages are lost; [`Host::sync_all`] keeps them.
    #[must_use]
    pub fn into_volume(self) -> Volume {
        self.volume
    }

    /// The counters so far.
    #[must_use]
    pub const fn counters(&self) -> Counters {
        self.counters
    }

    /// Whether no thread has anything left to do or to wait for.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        let idle = |thread: &Thread| thread.work.is_empty() && thread.batch.is_none();
        self.threads.iter().all(idle)
    }

    /// Looks at a file that a defragmenter has before it.
    pub fn look_at(&mut self, thread: usize) {
        if self.parameters.host.file.0 > 0 {
            self.add(thread, Work::Compute(self.parameters.host.file));
        }
    }

    /// Makes an empty file.
    pub fn create(&mut self, thread: usize) -> FileId {
        self.add(thread, Work::Compute(self.parameters.host.call));
        self.volume.create()
    }

    /// Removes a file, with its pages.
    pub fn delete(&mut self, thread: usize, file: FileId) {
        self.add(thread, Work::Compute(self.parameters.host.call));
        self.dirty.take(file);
        self.pages.remove(file, self.volume.files().blocks(file));
        self.volume.delete(file);
    }

    /// Writes bytes to a file.
    ///
    /// # Errors
    ///
    /// No block is free, where blocks are allocated at once.
    pub fn write(
        &mut self,
        thread: usize,
        file: FileId,
        at: Bytes,
        len: Bytes,
        writes: Writes,
    ) -> Result<(), Failure> {
        let blocks = (at.0 / BLOCK.0) as u32..(at + len).div_ceil(BLOCK) as u32;
        if blocks.is_empty() {
            return Ok(());
        }
        self.add(thread, Work::Compute(self.parameters.host.call));
        match writes {
            Writes::Direct => {
                self.add(thread, Work::Place { file, blocks });
                self.add(thread, Work::Submit);
            }
            Writes::Cached => {
                if let Volume::InPlace(volume) = &mut self.volume
                    && !self.parameters.groups.delayed_allocation
                {
                    volume.reserve(file, blocks.start, blocks.end - blocks.start)?;
                }
                let copy = Nanos(self.parameters.host.block.0 * blocks.len() as u64);
                self.add(thread, Work::Compute(copy));
                self.add(thread, Work::Throttle);
                self.pages.insert(file, blocks.clone());
                self.dirty.add(file, blocks);
                self.note_memory();
            }
        }
        Ok(())
    }

    /// The writer of a file closes it.
    pub fn close(&mut self, thread: usize, file: FileId) {
        self.add(thread, Work::Close(file));
    }

    /// Makes a file durable: its dirty pages, its nodes, and the device's buffer.
    pub fn sync(&mut self, thread: usize, file: FileId) {
        self.add(thread, Work::Compute(self.parameters.host.call));
        for blocks in self.dirty.take(file) {
            self.add(thread, Work::Place { file, blocks });
        }
        self.add(thread, Work::Submit);
        self.add(thread, Work::PlaceNodes(file));
        self.add(thread, Work::Submit);
        self.add(thread, Work::Flush);
    }

    /// Makes everything durable, with a checkpoint.
    pub fn sync_all(&mut self, thread: usize) {
        while let Some((file, ranges)) = self.dirty.take_next(u32::MAX) {
            for blocks in ranges {
                self.add(thread, Work::Place { file, blocks });
            }
        }
        self.add(thread, Work::Submit);
        self.add(thread, Work::Checkpoint);
    }

    /// Reads a whole file.
    pub fn read(&mut self, thread: usize, file: FileId, access: Access) {
        let blocks = 0..self.volume.files().blocks(file);
        let reading = Reading::new(self.volume.layout(file), blocks, access);
        self.add(thread, Work::Read(file, Box::new(reading)));
    }

    /// Gives the flusher work, if there is some. Returns when it should look again where there is none.
    pub fn flush_some(&mut self, thread: usize, disk: &Disk) -> Option<Next> {
        let background = self.parameters.cache.dirty_background.div_ceil(BLOCK);
        let chunk = self.parameters.cache.writeback_chunk.div_ceil(BLOCK) as u32;
        if self.dirty.blocks() > background
            && let Some((file, ranges)) = self.dirty.take_next(chunk)
        {
            for blocks in ranges {
                self.add(thread, Work::Place { file, blocks });
            }
            self.add(thread, Work::Submit);
            self.add(thread, Work::Unthrottle);
            return None;
        }
        if disk.now() >= self.checkpoint_at && matches!(self.volume, Volume::Log(_)) {
            self.add(thread, Work::Checkpoint);
            return None;
        }
        Some(Next::At(disk.now() + FLUSHER_LOOKS))
    }

    pub(super) fn add(&mut self, thread: usize, work: Work) {
        self.threads[thread].work.push_back(work);
    }

    /// Puts work before all else that a thread has to do, in this order.
    pub(super) fn add_first(
        &mut self,
        thread: usize,
        work: impl IntoIterator<Item = Work, IntoIter: DoubleEndedIterator>,
    ) {
        let queue = &mut self.threads[thread].work;
        for work in work.into_iter().rev() {
            queue.push_front(work);
        }
    }

    pub(super) fn note_memory(&mut self) {
        // Dirty pages are among those of the cache.
        self.counters.most_in_memory = self.counters.most_in_memory.max(self.pages.pages());
    }

    /// The time in which a processor deals with the commands that were submitted since there were `before`.
    pub(super) fn requests_since(&self, before: u64, disk: &Disk) -> Nanos {
        Nanos(self.parameters.host.request.0 * (disk.submitted() - before))
    }

    pub(super) fn batch(&mut self, thread: usize, disk: &mut Disk) -> Batch {
        *self.threads[thread]
            .batch
            .get_or_insert_with(|| disk.begin())
    }

    /// Adds blocks that were placed to requests.
    pub(super) fn write_placed(&mut self, thread: usize, disk: &mut Disk) -> Result<(), Failure> {
        let batch = self.batch(thread, disk);
        for placed in self.placed.drain(..) {
            let plug = match placed.log {
                Some(log) => &mut self.plugs[log as usize],
                None => &mut self.threads[thread].plug,
            };
            plug.add(placed.run, batch, self.limits, disk)?;
        }
        Ok(())
    }

    /// Gives sections that are free back to the device: zones are reset, other blocks deallocated.
    pub(super) fn release(
        &mut self,
        thread: usize,
        sections: &[u32],
        disk: &mut Disk,
    ) -> Result<(), Failure> {
        let Volume::Log(volume) = &self.volume else {
            return Ok(());
        };
        let shape = volume.space().shape();
        let is_zoned = disk.is_zoned();
        let batch = self.batch(thread, disk);
        for &section in sections {
            let offset = shape.start_of(section).offset();
            let command = if is_zoned {
                Command::Zone {
                    start: offset,
                    all: false,
                    action: ZoneAction::Reset,
                }
            } else {
                let len = u64::from(shape.section_blocks()) * BLOCK.0;
                Command::Deallocate { offset, len }
            };
            disk.submit(&command, &[batch])?;
        }
        Ok(())
    }
}
