//! Copying in the device: Copy (NVM §3.2.2) and In_Device_Defragment (InDeF §III-C).

use flash_model::Move;
use nvme_wire::{
    Status,
    copy::{CopyFormat, CopySource},
    vendor::{self, DEFRAGMENT_BLOCK},
};

use super::{
    super::{
        limits::{COPY_BYTES_MAX, copy_range_blocks},
        queue::HostQueue,
    },
    work::{IoWork, span},
};
use crate::{device::NamespaceInfo, lock::lock};

/// The sources of a Copy within the namespace `nsid`, if the host may use their format.
pub(super) fn sources(
    queue: &HostQueue,
    nsid: u32,
    data: &[u8],
    ranges: usize,
    format: CopyFormat,
) -> Result<Vec<CopySource>, Status> {
    // Formats with namespaces of their own have to be enabled (NVM 1.1: CDFE).
    if format.names_namespace() {
        let enabled = lock(&queue.controller.settings.behavior).copy_formats.get();
        if enabled & 1 << format.raw() == 0 {
            return Err(Status::InvalidField);
        }
    }
    let sources: Vec<_> = format.sources(data, ranges)?.collect();
    // The device copies within a namespace.
    if sources
        .iter()
        .any(|source| source.nsid.is_some_and(|of| of != nsid))
    {
        return Err(Status::IncompatibleNamespace);
    }
    Ok(sources)
}

/// Copy `sources`, one after the other, to block `destination`.
pub(super) fn copy(
    namespace: &NamespaceInfo,
    sources: &[CopySource],
    destination: u64,
    fua: bool,
) -> Result<IoWork<'static>, Status> {
    let mut spans = Vec::with_capacity(sources.len());
    let mut blocks = 0;
    for source in sources {
        if source.blocks.count > u32::from(copy_range_blocks(namespace.block_bytes)) {
            return Err(Status::SizeLimitExceeded);
        }
        spans.push(span(namespace, source.blocks)?);
        blocks += u64::from(source.blocks.count);
    }
    if blocks * namespace.block_bytes > COPY_BYTES_MAX {
        return Err(Status::SizeLimitExceeded);
    }
    let size = namespace.size_bytes / namespace.block_bytes;
    if destination.checked_add(blocks).is_none_or(|end| end > size) {
        return Err(Status::LbaOutOfRange);
    }
    Ok(IoWork::Copy {
        sources: spans,
        destination: destination * namespace.block_bytes,
        fua,
    })
}

/// Carry out the moves in `data`. Runs of them that are contiguous on both sides are one move for
/// the device; it takes all of them or none, so that the result is their number or 0.
pub(super) fn defragment(
    namespace: &NamespaceInfo,
    count: u64,
    data: &[u8],
    fua: bool,
) -> Result<IoWork<'static>, Status> {
    let blocks = namespace.size_bytes / DEFRAGMENT_BLOCK;
    let mut runs: Vec<Move> = Vec::new();
    for wanted in vendor::moves(data, count)? {
        let (from, to) = (u64::from(wanted.from.get()), u64::from(wanted.to.get()));
        if from >= blocks || to >= blocks {
            return Err(Status::LbaOutOfRange);
        }
        let (from, to) = (from * DEFRAGMENT_BLOCK, to * DEFRAGMENT_BLOCK);
        match runs.last_mut() {
            // A move's destination is no source of the run that it is in: later moves see the data
            // there.
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
    Ok(IoWork::Migrate {
        moves: runs,
        count,
        fua,
    })
}
