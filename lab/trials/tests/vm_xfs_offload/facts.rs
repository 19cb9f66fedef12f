//! The behaviour of an unpatched kernel on which the engine, or its being off by default, is based
//! (docs/offload-stock-kernel.md cites these tests).

use std::{
    fs::{self, File, OpenOptions},
    io::{Read, Write},
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use indef_core::layout::{Extent, ExtentFlags};
use indef_fs::{EngineKind, Mapper, map};
use linux_abi::{
    nvme::{
        self,
        command::{Fate, SourceRange, copy},
    },
    share::clone_range,
    xfs::start_commit,
    xfs_handle::open_unnoticed,
};
use rustix::{
    fs::{FallocateFlags, OFlags, fallocate},
    io::Errno,
};
use scratch_fs::{AlignedBuffer, FragmentOptions, fragment};
use units::{Bytes, FileRange};

use crate::{
    flavour::*,
    host::{Flashd, disk, in_guest},
    moves::OFFLOAD,
};

/// Bytes of a logical block of flashd's namespace, which has no partition.
const BLOCK: u64 = 4096;

const LEN: usize = 64 << 10;

fn create(path: &Path, direct: bool) -> File {
    let flags = if direct {
        OFlags::DIRECT
    } else {
        OFlags::empty()
    };
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .custom_flags(flags.bits() as i32)
        .open(path)
        .unwrap()
}

fn extents(file: &File) -> Vec<Extent> {
    let all = FileRange::new(0, u64::MAX);
    map(file, Path::new("a file"), all, true, &mut Mapper::default())
        .unwrap()
        .extents()
        .to_vec()
}

/// The one extent of a file that has one.
fn only(file: &File) -> Extent {
    match extents(file).as_slice() {
        [extent] => *extent,
        many => panic!("{many:?}"),
    }
}

/// Copy below the file system.
fn copy_blocks(from: Extent, to: Extent, len: usize) -> Fate {
    let device = File::open(disk()).unwrap();
    let nsid = nvme::namespace_id(&device).unwrap();
    let source = SourceRange::new(from.phys.get() / BLOCK, (len as u64 / BLOCK) as u32);
    copy(&device, nsid, to.phys.get() / BLOCK, &[source]).unwrap()
}

fn assert_copied(from: Extent, to: Extent) {
    let fate = copy_blocks(from, to, LEN);
    assert!(matches!(fate, Fate::Done), "{fate:?}");
}

fn direct_read(file: &File) -> Vec<u8> {
    let mut buffer = AlignedBuffer::new(LEN);
    file.read_exact_at(buffer.slice(), 0).unwrap();
    buffer.slice().to_vec()
}

fn direct_write(file: &File, byte: u8) {
    let mut buffer = AlignedBuffer::new(LEN);
    buffer.slice().fill(byte);
    file.write_all_at(buffer.slice(), 0).unwrap();
}

fn facts(root: &Path) {
    let source = create(&root.join("source"), true);
    direct_write(&source, b'S');
    source.sync_all().unwrap();
    let from = only(&source);

    // Blocks that are only allocated read as zeros, whatever the device has copied there.
    let allocated = create(&root.join("allocated"), true);
    fallocate(&allocated, FallocateFlags::empty(), 0, LEN as u64).unwrap();
    let to = only(&allocated);
    assert!(to.flags.contains(ExtentFlags::UNWRITTEN));
    assert_copied(from, to);
    assert_eq!(direct_read(&allocated), [0; LEN]);
    assert_eq!(only(&allocated), to);

    // No other way of fallocate makes blocks that count as written.
    let write_zeroes = FallocateFlags::from_bits_retain(0x80);
    let refused = fallocate(&allocated, write_zeroes, 0, LEN as u64);
    assert_eq!(refused, Err(Errno::OPNOTSUPP));
    for flags in [FallocateFlags::ZERO_RANGE, FallocateFlags::UNSHARE_RANGE] {
        fallocate(&allocated, flags, 0, LEN as u64).unwrap();
        assert!(only(&allocated).flags.contains(ExtentFlags::UNWRITTEN));
    }

    // Written blocks do show it, but not to readers of the page cache.
    let written = create(&root.join("written"), true);
    direct_write(&written, 0);
    written.sync_all().unwrap();
    let mut cached = vec![1; LEN];
    let buffered = File::open(root.join("written")).unwrap();
    buffered.read_exact_at(&mut cached, 0).unwrap();
    assert_copied(from, only(&written));
    assert_eq!(direct_read(&written), [b'S'; LEN]);
    buffered.read_exact_at(&mut cached, 0).unwrap();
    assert_eq!(cached, [0; LEN]);

    times_do_not_tell_that_a_file_was_moved(root);
    a_pin_stays_what_and_where_it_is(root);
}

/// Between an examination of the file's map and a copy of its blocks, the blocks may have been
/// given to another file, and `COMMIT_RANGE` would see a fresh file.
fn times_do_not_tell_that_a_file_was_moved(root: &Path) {
    let path = root.join("moved");
    let how = FragmentOptions {
        size: Bytes(LEN as u64),
        piece: Bytes(BLOCK),
        seed: 1,
    };
    fragment(&path, how).unwrap();
    let unnoticed =
        File::from(open_unnoticed(File::open(&path).unwrap(), File::open(root).unwrap()).unwrap());
    let (fresh, before) = (start_commit(&unnoticed).unwrap(), layout(&path));
    let by_host = Move {
        engine: EngineKind::XfsCommitRange,
        ..OFFLOAD
    };
    by_host.whole(&path).unwrap();
    let after = layout(&path);
    let places = |layout: &indef_core::layout::Layout| -> Vec<_> {
        layout.extents().iter().map(|e| e.phys).collect()
    };
    let still = places(&after);
    assert!(places(&before).iter().all(|place| !still.contains(place)));
    assert_eq!(start_commit(&unnoticed).unwrap(), fresh);
}

/// Blocks that another file shares are neither written nor freed, whatever is done to the file.
fn a_pin_stays_what_and_where_it_is(root: &Path) {
    let file = create(&root.join("target"), true);
    direct_write(&file, b'1');
    file.sync_all().unwrap();
    let place = only(&file);
    let pin = create(&root.join("pin"), true);
    clone_range(&file, &pin, 0, LEN as u64).unwrap();
    assert_eq!(only(&pin).phys, place.phys);
    direct_write(&file, b'2');
    file.sync_all().unwrap();
    assert_ne!(only(&file).phys, place.phys);
    file.set_len(0).unwrap();
    file.sync_all().unwrap();
    assert_eq!(only(&pin).phys, place.phys);
    assert_eq!(direct_read(&pin), [b'1'; LEN]);
    // The device reads it, too.
    let other = create(&root.join("other"), true);
    direct_write(&other, 0);
    other.sync_all().unwrap();
    assert_copied(place, only(&other));
    assert_eq!(direct_read(&other), [b'1'; LEN]);
}

#[test]
fn vm_what_an_unpatched_kernel_does() {
    if let Some(root) = in_guest() {
        facts(&root);
        return;
    }
    Flashd::new("zero", 1.0).run_alone("facts::vm_what_an_unpatched_kernel_does");
}

/// A killed process ends when its command has, with its donor open until then.
#[test]
fn vm_a_killed_process_keeps_its_donor_until_the_device_is_done() {
    const TEST: &str = "facts::vm_a_killed_process_keeps_its_donor_until_the_device_is_done";
    const IN_CHILD: &str = "INDEF_COPY_AND_DIE";
    match (in_guest(), std::env::var_os(IN_CHILD)) {
        (Some(root), Some(_)) => copy_for_ever(&root),
        (Some(root), None) => {
            let mut child = Command::new(std::env::current_exe().unwrap())
                .args(["--exact", TEST, "--nocapture"])
                .env(IN_CHILD, "1")
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            killed_in_a_copy(&mut child);
            drop(root);
        }
        (None, _) => {
            // A copy of 4 MiB takes a second or more there.
            Flashd::new("zn540", 200.0).run_alone(TEST);
        }
    }
}

const LARGE: usize = 4 << 20;

/// Copy from an unlinked file to another, and report each time that it begins.
fn copy_for_ever(root: &Path) {
    let unlinked = |name| {
        let file = create(&root.join(name), false);
        fs::remove_file(root.join(name)).unwrap();
        (&file).write_all(&vec![b'x'; LARGE]).unwrap();
        file.sync_all().unwrap();
        file
    };
    let (source, donor) = (unlinked("unlinked-source"), unlinked("unlinked-donor"));
    let (from, to) = (only(&source), only(&donor));
    loop {
        println!("copying");
        let fate = copy_blocks(from, to, LARGE);
        assert!(matches!(fate, Fate::Done), "{fate:?}");
    }
}

fn killed_in_a_copy(child: &mut std::process::Child) {
    let mut said = Vec::new();
    let mut stdout = child.stdout.take().unwrap();
    let mut part = [0; 256];
    while !said.ends_with(b"copying\n") {
        let got = stdout.read(&mut part).unwrap();
        assert_ne!(got, 0, "{}", String::from_utf8_lossy(&said));
        said.extend_from_slice(&part[..got]);
    }
    std::thread::sleep(Duration::from_millis(100));
    child.kill().unwrap();
    let killed = Instant::now();
    std::thread::sleep(Duration::from_millis(100));
    // The thread that waits for the device is neither gone nor a zombie, and holds every file open.
    let waiting: Vec<_> = fs::read_dir(format!("/proc/{}/task", child.id()))
        .unwrap()
        .map(|task| task.unwrap().path())
        .filter(|task| {
            fs::read_to_string(task.join("stat"))
                .unwrap()
                .contains(") D ")
        })
        .collect();
    assert_eq!(waiting.len(), 1);
    let is_donor = |name: &Path| name.to_string_lossy().contains("unlinked-donor");
    let donors = fs::read_dir(waiting[0].join("fd"))
        .unwrap()
        .filter_map(|entry| fs::read_link(entry.unwrap().path()).ok())
        .filter(|name| is_donor(name))
        .count();
    assert_eq!(donors, 1);
    let status = child.wait().unwrap();
    eprintln!("ended {:?} after the signal: {status}", killed.elapsed());
    assert_eq!(
        std::os::unix::process::ExitStatusExt::signal(&status),
        Some(9)
    );
    assert!(killed.elapsed() > Duration::from_millis(150));
}
