//! Identify Controller: what transports and command sets add to [`Controller`](super::Controller).

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
    use zerocopy::little_endian::{U32, U64};

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
