//! Identify Controller: identity and capabilities of a controller.

use zerocopy::little_endian::{U16, U32, U64};

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
        /// OAES: the asynchronous events that can occur (see [`crate::event`]).
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

/// The SGL support of a controller on TCP, as SGLS reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SglSupport;

impl SglSupport {
    /// SGLS: supported without alignment (01b), an offset in the address of data in the capsule
    /// (bit 20), the transport's data block descriptor (bit 21).
    #[must_use]
    pub const fn raw() -> u32 {
        1 | 1 << 20 | 1 << 21
    }
}

/// The part that the NVM command set adds.
pub(super) mod nvm {
    use super::{U32, U64};

    wire! {
        /// Identify Controller of the NVM command set (NVM §4.1.5.4). Sizes are powers of two over
        /// the smallest page, 0 is no limit.
        pub struct NvmController [4096] {
            /// VSL: most data of Verify.
            pub verify_limit: u8,
            /// WZSL: most data of Write Zeroes.
            pub write_zeroes_limit: u8,
            /// WUSL: most data of Write Uncorrectable.
            pub write_uncorrectable_limit: u8,
            /// DMRL: most ranges of Dataset Management.
            pub dataset_ranges: u8,
            /// DMRSL: most blocks of a range of it.
            pub dataset_range_blocks: U32,
            /// DMSL: most blocks of all ranges of it.
            pub dataset_blocks: U64,
            reserved: [u8; 4080],
        }
    }
}

/// The part that the Zoned Namespace command set adds.
pub(super) mod zoned {
    wire! {
        /// Identify Controller of the Zoned Namespace command set (ZNS §4.1.5.2).
        pub struct ZonedController [4096] {
            /// ZASL: most data of Zone Append, as a power of two over the smallest page; 0 is MDTS.
            pub append_limit: u8,
            reserved: [u8; 4095],
        }
    }
}
