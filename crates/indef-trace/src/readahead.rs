//! How far the kernel reads ahead on a file system: `read_ahead_kb` of its backing device
//! (Documentation/ABI/testing/sysfs-class-bdi, v6.18).

use std::{
    collections::HashMap,
    fmt::Write as _,
    fs::{self, File},
    os::unix::fs::MetadataExt,
    path::Path,
};

use indef_core::access::READAHEAD;
use rustix::fs::{major, minor};
use units::Bytes;

use crate::{FsId, TracedFile, identify};

const BTRFS_MAGIC: u64 = 0x9123_683E;

/// The read-ahead of file systems, each asked once.
#[derive(Debug, Default)]
pub struct ReadAhead {
    known: HashMap<u32, Bytes>,
}

impl ReadAhead {
    /// The read-ahead of the file system with this device number (as the kernel has it).
    pub(crate) fn of(&mut self, sb_dev: u32, fs: &FsId) -> Bytes {
        let ask = || read(Path::new("/sys"), sb_dev, fs).unwrap_or(READAHEAD);
        *self.known.entry(sb_dev).or_insert_with(ask)
    }

    /// The read-ahead of the file system that a file is on.
    pub(crate) fn of_traced(&mut self, file: &TracedFile) -> Bytes {
        self.of(kernel_number(file.key.dev), &file.fs)
    }

    /// The same for the regular file at a path; what is usual, if there is none.
    pub fn of_path(&mut self, path: &Path) -> Bytes {
        let Some(status) = fs::metadata(path).ok().filter(fs::Metadata::is_file) else {
            return READAHEAD;
        };
        let dev = kernel_number(status.dev());
        if let Some(known) = self.known.get(&dev) {
            return *known;
        }
        let fs =
            File::open(path).map_or_else(|_| FsId::default(), |file| identify::file_system(&file));
        self.of(dev, &fs)
    }
}

/// A device number as the kernel has it.
fn kernel_number(dev: u64) -> u32 {
    major(dev) << 20 | minor(dev)
}

fn read(sys: &Path, sb_dev: u32, fs: &FsId) -> Option<Bytes> {
    let bdi = match fs.magic {
        // Its backing device has a name of its own.
        BTRFS_MAGIC => format!("fs/btrfs/{}/bdi", hyphenated(&fs.uuid)),
        _ => format!("class/bdi/{}:{}", sb_dev >> 20, sb_dev & 0xf_ffff),
    };
    let text = fs::read_to_string(sys.join(bdi).join("read_ahead_kb")).ok()?;
    let kib: u64 = text.trim().parse().ok()?;
    Some(Bytes(kib.checked_mul(1024)?))
}

/// A UUID as the kernel writes it.
fn hyphenated(uuid: &[u8; 16]) -> String {
    let mut text = String::with_capacity(36);
    for (at, byte) in uuid.iter().enumerate() {
        if matches!(at, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        write!(text, "{byte:02x}").expect("a string has room");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_its_place() {
        let sys = tempfile::tempdir().unwrap();
        let uuid = *b"\x01\x23\x45\x67\x89\xab\xcd\xef\0\x01\x02\x03\x04\x05\x06\x07";
        for (folder, kib) in [
            ("class/bdi/7:3", "512\n"),
            (
                "fs/btrfs/01234567-89ab-cdef-0001-020304050607/bdi",
                "4096\n",
            ),
            ("class/bdi/8:0", "much\n"),
        ] {
            let folder = sys.path().join(folder);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("read_ahead_kb"), kib).unwrap();
        }
        let fs_id = |magic| FsId { uuid, magic };
        let on = |dev, magic| read(sys.path(), dev, &fs_id(magic));
        assert_eq!(on(7 << 20 | 3, 0xEF53), Some(Bytes::kib(512)));
        assert_eq!(on(99, BTRFS_MAGIC), Some(Bytes::mib(4)));
        assert_eq!(on(8 << 20, 0xEF53), None);
        assert_eq!(on(9 << 20, 0xEF53), None);
    }
}
