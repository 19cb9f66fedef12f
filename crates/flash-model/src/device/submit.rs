//! From a command to what it costs.
//!
//! Every command is checked completely before anything changes.

use units::Nanos;

use super::{Device, Namespace};
use crate::{
    command::{Accepted, Command, Done, Move, Placement, Refused, Ticket, ZoneAction},
    conventional::ConventionalNamespace,
    migration::{JobKind, MoveCursor},
    zone::Transition,
    zoned::{Gather, ZonedNamespace},
};

/// What a command came to.
struct Outcome {
    done: Done,
    wrote_at: Option<u64>,
}

impl Outcome {
    const fn at(time: u64) -> Self {
        Self {
            done: Done::At(Nanos(time)),
            wrote_at: None,
        }
    }
}

pub(super) fn submit(
    device: &mut Device,
    ns: usize,
    command: &Command<'_>,
) -> Result<Accepted, Refused> {
    let outcome = match device.namespaces.get(ns) {
        None => return Err(Refused::NoSuchNamespace),
        Some(Namespace::Zoned(_)) => zoned(device, ns, command)?,
        Some(Namespace::Conventional(_)) => conventional(device, ns, command)?,
    };
    match *command {
        Command::Read { len, .. } => device.host_read_bytes += len,
        Command::Write { len, .. }
        | Command::Append { len, .. }
        | Command::WriteZeroes { len, .. } => device.host_written_bytes += len,
        Command::Copy { sources, .. } => {
            device.migrated_bytes += sources.iter().map(|span| span.len).sum::<u64>();
        }
        Command::Migrate { moves } => {
            device.migrated_bytes += moves.iter().map(|piece| piece.len).sum::<u64>();
        }
        Command::Flush | Command::Deallocate { .. } | Command::Zone { .. } => {}
    }
    Ok(Accepted {
        done: outcome.done,
        wrote_at: outcome.wrote_at,
    })
}

impl Device {
    fn zoned_mut(&mut self, ns: usize) -> Option<(&mut ZonedNamespace, &mut crate::core::Core)> {
        match &mut self.namespaces[ns] {
            Namespace::Zoned(zoned) => Some((zoned, &mut self.core)),
            Namespace::Conventional(_) => None,
        }
    }

    /// Takes a command of the kind that is short.
    fn take_short(&mut self) -> u64 {
        let times = self.core.timing.write;
        self.core.take_command(self.now, times)
    }

    /// A write has handed everything over. `programs`: it ends with those from this number on.
    fn end_write(&mut self, programs: Option<u64>) -> Outcome {
        let done = match (self.core.end_intake(programs), programs) {
            (Ok(arrived), None) => Done::At(Nanos(arrived)),
            (Ok(arrived), Some(from)) => self.when_programmed(from, arrived),
            (Err(ticket), _) => Done::Later(ticket),
        };
        Outcome {
            done,
            wrote_at: None,
        }
    }

    /// Waits until the programs from number `from` on are done.
    fn when_programmed(&mut self, from: u64, ready: u64) -> Done {
        // What may begin already, begins: then the end is known at once on an idle device.
        self.pass_time(self.now);
        match self.core.tickets.wait_for_programs(from, ready) {
            Ok(time) => Done::At(Nanos(time)),
            Err(ticket) => Done::Later(ticket),
        }
    }

    /// Begins a job of which the host wants to know the end.
    fn begin(&mut self, kind: JobKind, ready: u64) -> Ticket {
        let ticket = self.core.tickets.issue();
        self.core.tasks.add(kind, ready, ticket);
        self.put_in_motion();
        ticket
    }

    fn migrate(&mut self, ns: usize, cursor: MoveCursor, list_bytes: u64) -> Done {
        let ready = self.take_short();
        let ready = {
            let time = self.core.timing.link.time(list_bytes);
            self.core
                .link_in
                .reserve(self.core.flash.clock, ready, time)
                .1
        };
        let gather = Gather::default();
        Done::Later(self.begin(JobKind::Move { ns, cursor, gather }, ready))
    }
}

fn zoned(device: &mut Device, ns: usize, command: &Command<'_>) -> Result<Outcome, Refused> {
    let instant = device.instant;
    let now = device.now;
    let Some((namespace, core)) = device.zoned_mut(ns) else {
        return Err(Refused::NotZoned);
    };
    match *command {
        Command::Read { offset, len } => {
            namespace.table.check_read(offset, len)?;
            if instant {
                return Ok(Outcome::at(now));
            }
            let ready = core.take_command(now, core.timing.read);
            Ok(Outcome::at(namespace.read(core, ready, offset, len)))
        }
        Command::Write {
            offset, len, fua, ..
        } => {
            let zone = namespace.table.write(offset, len)?;
            Ok(fill_zone(
                device,
                ns,
                Fill {
                    zone,
                    offset,
                    len,
                    fua,
                    append: false,
                    zeroes: false,
                },
            ))
        }
        Command::WriteZeroes { offset, len } => {
            let zone = namespace.table.write(offset, len)?;
            let fill = Fill {
                zone,
                offset,
                len,
                fua: false,
                append: false,
                zeroes: true,
            };
            Ok(fill_zone(device, ns, fill))
        }
        Command::Append {
            zone: start,
            len,
            fua,
        } => {
            let zone = namespace.table.at_start(start)?;
            let offset = namespace.table.append(zone, len)?;
            let fill = Fill {
                zone,
                offset,
                len,
                fua,
                append: true,
                zeroes: false,
            };
            let outcome = fill_zone(device, ns, fill);
            Ok(Outcome {
                wrote_at: Some(offset),
                ..outcome
            })
        }
        Command::Flush => Ok(flush(device)),
        Command::Deallocate { offset, len } => {
            namespace.table.check_read(offset, len)?;
            Ok(Outcome::at(if instant { now } else { device.take_short() }))
        }
        Command::Zone { start, all, action } => zone_command(device, ns, start, all, action),
        Command::Copy { .. } | Command::Migrate { .. } => migrate_zoned(device, ns, command),
    }
}

/// A write of one kind or another into a zone.
struct Fill {
    zone: usize,
    offset: u64,
    len: u64,
    fua: bool,
    append: bool,
    zeroes: bool,
}

fn fill_zone(device: &mut Device, ns: usize, fill: Fill) -> Outcome {
    let (now, instant) = (device.now, device.instant);
    let timing = &device.core.timing;
    let times = if fill.append {
        timing.append
    } else {
        timing.write
    };
    let protected = timing.buffer_protected;
    let Fill {
        zone, offset, len, ..
    } = fill;
    let from = device.core.tickets.last_number() + 1;
    let Some((namespace, core)) = device.zoned_mut(ns) else {
        return Outcome::at(now);
    };
    if instant {
        return Outcome::at(now);
    }
    let ready = core.take_command(now, times);
    let programs = (fill.fua && !protected).then_some(from);
    core.begin_intake(ready, !fill.zeroes);
    namespace.fill(core, zone, offset, len);
    if programs.is_some() {
        namespace.flush_zone(core, zone);
    }
    device.end_write(programs)
}

fn flush(device: &mut Device) -> Outcome {
    if device.instant {
        return Outcome::at(device.now);
    }
    let ready = device.take_short();
    if device.core.timing.buffer_protected {
        return Outcome::at(ready);
    }
    device.core.begin_intake(ready, false);
    for namespace in &mut device.namespaces {
        match namespace {
            Namespace::Zoned(zoned) => zoned.flush(&mut device.core),
            Namespace::Conventional(conventional) => conventional.flush(&mut device.core),
        }
    }
    Outcome {
        done: device.when_programmed(1, ready),
        wrote_at: None,
    }
}

fn zone_command(
    device: &mut Device,
    ns: usize,
    start: u64,
    all: bool,
    action: ZoneAction,
) -> Result<Outcome, Refused> {
    let (now, instant) = (device.now, device.instant);
    let Some((namespace, _)) = device.zoned_mut(ns) else {
        return Err(Refused::NotZoned);
    };
    let mut transitions: Vec<Transition> = Vec::new();
    if all {
        let selected = namespace.table.selected_by_all(action);
        if action == ZoneAction::Open {
            namespace.table.check_open_all(&selected)?;
        }
        for zone in selected {
            transitions.extend(namespace.table.act(zone, action)?);
        }
    } else {
        let zone = namespace.table.at_start(start)?;
        transitions.extend(namespace.table.act(zone, action)?);
    }
    if instant {
        for transition in &transitions {
            namespace.after_instant_action(action, transition);
        }
        return Ok(Outcome::at(now));
    }
    let ready = device.take_short();
    let mut done = ready;
    let mut jobs = Vec::new();
    if let Some((namespace, core)) = device.zoned_mut(ns) {
        for transition in &transitions {
            let (end, job) = namespace.after_action(core, ready, action, transition);
            done = done.max(end);
            jobs.extend(job);
        }
    }
    if jobs.is_empty() {
        return Ok(Outcome::at(done));
    }
    let ticket = device.begin(JobKind::Pad { zones: jobs.into() }, done);
    Ok(Outcome {
        done: Done::Later(ticket),
        wrote_at: None,
    })
}

fn migrate_zoned(
    device: &mut Device,
    ns: usize,
    command: &Command<'_>,
) -> Result<Outcome, Refused> {
    let (now, instant) = (device.now, device.instant);
    let Some((namespace, core)) = device.zoned_mut(ns) else {
        return Err(Refused::NotZoned);
    };
    namespace.check_sources(command)?;
    let (cursor, list_bytes) = cursor(command, namespace.zone_size())?;
    let before = (cursor.moves().len() > 1).then(|| namespace.table.clone());
    for piece in cursor.moves() {
        if let Err(refused) = namespace.table.write(piece.to, piece.len) {
            if let Some(before) = before {
                namespace.table = before;
            }
            return Err(refused);
        }
    }
    if instant {
        return Ok(Outcome::at(now));
    }
    for piece in cursor.moves() {
        namespace.filled_by_migration(core, piece.to, piece.len);
    }
    Ok(Outcome {
        done: device.migrate(ns, cursor, list_bytes),
        wrote_at: None,
    })
}

/// The moves of a command, and the bytes that its list has on the wire: 32 for each source of a
/// Copy (NVM Command Set 1.0 §3.2.2), 8 for each 4 KiB of a migration (InDeF §III-D).
fn cursor(command: &Command<'_>, boundary: u64) -> Result<(MoveCursor, u64), Refused> {
    match *command {
        Command::Copy {
            sources,
            destination,
        } => {
            let mut to = destination;
            let mut moves = Vec::with_capacity(sources.len());
            let total = sources
                .iter()
                .try_fold(0_u64, |sum, span| sum.checked_add(span.len))
                .and_then(|total| destination.checked_add(total).map(|_| total))
                .ok_or(Refused::OutOfRange)?;
            for span in sources {
                if span.offset < destination + total && destination < span.end() {
                    return Err(Refused::Overlap);
                }
                moves.push(Move {
                    from: span.offset,
                    to,
                    len: span.len,
                });
                to += span.len;
            }
            Ok((
                MoveCursor::new(moves.into_iter(), boundary),
                32 * sources.len() as u64,
            ))
        }
        Command::Migrate { moves } => {
            let blocks: u64 = moves.iter().map(|piece| piece.len.div_ceil(4096)).sum();
            Ok((MoveCursor::new(moves.iter().copied(), boundary), 8 * blocks))
        }
        _ => Err(Refused::Unaligned),
    }
}

fn conventional(device: &mut Device, ns: usize, command: &Command<'_>) -> Result<Outcome, Refused> {
    let (now, instant) = (device.now, device.instant);
    let core = &mut device.core;
    let Namespace::Conventional(namespace) = &mut device.namespaces[ns] else {
        return Err(Refused::NotZoned);
    };
    match *command {
        Command::Read { offset, len } => {
            namespace.check_range(offset, len)?;
            if instant {
                return Ok(Outcome::at(now));
            }
            let ready = core.take_command(now, core.timing.read);
            Ok(Outcome::at(namespace.read(core, ready, offset, len)))
        }
        Command::Write {
            offset,
            len,
            fua,
            placement,
        } => {
            namespace.check_range(offset, len)?;
            Ok(write(device, ns, offset, len, fua, Some(placement)))
        }
        Command::WriteZeroes { offset, len } => {
            namespace.check_range(offset, len)?;
            Ok(write(device, ns, offset, len, false, None))
        }
        Command::Flush => Ok(flush(device)),
        Command::Deallocate { offset, len } => {
            namespace.check_range(offset, len)?;
            namespace.deallocate(offset, len);
            Ok(Outcome::at(if instant { now } else { device.take_short() }))
        }
        Command::Append { .. } | Command::Zone { .. } => Err(Refused::NotZoned),
        Command::Copy { .. } | Command::Migrate { .. } => migrate_conventional(device, ns, command),
    }
}

/// A write, or with no placement one of zeroes.
fn write(
    device: &mut Device,
    ns: usize,
    offset: u64,
    len: u64,
    fua: bool,
    placement: Option<Placement>,
) -> Outcome {
    let now = device.now;
    let from = device.core.tickets.last_number() + 1;
    let core = &mut device.core;
    let Namespace::Conventional(namespace) = &mut device.namespaces[ns] else {
        return Outcome::at(now);
    };
    let (transfer, placement) = (placement.is_some(), placement.unwrap_or_default());
    if device.instant {
        namespace.place(core, offset, len, placement);
        return Outcome::at(now);
    }
    let ready = core.take_command(now, core.timing.write);
    let programs = (fua && !core.timing.buffer_protected).then_some(from);
    core.begin_intake(ready, transfer);
    namespace.write(core, ready, offset, len, placement);
    if programs.is_some() {
        namespace.flush(core);
    }
    device.end_write(programs)
}

fn migrate_conventional(
    device: &mut Device,
    ns: usize,
    command: &Command<'_>,
) -> Result<Outcome, Refused> {
    let now = device.now;
    let Namespace::Conventional(namespace) = &mut device.namespaces[ns] else {
        return Err(Refused::NotZoned);
    };
    let (cursor, list_bytes) = cursor(command, u64::MAX)?;
    check_moves(namespace, &cursor)?;
    if device.instant {
        for piece in cursor.moves() {
            namespace.place(&mut device.core, piece.to, piece.len, Placement::RoundRobin);
        }
        return Ok(Outcome::at(now));
    }
    Ok(Outcome {
        done: device.migrate(ns, cursor, list_bytes),
        wrote_at: None,
    })
}

fn check_moves(namespace: &ConventionalNamespace, cursor: &MoveCursor) -> Result<(), Refused> {
    cursor.moves().iter().try_for_each(|piece| {
        namespace.check_range(piece.from, piece.len)?;
        namespace.check_range(piece.to, piece.len)
    })
}
