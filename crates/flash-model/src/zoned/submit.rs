//! Commands of a zoned namespace.
//!
//! Every command is checked completely before anything changes.

use super::ZonedNamespace;
use crate::{
    command::{Command, Refused, ZoneAction},
    core::Core,
    migration::{Begun, Moves},
    zone::Transition,
};

/// The kinds of writes into a zone.
#[derive(Clone, Copy)]
enum Fill {
    Write { fua: bool },
    Append { fua: bool },
    Zeroes,
}

impl ZonedNamespace {
    /// Takes a command at `now`.
    pub(crate) fn submit(
        &mut self,
        core: &mut Core,
        now: u64,
        command: &Command<'_>,
    ) -> Result<Begun, Refused> {
        match *command {
            Command::Read { offset, len } => {
                self.table.check_read(offset, len)?;
                if core.instant {
                    return Ok(Begun::at(now));
                }
                let ready = core.take_command(now, core.timing.read);
                Ok(Begun::at(self.read(core, ready, offset, len)))
            }
            Command::Write {
                offset, len, fua, ..
            } => {
                let zone = self.table.write(offset, len)?;
                Ok(self.begin_fill(core, now, Fill::Write { fua }, zone, (offset, len)))
            }
            Command::WriteZeroes { offset, len } => {
                let zone = self.table.write(offset, len)?;
                Ok(self.begin_fill(core, now, Fill::Zeroes, zone, (offset, len)))
            }
            Command::Append {
                zone: start,
                len,
                fua,
            } => {
                let zone = self.table.at_start(start)?;
                let offset = self.table.append(zone, len)?;
                Ok(self.begin_fill(core, now, Fill::Append { fua }, zone, (offset, len)))
            }
            Command::Flush => Ok(Begun::Flush),
            Command::Deallocate { offset, len } => {
                self.table.check_read(offset, len)?;
                Ok(Begun::at(if core.instant {
                    now
                } else {
                    core.take_short(now)
                }))
            }
            Command::RenewHandle { .. } => Err(Refused::NoSuchHandle),
            Command::Zone { start, all, action } => self.manage(core, now, start, all, action),
            Command::Copy {
                sources,
                destination,
            } => {
                for span in sources {
                    self.table.check_read(span.offset, span.len)?;
                }
                let total = sources.iter().map(|span| span.len).sum();
                let zone = self.table.index_of(destination)?;
                self.table.check_write(zone, destination, total)?;
                let moves = Moves::of_copy(sources, destination, self.zone_size())?;
                self.migrate(core, now, moves)
            }
            Command::Migrate { moves } => {
                for wanted in moves {
                    self.table.check_read(wanted.from, wanted.len)?;
                }
                self.migrate(core, now, Moves::of_migration(moves, self.zone_size()))
            }
        }
    }

    fn begin_fill(
        &mut self,
        core: &mut Core,
        now: u64,
        fill: Fill,
        zone: usize,
        (offset, len): (u64, u64),
    ) -> Begun {
        let (times, fua, wrote_at) = match fill {
            Fill::Write { fua } => (core.timing.write, fua, None),
            Fill::Append { fua } => (core.timing.append, fua, Some(offset)),
            Fill::Zeroes => (core.timing.write, false, None),
        };
        if core.instant {
            return Begun::Done { at: now, wrote_at };
        }
        let from = core.tickets.last_number() + 1;
        let ready = core.take_command(now, times);
        let programs = (fua && !core.timing.buffer_protected).then_some(from);
        core.begin_intake(ready, !matches!(fill, Fill::Zeroes));
        self.fill(core, zone, offset, len);
        if programs.is_some() {
            self.flush_zone(core, zone);
        }
        Begun::Written { programs, wrote_at }
    }

    /// Zone management.
    fn manage(
        &mut self,
        core: &mut Core,
        now: u64,
        start: u64,
        all: bool,
        action: ZoneAction,
    ) -> Result<Begun, Refused> {
        let mut transitions: Vec<Transition> = Vec::new();
        if all {
            let selected = self.table.selected_by_all(action);
            if action == ZoneAction::Open {
                self.table.check_open_all(&selected)?;
            }
            for zone in selected {
                transitions.extend(self.table.act(zone, action)?);
            }
        } else {
            let zone = self.table.at_start(start)?;
            transitions.extend(self.table.act(zone, action)?);
        }
        if core.instant {
            for transition in &transitions {
                self.after_instant_action(action, transition);
            }
            return Ok(Begun::at(now));
        }
        let ready = core.take_short(now);
        let mut done = ready;
        let mut zones = Vec::new();
        for transition in &transitions {
            let (end, padding) = self.after_action(core, ready, action, transition);
            done = done.max(end);
            zones.extend(padding);
        }
        Ok(if zones.is_empty() {
            Begun::at(done)
        } else {
            Begun::Padding {
                zones: zones.into(),
                ready: done,
            }
        })
    }

    /// Moves data; all of it or nothing.
    fn migrate(&mut self, core: &mut Core, now: u64, moves: Moves) -> Result<Begun, Refused> {
        let joined = moves.cursor.moves();
        let before = (joined.len() > 1).then(|| self.table.clone());
        for wanted in joined {
            if let Err(refused) = self.table.write(wanted.to, wanted.len) {
                if let Some(before) = before {
                    self.table = before;
                }
                return Err(refused);
            }
        }
        if core.instant {
            return Ok(Begun::at(now));
        }
        for wanted in joined {
            self.filled_by_migration(core, wanted.to, wanted.len);
        }
        Ok(Begun::Moves(moves))
    }
}
