//! Tests that count what is cached, what is read of the device, or the pieces of what was written, on a machine where others
//! work, too.

use std::{
    fs,
    panic::{self, AssertUnwindSafe},
};

/// Runs a test of what is cached, or read of the device. If it fails and the kernel read pages again that had been reclaimed,
/// which some hosts do within a second, or somebody dropped the caches of the whole machine, as benchmarks do, it saw the work
/// of others: it is run again.
///
/// # Panics
///
/// If the test fails undisturbed, or was disturbed each of five times.
pub fn undisturbed(test: impl Fn()) {
    for _ in 0..5 {
        let before = disturbances();
        let Err(failure) = panic::catch_unwind(AssertUnwindSafe(&test)) else {
            return;
        };
        if disturbances() == before {
            panic::resume_unwind(failure);
        }
        println!("pages were reclaimed and read again meanwhile, or dropped; once more");
    }
    panic!("pages were reclaimed and read again, or dropped, in each of five tries");
}

/// Pages of files that were read again after the kernel had reclaimed them, and how often caches were dropped.
fn disturbances() -> [u64; 3] {
    // The counters of each processor are added to the sum only now and then, and when this is read.
    let _ = fs::read("/proc/sys/vm/stat_refresh");
    let counters = fs::read_to_string("/proc/vmstat").unwrap_or_default();
    ["workingset_refault_file ", "drop_pagecache ", "drop_slab "].map(|name| {
        let mut lines = counters.lines();
        let value = lines.find_map(|line| line.strip_prefix(name));
        value
            .and_then(|value| value.trim().parse().ok())
            .unwrap_or(0)
    })
}

/// Runs a test that returns whether what it wrote lies in as few pieces as where nobody else works. Btrfs gives data its place when
/// it is written back. Whoever does that in between cuts it, and the kernel does when much is dirty on the machine: but not each
/// time.
///
/// # Panics
///
/// If it does not each of three times.
pub fn uncut(test: impl Fn() -> bool) {
    let is_so = (0..3).any(|_| test());
    assert!(is_so, "it lies in many pieces each of three times");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_that_nobody_disturbed_is_one() {
        let failed = panic::catch_unwind(|| undisturbed(|| panic!("as it was told")));
        // On a busy machine it may have been disturbed each time.
        assert!(failed.is_err());
        undisturbed(|| ());
    }
}
