//! Flexible Data Placement (TP4146, part of Base 2.1): log pages, features, and the status of
//! reclaim unit handles. Layouts as in libnvme 1.16, `types.h`.

use zerocopy::little_endian::{U16, U32, U64};

use crate::feature::Timestamp;

/// DTYPE in dword 12 of Write: its directive is Data Placement, and DSPEC a placement identifier.
pub const DIRECTIVE_DATA_PLACEMENT: u8 = 2;

codes! {
    /// MO of I/O Management Receive.
    pub enum ReceiveOperation: u8 {
        /// Reclaim Unit Handle Status.
        ReclaimUnitHandleStatus = 1,
    }
}

codes! {
    /// MO of I/O Management Send.
    pub enum SendOperation: u8 {
        /// Reclaim Unit Handle Update; its data is a list of placement identifiers.
        ReclaimUnitHandleUpdate = 1,
    }
}

codes! {
    /// FDP Event Type: those below 80h are host events, the others controller events.
    pub enum EventKind: u8 {
        /// Reclaim Unit Not Fully Written To Capacity.
        NotFullyWritten = 0x00,
        /// Reclaim Unit Time Limit Exceeded.
        TimeLimitExceeded = 0x01,
        /// Controller Level Reset Modified Reclaim Unit Handles.
        ModifiedByReset = 0x02,
        /// Invalid Placement Identifier.
        InvalidPlacementId = 0x03,
        /// Media Reallocated.
        MediaReallocated = 0x80,
        /// Implicitly Modified Reclaim Unit Handle.
        ImplicitlyModified = 0x81,
    }
}

wire! {
    /// The beginning of the FDP Configurations log page (LID 20h); descriptors follow.
    pub struct ConfigurationsHeader [16] {
        /// NUMFDPC: configurations, zero-based.
        pub configurations: U16,
        /// VERS.
        pub version: u8,
        reserved3: u8,
        /// SZE: bytes of the page.
        pub size: U32,
        reserved8: [u8; 8],
    }
}

wire! {
    /// FDP Configuration Descriptor; descriptors of its reclaim unit handles follow.
    pub struct Configuration [64] {
        /// DSZE: bytes of it, its handles included.
        pub size: U16,
        /// FDPA: valid (7), volatile write cache (4), format of reclaim group identifiers (3:0).
        pub attributes: u8,
        /// VSS: vendor specific bytes, in 4 bytes.
        pub vendor_size: u8,
        /// NRG: reclaim groups.
        pub groups: U32,
        /// NRUH: reclaim unit handles.
        pub handles: U16,
        /// MAXPIDS: most placement identifiers of a namespace, zero-based.
        pub max_placement_ids: U16,
        /// NNS: namespaces that are supported.
        pub namespaces: U32,
        /// RUNS: bytes of a reclaim unit.
        pub unit_size: U64,
        /// ERUTL: seconds; 0 is not reported.
        pub time_limit: U32,
        reserved28: [u8; 36],
    }
}

/// FDPA: the configuration is valid.
pub const CONFIGURATION_VALID: u8 = 1 << 7;
/// FDPA: there is a volatile write cache.
pub const CONFIGURATION_WRITE_CACHE: u8 = 1 << 4;

wire! {
    /// Reclaim Unit Handle Descriptor.
    pub struct HandleDescriptor [4] {
        /// RUHT: see `HANDLE_*`.
        pub kind: u8,
        reserved1: [u8; 3],
    }
}

/// RUHT: what garbage collection moves may lie beside data of other handles.
pub const HANDLE_INITIALLY_ISOLATED: u8 = 1;

wire! {
    /// The beginning of the Reclaim Unit Handle Usage log page (LID 21h).
    pub struct UsageHeader [8] {
        /// NRUH: descriptors that follow.
        pub handles: U16,
        reserved2: [u8; 6],
    }
}

wire! {
    /// Reclaim Unit Handle Usage Descriptor.
    pub struct Usage [8] {
        /// RUHA: specified by the host (0), by the controller (1).
        pub attributes: u8,
        reserved1: [u8; 7],
    }
}

/// RUHA: a namespace has the handle, and the host may name it.
pub const USED_BY_HOST: u8 = 1 << 0;

wire! {
    /// FDP Statistics log page (LID 22h). Counters of 16 bytes are little-endian.
    pub struct Statistics [64] {
        /// HBMW: bytes that the host has written.
        pub host_written: [u8; 16],
        /// MBMW: bytes that were written to the media.
        pub media_written: [u8; 16],
        /// MBE: bytes of the media that were erased.
        pub media_erased: [u8; 16],
        reserved48: [u8; 16],
    }
}

wire! {
    /// The beginning of the FDP Events log page (LID 23h).
    pub struct EventsHeader [64] {
        /// FDPEN: events that follow, the oldest first.
        pub events: U32,
        reserved4: [u8; 60],
    }
}

/// Events in the log page at most.
pub const EVENTS_MAX: usize = 63;
/// LSP of Get Log Page for FDP Events: host events, or else controller events.
pub const LSP_HOST_EVENTS: u8 = 1 << 0;

wire! {
    /// FDP Event.
    pub struct FdpEvent [64] {
        /// FDPET.
        pub kind: u8,
        /// FDPEF: the placement identifier (0), the namespace (1), the location (2) is valid.
        pub flags: u8,
        /// PID.
        pub placement_id: U16,
        /// ETIME.
        pub time: Timestamp,
        /// NSID.
        pub nsid: U32,
        /// Event Type Specific.
        pub specific: [u8; 16],
        /// RGID.
        pub group: U16,
        /// RUHID.
        pub handle: u8,
        reserved35: [u8; 5],
        vendor: [u8; 24],
    }
}

/// FDPEF: PID is valid.
pub const EVENT_HAS_PLACEMENT_ID: u8 = 1 << 0;
/// FDPEF: NSID is valid.
pub const EVENT_HAS_NAMESPACE: u8 = 1 << 1;
/// FDPEF: RGID and RUHID are valid.
pub const EVENT_HAS_LOCATION: u8 = 1 << 2;

wire! {
    /// The beginning of the data of Reclaim Unit Handle Status.
    pub struct StatusHeader [16] {
        reserved0: [u8; 14],
        /// NRUHSD: descriptors that follow.
        pub handles: U16,
    }
}

wire! {
    /// Reclaim Unit Handle Status Descriptor.
    pub struct HandleStatus [32] {
        /// PID: placement identifier.
        pub placement_id: U16,
        /// RUHID: reclaim unit handle.
        pub handle: U16,
        /// EARUTR: seconds; 0 is not reported.
        pub time_remaining: U32,
        /// RUAMW: blocks that its reclaim unit still takes.
        pub available_blocks: U64,
        reserved16: [u8; 16],
    }
}

wire! {
    /// Supported FDP Event Descriptor, of the feature FDP Events.
    pub struct SupportedEvent [2] {
        /// FDPET.
        pub kind: u8,
        /// FDPETA: enabled (0).
        pub attributes: u8,
    }
}

/// Flexible Data Placement (FID 1Dh): FDPE in its value and in dword 12 of Set Features.
pub const FEATURE_ENABLED: u32 = 1 << 0;

/// FDP Events (FID 1Eh): PHNDL of dword 11.
#[must_use]
pub const fn placement_handle(dword11: u32) -> u16 {
    dword11 as u16
}

/// FDP Events: NOET of dword 11, the number of event types.
#[must_use]
pub const fn event_types(dword11: u32) -> usize {
    (dword11 >> 16 & 0xFF) as usize
}
