//! The daemon is killed under load: flushed data is there, and blocks whose data was not flushed
//! are as they were.

use std::{
    fs::{self, File},
    io::{self, Write},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use crate::harness::{Daemon, Fs, Loop, can_make, can_mount, fsck, mkfs};
use units::FileOffset;

const BLOCK: usize = 4096;
const BLOCKS: u64 = 4096;

/// Content of a version of a block: none of it is like that of another.
fn content(block: u64, version: u64) -> Vec<u8> {
    let word = (block << 40 | version).to_le_bytes();
    if version == 0 {
        return vec![0; BLOCK];
    }
    word.iter().copied().cycle().take(BLOCK).collect()
}

/// The knowledge about a block: the version that a flush covered, and those since.
#[derive(Clone, Debug, Default)]
struct Block {
    durable: u64,
    since: Vec<u64>,
    /// Written before a flush that had not returned: either.
    flushing: Vec<u64>,
}

/// Wait until something was done so often, or cannot be any more.
fn wait_for(done: &AtomicU32, times: u32) {
    let patience = Instant::now() + Duration::from_secs(120);
    while done.load(Ordering::Relaxed) < times && Instant::now() < patience {
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn loop_what_was_flushed_is_there_after_a_kill() {
    if !can_mount() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store");
    let arguments = [
        "--profile",
        "zero",
        "--size",
        "16MiB",
        "--write-cache",
        "32MiB",
        "--store",
        store.to_str().unwrap(),
    ];
    let mut blocks = vec![Block::default(); BLOCKS as usize];
    let mut version = 0;
    let mut random = 12345u64;
    let mut next = move || {
        random = random
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        random >> 33
    };
    let mut flushes = 0;
    for round in 0..6 {
        let mut daemon = Daemon::start(folder.path(), &arguments);
        let disk = daemon.open();
        if round > 0 {
            check(&disk, &mut blocks);
        }
        let flushed = Arc::new(AtomicU32::new(0));
        let killer = {
            let (pid, flushed) = (daemon.pid(), Arc::clone(&flushed));
            let after = Duration::from_millis(next() % 200);
            std::thread::spawn(move || {
                // However slow this machine is.
                wait_for(&flushed, 4);
                std::thread::sleep(after);
                let pid = rustix::process::Pid::from_raw(pid as i32).unwrap();
                rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
            })
        };
        loop {
            version += 1;
            let block = next() % BLOCKS;
            let of = &mut blocks[block as usize];
            // Noted before: a write that fails may have happened.
            of.since.push(version);
            if disk
                .write_all_at(&content(block, version), block * BLOCK as u64)
                .is_err()
            {
                break;
            }
            if next() % 50 == 0 {
                for of in blocks.iter_mut() {
                    of.flushing.clone_from(&of.since);
                }
                if disk.sync_data().is_err() {
                    break;
                }
                flushes += 1;
                flushed.fetch_add(1, Ordering::Relaxed);
                for of in blocks.iter_mut() {
                    of.durable = of.flushing.last().copied().unwrap_or(of.durable);
                    of.flushing.clear();
                    of.since.clear();
                }
            }
        }
        killer.join().unwrap();
        daemon.kill();
    }
    assert!(
        flushes > 20,
        "only {flushes} flushes: the daemon was killed too early to show much"
    );
}

/// The cache never was full: exactly what no flush covered is gone.
fn check(disk: &File, blocks: &mut [Block]) {
    let mut found = vec![0; BLOCK];
    for (block, of) in (0u64..).zip(blocks) {
        disk.read_exact_at(&mut found, block * BLOCK as u64)
            .unwrap();
        let legal = std::iter::once(of.durable).chain(of.flushing.last().copied());
        let is = legal
            .into_iter()
            .find(|version| content(block, *version) == found);
        let is = is.unwrap_or_else(|| panic!("block {block} is none of {of:?}: {:?}", &found[..8]));
        *of = Block {
            durable: is,
            ..Block::default()
        };
    }
}

/// A device with a file system, and a daemon that can be killed below it.
struct Stack {
    folder: tempfile::TempDir,
    kind: &'static str,
}

impl Stack {
    fn arguments(&self) -> Vec<String> {
        let store = self.folder.path().join("store");
        [
            "--profile",
            "zero",
            "--size",
            "400MiB",
            "--sparse",
            "--store",
        ]
        .map(str::to_owned)
        .into_iter()
        .chain([store.to_str().unwrap().to_owned()])
        .collect()
    }

    fn start(&self) -> Daemon {
        let arguments = self.arguments();
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        Daemon::start(self.folder.path(), &arguments)
    }

    fn root(&self) -> PathBuf {
        self.folder.path().join("fs")
    }
}

/// The content of a file.
fn file_content(number: u32) -> Vec<u8> {
    let mut bytes = vec![0; 20_000];
    scratch_fs::content(&mut bytes, u64::from(number), FileOffset(0));
    bytes
}

/// Write files and fsync them until that fails, and count those that were acknowledged.
fn write_files(root: &Path, prefix: &str, acknowledged: &AtomicU32) {
    let one = |number: u32| -> io::Result<()> {
        let mut file = File::create(root.join(format!("{prefix}-{number}")))?;
        file.write_all(&file_content(number))?;
        file.sync_all()?;
        File::open(root)?.sync_all()
    };
    while one(acknowledged.load(Ordering::Relaxed)).is_ok() {
        acknowledged.fetch_add(1, Ordering::Relaxed);
    }
}

fn survives_kills(kind: &'static str) {
    if !can_mount() || !can_make(kind) {
        return;
    }
    let stack = Stack {
        folder: tempfile::tempdir().unwrap(),
        kind,
    };
    let mut acknowledged = Vec::new();
    for round in 0..3 {
        let mut daemon = stack.start();
        let device = Loop::attach(&daemon.disk());
        if round == 0 {
            mkfs(stack.kind, &device.0);
        }
        let mounted = Fs::mount(&device.0, stack.kind, &stack.root());
        check_files(&mounted.root, &acknowledged);
        if round == 2 {
            mounted.unmount();
            fsck(stack.kind, &device.0);
            drop(device);
            assert!(daemon.stop().success(), "{}", daemon.log());
            break;
        }
        let root = mounted.root.clone();
        let prefix = format!("round{round}");
        let written = Arc::new(AtomicU32::new(0));
        let writer = {
            let (prefix, written) = (prefix.clone(), Arc::clone(&written));
            std::thread::spawn(move || write_files(&root, &prefix, &written))
        };
        // However slow this machine is.
        wait_for(&written, 8);
        std::thread::sleep(Duration::from_millis(100));
        daemon.kill();
        writer.join().unwrap();
        let count = written.load(Ordering::Relaxed);
        assert!(count > 3, "only {count} files before the kill");
        acknowledged.push((prefix, count));
        drop(mounted);
        drop(device);
    }
}

fn check_files(root: &Path, acknowledged: &[(String, u32)]) {
    for (prefix, count) in acknowledged {
        for number in 0..*count {
            let path = root.join(format!("{prefix}-{number}"));
            let found =
                fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            assert!(found == file_content(number), "{}", path.display());
        }
    }
}

#[test]
fn loop_ext4_survives_kills_of_the_daemon() {
    survives_kills("ext4");
}

#[test]
fn loop_xfs_survives_kills_of_the_daemon() {
    survives_kills("xfs");
}

#[test]
fn loop_btrfs_survives_kills_of_the_daemon() {
    survives_kills("btrfs");
}
