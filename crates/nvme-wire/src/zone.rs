//! Zones: actions, states and reports (ZNS §3.4).

use zerocopy::little_endian::U64;

codes! {
    /// ZSA of Zone Management Send (ZNS §3.4.3).
    pub enum ZoneAction: u8 {
        /// Close Zone.
        Close = 0x01,
        /// Finish Zone.
        Finish = 0x02,
        /// Open Zone.
        Open = 0x03,
        /// Reset Zone.
        Reset = 0x04,
        /// Offline Zone.
        Offline = 0x05,
        /// Set Zone Descriptor Extension.
        SetDescriptorExtension = 0x10,
        /// Commit of the Zone Random Write Area.
        CommitRandomWriteArea = 0x11,
    }
}

codes! {
    /// ZRA of Zone Management Receive (ZNS §3.4.2).
    pub enum ReportKind: u8 {
        /// Report Zones.
        Report = 0x00,
        /// Extended Report Zones: with zone descriptor extensions.
        Extended = 0x01,
    }
}

codes! {
    /// ZRASF of Report Zones: which zones to list (ZNS §3.4.2.2.1).
    pub enum ReportFilter: u8 {
        /// All.
        All = 0x00,
        /// Those in state ZSE: Empty.
        Empty = 0x01,
        /// ZSIO: Implicitly Opened.
        ImplicitlyOpened = 0x02,
        /// ZSEO: Explicitly Opened.
        ExplicitlyOpened = 0x03,
        /// ZSC: Closed.
        Closed = 0x04,
        /// ZSF: Full.
        Full = 0x05,
        /// ZSRO: Read Only.
        ReadOnly = 0x06,
        /// ZSO: Offline.
        Offline = 0x07,
    }
}

codes! {
    /// ZS: the state of a zone (ZNS §2.1.1.2), as in the high nibble of its byte.
    pub enum ZoneState: u8 {
        /// ZSE: Empty.
        Empty = 0x1,
        /// ZSIO: Implicitly Opened.
        ImplicitlyOpened = 0x2,
        /// ZSEO: Explicitly Opened.
        ExplicitlyOpened = 0x3,
        /// ZSC: Closed.
        Closed = 0x4,
        /// ZSRO: Read Only.
        ReadOnly = 0xD,
        /// ZSF: Full.
        Full = 0xE,
        /// ZSO: Offline.
        Offline = 0xF,
    }
}

impl ReportFilter {
    /// Whether a zone in `state` is to be listed.
    #[must_use]
    pub fn takes(self, state: ZoneState) -> bool {
        let wanted = match self {
            Self::All => return true,
            Self::Empty => ZoneState::Empty,
            Self::ImplicitlyOpened => ZoneState::ImplicitlyOpened,
            Self::ExplicitlyOpened => ZoneState::ExplicitlyOpened,
            Self::Closed => ZoneState::Closed,
            Self::Full => ZoneState::Full,
            Self::ReadOnly => ZoneState::ReadOnly,
            Self::Offline => ZoneState::Offline,
            Self::Unknown(_) => return false,
        };
        wanted == state
    }
}

wire! {
    /// The header before the descriptors of a report (ZNS §3.4.2.2.1).
    pub struct ReportHeader [64] {
        /// Number of Zones.
        pub zones: U64,
        reserved: [u8; 56],
    }
}

wire! {
    /// Zone Descriptor (ZNS §3.4.2.2.3).
    pub struct ZoneDescriptor [64] {
        /// ZT in bits 3:0.
        pub kind: u8,
        /// ZS in bits 7:4.
        pub state: u8,
        /// ZA: finished by the controller (0), finish recommended (1), reset recommended (2).
        pub attributes: u8,
        /// ZAI.
        pub information: u8,
        reserved4: [u8; 4],
        /// ZCAP: blocks that can be written.
        pub capacity: U64,
        /// ZSLBA: the zone's first block.
        pub start: U64,
        /// WP: the block that is written next.
        pub write_pointer: U64,
        reserved32: [u8; 32],
    }
}

/// ZT: Sequential Write Required, the only type there is.
pub const SEQUENTIAL_WRITE_REQUIRED: u8 = 2;

impl ZoneDescriptor {
    /// A zone that is written sequentially; places in blocks.
    #[must_use]
    pub fn new(state: ZoneState, start: u64, capacity: u64, write_pointer: u64) -> Self {
        let mut this = Self::zeroed();
        this.kind = SEQUENTIAL_WRITE_REQUIRED;
        this.state = state.raw() << 4;
        this.capacity = U64::new(capacity);
        this.start = U64::new(start);
        this.write_pointer = U64::new(write_pointer);
        this
    }

    /// ZS.
    #[must_use]
    pub const fn zone_state(&self) -> ZoneState {
        ZoneState::from_raw(self.state >> 4)
    }
}
