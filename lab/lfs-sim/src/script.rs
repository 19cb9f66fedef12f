//! A program that writes what it is told, alone: layouts on purpose, by the allocator itself.

use std::ops::Range;

use units::Bytes;

use crate::{
    block::BLOCK,
    disk::{Disk, Elapsed, Failure, Next, Program},
    files::FileId,
    host::{Host, Writes},
    parameters::Parameters,
    volume::Volume,
};

/// Writes blocks of files, past the cache, each call after the one before it; then syncs everything.
///
/// # Errors
///
/// The volume is full, or the device refuses a command.
pub fn write(
    parameters: &Parameters,
    volume: Volume,
    disk: &mut Disk,
    writes: impl IntoIterator<Item = (FileId, Range<u32>)>,
) -> Result<(Volume, Elapsed), Failure> {
    let mut program = Script {
        host: Host::new(parameters, volume, 1),
        writes: writes.into_iter(),
        stage: Stage::Writes,
    };
    let elapsed = disk.run(&mut program, 1)?;
    Ok((program.host.into_volume(), elapsed))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Writes,
    Sync,
    Over,
}

struct Script<I> {
    host: Host,
    writes: I,
    stage: Stage,
}

impl<I: Iterator<Item = (FileId, Range<u32>)>> Program for Script<I> {
    fn step(&mut self, thread: usize, disk: &mut Disk) -> Result<Next, Failure> {
        loop {
            if let Some(next) = self.host.step(thread, disk)? {
                return Ok(next);
            }
            match self.stage {
                Stage::Writes => match self.writes.next() {
                    Some((file, blocks)) => {
                        let at = BLOCK * u64::from(blocks.start);
                        let len: Bytes = BLOCK * blocks.len() as u64;
                        self.host.write(thread, file, at, len, Writes::Direct)?;
                    }
                    None => {
                        self.host.sync_all(thread);
                        self.stage = Stage::Sync;
                    }
                },
                Stage::Sync | Stage::Over => {
                    self.stage = Stage::Over;
                    return Ok(Next::Parked);
                }
            }
        }
    }

    fn is_over(&self) -> bool {
        self.stage == Stage::Over
    }
}
