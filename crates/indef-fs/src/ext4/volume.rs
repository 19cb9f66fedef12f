//! Whether a mounted ext4 file system can be worked on at all: what it says of its journal.

use std::{fs, path::Path};

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

/// # Errors
///
/// [`SkipReason::NoJournal`]: mapping and data of a moved block could reach the device in any
/// order. [`SkipReason::Unsupported`] with `data=journal`.
pub(super) fn admit(fs: &Filesystem) -> Result<(), Refusal> {
    if fs.has_mount_option("data=journal") {
        return Err(SkipReason::Unsupported.into());
    }
    let device = BlockDevice::by_number(fs.dev);
    match device.map_or(Journal::None, |device| journal(&device.name())) {
        Journal::Ordered => Ok(()),
        Journal::Data => Err(SkipReason::Unsupported.into()),
        Journal::None => Err(SkipReason::NoJournal.into()),
    }
}

/// Both files are readable without root. The first lists every option, defaults included, and a
/// data mode only with a journal; the second names the journal's thread.
fn journal(name: &str) -> Journal {
    if let Ok(options) = fs::read_to_string(Path::new("/proc/fs/ext4").join(name).join("options")) {
        return journal_from_options(&options);
    }
    let task = Path::new("/sys/fs/ext4").join(name).join("journal_task");
    match fs::read_to_string(task) {
        Ok(task) if task.trim().parse::<u32>().is_ok() => Journal::Ordered,
        _ => Journal::None,
    }
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
}
