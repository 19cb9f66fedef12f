//! `indef demo --zns`: the whole story in a guest, and nothing left behind.

mod common;

use std::process::Command;

use common::{Ran, indef, proven};
use guest::{Cache, Kernel, Release, require};

#[test]
fn vm_demo_zns_proves_itself() {
    // The kernel is fetched once, for all tests.
    let cache = Cache::of_project();
    if require(Kernel::fetch(Release::Linux6_12, &cache)).is_none()
        || !["qemu-system-x86_64", "mkfs.f2fs", "fsck.f2fs"]
            .iter()
            .all(|program| scratch_fs::require_program(program))
    {
        return;
    }
    let temporary = tempfile::tempdir().unwrap();
    let ran: Ran = indef()
        .args(["demo", "--zns", "--json", "--size", "16MiB"])
        .env("INDEF_LAB", cache.folder())
        .env("TMPDIR", temporary.path())
        .output()
        .unwrap()
        .into();
    let document = proven(&ran, &["read_ns_before", "read_ns_after"]);
    let device = &document["device"];
    assert!(
        device["extents_after"].as_u64() < device["extents_before"].as_u64(),
        "{document}"
    );
    assert!(
        std::fs::read_dir(temporary.path())
            .unwrap()
            .next()
            .is_none(),
        "something is left"
    );
}

/// Without QEMU it says what to install.
#[test]
fn demo_zns_says_what_is_missing() {
    let empty = tempfile::tempdir().unwrap();
    let ran: Ran = Command::new(env!("CARGO_BIN_EXE_indef"))
        .args(["demo", "--zns"])
        .env("PATH", empty.path())
        .env("INDEF_LAB", empty.path())
        .output()
        .unwrap()
        .into();
    assert_eq!(ran.status, 1, "{ran:?}");
    assert!(ran.err.contains("qemu-system-x86"), "{ran:?}");
    assert!(ran.err.contains("apt-get install"), "{ran:?}");
}
