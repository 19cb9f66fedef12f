//! `indef run` on F2FS on a zoned SSD, in guests: with the patched kernel the device copies, with
//! the stock one indef falls back, and reports that. Contents stay, fsck is clean, and the device's
//! own counters agree with indef's report.

mod zoned;

use std::fs;

use guest::{Guest, LabError, Patched, Release, Zns, ZnsDevice, ZnsOptions};
use serde_json::Value;
use zoned::json;

const SCRIPT: &str = include_str!("scripts/offload.sh");
/// Files and their blocks.
const FILES: [(char, u32); 3] = [('a', 48), ('b', 48 * 15), ('c', 512)];

fn file<'a>(document: &'a Value, name: &str) -> &'a Value {
    let files = document["files"].as_array().unwrap();
    let named = |file: &&Value| file["path"].as_str().unwrap().ends_with(name);
    files.iter().find(named).unwrap()
}

fn bytes(document: &Value, name: &str) -> u64 {
    document["totals"][name].as_u64().unwrap()
}

/// Run it, and return the resulting folder; `None` where this machine cannot.
fn run(guest: Result<Guest, LabError>, zns: &Zns, engine: &str) -> Option<tempfile::TempDir> {
    zoned::run(guest, zns, &FILES, SCRIPT, &[engine])
}

/// The device copies all of it, and fragmented files become contiguous.
fn device_copies(release: Release, device: ZnsDevice) {
    let zns = Zns::new(ZnsOptions {
        device,
        ..ZnsOptions::default()
    })
    .unwrap();
    let guest = Guest::with(release).and_then(|guest| guest.with_patched(Patched::F2fs));
    let Some(folder) = run(guest, &zns, "auto") else {
        return;
    };
    let path = |name| folder.path().join(name);
    let (done, after) = (json(&path("run.json")), json(&path("after.json")));
    println!("{}", done["totals"]);
    for name in ["/a", "/b", "/small1", "/small16"] {
        let moved = file(&done, name);
        assert_eq!(moved["engine"], "f2fs-offload", "{moved}");
        assert_eq!(moved["status"], "moved", "{moved}");
        // A section may end within one of them.
        assert!(moved["extents_after"].as_u64() <= Some(2), "{moved}");
        assert_eq!(file(&after, name)["extents"], moved["extents_after"]);
    }
    assert_eq!(file(&done, "/c")["status"], "skipped");
    assert_eq!(bytes(&done, "files_failed"), 0);
    let moved = bytes(&done, "bytes_relocated");
    assert_eq!(bytes(&done, "bytes_offloaded"), moved);
    assert_eq!(bytes(&done, "bytes_host_read"), 0);
    assert_eq!(bytes(&done, "bytes_host_written"), 0);
    if let Some(flashd) = zns.flashd() {
        let device = flashd.stats().model;
        assert_eq!(device.migrated_bytes, moved);
        // Files share commands, though the guest takes longer to open one than the device to move
        // it. (Four at a time needed 13 commands for 19.)
        let files = bytes(&done, "files_moved");
        println!("{files} files by {} commands", device.migrations);
        assert!(
            device.migrations * 3 < files * 2,
            "{files} files by {} commands",
            device.migrations
        );
        // The distribution was less even before than after.
        let dopf = |of: &Value| of["totals"]["dopf_mean"].as_f64().unwrap();
        assert!(dopf(&after) < dopf(&json(&path("before.json"))));
    }
    // A second run has nothing to do.
    assert_eq!(bytes(&json(&path("again.json")), "bytes_relocated"), 0);
}

#[test]
fn vm_the_device_copies_on_6_12() {
    device_copies(Release::Linux6_12, ZnsDevice::Flashd);
}

#[test]
fn vm_the_device_copies_on_6_1() {
    device_copies(Release::Linux6_1, ZnsDevice::Flashd);
}

#[test]
fn vm_nvme_copy_does_it_on_qemus_device() {
    device_copies(Release::Linux6_12, ZnsDevice::Qemu);
}

#[test]
fn vm_without_the_patches_the_host_copies_and_that_is_said() {
    let zns = Zns::new(ZnsOptions::default()).unwrap();
    let Some(folder) = run(Guest::with(Release::Linux6_1), &zns, "auto") else {
        return;
    };
    let path = |name| folder.path().join(name);
    let done = json(&path("run.json"));
    let moved = file(&done, "/a");
    assert_eq!(moved["engine"], "f2fs-defragment", "{moved}");
    assert_eq!(moved["status"], "moved", "{moved}");
    assert_eq!(bytes(&done, "bytes_offloaded"), 0);
    assert!(bytes(&done, "bytes_host_written") > 0);
    let said = fs::read_to_string(path("said")).unwrap();
    assert!(said.contains("f2fs-offload is not used"), "{said}");
    assert!(said.contains("f2fs-defragment is"), "{said}");
}
