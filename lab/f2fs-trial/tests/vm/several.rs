//! Ranges of several files in one call.

use std::{
    fs,
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

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
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| inject(device, &asked, &over));
        let _over = Over(&over);
        trial_with(release, &zns, &script, Some(share.path()));
    });
}

/// Signals the end when dropped, also where a trial fails.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Do what the guest asks for: a file's name is the place of a block that is to become unreadable,
/// or `clear`. It is removed when that is done.
fn inject(device: &Device, asked: &Path, over: &AtomicBool) {
    while !over.load(Ordering::Relaxed) {
        for request in fs::read_dir(asked).unwrap() {
            let request = request.unwrap();
            match request.file_name().to_str().unwrap() {
                "clear" => device.clear_faults(),
                place => {
                    let fault = ErrorFault {
                        namespace: 1,
                        offset_bytes: place.parse().unwrap(),
                        length_bytes: 4096,
                        access: Some(Access::Read),
                        left: None,
                        failed: 0,
                    };
                    device.inject_error(fault).unwrap();
                }
            }
            fs::remove_file(request.path()).unwrap();
        }
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn vm_6_12_several_files_are_whole_whatever_happens_to_one() {
    are_whole(Release::Linux6_12);
}

#[test]
fn vm_6_1_several_files_are_whole_whatever_happens_to_one() {
    are_whole(Release::Linux6_1);
}
