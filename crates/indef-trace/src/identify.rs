//! From a path to the key by which the kernel knows the file, for traces that only have names.

use std::{
    fs::{self, File},
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::Path,
};

use indef_core::profile::ProfileFile;
use linux_abi::{
    btrfs, fsuuid,
    handle::{self, FileHandle},
};

use crate::tally::{FileKey, FsId, TracedFile};

/// The file, and whether it exists: a regular file at its path, with its inode number if the profile
/// has one. A file that does not exist is known by its path alone.
pub(crate) fn file(file: &ProfileFile) -> (TracedFile, bool) {
    let same = |found: &TracedFile| file.inode.is_none_or(|inode| inode == found.key.inode);
    match at(&file.path).filter(same) {
        Some(found) => (found, true),
        None => {
            let absent = TracedFile {
                key: by_path(&file.path),
                fs: FsId::default(),
                path: Some(file.path.clone()),
            };
            (absent, false)
        }
    }
}

/// The regular file at a path.
fn at(path: &Path) -> Option<TracedFile> {
    // Opening a fifo would wait for its other end.
    if !fs::metadata(path).ok()?.is_file() {
        return None;
    }
    let path = fs::canonicalize(path).ok()?;
    let file = File::open(&path).ok()?;
    let status = file.metadata().ok()?;
    let (generation, subvolume) = match handle::of(&file) {
        Ok(FileHandle::Inode32 { generation, .. } | FileHandle::Xfs64 { generation, .. }) => {
            (generation, 0)
        }
        Ok(FileHandle::Btrfs {
            generation,
            subvolume,
            ..
        }) => (generation, subvolume),
        Err(_) => (0, 0),
    };
    Some(TracedFile {
        key: FileKey {
            dev: status.dev(),
            inode: status.ino(),
            generation,
            subvolume,
        },
        fs: file_system(&file),
        path: Some(path),
    })
}

/// The file system of an open file.
pub(crate) fn file_system(file: &File) -> FsId {
    let uuid = fsuuid::of(file).or_else(|_| btrfs::fsid(file));
    FsId {
        uuid: uuid.unwrap_or_default(),
        magic: rustix::fs::fstatfs(file).map_or(0, |fs| fs.f_type.cast_unsigned()),
    }
}

/// The key of a file of which only the path is known. No file system has device number 0; the inode
/// number is a hash of the path (FNV-1a, which will always give the same).
fn by_path(path: &Path) -> FileKey {
    let bytes = path.as_os_str().as_bytes();
    let hash = bytes.iter().fold(0xCBF2_9CE4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3)
    });
    FileKey {
        dev: 0,
        inode: hash,
        generation: 0,
        subvolume: 0,
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use scratch_fs::{ScratchFs, require};
    use units::Bytes;

    use super::*;
    use crate::resolve::Resolver;

    fn named(path: PathBuf, inode: Option<u64>) -> ProfileFile {
        ProfileFile {
            path,
            dev: None,
            inode,
        }
    }

    #[test]
    fn a_file_that_is_gone_or_replaced_is_known_by_its_path() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let (gone, there) = file(&named(path.clone(), None));
        assert!(!there && gone.key.dev == 0);
        std::fs::write(&path, "x").unwrap();
        let (found, there) = file(&named(path.clone(), None));
        assert!(there && found.key.dev != 0);
        let (other, there) = file(&named(path, Some(found.key.inode + 1)));
        assert!(!there);
        assert_eq!(other.key, gone.key);
        assert!(!file(&named("/dev/null".into(), None)).1);
    }

    /// From path to key and back is the same file, on each file system.
    #[test]
    fn loop_a_path_becomes_what_the_resolver_finds() {
        for kind in ["ext4", "xfs", "btrfs"] {
            let Some(fs) = require(ScratchFs::builder(kind, Bytes::mib(512)).build()) else {
                continue;
            };
            let path = fs.path().join("file");
            std::fs::write(&path, "x").unwrap();
            let (traced, there) = file(&named(path.clone(), None));
            assert!(there, "{kind}");
            let renamed = fs.path().join("renamed");
            std::fs::rename(&path, &renamed).unwrap();
            let located = Resolver::new().find(&traced).unwrap();
            assert_eq!(located.path, Some(renamed), "{kind}");
        }
    }
}
