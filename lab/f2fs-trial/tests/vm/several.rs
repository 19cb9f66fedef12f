//! Ranges of several files in one call.

use std::fs;

use crate::fixture::{self, PROGRAM, trial, trial_with, zns};
use flashd::device::{Access, Device, ErrorFault};
use guest::{Release, ZnsDevice};

/// The guest's count of the commands is the device's.
fn share_a_command(release: Release) {
    let zns = zns(ZnsDevice::Flashd, "");
    let device = zns.flashd().unwrap();
    let script = format!("{PROGRAM} several $ZNS_MOUNT");
    let Some(outcome) = trial(release, &zns, &script) else {
        return;
    };
    let said = String::from_utf8(outcome.stdout).unwrap();
    let commands = said
        .lines()
        .find_map(|line| line.strip_prefix("commands: "));
    let commands: u64 = commands.unwrap().parse().unwrap();
    assert_eq!(device.stats().model.migrations, commands);
}

#[test]
fn vm_6_12_several_files_share_a_command() {
    share_a_command(Release::Linux6_12);
}

#[test]
fn vm_6_1_several_files_share_a_command() {
    share_a_command(Release::Linux6_1);
}

/// One of them cannot be read, also while its owner syncs it, or the process is killed, or their owners
/// write to them and rename them meanwhile.
fn are_whole(release: Release) {
    let zns = zns(ZnsDevice::Flashd, "");
    let device = zns.flashd().unwrap();
    let share = tempfile::tempdir().unwrap();
    let asked = share.path().join("asked");
    fs::create_dir(&asked).unwrap();
    let seconds = fixture::setting("INDEF_CHURN_SECONDS", 10);
    let folder =
        |name: &str| format!("mkdir $ZNS_MOUNT/{name} && {PROGRAM} {name} $ZNS_MOUNT/{name}");
    let script = [
        folder("dirty-together"),
        folder("unreadable") + " /share/asked",
        folder("given-back") + " /share/asked",
        folder("killed-together"),
        folder("beside") + &format!(" {seconds}"),
    ]
    .join(" && ");
    fixture::answering(
        &asked,
        |request| match request {
            "clear" => device.clear_faults(),
            place => make_unreadable(device, place.parse().unwrap()),
        },
        || trial_with(release, &zns, &script, Some(share.path())),
    );
}

/// Let reads of the block at this byte fail.
fn make_unreadable(device: &Device, place: u64) {
    let fault = ErrorFault {
        namespace: 1,
        offset_bytes: place,
        length_bytes: 4096,
        access: Some(Access::Read),
        left: None,
        delay_ns: 0,
        failed: 0,
    };
    device.inject_error(fault).unwrap();
}

#[test]
fn vm_6_12_several_files_are_whole_whatever_happens_to_one() {
    are_whole(Release::Linux6_12);
}

#[test]
fn vm_6_1_several_files_are_whole_whatever_happens_to_one() {
    are_whole(Release::Linux6_1);
}
