//! What F2FS cleans in quiet times: a thread of the kernel, section by section (fs/f2fs/gc.c, `gc_thread_func`, v6.12).

use crate::{
    disk::{Disk, Elapsed, Failure, Next, Program},
    host::Host,
    log::VictimPolicy,
    parameters::Parameters,
    volume::Volume,
};

/// Cleans so many sections, those first that are best by cost and benefit, and makes them free by a checkpoint. Nothing else is
/// under way. A volume that is written in place has nothing to clean.
///
/// # Errors
///
/// The device refuses a command.
pub fn clean(
    parameters: &Parameters,
    volume: Volume,
    disk: &mut Disk,
    sections: u32,
) -> Result<(Volume, Elapsed), Failure> {
    let mut program = Upkeep {
        host: Host::new(parameters, volume, 1),
        left: sections,
        stage: Stage::Cleans,
    };
    let elapsed = disk.run(&mut program, 1)?;
    Ok((program.host.into_volume(), elapsed))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Cleans,
    Checkpoint,
    Over,
}

struct Upkeep {
    host: Host,
    left: u32,
    stage: Stage,
}

impl Program for Upkeep {
    fn step(&mut self, thread: usize, disk: &mut Disk) -> Result<Next, Failure> {
        loop {
            if let Some(next) = self.host.step(thread, disk)? {
                return Ok(next);
            }
            match self.stage {
                Stage::Cleans if self.left > 0 => {
                    self.left -= 1;
                    if !self.host.clean_one(thread, VictimPolicy::CostBenefit) {
                        self.left = 0;
                    }
                }
                Stage::Cleans => {
                    self.host.sync_all(thread);
                    self.stage = Stage::Checkpoint;
                }
                Stage::Checkpoint | Stage::Over => {
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
