//! A migration beside the flows: how far each slows the other down.
//!
//! One run has three parts, so that nothing begins anew between them: the flows age the volume; they go on, alone; and
//! they go on beside the migration, until that is over.

use std::collections::VecDeque;

use indef_core::plan::FilePlan;
use units::{Bytes, Nanos};
use workloads::filebench::{self, FLOWS};

use super::{Actors, Ageing, flows_of};
use crate::{
    block::BLOCK,
    disk::{Disk, Failure, Next, Program},
    files::FileId,
    host::{Carrier, Host, Writes},
    migration::runs_of,
    parameters::Parameters,
    volume::Volume,
};

/// The thread of the migration; the flusher's is [`FLOWS`].
const MOVER: usize = FLOWS + 1;
/// Time after which it looks whether its turn has come.
const LOOKS: Nanos = Nanos(1_000_000);

/// A migration that begins when the flows have aged the volume, and have gone on for a while.
#[derive(Clone, Copy, Debug)]
pub struct Later {
    /// Bytes, in multiples of the data, that the flows write alone between ageing and migration.
    pub alone: f64,
    /// Bytes at which the migration ends; with all that there is to move, if that is less.
    pub bytes: Bytes,
    /// The carrier of the migration.
    pub carrier: Carrier,
}

/// A part of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// Bytes that the flows have written.
    pub written: Bytes,
    /// The time that it took.
    pub time: Nanos,
}

impl Part {
    /// Rate of the flows' writes, in MB/s (10⁶ bytes).
    #[must_use]
    pub fn megabytes_per_second(self) -> f64 {
        self.written.0 as f64 * 1e3 / (self.time.0 as f64).max(1.0)
    }
}

/// The result of a migration beside the flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beside {
    /// The flows alone.
    pub alone: Part,
    /// The flows beside the migration, which takes as long.
    pub beside: Part,
    /// Bytes that were given new places.
    pub moved: Bytes,
}

/// Ages a volume on a device that is empty, and then migrates while the flows go on. `plan` is asked about the files that are
/// there, and again when it has been carried out and too little was moved: the flows delete files meanwhile.
///
/// # Errors
///
/// The volume is full, or the device refuses a command.
pub fn migrate_beside(
    parameters: &Parameters,
    volume: Volume,
    disk: &mut Disk,
    ageing: filebench::Ageing,
    writes: Writes,
    later: Later,
    plan: impl FnMut(&Volume, &[FileId]) -> Vec<(FileId, FilePlan)>,
) -> Result<Beside, Failure> {
    let host = Host::new(parameters, volume, MOVER + 1);
    let mut flows = Ageing::new(parameters, host, ageing, writes, FLOWS);
    // They end with the migration.
    flows.fileset.go_on(u64::MAX);
    let mut program = Flowing {
        flows,
        later,
        plan,
        stage: Stage::Made,
        plans: VecDeque::new(),
        aged_at: ageing.rounds * ageing.fill_bytes() as f64,
        alone_for: later.alone * ageing.fill_bytes() as f64,
        marks: Vec::new(),
    };
    disk.run(&mut program, MOVER + 1)?;
    program.flows.begin(Actors::Flows(flows_of(ageing, FLOWS)));
    program.stage = Stage::Ageing;
    program.mark(disk);
    disk.run(&mut program, MOVER + 1)?;
    let part = |from: usize| {
        let (begin, end) = (&program.marks[from], &program.marks[from + 1]);
        Part {
            written: Bytes(end.written.0 - begin.written.0),
            time: Nanos(end.time.0 - begin.time.0),
        }
    };
    Ok(Beside {
        alone: part(1),
        beside: part(2),
        moved: BLOCK * program.flows.host.counters().relocated_blocks,
    })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The first files are made.
    Made,
    Ageing,
    Alone,
    Files,
    Checkpoint,
    Over,
}

struct Flowing<P> {
    flows: Ageing,
    later: Later,
    plan: P,
    stage: Stage,
    plans: VecDeque<(FileId, FilePlan)>,
    /// Bytes of the flows at which the volume is aged.
    aged_at: f64,
    /// Bytes that they write alone after that.
    alone_for: f64,
    /// The beginning of the flows, and the ends of the parts: bytes and time so far.
    marks: Vec<Part>,
}

impl<P: FnMut(&Volume, &[FileId]) -> Vec<(FileId, FilePlan)>> Flowing<P> {
    fn written(&self) -> Bytes {
        BLOCK * self.flows.host.counters().placed_blocks
    }

    fn mark(&mut self, disk: &Disk) {
        let (written, time) = (self.written(), disk.now());
        self.marks.push(Part { written, time });
    }

    /// Bytes since the last mark.
    fn since(&self) -> f64 {
        let last = self.marks.last().map_or(0, |mark| mark.written.0);
        (self.written().0 - last) as f64
    }

    /// Gives the mover its next work; returns what it waits for where the host has nothing to do for it.
    fn give(&mut self, disk: &Disk) -> Option<Next> {
        let looks = Some(Next::At(disk.now() + LOOKS));
        match self.stage {
            Stage::Made | Stage::Over => Some(Next::Parked),
            Stage::Ageing | Stage::Alone => {
                let (until, next) = match self.stage {
                    Stage::Ageing => (self.aged_at, Stage::Alone),
                    _ => (self.alone_for, Stage::Files),
                };
                if self.since() < until {
                    return looks;
                }
                self.mark(disk);
                self.stage = next;
                None
            }
            Stage::Files => {
                let is_due = BLOCK * self.flows.host.counters().relocated_blocks < self.later.bytes;
                if is_due && self.plans.is_empty() {
                    let files = self.flows.files();
                    let mut plans = (self.plan)(self.flows.host.volume(), &files);
                    // So the first one moves something, and time goes on.
                    plans.retain(|(_, plan)| !plan.cost().is_zero());
                    self.plans = plans.into();
                }
                let host = &mut self.flows.host;
                let Some((file, plan)) = self.plans.pop_front().filter(|_| is_due) else {
                    host.sync_all(MOVER);
                    self.stage = Stage::Checkpoint;
                    return None;
                };
                let length = host.volume().files().blocks(file);
                host.relocate(MOVER, file, runs_of(&plan, length), self.later.carrier);
                None
            }
            Stage::Checkpoint => {
                self.mark(disk);
                self.stage = Stage::Over;
                Some(Next::Parked)
            }
        }
    }
}

impl<P: FnMut(&Volume, &[FileId]) -> Vec<(FileId, FilePlan)>> Program for Flowing<P> {
    fn step(&mut self, thread: usize, disk: &mut Disk) -> Result<Next, Failure> {
        if thread != MOVER {
            return self.flows.step(thread, disk);
        }
        loop {
            if let Some(next) = self.flows.host.step(thread, disk)? {
                return Ok(next);
            }
            if let Some(next) = self.give(disk) {
                return Ok(next);
            }
        }
    }

    fn is_over(&self) -> bool {
        match self.stage {
            Stage::Made => self.flows.is_over(),
            stage => stage == Stage::Over,
        }
    }
}
