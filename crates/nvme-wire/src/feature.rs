//! Features (Base §5.27.1).

use zerocopy::little_endian::U16;

codes! {
    /// FID: which feature.
    pub enum Feature: u8 {
        /// Arbitration (Base §5.27.1.1).
        Arbitration = 0x01,
        /// Power Management (Base §5.27.1.2).
        PowerManagement = 0x02,
        /// Temperature Threshold (Base §5.27.1.3).
        TemperatureThreshold = 0x04,
        /// Error Recovery (NVM §4.1.3.2).
        ErrorRecovery = 0x05,
        /// Volatile Write Cache (Base §5.27.1.4).
        VolatileWriteCache = 0x06,
        /// Number of Queues (Base §5.27.1.5).
        NumberOfQueues = 0x07,
        /// Write Atomicity Normal (NVM §4.1.3.3).
        WriteAtomicity = 0x0A,
        /// Asynchronous Event Configuration (Base §5.27.1.8).
        AsyncEventConfiguration = 0x0B,
        /// Timestamp (Base §5.27.1.11).
        Timestamp = 0x0E,
        /// Keep Alive Timer (Base §5.27.1.12).
        KeepAliveTimer = 0x0F,
        /// Host Behavior Support (Base §5.27.1.18).
        HostBehavior = 0x16,
        /// I/O Command Set Profile (Base §5.27.1.21).
        CommandSetProfile = 0x19,
        /// Flexible Data Placement (TP4146), of an endurance group.
        FlexibleDataPlacement = 0x1D,
        /// FDP Events (TP4146), of a placement handle of a namespace.
        FdpEvents = 0x1E,
        /// Host Identifier (Base §5.27.1.25).
        HostIdentifier = 0x81,
        /// Die hints in Write (FAST'24), a vendor's: bit 0 enables them for all namespaces of the
        /// controller.
        DieHints = 0xC0,
    }
}

codes! {
    /// SEL of Get Features: which value (Base §5.15).
    pub enum Select: u8 {
        /// The one in use.
        Current = 0,
        /// The default.
        Default = 1,
        /// The one that outlives a reset.
        Saved = 2,
        /// The capabilities of the feature: saveable (0), per namespace (1), changeable (2).
        Capabilities = 3,
    }
}

/// The result for [`Select::Capabilities`] of a feature that can be changed but not saved.
pub const CAPABILITY_CHANGEABLE: u32 = 1 << 2;

/// Number of Queues: I/O submission and completion queues, as counts (at least 1 each; zero-based
/// on the wire).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queues {
    /// NSQR, NSQA.
    pub submission: u32,
    /// NCQR, NCQA.
    pub completion: u32,
}

impl Queues {
    /// From dword 11, or the result. A zero-based FFFFh is reserved and is 65536 here.
    #[must_use]
    pub const fn from_raw(raw: u32) -> Self {
        Self {
            submission: (raw & 0xFFFF) + 1,
            completion: (raw >> 16) + 1,
        }
    }

    /// As dword 11, or the result.
    #[must_use]
    pub const fn raw(self) -> u32 {
        (self.submission.saturating_sub(1) & 0xFFFF)
            | (self.completion.saturating_sub(1) & 0xFFFF) << 16
    }
}

wire! {
    /// The data of Host Behavior Support (Base §5.27.1.18).
    pub struct HostBehavior [512] {
        /// ACRE: the host understands Command Interrupted and delays of retries.
        pub retries: u8,
        /// ETDAS.
        pub telemetry: u8,
        /// LBAFEE: the host understands extended LBA formats.
        pub lba_formats: u8,
        /// HDISNS.
        pub dispersed: u8,
        /// CDFE: formats of Copy descriptors beyond 1h that are enabled, a bit each (NVM 1.1).
        pub copy_formats: U16,
        reserved: [u8; 506],
    }
}

wire! {
    /// The data of Timestamp (Base §5.27.1.11).
    pub struct Timestamp [8] {
        /// Milliseconds since 1970, 48 bits little-endian.
        pub milliseconds: [u8; 6],
        /// Synch (0), Timestamp Origin (3:1): 0 cleared by a reset, 1 set by the host.
        pub attributes: u8,
        reserved: u8,
    }
}

impl Timestamp {
    /// A time in milliseconds since 1970, and whether a host has set it.
    #[must_use]
    pub fn new(milliseconds: u64, set_by_host: bool) -> Self {
        let mut this = Self::zeroed();
        this.milliseconds
            .copy_from_slice(&milliseconds.to_le_bytes()[..6]);
        this.attributes = u8::from(set_by_host) << 1;
        this
    }

    /// Milliseconds since 1970.
    #[must_use]
    pub fn get(&self) -> u64 {
        let mut bytes = [0; 8];
        bytes[..6].copy_from_slice(&self.milliseconds);
        u64::from_le_bytes(bytes)
    }
}
