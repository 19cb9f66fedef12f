//! Power cuts while the device copies, by flashd's recording: at flush boundaries, and in states
//! that a lost cache may leave, the file system recovers on the host, and each file is unchanged.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::Command,
};

use flashd::record::{Keep, Mark, marks, replay};
use scratch_fs::{FragmentOptions, fragment};
use sha2::{Digest, Sha256};
use units::Bytes;

use crate::{
    flavour::*,
    host::{Flashd, in_guest, note},
    moves::OFFLOAD,
};

const FILES: u64 = 3;
const SIZE: Bytes = Bytes::mib(1);

/// Number of states to test; all flush boundaries, and five of each, take about an hour.
fn states() -> usize {
    std::env::var("INDEF_POWER_CUTS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(24)
}

fn files(root: &Path) -> Vec<PathBuf> {
    (0..FILES).map(|n| root.join(format!("file{n}"))).collect()
}

/// The guest's side: make files durable, and then move them.
fn move_all(root: &Path) {
    let mut sums = String::new();
    for (seed, path) in (0..).zip(&files(root)) {
        let how = FragmentOptions {
            size: SIZE,
            piece: Bytes::kib(4),
            seed,
        };
        fragment(path, how).unwrap();
        sums += &hex(path);
    }
    Command::new("sync").status().unwrap();
    fs::write("/share/sums", sums).unwrap();
    note("ready");
    for path in files(root) {
        // Several pieces, so several exchanges.
        let how = Move {
            limit: Bytes::kib(256),
            ..OFFLOAD
        };
        assert_eq!(how.whole(&path).unwrap().offloaded, SIZE);
        assert_eq!(fragments(&path), 1);
    }
    Command::new("sync").status().unwrap();
    note("moved");
}

fn hex(path: &Path) -> String {
    let sum = Sha256::digest(fs::read(path).unwrap());
    sum.iter()
        .map(|byte| format!("{byte:02x}"))
        .collect::<String>()
        + "\n"
}

/// Write the device's state at a mark to a file.
fn image(recording: &Path, mark: &Mark, keep: Keep, to: &Path) {
    let (store, _) = replay(recording, mark, keep, None).unwrap();
    let file = File::create(to).unwrap();
    store.namespaces[0].copy_to(&file).unwrap();
}

/// A mount, unmounted when dropped.
struct Mounted(PathBuf);

impl Mounted {
    fn new(image: &Path, root: &Path) -> Self {
        run(Command::new("mount")
            .args(["-t", "xfs", "-o", "loop"])
            .args([image, root]));
        Self(root.to_owned())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

fn run(command: &mut Command) {
    let output = command.output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    assert!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&said)
    );
}

/// Recover, compare, check. Returns how many of the files are in one piece.
fn recovers(image: &Path, root: &Path, sums: &str, what: &str) -> usize {
    let mounted = Mounted::new(image, root);
    let found: String = files(root).iter().map(|path| hex(path)).collect();
    assert_eq!(found, sums, "{what}");
    let whole = files(root)
        .iter()
        .filter(|path| fragments(path) == 1)
        .count();
    drop(mounted);
    let fetched = scratch_fs::xfsprogs().map(|tools| tools.join("xfs_repair"));
    let repair = fetched.unwrap_or_else(|| "xfs_repair".into());
    run(Command::new(repair).arg("-n").arg(image));
    whole
}

#[test]
fn vm_no_power_cut_loses_anything() {
    if let Some(root) = in_guest() {
        move_all(&root);
        return;
    }
    // The host has to recover the guest's file system.
    if COMMIT.make(Bytes::mib(320), "").is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (share, recording) = (folder.path().join("share"), folder.path().join("recording"));
    fs::create_dir(&share).unwrap();
    let flashd = Flashd::new("zero", 1.0);
    flashd.device.record_to(&recording).unwrap();
    const TEST: &str = "power::vm_no_power_cut_loses_anything";
    let ran = flashd.run(TEST, &share, &["ready", "moved"], |name| {
        flashd.device.recording().mark(name).unwrap();
    });
    if !ran {
        return;
    }
    flashd.device.recording().end().unwrap();
    let sums = fs::read_to_string(share.join("sums")).unwrap();
    every_state_recovers(&recording, &sums, folder.path());
}

fn every_state_recovers(recording: &Path, sums: &str, folder: &Path) {
    let root = folder.join("root");
    fs::create_dir(&root).unwrap();
    let listed = marks(recording).unwrap();
    let place = |name: &str| {
        let found = listed
            .iter()
            .find(|mark| mark.mark == format!("mark:{name}"));
        found.unwrap().entries
    };
    let (ready, moved) = (place("ready"), place("moved"));
    let flushes: Vec<_> = listed
        .iter()
        .filter(|mark| mark.mark.starts_with("flush:"))
        .filter(|mark| (ready..=moved).contains(&mark.entries))
        .collect();
    assert!(flushes.len() > 4, "{listed:?}");
    // Every boundary unchanged, and between it and the next the states that a lost cache may leave.
    let mut cuts: Vec<(Mark, Keep)> = Vec::new();
    for (number, mark) in flushes.iter().enumerate() {
        let mark: Mark = mark.mark.parse().unwrap();
        cuts.push((mark.clone(), Keep::Durable));
        let next = flushes.get(number + 1).map_or(moved, |next| next.entries);
        let between = Mark::Entry(next.saturating_sub(1).max(ready));
        for seed in 0..4 {
            cuts.push((
                between.clone(),
                Keep::Reordered(seed * 1000 + number as u64),
            ));
        }
        cuts.push((between, Keep::Durable));
    }
    let step = cuts.len().div_ceil(states()).max(1);
    let image_file = folder.join("image");
    let mut seen = Vec::new();
    for (mark, keep) in cuts.iter().step_by(step) {
        image(recording, mark, *keep, &image_file);
        let what = format!("{mark:?}, {keep:?}");
        seen.push(recovers(&image_file, &root, sums, &what));
    }
    image(
        recording,
        &Mark::Name("moved".into()),
        Keep::Everything,
        &image_file,
    );
    let all = recovers(&image_file, &root, sums, "at the end");
    println!(
        "{} of {} states, files in one piece: {seen:?}",
        seen.len(),
        cuts.len()
    );
    assert_eq!(all, FILES as usize);
    // The states are those of a move under way, not all from before or after it.
    assert!(seen.first() < seen.last(), "{seen:?}");
}
