//! Constructors of commands. The queue fills in SGL and CID.

use nvme_wire::{
    Submission,
    copy::{CopyFormat, CopySource},
    fabrics::PropertyCommand,
    fdp::{ReceiveOperation, SendOperation},
    io::{self, BlockRange, WriteHint},
    opcode::{AdminOpcode, IoOpcode},
    range::DatasetRange,
    vendor::DefragmentMove,
    zone::{ReportFilter, ZoneAction},
};
use zerocopy::{
    FromBytes, IntoBytes,
    little_endian::{U32, U64},
};

fn new(opcode: u8, nsid: u32) -> Submission {
    let mut command = Submission::zeroed();
    command.opcode = opcode;
    command.nsid = U32::new(nsid);
    command
}

fn on_blocks(opcode: IoOpcode, nsid: u32, start: u64, count: u32) -> Submission {
    let mut command = new(opcode.raw(), nsid);
    command.set_cdw10_11(start);
    command.cdw12 = U32::new(count.wrapping_sub(1) & 0xFFFF);
    command
}

/// Read `count` blocks (1 to 65536) from `start`.
#[must_use]
pub fn read(nsid: u32, start: u64, count: u32) -> Submission {
    on_blocks(IoOpcode::Read, nsid, start, count)
}

/// Write `count` blocks from `start`.
#[must_use]
pub fn write(nsid: u32, start: u64, count: u32) -> Submission {
    on_blocks(IoOpcode::Write, nsid, start, count)
}

/// Write with a hint.
#[must_use]
pub fn write_hinted(nsid: u32, start: u64, count: u32, hint: WriteHint) -> Submission {
    let mut command = write(nsid, start, count);
    hint.put(&mut command);
    command
}

/// Reclaim Unit Handle Status of a namespace, in `len` bytes.
#[must_use]
pub fn handle_status(nsid: u32, len: usize) -> Submission {
    let mut command = new(IoOpcode::IoManagementReceive.raw(), nsid);
    let operation = ReceiveOperation::ReclaimUnitHandleStatus;
    command.cdw10 = U32::new(operation.raw().into());
    command.cdw11 = U32::new((len / 4).saturating_sub(1) as u32);
    command
}

/// Reclaim Unit Handle Update; returns the command and its data.
#[must_use]
pub fn handle_update(nsid: u32, placement_ids: &[u16]) -> (Submission, Vec<u8>) {
    let mut command = new(IoOpcode::IoManagementSend.raw(), nsid);
    let operation = u32::from(SendOperation::ReclaimUnitHandleUpdate.raw());
    let count = placement_ids.len().saturating_sub(1) as u32;
    command.cdw10 = U32::new(operation | count << 16);
    let data = placement_ids.iter().flat_map(|id| id.to_le_bytes());
    (command, data.collect())
}

/// The same command with FUA.
#[must_use]
pub fn with_fua(mut command: Submission) -> Submission {
    command.cdw12 = U32::new(command.cdw12.get() | io::FUA);
    command
}

/// Flush a namespace, or all of them (FFFFFFFFh).
#[must_use]
pub fn flush(nsid: u32) -> Submission {
    new(IoOpcode::Flush.raw(), nsid)
}

/// Compare blocks with the command's data.
#[must_use]
pub fn compare(nsid: u32, start: u64, count: u32) -> Submission {
    on_blocks(IoOpcode::Compare, nsid, start, count)
}

/// Verify blocks.
#[must_use]
pub fn verify(nsid: u32, start: u64, count: u32) -> Submission {
    on_blocks(IoOpcode::Verify, nsid, start, count)
}

/// Write Zeroes.
#[must_use]
pub fn write_zeroes(nsid: u32, start: u64, count: u32) -> Submission {
    on_blocks(IoOpcode::WriteZeroes, nsid, start, count)
}

/// Dataset Management, Deallocate; returns the command and its data.
#[must_use]
pub fn deallocate(nsid: u32, ranges: &[BlockRange]) -> (Submission, Vec<u8>) {
    let mut command = new(IoOpcode::DatasetManagement.raw(), nsid);
    command.cdw10 = U32::new(ranges.len().saturating_sub(1) as u32);
    command.cdw11 = U32::new(io::ATTRIBUTE_DEALLOCATE);
    let data = ranges
        .iter()
        .flat_map(|range| {
            let mut entry = DatasetRange::zeroed();
            entry.start = U64::new(range.start);
            entry.blocks = U32::new(range.count);
            entry.as_bytes().to_vec()
        })
        .collect();
    (command, data)
}

/// Copy; returns the command and its data.
#[must_use]
pub fn copy(
    nsid: u32,
    format: CopyFormat,
    sources: &[CopySource],
    destination: u64,
) -> (Submission, Vec<u8>) {
    let mut command = new(IoOpcode::Copy.raw(), nsid);
    command.set_cdw10_11(destination);
    let count = sources.len().saturating_sub(1) as u32;
    command.cdw12 = U32::new(count | u32::from(format.raw()) << 8);
    let mut data = Vec::new();
    for source in sources {
        format.put(source, &mut data);
    }
    (command, data)
}

/// In_Device_Defragment; returns the command and its data.
#[must_use]
pub fn defragment(nsid: u32, moves: &[DefragmentMove]) -> (Submission, Vec<u8>) {
    let mut command = new(IoOpcode::InDeviceDefragment.raw(), nsid);
    command.cdw10 = U32::new(moves.len().saturating_sub(1) as u32);
    (command, moves.as_bytes().to_vec())
}

/// Zone Management Send; for all zones if `zone` is `None`.
#[must_use]
pub fn zone_send(nsid: u32, zone: Option<u64>, action: ZoneAction) -> Submission {
    let mut command = new(IoOpcode::ZoneManagementSend.raw(), nsid);
    command.set_cdw10_11(zone.unwrap_or(0));
    let all = if zone.is_none() { io::SELECT_ALL } else { 0 };
    command.cdw13 = U32::new(u32::from(action.raw()) | all);
    command
}

/// Zone Management Receive of `len` bytes.
#[must_use]
pub fn zone_report(
    nsid: u32,
    from: u64,
    len: usize,
    filter: ReportFilter,
    partial: bool,
) -> Submission {
    let mut command = new(IoOpcode::ZoneManagementReceive.raw(), nsid);
    command.set_cdw10_11(from);
    command.cdw12 = U32::new((len / 4).saturating_sub(1) as u32);
    let partial = if partial { io::PARTIAL_REPORT } else { 0 };
    command.cdw13 = U32::new(u32::from(filter.raw()) << 8 | partial);
    command
}

/// Zone Append to the zone that starts at `zone`.
#[must_use]
pub fn zone_append(nsid: u32, zone: u64, count: u32) -> Submission {
    on_blocks(IoOpcode::ZoneAppend, nsid, zone, count)
}

/// Identify.
#[must_use]
pub fn identify(nsid: u32, cns: u8, set: u8) -> Submission {
    let mut command = new(AdminOpcode::Identify.raw(), nsid);
    command.cdw10 = U32::new(cns.into());
    command.cdw11 = U32::new(u32::from(set) << 24);
    command
}

/// Get Log Page of `len` bytes from `offset`.
#[must_use]
pub fn get_log(nsid: u32, page: u8, set: u8, offset: u64, len: usize) -> Submission {
    let mut command = new(AdminOpcode::GetLogPage.raw(), nsid);
    let dwords = (len / 4).saturating_sub(1) as u32;
    command.cdw10 = U32::new(u32::from(page) | (dwords & 0xFFFF) << 16);
    command.cdw11 = U32::new(dwords >> 16);
    command.cdw12 = U32::new(offset as u32);
    command.cdw13 = U32::new((offset >> 32) as u32);
    command.cdw14 = U32::new(u32::from(set) << 24);
    command
}

/// Get Log Page of an endurance group, with a specific parameter.
#[must_use]
pub fn get_group_log(group: u16, page: u8, specific: u8, len: usize) -> Submission {
    let mut command = get_log(0, page, 0, 0, len);
    command.cdw10 = U32::new(command.cdw10.get() | u32::from(specific) << 8);
    command.cdw11 = U32::new(command.cdw11.get() | u32::from(group) << 16);
    command
}

/// Get Features.
#[must_use]
pub fn get_features(feature: u8, select: u8, value: u32) -> Submission {
    let mut command = new(AdminOpcode::GetFeatures.raw(), 0);
    command.cdw10 = U32::new(u32::from(feature) | u32::from(select) << 8);
    command.cdw11 = U32::new(value);
    command
}

/// Set Features.
#[must_use]
pub fn set_features(feature: u8, value: u32) -> Submission {
    let mut command = new(AdminOpcode::SetFeatures.raw(), 0);
    command.cdw10 = U32::new(feature.into());
    command.cdw11 = U32::new(value);
    command
}

/// Abort a command of a queue.
#[must_use]
pub fn abort(queue: u16, cid: u16) -> Submission {
    let mut command = new(AdminOpcode::Abort.raw(), 0);
    command.cdw10 = U32::new(u32::from(queue) | u32::from(cid) << 16);
    command
}

/// Asynchronous Event Request.
#[must_use]
pub fn event_request() -> Submission {
    new(AdminOpcode::AsyncEventRequest.raw(), 0)
}

/// Keep Alive.
#[must_use]
pub fn keep_alive() -> Submission {
    new(AdminOpcode::KeepAlive.raw(), 0)
}

/// Property Get of 4 or 8 bytes.
#[must_use]
pub fn property_get(offset: u32, size: u8) -> Submission {
    property(0x04, offset, size, 0)
}

/// Property Set of 4 bytes.
#[must_use]
pub fn property_set(offset: u32, value: u32) -> Submission {
    property(0x00, offset, 4, value.into())
}

fn property(kind: u8, offset: u32, size: u8, value: u64) -> Submission {
    let mut command = PropertyCommand::zeroed();
    command.opcode = AdminOpcode::Fabrics.raw();
    command.kind = kind;
    command.attributes = u8::from(size == 8);
    command.offset = U32::new(offset);
    command.value = U64::new(value);
    Submission::read_from_bytes(command.as_bytes()).unwrap_or_else(|_| Submission::zeroed())
}

/// Disconnect.
#[must_use]
pub fn disconnect() -> Submission {
    new(AdminOpcode::Fabrics.raw(), 0x08)
}
