//! Whether a mounted ext4 file system can be worked on at all, by what is known of its journal and
//! of its features.

use std::{
    fs::{self, File},
    os::unix::fs::FileExt,
    path::Path,
};

use indef_core::SkipReason;

use crate::{Filesystem, Refusal, device::BlockDevice};

/// How file data and the journal go together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Journal {
    /// Data is on the device before the metadata that points at it, at least where the kernel is
    /// told so, as it is for moved blocks.
    Ordered,
    /// Data goes through the journal itself, which the kernel cannot combine with moving.
    Data,
    /// There is none, or nothing says that there is one.
    None,
}

/// The superblock's place, `s_magic`, and its sets of features (`struct ext4_super_block`,
/// fs/ext4/ext4.h, v6.18).
const SUPERBLOCK: u64 = 1024;
const MAGIC_AT: usize = 0x38;
const MAGIC: u16 = 0xEF53;
const COMPATIBLE_AT: usize = 0x5C;
const FAST_COMMIT: u32 = 0x400;
const READ_ONLY_COMPATIBLE_AT: usize = 0x64;
const BIGALLOC: u32 = 0x200;

/// Features that stand in the way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Features {
    bigalloc: bool,
    fast_commit: bool,
}

impl Features {
    /// The features of the file system on a device, which only root may read. Other users find out
    /// about `bigalloc` when the first file is moved, and about `fast_commit` where the kernel
    /// lists it among the mount options (under the name of the one that forces it; before 6.3 that
    /// stands for another option).
    fn of(device: &BlockDevice, fs: &Filesystem) -> Self {
        let mut superblock = [0; 1024];
        let read = File::open(&device.path)
            .and_then(|file| file.read_exact_at(&mut superblock, SUPERBLOCK))
            .ok()
            .and_then(|()| Self::parse(&superblock));
        read.unwrap_or_else(|| Self {
            fast_commit: fs.kernel_at_least(6, 3)
                && options(&device.name())
                    .is_some_and(|options| options.lines().any(|line| line == "fc_debug_force")),
            ..Self::default()
        })
    }

    fn parse(superblock: &[u8; 1024]) -> Option<Self> {
        let magic = [superblock[MAGIC_AT], superblock[MAGIC_AT + 1]];
        let word = |at: usize| -> Option<u32> {
            let bytes = superblock.get(at..at + 4)?;
            Some(u32::from_le_bytes(bytes.try_into().ok()?))
        };
        (u16::from_le_bytes(magic) == MAGIC).then_some(Self {
            bigalloc: word(READ_ONLY_COMPATIBLE_AT)? & BIGALLOC != 0,
            fast_commit: word(COMPATIBLE_AT)? & FAST_COMMIT != 0,
        })
    }
}

/// # Errors
///
/// [`SkipReason::NoJournal`]: mapping and data of a moved block could reach the device in any
/// order. [`SkipReason::Unsupported`] with `data=journal` or `bigalloc`.
/// [`SkipReason::FastCommit`]: until Linux 7.0 a fast commit does not know of moved blocks, and its
/// replay could undo a move without undoing the writes after it.
pub(super) fn admit(fs: &Filesystem) -> Result<(), Refusal> {
    if fs.has_mount_option("data=journal") {
        return Err(SkipReason::Unsupported.into());
    }
    let device = BlockDevice::by_number(fs.dev);
    let features = device
        .as_ref()
        .map(|device| Features::of(device, fs))
        .unwrap_or_default();
    if features.bigalloc {
        return Err(SkipReason::Unsupported.into());
    }
    if features.fast_commit && !fs.kernel_at_least(7, 0) {
        return Err(SkipReason::FastCommit.into());
    }
    match device.map_or(Journal::None, |device| journal(&device.name())) {
        Journal::Ordered => Ok(()),
        Journal::Data => Err(SkipReason::Unsupported.into()),
        Journal::None => Err(SkipReason::NoJournal.into()),
    }
}

/// Both files are readable without root. The first lists every option, defaults included, and a
/// data mode only with a journal; the second names the journal's thread.
fn journal(name: &str) -> Journal {
    if let Some(options) = options(name) {
        return journal_from_options(&options);
    }
    let task = Path::new("/sys/fs/ext4").join(name).join("journal_task");
    match fs::read_to_string(task) {
        Ok(task) if task.trim().parse::<u32>().is_ok() => Journal::Ordered,
        _ => Journal::None,
    }
}

fn options(name: &str) -> Option<String> {
    fs::read_to_string(Path::new("/proc/fs/ext4").join(name).join("options")).ok()
}

fn journal_from_options(options: &str) -> Journal {
    let mode = options
        .lines()
        .find_map(|line| line.trim().strip_prefix("data="));
    match mode {
        Some("journal") => Journal::Data,
        Some(_) => Journal::Ordered,
        None => Journal::None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_data_mode_tells_of_a_journal() {
        for (options, journal) in [
            ("rw\ndelalloc\ndata=ordered\ncommit=5\n", Journal::Ordered),
            ("rw\ndata=writeback\n", Journal::Ordered),
            ("rw\ndata=journal\n", Journal::Data),
            ("rw\nnojournal_checksum\n", Journal::None),
            ("", Journal::None),
        ] {
            assert_eq!(journal_from_options(options), journal, "{options:?}");
        }
    }

    #[test]
    fn features_are_where_the_kernel_has_them() {
        let mut superblock = [0; 1024];
        assert_eq!(Features::parse(&superblock), None);
        superblock[0x38..0x3A].copy_from_slice(&0xEF53_u16.to_le_bytes());
        assert_eq!(Features::parse(&superblock), Some(Features::default()));
        superblock[0x5C..0x60].copy_from_slice(&0x43C_u32.to_le_bytes());
        superblock[0x64..0x68].copy_from_slice(&0x246B_u32.to_le_bytes());
        let found = Features::parse(&superblock).unwrap();
        assert!(found.fast_commit && !found.bigalloc);
        superblock[0x64..0x68].copy_from_slice(&0x266B_u32.to_le_bytes());
        assert!(Features::parse(&superblock).unwrap().bigalloc);
    }
}
