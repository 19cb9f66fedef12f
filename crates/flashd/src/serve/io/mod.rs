//! Commands of I/O queues (NVM §3.2, ZNS §3.4).

mod copy;
mod joint;
mod zones;

use std::sync::{Arc, atomic::Ordering};

use flash_model::{NamespaceKind, Placement};
use nvme_wire::{
    Status, Submission,
    fabrics::FabricsCommand,
    io::{BlockRange, IoCommand, Transfer, WriteHint},
    range,
    vendor::DefragmentMove,
};

use super::{
    connection::Need,
    controller::Queue,
    reply::Reply,
    subsystem::{COPY_RANGES_MAX, DEFRAGMENT_MOVES_MAX, MAX_TRANSFER},
};
use crate::device::{Failure, Namespace, Request, Success};
pub(super) use copy::copy_range_blocks;
use joint::Joint;

/// NSID of all namespaces.
const ALL_NAMESPACES: u32 = u32::MAX;

/// What data a command needs, as far as it can be done at all.
pub(super) fn need(queue: &Queue, command: &Submission) -> Result<Need, Status> {
    let parsed = IoCommand::parse(command);
    let from_host = |len: u64| {
        Ok(Need::FromHost {
            len,
            exactly: false,
        })
    };
    match parsed {
        IoCommand::Read(transfer) => Ok(Need::ToHost {
            len: block_bytes(queue, command, &transfer)?,
            exactly: true,
        }),
        IoCommand::Write(transfer, _)
        | IoCommand::Compare(transfer)
        | IoCommand::ZoneAppend(transfer) => Ok(Need::FromHost {
            len: block_bytes(queue, command, &transfer)?,
            exactly: true,
        }),
        IoCommand::DatasetManagement { ranges, .. } => {
            from_host((ranges * range::DatasetRange::LEN) as u64)
        }
        IoCommand::Copy { ranges, format, .. } => {
            let entry = format.entry_len().ok_or(Status::InvalidField)?;
            if ranges > COPY_RANGES_MAX {
                return Err(Status::SizeLimitExceeded);
            }
            from_host((ranges * entry) as u64)
        }
        IoCommand::InDeviceDefragment { moves } => {
            if moves > DEFRAGMENT_MOVES_MAX {
                return Err(Status::SizeLimitExceeded);
            }
            from_host(moves * DefragmentMove::LEN as u64)
        }
        IoCommand::ZoneReceive { len, .. } => {
            if len > MAX_TRANSFER as u64 {
                return Err(Status::InvalidField);
            }
            Ok(Need::ToHost {
                len,
                exactly: false,
            })
        }
        IoCommand::Flush
        | IoCommand::Verify(_)
        | IoCommand::WriteZeroes { .. }
        | IoCommand::ZoneSend { .. }
        | IoCommand::Fabrics(_) => Ok(Need::Nothing),
        IoCommand::Unknown(_) => Err(Status::InvalidOpcode),
    }
}

/// Bytes of the blocks that a command transfers.
fn block_bytes(queue: &Queue, command: &Submission, transfer: &Transfer) -> Result<u64, Status> {
    let (_, namespace) = namespace(queue, command)?;
    let len = u64::from(transfer.blocks.count) * namespace.block_bytes;
    if len > MAX_TRANSFER as u64 {
        return Err(Status::InvalidField);
    }
    Ok(len)
}

fn namespace<'a>(queue: &'a Queue, command: &Submission) -> Result<(usize, &'a Namespace), Status> {
    queue
        .subsystem
        .namespace(command.nsid.get())
        .ok_or(Status::InvalidNamespace)
}

/// A namespace and bytes of it.
#[derive(Clone, Copy, Debug)]
struct Place {
    namespace: usize,
    offset: u64,
    len: u64,
}

/// Where blocks are in a namespace.
fn place(index: usize, namespace: &Namespace, blocks: BlockRange) -> Result<Place, Status> {
    let size = namespace.size_bytes / namespace.block_bytes;
    if blocks.end().is_none_or(|end| end > size) {
        return Err(Status::LbaOutOfRange);
    }
    Ok(Place {
        namespace: index,
        offset: blocks.start * namespace.block_bytes,
        len: u64::from(blocks.count) * namespace.block_bytes,
    })
}

/// Carry out a command whose data is there.
pub(super) fn execute(queue: &Arc<Queue>, command: &Submission, data: &[u8]) {
    if let Err(status) = start(queue, command, data) {
        queue.fail(command, status);
    }
}

/// Start a command. Unless this fails, it ends when the device says so.
fn start(queue: &Arc<Queue>, command: &Submission, data: &[u8]) -> Result<(), Status> {
    let parsed = IoCommand::parse(command);
    if let IoCommand::Fabrics(fabrics) = parsed {
        return Err(match fabrics {
            FabricsCommand::Connect { .. } => Status::SequenceError,
            _ => Status::InvalidOpcode,
        });
    }
    if parsed == IoCommand::Flush {
        return flush(queue, command);
    }
    let (index, namespace) = namespace(queue, command)?;
    let is_zoned = namespace.kind == NamespaceKind::Zoned;
    let of = |transfer: &Transfer| place(index, namespace, transfer.blocks);
    match parsed {
        IoCommand::Read(transfer) => read(queue, command, of(&transfer)?),
        IoCommand::Write(transfer, hint) => {
            let placement = placement(queue, namespace, hint);
            write(
                queue,
                command,
                of(&transfer)?,
                transfer.fua,
                placement,
                data,
            );
        }
        IoCommand::Compare(transfer) => compare(queue, command, of(&transfer)?, data)?,
        IoCommand::Verify(transfer) => verify(queue, command, of(&transfer)?)?,
        IoCommand::WriteZeroes { transfer, .. } => {
            let place = of(&transfer)?;
            let request = Request::WriteZeroes {
                offset: place.offset,
                len: place.len,
                fua: durable(queue, transfer.fua),
            };
            submit(queue, command, index, &request, Status::WriteFault, |_| 0);
        }
        IoCommand::DatasetManagement { ranges, deallocate } => {
            dataset_management(queue, command, (index, namespace), ranges, deallocate, data)?;
        }
        IoCommand::Copy {
            destination,
            ranges,
            format,
            fua,
            ..
        } => {
            let sources = copy::sources(queue, command, data, ranges, format)?;
            let fua = durable(queue, fua);
            copy::copy(
                queue,
                command,
                (index, namespace),
                &sources,
                destination,
                fua,
            )?;
        }
        IoCommand::InDeviceDefragment { moves } => {
            copy::defragment(queue, command, (index, namespace), moves, data)?;
        }
        IoCommand::ZoneSend { .. } | IoCommand::ZoneReceive { .. } | IoCommand::ZoneAppend(_)
            if !is_zoned =>
        {
            return Err(Status::InvalidOpcode);
        }
        IoCommand::ZoneSend { zone, all, action } => {
            zones::send(queue, command, (index, namespace), zone, all, action)?;
        }
        IoCommand::ZoneReceive {
            from,
            len,
            kind,
            filter,
            partial,
        } => {
            let report = zones::Report {
                from,
                len,
                kind,
                filter,
                partial,
            };
            let bytes = report.build(queue, (index, namespace))?;
            queue.sender.reply(Reply::Data(command.cid.get(), bytes));
        }
        IoCommand::ZoneAppend(transfer) => {
            zones::append(queue, command, (index, namespace), &transfer, data)?;
        }
        IoCommand::Flush | IoCommand::Fabrics(_) | IoCommand::Unknown(_) => {
            return Err(Status::InvalidOpcode);
        }
    }
    Ok(())
}

/// Have the device do something; the command ends with `result` of it. `media` is the status for
/// when it fails below.
fn submit(
    queue: &Arc<Queue>,
    command: &Submission,
    namespace: usize,
    request: &Request<'_>,
    media: Status,
    result: impl FnOnce(Success) -> u64 + Send + 'static,
) {
    let for_end = Arc::clone(queue);
    let command = *command;
    let device = &queue.subsystem.device;
    device.submit(namespace, request, move |outcome| match outcome {
        Ok(success) => for_end.sender.success(command.cid.get(), result(success)),
        Err(failure) => failed(&for_end, &command, &failure, media),
    });
}

/// The device could not do it. Whom a power cut has hit is not answered at all.
fn failed(queue: &Queue, command: &Submission, failure: &Failure, media: Status) {
    if *failure == Failure::PowerLost {
        queue.sender.kill();
    } else {
        queue.fail(command, queue.subsystem.status_of(failure, media));
    }
}

/// Whether a write has to be durable when it is done: because the command or the host says so.
fn durable(queue: &Queue, fua: bool) -> bool {
    fua || !queue
        .controller
        .settings
        .write_cache
        .load(Ordering::Relaxed)
}

fn placement(queue: &Queue, namespace: &Namespace, hint: WriteHint) -> Placement {
    if !queue.controller.settings.hints() {
        return Placement::RoundRobin;
    }
    match hint {
        WriteHint::None => Placement::RoundRobin,
        WriteHint::Overwrite => Placement::Overwrite,
        // A block that there is not is like one that is not mapped: the normal rule.
        WriteHint::After { predecessor } => predecessor
            .checked_mul(namespace.block_bytes)
            .filter(|&predecessor| predecessor < namespace.size_bytes)
            .map_or(Placement::RoundRobin, |predecessor| Placement::After {
                predecessor,
            }),
    }
}

fn flush(queue: &Arc<Queue>, command: &Submission) -> Result<(), Status> {
    if command.nsid.get() != ALL_NAMESPACES {
        let (index, _) = namespace(queue, command)?;
        submit(
            queue,
            command,
            index,
            &Request::Flush,
            Status::WriteFault,
            |_| 0,
        );
        return Ok(());
    }
    let count = queue.subsystem.device.namespaces().len();
    let joint = Joint::new(queue, command, count, 0);
    for index in 0..count {
        joint.submit(index, &Request::Flush);
    }
    Ok(())
}

fn read(queue: &Arc<Queue>, command: &Submission, place: Place) {
    let for_end = Arc::clone(queue);
    let command = *command;
    let request = Request::Read {
        offset: place.offset,
        len: place.len,
    };
    let device = &queue.subsystem.device;
    device.submit(place.namespace, &request, move |outcome| match outcome {
        Ok(_) => {
            for_end.subsystem.counters.read(place.len);
            for_end.sender.reply(Reply::Read {
                cid: command.cid.get(),
                namespace: place.namespace,
                offset: place.offset,
                len: place.len as u32,
            });
        }
        Err(failure) => failed(&for_end, &command, &failure, Status::UnrecoveredRead),
    });
}

fn write(
    queue: &Arc<Queue>,
    command: &Submission,
    place: Place,
    fua: bool,
    placement: Placement,
    data: &[u8],
) {
    let request = Request::Write {
        offset: place.offset,
        data,
        fua: durable(queue, fua),
        placement,
    };
    queue.subsystem.counters.written(place.len);
    submit(
        queue,
        command,
        place.namespace,
        &request,
        Status::WriteFault,
        |_| 0,
    );
}

/// Compare (NVM §3.2.1): a read whose data stays here.
fn compare(
    queue: &Arc<Queue>,
    command: &Submission,
    place: Place,
    data: &[u8],
) -> Result<(), Status> {
    let mut is_equal = true;
    read_through(queue, place, |at, bytes| {
        is_equal &= data.get(at..at + bytes.len()) == Some(bytes);
    })?;
    let for_end = Arc::clone(queue);
    let command = *command;
    let request = Request::Read {
        offset: place.offset,
        len: place.len,
    };
    let device = &queue.subsystem.device;
    device.submit(place.namespace, &request, move |outcome| match outcome {
        Ok(_) if is_equal => for_end.sender.success(command.cid.get(), 0),
        Ok(_) => for_end.fail(&command, Status::CompareFailure),
        Err(failure) => failed(&for_end, &command, &failure, Status::UnrecoveredRead),
    });
    Ok(())
}

fn verify(queue: &Arc<Queue>, command: &Submission, place: Place) -> Result<(), Status> {
    read_through(queue, place, |_, _| {})?;
    let request = Request::Read {
        offset: place.offset,
        len: place.len,
    };
    submit(
        queue,
        command,
        place.namespace,
        &request,
        Status::UnrecoveredRead,
        |_| 0,
    );
    Ok(())
}

/// Show what is at a place, piece by piece, with where in it each piece is.
fn read_through(
    queue: &Queue,
    place: Place,
    mut show: impl FnMut(usize, &[u8]),
) -> Result<(), Status> {
    const PIECE: u64 = 64 << 10;
    let mut buffer = vec![0; place.len.min(PIECE) as usize];
    let mut at = 0;
    while at < place.len {
        let piece = &mut buffer[..(place.len - at).min(PIECE) as usize];
        queue
            .subsystem
            .device
            .read_into(place.namespace, place.offset + at, piece)
            .map_err(|failure| queue.subsystem.status_of(&failure, Status::UnrecoveredRead))?;
        show(at as usize, piece);
        at += piece.len() as u64;
    }
    Ok(())
}

fn dataset_management(
    queue: &Arc<Queue>,
    command: &Submission,
    (index, namespace): (usize, &Namespace),
    ranges: usize,
    deallocate: bool,
    data: &[u8],
) -> Result<(), Status> {
    let mut places = Vec::with_capacity(ranges);
    for blocks in range::ranges(data, ranges)?.filter(|blocks| blocks.count > 0) {
        places.push(place(index, namespace, blocks)?);
    }
    if !deallocate || places.is_empty() {
        queue.sender.success(command.cid.get(), 0);
        return Ok(());
    }
    let joint = Joint::new(queue, command, places.len(), 0);
    for Place { offset, len, .. } in places {
        joint.submit(index, &Request::Deallocate { offset, len });
    }
    Ok(())
}
