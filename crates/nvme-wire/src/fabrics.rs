//! Commands of Fabrics (Base §6).

use zerocopy::{
    IntoBytes, TryFromBytes,
    little_endian::{U16, U32, U64},
};

use crate::{
    command::{Sgl, Submission},
    opcode::FabricsType,
};

/// CNTLID in Connect: the controller is made for this host (Base §6.3).
pub const CNTLID_DYNAMIC: u16 = 0xFFFF;

wire! {
    /// Connect (Base §6.3).
    pub struct ConnectCommand [64] {
        /// OPC: 7Fh.
        pub opcode: u8,
        /// PSDT in bits 7:6.
        pub flags: u8,
        /// CID.
        pub cid: U16,
        /// FCTYPE: 01h.
        pub kind: u8,
        reserved5: [u8; 19],
        /// SGL1: the data ([`ConnectData`]).
        pub sgl: Sgl,
        /// RECFMT: 0.
        pub record_format: U16,
        /// QID: 0 for the admin queue.
        pub queue: U16,
        /// SQSIZE: entries, zero-based.
        pub queue_size: U16,
        /// CATTR.
        pub attributes: u8,
        reserved47: u8,
        /// KATO: milliseconds; 0 disables keep alive.
        pub keep_alive_ms: U32,
        reserved52: [u8; 12],
    }
}

/// CATTR: no flow control of the submission queue.
pub const CATTR_NO_FLOW_CONTROL: u8 = 1 << 2;

wire! {
    /// The data of Connect (Base §6.3).
    pub struct ConnectData [1024] {
        /// HOSTID.
        pub host_id: [u8; 16],
        /// CNTLID.
        pub controller: U16,
        reserved18: [u8; 238],
        /// SUBNQN.
        pub subsystem: [u8; 256],
        /// HOSTNQN.
        pub host: [u8; 256],
        reserved768: [u8; 256],
    }
}

wire! {
    /// Property Get and Property Set (Base §6.5, §6.6).
    pub struct PropertyCommand [64] {
        /// OPC: 7Fh.
        pub opcode: u8,
        /// Reserved but for PSDT.
        pub flags: u8,
        /// CID.
        pub cid: U16,
        /// FCTYPE: 04h or 00h.
        pub kind: u8,
        reserved5: [u8; 35],
        /// ATTRIB: size in bits 2:0; 0 for 4 bytes, 1 for 8 bytes.
        pub attributes: u8,
        reserved41: [u8; 3],
        /// OFST: which property (see [`crate::property`]).
        pub offset: U32,
        /// VALUE, for Property Set.
        pub value: U64,
        reserved56: [u8; 8],
    }
}

/// A command of Fabrics, parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FabricsCommand {
    /// Make this connection a queue of a controller. Its data comes in the capsule.
    Connect {
        /// RECFMT.
        record_format: u16,
        /// QID.
        queue: u16,
        /// Entries of the submission queue (SQSIZE + 1), 1 to 65536.
        entries: u32,
        /// CATTR.
        attributes: u8,
        /// KATO.
        keep_alive_ms: u32,
    },
    /// Read a property.
    PropertyGet {
        /// OFST.
        offset: u32,
        /// 4 or 8 bytes; `None` if ATTRIB names another size.
        size: Option<u8>,
    },
    /// Write a property.
    PropertySet {
        /// OFST.
        offset: u32,
        /// 4 or 8 bytes; `None` if ATTRIB names another size.
        size: Option<u8>,
        /// VALUE.
        value: u64,
    },
    /// End this queue.
    Disconnect {
        /// RECFMT.
        record_format: u16,
    },
    /// Authentication Send or Receive, or an unknown type.
    Other(FabricsType),
}

impl FabricsCommand {
    /// The command in a submission with opcode 7Fh.
    #[must_use]
    pub fn parse(command: &Submission) -> Self {
        let bytes = command.as_bytes();
        // The type is where other commands have the lowest byte of NSID.
        match FabricsType::from_raw(command.nsid.get() as u8) {
            FabricsType::Connect => match ConnectCommand::try_read_from_bytes(bytes) {
                Ok(connect) => Self::Connect {
                    record_format: connect.record_format.get(),
                    queue: connect.queue.get(),
                    entries: u32::from(connect.queue_size.get()) + 1,
                    attributes: connect.attributes,
                    keep_alive_ms: connect.keep_alive_ms.get(),
                },
                Err(_) => Self::Other(FabricsType::Connect),
            },
            kind @ (FabricsType::PropertyGet | FabricsType::PropertySet) => {
                let Ok(property) = PropertyCommand::try_read_from_bytes(bytes) else {
                    return Self::Other(kind);
                };
                let offset = property.offset.get();
                let size = match property.attributes & 0b111 {
                    0 => Some(4),
                    1 => Some(8),
                    _ => None,
                };
                if kind == FabricsType::PropertyGet {
                    Self::PropertyGet { offset, size }
                } else {
                    Self::PropertySet {
                        offset,
                        size,
                        value: property.value.get(),
                    }
                }
            }
            FabricsType::Disconnect => Self::Disconnect {
                record_format: command.cdw10.get() as u16,
            },
            other => Self::Other(other),
        }
    }
}

/// The result of a Connect that succeeded: CNTLID in bits 15:0, no authentication asked for.
#[must_use]
pub const fn connected(controller: u16) -> u64 {
    controller as u64
}

/// The place of an invalid parameter of Connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectPart {
    /// In the submission queue entry.
    Command,
    /// In its data.
    Data,
}

/// The result of a Connect that failed with Connect Invalid Parameters: IPO and IATTR (Base §6.3).
/// `offset` in bytes.
#[must_use]
pub const fn invalid_parameter(part: ConnectPart, offset: u16) -> u64 {
    let attribute = match part {
        ConnectPart::Command => 0,
        ConnectPart::Data => 1 << 16,
    };
    offset as u64 | attribute
}
