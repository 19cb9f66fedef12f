//! The memory of scans: their answers are those of full scans, whatever happened in between.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::{FileExt, MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use rustix::fs::{FallocateFlags, fallocate};
use scratch_fs::{FragmentOptions, ScratchFs, fragment, reflink, require};
use serde_json::Value;
use tempfile::TempDir;
use units::Bytes;
use workloads::Numbers;

use crate::common::{Ran, Run, indef_with_state};

const BLOCK: u64 = 4096;
/// Of each file system; the machine may be slow.
const LONGEST: Duration = Duration::from_secs(12);

/// A file system with files, and the state directory of its scans.
struct Trial {
    scratch: ScratchFs,
    state: TempDir,
    files: Vec<PathBuf>,
    numbers: Numbers,
    made: u64,
}

impl Trial {
    fn new(fs: &str, seed: u64) -> Option<Self> {
        let scratch = require(ScratchFs::builder(fs, Bytes::mib(512)).build())?;
        (0..3).for_each(|n| fs::create_dir(scratch.path().join(format!("d{n}"))).unwrap());
        Some(Self {
            scratch,
            state: tempfile::tempdir().unwrap(),
            files: Vec::new(),
            numbers: Numbers::new(seed),
            made: 0,
        })
    }

    fn scan(&self, state: &Path, arguments: &[&str]) -> Ran {
        let mut command = indef_with_state(state);
        command.args(["scan", "--json"]).args(arguments);
        let ran = command.arg(self.scratch.path()).ran();
        assert_eq!(ran.status, 0, "{ran:?}");
        ran
    }

    /// The answer of a scan that looks at everything, and leaves nothing for the next one of ours.
    fn full(&self) -> Value {
        let elsewhere = tempfile::tempdir().unwrap();
        answer(&self.scan(elsewhere.path(), &["--full"])).0
    }

    /// A scan answers as full ones before and after it, unless these differ: the kernel writes back
    /// what it wants to. Returns the number of files that it remembered.
    fn agree(&self, after: &str) -> u64 {
        for _ in 0..20 {
            let before = self.full();
            let (found, remembered) = answer(&self.scan(self.state.path(), &[]));
            if before == self.full() {
                assert_eq!(found, before, "after {after}");
                return remembered;
            }
            self.scratch.sync().unwrap();
        }
        panic!("full scans never agreed after {after}");
    }

    fn new_path(&mut self) -> PathBuf {
        self.made += 1;
        let folder = format!("d{}", self.numbers.below(3_u64));
        self.scratch.path().join(folder).join(self.made.to_string())
    }

    fn make(&mut self) -> PathBuf {
        let path = self.new_path();
        let options = FragmentOptions {
            size: Bytes(BLOCK * self.numbers.weighted(&[(3, 1_u64), (4, 12), (2, 400)])),
            piece: Bytes(BLOCK),
            seed: self.made,
        };
        fragment(&path, options).unwrap();
        self.files.push(path.clone());
        path
    }

    /// Change something, and tell what.
    fn change(&mut self) -> &'static str {
        let index = self.numbers.below(self.files.len());
        let path = self.files[index].clone();
        let open = || {
            OpenOptions::new()
                .read(true)
                .write(true)
                .open(&path)
                .unwrap()
        };
        let blocks = fs::metadata(&path).unwrap().len() / BLOCK;
        let at = BLOCK * self.numbers.below(blocks + 4);
        let len = BLOCK * (1 + self.numbers.below(4_u64));
        let may = |done: Result<(), rustix::io::Errno>| {
            assert!(
                matches!(done, Ok(()) | Err(rustix::io::Errno::OPNOTSUPP)),
                "{done:?}"
            );
        };
        match self.numbers.below(14_u32) {
            0 => {
                self.make();
                "a new file"
            }
            1 | 2 => {
                open().write_all_at(&vec![3; len as usize], at).unwrap();
                "a write"
            }
            3 => {
                open().set_len(at).unwrap();
                "a truncation"
            }
            4 => {
                let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                may(fallocate(open(), punch, at, len));
                "a hole"
            }
            5 => {
                may(fallocate(open(), FallocateFlags::empty(), at, len));
                "fallocate"
            }
            6 => {
                let to = self.new_path();
                fs::rename(&path, &to).unwrap();
                self.files[index] = to;
                "a rename"
            }
            7 if self.files.len() > 4 => {
                fs::remove_file(self.files.swap_remove(index)).unwrap();
                "a removal"
            }
            8 => {
                let to = self.new_path();
                fs::hard_link(&path, &to).unwrap();
                self.files.push(to);
                "a link"
            }
            9 => {
                let to = self.new_path();
                match reflink(&path, &to) {
                    Ok(()) => self.files.push(to),
                    Err(error) => {
                        assert_eq!(error.kind(), io::ErrorKind::Unsupported);
                        fs::remove_file(to).unwrap();
                    }
                }
                "a clone"
            }
            10 => {
                fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
                "chmod"
            }
            // Part of a file, so that its tree keeps its shape.
            11 => self.defragment(&path, &["--budget", "128KiB"]),
            12 => self.defragment(&path, &[]),
            _ => {
                // Replaced by one that has its times, as programs that restore do.
                let old = open().metadata().unwrap().modified().unwrap();
                let new = self.make();
                self.files.pop();
                File::options()
                    .write(true)
                    .open(&new)
                    .unwrap()
                    .set_modified(old)
                    .unwrap();
                fs::rename(&new, &path).unwrap();
                "a replacement"
            }
        }
    }

    fn defragment(&self, path: &Path, limits: &[&str]) -> &'static str {
        let mut command = indef_with_state(self.state.path());
        let ran = command
            .args(["run", "--quiet"])
            .args(limits)
            .arg(path)
            .ran();
        assert!([0, 3].contains(&ran.status), "{ran:?}");
        "indef run"
    }
}

/// The answer without what differs from run to run, and the number of files that were remembered. Of a file
/// with several names any may be met first.
fn answer(ran: &Ran) -> (Value, u64) {
    let document = ran.json();
    let mut files = document["files"].as_array().unwrap().clone();
    for file in &mut files {
        let path = PathBuf::from(file["path"].as_str().unwrap());
        let status = fs::metadata(&path).unwrap();
        if status.nlink() > 1 {
            file["path"] = format!("inode {}", status.ino()).into();
        }
    }
    files.sort_by_key(|file| file["path"].to_string());
    let mut totals = document["totals"].clone();
    let remembered = totals.as_object_mut().unwrap().remove("files_remembered");
    let rest = [
        totals,
        document["verdict"].clone(),
        document["unreachable_bytes"].clone(),
    ];
    (
        Value::Array([files, rest.into()].concat()),
        remembered.unwrap().as_u64().unwrap(),
    )
}

/// Random changes, between scans that remember.
fn equals_a_full_scan(fs: &str) {
    let Some(mut trial) = Trial::new(fs, 15) else {
        return;
    };
    (0..12).for_each(|_| drop(trial.make()));
    trial.scratch.sync().unwrap();
    let (begun, mut remembered, mut rounds) = (Instant::now(), 0, 0);
    trial.agree("the beginning");
    while begun.elapsed() < LONGEST && rounds < 25 {
        let changes: Vec<_> = (0..1 + trial.numbers.below(4_u32))
            .map(|_| trial.change())
            .collect();
        if trial.numbers.percent(60) {
            trial.scratch.sync().unwrap();
        }
        remembered += trial.agree(&format!("{changes:?} in round {rounds}"));
        rounds += 1;
    }
    eprintln!("{fs}: {rounds} rounds, {remembered} files remembered");
    assert!(rounds > 2);
    assert_eq!(remembered > 0, fs == "ext4");
}

#[test]
fn loop_ext4_a_scan_that_remembers_equals_a_full_one() {
    equals_a_full_scan("ext4");
}

#[test]
fn loop_xfs_a_scan_that_remembers_equals_a_full_one() {
    equals_a_full_scan("xfs");
}

#[test]
fn loop_btrfs_a_scan_that_remembers_equals_a_full_one() {
    equals_a_full_scan("btrfs");
}

/// Six files on ext4 with extent trees of one leaf, scanned once.
fn scanned_once() -> Option<Trial> {
    let mut trial = Trial::new("ext4", 1)?;
    for _ in 0..6 {
        let path = trial.new_path();
        let (size, piece) = (Bytes::kib(512), Bytes::kib(4));
        fragment(
            &path,
            FragmentOptions {
                size,
                piece,
                seed: 1,
            },
        )
        .unwrap();
        trial.files.push(path);
    }
    trial.scratch.sync().unwrap();
    assert_eq!(trial.agree("nothing"), 0);
    assert_eq!(trial.agree("nothing"), 6);
    Some(trial)
}

#[test]
fn loop_only_what_changed_is_looked_at() {
    let Some(trial) = scanned_once() else {
        return;
    };
    let [first, second, third, ..] = &trial.files[..] else {
        unreachable!("there are six");
    };
    // The name is the walk's.
    fs::rename(first, trial.scratch.path().join("d0/renamed")).unwrap();
    trial.scratch.sync().unwrap();
    // ext4 sets the change time of what is renamed.
    assert_eq!(trial.agree("a rename"), 5);
    fs::remove_file(second).unwrap();
    trial.scratch.sync().unwrap();
    assert_eq!(trial.agree("a removal"), 5);
    // A move leaves all times of the file as they are, and here also the root of its tree.
    let times = |path: &Path| {
        let status = fs::metadata(path).unwrap();
        (status.ctime(), status.ctime_nsec(), status.blocks())
    };
    let before = times(third);
    trial.defragment(third, &["--budget", "128KiB"]);
    trial.scratch.sync().unwrap();
    assert_eq!(times(third), before);
    assert_eq!(trial.agree("a move"), 4);
    assert_eq!(trial.agree("nothing"), 5);
    let ran = trial.scan(trial.state.path(), &["--full"]);
    assert_eq!(answer(&ran).1, 0);
    assert_eq!(trial.agree("a full scan, which is remembered"), 5);
    // Another I/O size and another path have memories of their own.
    assert_eq!(
        answer(&trial.scan(trial.state.path(), &["--io-size", "64KiB"])).1,
        0
    );
    // Findings with a geometry are not of the layout alone.
    let geometry = ["--geometry", "striped:granule=64KiB,dies=4"];
    for _ in 0..2 {
        assert_eq!(answer(&trial.scan(trial.state.path(), &geometry)).1, 0);
    }
}

#[test]
fn loop_a_memory_that_cannot_be_used_is_told_and_changes_nothing() {
    let Some(trial) = scanned_once() else {
        return;
    };
    let folder = trial.state.path().join("scans");
    let memory = fs::read_dir(&folder)
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    let sound = fs::read(&memory).unwrap();
    let full = trial.full();
    let is_told = |what: &str| {
        let ran = trial.scan(trial.state.path(), &[]);
        assert_eq!(answer(&ran), (full.clone(), 0));
        ran.error_line(what);
    };
    fs::write(&memory, &sound[..sound.len() / 2]).unwrap();
    is_told("damaged");
    assert_eq!(trial.agree("damage"), 6, "renewed");
    let mut older = sound.clone();
    older[8] = 0;
    fs::write(&memory, older).unwrap();
    is_told("of another version of indef");
    fs::set_permissions(&memory, fs::Permissions::from_mode(0o666)).unwrap();
    is_told("not a file that only this user may write");
    fs::remove_file(&memory).unwrap();
    fs::create_dir(&memory).unwrap();
    // It can neither be read nor replaced, and then its folder neither.
    let is_told_twice = || {
        let ran = trial.scan(trial.state.path(), &[]);
        assert_eq!(answer(&ran), (full.clone(), 0));
        let lines: Vec<_> = ran.err.lines().collect();
        assert_eq!(lines.len(), 2, "{ran:?}");
        assert!(lines[0].contains("the memory of earlier scans is ignored"));
        assert!(lines[1].contains("the next scan has to look at all files"));
    };
    is_told_twice();
    fs::remove_dir(&memory).unwrap();
    fs::remove_dir(&folder).unwrap();
    fs::write(&folder, b"").unwrap();
    is_told_twice();
    fs::remove_file(&folder).unwrap();

    // A disk that is full, and one that is read-only.
    let small = tempfile::tempdir().unwrap();
    let small = small.path();
    let mount = |options: &str| {
        let status = Command::new("mount")
            .args(["-t", "tmpfs", "-o", options, "none"])
            .arg(small)
            .status();
        assert!(status.unwrap().success());
    };
    for options in ["size=4k", "ro"] {
        mount(options);
        if options != "ro" {
            fs::write(small.join("all"), [1; 4096]).unwrap();
        }
        let ran = trial.scan(small, &[]);
        let unmounted = Command::new("umount").arg(small).status();
        assert!(unmounted.unwrap().success());
        assert_eq!(answer(&ran), (full.clone(), 0));
        ran.error_line("the next scan has to look at all files");
    }
}
