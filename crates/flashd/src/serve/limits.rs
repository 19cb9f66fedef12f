//! The target's limits. Hosts read most of them from Identify.

use std::time::Duration;

/// Most data of one command, in bytes.
pub const MAX_TRANSFER: usize = 1 << MAX_TRANSFER_SHIFT << 12;
/// The same as MDTS has it: a power of two over 4 KiB.
pub(super) const MAX_TRANSFER_SHIFT: u8 = 8;
/// Most entries of a queue.
pub(super) const QUEUE_ENTRIES_MAX: u32 = 1024;
/// Most I/O queues of a controller.
pub(super) const IO_QUEUES_MAX: u32 = 64;
/// Most data in a command capsule of an I/O queue, in bytes.
pub(super) const IN_CAPSULE_MAX: usize = 16 << 10;
/// Most data in a command capsule of an admin queue: the size that Fabrics asks for (TCP §3.3.2).
pub(super) const ADMIN_IN_CAPSULE_MAX: usize = 8 << 10;
/// Most data in one H2CData PDU.
pub(super) const H2C_DATA_MAX: usize = 256 << 10;
/// Asynchronous Event Requests and Aborts at a time.
pub(super) const EVENT_REQUESTS_MAX: usize = 4;
/// Entries of the error log.
pub(super) const ERROR_ENTRIES: usize = 64;
/// Source ranges of one Copy.
pub(super) const COPY_RANGES_MAX: usize = 128;
/// Bytes of one Copy.
pub(super) const COPY_BYTES_MAX: u64 = 128 << 20;
/// Moves of one In_Device_Defragment: a full command's data.
pub(super) const DEFRAGMENT_MOVES_MAX: u64 = (MAX_TRANSFER / 8) as u64;
/// Controllers at a time.
pub(super) const CONTROLLERS_MAX: usize = 64;

/// The time that a host may take. Whole things are timed, not pauses: a byte now and then does not
/// help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// From the opening of a connection until it is a queue.
    pub connect: Duration,
    /// For a PDU, of at most 256 KiB, from its first byte to its last.
    pub pdu: Duration,
    /// For the data of a command, from the R2T to the last byte, and for taking the data that is
    /// sent with one call, about 1 MiB.
    pub data: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            pdu: Duration::from_secs(30),
            data: Duration::from_secs(60),
        }
    }
}

/// MSSRL: most blocks of a source range of Copy, in a namespace with such blocks.
pub(super) fn copy_range_blocks(block_bytes: u64) -> u16 {
    (COPY_BYTES_MAX / block_bytes).min(u16::MAX.into()) as u16
}
