//! Commands of I/O queues (NVM §3.2, ZNS §3.4).
//!
//! A command is checked completely, and becomes [`IoWork`]; the work alone talks to the device, and
//! ends the command.

mod copy;
mod handles;
mod work;
mod zones;

use std::sync::atomic::Ordering;

use flash_model::{NamespaceKind, Placement, Span};
use nvme_wire::{
    ALL_NAMESPACES, Status,
    fdp::{ReceiveOperation, SendOperation},
    io::{IoCommand, Transfer, WriteHint},
    range,
    vendor::DefragmentMove,
};

use super::{
    limits::{COPY_RANGES_MAX, MAX_TRANSFER},
    need::Need,
    queue::HostQueue,
    send::{Completed, Permit},
};
use crate::{
    device::{Failure, NamespaceInfo, Request},
    store::Health,
};
use work::{Ending, IoWork, span};

/// The data that a command needs, as far as it can be done at all.
pub(super) fn need(queue: &HostQueue, nsid: u32, command: &IoCommand) -> Result<Need, Status> {
    let exactly = true;
    match *command {
        IoCommand::Read(transfer) => Ok(Need::ToHost {
            len: block_bytes(queue, nsid, &transfer)?,
            exactly,
        }),
        IoCommand::Write(transfer, _)
        | IoCommand::Compare(transfer)
        | IoCommand::ZoneAppend(transfer, _) => Ok(Need::FromHost {
            len: block_bytes(queue, nsid, &transfer)?,
            exactly,
        }),
        IoCommand::DatasetManagement { ranges, .. } => {
            Ok(Need::at_least(ranges * range::DatasetRange::LEN))
        }
        IoCommand::Copy { ranges, format, .. } => {
            let entry = format.entry_len().ok_or(Status::InvalidField)?;
            if ranges > COPY_RANGES_MAX {
                return Err(Status::SizeLimitExceeded);
            }
            Ok(Need::at_least(ranges * entry))
        }
        IoCommand::InDeviceDefragment { moves } => {
            let max = queue.subsystem.defragment_max;
            if max == 0 {
                return Err(Status::InvalidOpcode);
            }
            if moves > max {
                return Err(Status::SizeLimitExceeded);
            }
            Ok(Need::at_least(moves as usize * DefragmentMove::LEN))
        }
        IoCommand::ManagementSend { placement_ids, .. } => Ok(Need::at_least(placement_ids * 2)),
        IoCommand::ManagementReceive { len, .. } | IoCommand::ZoneReceive { len, .. } => {
            if len > MAX_TRANSFER as u64 {
                return Err(Status::InvalidField);
            }
            Ok(Need::room_for(len))
        }
        IoCommand::Flush
        | IoCommand::Verify(_)
        | IoCommand::WriteZeroes { .. }
        | IoCommand::ZoneSend { .. } => Ok(Need::Nothing),
        IoCommand::Unknown(_) => Err(Status::InvalidOpcode),
    }
}

/// Bytes of the blocks that a command transfers.
fn block_bytes(queue: &HostQueue, nsid: u32, transfer: &Transfer) -> Result<u64, Status> {
    let (_, namespace) = queue.backend().namespace(nsid)?;
    let len = u64::from(transfer.blocks.count) * namespace.block_bytes;
    if len > MAX_TRANSFER as u64 {
        return Err(Status::InvalidField);
    }
    Ok(len)
}

/// Carry out a command whose data is there.
pub(super) fn execute(
    queue: &HostQueue,
    permit: Permit,
    nsid: u32,
    command: &IoCommand,
    data: &[u8],
) {
    match check(queue, nsid, command, data) {
        Ok((namespace, work)) => work.run(queue.device(), namespace, permit),
        Err(status) => permit.complete(Err(status.into())),
    }
}

/// Check a command; its namespace, and the work that it is.
fn check<'a>(
    queue: &HostQueue,
    nsid: u32,
    command: &IoCommand,
    data: &'a [u8],
) -> Result<(usize, IoWork<'a>), Status> {
    if nsid == ALL_NAMESPACES && *command == IoCommand::Flush {
        return Ok((0, IoWork::FlushAll));
    }
    let (index, namespace) = queue.backend().namespace(nsid)?;
    let changes = |request| IoWork::One(request, Ending::Changed(0));
    let work = match *command {
        IoCommand::Flush => changes(Request::Flush),
        IoCommand::Read(transfer) => {
            let span = span(namespace, transfer.blocks)?;
            let ending = Ending::Read {
                namespace: index,
                span,
                durably: transfer.fua,
            };
            reads(transfer, span, ending)
        }
        IoCommand::Write(transfer, hint) => {
            let Span { offset, len } = span(namespace, transfer.blocks)?;
            let placement = placement(queue, (index, namespace), hint)?;
            let write = Request::Write {
                offset,
                data,
                fua: durable(queue, transfer.fua),
                placement,
            };
            IoWork::One(write, Ending::Written { len })
        }
        IoCommand::Compare(transfer) => {
            let span = span(namespace, transfer.blocks)?;
            let mut is_equal = true;
            read_through(queue, index, span, |at, bytes| {
                is_equal &= data.get(at..at + bytes.len()) == Some(bytes);
            })?;
            reads(transfer, span, Ending::Compared { is_equal })
        }
        IoCommand::Verify(transfer) => {
            let span = span(namespace, transfer.blocks)?;
            read_through(queue, index, span, |_, _| {})?;
            reads(transfer, span, Ending::Compared { is_equal: true })
        }
        IoCommand::WriteZeroes { transfer, .. } => {
            let Span { offset, len } = span(namespace, transfer.blocks)?;
            let fua = durable(queue, transfer.fua);
            changes(Request::WriteZeroes { offset, len, fua })
        }
        IoCommand::DatasetManagement { ranges, deallocate } => {
            let fua = durable(queue, false);
            dataset_management(namespace, ranges, deallocate.then_some(fua), data)?
        }
        IoCommand::Copy {
            destination,
            ranges,
            format,
            fua,
            directive,
        } => {
            if directive != 0 {
                return Err(Status::InvalidField);
            }
            let sources = copy::sources(queue, nsid, data, ranges, format)?;
            copy::copy(namespace, &sources, destination, durable(queue, fua))?
        }
        IoCommand::InDeviceDefragment { moves } => {
            copy::defragment(namespace, moves, data, durable(queue, false))?
        }
        IoCommand::ManagementReceive {
            operation: ReceiveOperation::ReclaimUnitHandleStatus,
            len,
        } => IoWork::Done(Completed::Data(handles::status(
            queue,
            index,
            len as usize,
        )?)),
        IoCommand::ManagementSend {
            operation: SendOperation::ReclaimUnitHandleUpdate,
            placement_ids,
        } => IoWork::Renew(handles::update(queue, index, data, placement_ids)?),
        IoCommand::ManagementReceive { .. } | IoCommand::ManagementSend { .. } => {
            return Err(Status::InvalidField);
        }
        IoCommand::ZoneSend { .. } | IoCommand::ZoneReceive { .. } | IoCommand::ZoneAppend(..)
            if namespace.kind != NamespaceKind::Zoned =>
        {
            return Err(Status::InvalidOpcode);
        }
        // There are no zone random write areas (ZNS §3.4.3).
        IoCommand::ZoneSend {
            random_write_area: true,
            ..
        } => return Err(Status::InvalidField),
        IoCommand::ZoneSend {
            zone, all, action, ..
        } => zones::send(namespace, zone, all, action)?,
        IoCommand::ZoneReceive {
            from,
            len,
            kind,
            filter,
            partial,
        } => {
            let report = zones::ZoneReport {
                from,
                len,
                kind,
                filter,
                partial,
            };
            // Nobody knows what is in the zones of a namespace out of service: they are not empty.
            if let Health::Failed(damage) = queue.device().health(index) {
                let failure = Failure::Media(damage);
                let unreadable = Status::UnrecoveredRead;
                return Err(queue.backend().status_of(&failure, unreadable));
            }
            let bytes = report.build(queue.device(), (index, namespace))?;
            IoWork::Done(Completed::Data(bytes))
        }
        IoCommand::ZoneAppend(transfer, hint) => {
            // Zones lie where they lie, but what the host may not ask for is refused.
            placement(queue, (index, namespace), hint)?;
            let zone = span(namespace, transfer.blocks)?.offset;
            let fua = durable(queue, transfer.fua);
            let ending = Ending::Appended {
                zone,
                len: data.len() as u64,
                block_bytes: namespace.block_bytes,
            };
            IoWork::One(Request::Append { zone, data, fua }, ending)
        }
        IoCommand::Unknown(_) => return Err(Status::InvalidOpcode),
    };
    Ok((index, work))
}

/// A read, whether its data goes to the host or not.
fn reads(transfer: Transfer, span: Span, ending: Ending) -> IoWork<'static> {
    IoWork::Read {
        span,
        ending,
        fua: transfer.fua,
    }
}

/// Whether a change has to be durable when it is done: because the command says so, or the host has
/// disabled the write cache.
fn durable(queue: &HostQueue, fua: bool) -> bool {
    fua || !queue
        .controller
        .settings
        .write_cache
        .load(Ordering::Relaxed)
}

fn placement(
    queue: &HostQueue,
    (index, namespace): (usize, &NamespaceInfo),
    hint: WriteHint,
) -> Result<Placement, Status> {
    let has_hints = queue.controller.settings.hints();
    Ok(match hint {
        WriteHint::Placement { id } => handles::of_write(queue, index, id)?,
        WriteHint::Directive { .. } => return Err(Status::InvalidField),
        WriteHint::Overwrite if has_hints => Placement::Overwrite,
        // An out-of-range predecessor counts as unmapped: the normal rule applies.
        WriteHint::After { predecessor } if has_hints => predecessor
            .checked_mul(namespace.block_bytes)
            .filter(|&predecessor| predecessor < namespace.size_bytes)
            .map_or(Placement::RoundRobin, |predecessor| Placement::After {
                predecessor,
            }),
        WriteHint::None | WriteHint::Overwrite | WriteHint::After { .. } => Placement::RoundRobin,
    })
}

/// Show the bytes of a span, part by part, each with its place in the span.
fn read_through(
    queue: &HostQueue,
    namespace: usize,
    span: Span,
    mut show: impl FnMut(usize, &[u8]),
) -> Result<(), Status> {
    const PART: u64 = 64 << 10;
    let mut buffer = vec![0; span.len.min(PART) as usize];
    let mut at = 0;
    while at < span.len {
        let part = &mut buffer[..(span.len - at).min(PART) as usize];
        queue
            .device()
            .read_into(namespace, span.offset + at, part)
            .map_err(|failure| queue.backend().status_of(&failure, Status::UnrecoveredRead))?;
        show(at as usize, part);
        at += part.len() as u64;
    }
    Ok(())
}

/// Deallocate ranges, durably or not; without `deallocate` they are checked alone.
fn dataset_management(
    namespace: &NamespaceInfo,
    ranges: usize,
    deallocate: Option<bool>,
    data: &[u8],
) -> Result<IoWork<'static>, Status> {
    let spans: Vec<Span> = range::ranges(data, ranges)?
        .filter(|blocks| blocks.count > 0)
        .map(|blocks| span(namespace, blocks))
        .collect::<Result<_, _>>()?;
    Ok(match deallocate {
        Some(fua) if !spans.is_empty() => IoWork::Deallocate { spans, fua },
        _ => IoWork::Done(Completed::Result(0)),
    })
}
