//! The ioctl of kernel/f2fs in a guest, on both devices that the lab has.

use std::time::Duration;

use lab::{Guest, Outcome, Release, Zns, ZnsDevice, ZnsOptions, ZnsSetup, require};

const PROGRAM: &str = env!("CARGO_BIN_EXE_f2fs-offload");

/// What every guest does around the trial: afterwards the file system is checked, and everything is
/// found again when it is mounted anew.
const AROUND: &str = r#"
TRIAL || exit 1
sync
(cd $ZNS_MOUNT && find . -type f | sort | xargs md5sum) >/tmp/sums || exit 2
umount $ZNS_MOUNT || exit 3
fsck.f2fs $ZNS_CONVENTIONAL >/tmp/fsck 2>&1 || { cat /tmp/fsck; exit 4; }
if grep -q 'Fail\|ASSERT' /tmp/fsck; then cat /tmp/fsck; exit 5; fi
mount -t f2fs $ZNS_CONVENTIONAL $ZNS_MOUNT || exit 6
(cd $ZNS_MOUNT && md5sum -c /tmp/sums) >/tmp/found 2>&1 || { grep -v OK /tmp/found; exit 7; }
umount $ZNS_MOUNT || exit 8
if dmesg | grep -q 'WARNING:\|BUG:\|Oops\|INFO: task\|Call Trace'; then dmesg; exit 9; fi
"#;

/// Run a trial in a guest; `None` where there is none.
fn trial(release: Release, zns: &Zns, script: &str) -> Option<Outcome> {
    let guest = require(Guest::with(release))?;
    let guest = require(guest.with_f2fs_offload())?;
    let guest = require(guest.zns(zns, ZnsSetup::Mounted))?
        .copy(PROGRAM)
        .cpus(2)
        .memory_mib(768)
        .timeout(Duration::from_secs(400));
    let script = AROUND.replace("TRIAL", &format!("{{ {script}\n}}"));
    let outcome = require(guest.run(["sh", "-c", &script]))?;
    let stdout = String::from_utf8_lossy(&outcome.stdout);
    println!("{release}: {stdout}{:?}", outcome.elapsed);
    assert_eq!(
        outcome.status,
        0,
        "{stdout}\n{}\n{}",
        String::from_utf8_lossy(&outcome.stderr),
        outcome.console
    );
    Some(outcome)
}

fn zns(device: ZnsDevice) -> Zns {
    Zns::new(ZnsOptions {
        device,
        ..ZnsOptions::default()
    })
    .unwrap()
}

#[test]
fn vm_6_12_files_become_contiguous_on_flashd() {
    let zns = zns(ZnsDevice::Flashd);
    let before = zns.flashd().unwrap().stats().model;
    let script =
        format!("{PROGRAM} basics $ZNS_MOUNT in-device && {PROGRAM} basics $ZNS_MOUNT copy");
    if trial(Release::Linux6_12, &zns, &script).is_none() {
        return;
    }
    let after = zns.flashd().unwrap().stats().model;
    // The device says the same: it has copied what files had.
    assert!(after.migrated_bytes - before.migrated_bytes > 2 * (40 << 20));
}
