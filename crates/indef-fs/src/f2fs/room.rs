//! Whether F2FS has whole segments for what it moves.
//!
//! `F2FS_IOC_DEFRAGMENT` refuses only where no more free sections than the reserve would be left
//! (fs/f2fs/file.c, `f2fs_defragment_range`, v6.12). From about twice as many on F2FS has its logs go on in
//! old segments, and fill their holes, when their own are full (segment.c, `f2fs_need_SSR`). What is moved then
//! lies in as many pieces as the holes are, which may be more than before. With `mode=lfs`, as on zones, it fills none, but
//! collects garbage in the midst of a move when free sections are short (`f2fs_balance_fs`), and moves blocks of the same
//! files. (What its own thread collects meanwhile is another matter: [`blocks_collected`](super::blocks_collected).)

use std::path::PathBuf;

use super::number;
use crate::{
    Filesystem, FsKind,
    device::{f2fs_folder, f2fs_superblock},
};

/// With `mode=lfs`: sections beside the reserve for what is dirty of data, nodes and directories (`__get_secs_required`,
/// fs/f2fs/segment.h, v6.12). With no more free ones F2FS collects garbage.
const DIRTY_SECTIONS: u64 = 4;

/// The free segments of a file system, as it tells of them in sysfs (Documentation/ABI/testing/sysfs-fs-f2fs, v6.12).
#[derive(Debug)]
pub(super) struct Room {
    folder: Option<PathBuf>,
    fills_holes: bool,
    segments_per_section: u64,
}

impl Room {
    pub(super) fn of(fs: &Filesystem) -> Self {
        let is_one = fs.kind == FsKind::F2fs;
        Self {
            folder: is_one.then(|| f2fs_folder(fs)).flatten(),
            fills_holes: !fs.has_mount_option("mode=lfs"),
            // One, as mkfs.f2fs makes them where there are no zones.
            segments_per_section: f2fs_superblock(fs)
                .map_or(1, |found| found.segments_per_section.into()),
        }
    }

    /// Whether moved data would go into holes, or garbage be collected beside it; `false` where that cannot be seen.
    pub(super) fn is_short(&self) -> bool {
        let Some(free) = self.number("free_segments") else {
            return false;
        };
        let Some(sections) = self.number("min_ssr_sections") else {
            return false;
        };
        let segments = |sections: u64| sections.saturating_mul(self.segments_per_section);
        // Kernels before 6.12 do not tell of the reserve. Where nobody has set the other number, they are the same.
        let reserve = self
            .number("reserved_segments")
            .unwrap_or(segments(sections));
        let more = if self.fills_holes {
            sections
        } else {
            DIRTY_SECTIONS
        };
        free <= segments(more).saturating_add(reserve)
    }

    fn number(&self, name: &str) -> Option<u64> {
        number(self.folder.as_ref()?, name)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn room_is_short_from_where_f2fs_fills_holes() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, number: u64| {
            fs::write(folder.path().join(name), format!("{number}\n")).unwrap();
        };
        let mut room = Room {
            folder: Some(folder.path().to_owned()),
            fills_holes: true,
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
        // Twice the 20 sections, or four of them.
        room.segments_per_section = 2;
        assert!(room.is_short());
        room.fills_holes = false;
        assert!(!room.is_short());
        write("free_segments", 38);
        assert!(room.is_short());
        room.folder = None;
        assert!(!room.is_short());
    }
}
