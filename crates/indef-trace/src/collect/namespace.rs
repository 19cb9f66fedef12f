//! The PID namespace that this process is in: it decides which process a number means.

use std::{fs, os::unix::fs::MetadataExt};

use super::error::{OWN_NAMESPACE, Step, TraceError};

/// The inode number of the first namespace (`PID_NS_INIT_INO` in include/uapi/linux/nsfs.h, v6.18;
/// the same since v3.8).
const FIRST: u64 = 0xEFFF_FFFC;

/// The namespace of this process, as [`super::contract::Config`] names it: its inode number, or 0
/// for the first one.
pub(super) fn own() -> Result<u32, TraceError> {
    // Where it is unknown, the collector cannot leave its own accesses out.
    let status = fs::metadata(OWN_NAMESPACE).map_err(|source| TraceError::System {
        doing: Step::LookUpNamespace,
        source,
    })?;
    Ok(match status.ino() {
        FIRST => 0,
        other => other as u32,
    })
}

/// Whether `/proc` shows the numbers of this process's namespace.
pub(super) fn is_of_proc() -> bool {
    fs::read_to_string("/proc/self/status").is_ok_and(|status| has_one_number(&status))
}

/// `NSpid` lists the numbers of a process from the namespace of `/proc` down to its own.
fn has_one_number(status: &str) -> bool {
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    numbers.is_some_and(|numbers| numbers.split_whitespace().count() == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_foreign_proc_shows_several_numbers() {
        assert!(has_one_number("Name:\tindef\nNSpid:\t2\nNSpgid:\t1\n"));
        assert!(!has_one_number("Name:\tindef\nNSpid:\t14532\t2\n"));
        assert!(!has_one_number(""));
    }
}
