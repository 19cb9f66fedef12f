//! A mounted F2FS: its superblock, which is read once, and what the kernel tells of it in sysfs and procfs.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use units::Bytes;

use super::{BLOCK, Superblock};
use crate::{
    Filesystem, FsKind,
    device::{f2fs_folder, f2fs_superblock},
};

/// Where the superblock cannot be read: a section of one segment, as mkfs.f2fs makes them where there are no zones.
const SECTION: Bytes = Bytes::mib(2);

/// What stays as it is while the file system is mounted, and where to ask for the rest.
#[derive(Debug)]
pub(super) struct Volume {
    /// `None` where it cannot be read.
    pub(super) superblock: Option<Superblock>,
    /// Its folder in sysfs (Documentation/ABI/testing/sysfs-fs-f2fs, v6.12); `None` where it has none.
    sysfs: Option<PathBuf>,
    /// The kernel's list of what is valid in each segment.
    segments: Option<PathBuf>,
    /// It writes to holes of old segments when free sections are short (it is not mounted `mode=lfs`).
    pub(super) fills_holes: bool,
}

impl Volume {
    pub(super) fn of(fs: &Filesystem) -> Self {
        let is_one = fs.kind == FsKind::F2fs;
        let sysfs = is_one.then(|| f2fs_folder(fs)).flatten();
        let name = sysfs.as_ref().and_then(|folder| folder.file_name());
        let segments = name.map(|name| Path::new("/proc/fs/f2fs").join(name).join("segment_info"));
        Self {
            superblock: is_one.then(|| f2fs_superblock(fs)).flatten(),
            segments,
            sysfs,
            fills_holes: !fs.has_mount_option("mode=lfs"),
        }
    }

    /// The size of a section, at whose end a log may go on elsewhere.
    pub(super) fn section(&self) -> Bytes {
        let found = self.superblock.as_ref();
        found.map_or(SECTION, |found| found.section)
    }

    /// The segments of a section.
    pub(super) fn segments_per_section(&self) -> u64 {
        let found = self.superblock.as_ref();
        found.map_or(1, |found| found.segments_per_section.max(1).into())
    }

    /// The blocks of a section that can be written: a zone may have fewer than it has addresses.
    pub(super) fn usable_blocks(&self) -> u64 {
        let unusable = self.number("unusable_blocks_per_sec");
        self.blocks_per_section()
            .saturating_sub(unusable.unwrap_or(0))
    }

    /// The segments of a section that have such blocks.
    pub(super) fn usable_segments(&self) -> u64 {
        let segments = self.segments_per_section();
        let of_segment = self.blocks_per_section() / segments;
        let usable = self.usable_blocks().div_ceil(of_segment.max(1));
        usable.min(segments)
    }

    fn blocks_per_section(&self) -> u64 {
        let block = self.superblock.as_ref().map_or(BLOCK, |found| found.block);
        self.section().get() / block.get().max(1)
    }

    /// A number that it tells in sysfs; `None` where it does not.
    pub(super) fn number(&self, name: &str) -> Option<u64> {
        number(self.sysfs.as_ref()?, name)
    }

    /// The valid blocks of each segment (fs/f2fs/sysfs.c, `segment_info_seq_show`, v6.12); `None` where it does not tell.
    pub(super) fn valid_blocks(&self) -> io::Result<Option<Vec<u64>>> {
        let Some(file) = &self.segments else {
            return Ok(None);
        };
        match fs::read_to_string(file) {
            Ok(text) => Ok(parse(&text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// A number in a folder of sysfs; `None` where it is not told.
pub(super) fn number(folder: &Path, name: &str) -> Option<u64> {
    let text = fs::read_to_string(folder.join(name)).ok()?;
    text.trim().parse().ok()
}

/// Lines of ten segments: the number of the first, and the type and the valid blocks of each (`0  3|0  3|17 …`), after
/// two lines of heading.
fn parse(text: &str) -> Option<Vec<u64>> {
    let mut segments = Vec::new();
    for line in text.lines().skip(2) {
        let mut words = line.split_whitespace();
        let first: usize = words.next()?.parse().ok()?;
        if first != segments.len() {
            return None;
        }
        for word in words {
            segments.push(word.split_once('|')?.1.parse().ok()?);
        }
    }
    (!segments.is_empty()).then_some(segments)
}

#[cfg(test)]
pub(super) mod tests {
    use tempfile::TempDir;

    use super::*;

    /// What a kernel would tell.
    pub(crate) struct Told(TempDir);

    impl Default for Told {
        fn default() -> Self {
            Self(tempfile::tempdir().unwrap())
        }
    }

    impl Told {
        pub(crate) fn number(&self, name: &str, number: u64) {
            fs::write(self.0.path().join(name), format!("{number}\n")).unwrap();
        }

        /// As the kernel writes it.
        pub(crate) fn segments(&self, valid: &[u64]) {
            let mut text = String::from(HEADING);
            for (line, segments) in valid.chunks(10).enumerate() {
                let words = segments.iter().map(|blocks| format!("0|{blocks:<3}"));
                let words: Vec<_> = words.collect();
                text += &format!("{:<10}{}\n", line * 10, words.join(" "));
            }
            fs::write(self.0.path().join("segment_info"), text).unwrap();
        }

        pub(crate) fn forget_segments(&self) {
            fs::remove_file(self.0.path().join("segment_info")).unwrap();
        }

        /// With so many segments of 2 MiB in a section.
        pub(crate) fn volume(&self, segments_per_section: u32) -> Volume {
            Volume {
                superblock: Some(Superblock {
                    section: Bytes::mib(2 * u64::from(segments_per_section)),
                    segments_per_section,
                    block: Bytes::kib(4),
                    main: 1024,
                    members: Vec::new(),
                }),
                sysfs: Some(self.0.path().to_owned()),
                segments: Some(self.0.path().join("segment_info")),
                fills_holes: true,
            }
        }
    }

    const HEADING: &str = "format: segment_type|valid_blocks\n\
        segment_type(0:HD, 1:WD, 2:CD, 3:HN, 4:WN, 5:CN)\n";

    #[test]
    fn segments_are_read() {
        let lines = "0         3|0   4|512 1|7   0|0   0|0   0|0   0|0   0|1   0|0   0|0  \n\
            10        0|0   0|2  \n";
        let segments = [0, 512, 7, 0, 0, 0, 0, 1, 0, 0, 0, 2];
        assert_eq!(parse(&format!("{HEADING}{lines}")).unwrap(), segments);
        for broken in [
            "",
            "a\nb\n",
            "a\nb\n10 0|0\n",
            "a\nb\n0 0|x\n",
            "a\nb\n0 0\n",
        ] {
            assert_eq!(parse(broken), None, "{broken:?}");
        }
        let told = Told::default();
        assert_eq!(told.volume(1).valid_blocks().unwrap(), None);
        told.segments(&segments);
        assert_eq!(told.volume(1).valid_blocks().unwrap().unwrap(), segments);
    }
}
