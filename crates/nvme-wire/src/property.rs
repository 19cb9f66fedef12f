//! Properties of a controller (Base §3.1.3): registers on other transports.

codes! {
    /// OFST of a property.
    pub enum Property: u32 {
        /// CAP: Controller Capabilities, 8 bytes (Base §3.1.3.1).
        Capabilities = 0x00,
        /// VS: Version, 4 bytes (Base §3.1.3.2).
        Version = 0x08,
        /// CC: Controller Configuration, 4 bytes (Base §3.1.3.5).
        Configuration = 0x14,
        /// CSTS: Controller Status, 4 bytes (Base §3.1.3.6).
        Status = 0x1C,
        /// NSSR: NVM Subsystem Reset, 4 bytes (Base §3.1.3.7).
        SubsystemReset = 0x20,
        /// CRTO: Controller Ready Timeouts, 4 bytes (Base §3.1.3.21): in units of 500 ms, bits 15:0 until the media
        /// is ready, too (CRWMT), bits 31:16 without that (CRIMT).
        ReadyTimeouts = 0x68,
    }
}

impl Property {
    /// Bytes; `None` for an unknown property.
    #[must_use]
    pub const fn size(self) -> Option<u8> {
        match self {
            Self::Capabilities => Some(8),
            Self::Version
            | Self::Configuration
            | Self::Status
            | Self::SubsystemReset
            | Self::ReadyTimeouts => Some(4),
            Self::Unknown(_) => None,
        }
    }
}

/// VS of NVM Express 2.0.
pub const VERSION_2_0: u32 = 0x0002_0000;

/// The fields of [`Property::Capabilities`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// MQES: entries of an I/O queue at most, zero-based on the wire, a count here (2 to 65536).
    pub max_queue_entries: u32,
    /// TO: how long enabling may take, in units of 500 ms.
    pub timeout: u8,
    /// CSS: bit 6 of it, one or more I/O command sets (else the NVM command set alone).
    pub command_sets: bool,
    /// CSS: bit 7 of it, no I/O command set at all, as of a discovery controller.
    pub admin_only: bool,
}

impl Capabilities {
    /// CAP: contiguous queues are required (CQR), memory pages are 4 KiB (MPSMIN, MPSMAX),
    /// doorbells do not exist (DSTRD 0), a controller is ready when its media is (CRMS: CRWMS alone, which version 2.0
    /// requires).
    #[must_use]
    pub const fn raw(self) -> u64 {
        let entries = if self.max_queue_entries > 65536 {
            65535
        } else {
            self.max_queue_entries.saturating_sub(1)
        };
        let css = if self.admin_only {
            1 << 7
        } else if self.command_sets {
            1 << 6 | 1
        } else {
            1
        };
        entries as u64 | 1 << 16 | (self.timeout as u64) << 24 | css << 37 | 1 << 59
    }
}

/// CC, field by field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Configuration(pub u32);

impl Configuration {
    /// EN: the controller shall process commands.
    #[must_use]
    pub const fn enabled(self) -> bool {
        self.0 & 1 != 0
    }

    /// CSS: 0 for the NVM command set, 6 for all that are supported, 7 for admin commands only.
    #[must_use]
    pub const fn command_sets(self) -> u8 {
        (self.0 >> 4 & 0b111) as u8
    }

    /// MPS: memory page size, as a power of two over 4 KiB.
    #[must_use]
    pub const fn page_size(self) -> u8 {
        (self.0 >> 7 & 0b1111) as u8
    }

    /// AMS: arbitration mechanism; 0 is round robin.
    #[must_use]
    pub const fn arbitration(self) -> u8 {
        (self.0 >> 11 & 0b111) as u8
    }

    /// SHN: 0 none, 1 normal shutdown, 2 abrupt shutdown.
    #[must_use]
    pub const fn shutdown(self) -> u8 {
        (self.0 >> 14 & 0b11) as u8
    }

    /// IOSQES: size of a submission queue entry as a power of two; 6.
    #[must_use]
    pub const fn submission_size(self) -> u8 {
        (self.0 >> 16 & 0b1111) as u8
    }

    /// IOCQES: size of a completion queue entry as a power of two; 4.
    #[must_use]
    pub const fn completion_size(self) -> u8 {
        (self.0 >> 20 & 0b1111) as u8
    }
}

/// CC, CRIME: ready independent of media.
pub const CC_READY_INDEPENDENT_OF_MEDIA: u32 = 1 << 24;

/// CSTS: the controller is ready.
pub const CSTS_READY: u32 = 1 << 0;
/// CSTS: a fatal error; only a reset helps.
pub const CSTS_FATAL: u32 = 1 << 1;
/// CSTS, SHST: shutdown is occurring.
pub const CSTS_SHUTDOWN_OCCURRING: u32 = 0b01 << 2;
/// CSTS, SHST: shutdown is complete.
pub const CSTS_SHUTDOWN_COMPLETE: u32 = 0b10 << 2;
