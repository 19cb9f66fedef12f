//! `FS_IOC_FIEMAP`: the map of a file (linux/fiemap.h, v6.1).

use std::{
    io,
    mem::{offset_of, size_of},
    os::fd::AsFd,
};

use crate::{abi::AbiItem, ioctl};

/// `FIEMAP_FLAG_SYNC`: write the file back before mapping it.
pub const FLAG_SYNC: u32 = 1;

bitflags::bitflags! {
    /// `FIEMAP_EXTENT_*`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct ExtentFlags: u32 {
        /// Last extent of the file.
        const LAST = 0x1;
        /// Data location unknown.
        const UNKNOWN = 0x2;
        /// Location still pending; comes with `UNKNOWN`.
        const DELALLOC = 0x4;
        /// Data cannot be read from the device as it is (compressed).
        const ENCODED = 0x8;
        /// Encrypted by the file system.
        const DATA_ENCRYPTED = 0x80;
        /// Offsets may not be block aligned.
        const NOT_ALIGNED = 0x100;
        /// Data mixed with metadata.
        const DATA_INLINE = 0x200;
        /// Several files in a block.
        const DATA_TAIL = 0x400;
        /// Allocated, no data.
        const UNWRITTEN = 0x800;
        /// The file system does not use extents; the entry was merged.
        const MERGED = 0x1000;
        /// Shared with other files.
        const SHARED = 0x2000;
        /// Flags that this version does not know stay in the value.
        const _ = !0;
    }
}

/// `struct fiemap_extent`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct RawExtent {
    /// File offset in bytes.
    pub logical: u64,
    /// Device offset in bytes.
    pub physical: u64,
    /// Length in bytes.
    pub length: u64,
    reserved64: [u64; 2],
    /// `FIEMAP_EXTENT_*` bits.
    pub flags: u32,
    reserved: [u32; 3],
}

impl RawExtent {
    /// An extent as the kernel would report it, for tests.
    #[must_use]
    pub const fn new(logical: u64, physical: u64, length: u64, flags: u32) -> Self {
        Self {
            logical,
            physical,
            length,
            reserved64: [0; 2],
            flags,
            reserved: [0; 3],
        }
    }
}

const _: () = {
    assert!(size_of::<RawExtent>() == 56);
    assert!(offset_of!(RawExtent, flags) == 40);
    assert!(size_of::<FiemapHeader>() == 32);
    assert!(offset_of!(FiemapRequest, extents) == 32);
};

/// Structures and numbers of this module, for `cargo xtask abi-check`.
pub const ABI: &[AbiItem] = &[
    AbiItem {
        header: "linux/fiemap.h",
        c_type: "struct fiemap_extent",
        size: size_of::<RawExtent>(),
        fields: &[
            ("fe_logical", offset_of!(RawExtent, logical)),
            ("fe_physical", offset_of!(RawExtent, physical)),
            ("fe_length", offset_of!(RawExtent, length)),
            ("fe_flags", offset_of!(RawExtent, flags)),
        ],
        requests: &[
            ("FIEMAP_FLAG_SYNC", FLAG_SYNC),
            ("FIEMAP_EXTENT_LAST", ExtentFlags::LAST.bits()),
            ("FIEMAP_EXTENT_UNKNOWN", ExtentFlags::UNKNOWN.bits()),
            ("FIEMAP_EXTENT_DELALLOC", ExtentFlags::DELALLOC.bits()),
            ("FIEMAP_EXTENT_ENCODED", ExtentFlags::ENCODED.bits()),
            ("FIEMAP_EXTENT_DATA_INLINE", ExtentFlags::DATA_INLINE.bits()),
            ("FIEMAP_EXTENT_DATA_TAIL", ExtentFlags::DATA_TAIL.bits()),
            ("FIEMAP_EXTENT_UNWRITTEN", ExtentFlags::UNWRITTEN.bits()),
            ("FIEMAP_EXTENT_SHARED", ExtentFlags::SHARED.bits()),
        ],
    },
    AbiItem {
        header: "linux/fiemap.h",
        c_type: "struct fiemap",
        size: size_of::<FiemapHeader>(),
        fields: &[
            ("fm_start", offset_of!(FiemapHeader, start)),
            ("fm_length", offset_of!(FiemapHeader, length)),
            ("fm_flags", offset_of!(FiemapHeader, flags)),
            (
                "fm_mapped_extents",
                offset_of!(FiemapHeader, mapped_extents),
            ),
            ("fm_extent_count", offset_of!(FiemapHeader, extent_count)),
        ],
        requests: &[],
    },
    AbiItem {
        header: "linux/fs.h",
        c_type: "struct fiemap",
        size: size_of::<FiemapHeader>(),
        fields: &[],
        requests: &[(
            "FS_IOC_FIEMAP",
            <FiemapRequest as ioctl::IoctlArgument>::REQUEST,
        )],
    },
];

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct FiemapHeader {
    start: u64,
    length: u64,
    flags: u32,
    mapped_extents: u32,
    extent_count: u32,
    reserved: u32,
}

/// Extents fetched by one call: 28 KiB, small enough for a stack, large enough that a file of
/// 65,536 extents takes 128 calls.
pub const BATCH: usize = 512;

#[repr(C)]
struct FiemapRequest {
    header: FiemapHeader,
    extents: [RawExtent; BATCH],
}

// SAFETY: FS_IOC_FIEMAP is _IOWR('f', 11, struct fiemap) with a flexible array after the 32-byte
// header; `extent_count` tells the kernel how many entries there are, and is never more than BATCH.
unsafe impl ioctl::IoctlArgument for FiemapRequest {
    const REQUEST: u32 = ioctl::request(
        ioctl::READ | ioctl::WRITE,
        b'f',
        11,
        size_of::<FiemapHeader>(),
    );
}

/// A reusable buffer for FIEMAP calls.
pub struct Mapper {
    request: Box<FiemapRequest>,
}

impl Default for Mapper {
    fn default() -> Self {
        Self {
            request: Box::new(FiemapRequest {
                header: FiemapHeader::default(),
                extents: [RawExtent::default(); BATCH],
            }),
        }
    }
}

impl Mapper {
    /// The next batch of extents that intersect `start..start + length`, at most [`BATCH`]. Empty
    /// means that there are no more. The caller continues after the last returned extent.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP`/`ENOTTY` where the file system has no FIEMAP, and I/O errors.
    pub fn batch(
        &mut self,
        fd: impl AsFd,
        start: u64,
        length: u64,
        flags: u32,
    ) -> io::Result<&[RawExtent]> {
        self.request.header = FiemapHeader {
            start,
            length,
            flags,
            extent_count: BATCH as u32,
            ..FiemapHeader::default()
        };
        ioctl::call(fd, &mut *self.request)?;
        let mapped = self.request.header.mapped_extents as usize;
        Ok(&self.request.extents[..mapped.min(BATCH)])
    }

    /// The number of raw extents in the range, without fetching them.
    ///
    /// # Errors
    ///
    /// As [`Self::batch`].
    pub fn count(&mut self, fd: impl AsFd, start: u64, length: u64, flags: u32) -> io::Result<u32> {
        self.request.header = FiemapHeader {
            start,
            length,
            flags,
            ..FiemapHeader::default()
        };
        ioctl::call(fd, &mut *self.request)?;
        Ok(self.request.header.mapped_extents)
    }
}
