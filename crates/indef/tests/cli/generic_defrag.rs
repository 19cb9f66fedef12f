//! Requirements for any defragmenter, whoever wrote it: a program that is called as `PROGRAM -v
//! FILE`, once for each file, and judged by the content of the device afterwards.
//!
//! By default PROGRAM is a two-line script around `indef run`; another one can be named in
//! `GENERIC_DEFRAGMENTER`. Before and after each call the file system is mounted anew, so that data
//! that is only in memory is not judged; times are compared before anything is read again.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Seek, SeekFrom, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, SystemTime},
};

use crate::common::install_script;
use scratch_fs::{ScratchFs, fragments, require};
use sha2::{Digest, Sha256};
use units::Bytes;

const BLOCK: usize = 4096;
const FILE_SYSTEMS: [&str; 3] = ["ext4", "xfs", "btrfs"];

/// The facts that must be the same before and after.
#[derive(Debug, PartialEq, Eq)]
struct Constant {
    size: u64,
    mode: u32,
    inode: u64,
    links: u64,
    accessed: (i64, i64),
    modified: (i64, i64),
    changed: (i64, i64),
    neighbours: Vec<String>,
}

fn constant(path: &Path) -> Constant {
    let metadata = path.metadata().unwrap();
    let mut neighbours: Vec<String> = fs::read_dir(path.parent().unwrap())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    neighbours.sort_unstable();
    Constant {
        size: metadata.size(),
        mode: metadata.mode(),
        inode: metadata.ino(),
        links: metadata.nlink(),
        accessed: (metadata.atime(), metadata.atime_nsec()),
        modified: (metadata.mtime(), metadata.mtime_nsec()),
        changed: (metadata.ctime(), metadata.ctime_nsec()),
        neighbours,
    }
}

fn hash(path: &Path) -> Vec<u8> {
    let mut content = Vec::new();
    File::open(path).unwrap().read_to_end(&mut content).unwrap();
    Sha256::digest(&content).to_vec()
}

/// PROGRAM, and its folder, which has to live as long as it is used.
fn program() -> (PathBuf, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    if let Some(program) = std::env::var_os("GENERIC_DEFRAGMENTER") {
        return (program.into(), folder);
    }
    let script = folder.path().join("defragmenter");
    // Its runs are none of the history of whoever runs the tests.
    let (state, indef) = (folder.path().join("state"), env!("CARGO_BIN_EXE_indef"));
    let run = format!(
        "STATE_DIRECTORY='{}' exec '{indef}' run \"$@\"",
        state.display()
    );
    install_script(&script, &run);
    (script, folder)
}

/// Make a file on each file system, call PROGRAM, compare. `make` gets the path of the file;
/// `judge` gets the number of fragments before and after, and whether the blocks are at the same
/// places.
fn each_file_system(make: impl Fn(&Path), judge: impl Fn(&str, u64, u64, bool)) {
    let (program, _folder) = program();
    for kind in FILE_SYSTEMS {
        let Some(mut scratch) = require(ScratchFs::builder(kind, Bytes::mib(512)).build()) else {
            continue;
        };
        let path = scratch.path().join("file with spaces");
        make(&path);
        let hash_before = hash(&path);
        // Long past and with odd nanoseconds, so that any change shows.
        let past = SystemTime::UNIX_EPOCH + Duration::new(1_000_000_000, 123_456_789);
        let times = fs::FileTimes::new().set_accessed(past).set_modified(past);
        OpenOptions::new()
            .write(true)
            .open(&path)
            .unwrap()
            .set_times(times)
            .unwrap();
        scratch.remount().unwrap();

        let before = constant(&path);
        let blocks_before = path.metadata().unwrap().blocks();
        let map_before = map(&path);
        let fragments_before = fragments(&open_quietly(&path)).unwrap();
        let output = Command::new(&program)
            .arg("-v")
            .arg(&path)
            .output()
            .unwrap();
        assert!(output.status.success(), "{kind}: {output:?}");

        scratch.remount().unwrap();
        assert_eq!(constant(&path), before, "{kind}: {output:?}");
        // Fewer are possible: a shorter map of the extents needs fewer blocks itself.
        let blocks_after = path.metadata().unwrap().blocks();
        assert!(blocks_after <= blocks_before, "{kind}: holes were filled");
        let fragments_after = fragments(&open_quietly(&path)).unwrap();
        let untouched = map(&path) == map_before;
        assert_eq!(hash(&path), hash_before, "{kind}: contents");
        assert!(
            fragments_after <= fragments_before,
            "{kind}: more fragments than before"
        );
        judge(kind, fragments_before, fragments_after, untouched);
        scratch.fsck().unwrap();
    }
}

/// Open a file such that reading it does not count as an access.
fn open_quietly(path: &Path) -> File {
    OpenOptions::new()
        .read(true)
        .custom_flags(rustix::fs::OFlags::NOATIME.bits() as i32)
        .open(path)
        .unwrap()
}

/// The places of the bytes, as filefrag reports them.
fn map(path: &Path) -> String {
    let output = Command::new("filefrag")
        .env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin")
        .arg("-v")
        .arg(path)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn block(number: usize) -> [u8; BLOCK] {
    let mut block = [(number % 251) as u8 + 1; BLOCK];
    block[..8].copy_from_slice(&(number as u64).to_le_bytes());
    block
}

/// Write the blocks in this order, each of them to the device before the next, to a file that has
/// its size from the start: XFS would fill holes after a growing end.
fn write_synced(path: &Path, size: usize, numbers: impl Iterator<Item = usize>) {
    let mut file = File::create(path).unwrap();
    file.set_len((size * BLOCK) as u64).unwrap();
    for number in numbers {
        file.seek(SeekFrom::Start((number * BLOCK) as u64)).unwrap();
        file.write_all(&block(number)).unwrap();
        file.sync_all().unwrap();
    }
}

#[test]
fn loop_generic_an_empty_file_stays_empty() {
    each_file_system(
        |path| drop(File::create(path).unwrap()),
        |kind, before, after, _| assert_eq!((before, after), (0, 0), "{kind}"),
    );
}

#[test]
fn loop_generic_a_file_that_is_one_hole_gets_no_blocks() {
    each_file_system(
        |path| File::create(path).unwrap().set_len(10 << 20).unwrap(),
        |kind, before, after, _| assert_eq!((before, after), (0, 0), "{kind}"),
    );
}

#[test]
fn loop_generic_a_contiguous_file_is_not_touched() {
    each_file_system(
        |path| {
            let mut file = File::create(path).unwrap();
            (0..256)
                .try_for_each(|number| file.write_all(&block(number)))
                .unwrap();
            file.sync_all().unwrap();
        },
        |kind, before, after, untouched| {
            assert_eq!((before, after), (1, 1), "{kind}");
            assert!(untouched, "{kind}: the blocks are elsewhere");
        },
    );
}

#[test]
fn loop_generic_a_file_written_backwards_becomes_one_fragment() {
    each_file_system(
        |path| {
            write_synced(path, 10, (0..10).rev());
            if fragments(&File::open(path).unwrap()).unwrap() < 10 {
                // XFS puts a block before its successor if that place is free.
                fs::remove_file(path).unwrap();
                backwards_beside_another(path).unwrap();
            }
        },
        |kind, before, after, _| assert_eq!((before, after), (10, 1), "{kind}"),
    );
}

/// The same, with a second file written in turn, which takes the place that would have been next.
fn backwards_beside_another(path: &Path) -> io::Result<()> {
    let other_path = path.with_extension("other");
    let mut files = [File::create(path)?, File::create(&other_path)?];
    for number in (0..10).rev() {
        for file in &mut files {
            file.seek(SeekFrom::Start((number * BLOCK) as u64))?;
            file.write_all(&block(number))?;
            file.sync_all()?;
        }
    }
    fs::remove_file(&other_path)
}

#[test]
fn loop_generic_holes_are_kept() {
    each_file_system(
        |path| write_synced(path, 32, (0..32).step_by(2)),
        |kind, before, after, _| assert_eq!((before, after), (16, 16), "{kind}"),
    );
}
