//! The disk under a loop device: file systems, discard, power cuts, the end, and little memory.

use std::{
    fs::{self, File},
    io::{self, Write},
    os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use crate::harness::{Daemon, Fs, Loop, can_make, can_mount, fsck, mkfs, run, text};
use rustix::{
    fs::{FallocateFlags, OFlags},
    io::ReadWriteFlags,
};
use scratch_fs::{require_program, skip};

fn verifies(kind: &'static str) {
    if !can_mount() || !can_make(kind) || !require_program("fio") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut daemon = Daemon::start(folder.path(), &["--profile", "zero", "--size", "400MiB"]);
    let device = Loop::attach(&daemon.disk());
    mkfs(kind, &device.0);
    let root = folder.path().join("fs");
    let mounted = Fs::mount(&device.0, kind, &root);
    let job = [
        "--name=job",
        &format!("--directory={}", root.display()),
        "--size=48m",
        "--rw=randwrite",
        "--bsrange=4k-256k",
        "--ioengine=libaio",
        "--iodepth=32",
        "--direct=1",
        "--verify=crc32c",
        "--verify_backlog=64",
        "--do_verify=1",
        "--fsync=50",
    ];
    let output = run("fio", &job);
    assert!(output.status.success(), "{}", text(&output));
    mounted.unmount();
    fsck(kind, &device.0);
    // Read it again from the device alone, with nothing in a cache.
    let mounted = Fs::mount(&device.0, kind, &root);
    let output = run("fio", &[&job[..], &["--verify_only"]].concat());
    assert!(output.status.success(), "{}", text(&output));
    mounted.unmount();
    drop(device);
    let most = daemon.most_memory();
    let allowed = (400 << 20) / 100 * 102 + (64 << 20);
    assert!(
        most <= allowed,
        "{most} bytes of memory, {allowed} are allowed"
    );
    assert!(daemon.stop().success());
}

#[test]
fn loop_ext4_verifies() {
    verifies("ext4");
}

#[test]
fn loop_xfs_verifies() {
    verifies("xfs");
}

#[test]
fn loop_btrfs_verifies() {
    verifies("btrfs");
}

#[test]
fn loop_discards_and_zeroes_reach_the_store() {
    if !can_mount() || !can_make("ext4") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store");
    let arguments = [
        "--profile",
        "zero",
        "--size",
        "128MiB",
        "--sparse",
        "--store",
        store.to_str().unwrap(),
    ];
    let daemon = Daemon::start(folder.path(), &arguments);
    let disk = daemon.open();
    // On the file itself, with ends inside of blocks.
    let mut bytes = vec![0; 1 << 20];
    for flags in [
        FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
        FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE,
    ] {
        for (from, len) in [(5000, 10), (4000, 200), (4096, 8192), (100, 1_000_000)] {
            disk.write_all_at(&vec![7; 1 << 20], 0).unwrap();
            rustix::fs::fallocate(&disk, flags, from, len).unwrap();
            disk.read_exact_at(&mut bytes, 0).unwrap();
            let (from, until) = (from as usize, (from + len) as usize);
            assert!(bytes[from..until].iter().all(|byte| *byte == 0));
            assert!(
                bytes[..from]
                    .iter()
                    .chain(&bytes[until..])
                    .all(|byte| *byte == 7)
            );
        }
    }
    // Through a file system: deleted data leaves the store's file. On a loop device of its own:
    // where somebody has forbidden discards, that stays until the machine restarts, whatever it is
    // attached to.
    let number = 100 + std::process::id() % 900;
    let device = Loop::attach_as(&format!("/dev/loop{number}"), &daemon.disk());
    mkfs("ext4", &device.0);
    let mounted = Fs::mount(&device.0, "ext4", &folder.path().join("fs"));
    let path = mounted.root.join("large");
    let mut file = File::create(&path).unwrap();
    file.write_all(&vec![9; 64 << 20]).unwrap();
    file.sync_all().unwrap();
    drop(file);
    let space = || {
        // Data that the file system below has not placed yet does not count.
        File::open(&store).unwrap().sync_all().unwrap();
        fs::metadata(&store).unwrap().blocks() * 512
    };
    let full = space();
    fs::remove_file(&path).unwrap();
    File::open(&mounted.root).unwrap().sync_all().unwrap();
    let output = run("fstrim", &["-v", mounted.root.to_str().unwrap()]);
    assert!(output.status.success(), "{}", text(&output));
    mounted.unmount();
    let empty = space();
    assert!(
        full > empty + (60 << 20),
        "{full} bytes, {empty} after fstrim"
    );
    fsck("ext4", &device.0);
}

#[test]
fn loop_a_power_cut_loses_what_was_not_flushed() {
    if !can_mount() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path(), &["--profile", "zero", "--size", "64MiB"]);
    let disk = daemon.open();
    disk.write_all_at(&[1; 4096], 0).unwrap();
    disk.sync_data().unwrap();
    disk.write_all_at(&[2; 8192], 0).unwrap();
    let output = daemon.ask(&["power-cut", "--json"]);
    assert!(output.status.success(), "{}", text(&output));
    let answer: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(answer["lost_bytes"], 8192);
    let mut bytes = [9; 8192];
    disk.read_exact_at(&mut bytes, 0).unwrap();
    assert!(bytes[..4096].iter().all(|byte| *byte == 1));
    assert!(bytes[4096..].iter().all(|byte| *byte == 0));

    let output = daemon.ask(&["stats", "--json"]);
    let stats: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(stats["power_cuts"], 1);
    let output = daemon.ask(&["status", "--name", "nobody"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output).contains("no flashd named 'nobody'"),
        "{}",
        text(&output)
    );
    let socket = folder.path().join(format!("flashd/{}.sock", daemon.pid()));
    assert_eq!(fs::metadata(socket).unwrap().mode() & 0o777, 0o600);
}

/// For a file past the page cache the kernel sends no fsync for these: the file system has to see to it.
#[test]
fn loop_synchronous_writes_are_durable() {
    if !can_mount() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path(), &["--profile", "zero", "--size", "64MiB"]);
    // rustix names them alike.
    let (dsync, sync) = (0o10000, OFlags::SYNC.bits() as i32);
    let open = |flags| {
        let mut options = File::options();
        let options = options.write(true).custom_flags(flags);
        options.open(daemon.disk()).unwrap()
    };
    open(dsync).write_all_at(&[1; 4096], 0).unwrap();
    // Not whole blocks.
    open(sync).write_all_at(&[2; 100], 4096).unwrap();
    let plain = daemon.open();
    let data = [io::IoSlice::new(&[3; 4096])];
    let written = rustix::io::pwritev2(&plain, &data, 8192, ReadWriteFlags::DSYNC).unwrap();
    assert_eq!(written, 4096);
    plain.write_all_at(&[4; 4096], 12288).unwrap();
    let output = daemon.ask(&["power-cut", "--json"]);
    let answer: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(answer["lost_bytes"], 4096);
    for (at, byte) in [(0, 1), (4096, 2), (4196, 0), (8192, 3), (12288, 0)] {
        let mut found = [9];
        plain.read_exact_at(&mut found, at).unwrap();
        assert_eq!(found, [byte], "at {at}");
    }
}

#[test]
fn loop_it_ends_when_it_is_no_longer_used() {
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
        "--store",
        store.to_str().unwrap(),
    ];
    let mut daemon = Daemon::start(folder.path(), &arguments);
    // A second one on the same store is refused.
    let other = folder.path().join("other");
    fs::create_dir(&other).unwrap();
    let second = Command::new(env!("CARGO_BIN_EXE_flashd"))
        .arg("mount")
        .arg(&other)
        .args(arguments)
        .env("XDG_RUNTIME_DIR", &other)
        .output()
        .unwrap();
    assert_eq!(second.status.code(), Some(1));
    assert!(
        text(&second).contains("another flashd uses this store"),
        "{}",
        text(&second)
    );

    let device = Loop::attach(&daemon.disk());
    let mut block = File::options().write(true).open(&device.0).unwrap();
    block.write_all(&[5; 4096]).unwrap();
    drop(block);
    let since = Instant::now();
    let detach = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(300));
        drop(device);
    });
    assert!(daemon.stop().success(), "{}", daemon.log());
    assert!(
        since.elapsed() > Duration::from_millis(250),
        "it was in use"
    );
    detach.join().unwrap();
    assert!(
        fs::read_dir(folder.path().join("mnt"))
            .unwrap()
            .next()
            .is_none()
    );
    assert!(daemon.log().contains("still in use"));

    // Data that was written and not flushed is flushed by a clean end.
    let mut daemon = Daemon::start(folder.path(), &arguments);
    let mut byte = [0];
    File::open(daemon.disk())
        .unwrap()
        .read_exact_at(&mut byte, 0)
        .unwrap();
    assert_eq!(byte, [5]);
    // Another process unmounts it: that is an end as well.
    let output = run("umount", &[folder.path().join("mnt").to_str().unwrap()]);
    assert!(output.status.success(), "{}", text(&output));
    assert!(daemon.stop().success(), "{}", daemon.log());
}

#[test]
fn loop_late_answers_fail_a_measuring_run() {
    if !can_mount() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for (limit, expected) in [("0ns@p100", 1), ("10s", 0)] {
        let arguments = [
            "--profile",
            "indef-femu",
            "--size",
            "64MiB",
            "--time-scale",
            "2",
            "--max-lateness",
            limit,
        ];
        let mut daemon = Daemon::start(folder.path(), &arguments);
        let disk = daemon.open();
        const STRIDE: u64 = 64 << 10;
        for at in 0..50 {
            disk.write_all_at(&[1; STRIDE as usize], at * STRIDE)
                .unwrap();
        }
        disk.sync_data().unwrap();
        let mut block = [0; 4096];
        let mut took: Vec<Duration> = (0..50)
            .map(|at| {
                let since = Instant::now();
                disk.read_exact_at(&mut block, at * STRIDE).unwrap();
                since.elapsed()
            })
            .collect();
        drop(disk);
        // A page takes 65 µs to sense, and the device's time goes at half the speed.
        took.sort();
        assert!(took[25] > Duration::from_micros(130), "{took:?}");
        let output = daemon.ask(&["stats", "--json"]);
        let stats: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(
            stats["lateness"]["answers"].as_u64().unwrap() >= 50,
            "{stats}"
        );
        assert_eq!(daemon.stop().code(), Some(expected), "{}", daemon.log());
    }
    let log = fs::read_to_string(folder.path().join("log")).unwrap();
    assert!(log.contains("do not use this run"), "{log}");
}

/// A memory cgroup (v1: there reclaim waits for writeback) that is removed when it is dropped.
struct Cgroup(PathBuf);

impl Cgroup {
    fn new(limit: u64) -> Option<Self> {
        let path = PathBuf::from(format!(
            "/sys/fs/cgroup/memory/flashd-test-{}",
            std::process::id()
        ));
        fs::create_dir(&path).ok()?;
        let cgroup = Self(path);
        fs::write(cgroup.0.join("memory.limit_in_bytes"), limit.to_string()).ok()?;
        Some(cgroup)
    }

    /// A command that runs inside.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new("sh");
        let procs = self.0.join("cgroup.procs");
        let enter = format!("echo $$ > {} && exec \"$@\"", procs.display());
        command.args(["-c", &enter, "sh", program]);
        command
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        for _ in 0..100 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// The writer gets no memory until its data is written back. The daemon writes it back and shares
/// the writer's memory limit: it must not need more for that.
#[test]
fn loop_writeback_does_not_wait_for_itself() {
    if !can_mount() || !can_make("ext4") {
        return;
    }
    const DISK: u64 = 192 << 20;
    let Some(cgroup) = Cgroup::new(DISK + (64 << 20)) else {
        skip("there is no memory cgroup (v1) to make memory short in");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start_by(
        cgroup.command(env!("CARGO_BIN_EXE_flashd")),
        folder.path(),
        &["--profile", "zero", "--size", "192MiB"],
    );
    let device = Loop::attach(&daemon.disk());
    mkfs("ext4", &device.0);
    let mounted = Fs::mount(&device.0, "ext4", &folder.path().join("fs"));
    for round in 0..10 {
        let mut writer = cgroup
            .command("dd")
            .args(["if=/dev/zero", "bs=1M", "count=150", "conv=fsync"])
            .arg(format!("of={}", mounted.root.join("large").display()))
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let patience = Instant::now() + Duration::from_secs(120);
        let status = loop {
            if let Some(status) = writer.try_wait().unwrap() {
                break Some(status);
            }
            if Instant::now() > patience {
                break None;
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        if status.is_none() {
            daemon.show_threads();
            daemon.abort();
            let _ = writer.wait();
            panic!("round {round}: writeback waits for itself");
        }
        assert!(status.unwrap().success(), "round {round}: {status:?}");
        fs::remove_file(mounted.root.join("large")).unwrap();
    }
    let pressed = fs::read_to_string(cgroup.0.join("memory.failcnt")).unwrap();
    assert!(pressed.trim() != "0", "memory never was short");
    mounted.unmount();
    fsck("ext4", &device.0);
    assert!(Path::new(&device.0).exists());
}

/// Errors reach programs that use the disk; a slow die shows in the time of its reads.
#[test]
fn loop_injected_faults_reach_the_host_until_they_are_cleared() {
    if !can_mount() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path(), &["--profile", "fast24", "--size", "64MiB"]);
    let disk = daemon.open();
    disk.write_all_at(&[1; 64 << 10], 0).unwrap();
    disk.sync_data().unwrap();
    let inject = |args: &[&str]| {
        let output = daemon.ask(&[&["inject"], args, &["--json"]].concat());
        assert!(output.status.success(), "{}", text(&output));
        let answer: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        answer["faults"].clone()
    };
    let place = ["error", "--offset", "8KiB", "--length", "4KiB"];
    inject(&[&place[..], &["--on", "read", "--times", "2"]].concat());
    let mut bytes = [0; 4096];
    let failed = Some(rustix::io::Errno::IO.raw_os_error());
    for expected in [failed, failed, None] {
        let error = disk.read_exact_at(&mut bytes, 8192).err();
        assert_eq!(error.and_then(|error| error.raw_os_error()), expected);
    }
    assert_eq!(bytes, [1; 4096]);
    assert_eq!(inject(&["list"])["errors"][0]["failed"], 2);

    for die in 0..8 {
        let faults = inject(&["slow-die", &die.to_string(), "--factor", "1000"]);
        assert_eq!(faults["slow_dies"][die]["die"], die);
    }
    let begun = std::time::Instant::now();
    let mut all = vec![0; 64 << 10];
    disk.read_exact_at(&mut all, 0).unwrap();
    // By the profile its cells are read in 36 µs.
    assert!(begun.elapsed() > std::time::Duration::from_millis(30));

    let output = daemon.ask(&["inject", "list"]);
    assert!(text(&output).contains("times as slow"), "{}", text(&output));
    let output = daemon.ask(&["inject", "slow-die", "9999"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output).contains("there is no die 9999"),
        "{}",
        text(&output)
    );
    assert_eq!(inject(&["clear"])["slow_dies"][0]["factor"], 1000.0);
    let output = daemon.ask(&["inject", "list"]);
    assert_eq!(output.stdout, b"no faults\n");
}
