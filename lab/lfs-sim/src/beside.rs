//! A program that reads and writes where its data lies, alone or beside a migration: how far each slows the other down.
//!
//! Its threads share a list of calls, and begin it again when they are through. Each call is past the cache and waits
//! for all of its requests ([`crate::calls`]); it goes to where the data lies when it begins. The threads of the
//! migration have processors of their own: the hosts of the papers have more of them than threads.

use std::ops::Range;

use indef_core::plan::FilePlan;
use units::Nanos;

use crate::{
    calls::{Caller, Direction, Kernel},
    disk::{Disk, Elapsed, Failure, Next, Program},
    files::FileId,
    host::Carrier,
    migration::{Migrated, Migration},
    parameters::Parameters,
    volume::Volume,
};

/// A call of the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The file.
    pub file: FileId,
    /// Its blocks.
    pub blocks: Range<u32>,
    /// Whether they are read or overwritten.
    pub direction: Direction,
}

/// A program.
#[derive(Clone, Copy, Debug)]
pub struct Load<'a> {
    /// Its calls, in order.
    pub calls: &'a [Call],
    /// Its threads; at least one.
    pub threads: usize,
    /// Requests of a call that are collected before they are submitted.
    pub plug: usize,
}

/// The calls of a program that were answered, and the time that it took.
#[derive(Clone, Debug, PartialEq)]
pub struct Served {
    /// Calls.
    pub calls: u64,
    /// Time and counters.
    pub elapsed: Elapsed,
}

impl Served {
    /// Calls in a second.
    #[must_use]
    pub fn per_second(&self) -> f64 {
        self.calls as f64 * 1e9 / (self.elapsed.time.0 as f64).max(1.0)
    }
}

/// Lets a program make so many calls, alone.
///
/// # Errors
///
/// A place that the device does not have.
pub fn serve(
    parameters: &Parameters,
    volume: &Volume,
    disk: &mut Disk,
    load: Load<'_>,
    calls: u64,
) -> Result<Served, Failure> {
    let mut program = Serving::new(parameters, Files::At(volume), load, calls);
    program.run(disk)
}

/// When a migration and a program beside it were through, from their common beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ends {
    /// The migration.
    pub migration: Nanos,
    /// The program.
    pub program: Nanos,
}

/// Carries out plans by so many defraggers, while a program makes so many calls: both begin at once, and whoever is
/// through first leaves the device to the other.
///
/// # Errors
///
/// As [`migrate_beside`].
pub fn race(
    parameters: &Parameters,
    volume: Volume,
    disk: &mut Disk,
    plans: &[(FileId, FilePlan)],
    (carrier, defraggers): (Carrier, usize),
    load: Load<'_>,
    calls: u64,
) -> Result<Ends, Failure> {
    let migration = Migration::new(parameters, volume, plans, carrier, defraggers);
    let files = Files::Moving(Box::new(migration));
    let mut program = Serving::new(parameters, files, load, calls);
    program.movers = defraggers.max(1);
    program.is_finite = true;
    program.run(disk)?;
    let begun = program.begun_at.unwrap_or_default().0;
    let since = |end: Option<Nanos>| end.map_or(Nanos(0), |end| Nanos(end.0 - begun));
    Ok(Ends {
        migration: since(program.moved_at),
        program: since(program.ended_at),
    })
}

/// Carries out plans as [`crate::migration::migrate`] does, while a program makes its calls.
///
/// # Errors
///
/// The volume is full, or the device refuses a command.
pub fn migrate_beside(
    parameters: &Parameters,
    volume: Volume,
    disk: &mut Disk,
    plans: &[(FileId, FilePlan)],
    carrier: Carrier,
    load: Load<'_>,
) -> Result<(Migrated, Served), Failure> {
    let migration = Migration::new(parameters, volume, plans, carrier, 1);
    let mut program = Serving::new(parameters, Files::Moving(Box::new(migration)), load, 0);
    let served = program.run(disk)?;
    let Files::Moving(migration) = program.files else {
        unreachable!("it was made so");
    };
    Ok((migration.ended(served.elapsed.clone()), served))
}

/// The files under the program.
enum Files<'a> {
    At(&'a Volume),
    Moving(Box<Migration<'a>>),
}

impl Files<'_> {
    fn volume(&self) -> &Volume {
        match self {
            Self::At(volume) => volume,
            Self::Moving(migration) => migration.volume(),
        }
    }
}

/// The first threads are the migration's; the others are the program's.
struct Serving<'a> {
    files: Files<'a>,
    kernel: Kernel<'a>,
    load: Load<'a>,
    callers: Vec<Caller>,
    /// Whether each of them has made a call.
    has_begun: Vec<bool>,
    /// Calls that have begun; those that are under way are among them.
    begun: usize,
    /// Calls that have been answered.
    ended: u64,
    /// Of these at which it is over, if nothing moves any more.
    least: u64,
    /// Threads of the migration.
    movers: usize,
    /// Whether no more calls begin than `least`.
    is_finite: bool,
    /// The first step.
    begun_at: Option<Nanos>,
    /// The end of the migration.
    moved_at: Option<Nanos>,
    /// The end of the last of `least` calls.
    ended_at: Option<Nanos>,
}

impl<'a> Serving<'a> {
    fn new(parameters: &'a Parameters, files: Files<'a>, load: Load<'a>, least: u64) -> Self {
        let threads = load.threads.max(1);
        Self {
            files,
            kernel: Kernel::new(parameters, load.plug),
            load,
            callers: (0..threads).map(|_| Caller::default()).collect(),
            has_begun: vec![false; threads],
            begun: 0,
            ended: 0,
            least,
            movers: 1,
            is_finite: false,
            begun_at: None,
            moved_at: None,
            ended_at: None,
        }
    }

    fn run(&mut self, disk: &mut Disk) -> Result<Served, Failure> {
        let threads = self.callers.len() + self.movers;
        let elapsed = disk.run(self, threads)?;
        Ok(Served {
            calls: self.ended,
            elapsed,
        })
    }
}

impl Program for Serving<'_> {
    fn step(&mut self, thread: usize, disk: &mut Disk) -> Result<Next, Failure> {
        self.begun_at.get_or_insert(disk.now());
        let Some(number) = thread.checked_sub(self.movers) else {
            let Files::Moving(migration) = &mut self.files else {
                return Ok(Next::Parked);
            };
            let next = migration.step(thread, disk)?;
            if migration.is_over() {
                self.moved_at.get_or_insert(disk.now());
            }
            return Ok(next);
        };
        let caller = &mut self.callers[number];
        if let Some(next) = caller.step(&mut self.kernel, disk)? {
            return Ok(next);
        }
        if self.load.calls.is_empty() {
            return Ok(Next::Parked);
        }
        self.ended += u64::from(std::mem::take(&mut self.has_begun[number]));
        if self.ended >= self.least {
            self.ended_at.get_or_insert(disk.now());
        }
        if self.is_finite && self.begun as u64 >= self.least {
            return Ok(Next::Parked);
        }
        let call = &self.load.calls[self.begun % self.load.calls.len()];
        self.begun += 1;
        self.has_begun[number] = true;
        let files = self.files.volume().files();
        let layout = files.layout_of(call.file, call.blocks.clone());
        Ok(caller.begin(&layout, call.direction, &mut self.kernel, disk))
    }

    fn is_over(&self) -> bool {
        let moves = match &self.files {
            Files::At(_) => false,
            Files::Moving(migration) => !migration.is_over(),
        };
        !moves && self.ended >= self.least
    }
}

#[cfg(test)]
mod tests {
    use flash_model::Profile;
    use indef_core::plan::{PlanOptions, Policy};
    use units::{Bytes, Nanos};

    use super::*;
    use crate::{BLOCK, device, host::Access, migration::migrate, planning, volume::InPlaceVolume};

    /// A file in pieces of one block, and a program's own file in one.
    fn ground() -> (Disk, Volume, [FileId; 2]) {
        let profile = Profile::builtin("optane-905p").unwrap();
        let disk = Disk::new(device::written(&profile, Bytes::mib(64)).unwrap(), 128);
        let mut volume = Volume::from(InPlaceVolume::new(16_384, 16_384, false));
        let [pieces, other, own] = [(); 3].map(|()| volume.create());
        let mut place = |file, index, len| volume.place(file, index, len, &mut Vec::new()).unwrap();
        for block in 0..1024 {
            place(pieces, block, 1);
            place(other, block, 1);
        }
        place(own, 0, 2048);
        (disk, volume, [pieces, own])
    }

    #[test]
    fn a_migration_and_a_program_slow_each_other_down() {
        let (disk, volume, [pieces, own]) = ground();
        let mut parameters = Parameters::default();
        parameters.host.request = Nanos(3_000);
        let calls: Vec<Call> = (0..64)
            .map(|number| Call {
                file: own,
                blocks: number * 32..(number + 1) * 32,
                direction: Direction::Read,
            })
            .collect();
        let load = Load {
            calls: &calls,
            threads: 4,
            plug: 16,
        };
        let alone = serve(&parameters, &volume, &mut disk.clone(), load, 500).unwrap();
        assert!(alone.calls >= 500 && alone.calls < 504, "{}", alone.calls);
        let layout = volume.layout(pieces);
        let options = PlanOptions {
            policy: Policy::Whole,
            ..PlanOptions::default()
        };
        let accesses = planning::sequential_reads(layout.allocated(), Bytes::kib(128));
        let plan = planning::plan(&options, [(&layout, accesses.as_slice())]).remove(0);
        let plans = [(pieces, plan)];
        let carrier = Carrier::Host(Access::Direct { call: BLOCK });
        let again = || (volume.clone(), disk.clone());
        let (at_first, mut quiet) = again();
        let quiet = migrate(&parameters, at_first, &mut quiet, &plans, carrier).unwrap();
        let beside = || {
            let (volume, mut disk) = again();
            migrate_beside(&parameters, volume, &mut disk, &plans, carrier, load).unwrap()
        };
        let (moved, served) = beside();
        assert_eq!(moved.bytes, BLOCK * 1024);
        assert_eq!(moved.volume.layout(pieces).fragments(), 1);
        assert!(moved.elapsed.time > quiet.elapsed.time);
        assert!(served.per_second() < alone.per_second());
        assert_eq!(beside().1, served);
    }

    #[test]
    fn a_call_goes_to_where_its_data_lies_when_it_begins() {
        let (mut disk, volume, [pieces, _]) = ground();
        let calls = [Call {
            file: pieces,
            blocks: 0..32,
            direction: Direction::Read,
        }];
        let load = Load {
            calls: &calls,
            threads: 1,
            plug: 16,
        };
        let parameters = Parameters::default();
        let apart = serve(&parameters, &volume, &mut disk, load, 10).unwrap();
        assert_eq!(apart.elapsed.commands, 10 * 32);
        let mut moved = volume.clone();
        moved.relocate(pieces, 0, 32, &mut Vec::new()).unwrap();
        let whole = serve(&parameters, &moved, &mut disk, load, 10).unwrap();
        assert_eq!(whole.elapsed.commands, 10);
    }

    #[test]
    fn of_a_migration_and_a_program_the_first_leaves_the_device_to_the_other() {
        let (disk, volume, [pieces, own]) = ground();
        let parameters = Parameters::default();
        let calls: Vec<Call> = (0..64)
            .map(|number| Call {
                file: own,
                blocks: number..number + 1,
                direction: Direction::Read,
            })
            .collect();
        let load = Load {
            calls: &calls,
            threads: 2,
            plug: 1,
        };
        let options = PlanOptions {
            policy: Policy::Whole,
            ..PlanOptions::default()
        };
        let layout = volume.layout(pieces);
        let plans = planning::plan(&options, [(&layout, [].as_slice())]);
        let plans: Vec<_> = [pieces].into_iter().zip(plans).collect();
        let by = (Carrier::Host(Access::Direct { call: BLOCK }), 3);
        let ends = |plans: &[_], calls| {
            let (volume, mut disk) = (volume.clone(), disk.clone());
            race(&parameters, volume, &mut disk, plans, by, load, calls).unwrap()
        };
        let (short, long) = (ends(&plans, 10), ends(&plans, 10_000));
        assert!(short.program < short.migration, "{short:?}");
        assert!(long.program > long.migration, "{long:?}");
        assert!(long.migration > short.migration, "{short:?} {long:?}");
        let alone = ends(&[], 10_000).program;
        assert!(alone < long.program, "{alone:?} {long:?}");
    }
}
