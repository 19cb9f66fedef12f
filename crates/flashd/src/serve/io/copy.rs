//! Copying in the device: Copy (NVM §3.2.2) and In_Device_Defragment (InDeF §III-C).

use std::sync::Arc;

use flash_model::{Move, Span};
use nvme_wire::{
    Status, Submission,
    copy::{CopyFormat, Source},
    vendor::{self, DEFRAGMENT_BLOCK},
};

use super::{
    super::{
        controller::Queue,
        subsystem::{COPY_BYTES_MAX, lock},
    },
    joint::Joint,
    place, submit,
};
use crate::device::{Namespace, Request};

/// The sources of a Copy, if the host may use their format.
pub(super) fn sources(
    queue: &Queue,
    command: &Submission,
    data: &[u8],
    ranges: usize,
    format: CopyFormat,
) -> Result<Vec<Source>, Status> {
    // Formats with namespaces of their own have to be enabled (NVM 1.1: CDFE).
    if format.names_namespace() {
        let enabled = lock(&queue.controller.settings.behavior).copy_formats.get();
        if enabled & 1 << format.raw() == 0 {
            return Err(Status::InvalidField);
        }
    }
    let sources: Vec<_> = format.sources(data, ranges)?.collect();
    let nsid = command.nsid.get();
    // The device copies within a namespace.
    if sources
        .iter()
        .any(|source| source.nsid.is_some_and(|of| of != nsid))
    {
        return Err(Status::IncompatibleNamespace);
    }
    Ok(sources)
}

/// Copy `sources`, one behind the other, to block `destination`.
pub(super) fn copy(
    queue: &Arc<Queue>,
    command: &Submission,
    (index, namespace): (usize, &Namespace),
    sources: &[Source],
    destination: u64,
    fua: bool,
) -> Result<(), Status> {
    let mut spans = Vec::with_capacity(sources.len());
    let mut blocks = 0;
    for source in sources {
        if source.blocks.count > u32::from(copy_range_blocks(namespace)) {
            return Err(Status::SizeLimitExceeded);
        }
        let from = place(index, namespace, source.blocks)?;
        blocks += u64::from(source.blocks.count);
        spans.push(Span {
            offset: from.offset,
            len: from.len,
        });
    }
    if blocks * namespace.block_bytes > COPY_BYTES_MAX {
        return Err(Status::SizeLimitExceeded);
    }
    let size = namespace.size_bytes / namespace.block_bytes;
    if destination.checked_add(blocks).is_none_or(|end| end > size) {
        return Err(Status::LbaOutOfRange);
    }
    let request = Request::Copy {
        sources: &spans,
        destination: destination * namespace.block_bytes,
    };
    let joint = Joint::new(queue, command, if fua { 2 } else { 1 }, 0);
    joint.submit(index, &request);
    if fua {
        joint.submit(index, &Request::Flush);
    }
    Ok(())
}

/// MSSRL: most blocks of a source range.
pub(in crate::serve) fn copy_range_blocks(namespace: &Namespace) -> u16 {
    (COPY_BYTES_MAX / namespace.block_bytes).min(u16::MAX.into()) as u16
}

/// Carry out the moves in `data`. Runs of them that are contiguous on both sides are one move for the
/// device; it takes all of them or none, so that the result is their number or 0.
pub(super) fn defragment(
    queue: &Arc<Queue>,
    command: &Submission,
    (index, namespace): (usize, &Namespace),
    count: u64,
    data: &[u8],
) -> Result<(), Status> {
    let blocks = namespace.size_bytes / DEFRAGMENT_BLOCK;
    let mut runs: Vec<Move> = Vec::new();
    for piece in vendor::moves(data, count)? {
        let (from, to) = (u64::from(piece.from.get()), u64::from(piece.to.get()));
        if from >= blocks || to >= blocks {
            return Err(Status::LbaOutOfRange);
        }
        let (from, to) = (from * DEFRAGMENT_BLOCK, to * DEFRAGMENT_BLOCK);
        match runs.last_mut() {
            // What a move writes is no source of the run that it is in: later moves see it.
            Some(run)
                if run.from + run.len == from
                    && run.to + run.len == to
                    && from.abs_diff(to) > run.len =>
            {
                run.len += DEFRAGMENT_BLOCK;
            }
            _ => runs.push(Move {
                from,
                to,
                len: DEFRAGMENT_BLOCK,
            }),
        }
    }
    let request = Request::Migrate { moves: &runs };
    submit(
        queue,
        command,
        index,
        &request,
        Status::WriteFault,
        move |_| count,
    );
    Ok(())
}
