//! Commands of a conventional namespace.
//!
//! Every command is checked completely before anything changes.

use super::ConventionalNamespace;
use crate::{
    command::{Command, Placement, Refused},
    core::Core,
    migration::{Begun, Moves},
};

impl ConventionalNamespace {
    /// Takes a command at `now`.
    pub(crate) fn submit(
        &mut self,
        core: &mut Core,
        now: u64,
        command: &Command<'_>,
    ) -> Result<Begun, Refused> {
        match *command {
            Command::Read { offset, len } => {
                self.check_range(offset, len)?;
                if core.instant {
                    return Ok(Begun::at(now));
                }
                let ready = core.take_command(now, core.timing.read);
                Ok(Begun::at(self.read(core, ready, offset, len)))
            }
            Command::Write {
                offset,
                len,
                fua,
                placement,
            } => {
                self.check_range(offset, len)?;
                Ok(self.begin_write(core, now, (offset, len), fua, Some(placement)))
            }
            Command::WriteZeroes { offset, len } => {
                self.check_range(offset, len)?;
                Ok(self.begin_write(core, now, (offset, len), false, None))
            }
            Command::Flush => Ok(Begun::Flush),
            Command::Deallocate { offset, len } => {
                self.check_range(offset, len)?;
                self.deallocate(offset, len);
                Ok(Begun::at(if core.instant {
                    now
                } else {
                    core.take_short(now)
                }))
            }
            Command::RenewHandle { handle } => self.renew_handle(core, now, handle),
            Command::Append { .. } | Command::Zone { .. } => Err(Refused::NotZoned),
            Command::Copy {
                sources,
                destination,
            } => self.migrate(core, now, Moves::of_copy(sources, destination, u64::MAX)?),
            Command::Migrate { moves } => {
                self.migrate(core, now, Moves::of_migration(moves, u64::MAX))
            }
        }
    }

    /// Begins a write, or with no placement a write of zeroes.
    fn begin_write(
        &mut self,
        core: &mut Core,
        now: u64,
        (offset, len): (u64, u64),
        fua: bool,
        placement: Option<Placement>,
    ) -> Begun {
        let (transfer, placement) = (placement.is_some(), placement.unwrap_or_default());
        if core.instant {
            self.place(core, offset, len, placement);
            return Begun::at(now);
        }
        let from = core.tickets.last_number() + 1;
        let ready = core.take_command(now, core.timing.write);
        let programs = (fua && !core.timing.buffer_protected).then_some(from);
        core.begin_intake(ready, transfer);
        self.write(core, ready, offset, len, placement);
        if programs.is_some() {
            self.flush(core);
        }
        Begun::Written {
            programs,
            wrote_at: None,
        }
    }

    /// Gives a handle an empty reclaim unit; what was not complete in the old one is programmed.
    fn renew_handle(&mut self, core: &mut Core, now: u64, handle: u32) -> Result<Begun, Refused> {
        if handle >= self.handles {
            return Err(Refused::NoSuchHandle);
        }
        let mut work = std::mem::take(&mut self.work);
        self.ftl.renew(handle, &mut work);
        if !core.instant {
            let ready = core.take_short(now);
            core.begin_intake(ready, false);
        }
        for item in work.drain(..) {
            let (die, entry) = self.entry(item, 0, core);
            if core.instant {
                core.count_instant(die, &entry);
            } else {
                core.queue_after_intake(die, entry);
            }
        }
        self.work = work;
        if core.instant {
            return Ok(Begun::at(now));
        }
        Ok(Begun::Written {
            programs: None,
            wrote_at: None,
        })
    }

    fn migrate(&mut self, core: &mut Core, now: u64, moves: Moves) -> Result<Begun, Refused> {
        for wanted in moves.cursor.moves() {
            self.check_range(wanted.from, wanted.len)?;
            self.check_range(wanted.to, wanted.len)?;
        }
        if core.instant {
            for wanted in moves.cursor.moves() {
                self.place(core, wanted.to, wanted.len, Placement::RoundRobin);
            }
            return Ok(Begun::at(now));
        }
        Ok(Begun::Moves(moves))
    }
}
