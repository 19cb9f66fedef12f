//! The fields that every command and every completion has.

use zerocopy::little_endian::{U16, U32, U64};

use crate::status::Status;

/// NSID of all namespaces together.
pub const ALL_NAMESPACES: u32 = 0xFFFF_FFFF;

wire! {
    /// Submission queue entry (Base §3.3.3.1). Commands of Fabrics have another
    /// meaning for `nsid` and what follows it: see [`crate::fabrics`].
    pub struct Submission [64] {
        /// OPC: which command (see [`crate::opcode`]).
        pub opcode: u8,
        /// FUSE in bits 1:0, PSDT in bits 7:6.
        pub flags: u8,
        /// CID: identifies the command among those of its queue that are not done.
        pub cid: U16,
        /// NSID: the namespace.
        pub nsid: U32,
        /// Command Dword 2.
        pub cdw2: U32,
        /// Command Dword 3.
        pub cdw3: U32,
        /// MPTR: metadata pointer.
        pub mptr: U64,
        /// DPTR as a scatter gather list; Fabrics knows no other kind.
        pub sgl: Sgl,
        /// Command Dword 10.
        pub cdw10: U32,
        /// Command Dword 11.
        pub cdw11: U32,
        /// Command Dword 12.
        pub cdw12: U32,
        /// Command Dword 13.
        pub cdw13: U32,
        /// Command Dword 14.
        pub cdw14: U32,
        /// Command Dword 15.
        pub cdw15: U32,
    }
}

impl Submission {
    /// FUSE: part of a fused operation if not zero (bits 1:0 of CDW0's second byte).
    #[must_use]
    pub const fn fuse(&self) -> u8 {
        self.flags & 0b11
    }

    /// PSDT: 1 or 2 if an SGL is used, which Fabrics requires (bits 7:6).
    #[must_use]
    pub const fn psdt(&self) -> u8 {
        self.flags >> 6
    }

    /// Command dwords 10 and 11 as one number: the starting LBA of most commands.
    #[must_use]
    pub const fn cdw10_11(&self) -> u64 {
        self.cdw10.get() as u64 | (self.cdw11.get() as u64) << 32
    }

    /// Sets them.
    pub const fn set_cdw10_11(&mut self, value: u64) {
        self.cdw10 = U32::new(value as u32);
        self.cdw11 = U32::new((value >> 32) as u32);
    }

    /// Command dwords 2 and 3 as one number.
    #[must_use]
    pub const fn cdw2_3(&self) -> u64 {
        self.cdw2.get() as u64 | (self.cdw3.get() as u64) << 32
    }

    /// Sets them.
    pub const fn set_cdw2_3(&mut self, value: u64) {
        self.cdw2 = U32::new(value as u32);
        self.cdw3 = U32::new((value >> 32) as u32);
    }
}

wire! {
    /// Completion queue entry (Base §3.3.3.2).
    pub struct Completion [16] {
        /// Dwords 0 and 1: the command's result.
        pub result: U64,
        /// SQHD: the present position of the controller's head of the submission queue.
        pub sq_head: U16,
        /// SQID: reserved over Fabrics.
        pub sq_id: U16,
        /// CID of the command that is done.
        pub cid: U16,
        /// Phase tag in bit 0 (reserved over Fabrics), status field in bits 15:1.
        pub status: U16,
    }
}

impl Completion {
    /// The completion of command `cid`.
    #[must_use]
    pub const fn new(cid: u16, sq_head: u16, status: Status, result: u64) -> Self {
        Self {
            result: U64::new(result),
            sq_head: U16::new(sq_head),
            sq_id: U16::new(0),
            cid: U16::new(cid),
            status: U16::new(status.field()),
        }
    }

    /// The status with which the command ended.
    #[must_use]
    pub const fn status(&self) -> Status {
        Status::from_field(self.status.get())
    }

    /// DNR: sending the same command again would fail again.
    #[must_use]
    pub const fn do_not_retry(&self) -> bool {
        self.status.get() & 1 << 15 != 0
    }
}

wire! {
    /// Scatter gather list descriptor (Base §4.1.2).
    pub struct Sgl [16] {
        /// Address, or for data in the capsule its offset from there (TCP §3.3.2).
        pub address: U64,
        /// Bytes.
        pub length: U32,
        reserved: [u8; 3],
        /// Type in the high nibble, subtype in the low one.
        pub identifier: u8,
    }
}

/// The place of a command's data, as in an SGL descriptor over TCP (TCP §2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SglKind {
    /// SGL Data Block descriptor, subtype Offset: data follows in the same capsule.
    InCapsule,
    /// Transport SGL Data Block descriptor: data goes in PDUs of its own.
    Transport,
    /// Any other identifier.
    Unknown(u8),
}

impl Sgl {
    /// A transport descriptor of length 0 means no data at all.
    #[must_use]
    pub const fn new(kind: SglKind, length: u32) -> Self {
        let identifier = match kind {
            SglKind::InCapsule => 0x01,
            SglKind::Transport => 0x5A,
            SglKind::Unknown(raw) => raw,
        };
        Self {
            address: U64::new(0),
            length: U32::new(length),
            reserved: [0; 3],
            identifier,
        }
    }

    /// The kind of descriptor.
    #[must_use]
    pub const fn kind(&self) -> SglKind {
        match self.identifier {
            0x01 => SglKind::InCapsule,
            0x5A => SglKind::Transport,
            other => SglKind::Unknown(other),
        }
    }
}
