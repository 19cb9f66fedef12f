//! Defragmenting: new places for blocks of a file, and the data carried there.
//!
//! Blocks get their new places and the command that carries their data is submitted in the same instant, and nothing
//! else of the thread happens before it is done. So no section can be cleaned or given back while data is still to be
//! fetched from it.

use std::{collections::VecDeque, ops::Range};

use flash_model::{Command, Move};
use indef_core::layout::Layout;
use units::Nanos;

use super::{
    kernel::Host,
    reading::{Reading, bytes_of},
    work::{Carrier, Work},
};
use crate::{
    block::{BLOCK, Moved, Run},
    disk::{Disk, Failure, Next},
    files::FileId,
    volume::{Placed, Volume},
};

impl Host {
    /// Gives runs of a file new places.
    pub fn relocate(
        &mut self,
        thread: usize,
        file: FileId,
        runs: VecDeque<Range<u32>>,
        carrier: Carrier,
    ) {
        if self.refuses_to_move(&runs) {
            return;
        }
        if let Carrier::Host(access) = carrier {
            // All of it is read before any of it is written (InDeF §II-B).
            let layout = self.volume.layout(file);
            for run in &runs {
                let part = Layout::new(layout.clipped(bytes_of(run)).collect());
                let reading = Reading::new(part, run.clone(), access);
                self.add(thread, Work::Read(file, Box::new(reading)));
            }
        }
        let inside = carrier == Carrier::Device;
        self.add(thread, Work::Relocate { file, runs, inside });
    }

    /// Whether the first of these runs, of a section's blocks at most, are left where they are.
    fn refuses_to_move(&self, runs: &VecDeque<Range<u32>>) -> bool {
        let blocks: u32 = runs.iter().map(|run| run.end - run.start).sum();
        let reserve = self.parameters.log.reserved_sections;
        self.volume.refuses_to_move(blocks, reserve)
    }

    /// Moves the first runs, of a section's blocks at most, as that is what the reserve is sure to hold.
    pub(super) fn relocate_some(
        &mut self,
        thread: usize,
        file: FileId,
        mut runs: VecDeque<Range<u32>>,
        inside: bool,
        disk: &mut Disk,
    ) -> Result<Option<Next>, Failure> {
        if runs.is_empty() || self.refuses_to_move(&runs) {
            return Ok(None);
        }
        if self.needs_room(thread) {
            self.add_first(
                thread,
                [Work::MakeRoom, Work::Relocate { file, runs, inside }],
            );
            return Ok(None);
        }
        self.moves.clear();
        let mut left = self.limits.boundary;
        while left > 0
            && let Some(run) = runs.pop_front()
        {
            let middle = run.end.min(run.start + left);
            left -= middle - run.start;
            self.volume
                .relocate(file, run.start, middle - run.start, &mut self.moves)?;
            if middle < run.end {
                runs.push_front(middle..run.end);
            }
        }
        self.counters.relocated_blocks += self.moves.len() as u64;
        let before = disk.submitted();
        let mut time = self.parameters.host.call;
        if inside {
            let batch = self.batch(thread, disk);
            let moves = joined(&self.moves, self.limits.boundary);
            if !moves.is_empty() {
                disk.submit(&Command::Migrate { moves: &moves }, &[batch])?;
            }
        } else {
            time += Nanos(self.parameters.host.block.0 * self.moves.len() as u64);
            let log = match &self.volume {
                Volume::Log(volume) => Some(volume.moves_to()),
                Volume::InPlace(_) => None,
            };
            for &Moved { to: start, .. } in &self.moves {
                let run = Run { start, len: 1 };
                Placed::push(&mut self.placed, Placed { run, log });
            }
            self.write_placed(thread, disk)?;
        }
        time += self.requests_since(before, disk);
        self.add_first(
            thread,
            [Work::Submit, Work::Relocate { file, runs, inside }],
        );
        Ok(Some(Next::At(self.cpus.work(disk.now(), time))))
    }
}

/// The list of a command: moves that continue each other on both sides are one, but none crosses a multiple of
/// `boundary` blocks, a zone's end.
fn joined(moves: &[Moved], boundary: u32) -> Vec<Move> {
    let mut joined: Vec<Move> = Vec::new();
    for moved in moves {
        let (from, to) = (moved.from.offset(), moved.to.offset());
        let begins_zone =
            moved.from.0.is_multiple_of(boundary) || moved.to.0.is_multiple_of(boundary);
        match joined.last_mut() {
            Some(last)
                if last.from + last.len == from && last.to + last.len == to && !begins_zone =>
            {
                last.len += BLOCK.0;
            }
            _ => joined.push(Move {
                from,
                to,
                len: BLOCK.0,
            }),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::Block;

    #[test]
    fn moves_are_joined_within_zones() {
        let moved = |from, to| Moved {
            from: Block(from),
            to: Block(to),
        };
        let moves = [
            moved(1, 101),
            moved(2, 102),
            moved(7, 103),
            moved(8, 104),
            // A zone of 10 blocks ends here.
            moved(9, 110),
            moved(10, 111),
        ];
        let blocks: Vec<_> = joined(&moves, 10)
            .iter()
            .map(|it| (it.from / BLOCK.0, it.to / BLOCK.0, it.len / BLOCK.0))
            .collect();
        assert_eq!(
            blocks,
            [(1, 101, 2), (7, 103, 2), (9, 110, 1), (10, 111, 1)]
        );
    }
}
