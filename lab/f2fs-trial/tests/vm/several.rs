//! Ranges of several files in one call, and two calls at a time.

use std::fs;

use crate::fixture::{self, PROGRAM, trial, trial_with, zns};
use flash_model::Command;
use flashd::device::{Access, Device, ErrorFault, LoggedCommand};
use guest::{Release, Zns, ZnsDevice, ZnsOptions};
use units::Bytes;

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

/// The zone that a move within the device goes to.
fn zone(logged: &LoggedCommand) -> Option<u64> {
    match logged.command.as_command() {
        Command::Migrate { moves } => Some(moves[0].to / Bytes::mib(32).get()),
        _ => None,
    }
}

/// Two calls at a time have commands under way at the same time, in different zones. The device is slow
/// enough that a guest has the next one ready.
fn two_calls(release: Release) {
    let zns = Zns::new(ZnsOptions {
        profile: "indef-femu".into(),
        time_scale: 20.0,
        ..ZnsOptions::default()
    })
    .unwrap();
    let device = zns.flashd().unwrap();
    device.begin_command_log();
    let script = format!("{PROGRAM} logs $ZNS_MOUNT");
    if trial(release, &zns, &script).is_none() {
        return;
    }
    let log = device.take_command_log();
    let moves: Vec<_> = log
        .iter()
        .filter_map(|logged| Some((zone(logged)?, logged.submitted, logged.done?)))
        .collect();
    let mut overlapping = 0;
    for (number, &(zone, submitted, _)) in moves.iter().enumerate() {
        let mut under_way = moves[..number]
            .iter()
            .filter(|(.., done)| *done > submitted);
        overlapping += usize::from(under_way.clone().next().is_some());
        assert!(under_way.all(|(other, ..)| *other != zone), "{moves:?}");
    }
    println!(
        "{overlapping} of {} moves began during another one",
        moves.len()
    );
    assert!(overlapping > 6, "{overlapping} of {}", moves.len());
}

#[test]
fn vm_6_12_two_calls_keep_the_device_at_work() {
    two_calls(Release::Linux6_12);
}

#[test]
fn vm_6_1_two_calls_keep_the_device_at_work() {
    two_calls(Release::Linux6_1);
}
