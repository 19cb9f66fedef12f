//! Crash consistency of file systems, by recording and replaying: at every flush boundary, and in
//! states that a power cut between two of them could leave, the file system recovers, fsck is
//! clean, and fsynced data is there.

use std::{
    fs::{self, File},
    io::Write,
    path::{Path, PathBuf},
};

use crate::harness::{Daemon, Fs, Loop, can_make, can_mount, fsck, mkfs, run, text};
use flashd::{
    operate::{Ask, Told, ask},
    record::{Keep, Mark, marks, replay},
};
use units::FileOffset;

/// Files that the workload makes and fsyncs, with a mark after each.
const FILES: u64 = 12;

fn file_content(number: u64) -> Vec<u8> {
    let mut bytes = vec![0; 3000 + 7000 * number as usize];
    scratch_fs::content(&mut bytes, number, FileOffset(0));
    bytes
}

/// Record a workload on a new file system, and return the recording's path.
fn record(kind: &str, folder: &Path, size: &str) -> PathBuf {
    let recording = folder.join("recording");
    let mut daemon = Daemon::start(folder, &["--profile", "zero", "--size", size]);
    let device = Loop::attach(&daemon.disk());
    mkfs(kind, &device.0);
    let root = folder.join("fs");
    Fs::mount(&device.0, kind, &root).unmount();
    let output = daemon.ask(&["record", "start", recording.to_str().unwrap()]);
    assert!(output.status.success(), "{}", text(&output));

    let socket = folder.join(format!("flashd/{}.sock", daemon.pid()));
    let mounted = Fs::mount(&device.0, kind, &root);
    for number in 0..FILES {
        // Much is going on around the file that counts.
        for other in 0..6 {
            fs::write(root.join(format!("other-{other}")), file_content(number)).unwrap();
        }
        let _ = fs::remove_file(root.join("renamed"));
        fs::rename(root.join("other-3"), root.join("renamed")).unwrap();
        fs::create_dir(root.join(format!("folder-{number}"))).unwrap();
        let mut file = File::create(root.join(format!("folder-{number}/file"))).unwrap();
        file.write_all(&file_content(number)).unwrap();
        file.sync_all().unwrap();
        File::open(root.join(format!("folder-{number}")))
            .and_then(|folder| folder.sync_all())
            .unwrap();
        File::open(&root).and_then(|root| root.sync_all()).unwrap();
        let label = format!("synced-{number}");
        let told = ask(&socket, &Ask::RecordMark { label }).unwrap();
        assert!(matches!(told, Told::Done(_)), "{told:?}");
    }
    mounted.unmount();
    drop(device);
    assert!(daemon.stop().success(), "{}", daemon.log());
    recording
}

/// The image of the device at a mark.
fn image(recording: &Path, mark: &Mark, keep: Keep, to: &Path) {
    let (store, _) = replay(recording, mark, keep, None).unwrap();
    let file = File::create(to).unwrap();
    store.namespaces[0].copy_to(&file).unwrap();
}

/// Let the file system recover as it does when it is mounted, check it, and return the files of the
/// workload that are there and whole.
fn recover(kind: &str, image: &Path, root: &Path) -> Vec<u64> {
    let device = Loop::attach(image);
    if kind == "ext4" {
        // The journal alone; anything that it does not mend must be right.
        let output = run("e2fsck", &["-E", "journal_only", "-y", &device.0]);
        assert!(
            output.status.code().is_some_and(|code| code <= 1),
            "{}",
            text(&output)
        );
        fsck(kind, &device.0);
    }
    if kind == "btrfs" {
        // It is whole at any time, without recovering.
        fsck(kind, &device.0);
    }
    let mounted = Fs::mount(&device.0, kind, root);
    let there = (0..FILES)
        .filter(|number| {
            fs::read(root.join(format!("folder-{number}/file")))
                .is_ok_and(|found| found == file_content(*number))
        })
        .collect();
    mounted.unmount();
    fsck(kind, &device.0);
    there
}

fn recovers_everywhere(kind: &str, size: &str, most: usize) {
    if !can_mount() || !can_make(kind) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let recording = record(kind, folder.path(), size);
    let marks = marks(&recording).unwrap();
    let to = folder.path().join("image");
    let root = folder.path().join("fs");
    let mut synced = 0;
    let mut flushes = Vec::new();
    for listed in marks {
        let mark: Mark = listed.mark.parse().unwrap();
        match &mark {
            Mark::Name(name) if name != "start" => synced += 1,
            Mark::Flush(_) => flushes.push((mark, synced)),
            _ => {}
        }
    }
    assert_eq!(synced, FILES);
    assert!(
        flushes.len() as u64 >= FILES,
        "each fsync needs a flush: {} of {FILES}",
        flushes.len()
    );
    let step = flushes.len().div_ceil(most);
    for (index, (mark, synced)) in flushes.iter().enumerate().step_by(step) {
        // All the way to here, the least that is left here, and something on the way to the next.
        let next = flushes
            .get(index + 1)
            .map_or(Mark::End, |(next, _)| next.clone());
        let seed = index as u64;
        let states = [
            (mark, Keep::Everything),
            (mark, Keep::Durable),
            (&next, Keep::Reordered(seed)),
        ];
        for (mark, keep) in &states[..if index % 4 == 0 { 3 } else { 1 }] {
            image(&recording, mark, *keep, &to);
            let there = recover(kind, &to, &root);
            let lost = (0..*synced).find(|number| !there.contains(number));
            assert_eq!(
                lost, None,
                "{mark} {keep:?}: only {there:?} of {synced} are there"
            );
        }
    }
    // And the end of it with many orders.
    for seed in 0..4 {
        let mark = Mark::Entry(flushes_entry(&recording, flushes.len() / 2) + 5 * seed);
        image(&recording, &mark, Keep::Reordered(seed), &to);
        let there = recover(kind, &to, &root);
        let synced = flushes[flushes.len() / 2].1;
        assert!(
            (0..synced).all(|number| there.contains(&number)),
            "{mark}: {there:?}"
        );
    }
}

/// Number of the entry of the n-th flush, counted from 0.
fn flushes_entry(recording: &Path, n: usize) -> u64 {
    let marks = marks(recording).unwrap();
    let mut flushes = marks
        .iter()
        .filter(|listed| listed.mark.starts_with("flush:"));
    flushes.nth(n).unwrap().entries
}

#[test]
fn loop_ext4_recovers_at_every_flush_boundary() {
    recovers_everywhere("ext4", "64MiB", 1000);
}

#[test]
fn loop_xfs_recovers_at_flush_boundaries() {
    recovers_everywhere("xfs", "304MiB", 12);
}

#[test]
fn loop_btrfs_recovers_at_flush_boundaries() {
    recovers_everywhere("btrfs", "128MiB", 24);
}
