//! The files that hold an extent, of whatever subvolume: `BTRFS_IOC_LOGICAL_INO_V2` (linux/btrfs.h, v6.1; since
//! Linux 4.15), and the parts of extents that a file refers to, by its subvolume's tree. Needs `CAP_SYS_ADMIN`.

use std::{
    io,
    mem::{offset_of, size_of},
    os::fd::AsFd,
};

use super::{
    EXTENT_DATA, FileExtentItem, MAGIC, SearchArgs, SearchKey, disk_u64_at, inode_item::INODE_ITEM,
};
use crate::{abi::AbiItem, ioctl};

/// `struct btrfs_ioctl_logical_ino_args`.
#[repr(C)]
struct LogicalIno {
    logical: u64,
    size: u64,
    reserved: [u64; 3],
    flags: u64,
    inodes: *mut u64,
}

// SAFETY: BTRFS_IOC_LOGICAL_INO_V2 is _IOWR(0x94, 59, struct btrfs_ioctl_logical_ino_args). The kernel writes at most
// `size` bytes to `inodes`; the only place that makes one, `Holders::ask`, gives it a vector of that length, which
// outlives the call.
unsafe impl ioctl::IoctlArgument for LogicalIno {
    const REQUEST: u32 = ioctl::request(
        ioctl::READ | ioctl::WRITE,
        MAGIC,
        59,
        size_of::<LogicalIno>(),
    );
}

/// `BTRFS_LOGICAL_INO_ARGS_IGNORE_OFFSET`: holders of any part of the extent.
const IGNORE_OFFSET: u64 = 1;

/// The header of `struct btrfs_data_container`, in words: `bytes_left` and `bytes_missing`, `elem_cnt` and
/// `elem_missed`, of 32 bits each.
const HEADER_WORDS: usize = 2;

const _: () = {
    assert!(size_of::<LogicalIno>() == 56);
    assert!(offset_of!(LogicalIno, flags) == 40);
    assert!(offset_of!(LogicalIno, inodes) == 48);
};

/// Structures and numbers of this module, for `cargo xtask abi-check`.
pub(crate) const ABI: &[AbiItem] = &[
    AbiItem {
        header: "linux/btrfs.h",
        c_type: "struct btrfs_ioctl_logical_ino_args",
        size: size_of::<LogicalIno>(),
        fields: &[
            ("logical", offset_of!(LogicalIno, logical)),
            ("size", offset_of!(LogicalIno, size)),
            ("flags", offset_of!(LogicalIno, flags)),
            ("inodes", offset_of!(LogicalIno, inodes)),
        ],
        requests: &[
            (
                "BTRFS_IOC_LOGICAL_INO_V2",
                <LogicalIno as ioctl::IoctlArgument>::REQUEST,
            ),
            ("BTRFS_LOGICAL_INO_ARGS_IGNORE_OFFSET", IGNORE_OFFSET as u32),
        ],
    },
    AbiItem {
        header: "linux/btrfs.h",
        c_type: "struct btrfs_data_container",
        size: HEADER_WORDS * 8,
        fields: &[("elem_cnt", 8), ("elem_missed", 12)],
        requests: &[],
    },
    AbiItem {
        header: "linux/btrfs_tree.h",
        c_type: "struct btrfs_inode_item",
        size: 160,
        fields: &[("generation", GENERATION), ("flags", FLAGS)],
        requests: &[
            ("BTRFS_INODE_NODATASUM", InodeFlags::NODATASUM.bits() as u32),
            ("BTRFS_INODE_NODATACOW", InodeFlags::NODATACOW.bits() as u32),
        ],
    },
];

/// Offset of `generation` in `struct btrfs_inode_item`.
const GENERATION: usize = 0;
/// Offset of `flags` there.
const FLAGS: usize = 64;

/// A reference to an extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reference {
    /// Inode number in the subvolume.
    pub inode: u64,
    /// The tree of the subvolume.
    pub subvolume: u64,
    /// The first byte in the file of the part that is referred to.
    pub offset: u64,
}

/// A reusable buffer for the references to extents.
#[derive(Debug)]
pub struct Holders(Vec<u64>);

/// Words of the buffer at first: for 170 references.
const FEW_WORDS: usize = 512;
/// And at most: the kernel fills no more than 64 KiB as one block of memory; for 2,730 references.
const MOST_WORDS: usize = 8 << 10;

impl Holders {
    /// An empty buffer.
    #[must_use]
    pub fn new() -> Self {
        Self(vec![0; FEW_WORDS])
    }

    /// All references to any part of the extent that has this address, from all subvolumes of the file system of
    /// `file`.
    ///
    /// # Errors
    ///
    /// `ENOENT` where no extent has this address, or one that is so new that the tree does not have it yet;
    /// `EOVERFLOW` where it has thousands of references; `EPERM` without `CAP_SYS_ADMIN`.
    pub fn of(
        &mut self,
        file: impl AsFd,
        address: u64,
    ) -> io::Result<impl Iterator<Item = Reference> + '_> {
        let file = file.as_fd();
        let count = loop {
            let (count, missed) = self.ask(file, address)?;
            if missed == 0 {
                break count;
            }
            if self.0.len() >= MOST_WORDS {
                return Err(io::Error::from_raw_os_error(libc::EOVERFLOW));
            }
            self.0.resize(self.0.len() * 4, 0);
        };
        let words = &self.0[HEADER_WORDS..][..count];
        Ok(words.chunks_exact(3).map(|words| Reference {
            inode: words[0],
            offset: words[1],
            subvolume: words[2],
        }))
    }

    /// Ask once. Returns the words of the answer, and those for which there was no room.
    fn ask(&mut self, file: impl AsFd, address: u64) -> io::Result<(usize, u32)> {
        self.0[..HEADER_WORDS].fill(0);
        let mut argument = LogicalIno {
            logical: address,
            size: (self.0.len() * 8) as u64,
            reserved: [0; 3],
            flags: IGNORE_OFFSET,
            inodes: self.0.as_mut_ptr(),
        };
        ioctl::call(file, &mut argument)?;
        let [count, missed] = halves(self.0[1]);
        let room = self.0.len() - HEADER_WORDS;
        Ok(((count as usize).min(room), missed))
    }
}

impl Default for Holders {
    fn default() -> Self {
        Self::new()
    }
}

/// The two 32-bit numbers at the place of a word, in the order of memory.
fn halves(word: u64) -> [u32; 2] {
    let bytes = word.to_ne_bytes();
    [0, 4].map(|at| u32::from_ne_bytes([0, 1, 2, 3].map(|i| bytes[at + i])))
}

bitflags::bitflags! {
    /// `BTRFS_INODE_*`, as far as they are used.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct InodeFlags: u64 {
        /// Data without checksums.
        const NODATASUM = 1;
        /// Data that is written in place.
        const NODATACOW = 2;
    }
}

/// The facts of an inode that its subvolume's tree has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InodeFacts {
    /// Its generation, as in its handle.
    pub generation: u64,
    /// Its flags.
    pub flags: InodeFlags,
}

/// The state of the data of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartState {
    /// Written, as it is.
    Written,
    /// Compressed.
    Encoded,
    /// Allocated, and not written.
    Unwritten,
}

/// A part of an extent that a file refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtentPart {
    /// The first byte in the file.
    pub offset: u64,
    /// Bytes of the file.
    pub len: u64,
    /// The address of the extent: the same for all parts of it.
    pub extent: u64,
    /// Where in the extent the part begins.
    pub into: u64,
    /// The state of its data.
    pub state: PartState,
}

/// A reusable buffer for parts of extents.
pub struct ExtentParts(Box<SearchArgs>);

impl ExtentParts {
    /// An empty buffer.
    #[must_use]
    pub fn new() -> Self {
        Self(SearchArgs::new())
    }

    /// Visit the parts of a file (subvolume, inode) that begin in `start..end`, in order, until `visit` returns
    /// `false`. Holes and data in the tree are passed over; data that is not written back yet is not seen.
    ///
    /// # Errors
    ///
    /// `ENOENT` where there is no such subvolume, `EPERM` without `CAP_SYS_ADMIN`.
    pub fn visit(
        &mut self,
        fd: impl AsFd,
        (subvolume, inode): (u64, u64),
        start: u64,
        end: u64,
        mut visit: impl FnMut(ExtentPart) -> bool,
    ) -> io::Result<()> {
        let fd = fd.as_fd();
        let mut next = start;
        while next < end {
            let mut last = None;
            let key = key(subvolume, inode, EXTENT_DATA, next, end - 1, u32::MAX);
            for found in self.0.ask(fd, key)? {
                last = Some(found.offset);
                if let Some(part) = part(found.offset, found.item)
                    && !visit(part)
                {
                    return Ok(());
                }
            }
            match last {
                Some(last) => next = last + 1,
                None => return Ok(()),
            }
        }
        Ok(())
    }

    /// The facts of an inode of any subvolume; `None` where it has no such inode.
    ///
    /// # Errors
    ///
    /// As for [`Self::visit`].
    pub fn inode(
        &mut self,
        fd: impl AsFd,
        subvolume: u64,
        inode: u64,
    ) -> io::Result<Option<InodeFacts>> {
        let key = key(subvolume, inode, INODE_ITEM, 0, 0, 1);
        let facts = self.0.ask(fd, key)?.find_map(|found| {
            Some(InodeFacts {
                generation: disk_u64_at(found.item, GENERATION)?,
                flags: InodeFlags::from_bits_truncate(disk_u64_at(found.item, FLAGS)?),
            })
        });
        Ok(facts)
    }
}

impl Default for ExtentParts {
    fn default() -> Self {
        Self::new()
    }
}

/// Items of one kind of one inode: they follow each other in the tree.
fn key(subvolume: u64, inode: u64, kind: u32, first: u64, last: u64, items: u32) -> SearchKey {
    SearchKey {
        tree_id: subvolume,
        min_objectid: inode,
        max_objectid: inode,
        min_type: kind,
        max_type: kind,
        min_offset: first,
        max_offset: last,
        nr_items: items,
        ..SearchKey::default()
    }
}

/// `BTRFS_FILE_EXTENT_REG`; 0 is inline, 2 preallocated.
const REGULAR: u8 = 1;
/// `BTRFS_FILE_EXTENT_PREALLOC`.
const PREALLOCATED: u8 = 2;

/// The part that an item describes; `None` for a hole, and for data in the tree.
fn part(offset: u64, item: &[u8]) -> Option<ExtentPart> {
    let byte = |at: usize| item.get(at).copied();
    let number = |at: usize| disk_u64_at(item, at);
    let is_plain = byte(offset_of!(FileExtentItem, compression)) == Some(0);
    let state = match byte(offset_of!(FileExtentItem, kind))? {
        REGULAR if is_plain => PartState::Written,
        REGULAR => PartState::Encoded,
        PREALLOCATED => PartState::Unwritten,
        _ => return None,
    };
    let part = ExtentPart {
        offset,
        len: number(offset_of!(FileExtentItem, num_bytes))?,
        extent: number(offset_of!(FileExtentItem, disk_bytenr))?,
        into: number(offset_of!(FileExtentItem, offset))?,
        state,
    };
    // Arithmetic on a part shall not overflow.
    let sane = part.len > 0
        && part.offset.checked_add(part.len).is_some()
        && (part.extent.checked_add(part.into))
            .and_then(|start| start.checked_add(part.len))
            .is_some();
    (part.extent != 0 && sane).then_some(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(kind: u8, compression: u8, address: u64, into: u64, len: u64) -> Vec<u8> {
        let mut bytes = vec![0; size_of::<FileExtentItem>()];
        bytes[offset_of!(FileExtentItem, kind)] = kind;
        bytes[offset_of!(FileExtentItem, compression)] = compression;
        for (at, value) in [
            (offset_of!(FileExtentItem, disk_bytenr), address),
            (offset_of!(FileExtentItem, offset), into),
            (offset_of!(FileExtentItem, num_bytes), len),
        ] {
            bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
        }
        bytes
    }

    #[test]
    fn holes_inline_data_and_nonsense_are_no_parts() {
        let state = |item: &[u8]| part(7, item).map(|part| part.state);
        assert_eq!(
            part(7, &item(1, 0, 4096, 512, 10)),
            Some(ExtentPart {
                offset: 7,
                len: 10,
                extent: 4096,
                into: 512,
                state: PartState::Written,
            })
        );
        assert_eq!(state(&item(1, 3, 4096, 0, 10)), Some(PartState::Encoded));
        assert_eq!(state(&item(2, 0, 4096, 0, 10)), Some(PartState::Unwritten));
        assert_eq!(state(&item(1, 0, 0, 0, 10)), None);
        assert_eq!(state(&item(0, 0, 4096, 0, 10)), None);
        assert_eq!(state(&item(1, 0, u64::MAX, 1, 10)), None);
        assert_eq!(state(&item(1, 0, 4096, 0, 10)[..40]), None);
    }

    #[test]
    fn the_count_is_the_first_half_of_its_word() {
        let mut bytes = [0; 8];
        bytes[..4].copy_from_slice(&3_u32.to_ne_bytes());
        bytes[4..].copy_from_slice(&6_u32.to_ne_bytes());
        assert_eq!(halves(u64::from_ne_bytes(bytes)), [3, 6]);
    }

    #[test]
    fn another_file_system_has_no_such_trees() {
        let file = std::fs::File::open("/proc/self/stat").unwrap();
        assert!(Holders::new().of(&file, 4096).is_err());
        let mut parts = ExtentParts::new();
        let nothing = |_| unreachable!("there are none");
        assert!(parts.visit(&file, (5, 256), 0, 1, nothing).is_err());
        assert!(parts.inode(&file, 5, 256).is_err());
    }
}
