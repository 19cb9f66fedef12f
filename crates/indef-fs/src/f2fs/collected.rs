//! What F2FS's garbage collection has moved by itself.
//!
//! On zones the collector is at work whenever less than 60 % of the sections are free (`gc_no_zoned_gc_percent`), however
//! busy the file system is (fs/f2fs/gc.c, `gc_thread_func`, and f2fs.h, `is_idle`, v6.12). It moves blocks in the order
//! in which they lie, section by section, beside whatever else is written to the log. So it cuts files, those that are
//! being moved, too.

use std::path::Path;

use super::volume::number;
use crate::{Filesystem, FsKind, device::f2fs_folder};

/// Blocks that garbage collection has moved since the file system was mounted; `None` where nobody tells: on others than
/// F2FS, and where the kernel was built without `CONFIG_F2FS_STAT_FS`.
#[must_use]
pub fn blocks_collected(filesystem: &Filesystem) -> Option<u64> {
    match filesystem.kind {
        FsKind::F2fs => told(&f2fs_folder(filesystem)?),
        _ => None,
    }
}

fn told(folder: &Path) -> Option<u64> {
    let [foreground, background] =
        ["moved_blocks_foreground", "moved_blocks_background"].map(|name| number(folder, name));
    foreground?.checked_add(background?)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn both_kinds_of_collection_count() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(told(folder.path()), None);
        fs::write(folder.path().join("moved_blocks_foreground"), "40\n").unwrap();
        assert_eq!(told(folder.path()), None);
        fs::write(folder.path().join("moved_blocks_background"), "2\n").unwrap();
        assert_eq!(told(folder.path()), Some(42));
    }
}
