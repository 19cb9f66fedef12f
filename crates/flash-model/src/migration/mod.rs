//! Copies inside the device, in pieces, in the background.
//!
//! A command becomes a [`MoveJob`] that is carried out page by page: a *task* is one page that is to be
//! programmed, with the pages that must be read before. As many tasks are in motion at once as the
//! profile's window allows; the dies get their operations one at a time, so host reads pass. Memory
//! is bounded by the window and by the list that the command brought.

mod begun;
mod gather;
mod job;

use crate::{
    command::Ticket,
    core::{Cause, Core, DieWork, Owner, QueuedOperation, Tickets},
};

pub(crate) use self::{
    begun::{Begun, Moves},
    gather::{Gather, ZonePart},
    job::{JobKind, MoveCursor, MoveJob, Padding, PageWork, ReadPart},
};

/// One page in motion.
#[derive(Clone, Debug, Default)]
struct Task {
    job: u32,
    reads_left: u32,
    programs_left: u32,
    /// When the data that was read so far is in memory; later, the end.
    end: u64,
    /// To be queued when everything is read.
    programs: Vec<(u32, QueuedOperation)>,
}

/// One command.
#[derive(Clone, Copy, Debug)]
struct MigrationProgress {
    ticket: Ticket,
    tasks: u32,
    all_known: bool,
    end: u64,
}

/// All tasks and the jobs that make them.
#[derive(Clone, Debug)]
pub(crate) struct Tasks {
    window: usize,
    slots: Vec<Task>,
    free: Vec<u32>,
    progress: Vec<Option<MigrationProgress>>,
    jobs: std::collections::VecDeque<MoveJob>,
}

impl Tasks {
    pub(crate) fn new(window: usize) -> Self {
        Self {
            window,
            slots: Vec::new(),
            free: Vec::new(),
            progress: Vec::new(),
            jobs: std::collections::VecDeque::new(),
        }
    }

    /// Adds a command; no part of it happens before `ready`.
    pub(crate) fn add(&mut self, kind: JobKind, ready: u64, ticket: Ticket) {
        let progress = MigrationProgress {
            ticket,
            tasks: 0,
            all_known: false,
            end: ready,
        };
        let number = match self.progress.iter().position(Option::is_none) {
            Some(number) => number,
            None => {
                self.progress.push(None);
                self.progress.len() - 1
            }
        };
        self.progress[number] = Some(progress);
        self.jobs.push_back(MoveJob {
            number: number as u32,
            ready,
            kind,
        });
    }

    /// Takes the job that may put another page in motion; [`Self::put_back`] gives it back.
    pub(crate) fn take_job(&mut self) -> Option<MoveJob> {
        if self.slots.len() - self.free.len() >= self.window {
            None
        } else {
            self.jobs.pop_front()
        }
    }

    /// Returns whether no part of any job is left to put in motion.
    pub(crate) fn is_idle(&self) -> bool {
        self.jobs.is_empty()
    }

    pub(crate) fn put_back(&mut self, job: MoveJob) {
        self.jobs.push_front(job);
    }

    /// Notes that a job has put everything in motion.
    pub(crate) fn all_known(&mut self, job: &MoveJob, tickets: &mut Tickets) {
        if let Some(progress) = &mut self.progress[job.number as usize] {
            progress.all_known = true;
        }
        self.finish_if_done(job.number, tickets);
    }

    /// Puts a page in motion: queues its operations, as far as they need not wait.
    pub(crate) fn start(&mut self, core: &mut Core, job: &MoveJob, page: &mut PageWork) {
        let task = self.add_task(job, page, &mut core.tickets);
        for &(die, entry) in &page.others {
            core.queue(die, entry);
        }
        let ready = job.ready.max(page.ready);
        for &read in &page.reads {
            core.queue(read.die, read_entry(ready, read, task));
        }
        self.queue_programs(core, task);
    }

    fn add_task(&mut self, job: &MoveJob, page: &mut PageWork, tickets: &mut Tickets) -> u32 {
        let id = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Task::default());
            (self.slots.len() - 1) as u32
        });
        let task = &mut self.slots[id as usize];
        task.job = job.number;
        task.reads_left = page.reads.len() as u32;
        task.programs_left = page.programs.len() as u32;
        task.end = job.ready.max(page.ready);
        task.programs.append(&mut page.programs);
        for (_, entry) in &mut task.programs {
            entry.owner = Owner::Task(id);
            entry.ready = entry.ready.max(task.end);
        }
        if let Some(progress) = &mut self.progress[job.number as usize] {
            progress.tasks += 1;
        }
        self.end_if_done(id, tickets);
        id
    }

    /// Notes that one operation of the task was given to its die, and ends at `end`.
    pub(crate) fn step(&mut self, core: &mut Core, id: u32, end: u64) {
        let task = &mut self.slots[id as usize];
        task.end = task.end.max(end);
        if task.reads_left > 0 {
            task.reads_left -= 1;
        } else {
            task.programs_left -= 1;
        }
        self.end_if_done(id, &mut core.tickets);
        self.queue_programs(core, id);
    }

    /// Queues the programs of a task once all of its reads are under way.
    fn queue_programs(&mut self, core: &mut Core, id: u32) {
        while let Some((die, entry)) = self.next_program(id) {
            core.queue(die, entry);
        }
    }

    fn next_program(&mut self, id: u32) -> Option<(u32, QueuedOperation)> {
        let task = &mut self.slots[id as usize];
        if task.reads_left > 0 {
            return None;
        }
        let (die, mut entry) = task.programs.pop()?;
        entry.ready = entry.ready.max(task.end);
        Some((die, entry))
    }

    fn end_if_done(&mut self, id: u32, tickets: &mut Tickets) {
        let task = &self.slots[id as usize];
        if task.reads_left > 0 || task.programs_left > 0 {
            return;
        }
        let (job, end) = (task.job, task.end);
        self.free.push(id);
        if let Some(progress) = &mut self.progress[job as usize] {
            progress.tasks -= 1;
            progress.end = progress.end.max(end);
        }
        self.finish_if_done(job, tickets);
    }

    fn finish_if_done(&mut self, job: u32, tickets: &mut Tickets) {
        let slot = &mut self.progress[job as usize];
        if let Some(progress) = slot
            && progress.all_known
            && progress.tasks == 0
        {
            tickets.finish(progress.ticket, progress.end);
            *slot = None;
        }
    }
}

/// An operation of a migration that reads a part of a page.
const fn read_entry(ready: u64, read: ReadPart, task: u32) -> QueuedOperation {
    QueuedOperation {
        work: DieWork::Read,
        page: read.page,
        ready,
        bytes: read.bytes,
        release: 0,
        cause: Cause::Migration,
        owner: Owner::Task(task),
        number: 0,
    }
}
