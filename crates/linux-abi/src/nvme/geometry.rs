//! The log page from which a host learns the parallel units of a device, and their statistics: InDeF and
//! FAST'24 need it beyond the specifications. OCP and most vendors use pages C0h to CFh.

use zerocopy::little_endian::{U16, U32, U64};

/// The number of the page.
pub const GEOMETRY_PAGE: u8 = 0xDB;
/// The magic number at the start of the geometry log page.
pub const GEOMETRY_MAGIC: [u8; 8] = *b"FLASHGEO";

wire! {
    /// Geometry and statistics (log page DBh): this header, then a [`DieEntry`] for each die, from
    /// `dies_at` on, then a [`NamespaceEntry`] for each namespace, from `namespaces_at` on.
    pub struct GeometryLog [512] {
        /// [`GEOMETRY_MAGIC`].
        pub magic: [u8; 8],
        /// Version of this layout: 1. A later one has the same fields at the same places, and more.
        pub version: U16,
        /// Bytes of a die's entry.
        pub die_entry: U16,
        /// Bytes of a namespace's entry.
        pub namespace_entry: U16,
        /// Hints in Write count (1) or not (0).
        pub hints: u8,
        reserved15: u8,
        /// Bytes of the whole page.
        pub len: U32,
        /// Where the dies' entries begin, in bytes.
        pub dies_at: U32,
        /// Where the namespaces' entries begin, in bytes.
        pub namespaces_at: U32,
        /// Namespaces.
        pub namespaces: U32,

        /// Channels.
        pub channels: U32,
        /// Dies on each channel; die `d` is on channel `d` mod channels.
        pub dies_per_channel: U32,
        /// Planes of a die that are programmed together.
        pub planes: U32,
        /// Bytes of a flash page.
        pub page: U32,
        /// Pages of a flash block.
        pub pages_per_block: U32,
        /// Most moves of one In_Device_Defragment.
        pub defragment_max: U32,
        /// Bytes that go to a die before the next one's turn, in a conventional namespace (FAST'24:
        /// die allocation granularity).
        pub unit: U64,

        /// Device time up to which the statistics hold, in nanoseconds.
        pub now_ns: U64,
        /// Bytes that hosts read.
        pub host_read_bytes: U64,
        /// Bytes that hosts wrote.
        pub host_written_bytes: U64,
        /// Bytes that were copied in the device because a host asked for it.
        pub migrated_bytes: U64,
        /// Bytes that were programmed into flash, for whatever reason.
        pub programmed_bytes: U64,
        /// Flash blocks that were erased.
        pub erased_blocks: U64,
        /// Flash operations that had to wait for their die.
        pub collisions: U64,
        reserved120: [u8; 392],
    }
}

wire! {
    /// A die in the geometry log page.
    pub struct DieEntry [16] {
        /// The time that it was busy, in nanoseconds of device time.
        pub busy_ns: U64,
        /// Flash blocks of it that were erased.
        pub erased_blocks: U64,
    }
}

wire! {
    /// A namespace in the geometry log page. A zone's bytes lie on `zone_dies` dies, `interleave`
    /// bytes on each in turn; zone `z` begins on die `z × zone_dies` mod all dies.
    pub struct NamespaceEntry [64] {
        /// NSID.
        pub nsid: U32,
        /// 1 if it has zones.
        pub zoned: u8,
        reserved5: [u8; 3],
        /// Bytes.
        pub size: U64,
        /// Bytes from zone to zone; this and the following fields are 0 without zones.
        pub zone_size: U64,
        /// Bytes of a zone that can be written.
        pub zone_capacity: U64,
        /// Bytes on a die before the next die's turn.
        pub interleave: U64,
        /// Dies that a zone spans.
        pub zone_dies: U32,
        /// Zones that may be active at once; 0 is no limit.
        pub max_active: U32,
        /// Zones that may be open at once; 0 is no limit.
        pub max_open: U32,
        reserved52: [u8; 12],
    }
}
