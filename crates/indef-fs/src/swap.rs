//! Active swap files (`/proc/swaps`). The kernel refuses to move them, too (`ETXTBSY`); knowing
//! before saves making a donor, and gives a scan the right reason.

use std::{
    ffi::OsString,
    fs,
    os::unix::{ffi::OsStringExt, fs::MetadataExt},
    path::PathBuf,
    sync::Mutex,
    time::{Duration, Instant},
};

use crate::TargetId;

/// The list is read again after this time.
const FRESH: Duration = Duration::from_secs(1);

static KNOWN: Mutex<Option<(Instant, Vec<TargetId>)>> = Mutex::new(None);

/// Whether the file is an active swap file. One that has become one within the last second may be missed, and all are where
/// `/proc` is missing: then only the kernel's refusal remains.
pub(crate) fn is_swap_file(id: TargetId) -> bool {
    // What was one may have another's numbers by now, on another file system on its device.
    was_swap_file(id) && is_swap_file_now(id)
}

/// The same as of the last second.
fn was_swap_file(id: TargetId) -> bool {
    let mut known = KNOWN
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let list = match &*known {
        Some((when, list)) if when.elapsed() < FRESH => list,
        _ => &known.insert((Instant::now(), read())).1,
    };
    list.contains(&id)
}

/// Whether the file is an active swap file now.
pub(crate) fn is_swap_file_now(id: TargetId) -> bool {
    read().contains(&id)
}

fn read() -> Vec<TargetId> {
    let table = fs::read("/proc/swaps").unwrap_or_default();
    parse(&table)
        .filter_map(|path| fs::metadata(path).ok())
        .map(|status| TargetId {
            dev: status.dev(),
            inode: status.ino(),
        })
        .collect()
}

/// The paths of the lines of type `file`: `PATH file SIZE USED PRIORITY`, after one heading.
fn parse(table: &[u8]) -> impl Iterator<Item = PathBuf> + '_ {
    table
        .split(|byte| *byte == b'\n')
        .skip(1)
        .filter_map(|line| {
            let mut words = line
                .split(|byte| byte.is_ascii_whitespace())
                .filter(|word| !word.is_empty());
            let path = words.next()?;
            (words.next()? == b"file").then(|| {
                let path = crate::mounts::unescape(path);
                // The name of a swap file that was unlinked while in use ends with this mark.
                let bytes = path.into_os_string().into_vec();
                let bytes = bytes.strip_suffix(b" (deleted)").unwrap_or(&bytes);
                PathBuf::from(OsString::from_vec(bytes.to_vec()))
            })
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_count() {
        let table = b"Filename\tType\t\tSize\tUsed\tPriority\n\
            /swap\\040file                         file\t\t1048572\t0\t-2\n\
            /dev/sda2                               partition\t1\t0\t-3\n";
        assert_eq!(
            parse(table).collect::<Vec<_>>(),
            [PathBuf::from("/swap file")]
        );
    }

    #[test]
    fn what_was_a_swap_file_is_none() {
        let id = TargetId { dev: 1, inode: 1 };
        *KNOWN.lock().unwrap() = Some((Instant::now(), vec![id]));
        assert!(was_swap_file(id));
        assert!(!is_swap_file(id));
    }

    #[test]
    fn nothing_is_no_swap_file() {
        assert!(!is_swap_file(TargetId { dev: 0, inode: 0 }));
    }
}
