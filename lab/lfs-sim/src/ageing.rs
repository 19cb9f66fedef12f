//! Ageing: filebench's flows on a host, a thread for each; or those of another program ([`age_by`]).
//!
//! The flows of [`workloads::filebench`] say what is done, the host how long it takes, and so who comes next. The files
//! that filebench makes beforehand are written by one thread through the page cache and synced; then the flows begin;
//! in the end everything is synced.

mod beside;
mod living;

use std::collections::{HashMap, VecDeque};

use units::{Bytes, Nanos};
use workloads::filebench::{self, FLOWS, Fileset, Flow, IO_BYTES, Op};

use crate::{
    disk::{Disk, Elapsed, Failure, Next, Program},
    files::FileId,
    host::{Access, Counters, Host, Writes},
    parameters::Parameters,
    volume::Volume,
};

pub use self::{
    beside::{Beside, Later, Part, migrate_beside},
    living::Living,
};

/// Time after which a flow looks for a file again that no other one has.
const WAIT: Nanos = Nanos(1_000_000);

/// The result of ageing.
#[derive(Debug)]
pub struct Aged {
    /// The volume with its files.
    pub volume: Volume,
    /// The users' files that are there, in order of their names, as a program finds them.
    pub files: Vec<FileId>,
    /// The time that the flows took.
    pub flows: Elapsed,
    /// The host's work, the files before the flows included.
    pub counters: Counters,
    /// Bytes of files that were there before the flows began, and still are.
    pub first_bytes: Bytes,
}

/// Ages a volume on a device that is empty, or has been read only.
///
/// # Errors
///
/// The volume is full, or the device refuses a command.
pub fn age(
    parameters: &Parameters,
    volume: Volume,
    disk: &mut Disk,
    ageing: filebench::Ageing,
    writes: Writes,
) -> Result<Aged, Failure> {
    let host = Host::new(parameters, volume, FLOWS + 1);
    let mut program = Ageing::new(parameters, host, ageing, writes, FLOWS);
    disk.run(&mut program, FLOWS + 1)?;
    let made: HashMap<usize, FileId> = program.ids.clone();
    program.begin(Actors::Flows(flows_of(ageing, FLOWS)));
    let flows = disk.run(&mut program, FLOWS + 1)?;
    program.begin(Actors::maker(VecDeque::new()));
    disk.run(&mut program, FLOWS + 1)?;
    let volume_files = program.host.volume().files();
    let first_bytes = (program.ids.iter())
        .filter(|(name, id)| made.get(*name) == Some(*id))
        .map(|(_, id)| volume_files.bytes(*id))
        .sum();
    Ok(Aged {
        first_bytes,
        files: program.files(),
        counters: program.host.counters(),
        volume: program.host.into_volume(),
        flows,
    })
}

/// A program that says for each of its threads what it does next, and takes that for done; `None`: nothing more.
pub type Others = Box<dyn FnMut(usize) -> Option<Op>>;

/// Ages a volume by another program than filebench, of at most as many threads, through the page cache; then everything is
/// synced.
///
/// # Errors
///
/// The volume is full, or the device refuses a command.
pub fn age_by(
    parameters: &Parameters,
    volume: Volume,
    disk: &mut Disk,
    others: Others,
) -> Result<Aged, Failure> {
    let host = Host::new(parameters, volume, FLOWS + 1);
    let mut program = Ageing {
        host,
        readahead: parameters.cache.readahead,
        ids: HashMap::new(),
        flows: FLOWS,
        actors: Actors::Others(others),
        over: 0,
        writes: Writes::Cached,
        fileset: Fileset::default(),
    };
    let flows = disk.run(&mut program, FLOWS + 1)?;
    program.begin(Actors::maker(VecDeque::new()));
    disk.run(&mut program, FLOWS + 1)?;
    Ok(Aged {
        first_bytes: Bytes::ZERO,
        files: program.files(),
        counters: program.host.counters(),
        volume: program.host.into_volume(),
        flows,
    })
}

/// Who has the threads before the last, which is the flusher.
enum Actors {
    /// One thread carries out these operations, and syncs everything.
    Maker { ops: VecDeque<Op>, is_synced: bool },
    /// Each flow has one.
    Flows(Vec<Flow>),
    /// Another program.
    Others(Others),
}

struct Ageing {
    host: Host,
    readahead: Bytes,
    fileset: Fileset,
    /// The file that each entry of the fileset has, if it is there.
    ids: HashMap<usize, FileId>,
    actors: Actors,
    /// The number of flows; the flusher is the thread after them.
    flows: usize,
    /// Threads that have nothing more to do.
    over: usize,
    writes: Writes,
}

/// So many flows, at their beginning.
fn flows_of(ageing: filebench::Ageing, flows: usize) -> Vec<Flow> {
    let flow = |number| Flow::new(ageing, number as u64);
    (0..flows).map(flow).collect()
}

/// Files in order of their names.
fn in_order(ids: &HashMap<usize, FileId>) -> Vec<FileId> {
    let mut names: Vec<(usize, FileId)> = ids.iter().map(|(name, id)| (*name, *id)).collect();
    names.sort_unstable();
    names.into_iter().map(|(_, id)| id).collect()
}

impl Actors {
    fn maker(ops: VecDeque<Op>) -> Self {
        Self::Maker {
            ops,
            is_synced: false,
        }
    }
}

impl Ageing {
    /// The maker of the first files.
    fn new(
        parameters: &Parameters,
        host: Host,
        ageing: filebench::Ageing,
        writes: Writes,
        flows: usize,
    ) -> Self {
        let mut fileset = Fileset::new(ageing);
        let first = filebench::preallocate(ageing, &mut fileset);
        Self {
            host,
            readahead: parameters.cache.readahead,
            ids: HashMap::new(),
            actors: Actors::maker(first.into()),
            flows,
            over: 0,
            writes,
            fileset,
        }
    }

    /// These have the threads now.
    fn begin(&mut self, actors: Actors) {
        self.actors = actors;
        self.over = 0;
    }

    /// The users' files, in order of their names.
    fn files(&self) -> Vec<FileId> {
        in_order(&self.ids)
    }

    /// Has the host do an operation; `None`: the thread goes on with that.
    fn perform(
        &mut self,
        thread: usize,
        op: Op,
        writes: Writes,
        now: Nanos,
    ) -> Result<Option<Next>, Failure> {
        match op {
            Op::Create(id) => {
                let file = self.host.create(thread);
                self.ids.insert(id, file);
            }
            Op::Append { id, at, bytes, .. } => {
                let file = self.ids[&id];
                self.host
                    .write(thread, file, Bytes(at), Bytes(bytes), writes)?;
            }
            // filebench opens a file for what it does to it, and closes it then.
            Op::Sync(id) => {
                let file = self.ids[&id];
                self.host.sync(thread, file);
                self.host.close(thread, file);
            }
            Op::Read(id) => {
                let access = Access::Buffered {
                    call: Bytes(IO_BYTES),
                    readahead: self.readahead,
                };
                self.host.read(thread, self.ids[&id], access);
            }
            Op::Delete(id) => {
                if let Some(file) = self.ids.remove(&id) {
                    self.host.delete(thread, file);
                }
            }
            Op::Wait => return Ok(Some(Next::At(Nanos(now.0 + WAIT.0)))),
        }
        Ok(None)
    }

    /// Gives a thread its next operation; returns what it waits for where the host has nothing to do.
    fn give(&mut self, thread: usize, disk: &Disk) -> Result<Option<Next>, Failure> {
        if thread == self.flows {
            return Ok(self.host.flush_some(thread, disk));
        }
        let (op, writes) = match &mut self.actors {
            Actors::Flows(flows) => (flows[thread].next(&mut self.fileset), self.writes),
            Actors::Others(others) => (others(thread), self.writes),
            Actors::Maker { .. } if thread > 0 => (None, Writes::Cached),
            Actors::Maker { ops, is_synced } => match ops.pop_front() {
                None if !*is_synced => {
                    *is_synced = true;
                    self.host.sync_all(thread);
                    return Ok(None);
                }
                op => (op, Writes::Cached),
            },
        };
        match op {
            Some(op) => self.perform(thread, op, writes, disk.now()),
            None => {
                self.over += 1;
                Ok(Some(Next::Parked))
            }
        }
    }
}

impl Program for Ageing {
    fn step(&mut self, thread: usize, disk: &mut Disk) -> Result<Next, Failure> {
        loop {
            if let Some(next) = self.host.step(thread, disk)? {
                return Ok(next);
            }
            if let Some(next) = self.give(thread, disk)? {
                return Ok(next);
            }
        }
    }

    fn is_over(&self) -> bool {
        // The flusher has no end of its own.
        self.over == self.flows && self.host.is_idle()
    }
}

#[cfg(test)]
mod tests;
