//! What a scan of a whole subvolume remembers is what a full one finds, whatever happened meanwhile.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::{PermissionsExt, symlink},
    path::PathBuf,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use indef_fs::{SubvolumeFiles, detect};
use serde_json::Value;

use crate::{
    common::{Ran, Run, indef_with_state},
    loop_scan_bulk::{LEAST, LONGEST, Trial, answer},
};

/// Files in one piece.
const SMALL: u64 = 600;
/// Of these so many are remembered where little changed.
const MOST: u64 = SMALL / 2;

impl Trial {
    /// Scan, and tell how many files were not looked at. It answers as full scans before and after it, unless these
    /// differ: the kernel writes back what it wants to.
    pub(crate) fn again(&self, after: &str) -> u64 {
        for _ in 0..20 {
            let before = self.fragmented(&["--full"]);
            let found = self.fragmented(&[]);
            if answer(&before) == answer(&self.fragmented(&["--full"])) {
                assert_eq!(answer(&found), answer(&before), "after {after}");
                assert_eq!(remembered(&before), 0);
                return remembered(&found);
            }
            self.scratch.sync().unwrap();
        }
        panic!("full scans never agreed after {after}");
    }

    pub(crate) fn fragmented(&self, arguments: &[&str]) -> Ran {
        if self.fs == "btrfs" {
            self.settle();
        }
        self.scan(&[&["--only-fragmented"], arguments].concat())
    }

    /// Wait until nothing waits outside of the tree, as a scan does, but not for long: then it walks, and remembers nothing.
    /// The kernel frees in the background what was deleted.
    fn settle(&self) {
        let root = File::open(self.scratch.path()).unwrap();
        let fs = detect(&root, self.scratch.path()).unwrap();
        let until = Instant::now() + Duration::from_secs(120);
        let mut looks = 0;
        // Not just for a moment.
        while looks < 5 {
            assert!(Instant::now() < until, "something waits all the time");
            // Where there is a mount on it, nothing is told.
            let files = SubvolumeFiles::open(&fs, &root);
            let is_settled = files.is_none_or(|files| files.settle().is_some());
            looks = if is_settled { looks + 1 } else { 0 };
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Change directories, and tell what.
    pub(crate) fn change_folders(&mut self) -> &'static str {
        let folder = |n: u32| self.scratch.path().join(format!("d{n}"));
        let deep = folder(0).join("deep").join("deeper");
        match self.numbers.below(6_u32) {
            0 => {
                fs::create_dir_all(&deep).unwrap();
                (0..9).for_each(|n| fs::write(deep.join(n.to_string()), [1; 9000]).unwrap());
                "a deep directory"
            }
            1 => {
                let removed = fs::remove_dir_all(folder(0).join("deep"));
                assert!(removed.is_ok() || removed.unwrap_err().kind() == io::ErrorKind::NotFound);
                "a removal of all beneath a directory"
            }
            2 if deep.exists() => {
                let to = folder(1)
                    .join(format!("moved {}", self.new_path().display()).replace('/', "-"));
                fs::rename(&deep, to).unwrap();
                "a move of a directory"
            }
            3 => {
                let to = self.new_path();
                symlink("d0", &to).unwrap();
                fs::hard_link(&to, to.with_extension("link")).unwrap();
                "symbolic links"
            }
            4 => {
                // The numbers of directories change, and not those of files.
                let new = self.scratch.path().join("new");
                fs::create_dir(&new).unwrap();
                for entry in fs::read_dir(folder(2)).unwrap() {
                    let entry = entry.unwrap();
                    fs::rename(entry.path(), new.join(entry.file_name())).unwrap();
                }
                fs::remove_dir(folder(2)).unwrap();
                fs::rename(new, folder(2)).unwrap();
                "a directory in place of another"
            }
            _ if self.fs != "btrfs" => {
                let device = ["b", "7", "0"];
                let made = Command::new("mknod")
                    .arg(self.new_path())
                    .args(device)
                    .status();
                assert!(made.unwrap().success());
                "a device"
            }
            _ => {
                let to = self.new_path();
                let made = Command::new("btrfs")
                    .args(["-q", "subvolume", "create"])
                    .arg(&to)
                    .status();
                assert!(made.unwrap().success());
                "a subvolume"
            }
        }
    }

    /// With so many small files that a change concerns few leaves of the tree.
    fn with_small(seed: u64) -> Option<Self> {
        let mut trial = Self::new("btrfs", seed)?;
        let folder = trial.scratch.path().join("d0");
        (0..SMALL).for_each(|n| fs::write(folder.join(format!("small {n}")), [1; 5000]).unwrap());
        trial.scratch.sync().unwrap();
        // In another transaction: what is of the last one before a scan is looked at again.
        (0..6).for_each(|_| drop(trial.make()));
        trial.scratch.sync().unwrap();
        Some(trial)
    }

    fn memory(&self) -> PathBuf {
        let mut files = fs::read_dir(self.state.path().join("scans")).unwrap();
        files.next().unwrap().unwrap().path()
    }
}

fn remembered(ran: &Ran) -> u64 {
    let Value::Number(number) = &ran.json()["remembered_files"] else {
        panic!("{ran:?}");
    };
    number.as_u64().unwrap()
}

#[test]
fn loop_btrfs_a_scan_that_remembers_equals_a_full_one() {
    // So many that one round changes few of them.
    let Some(mut trial) = Trial::with_small(16) else {
        return;
    };
    assert_eq!(trial.again("the beginning"), 0);
    let (begun, mut rounds, mut least) = (Instant::now(), 0, u64::MAX);
    while rounds < LEAST || begun.elapsed() < LONGEST && rounds < 40 {
        let number = 1 + trial.numbers.below(3_u32);
        let changes: Vec<_> = (0..number)
            .map(|_| match trial.numbers.percent(40) {
                true => trial.change_folders(),
                false => trial.change(),
            })
            .collect();
        let found = trial.again(&format!("{changes:?} in round {rounds}"));
        least = least.min(found);
        rounds += 1;
    }
    eprintln!("{rounds} rounds, at least {least} files remembered");
    assert!(least >= MOST / 2);
}

#[test]
fn loop_btrfs_a_memory_is_believed_only_if_it_is_whole_and_ours() {
    let Some(mut trial) = Trial::with_small(17) else {
        return;
    };
    let full = answer(&trial.fragmented(&["--full"]));
    let scan = |trial: &Trial, after: &str| {
        let found = trial.fragmented(&[]);
        assert_eq!(answer(&found), full, "after {after}");
        remembered(&found)
    };
    assert_eq!(scan(&trial, "the beginning"), 0);
    let whole = fs::read(trial.memory()).unwrap();
    let most = scan(&trial, "nothing");
    assert!(most >= MOST, "{most}");
    // As it is not worth a write.
    assert_eq!(fs::read(trial.memory()).unwrap(), whole);
    let flipped = |at: usize| {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x10;
        bytes
    };
    let foreign =
        b"something else that is long enough for a header, and for a record or two".to_vec();
    for (damage, bytes) in [
        ("nothing in it", Vec::new()),
        ("cut off", whole[..whole.len() - 1].to_vec()),
        ("longer", [&whole[..], b"x"].concat()),
        ("another version", flipped(8)),
        ("another transaction", flipped(17)),
        ("another inode", flipped(whole.len() - 3)),
        ("another file", foreign),
    ] {
        fs::write(trial.memory(), bytes).unwrap();
        assert_eq!(scan(&trial, damage), 0, "{damage}");
        assert!(scan(&trial, "a scan that mended it") >= MOST, "{damage}");
    }
    // Somebody else could have written it.
    fs::set_permissions(trial.memory(), fs::Permissions::from_mode(0o666)).unwrap();
    assert_eq!(scan(&trial, "chmod"), 0);
    assert!(scan(&trial, "a new one") >= MOST);
    assert_eq!(remembered(&trial.fragmented(&["--io-size", "64KiB"])), 0);
    assert_eq!(scan(&trial, "another I/O size"), 0);
    // Whatever happened to it meanwhile.
    trial.scratch.remount().unwrap();
    assert_eq!(scan(&trial, "a remount"), 0);
    assert!(scan(&trial, "nothing") >= MOST);
    // With nowhere to keep it, nothing is remembered, and nothing else is different.
    let folder = trial.state.path().join("scans");
    fs::remove_dir_all(&folder).unwrap();
    fs::write(&folder, "in the way").unwrap();
    assert_eq!(scan(&trial, "no folder") + scan(&trial, "no folder"), 0);
}

/// Undone when dropped.
pub(crate) struct Covered(PathBuf);

impl Covered {
    pub(crate) fn new(folder: PathBuf) -> Self {
        let mount = Command::new("mount")
            .args(["-t", "tmpfs", "none"])
            .arg(&folder)
            .status();
        assert!(mount.unwrap().success());
        Self(folder)
    }
}

impl Drop for Covered {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

#[test]
fn loop_btrfs_what_is_below_a_mount_is_not_scanned() {
    let Some(trial) = Trial::with_small(18) else {
        return;
    };
    let folder = |name: &str| trial.scratch.path().join(name);
    fs::create_dir(folder("empty")).unwrap();
    trial.again("the beginning");
    {
        let _empty = Covered::new(folder("empty"));
        assert!(trial.again("a mount on an empty directory") >= MOST);
        let _full = Covered::new(folder("d0"));
        assert_eq!(trial.again("a mount on files"), 0);
    }
    assert!(trial.again("no mount") >= MOST);
    // A directory in it is walked, and so is a snapshot: it has places of subvolumes that are none.
    let made = Command::new("btrfs")
        .args(["-q", "subvolume", "snapshot"])
        .args([trial.scratch.path(), &folder("snapshot")])
        .status();
    assert!(made.unwrap().success());
    for path in ["d0", "snapshot"] {
        let scan = |full: &[&str]| {
            let mut command = indef_with_state(trial.state.path());
            command
                .args(["scan", "--json", "--only-fragmented"])
                .args(full);
            command.arg(folder(path)).ran()
        };
        let (full, twice) = (scan(&["--full"]), [scan(&[]), scan(&[])]);
        for found in twice {
            assert_eq!(answer(&found), answer(&full), "{path}");
            assert_eq!(remembered(&found), 0);
        }
    }
}
