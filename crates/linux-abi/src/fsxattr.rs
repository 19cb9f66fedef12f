//! `FS_IOC_FSGETXATTR`, `FS_IOC_FSSETXATTR`: inode flags and project (linux/fs.h, v6.1).

use std::{
    io,
    mem::{offset_of, size_of},
    os::fd::AsFd,
};

use crate::{
    abi::AbiItem,
    ioctl::{self, IoctlArgument, READ, WRITE},
};

bitflags::bitflags! {
    /// `FS_XFLAG_*`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Flags: u32 {
        /// Data in the realtime part.
        const REALTIME = 0x1;
        /// Space was allocated in advance on purpose.
        const PREALLOC = 0x2;
        /// Cannot be changed.
        const IMMUTABLE = 0x8;
        /// Has an extent size hint.
        const EXTSIZE = 0x800;
        /// "Do not defragment": backup and defragmentation programs leave the file alone.
        const NODEFRAG = 0x2000;
        /// Accessed directly on persistent memory.
        const DAX = 0x8000;
        /// Has an extent size hint for copies on write.
        const COWEXTSIZE = 0x1_0000;
        /// Has extended attributes.
        const HASATTR = 0x8000_0000;
        /// Flags that this version does not know stay in the value.
        const _ = !0;
    }
}

/// `struct fsxattr`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct Raw {
    flags: u32,
    extent_size: u32,
    extents: u32,
    project: u32,
    cow_extent_size: u32,
    pad: [u8; 8],
}

const _: () = assert!(size_of::<Raw>() == 28);

/// Structures and numbers of this module, for `cargo xtask abi-check`.
pub const ABI: &[AbiItem] = &[AbiItem {
    header: "linux/fs.h",
    c_type: "struct fsxattr",
    size: size_of::<Raw>(),
    fields: &[
        ("fsx_projid", offset_of!(Raw, project)),
        ("fsx_cowextsize", offset_of!(Raw, cow_extent_size)),
    ],
    requests: &[
        ("FS_IOC_FSGETXATTR", Get::REQUEST),
        ("FS_IOC_FSSETXATTR", Set::REQUEST),
    ],
}];

#[repr(transparent)]
struct Get(Raw);

// SAFETY: FS_IOC_FSGETXATTR is _IOR('X', 31, struct fsxattr), 28 bytes of plain integers.
unsafe impl IoctlArgument for Get {
    const REQUEST: u32 = ioctl::request(READ, b'X', 31, size_of::<Raw>());
}

#[repr(transparent)]
struct Set(Raw);

// SAFETY: FS_IOC_FSSETXATTR is _IOW('X', 32, struct fsxattr), 28 bytes of plain integers.
unsafe impl IoctlArgument for Set {
    const REQUEST: u32 = ioctl::request(WRITE, b'X', 32, size_of::<Raw>());
}

/// Flags, project and hints of an inode.
#[derive(Clone, Copy, Debug)]
pub struct Attributes {
    raw: Raw,
}

impl Attributes {
    /// Read those of an open file.
    ///
    /// # Errors
    ///
    /// `ENOTTY` where the file system has none.
    pub fn get(fd: impl AsFd) -> io::Result<Self> {
        let mut get = Get(Raw::default());
        ioctl::call(fd, &mut get)?;
        Ok(Self { raw: get.0 })
    }

    /// Set them.
    ///
    /// # Errors
    ///
    /// `EPERM`, and `EINVAL` for a combination that the file system refuses.
    pub fn set(self, fd: impl AsFd) -> io::Result<()> {
        ioctl::call(fd, &mut Set(self.raw)).map(drop)
    }

    /// Inode flags.
    #[must_use]
    pub const fn flags(&self) -> Flags {
        Flags::from_bits_retain(self.raw.flags)
    }

    /// Project, for quotas.
    #[must_use]
    pub const fn project(&self) -> u32 {
        self.raw.project
    }

    /// The same with other flags.
    #[must_use]
    pub const fn with_flags(mut self, flags: Flags) -> Self {
        self.raw.flags = flags.bits();
        self
    }

    /// The same in another project.
    #[must_use]
    pub const fn with_project(mut self, project: u32) -> Self {
        self.raw.project = project;
        self
    }

    /// The same without an extent size hint.
    #[must_use]
    pub fn without_hints(mut self) -> Self {
        self.raw.extent_size = 0;
        self.raw.cow_extent_size = 0;
        self.with_flags(self.flags() - Flags::EXTSIZE - Flags::COWEXTSIZE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_those_of_the_header() {
        assert_eq!(Get::REQUEST, 0x801C_581F);
        assert_eq!(Set::REQUEST, 0x401C_5820);
    }
}
