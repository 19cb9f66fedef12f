//! The extents of many files at once, from a subvolume's tree (`BTRFS_IOC_TREE_SEARCH_V2`; since Linux
//! 3.16). Data without a place is not in it, and of a file's inode it has the state of some time before.
//! Needs `CAP_SYS_ADMIN`.

use std::{io, mem::offset_of, os::fd::AsFd};

use super::{EXTENT_DATA, FileExtentItem, SearchArgs, SearchKey, disk_u64_at};

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
    /// inode `from` on. `visit` gets the extents among them in the order of the tree: by inode, then by
    /// offset. Returns the inode of the last item: all items of those before it were looked at.
    ///
    /// # Errors
    ///
    /// `EPERM` without `CAP_SYS_ADMIN`, `ENOTTY` where it is not Btrfs.
    pub fn read(
        &mut self,
        fd: impl AsFd,
        from: u64,
        items: u32,
        mut visit: impl FnMut(FileExtent),
    ) -> io::Result<Option<u64>> {
        let key = SearchKey {
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
            if found.kind == EXTENT_DATA {
                let (len, place) = extent(found.item);
                visit(FileExtent {
                    inode: found.objectid,
                    offset: found.offset,
                    len,
                    place,
                });
            }
        }
        Ok(last)
    }
}

impl Default for FileExtents {
    fn default() -> Self {
        Self::new()
    }
}

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
    fn another_file_system_has_no_such_tree() {
        let file = std::fs::File::open("/proc/self/stat").unwrap();
        let nothing = |_| unreachable!("there are none");
        assert!(FileExtents::new().read(&file, 256, 1, nothing).is_err());
    }
}
