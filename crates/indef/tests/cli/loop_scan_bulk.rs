//! What scans learn of many files at once, from a file system's metadata, is what the kernel maps, whatever
//! happens to the files.

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
/// Of each file system, but for so many rounds in any case: the machine may be slow.
pub(crate) const LONGEST: Duration = Duration::from_secs(12);
pub(crate) const LEAST: u32 = 3;

/// A file system with files, and the state directory of indef.
pub(crate) struct Trial {
    pub(crate) fs: &'static str,
    pub(crate) scratch: ScratchFs,
    pub(crate) state: TempDir,
    pub(crate) files: Vec<PathBuf>,
    pub(crate) numbers: Numbers,
    made: u64,
}

impl Trial {
    pub(crate) fn new(fs: &'static str, seed: u64) -> Option<Self> {
        let scratch = require(ScratchFs::builder(fs, Bytes::mib(512)).build())?;
        (0..3).for_each(|n| fs::create_dir(scratch.path().join(format!("d{n}"))).unwrap());
        Some(Self {
            fs,
            scratch,
            state: tempfile::tempdir().unwrap(),
            files: Vec::new(),
            numbers: Numbers::new(seed),
            made: 0,
        })
    }

    pub(crate) fn scan(&self, arguments: &[&str]) -> Ran {
        let mut command = indef_with_state(self.state.path());
        command.args(["scan", "--json"]).args(arguments);
        let ran = command.arg(self.scratch.path()).ran();
        assert_eq!(ran.status, 0, "{ran:?}");
        ran
    }

    /// The answer of a scan that opens each file.
    fn full(&self) -> Value {
        answer(&self.scan(&["--full"]))
    }

    /// A scan answers as full ones before and after it, unless these differ: the kernel writes back
    /// what it wants to.
    fn agree(&self, after: &str) {
        for _ in 0..20 {
            let before = self.full();
            let found = answer(&self.scan(&[]));
            if before == self.full() {
                assert_eq!(found, before, "after {after}");
                return;
            }
            self.scratch.sync().unwrap();
        }
        panic!("full scans never agreed after {after}");
    }

    pub(crate) fn new_path(&mut self) -> PathBuf {
        self.made += 1;
        let folder = format!("d{}", self.numbers.below(3_u64));
        self.scratch.path().join(folder).join(self.made.to_string())
    }

    pub(crate) fn make(&mut self) -> PathBuf {
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
    pub(crate) fn change(&mut self) -> &'static str {
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
        match self.numbers.below(15_u32) {
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
            13 => self.snapshot(),
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

    /// On Btrfs. Another subvolume is another file system, so that no scan enters it.
    fn snapshot(&mut self) -> &'static str {
        if self.fs == "btrfs" {
            self.made += 1;
            let to = self.scratch.path().join(format!("snapshot {}", self.made));
            let made = Command::new("btrfs")
                .args(["-q", "subvolume", "snapshot"])
                .args([self.scratch.path(), &to])
                .status();
            assert!(made.unwrap().success());
        }
        "a snapshot"
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

/// The answer without what differs from run to run. Of a file with several names any may be met first.
pub(crate) fn answer(ran: &Ran) -> Value {
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
    let rest = [
        document["totals"].clone(),
        document["verdict"].clone(),
        document["unreachable_bytes"].clone(),
    ];
    Value::Array([files, rest.into()].concat())
}

/// Random changes, between scans.
fn equals_a_full_scan(fs: &'static str) {
    let Some(mut trial) = Trial::new(fs, 15) else {
        return;
    };
    (0..12).for_each(|_| drop(trial.make()));
    trial.scratch.sync().unwrap();
    let (begun, mut rounds) = (Instant::now(), 0);
    trial.agree("the beginning");
    while rounds < LEAST || begun.elapsed() < LONGEST && rounds < 25 {
        let changes: Vec<_> = (0..1 + trial.numbers.below(4_u32))
            .map(|_| trial.change())
            .collect();
        if trial.numbers.percent(60) {
            trial.scratch.sync().unwrap();
        }
        trial.agree(&format!("{changes:?} in round {rounds}"));
        rounds += 1;
    }
    eprintln!("{fs}: {rounds} rounds");
}

#[test]
fn loop_ext4_a_scan_in_bulk_equals_a_full_one() {
    equals_a_full_scan("ext4");
}

#[test]
fn loop_xfs_a_scan_in_bulk_equals_a_full_one() {
    equals_a_full_scan("xfs");
}

#[test]
fn loop_btrfs_a_scan_in_bulk_equals_a_full_one() {
    equals_a_full_scan("btrfs");
}
