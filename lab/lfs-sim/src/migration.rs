//! Carrying plans out: moves inside of the device, or copies through the host.
//!
//! Both give each run of a plan new places on the volume, in order, and end with a checkpoint. They differ in who
//! carries the data:
//!
//! - *device*: one command names the source and the destination of a file's pieces (`In_Device_Defragment`);
//! - *host*: a file's runs are read into memory, all of them, and then written, as `defrag.f2fs` does (InDeF §II-B).
//!
//! Where the volume is short of room, cleaning is part of the time of either.
//!
//! Several defraggers share the list of files: each takes the next one when it is through with its own.

use std::{collections::VecDeque, ops::Range};

use indef_core::plan::FilePlan;
use units::Bytes;

use crate::{
    block::BLOCK,
    disk::{Disk, Elapsed, Failure, Next, Program},
    files::FileId,
    host::{Carrier, Counters, Host},
    parameters::Parameters,
    volume::Volume,
};

/// The result of a migration.
#[derive(Debug)]
pub struct Migrated {
    /// The volume afterwards.
    pub volume: Volume,
    /// Bytes that were given new places.
    pub bytes: Bytes,
    /// Time and counters.
    pub elapsed: Elapsed,
    /// The host's work so far.
    pub counters: Counters,
}

/// Carries out the plans of these files, one file after the other.
///
/// # Errors
///
/// The volume is full, or the device refuses a command.
pub fn migrate(
    parameters: &Parameters,
    volume: Volume,
    disk: &mut Disk,
    plans: &[(FileId, FilePlan)],
    carrier: Carrier,
) -> Result<Migrated, Failure> {
    migrate_by(parameters, volume, disk, plans, carrier, 1)
}

/// The same by so many defraggers at once, at least one.
///
/// # Errors
///
/// As [`migrate`].
pub fn migrate_by(
    parameters: &Parameters,
    volume: Volume,
    disk: &mut Disk,
    plans: &[(FileId, FilePlan)],
    carrier: Carrier,
    defraggers: usize,
) -> Result<Migrated, Failure> {
    let mut program = Migration::new(parameters, volume, plans, carrier, defraggers);
    let elapsed = disk.run(&mut program, defraggers.max(1))?;
    Ok(program.ended(elapsed))
}

/// The blocks that a plan moves of a file of so many.
pub(crate) fn runs_of(plan: &FilePlan, length: u32) -> VecDeque<Range<u32>> {
    let runs = plan.runs().into_iter().map(|run| {
        let start = (run.start.0 / BLOCK.0) as u32;
        start.min(length)..(run.end().0.div_ceil(BLOCK.0) as u32).min(length)
    });
    runs.filter(|run| !run.is_empty()).collect()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Files,
    Checkpoint,
    Over,
}

/// The threads that carry plans out: the first ones of their host.
pub(crate) struct Migration<'a> {
    host: Host,
    plans: std::slice::Iter<'a, (FileId, FilePlan)>,
    carrier: Carrier,
    stage: Stage,
    /// Threads that have not found the list empty yet.
    busy: usize,
}

impl<'a> Migration<'a> {
    pub(crate) fn new(
        parameters: &Parameters,
        volume: Volume,
        plans: &'a [(FileId, FilePlan)],
        carrier: Carrier,
        defraggers: usize,
    ) -> Self {
        let busy = defraggers.max(1);
        Self {
            host: Host::new(parameters, volume, busy),
            plans: plans.iter(),
            carrier,
            stage: Stage::Files,
            busy,
        }
    }

    /// The volume as it is.
    pub(crate) const fn volume(&self) -> &Volume {
        self.host.volume()
    }

    /// The result, after this time.
    pub(crate) fn ended(self, elapsed: Elapsed) -> Migrated {
        let counters = self.host.counters();
        Migrated {
            bytes: BLOCK * counters.relocated_blocks,
            elapsed,
            counters,
            volume: self.host.into_volume(),
        }
    }
}

impl Program for Migration<'_> {
    fn step(&mut self, thread: usize, disk: &mut Disk) -> Result<Next, Failure> {
        loop {
            if let Some(next) = self.host.step(thread, disk)? {
                return Ok(next);
            }
            match self.stage {
                Stage::Files => match self.plans.next() {
                    None => {
                        self.busy -= 1;
                        if self.busy > 0 {
                            return Ok(Next::Parked);
                        }
                        // The last one syncs for all.
                        self.host.sync_all(thread);
                        self.stage = Stage::Checkpoint;
                    }
                    Some((file, plan)) => {
                        let length = self.host.volume().files().blocks(*file);
                        let runs = runs_of(plan, length);
                        self.host.look_at(thread);
                        self.host.relocate(thread, *file, runs, self.carrier);
                    }
                },
                Stage::Checkpoint => {
                    self.stage = Stage::Over;
                    return Ok(Next::Parked);
                }
                Stage::Over => return Ok(Next::Parked),
            }
        }
    }

    fn is_over(&self) -> bool {
        self.stage == Stage::Over
    }
}

#[cfg(test)]
mod tests;
