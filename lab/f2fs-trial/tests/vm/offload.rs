//! The ioctl of kernel/f2fs in a guest, on both devices of the lab.

use crate::fixture::{self, PROGRAM, trial, zns};
use flash_model::Profile;
use flashd::device::Device;
use guest::{Release, Zns, ZnsDevice, ZnsOptions};

/// The profile of a device that has no latencies.
const ZERO: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../crates/flash-model/profiles/zero.toml"
);

/// The device moves data by In_Device_Defragment, and reports the same amount.
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

/// Blocks with protection information: a copy would take over the reference tag of the old place,
/// and could not be read. The device gets no commands of ours, the host reads and writes through
/// the block layer.
fn protected(release: Release) {
    let zns = Zns::new(ZnsOptions {
        device: ZnsDevice::Qemu,
        namespace: "ms=8,pi=1".into(),
        ..ZnsOptions::default()
    })
    .unwrap();
    let script = format!(
        "[ $(cat /sys/block/${{ZNS_ZONED#/dev/}}/integrity/format) = T10-DIF-TYPE1-CRC ]\n\
         {PROGRAM} basics $ZNS_MOUNT metadata"
    );
    trial(release, &zns, &script);
}

#[test]
fn vm_6_1_blocks_with_metadata_are_not_copied_by_the_device() {
    protected(Release::Linux6_1);
}

#[test]
fn vm_6_12_blocks_with_metadata_are_not_copied_by_the_device() {
    protected(Release::Linux6_12);
}

/// A device that allows few active zones, and takes a long time to finish one: longer than a write
/// to the moved file may take.
fn finishing(release: Release) {
    with_slow_finish(release, "finish");
}

/// A trial on such a device.
fn with_slow_finish(release: Release, subject: &str) {
    // Everything else is slow in a kernel that looks for faults.
    let milliseconds = match fixture::setting("INDEF_DEBUG_KERNEL", 0) {
        0 => 2000,
        _ => 10_000,
    };
    // F2FS keeps six logs, and one for moved data.
    const LIMIT: &str = "8";
    if !scratch_fs::require_program("blkzone") {
        return;
    }
    let mut profile = std::fs::read_to_string(ZERO).unwrap();
    for (name, unit, value) in [
        ("max_active", "count", LIMIT),
        ("max_open", "count", LIMIT),
        ("finish_latency", "us", &format!("{}", milliseconds * 1000)),
    ] {
        let was = format!("{name} = {{ value = 0, unit = \"{unit}\"");
        assert!(profile.contains(&was), "{was}");
        let is = format!("{name} = {{ value = {value}, unit = \"{unit}\"");
        profile = profile.replace(&was, &is);
    }
    let options = ZnsOptions::default();
    let mut device = options.flashd().unwrap();
    device.profile = Profile::parse(ZERO, &profile).unwrap();
    let zns = Zns::serving(Device::open(&device).unwrap(), options).unwrap();
    let script = format!("{PROGRAM} {subject} $ZNS_MOUNT $ZNS_ZONED {milliseconds}");
    trial(release, &zns, &script);
}

/// (6.12 resets zones when it is idle, which takes longer than the trial waits.)
#[test]
fn vm_6_1_a_section_is_not_reset_while_its_zone_is_finished() {
    with_slow_finish(Release::Linux6_1, "leave-free");
}

#[test]
fn vm_6_1_zones_that_are_left_are_finished_with_no_file_locked() {
    finishing(Release::Linux6_1);
}

#[test]
fn vm_6_12_zones_that_are_left_are_finished_with_no_file_locked() {
    finishing(Release::Linux6_12);
}

/// Unmovable files are reported, and nothing is modified. (Swap files are missing: on zones
/// `swapon` is refused by 6.1, and an oops in `f2fs_allocate_pinning_section` of 6.12, also without
/// our patches.)
fn refusals(release: Release) {
    if !["f2fs_io", "fsverity"]
        .iter()
        .all(|program| scratch_fs::require_program(program))
    {
        return;
    }
    let zns = zns(ZnsDevice::Flashd, "-O extra_attr,compression,verity");
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
         dd if=/dev/zero of=verified bs=64k count=1\nfsverity enable verified\n\
         {PROGRAM} refused $cases compressed=Compressed verified=Verity\n"
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

/// Ciphertext is moved unchanged, and is readable again when the key returns.
fn encrypted(release: Release) {
    if !scratch_fs::require_program("xfs_io") {
        return;
    }
    let zns = zns(ZnsDevice::Flashd, "-O encrypt");
    let script = format!(
        "key() {{ xfs_io -c add_enckey $ZNS_MOUNT </tmp/key | sed 's/.*identifier //'; }}\n\
         dd if=/dev/urandom of=/tmp/key bs=64 count=1\nfolder=$ZNS_MOUNT/secret\nmkdir $folder\n\
         xfs_io -c \"set_encpolicy $(key)\" $folder\n{PROGRAM} encrypted $folder\n\
         md5sum $folder/* >/tmp/secret\numount $ZNS_MOUNT\n\
         mount -t f2fs $ZNS_CONVENTIONAL $ZNS_MOUNT\nkey\nmd5sum -c /tmp/secret\nrm -r $folder\n"
    );
    trial(release, &zns, &script);
}

#[test]
fn vm_6_1_encrypted_files_are_moved() {
    encrypted(Release::Linux6_1);
}

#[test]
fn vm_6_12_encrypted_files_are_moved() {
    encrypted(Release::Linux6_12);
}

/// The controller is removed in the middle of a migration; when it is back, every file is
/// unchanged, and can be moved.
fn vanishing(release: Release) {
    let zns = zns(ZnsDevice::Flashd, "");
    let script = format!(
        "for pause in 20 70 150 300 600; do\n\
         folder=$ZNS_MOUNT/$pause\nmkdir $folder\n{PROGRAM} prepare $folder\nsync\n\
         {PROGRAM} migrate $folder /tmp/$pause >/tmp/migration 2>&1 &\nusleep ${{pause}}000\n\
         for controller in /sys/class/nvme/nvme*; do echo 1 >$controller/delete_controller; done\n\
         wait $! && echo \"pause $pause: was through\" || tail -n 1 /tmp/migration\numount $ZNS_MOUNT\n\
         rm /dev/zoned $ZNS_CONVENTIONAL\nip addr flush dev eth0\nsed -i 's/^zns=.*/zns=kept/' /lab/job\n/lab/zns\n\
         {PROGRAM} after $folder \"$(cat /tmp/$pause)\"\ndone\n"
    );
    trial(release, &zns, &script);
}

#[test]
fn vm_6_1_a_device_that_vanishes_leaves_every_file_whole() {
    vanishing(Release::Linux6_1);
}

#[test]
fn vm_6_12_a_device_that_vanishes_leaves_every_file_whole() {
    vanishing(Release::Linux6_12);
}

/// `INDEF_KILLS` times, or until one comes in the middle of a call.
#[test]
fn vm_6_12_a_killed_process_leaves_its_file_whole() {
    let zns = zns(ZnsDevice::Flashd, "");
    let attempts = fixture::setting("INDEF_KILLS", 4);
    let script = format!("{PROGRAM} killed $ZNS_MOUNT {attempts}");
    trial(Release::Linux6_12, &zns, &script);
}

/// For `INDEF_CHURN_SECONDS`: everything at once.
fn churn(release: Release) {
    let seconds = fixture::setting("INDEF_CHURN_SECONDS", 10);
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
