//! `indef demo --zns`, which runs this crate's program: the whole demo in a guest, without
//! leftovers.

#[path = "vm_demo/shared.rs"]
mod shared;

use std::{path::PathBuf, process::Command, sync::OnceLock};

use guest::{Cache, Kernel, Release, require};
use serde_json::Value;
use tempfile::TempDir;

/// indef, which finds indef-lab in its own folder, with a state directory for this test program
/// alone.
fn indef() -> Command {
    static INDEF: OnceLock<(PathBuf, TempDir)> = OnceLock::new();
    let (indef, state) = INDEF.get_or_init(|| {
        let built = source_tree::binary_for_test("indef").unwrap();
        let lab = PathBuf::from(env!("CARGO_BIN_EXE_indef-lab"));
        assert_eq!(built.parent(), lab.parent());
        (built, tempfile::tempdir().unwrap())
    });
    let mut command = Command::new(indef);
    command
        .env("STATE_DIRECTORY", state.path())
        .env("LC_ALL", "C")
        .env_remove("NO_COLOR");
    command
}

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
    let ran = indef()
        .args(["demo", "--zns", "--json", "--size", "16MiB"])
        .env("INDEF_LAB", cache.folder())
        .env("TMPDIR", temporary.path())
        .output()
        .unwrap();
    assert_eq!(ran.status.code(), Some(0), "{ran:?}");
    let document: Value = serde_json::from_slice(&ran.stdout).unwrap();
    assert_eq!(document["contents_equal"], true, "{document}");
    assert_eq!(document["fsck_clean"], true, "{document}");
    assert!(
        document["totals"]["files_moved"].as_u64().unwrap() >= 3,
        "{document}"
    );
    for name in ["read_ns_before", "read_ns_after"] {
        assert!(document[name].as_u64().unwrap() > 0, "{name}: {document}");
    }
    let device = &document["device"];
    assert!(
        device["extents_after"].as_u64() < device["extents_before"].as_u64(),
        "{document}"
    );
    let reading = ["read_ns_before", "read_ns_after"].map(|name| device[name].as_u64().unwrap());
    assert!(
        reading[1] > 0 && reading[1] * 4 < reading[0] * 3,
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

/// Without QEMU the error names the package to install.
#[test]
fn demo_zns_says_what_is_missing() {
    let empty = tempfile::tempdir().unwrap();
    let ran = indef()
        .args(["demo", "--zns"])
        .env("PATH", empty.path())
        .env("INDEF_LAB", empty.path())
        .output()
        .unwrap();
    assert_eq!(ran.status.code(), Some(1), "{ran:?}");
    let said = String::from_utf8(ran.stderr).unwrap();
    assert!(said.contains("qemu-system-x86"), "{said}");
    assert!(said.contains("apt-get install"), "{said}");
}
