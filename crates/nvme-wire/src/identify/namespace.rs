//! Identify Namespace: what command sets add to [`Namespace`](super::Namespace).

use zerocopy::little_endian::{U16, U32, U64};

use super::{CommandSet, IDENTIFY_LEN};

wire! {
    /// Identify Namespace of the NVM command set by CNS 05h (NVM §4.1.5.3): protection information
    /// only, which is not supported here, so that all of it is 0.
    pub struct NvmNamespace [4096] {
        /// LBSTM.
        pub storage_tag_mask: U64,
        /// PIC.
        pub protection: u8,
        reserved: [u8; 4087],
    }
}

wire! {
    /// LBA Format Extension (ZNS §4.1.5.1).
    pub struct ZonedLbaFormat [16] {
        /// ZSZE: zone size in blocks.
        pub zone_size: U64,
        /// ZDES: size of zone descriptor extensions, in 64 bytes.
        pub descriptor_extension: u8,
        reserved: [u8; 7],
    }
}

wire! {
    /// Identify Namespace of the Zoned Namespace command set (ZNS §4.1.5.1).
    pub struct ZonedNamespace [4096] {
        /// ZOC: zone capacity may vary (0), zones may be finished by the controller (1).
        pub characteristics: U16,
        /// OZCS: reads may cross zone boundaries (0), zone random write area (1).
        pub optional_commands: U16,
        /// MAR: active zones at most, zero-based; FFFFFFFFh is no limit.
        pub max_active: U32,
        /// MOR: open zones at most, zero-based; FFFFFFFFh is no limit.
        pub max_open: U32,
        /// RRL: seconds.
        pub reset_recommended: U32,
        /// FRL: seconds.
        pub finish_recommended: U32,
        reserved20: [u8; 2796],
        /// LBAFE0 to LBAFE63.
        pub lba_formats: [ZonedLbaFormat; 64],
        vendor: [u8; 256],
    }
}

/// OZCS: reads may cross zone boundaries.
pub const OZCS_READ_ACROSS_ZONES: u16 = 1 << 0;

wire! {
    /// Identify Namespace independent of the I/O command set (Base §5.17.2.8).
    pub struct IndependentNamespace [4096] {
        /// NSFEAT.
        pub features: u8,
        /// NMIC.
        pub multipath: u8,
        /// RESCAP.
        pub reservations: u8,
        /// FPI.
        pub format_progress: u8,
        /// ANAGRPID.
        pub ana_group: U32,
        /// NSATTR: write protected (bit 0).
        pub attributes: u8,
        reserved9: u8,
        /// NVMSETID.
        pub nvm_set: U16,
        /// ENDGID.
        pub endurance_group: U16,
        /// NSTAT: ready (bit 0).
        pub status: u8,
        reserved15: [u8; 4081],
    }
}

/// Namespace Identification Descriptor list (Base §5.17.2.3): NGUID, UUID and I/O command set.
#[must_use]
pub fn descriptors(nguid: &[u8; 16], uuid: &[u8; 16], set: CommandSet) -> [u8; IDENTIFY_LEN] {
    const NGUID: u8 = 2;
    const UUID: u8 = 3;
    const COMMAND_SET: u8 = 4;
    let mut list = [0; IDENTIFY_LEN];
    let mut at = 0;
    let mut put = |kind: u8, value: &[u8]| {
        list[at] = kind;
        list[at + 1] = value.len() as u8;
        list[at + 4..at + 4 + value.len()].copy_from_slice(value);
        at += 4 + value.len();
    };
    put(NGUID, nguid);
    put(UUID, uuid);
    put(COMMAND_SET, &[set.raw()]);
    list
}
