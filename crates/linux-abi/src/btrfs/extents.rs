//! The extents of many files at once, or of one, from a subvolume's tree (`BTRFS_IOC_TREE_SEARCH_V2`;
//! since Linux 3.16). Data without a place is not in it, and of a file's inode it has the state of some
//! time before. Needs `CAP_SYS_ADMIN`.

use std::{io, mem::offset_of, os::fd::AsFd};

use super::{
    EXTENT_DATA, FileExtentItem, INODE_EXTREF, INODE_REF, SearchArgs, SearchKey, disk_u64_at,
    inode_item::{INODE_ITEM, InodeItem, inode_item},
    search,
};

/// `BTRFS_FILE_EXTENT_INLINE`.
const INLINE: u8 = 0;
/// `BTRFS_FILE_EXTENT_REG`.
const REGULAR: u8 = 1;

/// The place of an extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Its data lies here, as it is.
    At(u64),
    /// Its data lies here, compressed.
    Encoded(u64),
    /// It has no data.
    Hole,
    /// Its data is allocated and not written, or in the tree.
    Other,
}

/// An extent of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileExtent {
    /// Inode number in the subvolume.
    pub inode: u64,
    /// The first byte in the file.
    pub offset: u64,
    /// Bytes of the file; 0 for data in the tree.
    pub len: u64,
    /// Its place.
    pub place: Place,
    /// The extent on the device that it refers to; none of a hole, or of data in the tree.
    pub backing: Option<Backing>,
    /// The transaction that put it there.
    pub generation: u64,
}

/// A name of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileName<'a> {
    /// The directory that has it.
    pub parent: u64,
    /// The name.
    pub name: &'a [u8],
}

/// An item of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileItem {
    /// Its inode, before all else; of directories and others, too.
    Inode(InodeItem),
    /// A directory that has a name of it, before its extents.
    Named {
        /// The file's inode number.
        inode: u64,
        /// That of the directory.
        parent: u64,
    },
    /// An extent of it.
    Extent(FileExtent),
}

/// An extent on the device, and the part of it that a file extent refers to. It stays allocated as a
/// whole while anything refers to any of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backing {
    /// Its address.
    pub address: u64,
    /// Bytes that it takes on the device.
    pub allocated: u64,
    /// Bytes of data in the whole of it: more than `allocated` where it is compressed.
    pub data_len: u64,
    /// The first of these bytes that is referred to.
    pub from: u64,
    /// It was written: not only allocated.
    pub is_written: bool,
    /// Its data is compressed, or encoded otherwise.
    pub is_encoded: bool,
}

/// A reusable buffer for the extents of files.
pub struct FileExtents(Box<SearchArgs>);

impl FileExtents {
    /// An empty buffer.
    #[must_use]
    pub fn new() -> Self {
        Self(SearchArgs::new())
    }

    /// Look at `items` items of the subvolume that `fd` is in, or as many as the buffer holds, from
    /// inode `from` on. `visit` gets the inodes and extents among them in the order of the tree: by inode, then
    /// by offset. Returns the inode of the last item: all items of those before it were looked at.
    ///
    /// # Errors
    ///
    /// `EPERM` without `CAP_SYS_ADMIN`, `ENOTTY` where it is not Btrfs.
    pub fn read(
        &mut self,
        fd: impl AsFd,
        from: u64,
        items: u32,
        visit: impl FnMut(FileItem),
    ) -> io::Result<Option<u64>> {
        self.read_since(fd, from, 0, items, visit)
    }

    /// The same of the leaves only that this transaction or a newer one has written: they have all that changed since
    /// and is there, and some that did not. Of what is gone there is nothing.
    ///
    /// # Errors
    ///
    /// Those of [`read`](Self::read).
    pub fn read_since(
        &mut self,
        fd: impl AsFd,
        from: u64,
        since: u64,
        items: u32,
        mut visit: impl FnMut(FileItem),
    ) -> io::Result<Option<u64>> {
        let key = SearchKey {
            min_transid: since,
            min_objectid: from,
            max_objectid: LAST_FILE,
            max_type: u32::from(u8::MAX),
            max_offset: u64::MAX,
            nr_items: items,
            ..SearchKey::default()
        };
        let mut last = None;
        for found in self.0.ask(fd, key)? {
            last = Some(found.objectid);
            match found.kind {
                EXTENT_DATA => visit(FileItem::Extent(file_extent(
                    found.objectid,
                    found.offset,
                    found.item,
                ))),
                INODE_ITEM => {
                    let inode = inode_item(found.objectid, found.item);
                    inode.map(FileItem::Inode).into_iter().for_each(&mut visit);
                }
                INODE_REF | INODE_EXTREF => {
                    let inode = found.objectid;
                    let named = first_name(found.kind, found.offset, found.item);
                    let named =
                        named.map(|FileName { parent, .. }| FileItem::Named { inode, parent });
                    named.into_iter().for_each(&mut visit);
                }
                _ => {}
            }
        }
        Ok(last)
    }

    /// A name of a file in the subvolume that `fd` is in; `None` if it has none.
    ///
    /// # Errors
    ///
    /// `EPERM` without `CAP_SYS_ADMIN`, `ENOTTY` where it is not Btrfs.
    pub fn name(&mut self, fd: impl AsFd, inode: u64) -> io::Result<Option<FileName<'_>>> {
        let key = SearchKey {
            min_objectid: inode,
            max_objectid: inode,
            min_type: INODE_REF,
            max_type: INODE_EXTREF,
            max_offset: u64::MAX,
            nr_items: 1,
            ..SearchKey::default()
        };
        let mut found = self.0.ask(fd, key)?;
        Ok(found.find_map(|found| first_name(found.kind, found.offset, found.item)))
    }
}

/// The first name in an item of names: of a directory that is in the key, or in the item (`struct
/// btrfs_inode_ref`, `struct btrfs_inode_extref`; both packed, with the name at their end).
fn first_name(kind: u32, offset: u64, item: &[u8]) -> Option<FileName<'_>> {
    let (parent, rest) = match kind {
        INODE_REF => (offset, item.get(8..)?),
        _ => (disk_u64_at(item, 0)?, item.get(16..)?),
    };
    let len = u16::from_le_bytes(rest.get(..2)?.try_into().ok()?);
    let name = rest.get(2..2 + usize::from(len))?;
    Some(FileName { parent, name })
}

impl Default for FileExtents {
    fn default() -> Self {
        Self::new()
    }
}

/// Visit all extents of one file, in the order of their offsets. `fd` is that file, or another one in
/// the same subvolume.
///
/// # Errors
///
/// `EPERM` without `CAP_SYS_ADMIN`, `ENOTTY` where it is not Btrfs.
pub fn file_extents(
    fd: impl AsFd,
    inode: u64,
    mut visit: impl FnMut(FileExtent),
) -> io::Result<()> {
    let key = SearchKey {
        min_objectid: inode,
        max_objectid: inode,
        min_type: EXTENT_DATA,
        max_type: EXTENT_DATA,
        max_offset: u64::MAX,
        ..SearchKey::default()
    };
    search(fd, key, |found| {
        visit(file_extent(found.objectid, found.offset, found.item));
        true
    })
}

fn file_extent(inode: u64, offset: u64, item: &[u8]) -> FileExtent {
    let (len, place) = extent(item);
    FileExtent {
        inode,
        offset,
        len,
        place,
        backing: backing(item),
        generation: disk_u64_at(item, offset_of!(FileExtentItem, generation)).unwrap_or(u64::MAX),
    }
}

/// `BTRFS_FIRST_FREE_OBJECTID`: the number of a subvolume's topmost directory, the smallest of all.
pub const FIRST_FILE: u64 = 256;
/// `BTRFS_LAST_FREE_OBJECTID`: the largest number of a file.
const LAST_FILE: u64 = -256_i64 as u64;

/// Length and place of an extent item; an item that is cut off is in the tree, as far as one can tell.
fn extent(item: &[u8]) -> (u64, Place) {
    let byte = |at: usize| item.get(at).copied();
    let number = |at: usize| disk_u64_at(item, at);
    let parts = (
        number(offset_of!(FileExtentItem, num_bytes)),
        number(offset_of!(FileExtentItem, disk_bytenr)),
        number(offset_of!(FileExtentItem, offset)),
    );
    let (Some(len), Some(address), Some(into)) = parts else {
        return (0, Place::Other);
    };
    let kind = byte(offset_of!(FileExtentItem, kind));
    if kind == Some(INLINE) {
        return (0, Place::Other);
    }
    let is_plain = byte(offset_of!(FileExtentItem, compression)) == Some(0);
    let place = match address {
        0 => Place::Hole,
        _ if kind != Some(REGULAR) => Place::Other,
        _ if is_plain => Place::At(address.saturating_add(into)),
        _ => Place::Encoded(address),
    };
    (len, place)
}

/// The extent on the device that an item refers to.
fn backing(item: &[u8]) -> Option<Backing> {
    let number = |at: usize| disk_u64_at(item, at);
    let kind = *item.get(offset_of!(FileExtentItem, kind))?;
    let address = number(offset_of!(FileExtentItem, disk_bytenr))?;
    let allocated = number(offset_of!(FileExtentItem, disk_num_bytes))?;
    let from = number(offset_of!(FileExtentItem, offset))?;
    let is_encoded = [
        offset_of!(FileExtentItem, compression),
        offset_of!(FileExtentItem, encryption),
    ]
    .into_iter()
    .any(|at| item.get(at) != Some(&0));
    (kind != INLINE && address != 0).then_some(Backing {
        address,
        allocated,
        // Kernels before 6.11 left other numbers here in items of plain data.
        data_len: match is_encoded {
            true => number(offset_of!(FileExtentItem, ram_bytes))?,
            false => allocated,
        },
        from,
        is_written: kind == REGULAR,
        is_encoded,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(kind: u8, compression: u8, address: u64, offset: u64, len: u64) -> Vec<u8> {
        let mut bytes = vec![0; size_of::<FileExtentItem>()];
        bytes[offset_of!(FileExtentItem, kind)] = kind;
        bytes[offset_of!(FileExtentItem, compression)] = compression;
        for (at, value) in [
            (offset_of!(FileExtentItem, disk_bytenr), address),
            (offset_of!(FileExtentItem, offset), offset),
            (offset_of!(FileExtentItem, num_bytes), len),
        ] {
            bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
        }
        bytes
    }

    #[test]
    fn only_plain_data_has_a_place() {
        assert_eq!(extent(&item(1, 0, 4096, 512, 10)), (10, Place::At(4608)));
        assert_eq!(extent(&item(1, 0, 0, 0, 10)), (10, Place::Hole));
        assert_eq!(extent(&item(1, 2, 4096, 8, 10)), (10, Place::Encoded(4096)));
        assert_eq!(extent(&item(2, 0, 4096, 0, 10)), (10, Place::Other));
        assert_eq!(extent(&item(0, 0, 4096, 0, 10)), (0, Place::Other));
        assert_eq!(extent(&item(1, 0, 4096, 0, 10)[..30]), (0, Place::Other));
    }

    #[test]
    fn an_extent_is_held_as_a_whole() {
        let mut bytes = item(1, 0, 4096, 512, 10);
        for (at, value) in [
            (offset_of!(FileExtentItem, disk_num_bytes), 8192_u64),
            (offset_of!(FileExtentItem, ram_bytes), 16384),
        ] {
            bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
        }
        let plain = Backing {
            address: 4096,
            allocated: 8192,
            data_len: 8192,
            from: 512,
            is_written: true,
            is_encoded: false,
        };
        assert_eq!(backing(&bytes), Some(plain));
        bytes[offset_of!(FileExtentItem, compression)] = 3;
        let encoded = Backing {
            data_len: 16384,
            is_encoded: true,
            ..plain
        };
        assert_eq!(backing(&bytes), Some(encoded));
        bytes[offset_of!(FileExtentItem, kind)] = 2;
        assert!(!backing(&bytes).unwrap().is_written);
        assert_eq!(backing(&item(1, 0, 0, 0, 10)), None, "a hole");
        assert_eq!(backing(&item(0, 0, 4096, 0, 10)), None, "data in the tree");
        assert_eq!(backing(&bytes[..40]), None);
    }

    #[test]
    fn names_are_cut_with_care() {
        let mut item = [0; 8].to_vec();
        item.extend([3, 0]);
        item.extend(b"abcd");
        let expected = FileName {
            parent: 300,
            name: b"abc",
        };
        assert_eq!(first_name(INODE_REF, 300, &item), Some(expected));
        assert_eq!(first_name(INODE_REF, 300, &item[..12]), None);
        let far = [300_u64.to_le_bytes().to_vec(), item.clone()].concat();
        assert_eq!(first_name(INODE_EXTREF, 7, &far), Some(expected));
        assert_eq!(first_name(INODE_EXTREF, 7, &far[..7]), None);
    }

    #[test]
    fn another_file_system_has_no_such_tree() {
        let file = std::fs::File::open("/proc/self/stat").unwrap();
        let nothing = |_| unreachable!("there are none");
        assert!(FileExtents::new().read(&file, 256, 1, nothing).is_err());
        let nothing = |_| unreachable!("there are none");
        assert!(file_extents(&file, 256, nothing).is_err());
        assert!(FileExtents::new().name(&file, 256).is_err());
    }
}
