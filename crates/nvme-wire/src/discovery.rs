//! The discovery log page (Base §5.16.1.23).

use zerocopy::little_endian::{U16, U64};

/// The name by which every discovery subsystem is known (Base §4.5).
pub const DISCOVERY_NQN: &str = "nqn.2014-08.org.nvmexpress.discovery";

wire! {
    /// The header before the records.
    pub struct DiscoveryHeader [1024] {
        /// GENCTR: changes whenever a record does.
        pub generation: U64,
        /// NUMREC: records.
        pub records: U64,
        /// RECFMT: 0.
        pub format: U16,
        reserved: [u8; 1006],
    }
}

wire! {
    /// One subsystem (or one path to it).
    pub struct DiscoveryEntry [1024] {
        /// TRTYPE: 3 for TCP.
        pub transport: u8,
        /// ADRFAM: 1 for IPv4, 2 for IPv6.
        pub family: u8,
        /// SUBTYPE: 2 for an NVM subsystem, 3 for the discovery subsystem itself.
        pub subsystem_type: u8,
        /// TREQ: 1 if secure channels are required, 2 if they are not; 0 says nothing.
        pub requirements: u8,
        /// PORTID.
        pub port: U16,
        /// CNTLID: FFFFh if controllers are made on request.
        pub controller: U16,
        /// ASQSZ: most entries of the admin queue.
        pub admin_queue_size: U16,
        /// EFLAGS.
        pub flags: U16,
        reserved12: [u8; 20],
        /// TRSVCID: the port as decimal text, padded with spaces.
        pub service: [u8; 32],
        reserved64: [u8; 192],
        /// SUBNQN.
        pub subsystem: [u8; 256],
        /// TRADDR: the address as text, padded with spaces.
        pub address: [u8; 256],
        /// TSAS: for TCP, the kind of security in the first byte; 0 is none (TCP §3.4).
        pub transport_specific: [u8; 256],
    }
}

/// TRTYPE of TCP.
pub const TRANSPORT_TCP: u8 = 3;
/// ADRFAM of IPv4.
pub const FAMILY_IPV4: u8 = 1;
/// ADRFAM of IPv6.
pub const FAMILY_IPV6: u8 = 2;
/// SUBTYPE of an NVM subsystem.
pub const SUBSYSTEM_NVM: u8 = 2;
/// SUBTYPE of the discovery subsystem that was asked.
pub const SUBSYSTEM_CURRENT_DISCOVERY: u8 = 3;
/// TREQ: nothing is said about secure channels (1:0), and SQ flow control can be disabled (2).
pub const REQUIREMENTS_NONE: u8 = 1 << 2;
