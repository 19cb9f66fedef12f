//! Commands of I/O queues, parsed (NVM §3.2, ZNS §3.4).

pub use crate::range::BlockRange;
use crate::{
    command::Submission,
    copy::CopyFormat,
    fdp::{DIRECTIVE_DATA_PLACEMENT, ReceiveOperation, SendOperation},
    opcode::IoOpcode,
    zone::{ReportFilter, ReportKind, ZoneAction},
};

/// A command of an I/O queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoCommand {
    /// Make the data written to the namespace durable; of all namespaces for FFFFFFFFh.
    Flush,
    /// Read.
    Read(Transfer),
    /// Write, with a placement identifier or the hints of FAST'24 unchecked; a feature decides
    /// whether they count.
    Write(Transfer, WriteHint),
    /// Compare the host's data with the stored data.
    Compare(Transfer),
    /// Read without sending.
    Verify(Transfer),
    /// Write zeroes.
    WriteZeroes {
        /// The blocks.
        transfer: Transfer,
        /// DEAC: deallocate if that reads as zeroes, too.
        deallocate: bool,
    },
    /// Dataset Management; its ranges are in its data (see [`crate::range`]).
    DatasetManagement {
        /// NR: ranges, 1 to 256 (zero-based on the wire).
        ranges: usize,
        /// AD: deallocate them. All else is advice.
        deallocate: bool,
    },
    /// Copy; its sources are in its data (see [`crate::copy`]).
    Copy {
        /// SDLBA: destination.
        destination: u64,
        /// NR: source ranges, 1 to 256 (zero-based on the wire).
        ranges: usize,
        /// DESFMT.
        format: CopyFormat,
        /// FUA: durable before it is done.
        fua: bool,
        /// DTYPE: the type of a directive for the destination; 0: none.
        directive: u8,
    },
    /// I/O Management Receive.
    ManagementReceive {
        /// MO.
        operation: ReceiveOperation,
        /// Bytes (NUMD, zero-based dwords on the wire): 4 to 16 GiB.
        len: u64,
    },
    /// I/O Management Send.
    ManagementSend {
        /// MO.
        operation: SendOperation,
        /// Placement identifiers in its data, 1 to 65536 (MOS, zero-based on the wire).
        placement_ids: usize,
    },
    /// Zone Management Send.
    ZoneSend {
        /// SLBA: start of the zone.
        zone: u64,
        /// Select All.
        all: bool,
        /// ZSA.
        action: ZoneAction,
        /// ZRWAA of Open Zone: with a zone random write area.
        random_write_area: bool,
    },
    /// Zone Management Receive.
    ZoneReceive {
        /// SLBA: in the first zone to report.
        from: u64,
        /// Bytes (NUMD, zero-based dwords on the wire): 4 to 16 GiB.
        len: u64,
        /// ZRA.
        kind: ReportKind,
        /// ZRASF.
        filter: ReportFilter,
        /// Partial Report: the number of zones is of those that are returned.
        partial: bool,
    },
    /// Zone Append; `blocks.start` is the start of the zone. Directives and hints are as those of a Write.
    ZoneAppend(Transfer, WriteHint),
    /// In_Device_Defragment; its moves are in its data (see [`crate::vendor`]).
    InDeviceDefragment {
        /// Moves: 1 to 2^32 (zero-based on the wire, in dword 10).
        moves: u64,
    },
    /// An opcode that has no meaning here.
    Unknown(u8),
}

/// The fields of all commands that move blocks. PRINFO is not among them: it has no meaning in a
/// namespace that is not formatted with protection information.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// The blocks.
    pub blocks: BlockRange,
    /// FUA: written data is durable before the command is done; read data comes from there.
    pub fua: bool,
}

/// The place of a Write's data: a directive in bits 23:20 of dword 12 (TP4146), or the hints in bits
/// 24 and 25 of it and a block in dwords 2 and 3 (FAST'24 §4.2). The directive wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteHint {
    /// None.
    None,
    /// Append: the data follows this block of its file. Wins if both bits are set.
    After {
        /// The file's block before it.
        predecessor: u64,
    },
    /// The data replaces the data that is there.
    Overwrite,
    /// Data Placement: DSPEC is a placement identifier.
    Placement {
        /// DSPEC in dword 13. With one reclaim group it is a placement handle.
        id: u16,
    },
    /// A directive of another type.
    Directive {
        /// DTYPE: 1 (Streams), or 3 to 15.
        kind: u8,
    },
}

/// Append in dword 12 of Write.
pub const HINT_APPEND: u32 = 1 << 24;
/// Overwrite in dword 12 of Write.
pub const HINT_OVERWRITE: u32 = 1 << 25;
/// The lowest bit of DTYPE in dword 12 of Write.
const DTYPE_SHIFT: u32 = 20;
/// FUA in dword 12.
pub const FUA: u32 = 1 << 30;
/// DEAC in dword 12 of Write Zeroes.
pub const DEALLOCATE: u32 = 1 << 25;
/// AD in dword 11 of Dataset Management.
pub const ATTRIBUTE_DEALLOCATE: u32 = 1 << 2;
/// Select All in dword 13 of Zone Management Send.
pub const SELECT_ALL: u32 = 1 << 8;
/// ZRWAA in dword 13 of Zone Management Send, where that opens a zone.
pub const ALLOCATE_RANDOM_WRITE_AREA: u32 = 1 << 9;
/// Partial Report in dword 13 of Zone Management Receive.
pub const PARTIAL_REPORT: u32 = 1 << 16;

impl IoCommand {
    /// Parses a submission on an I/O queue. Opcode 7Fh is [`crate::Command::parse`]'s, and unknown
    /// here.
    #[must_use]
    pub fn parse(command: &Submission) -> Self {
        let dword12 = command.cdw12.get();
        let dword13 = command.cdw13.get();
        let transfer = Transfer {
            blocks: BlockRange {
                start: command.cdw10_11(),
                count: (dword12 & 0xFFFF) + 1,
            },
            fua: dword12 & FUA != 0,
        };
        match IoOpcode::from_raw(command.opcode) {
            IoOpcode::Flush => Self::Flush,
            IoOpcode::Read => Self::Read(transfer),
            IoOpcode::Write => Self::Write(transfer, WriteHint::of(command)),
            IoOpcode::Compare => Self::Compare(transfer),
            IoOpcode::Verify => Self::Verify(transfer),
            IoOpcode::WriteZeroes => Self::WriteZeroes {
                transfer,
                deallocate: dword12 & DEALLOCATE != 0,
            },
            IoOpcode::DatasetManagement => Self::DatasetManagement {
                ranges: usize::from(command.cdw10.get() as u8) + 1,
                deallocate: command.cdw11.get() & ATTRIBUTE_DEALLOCATE != 0,
            },
            IoOpcode::Copy => Self::Copy {
                destination: command.cdw10_11(),
                ranges: usize::from(dword12 as u8) + 1,
                format: CopyFormat::from_raw((dword12 >> 8 & 0b1111) as u8),
                fua: transfer.fua,
                directive: directive(dword12),
            },
            IoOpcode::IoManagementReceive => Self::ManagementReceive {
                operation: ReceiveOperation::from_raw(command.cdw10.get() as u8),
                len: (u64::from(command.cdw11.get()) + 1) * 4,
            },
            IoOpcode::IoManagementSend => Self::ManagementSend {
                operation: SendOperation::from_raw(command.cdw10.get() as u8),
                placement_ids: (command.cdw10.get() >> 16) as usize + 1,
            },
            IoOpcode::ZoneManagementSend => {
                let action = ZoneAction::from_raw(dword13 as u8);
                Self::ZoneSend {
                    zone: command.cdw10_11(),
                    all: dword13 & SELECT_ALL != 0,
                    action,
                    random_write_area: action == ZoneAction::Open
                        && dword13 & ALLOCATE_RANDOM_WRITE_AREA != 0,
                }
            }
            IoOpcode::ZoneManagementReceive => Self::ZoneReceive {
                from: command.cdw10_11(),
                len: (u64::from(dword12) + 1) * 4,
                kind: ReportKind::from_raw(dword13 as u8),
                filter: ReportFilter::from_raw((dword13 >> 8) as u8),
                partial: dword13 & PARTIAL_REPORT != 0,
            },
            IoOpcode::ZoneAppend => Self::ZoneAppend(transfer, WriteHint::of(command)),
            IoOpcode::InDeviceDefragment => Self::InDeviceDefragment {
                moves: u64::from(command.cdw10.get()) + 1,
            },
            IoOpcode::Fabrics | IoOpcode::Unknown(_) => Self::Unknown(command.opcode),
        }
    }
}

/// DTYPE.
const fn directive(dword12: u32) -> u8 {
    (dword12 >> DTYPE_SHIFT & 0b1111) as u8
}

impl WriteHint {
    fn of(command: &Submission) -> Self {
        let dword12 = command.cdw12.get();
        match directive(dword12) {
            0 => {}
            DIRECTIVE_DATA_PLACEMENT => {
                let id = (command.cdw13.get() >> 16) as u16;
                return Self::Placement { id };
            }
            kind => return Self::Directive { kind },
        }
        if dword12 & HINT_APPEND != 0 {
            Self::After {
                predecessor: command.cdw2_3(),
            }
        } else if dword12 & HINT_OVERWRITE != 0 {
            Self::Overwrite
        } else {
            Self::None
        }
    }

    /// Put the hint or directive into a Write.
    pub fn put(self, command: &mut Submission) {
        let bits = match self {
            Self::None => 0,
            Self::After { predecessor } => {
                command.set_cdw2_3(predecessor);
                HINT_APPEND
            }
            Self::Overwrite => HINT_OVERWRITE,
            Self::Placement { id } => {
                let dword13 = command.cdw13.get() & 0xFFFF;
                command.cdw13.set(dword13 | u32::from(id) << 16);
                u32::from(DIRECTIVE_DATA_PLACEMENT) << DTYPE_SHIFT
            }
            Self::Directive { kind } => u32::from(kind & 0b1111) << DTYPE_SHIFT,
        };
        command.cdw12.set(command.cdw12.get() | bits);
    }
}
