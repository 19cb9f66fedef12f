//! Log pages (Base §5.16).

pub use linux_abi::nvme::smart::{SMART_DEGRADED, Smart};
use linux_abi::nvme::{geometry::GEOMETRY_PAGE, smart::SMART_PAGE};
use zerocopy::little_endian::{U16, U32, U64};

codes! {
    /// LID: which log page (Base §5.16.1).
    pub enum LogPage: u8 {
        /// Supported Log Pages (Base §5.16.1.1).
        Supported = 0x00,
        /// Error Information (Base §5.16.1.2).
        Error = 0x01,
        /// SMART / Health Information (Base §5.16.1.3).
        Smart = SMART_PAGE,
        /// Firmware Slot Information (Base §5.16.1.4).
        Firmware = 0x03,
        /// Changed Namespace List (Base §5.16.1.5).
        ChangedNamespaces = 0x04,
        /// Commands Supported and Effects (Base §5.16.1.6).
        Effects = 0x05,
        /// Feature Identifiers Supported and Effects (Base §5.16.1.18).
        FeatureEffects = 0x12,
        /// FDP Configurations (TP4146; see [`crate::fdp`]), of an endurance group, as the next three.
        FdpConfigurations = 0x20,
        /// Reclaim Unit Handle Usage (TP4146).
        ReclaimUnitHandleUsage = 0x21,
        /// FDP Statistics (TP4146).
        FdpStatistics = 0x22,
        /// FDP Events (TP4146).
        FdpEvents = 0x23,
        /// Discovery (Base §5.16.1.23).
        Discovery = 0x70,
        /// Changed Zone List (ZNS §4.1.4.2).
        ChangedZones = 0xBF,
        /// Geometry and statistics, a vendor's (see [`crate::vendor`]).
        Geometry = GEOMETRY_PAGE,
    }
}

/// Supported Log Pages: LSUPP of a page.
pub const LOG_SUPPORTED: u32 = 1;

wire! {
    /// Error Information log entry (Base §5.16.1.2).
    pub struct ErrorEntry [64] {
        /// Error Count: number of this error, from 1; 0 in an entry that is not used.
        pub count: U64,
        /// SQID.
        pub queue: U16,
        /// CID.
        pub cid: U16,
        /// Status Field, as in the completion.
        pub status: U16,
        /// Parameter Error Location; FFFFh if the error is not in a parameter.
        pub location: U16,
        /// LBA.
        pub lba: U64,
        /// NSID.
        pub nsid: U32,
        /// Vendor Specific Information Available.
        pub vendor_log: u8,
        /// TRTYPE.
        pub transport: u8,
        reserved30: [u8; 2],
        /// Command Specific Information.
        pub command_specific: U64,
        /// Transport Type Specific Information.
        pub transport_specific: U16,
        reserved42: [u8; 22],
    }
}

wire! {
    /// Firmware Slot Information log page (Base §5.16.1.4).
    pub struct Firmware [512] {
        /// AFI: the slot in use in bits 2:0.
        pub active: u8,
        reserved1: [u8; 7],
        /// FRS1 to FRS7: revisions, ASCII.
        pub revisions: [[u8; 8]; 7],
        reserved64: [u8; 448],
    }
}

wire! {
    /// Commands Supported and Effects log page (Base §5.16.1.6).
    pub struct Effects [4096] {
        /// ACS: one for each opcode of admin commands (`EFFECT_*`).
        pub admin: [U32; 256],
        /// IOCS: one for each opcode of I/O commands.
        pub io: [U32; 256],
        reserved: [u8; 2048],
    }
}

/// CSUPP: the command is supported.
pub const EFFECT_SUPPORTED: u32 = 1 << 0;
/// LBCC: it may change the content of logical blocks.
pub const EFFECT_CONTENT: u32 = 1 << 1;

wire! {
    /// Changed Zone List log page (ZNS §4.1.4.2).
    pub struct ChangedZones [4096] {
        /// NRZID: zones in the list; FFFFh if there are too many.
        pub count: U16,
        reserved: [u8; 6],
        /// ZSLBA of each.
        pub zones: [U64; 511],
    }
}

/// Entries of the Changed Namespace List: identifiers in ascending order, or FFFFFFFFh alone if
/// there are more.
pub const CHANGED_NAMESPACES_MAX: usize = 1024;
