//! The ioctl of kernel/f2fs in a guest, on both devices that the lab has.

mod guest;

use guest::{PROGRAM, trial, zns};
use lab::{Release, ZnsDevice};

/// The device does it by In_Device_Defragment, and says the same of how much.
fn on_flashd(release: Release) {
    let zns = zns(ZnsDevice::Flashd, "");
    let device = zns.flashd().unwrap();
    let before = device.stats().model;
    let script = format!(
        "{PROGRAM} basics $ZNS_MOUNT in-device && {PROGRAM} failing $ZNS_MOUNT $ZNS_ZONED in-device"
    );
    if trial(release, &zns, &script).is_none() {
        return;
    }
    let after = device.stats().model;
    assert!(after.migrated_bytes - before.migrated_bytes > 48 << 20);
}

/// QEMU's device has Copy; the host can always read and write.
fn on_qemus_device(release: Release) {
    let zns = zns(ZnsDevice::Qemu, "");
    let script = format!(
        "{PROGRAM} basics $ZNS_MOUNT copy && {PROGRAM} failing $ZNS_MOUNT $ZNS_ZONED copy && \
         {PROGRAM} basics $ZNS_MOUNT host"
    );
    trial(release, &zns, &script);
}

#[test]
fn vm_6_12_files_become_contiguous_on_flashd() {
    on_flashd(Release::Linux6_12);
}

#[test]
fn vm_6_1_files_become_contiguous_on_flashd() {
    on_flashd(Release::Linux6_1);
}

#[test]
fn vm_6_1_files_become_contiguous_on_qemus_device() {
    on_qemus_device(Release::Linux6_1);
}

#[test]
fn vm_6_12_files_become_contiguous_on_qemus_device() {
    on_qemus_device(Release::Linux6_12);
}

/// What cannot be moved is said, and nothing is touched.
fn refusals(release: Release) {
    if !scratch_fs::require_program("f2fs_io") {
        return;
    }
    let zns = zns(ZnsDevice::Flashd, "-O extra_attr,compression");
    // A file can be pinned on a device with zones since 6.10.
    let pinned = if release == Release::Linux6_1 {
        ""
    } else {
        "echo >pinned\nf2fs_io pinfile set pinned >&2\ncases=pinned=Pinned\n"
    };
    // An atomic write keeps the file system from becoming read-only until its inode is forgotten.
    let script = format!(
        "mount -o remount,ro $ZNS_CONVENTIONAL $ZNS_MOUNT\n{PROGRAM} read-only $ZNS_MOUNT\n\
         mount -o remount,rw $ZNS_CONVENTIONAL $ZNS_MOUNT\n\
         {PROGRAM} refusals $ZNS_MOUNT /tmp\ncd $ZNS_MOUNT\ncases=\n\
         {pinned}touch compressed\nchattr +c compressed\n\
         dd if=/dev/zero of=compressed bs=64k count=1\n\
         {PROGRAM} refused $cases compressed=Compressed\n"
    );
    trial(release, &zns, &script);
}

#[test]
fn vm_6_1_what_cannot_be_moved_is_refused() {
    refusals(Release::Linux6_1);
}

#[test]
fn vm_6_12_what_cannot_be_moved_is_refused() {
    refusals(Release::Linux6_12);
}

/// For `INDEF_CHURN_SECONDS`: everything at once.
fn churn(release: Release) {
    let seconds = guest::setting("INDEF_CHURN_SECONDS", 20);
    let zns = zns(ZnsDevice::Flashd, "");
    let script = format!("mkdir $ZNS_MOUNT/churn && {PROGRAM} churn $ZNS_MOUNT/churn {seconds}");
    trial(release, &zns, &script);
}

#[test]
fn vm_6_1_nothing_is_lost_while_others_write() {
    churn(Release::Linux6_1);
}

#[test]
fn vm_6_12_nothing_is_lost_while_others_write() {
    churn(Release::Linux6_12);
}
