//! Identify Namespace: identity and capabilities of a namespace.

use zerocopy::little_endian::{U16, U32, U64};

use super::{CommandSet, IDENTIFY_LEN};

wire! {
    /// LBA Format (NVM §4.1.5.1).
    pub struct LbaFormat [4] {
        /// MS: bytes of metadata for each block.
        pub metadata: U16,
        /// LBADS: bytes of a block as a power of two.
        pub block_shift: u8,
        /// RP: relative performance, 0 is best.
        pub performance: u8,
    }
}

wire! {
    /// Identify Namespace of the NVM command set (NVM §4.1.5.1); zoned namespaces have it, too.
    pub struct Namespace [4096] {
        /// NSZE: blocks.
        pub size: U64,
        /// NCAP: blocks that can be in use at a time.
        pub capacity: U64,
        /// NUSE: blocks that are in use.
        pub in_use: U64,
        /// NSFEAT: the fields from NPWG to NOWS are valid (bit 4).
        pub features: u8,
        /// NLBAF: formats, zero-based.
        pub formats: u8,
        /// FLBAS: the format in use.
        pub format: u8,
        /// MC.
        pub metadata: u8,
        /// DPC.
        pub protection_capabilities: u8,
        /// DPS.
        pub protection: u8,
        /// NMIC: shared by several controllers (bit 0).
        pub multipath: u8,
        /// RESCAP.
        pub reservations: u8,
        /// FPI.
        pub format_progress: u8,
        /// DLFEAT: the value that deallocated blocks read as, 001b is zeroes (2:0); Write Zeroes
        /// may deallocate (3).
        pub deallocation: u8,
        /// NAWUN: blocks written atomically, zero-based.
        pub atomic_write: U16,
        /// NAWUPF: the same across a loss of power.
        pub atomic_write_power_fail: U16,
        /// NACWU.
        pub atomic_compare: U16,
        /// NABSN.
        pub atomic_boundary: U16,
        /// NABO.
        pub atomic_boundary_offset: U16,
        /// NABSPF.
        pub atomic_boundary_power_fail: U16,
        /// NOIOB: boundary that I/O should not cross, in blocks.
        pub optimal_boundary: U16,
        /// NVMCAP: bytes.
        pub nvm_capacity: [u8; 16],
        /// NPWG: preferred write granularity, blocks, zero-based.
        pub write_granularity: U16,
        /// NPWA: preferred write alignment, blocks, zero-based.
        pub write_alignment: U16,
        /// NPDG: preferred deallocate granularity, blocks, zero-based.
        pub deallocate_granularity: U16,
        /// NPDA: preferred deallocate alignment, blocks, zero-based.
        pub deallocate_alignment: U16,
        /// NOWS: optimal write size, blocks, zero-based.
        pub optimal_write: U16,
        /// MSSRL: most blocks of a source range of Copy.
        pub copy_range_blocks: U16,
        /// MCL: most blocks of a Copy.
        pub copy_blocks: U32,
        /// MSRC: most source ranges of a Copy, zero-based.
        pub copy_ranges: u8,
        reserved81: [u8; 11],
        /// ANAGRPID.
        pub ana_group: U32,
        reserved96: [u8; 3],
        /// NSATTR: write protected (bit 0).
        pub attributes: u8,
        /// NVMSETID.
        pub nvm_set: U16,
        /// ENDGID.
        pub endurance_group: U16,
        /// NGUID.
        pub nguid: [u8; 16],
        /// EUI64.
        pub eui64: [u8; 8],
        /// LBAF0 to LBAF63.
        pub lba_formats: [LbaFormat; 64],
        vendor: [u8; 3712],
    }
}

impl Namespace {
    /// The format in use: FLBAS has its number in bits 3:0, with bits 6:5 above them.
    #[must_use]
    pub fn format_in_use(&self) -> LbaFormat {
        let number = self.format & 0x0F | self.format >> 1 & 0x30;
        self.lba_formats[usize::from(number)]
    }
}

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
/// DLFEAT: deallocated blocks read as zeroes, and Write Zeroes may deallocate.
pub const DLFEAT_ZEROES: u8 = 0b001 | 1 << 3;
/// NSFEAT: NPWG, NPWA, NPDG, NPDA and NOWS are valid.
pub const NSFEAT_OPTIMAL: u8 = 1 << 4;

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
