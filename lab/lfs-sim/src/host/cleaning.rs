//! Making room: cleaning in the foreground, and checkpoints.
//!
//! One thread cleans; all others that need room wait for it (F2FS: `gc_lock`). It cleans section after section until
//! the free ones and those without a valid block are more than the reserve, and then has a checkpoint make the latter
//! free. Nothing is lost on the way: a section is given back to the device only when the checkpoint that knows the
//! new places of its data has reached it, behind a flush.

use flash_model::Command;
use units::Nanos;

use super::{kernel::Host, work::Work};
use crate::{
    disk::{Disk, Failure, Next},
    log::VictimPolicy,
    volume::Volume,
};

impl Host {
    /// Whether this thread has to see to it that there is room. The one that does already may use the reserve.
    pub(super) fn needs_room(&self, thread: usize) -> bool {
        let Volume::Log(volume) = &self.volume else {
            return false;
        };
        self.cleaner != Some(thread) && volume.needs_room(self.parameters.log.reserved_sections)
    }

    pub(super) fn clean(
        &mut self,
        thread: usize,
        work: Work,
        disk: &mut Disk,
    ) -> Result<Option<Next>, Failure> {
        match work {
            Work::MakeRoom => self.make_room(thread),
            Work::ReadSegment(segment) => {
                let Volume::Log(volume) = &self.volume else {
                    return Ok(None);
                };
                let runs = volume.valid_runs(segment);
                let batch = self.batch(thread, disk);
                let before = disk.submitted();
                for run in runs.into_iter().flat_map(|run| self.limits.cut(run)) {
                    let span = run.span();
                    let (offset, len) = (span.offset, span.len);
                    disk.submit(&Command::Read { offset, len }, &[batch])?;
                }
                let time = self.requests_since(before, disk);
                Ok(Some(Next::At(self.cpus.work(disk.now(), time))))
            }
            Work::MoveSegment(segment) => {
                let Volume::Log(volume) = &mut self.volume else {
                    return Ok(None);
                };
                self.moves.clear();
                volume.clean(segment, &mut self.placed, &mut self.moves)?;
                self.counters.cleaned_blocks += self.moves.len() as u64;
                let copying = Nanos(self.parameters.host.block.0 * self.moves.len() as u64);
                self.write_placed(thread, disk)?;
                Ok(Some(Next::At(self.cpus.work(disk.now(), copying))))
            }
            Work::Checkpoint => {
                let Volume::Log(volume) = &mut self.volume else {
                    // The journal is not part of the model; the device's buffer is.
                    self.add_first(thread, [Work::Submit, Work::Flush]);
                    return Ok(None);
                };
                let checkpoint = volume.begin_checkpoint(&mut self.placed)?;
                self.write_placed(thread, disk)?;
                // Also what others have placed: it must not go to a section that is given back.
                let batch = self.batch(thread, disk);
                for plug in &mut self.plugs {
                    plug.submit_with(batch, disk)?;
                }
                self.counters.checkpoints += 1;
                self.checkpoint_at = disk.now() + self.parameters.log.checkpoint_interval;
                self.add_first(
                    thread,
                    [Work::Submit, Work::Flush, Work::Release(checkpoint)],
                );
                Ok(None)
            }
            Work::Release(checkpoint) => {
                let Volume::Log(volume) = &mut self.volume else {
                    return Ok(None);
                };
                let sections = volume.end_checkpoint(checkpoint);
                self.release(thread, &sections, disk)?;
                self.add_first(thread, [Work::Submit]);
                Ok(None)
            }
            Work::RoomIsMade => {
                self.cleaner = None;
                let waiting = std::mem::take(&mut self.waiting_for_room);
                waiting.into_iter().for_each(|thread| disk.wake(thread));
                Ok(None)
            }
            other => unreachable!("{other:?} is not of cleaning"),
        }
    }

    fn make_room(&mut self, thread: usize) -> Result<Option<Next>, Failure> {
        let reserve = self.parameters.log.reserved_sections;
        let Volume::Log(volume) = &self.volume else {
            return Ok(None);
        };
        match self.cleaner {
            Some(cleaner) if cleaner != thread => {
                self.waiting_for_room.push(thread);
                self.add_first(thread, [Work::MakeRoom]);
                return Ok(Some(Next::Parked));
            }
            None if !volume.needs_room(reserve) => return Ok(None),
            _ => {}
        }
        self.cleaner = Some(thread);
        let space = volume.space();
        if space.free_sections() + space.empty_sections() > reserve {
            self.add_first(thread, [Work::Checkpoint, Work::RoomIsMade]);
            return Ok(None);
        }
        self.add_first(thread, [Work::MakeRoom]);
        match self.clean_one(thread, self.parameters.log.victim) {
            true => Ok(None),
            false => Err(Failure::NothingToClean),
        }
    }

    /// Cleans a section before all else that a thread has to do; `false` if that would free nothing.
    pub(crate) fn clean_one(&mut self, thread: usize, policy: VictimPolicy) -> bool {
        let Volume::Log(volume) = &self.volume else {
            return false;
        };
        let Some(segments) = volume.victim(policy) else {
            return false;
        };
        self.counters.cleaned_sections += 1;
        let work = segments.into_iter().flat_map(|segment| {
            let (read, write) = (Work::ReadSegment(segment), Work::MoveSegment(segment));
            [read, Work::Submit, write, Work::Submit]
        });
        self.add_first(thread, work.collect::<Vec<_>>());
        true
    }
}
