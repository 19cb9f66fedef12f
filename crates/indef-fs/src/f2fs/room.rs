//! Whether F2FS has whole segments for what it moves.
//!
//! `F2FS_IOC_DEFRAGMENT` refuses only where no more free sections than the reserve would be left
//! (fs/f2fs/file.c, `f2fs_defragment_range`, v6.12). From about twice as many on F2FS has its logs go on in
//! old segments, and fill their holes, when their own are full (segment.c, `f2fs_need_SSR`; not with
//! `mode=lfs`). What is moved then lies in as many pieces as the holes are, which may be more than before.

use std::{fs, path::PathBuf};

use crate::{
    Filesystem, FsKind,
    device::{f2fs_folder, f2fs_superblock},
};

/// The free segments of a file system, as it tells of them in sysfs (Documentation/ABI/testing/sysfs-fs-f2fs, v6.12).
#[derive(Debug)]
pub(super) struct Room {
    /// `None`: it fills no holes.
    folder: Option<PathBuf>,
    segments_per_section: u64,
}

impl Room {
    pub(super) fn of(fs: &Filesystem) -> Self {
        let fills_holes = fs.kind == FsKind::F2fs && !fs.has_mount_option("mode=lfs");
        Self {
            folder: fills_holes.then(|| f2fs_folder(fs)).flatten(),
            // One, as mkfs.f2fs makes them where there are no zones.
            segments_per_section: f2fs_superblock(fs)
                .map_or(1, |found| found.segments_per_section.into()),
        }
    }

    /// Whether moved data would go into holes; `false` where that cannot be seen.
    pub(super) fn is_short(&self) -> bool {
        let Some(free) = self.number("free_segments") else {
            return false;
        };
        let Some(sections) = self.number("min_ssr_sections") else {
            return false;
        };
        let more = sections.saturating_mul(self.segments_per_section);
        // Kernels before 6.12 do not tell of the reserve. Where nobody has set the other number, they are the same.
        let reserve = self.number("reserved_segments").unwrap_or(more);
        free <= more.saturating_add(reserve)
    }

    fn number(&self, name: &str) -> Option<u64> {
        let text = fs::read_to_string(self.folder.as_ref()?.join(name)).ok()?;
        text.trim().parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_short_from_where_f2fs_fills_holes() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, number: u64| {
            fs::write(folder.path().join(name), format!("{number}\n")).unwrap();
        };
        let mut room = Room {
            folder: Some(folder.path().to_owned()),
            segments_per_section: 1,
        };
        // Nothing is known.
        assert!(!room.is_short());
        write("free_segments", 40);
        assert!(!room.is_short());
        write("min_ssr_sections", 20);
        assert!(room.is_short());
        write("free_segments", 41);
        assert!(!room.is_short());
        write("reserved_segments", 30);
        assert!(room.is_short());
        write("free_segments", 51);
        assert!(!room.is_short());
        room.segments_per_section = 2;
        assert!(room.is_short());
        room.folder = None;
        assert!(!room.is_short());
    }
}
