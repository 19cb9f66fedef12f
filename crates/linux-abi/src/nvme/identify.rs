//! Identify: identity and capabilities of a controller and of a namespace (NVMe Base 2.0 §5.17, NVM Command
//! Set 1.0 §4.1.5).

use std::mem::offset_of;

use zerocopy::little_endian::{U16, U32, U64};

/// Every Identify structure has 4096 bytes.
pub const IDENTIFY_LEN: usize = 4096;
/// CNS of [`Namespace`].
pub const CNS_NAMESPACE: u8 = 0x00;
/// CNS of [`Controller`].
pub const CNS_CONTROLLER: u8 = 0x01;

wire! {
    /// Identify Controller data structure (Base §5.17.2.1). A field that is 0 means "not supported"
    /// or "not reported", unless its comment states another meaning.
    pub struct Controller [4096] {
        /// VID: PCI vendor.
        pub pci_vendor: U16,
        /// SSVID: PCI subsystem vendor.
        pub pci_subsystem_vendor: U16,
        /// SN: serial number, ASCII.
        pub serial: [u8; 20],
        /// MN: model, ASCII.
        pub model: [u8; 40],
        /// FR: firmware revision, ASCII.
        pub firmware: [u8; 8],
        /// RAB: recommended arbitration burst.
        pub arbitration_burst: u8,
        /// IEEE: OUI.
        pub ieee_oui: [u8; 3],
        /// CMIC: several ports (bit 0), several controllers (bit 1).
        pub multipath: u8,
        /// MDTS: most data of one command, as a power of two over the smallest page; 0 is no limit.
        pub max_transfer: u8,
        /// CNTLID.
        pub controller_id: U16,
        /// VER.
        pub version: U32,
        /// RTD3R: microseconds.
        pub rtd3_resume: U32,
        /// RTD3E: microseconds.
        pub rtd3_entry: U32,
        /// OAES: the asynchronous events that can occur (`OAES_*`).
        pub async_events: U32,
        /// CTRATT: attributes.
        pub attributes: U32,
        /// RRLS.
        pub read_recovery: U16,
        reserved102: [u8; 9],
        /// CNTRLTYPE: 1 I/O controller, 2 discovery controller.
        pub controller_type: u8,
        /// FGUID.
        pub fru: [u8; 16],
        /// CRDT1 to CRDT3: delays for retries, in 100 ms.
        pub retry_delays: [U16; 3],
        reserved134: [u8; 119],
        /// NVMSR.
        pub subsystem_report: u8,
        /// VWCI.
        pub vpd_write_cycles: u8,
        /// MEC.
        pub management_endpoint: u8,
        /// OACS: optional admin commands.
        pub admin_commands: U16,
        /// ACL: Abort commands at a time, zero-based.
        pub abort_limit: u8,
        /// AERL: Asynchronous Event Requests at a time, zero-based.
        pub event_limit: u8,
        /// FRMW: firmware slots in bits 3:1, of which the first is read-only (bit 0).
        pub firmware_updates: u8,
        /// LPA: SMART per namespace (0), effects log (1), extended data (2), and so on.
        pub log_attributes: u8,
        /// ELPE: entries of the error log, zero-based.
        pub error_entries: u8,
        /// NPSS: power states, zero-based.
        pub power_states: u8,
        /// AVSCC.
        pub admin_vendor: u8,
        /// APSTA.
        pub autonomous_power: u8,
        /// WCTEMP: kelvin.
        pub warning_temperature: U16,
        /// CCTEMP: kelvin.
        pub critical_temperature: U16,
        /// MTFA: 100 ms.
        pub firmware_activation: U16,
        /// HMPRE: 4 KiB.
        pub host_memory_preferred: U32,
        /// HMMIN: 4 KiB.
        pub host_memory_minimum: U32,
        /// TNVMCAP: bytes of all NVM.
        pub total_capacity: [u8; 16],
        /// UNVMCAP: bytes that no namespace has.
        pub unallocated_capacity: [u8; 16],
        reserved312: [u8; 8],
        /// KAS: granularity of keep alive, 100 ms; 0 is no keep alive.
        pub keep_alive_granularity: U16,
        reserved322: [u8; 18],
        /// ENDGIDMAX.
        pub max_endurance_group: U16,
        reserved342: [u8; 170],
        /// SQES: size of submission queue entries as powers of two, required and largest.
        pub submission_size: u8,
        /// CQES: the same of completion queue entries.
        pub completion_size: u8,
        /// MAXCMD: commands that a queue takes at a time.
        pub max_commands: U16,
        /// NN: largest namespace identifier.
        pub namespaces: U32,
        /// ONCS: optional commands (`ONCS_*`).
        pub nvm_commands: U16,
        /// FUSES.
        pub fused: U16,
        /// FNA.
        pub format: u8,
        /// VWC: a volatile write cache is present (0), behavior of Flush of all namespaces (2:1).
        pub write_cache: u8,
        /// AWUN: blocks that are written atomically, zero-based.
        pub atomic_write: U16,
        /// AWUPF: the same across a loss of power.
        pub atomic_write_power_fail: U16,
        /// ICSVSCC: the vendor commands have the standard format (bit 0).
        pub io_vendor: u8,
        /// NWPC.
        pub write_protection: u8,
        /// ACWU.
        pub atomic_compare: U16,
        /// OCFS: formats of Copy descriptors, a bit each.
        pub copy_formats: U16,
        /// SGLS.
        pub sgl: U32,
        /// MNAN: most namespaces; 0 is NN.
        pub max_namespaces: U32,
        reserved544: [u8; 224],
        /// SUBNQN: name of the subsystem, UTF-8, ended by zeroes.
        pub subsystem: [u8; 256],
        reserved1024: [u8; 768],
        /// IOCCSZ: most bytes of a command capsule, in 16 bytes (at least 4).
        pub command_capsule: U32,
        /// IORCSZ: most bytes of a response capsule, in 16 bytes (at least 1).
        pub response_capsule: U32,
        /// ICDOFF: offset of data in the capsule from the end of the command, in 16 bytes.
        pub capsule_data_offset: U16,
        /// FCATT: bit 0 is a static controller.
        pub fabrics_attributes: u8,
        /// MSDBD: most SGL descriptors in a capsule.
        pub max_sgl: u8,
        /// OFCS: Disconnect is supported (bit 0).
        pub fabrics_commands: U16,
        reserved1806: [u8; 242],
        /// PSD0 to PSD31: power states.
        pub power: [u8; 1024],
        vendor: [u8; 1024],
    }
}

/// OAES and Asynchronous Event Configuration: a namespace has changed.
pub const OAES_NAMESPACE: u32 = 1 << 8;
/// The same: a zone has changed by itself.
pub const OAES_ZONE: u32 = 1 << 27;
/// CTRATT: 128-bit host identifiers.
pub const CTRATT_HOST_ID_128: u32 = 1 << 0;
/// CTRATT: endurance groups.
pub const CTRATT_ENDURANCE_GROUPS: u32 = 1 << 4;
/// CTRATT: Flexible Data Placement (TP4146).
pub const CTRATT_FDP: u32 = 1 << 19;
/// CTRATT: traffic on a connection counts as keep alive.
pub const CTRATT_TRAFFIC_KEEP_ALIVE: u32 = 1 << 6;
/// ONCS: Compare.
pub const ONCS_COMPARE: u16 = 1 << 0;
/// ONCS: Dataset Management.
pub const ONCS_DATASET_MANAGEMENT: u16 = 1 << 2;
/// ONCS: Write Zeroes.
pub const ONCS_WRITE_ZEROES: u16 = 1 << 3;
/// ONCS: Timestamp.
pub const ONCS_TIMESTAMP: u16 = 1 << 6;
/// ONCS: Verify.
pub const ONCS_VERIFY: u16 = 1 << 7;
/// ONCS: Copy.
pub const ONCS_COPY: u16 = 1 << 8;
/// LPA: the commands supported and effects log page is there.
pub const LPA_EFFECTS: u8 = 1 << 1;
/// LPA: Get Log Page takes offsets and long lengths.
pub const LPA_EXTENDED: u8 = 1 << 2;

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

/// DLFEAT: deallocated blocks read as zeroes, and Write Zeroes may deallocate.
pub const DLFEAT_ZEROES: u8 = 0b001 | 1 << 3;
/// NSFEAT: NPWG, NPWA, NPDG, NPDA and NOWS are valid.
pub const NSFEAT_OPTIMAL: u8 = 1 << 4;

const _: () = {
    assert!(offset_of!(Controller, max_transfer) == 77);
    assert!(offset_of!(Controller, async_events) == 92);
    assert!(offset_of!(Controller, controller_type) == 111);
    assert!(offset_of!(Controller, admin_commands) == 256);
    assert!(offset_of!(Controller, log_attributes) == 261);
    assert!(offset_of!(Controller, total_capacity) == 280);
    assert!(offset_of!(Controller, keep_alive_granularity) == 320);
    assert!(offset_of!(Controller, max_endurance_group) == 340);
    assert!(offset_of!(Controller, submission_size) == 512);
    assert!(offset_of!(Controller, max_commands) == 514);
    assert!(offset_of!(Controller, nvm_commands) == 520);
    assert!(offset_of!(Controller, write_cache) == 525);
    assert!(offset_of!(Controller, copy_formats) == 534);
    assert!(offset_of!(Controller, sgl) == 536);
    assert!(offset_of!(Controller, subsystem) == 768);
    assert!(offset_of!(Controller, command_capsule) == 1792);
    assert!(offset_of!(Controller, fabrics_commands) == 1804);
    assert!(offset_of!(Controller, power) == 2048);
    assert!(offset_of!(Namespace, deallocation) == 33);
    assert!(offset_of!(Namespace, nvm_capacity) == 48);
    assert!(offset_of!(Namespace, copy_range_blocks) == 74);
    assert!(offset_of!(Namespace, copy_blocks) == 76);
    assert!(offset_of!(Namespace, copy_ranges) == 80);
    assert!(offset_of!(Namespace, nguid) == 104);
    assert!(offset_of!(Namespace, lba_formats) == 128);
    assert!(offset_of!(Namespace, endurance_group) == 102);
};
