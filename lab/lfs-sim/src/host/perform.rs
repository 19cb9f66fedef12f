//! The doing of a thread's work, piece by piece.

use std::ops::Range;

use flash_model::Command;
use units::Nanos;

use super::{kernel::Host, work::Work};
use crate::{
    block::BLOCK,
    disk::{Disk, Failure, Next},
    files::FileId,
    volume::Volume,
};

impl Host {
    /// Does the next piece of a thread's work; `None` if it has none.
    ///
    /// # Errors
    ///
    /// No space is left for it, or the device refused a command.
    pub fn step(&mut self, thread: usize, disk: &mut Disk) -> Result<Option<Next>, Failure> {
        while let Some(work) = self.threads[thread].work.pop_front() {
            if let Some(next) = self.perform(thread, work, disk)? {
                return Ok(Some(next));
            }
        }
        Ok(None)
    }

    fn perform(
        &mut self,
        thread: usize,
        work: Work,
        disk: &mut Disk,
    ) -> Result<Option<Next>, Failure> {
        match work {
            Work::Compute(time) => Ok(Some(Next::At(self.cpus.work(disk.now(), time)))),
            Work::Place { file, blocks } => self.place(thread, file, blocks, disk),
            Work::PlaceNodes(file) => {
                self.volume.place_nodes(file, &mut self.placed)?;
                self.write_placed(thread, disk)?;
                Ok(None)
            }
            Work::Submit => self.submit(thread, disk),
            Work::Flush => {
                let batch = self.batch(thread, disk);
                disk.submit(&Command::Flush, &[batch])?;
                self.add_first(thread, [Work::Submit]);
                Ok(None)
            }
            Work::Close(file) => {
                if let Volume::InPlace(volume) = &mut self.volume
                    && !self.dirty.has(file)
                {
                    volume.close(file);
                }
                Ok(None)
            }
            Work::Read(file, mut reading) => {
                let (pages, cpus) = (&mut self.pages, &mut self.cpus);
                let next =
                    reading.step(&self.parameters.host, self.limits, cpus, disk, |range| {
                        let missing = pages.missing(file, range.clone());
                        pages.insert(file, range);
                        missing
                    })?;
                self.note_memory();
                if next.is_some() {
                    self.add_first(thread, [Work::Read(file, reading)]);
                }
                Ok(next)
            }
            Work::Relocate { file, runs, inside } => {
                self.relocate_some(thread, file, runs, inside, disk)
            }
            Work::Throttle => {
                if self.dirty.blocks() <= self.parameters.cache.dirty_limit.div_ceil(BLOCK) {
                    return Ok(None);
                }
                self.throttled.push(thread);
                self.add_first(thread, [Work::Throttle]);
                Ok(Some(Next::Parked))
            }
            Work::Unthrottle => {
                let waiting = std::mem::take(&mut self.throttled);
                waiting.into_iter().for_each(|thread| disk.wake(thread));
                Ok(None)
            }
            Work::MakeRoom
            | Work::ReadSegment(_)
            | Work::MoveSegment(_)
            | Work::Checkpoint
            | Work::Release(_)
            | Work::RoomIsMade => self.clean(thread, work, disk),
        }
    }

    /// Places the blocks of one turn. A file that is gone by now has no blocks to write.
    fn place(
        &mut self,
        thread: usize,
        file: FileId,
        blocks: Range<u32>,
        disk: &mut Disk,
    ) -> Result<Option<Next>, Failure> {
        if blocks.is_empty() || !self.volume.files().has(file) {
            return Ok(None);
        }
        if self.needs_room(thread) {
            self.add_first(thread, [Work::MakeRoom, Work::Place { file, blocks }]);
            return Ok(None);
        }
        if !disk.has_slot() {
            self.add_first(thread, [Work::Place { file, blocks }]);
            return Ok(Some(Next::Slot));
        }
        let turn = match self.volume {
            Volume::Log(_) => self.parameters.log.turn_blocks.max(1),
            Volume::InPlace(_) => u32::MAX,
        };
        let len = turn.min(blocks.end - blocks.start);
        let before = disk.submitted();
        self.volume
            .place(file, blocks.start, len, &mut self.placed)?;
        self.write_placed(thread, disk)?;
        self.counters.placed_blocks += u64::from(len);
        let copying = Nanos(self.parameters.host.block.0 * u64::from(len));
        let time = copying + self.requests_since(before, disk);
        let rest = blocks.start + len..blocks.end;
        self.add_first(thread, [Work::Place { file, blocks: rest }]);
        Ok(Some(Next::At(self.cpus.work(disk.now(), time))))
    }

    /// Submits what the thread has in the making; waits for it once its processor time is over.
    fn submit(&mut self, thread: usize, disk: &mut Disk) -> Result<Option<Next>, Failure> {
        let Some(batch) = self.threads[thread].batch else {
            return Ok(None);
        };
        let before = disk.submitted();
        for plug in &mut self.plugs {
            plug.submit_for(batch, disk)?;
        }
        self.threads[thread].plug.submit_for(batch, disk)?;
        let time = self.requests_since(before, disk);
        if time.0 > 0 {
            self.add_first(thread, [Work::Submit]);
            return Ok(Some(Next::At(self.cpus.work(disk.now(), time))));
        }
        self.threads[thread].batch = None;
        Ok(Some(Next::Done(batch)))
    }
}
