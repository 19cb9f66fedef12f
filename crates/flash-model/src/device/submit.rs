//! From a command to its end: its namespace takes it, and the device does the part that concerns
//! more than the namespace.

use units::Nanos;

use super::{Device, Namespace};
use crate::{
    command::{Accepted, Command, Done, Refused, Ticket},
    migration::{Begun, Gather, JobKind, Moves},
};

impl Device {
    /// Takes a command at time `now`, which never goes back; an earlier one counts as the latest.
    ///
    /// # Errors
    /// The reason why the command was refused; nothing has changed then.
    pub fn submit(
        &mut self,
        now: Nanos,
        ns: usize,
        command: &Command<'_>,
    ) -> Result<Accepted, Refused> {
        self.pass_time(now.0);
        self.is_active();
        let (core, now) = (&mut self.core, self.now);
        let begun = match self.namespaces.get_mut(ns) {
            None => return Err(Refused::NoSuchNamespace),
            Some(Namespace::Zoned(zoned)) => zoned.submit(core, now, command)?,
            Some(Namespace::Conventional(conventional)) => {
                conventional.submit(core, now, command)?
            }
        };
        self.count(command);
        let (done, wrote_at) = match begun {
            Begun::Done { at, wrote_at } => {
                if let Command::Read { .. } = command {
                    self.host_reading.add(now, at);
                }
                (Done::At(Nanos(at)), wrote_at)
            }
            Begun::Written { programs, wrote_at } => (self.end_write(programs), wrote_at),
            Begun::Flush => (self.flush(), None),
            Begun::Padding { zones, ready } => {
                let ticket = self.begin(JobKind::Pad { zones }, ready);
                (Done::Later(ticket), None)
            }
            Begun::Moves(moves) => (Done::Later(self.migrate(ns, moves)), None),
        };
        Ok(Accepted { done, wrote_at })
    }

    fn count(&mut self, command: &Command<'_>) {
        match *command {
            Command::Read { len, .. } => self.host_read_bytes += len,
            Command::Write { len, .. }
            | Command::Append { len, .. }
            | Command::WriteZeroes { len, .. } => self.host_written_bytes += len,
            Command::Copy { sources, .. } => {
                self.migrated_bytes += sources.iter().map(|span| span.len).sum::<u64>();
                self.migrations += 1;
            }
            Command::Migrate { moves } => {
                self.migrated_bytes += moves.iter().map(|wanted| wanted.len).sum::<u64>();
                self.migrations += 1;
            }
            Command::Flush
            | Command::Deallocate { .. }
            | Command::RenewHandle { .. }
            | Command::Zone { .. } => {}
        }
    }

    /// Ends a write that has handed everything over. `programs`: it ends with those from this
    /// number on.
    fn end_write(&mut self, programs: Option<u64>) -> Done {
        match (self.core.end_intake(programs), programs) {
            (Ok(arrived), None) => Done::At(Nanos(arrived)),
            (Ok(arrived), Some(from)) => self.when_programmed(from, arrived),
            (Err(ticket), _) => Done::Later(ticket),
        }
    }

    fn flush(&mut self) -> Done {
        if self.core.instant {
            return Done::At(Nanos(self.now));
        }
        let ready = self.core.take_short(self.now);
        if self.core.timing.buffer_protected {
            return Done::At(Nanos(ready));
        }
        self.core.begin_intake(ready, false);
        for namespace in &mut self.namespaces {
            match namespace {
                Namespace::Zoned(zoned) => zoned.flush(&mut self.core),
                Namespace::Conventional(conventional) => conventional.flush(&mut self.core),
            }
        }
        self.when_programmed(1, ready)
    }

    /// Waits until the programs from number `from` on are done.
    fn when_programmed(&mut self, from: u64, ready: u64) -> Done {
        // Let the programs begin that already may: then the end is known at once on an idle device.
        self.pass_time(self.now);
        match self.core.tickets.wait_for_programs(from, ready) {
            Ok(time) => Done::At(Nanos(time)),
            Err(ticket) => Done::Later(ticket),
        }
    }

    /// Begins a job whose end the host wants to know.
    fn begin(&mut self, kind: JobKind, ready: u64) -> Ticket {
        let ticket = self.core.tickets.issue();
        self.tasks.add(kind, ready, ticket);
        self.put_in_motion();
        ticket
    }

    fn migrate(&mut self, ns: usize, Moves { cursor, list_bytes }: Moves) -> Ticket {
        let ready = self.core.take_short(self.now);
        let time = self.core.timing.link.time(list_bytes);
        let clock = self.core.flash.clock;
        let (_, ready) = self.core.intake.link.reserve(clock, ready, time);
        let gather = Gather::default();
        self.begin(JobKind::Move { ns, cursor, gather }, ready)
    }
}
